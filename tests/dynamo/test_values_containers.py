"""Containers: every method against eager, from outside and made inside."""

import collections

import pytest
import torch

from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


Point = collections.namedtuple("Point", "x y")


@program(tensor)
def list_methods(x):
    items = [x * 2, 7]
    items.append(6)
    items.extend([3, 4])
    items[0] = 1
    items.insert(0, "first")
    last = items.pop()
    items.reverse()
    return items, last, items.index("first"), items.count(3), len(items), items[1:3], x * 2


@program(tensor, [3, 1, 2])
def list_from_outside(x, items):
    items.sort()
    items.append(x.sum())
    items[0] = x
    del items[1]
    return items


@program(tensor, [1, 2, 3])
def list_slices(x, items):
    items[1:2] = [x, x]
    del items[0]
    items += [5]
    return items[::-1], items * 2, items + [1], x + len(items)


@program(tensor, [3, 1, 2])
def list_comparisons(x, items):
    return items == [3, 1, 2], items < [4], items != [1], 3 in items, 7 not in items, x + 1


@program(tensor)
def sorted_with_key(x):
    names = ["bb", "a", "ccc"]
    return sorted(names, key=len, reverse=True), sorted([3, 1, 2]), x * 2


@program(tensor)
def sorted_tensor_pairs(x):
    pairs = [(2, x), (1, x + 1)]
    pairs.sort(key=lambda p: p[0])
    return pairs


@program(tensor)
def list_errors(x):
    try:
        [1, 2][5]
    except IndexError:
        x = x + 1
    try:
        [1].remove(2)
    except ValueError:
        x = x + 10
    return x


@program(tensor)
def same_list_twice(x):
    items = [x + 1]
    pair = (items, items)
    items.append(x)
    return pair[0] is pair[1], pair


@program(tensor, [[1], [2]])
def nested_lists(x, rows):
    rows[0].append(x)
    rows.append(rows[0])
    return rows


@program(tensor)
def tuple_methods(x):
    t = (x, 1, 2, 1)
    a, *b = t
    return (
        t[1:],
        t[1:].count(1),
        t[1:].index(2),
        t[1:] + (3,),
        b,
        x * 2,
        len(t),
        (1, 2) < (1, 3),
        t[1:] * 2,
    )


@program(tensor, Point(1, 2))
def named_tuples(x, p):
    q = Point(x, p.y)
    r = q._replace(y=5)
    a, b = r
    return q, r, p.x + b, q._fields, r._asdict(), isinstance(q, tuple), x + b


@program(tensor)
def torch_size(x):
    size = x.unsqueeze(0).shape
    return (
        size,
        size[0],
        size[-1],
        size.numel(),
        list(size),
        size + (1,),
        x.view(*size),
        tuple(size),
    )


@program(tensor)
def max_with_dim(x):
    result = x.max(dim=0)
    return result.values + 1, result.indices, result[0]


@program(tensor)
def dict_methods(x):
    d = {"a": x, "b": 1}
    d["c"] = x + 1
    d.update({"b": 2}, e=5)
    d.setdefault("f", 6)
    gone = d.pop("a")
    return (
        d,
        gone,
        d.get("zz"),
        d.get("b", 0),
        "c" in d,
        len(d),
        list(d),
        list(d.values()),
        list(d.items()),
    )


@program(tensor, {"a": 1, "b": [2]})
def dict_from_outside(x, d):
    d["b"].append(x)
    d["new"] = x + d["a"]
    del d["a"]
    return sum(1 for _ in d), list(d.keys())


@program(tensor, {"a": 1, "b": 2})
def dict_iteration(x, d):
    for key, value in d.items():
        x = x + value if key == "a" else x * value
    return x, {k: v + 1 for k, v in d.items()}


@program(tensor)
def dict_operators(x):
    a, b = {"p": 1}, {"q": x}
    a |= {"r": 2}
    return a | b, a == {"p": 1, "r": 2}, a.keys() & {"p"}, a.keys() - b.keys()


@program(tensor)
def dict_errors(x):
    try:
        return {"a": 1}["b"]
    except KeyError as error:
        return x + 1, str(error), error.args


@program(tensor)
def dict_keys_of_many_kinds(x):
    d = {(1, "a"): x, None: 1, torch.float32: 2, int: 3, frozenset([1]): 4}
    return d[1, "a"] + d[None] + d[x.dtype] + d[int], d[frozenset([1])], len(d)


@program(tensor)
def dict_fromkeys(x):
    return dict.fromkeys(["a", "b"], 0), dict(a=x), dict([("k", 1)]), dict(zip("ab", [1, 2]))


@program(tensor)
def ordered_dict(x):
    d = collections.OrderedDict(a=1, b=x)
    d.move_to_end("a")
    first = d.popitem(last=False)
    return d, first


@program(tensor)
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(1)
    d["b"].append(x + 1)
    return d, len(d)


@program(tensor, lambda: collections.defaultdict(int, a=1))
def default_dict_from_outside(x, d):
    d["a"] += 1
    d["z"] += 5
    return x + d["z"]


@program(tensor, lambda: collections.OrderedDict(a=1, b=2))
def ordered_dict_from_outside(x, d):
    d["c"] = x
    d.move_to_end("a")
    return list(d)


@program(tensor)
def counter(x):
    c = collections.Counter("abca")
    return x + c["a"], c["zz"], c.most_common(1), sum(c.values())


@program(tensor)
def deque_methods(x):
    d = collections.deque([1, 2], maxlen=3)
    d.append(x)
    d.appendleft(0)
    d.rotate(1)
    return d, d.popleft(), len(d), d.maxlen


@program(tensor, lambda: collections.deque([1, 2, 3]))
def deque_from_outside(x, d):
    d.popleft()
    d.append(x)
    return d[0]


@program(tensor)
def set_methods(x):
    s = {1, 2}
    s.add(3)
    s.discard(1)
    s |= {7}
    return (
        s,
        s & {2},
        s - {2},
        s ^ {9},
        2 in s,
        len(s),
        s.issubset({2, 3, 7, 8}),
        frozenset(s),
        x + len(s),
    )


@program(tensor, {1, 2, 3})
def set_from_outside(x, s):
    s.remove(1)
    s.add("x")
    return 2 in s, x + 1


@program(tensor)
def tensors_in_sets(x):
    y = x + 1
    seen = set()
    seen.add(x)
    seen.add(y)
    seen.add(x)
    return len(seen), x in seen, y in seen


@program(tensor)
def ranges_and_slices(x):
    r = range(2, 10, 3)
    s = slice(1, 3)
    return (
        list(r),
        len(r),
        r[1],
        5 in r,
        x[s],
        s.start,
        s.indices(4),
        list(reversed(r)),
        r == range(2, 10, 3),
    )


@program(tensor)
def strings(x):
    name = "layer"
    text = (
        f"{name}.{len(x)}:{3.14159:.2f}!" + name.upper() + ",".join(["a", "b"]) + "%d-%s" % (1, "z")
    )
    return (
        x + len(text),
        text,
        name.startswith("la"),
        "a,b".split(","),
        name[::-1],
        "{} {k}".format(1, k=2),
        name * 2,
    )


@program(tensor)
def string_of_containers(x):
    return (
        str([1, "a"]),
        repr((1,)),
        f"{ {'a': 1} }",
        str(x.dtype),
        f"{x.shape}",
        f"{x.shape[0]!r:>4}",
        x + 1,
    )


@program(tensor)
def bytes_methods(x):
    return b"ab".hex(), b"ab"[0], b"a" + b"b", x + len(b"abc")


@program(tensor)
def unpacking(x):
    (a, b), *rest = [(1, x), 2, 3]
    first, *middle, last = range(5)
    return a, b, rest, first, middle, last, [*rest, *middle], {**{"a": 1}, "b": x}


@program(tensor, ([1, 2], {"k": (3, 4)}))
def nested_outside(x, tree):
    (a, b), d = tree
    return x * a + b + d["k"][1]


def test_identity_of_outside_items():
    def f(rows):
        rows[0].append(1)
        return rows[0] is rows[1], len(rows[1])

    def make():
        inner = []
        return [inner, inner]

    check(lambda x, rows: (f(rows), x + 1), [tensor, make])


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)
