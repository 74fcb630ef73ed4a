"""Index expressions, bodies and the loop program."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fxgraph.sizes import contiguous_strides
from inductor.index import FloorDiv, Index, Mod, Var, delinearize, linear
from inductor.lowering.views import view_strides
from tests.inductor.compiling import staged

A, B, C = Var("a", 6), Var("b", 4), Var("c", 5)


def value(index: Index, at: dict[Var, int]) -> int:
    """The index's value, computed from its definition."""
    total = index.const
    for atom, coefficient in index.terms.items():
        if isinstance(atom, Var):
            total += coefficient * at[atom]
        else:
            inner = value(atom.dividend, at)
            total += coefficient * (
                inner // atom.divisor if isinstance(atom, FloorDiv) else inner % atom.divisor
            )
    return total


steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([A, B, C])),
    st.tuples(st.just("shift"), st.integers(-30, 30)),
    st.tuples(st.just("mul"), st.integers(-8, 24)),
    st.tuples(st.just("div"), st.integers(1, 24)),
    st.tuples(st.just("mod"), st.integers(1, 24)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=1, max_size=8))
def test_rewrites_keep_the_value(program: list) -> None:
    index = Index.of(A)
    points = [dict(zip((A, B, C), p)) for p in itertools.product(range(6), range(4), range(5))]
    values = [p[A] for p in points]
    for name, arg in program:
        match name:
            case "add":
                index, values = index + Index.of(arg), [v + p[arg] for v, p in zip(values, points)]
            case "shift":
                index, values = index + arg, [v + arg for v in values]
            case "mul":
                index, values = index * arg, [v * arg for v in values]
            case "div":
                index, values = index // arg, [v // arg for v in values]
            case "mod":
                index, values = index % arg, [v % arg for v in values]
    assert [value(index, p) for p in points] == values
    low, high = index.bounds()
    assert low <= min(values) and max(values) <= high


def test_reshapes_cancel() -> None:
    i, j = Index.of(Var("i", 8)), Index.of(Var("j", 512))
    flat = i * 512 + j
    assert (flat // 512, flat % 512) == (i, j)
    k = Index.of(Var("k", 4096))
    assert (k // 512) * 512 + k % 512 == k
    assert linear(delinearize(k, (4, 16, 64)), contiguous_strides((4, 16, 64))) == k


def test_bounds_decide() -> None:
    i = Index.of(Var("i", 6))
    assert (i + 12) // 6 == Index.of(2)
    assert (i + 12) % 6 == i
    assert isinstance(next(iter((i % 4).terms)), Mod)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([(2, 3, 4), (6, 4), (24,), (1, 24, 1), (2, 12), (4, 6)]),
    st.sampled_from([(2, 3, 4), (6, 4), (24,), (4, 6), (3, 8), (2, 12), (2, 2, 6), (24, 1)]),
    st.permutations(range(3)),
)
def test_view_strides_agree_with_torch(old: tuple, new: tuple, order: list) -> None:
    x = torch.empty(*old)
    if len(old) == 3:
        x = x.permute(order)
    try:
        expected = x.view(new).stride()
    except RuntimeError:
        expected = None
    got = view_strides(x.shape, x.stride(), new)
    if expected is None:
        assert got is None
    else:
        assert got is not None
        assert all(n == 1 or a == b for n, a, b in zip(new, got, expected))


def test_program_golden(golden) -> None:
    def fn(x, w):
        y = torch.softmax(x * 2 + w, -1)
        return torch.cat([y, x], 1).relu(), y.view(2, 2, 2, 6).transpose(1, 2).contiguous()

    c = staged(fn, [torch.zeros(4, 12), torch.zeros(12)], until="schedule")
    golden("inductor/program.txt", str(c.program) + "\n\n" + "\n".join(map(str, c.items)) + "\n")


def test_lowering_many_operators_is_quick() -> None:
    """Compile time is a feature: a chain as long as a large network's, without the C++ compiler."""

    def fn(x, w):
        for _ in range(150):
            x = torch.relu(torch.nn.functional.layer_norm(x + w, (64,)))
        return (x,)

    c = staged(fn, [torch.zeros(8, 64), torch.zeros(64)], until="codegen")
    assert c.spec is not None
    assert c.seconds["lower"] + c.seconds["schedule"] + c.seconds["codegen"] < 20
