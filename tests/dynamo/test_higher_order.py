"""torch.cond, while_loop, scan, associative_scan and map inside compiled functions."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._higher_order_ops.wrap import wrap, wrap_with_autocast, wrap_with_set_grad_enabled
from torch.func import grad, vmap
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo
from tests.children import run_script
from tests.dynamo.transform_support import PROGRAMS, check, grads, plain, program, recompiles


# -- cond -----------------------------------------------------------------------------------------
@program(plain(3), inductor=True)
def cond_on_a_sum(x):
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)) * 2


@program(lambda: (-torch.ones(3),))
def cond_takes_the_other_branch(x):
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)) * 2


def double(x):
    return x * 2


def negative(x):
    return -x


@program(plain(3))
def cond_of_global_functions(x):
    return torch.cond(x.max() > 1, double, negative, (x,))


@program(plain(3, 3))
def cond_with_closures(x, w):
    def true(y):
        return y * w

    def false(y):
        return y + x * w

    return torch.cond(x.sum() > w.sum(), true, false, (x + 1,))


@program(plain(3, 3))
def cond_with_several_operands(x, w):
    return torch.cond((x > w).any(), lambda a, b: a * b, lambda a, b: a + b, (x, w))


@program(plain(3))
def cond_without_operands(x):
    return torch.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos())


@program(plain(3))
def cond_returns_a_nest(x):
    def true(y):
        return {"a": y + 1, "b": (y * 2, [y * 3])}

    def false(y):
        return {"a": y - 1, "b": (y / 2, [y / 3])}

    return torch.cond(x.sum() > 0, true, false, (x,))


@program(plain(3, 3))
def cond_with_nested_operands(x, w):
    def true(d):
        return d["a"] * d["b"][0]

    def false(d):
        return d["a"] + d["b"][0]

    return torch.cond(x.sum() > 0, true, false, ({"a": x, "b": (w,)},))


@program(plain(3))
def cond_in_a_branch(x):
    def true(y):
        return torch.cond(y.sum() > 1, lambda z: z * 2, lambda z: z * 3, (y,))

    return torch.cond(x.sum() > 0, true, lambda y: y - 1, (x,))


@program(grads(3, 3))
def cond_with_gradients(x, w):
    return torch.cond(x.sum() > 0, lambda a, b: a * b, lambda a, b: a + b.sin(), (x, w))


@program(grads(3, 3))
def cond_of_which_one_branch_uses_an_operand(x, w):
    return torch.cond(x.sum() > 100, lambda a, b: a * b, lambda a, b: a.sin(), (x, w))


@program(plain(3))
def cond_on_a_constant(x):
    return torch.cond(x.shape[0] == 3, lambda y: y + 1, lambda y: y - 1, (x,))


@program(plain((4, 3)))
def cond_inside_vmap(x):
    return vmap(lambda a: torch.cond(a.sum() > 0, double, negative, (a,)))(x)


@program(lambda: (torch.nn.Linear(3, 3).requires_grad_(False), torch.ones(2, 3)))
def cond_of_a_module(model, x):
    return torch.cond(x.sum() > 0, model, lambda y: y * 2, (x,))


@program(plain(3), graphs=1, codes=("BODY_SIDE_EFFECT",))
def a_branch_with_a_side_effect(x):
    seen = []

    def true(y):
        seen.append(1)
        return y + 1

    return torch.cond(x.sum() > 0, true, lambda y: y - 1, (x,))


@program(plain(3), graphs=1, codes=("OP_ERROR",))
def operands_that_are_no_tensors(x):
    return torch.cond(x.sum() > 0, lambda y, n: y + n, lambda y, n: y - n, (x, 3))


@program(plain(3), graphs=0, codes=("OP_ERROR",))
def a_predicate_of_three(x):
    return torch.cond(x, lambda y: y + 1, lambda y: y - 1, (x,))


def test_the_value_of_the_predicate_is_not_guarded():
    def f(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    assert recompiles(f, lambda: (torch.ones(3),), lambda: (-torch.ones(3),)) == 1


def test_what_a_branch_read_is_guarded():
    state = {"k": 1.0}

    def f(x):
        return torch.cond(x.sum() > 0, lambda y: y * state["k"], lambda y: y - 1, (x,))

    def with_k(value):
        def make():
            state["k"] = value
            return (torch.ones(3),)

        return make

    assert recompiles(f, with_k(1.0), with_k(1.0), with_k(2.0)) == 2


# -- flex_attention -------------------------------------------------------------------------------
HEADS = ((1, 2, 16, 8),) * 3
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, "cpu", BLOCK_SIZE=16)


@program(plain(*HEADS), inductor=True)
def attention_with_changed_scores(q, k, v):
    def nearer(score, b, h, i, j):
        return torch.where(i >= j, score + (j - i) * torch.exp2(-(h + 1) * 4.0), -float("inf"))

    return flex_attention(q * 2, k, v, score_mod=nearer) + 1


@program(plain((2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)))
def attention_with_a_mask(q, k, v):
    return flex_attention(q, k, v, block_mask=CAUSAL, scale=0.5, enable_gqa=True, return_lse=True)


@program(plain(*((1, 16, 2, 8),) * 3))
def attention_of_transposed_heads(q, k, v):
    out = flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return out, out.transpose(1, 2).is_contiguous()


# -- while_loop -----------------------------------------------------------------------------------
@program(plain(3), inductor=True)
def while_loop_counts(x):
    return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


@program(plain(3))
def while_loop_that_does_not_run(x):
    return while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


@program(plain(3, 3))
def while_loop_with_closures(x, w):
    limit = w.abs().sum() + 5

    def cond(y):
        return y.sum() < limit

    def body(y):
        return (y + w.abs() + 1,)

    return while_loop(cond, body, (x,))


@program(plain(3))
def while_loop_with_a_nest(x):
    def cond(state):
        return state["i"] < 3

    def body(state):
        return ({"i": state["i"] + 1, "x": state["x"] + 1},)

    return while_loop(cond, body, ({"i": torch.tensor(0), "x": x},))


@program(plain(3), graphs=1, codes=("OP_ERROR",))
def while_loop_that_changes_shape(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (torch.cat([y, y]),), (x + 1,))


# -- scan -----------------------------------------------------------------------------------------
@program(plain((4, 3), 3))
def scan_of_sums(x, init):
    return scan(lambda c, y: (c + y, c * y), init, x)


@program(plain((1, 3), 3))
def scan_of_one_step(x, init):
    return scan(lambda c, y: (c + y, c * y), init, x)


@program(plain((4, 3), 3))
def scan_in_reverse(x, init):
    return scan(lambda c, y: (c + y, c * y), init, x, reverse=True)


@program(plain((3, 4), 3))
def scan_along_a_dim(x, init):
    return scan(lambda c, y: (c + y, c * y), init, x, dim=1)


@program(plain((4, 3), 3, 3))
def scan_with_a_closure(x, init, w):
    return scan(lambda c, y: (c * w + y, (c + w).sin()), init, x)


@program(plain((4, 3), 3))
def scan_with_nests(x, init):
    def combine(carry, y):
        a = carry["a"] + y[0]
        return {"a": a, "b": carry["b"] * y[1]}, (a * 2, y[1] + 1)

    return scan(combine, {"a": init, "b": init + 1}, (x, x + 1))


@program(plain((4, 3), 3))
def scan_with_nests_of_one_leaf(x, init):
    return scan(lambda c, y: ({"a": c["a"] + y}, [c["a"] * y]), {"a": init}, x)


@program(plain((4, 3), 3))
def scan_with_many_results(x, init):
    return scan(lambda c, y: ([c[0] + y], (c[0] * y, {"d": c[0] - y})), [init], x)


@program(plain((4, 3), 3), graphs=1, codes=("OP_ERROR",))
def scan_that_returns_no_pair(x, init):
    try:
        return scan(lambda c, y: c + y, init[:2] + 1, x[:, :2])
    except Exception as error:
        return type(error).__name__


@program(plain((4, 3), 3), graphs=1, codes=("OP_ERROR",))
def scan_whose_carry_changes(x, init):
    return scan(lambda c, y: (c[:1] + y[:1], y + 1), init + 1, x)


# -- associative_scan and map ----------------------------------------------------------------------
@program(plain((5, 3)))
def associative_scan_of_sums(x):
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


@program(plain((5, 3)))
def associative_scan_of_a_nest(x):
    def combine(a, b):
        return {"s": a["s"] + b["s"], "p": a["p"] * b["p"]}

    return associative_scan(combine, {"s": x, "p": x + 1}, 0, combine_mode="generic")


@program(plain((5, 3)))
def associative_scan_in_reverse(x):
    return associative_scan(torch.mul, x, 1, reverse=True, combine_mode="generic")


@program(plain((4, 3), 3))
def map_over_rows(x, w):
    return torch_map(lambda row, v: row * v + 1, x, w)


@program(plain((4, 3), 3))
def map_over_a_nest_with_a_closure(x, w):
    return torch_map(lambda d: (d["a"] * w, d["b"] + 1), {"a": x, "b": x * 2})


@program(plain((4, 3)))
def map_in_a_cond(x):
    def true(y):
        return torch_map(lambda row: row * 2, y)

    return torch.cond(x.sum() > 0, true, lambda y: y - 1, (x,))


@program(plain(3))
def grad_of_a_scan(x):
    return grad(lambda y: (y * 2).cumsum(0).sum())(x)


@pytest.mark.parametrize("case, backend", PROGRAMS[__name__])
def test_program(case, backend):
    check(case, backend)


def test_random_numbers_in_the_branch_that_runs():
    def f(x):
        return torch.cond(x.sum() > 0, lambda y: y + torch.rand(3), lambda y: y - 1, (x,))

    compiled = dynamo.compile(f, backend="eager")
    results = []
    for function in (f, compiled):
        torch.manual_seed(0)
        results.append((function(torch.ones(3)), function(-torch.ones(3)), torch.rand(())))
    for one, other in zip(*results):
        assert torch.equal(one, other)


BRANCHES_OF_OTHER_SHAPES = """
import torch, dynamo
def f(x):
    return torch.cond(x.sum() > 0, lambda y: y, lambda y: y[:1], (x,))
x = torch.ones(3)
def outcome(function):
    try:
        function(x)
    except Exception as error:
        return type(error).__name__
expected = outcome(f)
assert expected is not None
assert outcome(dynamo.compile(f, backend="eager")) == expected
report = dynamo.compile(f, backend="eager", fullgraph=True)
try:
    report(x)
except dynamo.errors.Unsupported as error:
    assert "OP_ERROR" in str(error)
"""


def test_branches_of_other_shapes():
    """In a process of its own: eager torch.cond compiles by torch's compiler, which after such an
    error leaves its frame hook installed.
    """
    done = run_script(BRANCHES_OF_OTHER_SHAPES)
    assert done.returncode == 0, done.stderr


# -- with sizes that vary, and gradients ----------------------------------------------------------
def cond_with_closure(x):
    y = x * 2
    sides = lambda a: (a + y, a.sin()), lambda a: (a - y, a.cos())  # noqa: E731
    return torch.cond(x.sum() > 0, *sides, (x,))


def chosen_with_closure(x):
    return (x + x * 2, x.sin()) if x.sum() > 0 else (x - x * 2, x.cos())


def cond_in_cond(x):
    def inner(a):
        return torch.cond(a.max() > 1, lambda b: b * 2, lambda b: b * 3, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a - 1, (x,))


def chosen_in_chosen(x):
    if x.sum() > 0:
        return x * 2 if x.max() > 1 else x * 3
    return x - 1


def cond_on_a_size(x):
    return torch.cond(x.size(0) > 4, lambda a: a.sin(), lambda a: a.cos(), (x,))


def chosen_by_size(x):
    return x.sin() if x.size(0) > 4 else x.cos()


def scanned_sums(x):
    return scan(lambda carry, row: (carry + row, (carry * row).sum()), x[0] * 0, x)


def summed_in_a_loop(x):
    carry, rows = x[0] * 0, []
    for row in x:
        rows.append((carry * row).sum())
        carry = carry + row
    return carry, torch.stack(rows)


BESIDE = {
    cond_with_closure: chosen_with_closure,
    cond_in_cond: chosen_in_chosen,
    cond_on_a_size: chosen_by_size,
    scanned_sums: summed_in_a_loop,
}


def results_and_gradient(function, x):
    x = x.clone().requires_grad_()
    results = function(x)
    leaves = results if isinstance(results, tuple) else (results,)
    sum((leaf * leaf).sum() for leaf in leaves).backward()
    return [*leaves, x.grad]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", BESIDE, ids=lambda f: f.__name__)
def test_gradients_where_sizes_vary(function, dynamic):
    torch.manual_seed(0)
    compiled = dynamo.compile(function, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for n in (4, 6, 3, 7):
        x = torch.randn(n, 5)
        expected = results_and_gradient(BESIDE[function], x)
        for found, wanted in zip(results_and_gradient(compiled, x), expected, strict=True):
            torch.testing.assert_close(found, wanted)
            assert found.requires_grad == wanted.requires_grad


# -- operators that only call their function ------------------------------------------------------
def wrapped(x):
    return wrap(lambda a, b: a + b, x, x), wrap(lambda named: named["x"] * 2, {"x": x})


def wrapped_without_grad(x):
    return wrap_with_set_grad_enabled(False, lambda a: a * 2, x), torch.is_grad_enabled()


def wrapped_with_autocast(x):
    return wrap_with_autocast("cpu", torch.bfloat16, True, None, lambda a: a @ a.T, x)


def hinted(x):
    return hints_wrapper(lambda a: a.sin(), (x,), {}, hints={"sort": 1})


def mapped(x):
    return foreach_map(torch.add, [x, x + 1], 2.0), foreach_map(torch.mul, x, x)


def mapped_closure(x):
    return foreach_map(lambda a, b: (a * b).relu() + x, (x, x + 1), [x, x * 2])


def widened(x):
    small = x.detach().to(torch.int8)
    product = out_dtype(torch.ops.aten.mm.default, torch.int32, small, small.t())
    return product, out_dtype(torch.ops.aten.mul.Tensor, torch.int64, small, 100)


@pytest.mark.parametrize(
    "function",
    [
        wrapped,
        wrapped_without_grad,
        wrapped_with_autocast,
        hinted,
        mapped,
        mapped_closure,
        widened,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("grad", [False, True])
def test_wrappers(function, grad):
    if grad and function in (mapped, mapped_closure):
        pytest.skip("eager's foreach_map takes no tensors with gradients")
    x = torch.randn(3, 4, requires_grad=grad)
    compiled = dynamo.compile(function, backend="eager", fullgraph=True)
    leaves = torch.utils._pytree.tree_leaves
    for left, right in zip(leaves(compiled(x)), leaves(function(x)), strict=True):
        assert type(left) is type(right)
        if isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right)
            assert left.requires_grad == right.requires_grad
        else:
            assert left == right


def test_out_dtype_of_an_operator_that_it_refuses():
    def f(x):
        small = x.to(torch.int8)
        try:
            return out_dtype(torch.ops.aten.add.Tensor, torch.int32, small, small)
        except ValueError as error:
            return x * 2, str(error)[:40]

    x = torch.randn(3, 4)
    expected, text = f(x)
    found, message = dynamo.compile(f, backend="eager")(x)
    assert torch.equal(found, expected) and message == text


# -- while_loop, turn by turn ---------------------------------------------------------------------
def counted(x):
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 1.5), (torch.tensor(0), x))


def numbered(x):
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 1.5), (0, x))


@pytest.mark.parametrize("function", [counted, numbered], ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_while_loops_of_known_length(function, grad):
    x = torch.randn(4, requires_grad=grad)
    number, found = dynamo.compile(function, backend="aot_eager", fullgraph=True)(x)
    assert number == 3 and type(number) is (int if function is numbered else torch.Tensor)
    torch.testing.assert_close(found, x * 1.5**3)
    assert found.requires_grad == grad
    if grad:
        (gradient,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(gradient, torch.full((4,), 1.5**3))


def grown(x):
    return while_loop(lambda v: v.sum() < 100, lambda v: (v * 1.5,), (x.abs(),))[0]


def grown_in_python(x):
    v = x.abs()
    while v.sum() < 100:
        v = v * 1.5
    return v


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradient_of_a_while_loop_of_unknown_length(backend):
    torch.manual_seed(0)
    compiled = dynamo.compile(grown, backend=backend, fullgraph=True)
    for size in (1.0, 10.0, 1000.0):
        x = torch.randn(4) * size
        expected = results_and_gradient(grown_in_python, x)
        for found, wanted in zip(results_and_gradient(compiled, x), expected, strict=True):
            torch.testing.assert_close(found, wanted)
