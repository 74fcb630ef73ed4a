"""Random small programs: eager and compiled agree in everything that can be seen."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.dynamo.differential import check

PREAMBLE = """
class Box:
    def __init__(self, v): self.v, self.n = v, 0
    def bump(self, k):
        self.n += k
        return self.v * self.n
    def __getitem__(self, k): return self.v + k
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
def helper(v, k=1, *rest, flag=False):
    v = v * 2 + k
    if flag: print('helper', k)
    if k > 3: raise ValueError('helper', k)
    return v
def numbers(n):
    for i in range(n):
        log.append(i)
        yield i
G = {'k': 1, 'l': [1]}
def f(x, n, box, items):
    y, z, m = x, x + 1, 0
"""
STEPS = """
---
box, items = Box(T(2)), [1]
run(T(2), 1, box, items)
run(T(2), 1, box, items)
box.n, G['k'] = 0, 2
run(T(2), 2, box, items)
run(T(2) + 5, 3, Box(T(2)), [])
run(T(2), 1, Box(T(2, grad=True)), items)
"""

tensors = st.sampled_from(
    [
        "x",
        "y",
        "z",
        "x + 1",
        "y * n",
        "z - y",
        "x.sin()",
        "torch.relu(y)",
        "x + m",
        "box.v",
        "box[1]",
    ]
    + [
        "helper(x)",
        "helper(y, n)",
        "helper(z, k=2, flag=True)",
        "box.bump(2)",
        "x[:1]",
        "y.view(-1)",
    ]
    + ["torch.where(x > 0, y, z)", "(y if n > 1 else z)", "x.clone().add_(n)", "[x, y, z][n % 3]"]
)
numbers = st.sampled_from(
    ["n", "m", "2", "n + 1", "len(items)", "G['k']", "box.n", "len(log)", "x.shape[0]", "m * 2 - n"]
    + ["sum(v for v in (1, n))", "int(x.sum() > 0)", "max(n, m)", "items[0] if items else 7"]
)
conditions = st.sampled_from(
    [
        "n > 1",
        "m",
        "len(items) > 1",
        "x.sum() > 0",
        "y is x",
        "G['k'] == 1",
        "'l' in G",
        "not box.n",
    ]
    + ["n == 1 and x.max() < 9", "isinstance(box, Box)", "m < 3 or n"]
)
simple = st.one_of(
    st.builds("{} = {}".format, st.sampled_from("yz"), tensors),
    st.builds("m = {}".format, numbers),
    st.builds("m += {}".format, numbers),
    st.builds("y = y + {}".format, tensors),
    st.builds("log.append({})".format, st.one_of(numbers, conditions)),
    st.builds("items.append({})".format, numbers),
    st.just("items[:] = [v + 1 for v in items][-4:]"),
    st.builds("box.v = {}".format, tensors),
    st.builds("box.n = {}".format, numbers),
    st.builds("setattr(box, 'extra', [{}, box])".format, tensors),
    st.builds("G['k'] = {}".format, numbers),
    st.builds("G.setdefault('new', []).append({})".format, numbers),
    st.builds("print({}, m)".format, numbers),
    st.just("m = y.sum().item() > 0"),
    st.builds("y, z = z, {}".format, tensors),
    st.builds("y = sum([{} for v in range(n)], y)".format, tensors),
    st.builds("z = (lambda a, k=m: a * k)({})".format, tensors),
    st.builds("z = {{'a': {}}}['a']".format, tensors),
    st.just("y = y * torch.rand(1)"),
    st.builds("m = int('x') if {} else 1".format, conditions),
    st.builds("y.add_({})".format, numbers),
    st.builds("assert {}, m".format, conditions),
)
raising = st.one_of(
    simple,
    st.builds("raise KeyError({})".format, numbers),
    st.just("raise ValueError(m)"),
    st.just("[][m]"),
)


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def blocks(depth: int, in_loop: bool = False) -> st.SearchStrategy[list[str]]:
    statement = simple.map(lambda s: [s])
    if in_loop:
        jump = st.builds("if {}: {}".format, conditions, st.sampled_from(["break", "continue"]))
        statement = st.one_of(statement, jump.map(lambda s: [s]))
    statement_before = statement
    if depth:
        nested = compound(depth - 1, in_loop)
        statement = st.integers(0, 2).flatmap(lambda k: nested if k else statement_before)
    return st.lists(statement, min_size=2, max_size=4).map(lambda parts: sum(parts, []))


def compound(depth: int, in_loop: bool) -> st.SearchStrategy[list[str]]:
    inner, loop = blocks(depth, in_loop), blocks(depth, True)
    trying = st.tuples(inner, raising.map(lambda s: [s])).map(lambda p: p[0] + p[1])
    loops = st.sampled_from(
        ["for i in range(n):", "for m in list(items)[:3]:", "for m, y in enumerate([x, z]):"]
        + ["for i in numbers(2):", "for k in list(G):"]
    )
    return st.one_of(
        st.tuples(conditions, inner, inner).map(
            lambda p: [f"if {p[0]}:", *indented(p[1]), "else:", *indented(p[2])]
        ),
        st.tuples(loops, loop).map(lambda p: [p[0], *indented(p[1])]),
        st.tuples(loops, loop, inner).map(
            lambda p: [p[0], *indented(p[1]), "else:", *indented(p[2])]
        ),
        loop.map(
            lambda b: [f"w{depth} = 3", f"while w{depth} > 0:", f"    w{depth} -= 1", *indented(b)]
        ),
        st.tuples(trying, inner).map(
            lambda p: (
                ["try:", *indented(p[0]), "except (KeyError, IndexError) as e:"]
                + ["    log.append(e.args)", *indented(p[1])]
            )
        ),
        st.tuples(trying, inner, inner).map(
            lambda p: (
                ["try:", *indented(p[0]), "except ValueError as e:", *indented(p[1])]
                + ["    if n == 2: raise", "finally:", *indented(p[2])]
            )
        ),
        st.tuples(st.sampled_from(["Swallow(n > 1)", "managed(n)", "torch.no_grad()"]), trying).map(
            lambda p: [f"with {p[0]} as c:", *indented(p[1])]
        ),
        blocks(depth, False).map(  # a function body is in no loop
            lambda b: (
                ["def inner(y, z):", "    nonlocal m", *indented(b), "    return y, z"]
                + ["y, z = inner(z, y)"]
            )
        ),
    )


def program(body: list[str]) -> str:
    lines = indented([*body, "return x, y, z, m, items, box"])
    return PREAMBLE + "\n".join(lines) + "\n" + STEPS


def agree(body: list[str]) -> None:
    check(program(body), graphs=False, backends=("eager",))


COMMON = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate, Phase.shrink],
}


@settings(max_examples=40, **COMMON)
@given(body=blocks(2))
def test_random_program(body: list[str]) -> None:
    agree(body)


@pytest.mark.slow
@settings(max_examples=150, **COMMON)
@given(body=blocks(3))
def test_many_random_programs(body: list[str]) -> None:
    agree(body)
