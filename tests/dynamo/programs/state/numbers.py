"""Numbers in what a function reads from outside, one after the other: after the second, capture takes
a number for a symbol, and what depends on it must still be told apart.
"""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False, dynamic=(None, True), config={"recompile_limit": 64})

# name -> what `r` is made of at a number v, and what the function reads of it.
_HOLDERS = {
    "range_stop": ("range(v)", "len(r), r.stop, list(r), repr(r), r, [i for i in r], max(r)"),
    "range_start": ("range(v, 9)", "len(r), r.start, 4 in r, r[0], r == range(3, 9), sum(r)"),
    "range_step": ("range(0, 10, v)", "len(r), r.step, sum(r), list(reversed(r))"),
    "slice": ("slice(v)", "x[r], r.stop, r, repr(r), r == slice(3), r.indices(5)"),
    "tuple": (
        "(v, 2)",
        "r, r == (3, 2), r < (4, 1), 3 in r, sorted(r), {r: 1}.get((3, 2)), '%s %s' % r",
    ),
    "list": ("[v, 2]", "r == [3, 2], r < [4, 1], r.count(3), sum(r), max(r), r * r[1], repr(r)"),
    "dict": (
        "{'a': v, v: 1}",
        "r == {'a': 3, 3: 1}, list(r), 3 in r, r.get(4), str(r), dict(r, b=1)",
    ),
    "set": (
        "{v, 10}",
        "3 in r, len(r), sorted(r), r == {3, 10}, max(r), {r_: 1 for r_ in sorted(r)}",
    ),
    "deque": ("collections.deque([1, v], maxlen=v)", "r.maxlen, r, r[-1], r.count(3), repr(r)"),
    "counter": ("collections.Counter(a=v)", "r['a'], r.total(), r + collections.Counter(a=1)"),
    "partial": ("functools.partial(operator.mul, v)", "r(x), r.args, r(2)"),
    "closure": ("(lambda k: lambda: k)(v)", "r() * x, r.__closure__[0].cell_contents == 3"),
    "number": (
        "v",
        "r * x, str(r), f'{r:03}', bool(r), hash(r), r / 2, r ** 2, [0] * r, {r: 1}, max(r, 4)",
    ),
    "counts": (
        "v",
        "list(itertools.repeat(1, r)), list(itertools.accumulate([1, r])), list(zip(range(r), 'abc'))",
    ),
    "object": (
        "types.SimpleNamespace(v=v)",
        "r.v * x, vars(r), repr(r), r == types.SimpleNamespace(v=3)",
    ),
    "numpy": (
        "np.int64(v)",
        "r * x, r == 3, [0] * r, int(r), str(r), type(r + 1).__name__, hash(r)",
    ),
    "numpy_narrow": ("np.int32(v)", "r * x, r == 3, str(r), type(r + 1).__name__, r * 2**28"),
    "array": ("np.array([v, 1])", "r * 2, int(r[0]), r.sum(), r.tolist()"),
    "size": ("torch.Size([v, 2])", "r.numel(), r == (3, 2), r, list(r), repr(r)"),
    "shape": (
        "torch.zeros(v, 2)",
        "r.shape, r.numel(), r.shape == (3, 2), str(r.shape), r.T.stride(), f'{len(r)}', "
        "(1,) + r.shape, r.shape + (1,), () + r.shape",
    ),
    "namedtuple": ("P(v, 2)", "r.a * x, r, r == (3, 2), r._asdict(), r._replace(b=5), repr(r)"),
    "dataclass": (
        "D(v)",
        "r.a * x, r == D(3), dataclasses.asdict(r), dataclasses.replace(r, b=7), repr(r)",
    ),
    "enum": ("E(v)", "r * x, r == 3, r.name, r + 1, [0] * r, x[r:]"),
    "int_subclass": (
        "I(v)",
        "r * x, r == 3, [0] * r, r, hash(r), {r: 1}.get(3), type(r + 1).__name__",
    ),
    "index": ("X(v)", "x[r], [1, 2, 3, 4, 5, 6, 7, 8][r], range(r), 'a' * r, x[:r]"),
    "key": ("{K(v): 1}", "r.get(K(3)), K(3) in r, list(r)[0].v == 3, {K(3): 5}.get(list(r)[0])"),
}
_DEFINITIONS = """
import types
P = collections.namedtuple('P', 'a b')
E = enum.IntEnum('E', {f'A{i}': i for i in range(9)})
@dataclasses.dataclass
class D:
    a: int
    b: int = 5
class I(int): pass
class X:
    def __init__(self, v): self.v = v
    def __index__(self): return self.v
class K:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return self.v == other.v
    def __hash__(self): return hash(self.v)
"""


def _program(made: str, read: str) -> str:
    calls = [f"run(T(8), (lambda v: {made})({v}))" for v in (3, 4, 5, 7, 3)]
    return "\n".join([_DEFINITIONS, f"def f(x, r): return {read}", "---", *calls])


PROGRAMS = {f"number_in_{name}": _program(*holder) for name, holder in _HOLDERS.items()}
