"""Graphs with symbols for sizes: one compile, many sizes."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

from fxgraph.sizes import Size, Symbol, evaluate
from inductor.runtime.link import link
from inductor.runtime.plan import OutputSpec, PlanError, PlanSpec
from inductor.schedule.memory import plan_memory
from tests.inductor import test_lowering
from tests.inductor.symbolic import Symbolic, check

# One off the widths of vectors, primes, and more than a chunk of a sum.
EXTENTS = (2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 257, 4099)


def in_turn(sizes):
    """Changes of every size to each of these."""
    return [lambda n, size=size: size for size in sizes]


def test_vectors_and_tails():
    def fn(x):
        half = x.half()
        return (
            x.relu() + 1,
            torch.softmax(x, -1),
            x.sum(-1),
            x.amax(-1),
            x.argmax(-1),
            half + 1,
            x.double().exp(),
            x.long() * 2,
        )

    for rows in (1, 3):
        x = torch.randn(rows, 37)
        check(
            fn,
            x,
            rtol=1e-5,
            atol=1e-5,
            dynamic=lambda k, dim: dim == 1,
            changes=in_turn(EXTENTS),
            least=len(EXTENTS),
        )


def test_columns_and_transposes():
    def fn(x):
        return x.sum(0), x.amax(0), x.t().contiguous(), x.mean(), x.var(0), x.t() + x.t().exp()

    pairs = [(2, 3), (17, 16), (16, 17), (33, 65), (129, 7), (300, 301)]
    x = torch.randn(40, 50)
    changes = [lambda n, a=a, b=b: a if n == 40 else b for a, b in pairs]
    check(fn, x, rtol=1e-4, atol=1e-4, changes=changes, least=len(pairs))


def test_views_and_joins():
    def fn(x):
        a, b, c = x.shape
        return (
            x.reshape(-1) * 2,
            x.view(a * b, c).t(),
            x.permute(2, 0, 1).reshape(c, -1) + 1,
            torch.cat([x, x * 2, x[:1]], 0),
            torch.cat([x[1:], x[:, :-1].exp().mean(1, keepdim=True).expand(a, b, c)], 0),
            torch.stack([x, x + 1], 1).flatten(1),
            x.flip(0).roll(1, 1),
            F.pad(x, (1, 2, 0, 1), value=3.0),
            x.unsqueeze(1).repeat(1, 2, 1, 1),
            x[:, ::2].sum(0),
            x.select(1, -1) + x.narrow(1, 1, 1).squeeze(1),
            x.diagonal(0, 0, 1).sum(0),
            x.unfold(2, 2, 1).mean(-1),
        )

    check(fn, torch.randn(5, 6, 7), rtol=1e-5, atol=1e-5, least=3)


def test_numbers_made_of_sizes():
    def fn(x):
        a, b = x.shape
        return (
            x * a + b,
            torch.arange(a) * 2 + torch.arange(1, a + 1),
            torch.full((a, 2), b),
            x.new_full((b,), 2.0),
            torch.where(torch.arange(b) < a, x, -x),
            (torch.arange(a)[:, None] % b).float() / a,
            torch.arange(a) // 2 * (b // 3),
            a * b + 1,
            x.clamp(max=a),
        )

    check(fn, torch.randn(5, 11), least=3)


def test_rows_of_every_length_fit_their_scratch():
    """A row of intermediates is on the stack or, if it is long, on the heap."""

    def fn(x):
        y = F.layer_norm(torch.softmax(x, -1), (x.shape[-1],))
        return (torch.softmax(y, -1),)

    sizes = (5, 11_000, 30_011)
    along = {"dynamic": lambda k, dim: dim == 1, "changes": in_turn(sizes), "least": 3}
    check(fn, torch.randn(3, 64), rtol=1e-4, atol=1e-6, **along)


def test_nothing_left_of_a_size():
    def fn(x):
        found = x.nonzero()
        return found * 2, found.sum(0), torch.cat([found, found]), found.exp().sum(1)

    c = Symbolic(fn, [torch.eye(5)], data_dependent=True)
    plan = c.compile().compiled
    for x in (torch.eye(5), torch.zeros(4, 4)):
        torch.testing.assert_close(plan(*c.arguments([x])), fn(x))


TABLES = [
    (test_lowering.test_unary_at_special_values, (torch.float32,)),
    (test_lowering.test_activations, (torch.float32,)),
    (test_lowering.test_binary_floats, (torch.bfloat16,)),
    (test_lowering.test_binary_integers, (torch.int64,)),
    (test_lowering.test_views, ("permuted",)),
    (test_lowering.test_reductions, (torch.float32, "contiguous")),
    (test_lowering.test_reductions, (torch.float16, "permuted")),
    (test_lowering.test_gathers, ()),
    (test_lowering.test_creation, ()),
    (test_lowering.test_pooling, (torch.contiguous_format,)),
]


@pytest.mark.parametrize(("test", "args"), TABLES, ids=lambda p: getattr(p, "__name__", ""))
def test_tables_of_operators(test, args, monkeypatch):
    """The tables of test_lowering, compiled with symbols for all sizes."""
    monkeypatch.setattr(test_lowering, "check", check)
    test(*args)


# --- the plan ------------------------------------------------------------------------------------


def around_matmuls(x, w):
    h = torch.relu(x @ w) * 2
    return torch.softmax(h @ w.t(), -1) @ w, h.sum(0)


def test_buffers_share_memory_for_all_sizes():
    """Checked by values: a buffer written over while it is needed would show."""
    check(
        around_matmuls,
        torch.randn(24, 32),
        torch.randn(32, 48) / 8,
        fallbacks=["mm.default"],
        rtol=1e-4,
        atol=1e-4,
        least=3,
    )


def test_arena_grows_with_the_sizes():
    def fn(x):
        y = x
        for k in range(4):
            y = torch.mm(torch.softmax(y * k, -1), x)
        return (y,)

    traced = Symbolic(fn, [torch.randn(40, 40)])
    spec = traced.compile().spec
    arena = plan_memory(spec).arena_bytes
    assert evaluate(arena, lambda s: 40) <= 2 * 64 * 102 and evaluate(arena, lambda s: 400) > 400**2


def test_a_plan_with_symbols_can_be_kept():
    x, w = torch.randn(24, 32), torch.randn(32, 48)
    traced = Symbolic(around_matmuls, [x, w])
    c = traced.compile()
    again = PlanSpec.from_json(c.spec.to_json())
    assert again == c.spec and again.sizes == c.spec.sizes
    plan = link(again, c.library)
    args = [torch.randn(7, 32), torch.randn(32, 48)]
    torch.testing.assert_close(plan(*traced.arguments(args)), around_matmuls(*args))


def test_sizes_come_from_tensors_where_no_int_tells_them():
    traced = Symbolic(lambda x, y: (x.t() @ y, x.shape[0]), [torch.randn(6, 5), torch.randn(6, 7)],
                      ints=False)  # fmt: skip
    plan = traced.compile().compiled
    x, y = torch.randn(9, 3), torch.randn(9, 2)
    product, rows = plan(x, y)
    torch.testing.assert_close(product, x.t() @ y)
    assert rows == 9


def test_arguments_that_contradict_raise():
    traced = Symbolic(lambda x, y: (x + y,), [torch.randn(6, 5), torch.randn(6, 5)])
    plan = traced.compile().compiled
    with pytest.raises(RuntimeError, match="was compiled for"):
        plan(*traced.arguments([torch.randn(6, 5), torch.randn(7, 5)])[:2],
             torch.randn(6, 5), torch.randn(8, 5))  # fmt: skip
    with pytest.raises(TypeError, match="an int"):
        plan(torch.randn(1), 5, torch.randn(6, 5), torch.randn(6, 5))
    good = [torch.randn(4, 9), torch.randn(4, 9)]
    torch.testing.assert_close(plan(*traced.arguments(good))[0], good[0] + good[1])


def test_threads_with_sizes_of_their_own():
    traced = Symbolic(around_matmuls, [torch.randn(24, 32), torch.randn(32, 48)])
    plan = traced.compile().compiled
    failures = []

    def work(rows):
        w = torch.randn(32, 48) / 8
        for k in range(20):
            x = torch.randn(rows + k % 3, 32)
            try:
                got = plan(*traced.arguments([x, w]))
                torch.testing.assert_close(got, around_matmuls(x, w), rtol=1e-4, atol=1e-4)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (2, 17, 64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_an_index_out_of_range_names_the_size_of_the_call():
    def fn(x, i):
        return (x[i] * 2,)

    traced = Symbolic(fn, [torch.randn(6, 5), torch.tensor([1, 2, 3])])
    plan = traced.compile().compiled
    for rows in (4, 9):
        x = torch.randn(rows, 5)
        i = torch.tensor([0, rows - 1, -rows])
        torch.testing.assert_close(plan(*traced.arguments([x, i])), fn(x, i))
        with pytest.raises(IndexError, match=f"dimension 0 with size {rows}"):
            plan(*traced.arguments([x, i + 1]))


def test_operators_take_sizes_of_the_call():
    def fn(x):
        a, b = x.shape
        return (
            x.cumsum(0) + a,
            torch.ops.aten.view.dtype(x.reshape(b, a), torch.int32),
            x.sort(1)[0][:, : b - 1],
        )

    check(
        fn,
        torch.randn(6, 9),
        fallbacks=["cumsum.default", "view.dtype", "sort.default"],
        least=3,
    )


def test_symbols_that_results_define():
    """Sizes that depend on data: the operator's result tells them, what follows is compiled."""

    def fn(x):
        found = x.nonzero()
        rows = found.shape[0]
        return found * 2 + 1, torch.cat([found, found]).sum(1), rows, x * rows

    x = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0])
    traced = Symbolic(fn, [x], data_dependent=True)
    c = traced.compile()
    assert c.program.fallbacks == {"nonzero.default": 1}
    for x in (x, torch.ones(9), torch.tensor([0.0, 4.0])):
        got, want = c.compiled(*traced.arguments([x])), fn(x)
        assert got[2] == want[2]
        torch.testing.assert_close(got[:2] + got[3:], want[:2] + want[3:])


def test_a_size_without_a_source_is_an_error():
    value = OutputSpec("value", value=Size.of(Symbol("s0")))
    with pytest.raises(PlanError, match="no input tells"):
        link(PlanSpec(inputs=[], buffers=[], steps=[], outputs=[value]))


def test_golden_text(golden):
    def fn(x, b):
        return (torch.softmax(torch.relu(x + b), -1),)

    c = Symbolic(fn, [torch.randn(5, 37), torch.randn(37)]).compile(until="codegen")
    golden("inductor/symbolic.cpp", c.spec.source)
