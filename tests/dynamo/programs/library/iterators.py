"""Iterators that leave the frame: their types, where they stand, and what they do behind their end."""

from tests.dynamo.programs import ONE, Family

# Each is made, advanced, returned, and looked at.
ITERATORS = """
iter("abc"); iter(""); iter("a\\u00e9b"); iter(b"abc"); iter(Text("abc")); reversed("abc"); reversed(b"abc")
iter(range(4)); iter(range(2, 10, 3)); iter(range(2 ** 70, 2 ** 70 + 4)); reversed(range(4))
iter(D); iter(D.items()); iter(D.values()); reversed(D); reversed(D.items()); reversed(D.values())
iter(O); iter(O.items()); reversed(O); reversed(O.keys()); reversed({"a": 1, "b": 2}); iter({})
iter([1, 2, 3]); iter((1, 2)); iter([]); iter(()); reversed([1, 2, 3]); reversed((1, 2)); iter({1, 2})
iter(frozenset([1])); iter(collections.deque([1, 2])); reversed(collections.deque([1, 2, 3]))
iter(Items()); iter(int, 1); iter(Colour); reversed(Colour); re.finditer("a", "aba")
zip([1, 2, 3], "abc"); zip(); zip((1, 2), (3, 4), strict=True); map(str, [1, 2]); enumerate("abc", 5)
filter(None, [0, 1, 2]); itertools.count(2.5); itertools.cycle("ab"); itertools.repeat(3, 2)
itertools.chain([1], "ab"); itertools.chain.from_iterable([[1, 2], [3]]); itertools.islice([1, 2, 3], 1, 3)
itertools.product("ab", [1, 2]); itertools.permutations([1, 2, 3], 2); itertools.combinations("abc", 2)
itertools.accumulate([1, 2, 3]); itertools.takewhile(bool, [1, 0, 1]); itertools.dropwhile(bool, [1, 0, 1])
itertools.filterfalse(None, [0, 1]); itertools.compress("abc", [1, 0, 1]); itertools.pairwise([1, 2, 3])
itertools.starmap(pow, [(2, 3), (3, 2)]); itertools.zip_longest([1, 2], [3]); itertools.tee([1, 2, 3])[0]
itertools.groupby("aab"); itertools.groupby([1, 1, 2], lambda v: -v); BATCHED
"""
DEFINITIONS = """
import re
class Text(str): pass
class Items:
    def __len__(self): return 4
    def __getitem__(self, i):
        if i > 3: raise IndexError
        return i * 2
class Colour(enum.Enum):
    A = 1
    B = 2
D, O = {"a": 1, "b": 2, "c": 3}, collections.OrderedDict(a=1, b=2)
has_batched = hasattr(itertools, "batched")
def tried(f, *args):
    try: return f(*args)
    except Exception as e: return type(e).__name__, str(e)
def hidden(v): return type(v).__name__ if hasattr(v, "__next__") else v
def shown(v): return tuple(map(hidden, v)) if isinstance(v, tuple) else hidden(v)
def looked_at(it):
    state = []
    if type(it).__module__ != "itertools" and type(it).__name__ != "generator":
        state.append(re.sub("0x[0-9a-f]+", "", repr(it.__reduce__())))
        if hasattr(it, "__length_hint__"): state.append(it.__length_hint__())
    return type(it).__name__, state, [shown(next(it, "end")) for _ in range(5)]
def odd(*items): return Odd(items)
class Odd:
    def __init__(self, items): self.items = list(items)
    def __iter__(self): return self
    def __next__(self):
        log.append("next")
        item = self.items.pop(0) if self.items else None
        if item is None: raise StopIteration
        if item == "x": raise ValueError(len(self.items))
        return item
"""
FAMILY = Family(backends=ONE, prelude=DEFINITIONS)
# Iterators over `o`, which goes on after its end.
OVER = """
zip(o, range(9)); zip(range(9), o); map(str, o); enumerate(o); filter(None, o); iter(o.__next__, 3)
itertools.takewhile(lambda v: v < 2, o); itertools.takewhile(bool, o); itertools.dropwhile(lambda v: v < 2, o)
itertools.filterfalse(lambda v: v > 2, o); itertools.compress(o, [1] * 9); itertools.accumulate(o)
itertools.starmap(pow, zip(o, o)); itertools.chain(o, [7, 8]); itertools.chain.from_iterable([o, o])
itertools.islice(o, 5); itertools.islice(o, 1, None, 2); itertools.pairwise(o); itertools.zip_longest(o, [1])
itertools.cycle(o); zip(o, o, strict=True); itertools.zip_longest(o, o); BATCHED_OVER
"""
BATCHED = {"BATCHED_OVER": "itertools.batched(o, 2)", "BATCHED": "itertools.batched('abc', 2)"}
CHANGED = {
    "set": "s = {1, 2}; it = iter(s); next(it); s.add(3)\ts.discard(3)",
    "dict": "s = {1: 1, 2: 2}; it = iter(s); next(it); s[3] = 3\tdel s[3]",
    "ordered": "s = collections.OrderedDict(a=1, b=1); it = iter(s); next(it); s[3] = 3\tdel s[3]",
    "ordered_at_its_end": "s = collections.OrderedDict(a=1); it = iter(s); next(it); s[3] = 3\tdel s[3]",
    "deque": "s = collections.deque([1, 2]); it = iter(s); list(it); s.append(3)\ts.pop()",
    "deque_backwards": "s = collections.deque([1]); it = reversed(s); s.append(3)\ts.pop()",
}


def made(text: str) -> list[str]:
    for name, expression in BATCHED.items():
        text = text.replace(name, f"{expression} if has_batched else iter([])")
    return [part.strip() for part in text.replace("\n", ";").split(";") if part.strip()]


def as_they_are(drawn: int) -> str:
    return f"""
def f(x):
    its = [{", ".join(made(ITERATORS))}]
    got = [[shown(next(it, 'end')) for _ in range({drawn})] for it in its]
    return x + 1, its, got
def g():
    _, its, got = run(T(2))
    return got, [looked_at(it) for it in its]
---
g()
g()"""


BEHIND = ["1, 2, None, 3, 4, None, 5", "'x', 1, 2, None", "1, 'x', 2, None, 3"]


def behind_their_end(items: str) -> str:
    return f"""
MAKERS = [{", ".join(f"lambda o: {one}" for one in made(OVER))}]
def f(x, drawn):
    its = [make(odd({items})) for make in MAKERS]
    got = [[tried(next, it, 'end') for _ in range(drawn)] for it in its]
    return x + 1, its, got
def g(drawn):
    _, its, got = run(T(2), drawn)
    return got, [[tried(next, it, 'end') for _ in range(5)] for it in its]
---
g(1)
g(3)
g(4)"""


def over_what_changes(kind: str) -> str:
    first, back = CHANGED[kind].split("\t")
    return f"""
def f(x):
    {first}
    seen = [tried(next, it, 0), tried(next, it, 0)]
    {back}
    return x + 1, seen, tried(next, it, 0)
---
run(T(2))"""


PROGRAMS = {
    "reversed_items": """
        def f(x):
            y = x + 1
            it = reversed(Items())
            return y, next(it), it
        def g():
            _, first, it = run(T(2))
            return first, looked_at(it)
        ---
        g()
    """,
    "tee": """
        def f(x):
            a, b = itertools.tee(map(lambda v: log.append(v) or v, [1, 2, 3, 4, 5]))
            next(a), next(a), next(b)
            return x + 1, a, b
        def g():
            _, a, b = run(T(2))
            return next(a), list(log), next(b), list(log), next(b), list(log), list(a), list(b), type(a).__name__
        ---
        g()
    """,
    "groups": """
        def f(x, key):
            g = itertools.groupby([1, 1, 2, 3, 3, 4], key)
            k, h = next(g)
            next(h)
            k2, h2 = next(g)
            return x + 1, g, h, h2, k, k2
        def g(key):
            _, g, h, h2, k, k2 = run(T(2), key)
            return type(g).__name__, type(h).__name__, k, k2, list(h), list(h2), [(k, list(v)) for k, v in g]
        ---
        g(None)
        g(lambda v: log.append(v) or v // 2)
    """,
    "groups_that_are_used_up": """
        def f(x, n):
            g = itertools.groupby([1, 1, 2, 3, 3, 4], lambda v: log.append(v) or v // 2)
            k, h = next(g)
            got = [next(h, 'end') for _ in range(n)]
            return x + 1, g, h, got
        def g(n):
            _, g, h, got = run(T(2), n)
            return got, list(h), [(k, list(v)) for k, v in g]
        ---
        g(1)
        g(2)
        g(3)
    """,
    "reversed_that_changes": """
        def f(x, d):
            it = reversed(d.items())
            first, other = next(it), reversed(d)
            d['z'] = 2
            return x + 1, tried(next, it, 0), tried(next, other, 0), first
        ---
        run(T(2), {'a': 1, 'b': 2})
        run(T(2), collections.OrderedDict(a=1, b=2))
    """,
    "sets_of_objects": """
        class P:
            def __init__(self, k): self.k = k
        def f(x, ps):
            s, t = set(ps), x * 0
            for p in s:
                t = t + x * p.k
            for p in s:
                s.discard(p)
                break
            return t, len(s)
        ---
        p = P(3)
        for ps in ([P(1), P(2), P(4)], [P(1), P(2), P(4)], [p, p, P(4)]): run(torch.ones(3), ps)
        p = ps = None
    """,
    "matches": """
        P = re.compile("a(b)")
        def f(x, s):
            it, other = P.finditer(s, 1), re.finditer("b", s)
            return x + 1, it, next(it).start(), other, len(list(other))
        def g(s):
            _, it, start, other, n = run(T(2), s)
            return start, [m.span(1) for m in it], n, list(other), type(other).__name__
        ---
        g("abababab")
        g("abababab")
        g("cababab")
    """,
}

PROGRAMS |= {f"as_they_are-{drawn}": as_they_are(drawn) for drawn in (0, 1, 2, 7)}
PROGRAMS |= {f"behind_their_end-{items}": behind_their_end(items) for items in BEHIND}
PROGRAMS |= {f"over_what_changes-{kind}": over_what_changes(kind) for kind in CHANGED}
