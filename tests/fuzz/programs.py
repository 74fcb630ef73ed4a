"""Random programs: text for tests/dynamo/differential.py, made of statements that may appear
anywhere.

A program's `f(x, n, box, items)` has tensors x, y, z, whole numbers n and m, an object, a list, a
global dict G, a thread local, an array of numpy and a log. Statements nest: branches, loops, try,
with, match, functions with nonlocal, generators, comprehensions, classes. Some break the graph,
some raise. Masks select from tensors and arrays, control flow operators run bodies, ids and hashes
are compared. Tensors are copied, get other memory, become parameters and leaves with gradients and
hooks. Texts of tensors are printed and kept, context variables set, generators of random numbers
asked, arrays turned round.
"""

from __future__ import annotations

from hypothesis import strategies as st

Lines = list[str]

PREAMBLE = """
import contextvars, copy, dynamo, random, threading
import numpy as np
from torch._higher_order_ops import while_loop
local = threading.local()
var = contextvars.ContextVar('var', default=1)
rng = np.random.default_rng(3)
array = np.arange(2.0, dtype=np.float32)
class Box:
    kind = 'box'
    def __init__(self, v): self.v, self.n = v, 0
    def bump(self, k):
        self.n += k
        return self.v * self.n
    @property
    def twice(self): return self.v * 2
    def __getitem__(self, k): return self.v + k
    def __len__(self): return self.n
    def __eq__(self, other): return isinstance(other, Box) and self.n == other.n
    __hash__ = None
class Sub(Box):
    __slots__ = ('extra',)
    def bump(self, k): return super().bump(k) + 1
@dataclasses.dataclass
class Pair:
    left: object
    right: int = 1
    rest: list = dataclasses.field(default_factory=list)
class Swallow:
    def __init__(self, on): self.on = on
    def __enter__(self):
        log.append('enter')
        return self.on
    def __exit__(self, kind, value, tb):
        log.append(('exit', kind and kind.__name__, tb is None))
        return self.on
@contextlib.contextmanager
def managed(k):
    log.append(('in', k))
    try: yield k
    except KeyError as e: log.append(('swallowed', e.args))
    finally: log.append(('out', k))
@contextlib.contextmanager
def stopping(k):
    log.append(('in', k))
    dynamo.graph_break()
    try: yield k
    finally:
        dynamo.graph_break()
        log.append(('out', k))
def guarded(v, n):
    try:
        for i in range(n):
            yield v * i
            if i == 1: dynamo.graph_break()
            v = v + 1
    finally: log.append(('guarded', n))
def helper(v, k=1, *rest, flag=False):
    v = v * 2 + k
    if flag: print('helper', k)
    if k > 3: raise ValueError('helper', k)
    return v
def breaking(v, k):
    v = v + k
    dynamo.graph_break()
    log.append(('breaking', k))
    return v * 2
def breaking_sum(v):
    dynamo.graph_break()
    return float(v.sum())
def deep(v, k): return breaking(v - 1, k) + 1 if k % 2 else helper(v)
def numbers(n):
    for i in range(n):
        log.append(i)
        yield i
def counting(v, n):
    for i in range(n):
        if i == 1: dynamo.graph_break()
        yield v + i
def echo(v):
    got = None
    while True:
        got = yield (v if got is None else v * got)
        v = v + 1
G = {'k': 1, 'l': [1]}
def seen_by_numpy(v): return v.detach().numpy()
def chosen(v, k):
    return torch.cond(v.sum() > k, lambda a: a.sin() + k, lambda a: a * 2, (v.detach(),))
def repeated(v, k):
    return while_loop(lambda i, a: i < k, lambda i, a: (i + 1, a * 2),
                      (torch.zeros((), dtype=torch.int64), v.detach()))[1]
def f(x, n, box, items):
    y, z, m = x, x + 1, 0
    it, held = counting(z, 3), {}
"""
STEPS = """
---
box, items = Box(T(2)), [1]
vars(local).clear()
run(T(2), 1, box, items)
run(T(2), 1, box, items)
box.n, G['k'], local.count = 0, 2, 5
run(T(2), 2, box, items)
run(T(2) + 5, 3, Sub(T(2)), [])
"""

_TENSORS = """
x, y, z, x + 1, y * n, z - y, x.sin(), torch.relu(y), x + m, box.v, box[1], box.twice, helper(x)
helper(y, n), helper(z, k=2, flag=True), box.bump(2), x[:1], y.view(-1), y[-1], x.clone().add_(n)
torch.where(x > 0, y, z), (y if n > 1 else z), [x, y, z][n % 3], {'a': y}.get('a'), x.detach()
breaking(y, n), deep(x, n), deep(y, m), torch.stack([x, x]).sum(0), y.clone(), z.unsqueeze(0)[0]
Pair(y).left, functools.partial(helper, x)(n), functools.reduce(operator.add, [x, y])
(lambda v, k=n: v + k)(y), next(echo(y)), x.mul_(1), y.expand_as(z), torch.zeros(2), x.sum()
next(guarded(x, n)), sum(guarded(y, 2), z), [*guarded(x, 3)][-1]
max(guarded(z, 2), key=breaking_sum)
y * (x > 0), torch.where(z > n, y, 1), y.masked_fill(y < 0, n), x[x > 0].sum() + y, z[z > 5].sum()
x.index_put((x.new_zeros(2).long(),), y, accumulate=True), x[torch.nonzero(y > 0).flatten()].sum()
chosen(y, n), repeated(x, n), chosen(z, m), torch.from_numpy(array), torch.from_numpy(array * n)
torch.from_numpy(np.clip(seen_by_numpy(y), 0, n)), torch.from_numpy(seen_by_numpy(z)[::1])
torch.as_tensor(np.where(array > 0, seen_by_numpy(x), array)), torch.from_numpy(np.abs(array) + m)
torch.from_numpy(np.maximum(array, seen_by_numpy(z).sum()))
max([x, y], key=lambda t: t.numel()), sum([x, y], z), getattr(box, 'v'), x.new_ones(2) * m
"""
_NUMBERS = """
n; m; 2; n + 1; len(items); G['k']; box.n; len(log); x.shape[0]; m * 2 - n; y.numel(); y.dim()
sum(v for v in (1, n)); int(x.sum() > 0); max(n, m); items[0] if items else 7; len(box)
next(numbers(2)); [*numbers(2)][-1]; (lambda: n)(); len({n, m, 1}); min([3, n], default=0)
getattr(local, 'count', 0); len(vars(local)); array.size; array.ndim + n; len({id(x), id(y), id(z)})
len({hash(box.bump), hash(helper)}); int(id(y) == id(x)); int((y > 0).sum())
hash(helper) % 2 in (0, 1); len(y[y > 0]); int(np.sum(array) > 1); y[y == y].numel()
sorted([n, m, 2])[0]; divmod(n + 5, 3)[1]; Pair(1, n).right; items.count(n); hash('a') == 1
"""
_CONDITIONS = """
n > 1; m; len(items) > 1; x.sum() > 0; y is x; G['k'] == 1; 'l' in G; not box.n; n == 1 and m
n == 1 and x.max() < 9; isinstance(box, Sub); m < 3 or n; box; 1 < n <= 2; y.requires_grad
hasattr(local, 'count'); (array > 0).any(); id(x) == id(y); hash(helper) == hash(deep)
bool((y > 0).all()); array[0] > n
any(v > 1 for v in items); callable(box); hasattr(box, 'extra'); box == Box(x); n in items
(k := n) > 1; y.shape == z.shape; items == [n]; type(box) is Box; all(items)
"""


def _choices(text: str, separator: str) -> st.SearchStrategy[str]:
    return st.sampled_from(
        [one.strip() for line in text.strip().splitlines() for one in _split(line, separator)]
    )


def _split(line: str, separator: str) -> Lines:
    """Split at separators outside of brackets."""
    parts, depth = [""], 0
    for char in line:
        depth += (char in "([{") - (char in ")]}")
        if char == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


tensors = _choices(_TENSORS, ",")
numbers = _choices(_NUMBERS, ";")
conditions = _choices(_CONDITIONS, ";")

# A template and what fills it.
_SIMPLE = [
    ("{} = {}", st.sampled_from("yz"), tensors),
    ("m = {}", numbers),
    ("m += {}", numbers),
    ("y = y + {}", tensors),
    ("log.append({})", st.one_of(numbers, conditions, tensors)),
    ("items.append({})", numbers),
    ("items[:] = [v + 1 for v in items][-4:]",),
    ("items[0:1] = [{}, m]", numbers),
    ("items.insert(0, {})", numbers),
    ("items.sort(reverse=True)",),
    ("del items[:{}]", numbers),
    ("box.v = {}", tensors),
    ("box.n = {}", numbers),
    ("box.v += {}", tensors),
    ("setattr(box, 'extra', [{}, box])", tensors),
    ("del box.extra",),
    ("Box.kind = {}", numbers),
    ("G['k'] = {}", numbers),
    ("G.setdefault('new', []).append({})", numbers),
    ("G['l'] += [{}]", numbers),
    ("G.update(k={}, t={})", numbers, tensors),
    ("G.pop('t', None)",),
    ("print({}, m)", numbers),
    ("m = y.sum().item() > 0",),
    ("y, z = z, {}", tensors),
    ("z, *rest = {}, y, n", tensors),
    ("y = sum([{} for v in range(n)], y)", tensors),
    ("y = {{v: {} for v in 'ab'}}['b']", tensors),
    ("z = (lambda a, k=m: a * k)({})", tensors),
    ("y = y * torch.rand(1)",),
    ("m = int('x') if {} else 1", conditions),
    ("y.add_({})", numbers),
    ("x[0] = {}", numbers),
    ("y[:1].mul_({})", numbers),
    ("x.view(-1).add_({})", tensors),
    ("assert {}, m", conditions),
    ("dynamo.graph_break()",),
    ("box = Sub({}) if {} else box", tensors, conditions),
    ("p = Pair({}, m); p.rest.append(p.left); y = p.rest[0]", tensors),
    ("g = echo({}); next(g); y = g.send(n); g.close()", tensors),
    ("it = counting({}, n)", tensors),
    ("y = y + next(it, x)",),
    ("y = sum([next(it, x) for v in range(2)], y)",),
    ("z = (lambda k=m: next(it, x) * k)()",),
    ("step = lambda v: (next(it, v), breaking(v, 1)); y = step({})[0]", tensors),
    ("held['a'], held[m] = counting({}, 2), it", tensors),
    ("y = next(held.get('a', it), y) + next(held.get(n, it), x)",),
    ("held.pop('a', None)",),
    ("m = f'{{m}}-{{n!r}}'.count('1')",),
    ("y = y if m is None else {}", tensors),
    ("log.append(y is x or y is box.v)",),
    ("log.append(sorted(vars(box)))",),
    ("local.count = {}", numbers),
    ("vars(local)['count'] = {}", numbers),
    ("vars(local).pop('count', None)",),
    ("array[:1] = {}", numbers),
    ("array[...] = seen_by_numpy({})", tensors),
    ("array[array > {}] += 1", numbers),
    ("np.add(array, {}, out=array)", numbers),
    ("torch.from_numpy(array).mul_({})", numbers),
    ("seen_by_numpy(y)[:1] = {}", numbers),
    (
        "with np.errstate(all='raise' if {} else 'ignore'): m = float(np.sqrt(array - 3).size)",
        conditions,
    ),
    ("y = y.clone(); y[y > 0] = {}", numbers),
    ("y = y.clone(); y[y > 0] *= 2",),
    ("x[x > {}] = 1", numbers),
    ("z = torch.where(x > 0, {}, z)", tensors),
    # What a tensor is: memory, copies, leaves, hooks.
    ("y = copy.deepcopy({})", tensors),
    ("y, box = copy.deepcopy((y, box))",),
    ("z = copy.copy({}); z.add_({})", tensors, numbers),
    ("y = y * 1; y.data = {}", tensors),
    ("x.data = {}", tensors),
    ("y = x.data; y.mul_({})", numbers),
    ("z = z + 0; z.detach_(); z[:1] = {}", numbers),
    ("G['w'] = nn.Parameter({}); y = G['w'].detach() * n", tensors),
    ("w = nn.Parameter(x.data); (w * {}).sum().backward(); z = w.grad", tensors),
    ("w = (x * 1).requires_grad_(); (w * w).sum().backward(); y = w.grad + {}", tensors),
    ("w = (x * 2).requires_grad_() * {}; w.register_hook(log.append); G['w'] = w.sum()", tensors),
    ("v = (x * 2).requires_grad_(); w = v * n; w.retain_grad(); w.sum().backward(); y = w.grad",),
    ("torch._foreach_mul_([y, z], {})", numbers),
    ("print(f'{{y.sum():.3f}} {{z.sum().item():.2f}}', {})", numbers),
    ("print({}, y.shape)", tensors),
    ("log.append(f'{{x.max():.4f}}|{{m}}')",),
    ("text = f'{{z.mean():.3f}}'; log.append(text + str(n)); m = len(text) + n",),
    ("log.append(str({}))", tensors),
    ("var.set({})", numbers),
    ("token = var.set({}); y = y * var.get(); var.reset(token)", numbers),
    ("m = var.get()",),
    ("array[:] = array[::-1] + {}", numbers),
    ("y = y + torch.from_numpy(np.flip(array).copy())",),
    ("log.append(array[::-1]); array[0] = {}", numbers),
    ("y = y * random.Random(n).random() + random.choice([1, 2])",),
    ("y = y + torch.from_numpy(rng.random(2)).float() + rng.uniform()",),
    ("z = sum({{x + 1, y * 2}})",),
]
_RAISING = [
    ("raise KeyError({})", numbers),
    ("raise ValueError(m)",),
    ("raise ValueError(n) from KeyError(m)",),
    ("[][m]",),
    ("x + torch.ones(7)",),
    ("G[{}]", conditions),
    ("helper(x, 9)",),
    ("box.missing",),
]


def _filled(rows: list[tuple]) -> st.SearchStrategy[str]:
    made = [st.builds(text.format, *parts) for text, *parts in rows]
    return st.one_of(made)


simple = _filled(_SIMPLE)
raising = st.one_of(simple, _filled(_RAISING))


def indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


def blocks(depth: int, in_loop: bool = False) -> st.SearchStrategy[Lines]:
    """Two to four statements, nested up to `depth`."""
    statement = simple.map(lambda s: [s])
    if in_loop:
        jump = st.builds("if {}: {}".format, conditions, st.sampled_from(["break", "continue"]))
        statement = st.one_of(statement, statement, jump.map(lambda s: [s]))
    if depth:
        nested, flat = compound(depth - 1, in_loop), statement
        statement = st.integers(0, 2).flatmap(lambda k: nested if k else flat)
    return st.lists(statement, min_size=2, max_size=4).map(lambda parts: sum(parts, []))


def _with_body(header: str, body: Lines, *more: str | Lines) -> Lines:
    """A compound statement; a str among `more` is another header, a list its body."""
    lines = [header, *indented(body)]
    for part in more:
        lines += [part] if isinstance(part, str) else indented(part)
    return lines


_LOOPS = [
    "for i in range(n):",
    "for m in list(items)[:3]:",
    "for m, y in enumerate([x, z]):",
    "for i in numbers(2):",
    "for k in list(G):",
    "for y in guarded(x, 3):",
    "for m, y in enumerate(guarded(z, n)):",
    "for y, m in zip(guarded(x, 3), numbers(2)):",
    "for y in map(helper, guarded(z, 2)):",
    "for y in itertools.chain(guarded(x, 1), guarded(y, n)):",
    "for y, m in zip([x, z], items):",
    "for y in torch.stack([x, x]).unbind():",
]
_MANAGERS = ["Swallow(n > 1)", "managed(n)", "torch.no_grad()", "stopping(n)"]
_SEVERAL = "managed(m), Swallow(False)"


def compound(depth: int, in_loop: bool) -> st.SearchStrategy[Lines]:
    inner, loop = blocks(depth, in_loop), blocks(depth, True)
    own = blocks(depth)  # of a function: in no loop
    trying = st.tuples(inner, raising).map(lambda p: [*p[0], p[1]])
    loops = st.sampled_from(_LOOPS)
    counted = [f"w{depth} = 3", f"while w{depth} > 0:", f"    w{depth} -= 1"]
    return st.one_of(
        st.builds(lambda c, a, b: _with_body(f"if {c}:", a, "else:", b), conditions, inner, inner),
        st.builds(_with_body, loops, loop),
        st.builds(lambda h, a, b: _with_body(h, a, "else:", b), loops, loop, inner),
        loop.map(lambda body: [*counted, *indented(body)]),
        st.builds(
            lambda a, b: _with_body(
                "try:", a, "except (KeyError, IndexError) as e:", ["log.append(e.args)", *b]
            ),
            trying,
            inner,
        ),
        st.builds(
            lambda a, b, c: _with_body(
                "try:", a, "except ValueError as e:", [*b, "if n == 2: raise"], "finally:", c
            ),
            trying,
            inner,
            inner,
        ),
        st.builds(
            lambda m, a: _with_body(f"with {m} as c:", a), st.sampled_from(_MANAGERS), trying
        ),
        trying.map(lambda body: _with_body(f"with {_SEVERAL}:", body)),
        own.map(
            lambda b: [
                *_with_body("def inner(y, z):", ["nonlocal m, box, it", *b, "return y, z"]),
                "y, z = inner(z, y)",
            ]
        ),
        own.map(
            lambda b: [
                *_with_body(
                    "def produced(y, z):", ["nonlocal m, box, it", "yield y", *b, "yield z"]
                ),
                "for y in produced(z, y): m += 1",
            ]
        ),
        st.builds(
            lambda b, c, d: [
                "def produced(y, z):",
                "    nonlocal m, box, it",
                *indented(_with_body("try:", ["yield y", *b, "m = yield z"], "finally:", c)),
                *_with_body("for y in produced(z, y):", d),
            ],
            own,
            own,
            loop,
        ),
        own.map(
            lambda b: [
                *_with_body("class Local(Box):", _with_body("def made(self, y, z):", _fresh(b))),
                "y = Local(y).made(y, z)",
            ]
        ),
        st.builds(
            lambda a, b: [
                "match (n, items):",
                *indented([*_with_body("case (1, [first, *_]):", ["m = first", *a])]),
                *indented([*_with_body("case (k, []) if k > 1:", b), "case _: m = m + 1"]),
            ],
            inner,
            inner,
        ),
    )


def _fresh(body: Lines) -> Lines:
    """A function body with variables of its own."""
    return ["nonlocal box, it", "m = 1", *body, "return y + m"]


def program(body: Lines) -> str:
    """The whole program, for tests.dynamo.differential.check."""
    lines = indented([*body, "return x, y, z, m, items, box"])
    return PREAMBLE + "\n".join(lines) + "\n" + STEPS
