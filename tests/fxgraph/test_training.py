"""Graphs with their backward: values, gradients, and everything that autograd lets one see."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph import symbolic_trace
from fxgraph.aot import (
    UndifferentiableHere,
    Unfunctionalizable,
    functionalize_training,
    run_backward,
    run_flat,
    training_callable,
)


def r(*shape, grad=True, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def compiled(fn, *inputs):
    training = functionalize_training(symbolic_trace(fn), inputs)
    return training_callable(training, lambda: run_flat(training.forward), run_backward), training


def outputs(fn, inputs):
    torch.manual_seed(5)
    results = fn(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def gradients(results, inputs, **kwargs):
    torch.manual_seed(6)
    roots = [y for y in results if isinstance(y, torch.Tensor) and y.requires_grad]
    given = [torch.randn_like(y) for y in roots]
    wanted = [x for x in inputs if x.requires_grad]
    return torch.autograd.grad(roots, wanted, given, allow_unused=True, **kwargs)


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other):
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
        # Fused kernels round once where eager rounds after each operator.
        loose = {"rtol": 0.05, "atol": 0.05} if a.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(a, b, equal_nan=True, **loose)


def two_outputs(x, w):
    y = x @ w
    return torch.tanh(y), y.sum(0)


def views(x):
    y = x * 2
    return y.t(), y[0], y.detach()


def view_of_input(x):
    return x.view(-1), x * 2


def written_inside(x, w):
    y = x * w
    y.mul_(2)
    y[0].add_(x[1])
    y.t()[1:].sigmoid_()
    return y


def no_grad_inside(x, w):
    y = x * w
    with torch.no_grad():
        z = y * 3
    return y + z, z


def integers(x, index):
    return F.embedding(index, x), index + 1


def dropped(x):
    return F.dropout(torch.sin(x), 0.5, True) * x


def complex_numbers(x):
    return torch.view_as_real(torch.view_as_complex(x) * (2 + 1j)).abs()


def repeated(x):
    y = x.exp()
    return y, y, y * 2


def saved_is_returned(x):
    y = x.exp()
    return y * 2, y


def convolved(x, w, b):
    return F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2)


def normed(x, w, b):
    return F.layer_norm(x, [4], w, b), F.softmax(x, -1), F.log_softmax(x, 0)


def losses(x, t):
    return F.cross_entropy(x, t), F.mse_loss(x, x.detach() * 2), F.smooth_l1_loss(x, x * 2)


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def indexed(x, index):
    return x[index] * 2, torch.cat([x, x[1:]]), x.gather(0, index[:, None].expand(-1, 4))


CASES = {
    "two_outputs": (two_outputs, lambda: [r(3, 4), r(4, 2)]),
    "unused_input": (lambda x, w: x * 2, lambda: [r(3), r(3)]),
    "input_without_grad": (two_outputs, lambda: [r(3, 4, grad=False), r(4, 2)]),
    "views": (views, lambda: [r(3, 4)]),
    "view_of_input": (view_of_input, lambda: [r(3, 4)]),
    "written_inside": (written_inside, lambda: [r(3, 4), r(3, 4)]),
    "no_grad_inside": (no_grad_inside, lambda: [r(3), r(3)]),
    "integers": (integers, lambda: [r(5, 4), torch.tensor([1, 4, 1])]),
    "dropped": (dropped, lambda: [r(6, 6)]),
    "complex_numbers": (complex_numbers, lambda: [r(3, 2)]),
    "repeated": (repeated, lambda: [r(3)]),
    "saved_is_returned": (saved_is_returned, lambda: [r(3)]),
    "convolved": (convolved, lambda: [r(2, 3, 6, 6), r(4, 3, 3, 3), r(4)]),
    "normed": (normed, lambda: [r(3, 4), r(4), r(4)]),
    "losses": (losses, lambda: [r(3, 4), torch.tensor([0, 3, 1])]),
    "loss_of_nan": (F.smooth_l1_loss, lambda: [r(3), torch.tensor([0.1, torch.nan, -9])]),
    "attention": (attention, lambda: [r(1, 2, 5, 4), r(1, 2, 5, 4), r(1, 2, 5, 4)]),
    "indexed": (indexed, lambda: [r(5, 4), torch.tensor([1, 4, 1])]),
    "bfloat16": (two_outputs, lambda: [r(*s, dtype=torch.bfloat16) for s in ((3, 4), (4, 2))]),
    "folded_products": (lambda v, w: (v @ w, (w.mT @ v).t()), lambda: [r(3), r(2, 3, 4)]),
    "identity": (lambda x: (x, x + 0), lambda: [r(3)]),
    "constant_output": (lambda x: (x * 2, 3, torch.ones(2)), lambda: [r(3)]),
    "expanded": (lambda x: x.expand(4, 3).sum(0) + x.unsqueeze(0), lambda: [r(3)]),
    "where": (lambda x: torch.where(x > 0, x, x * 0.1).clamp(-1, 1), lambda: [r(7)]),
    "gelu_silu": (lambda x: F.gelu(x) + F.silu(x) + F.gelu(x, approximate="tanh"), lambda: [r(7)]),
    "cumsum_prod": (lambda x: (x.cumsum(0), x.prod(), x.std(), x.norm()), lambda: [r(7)]),
    "sort": (lambda x: (x.sort().values, x.topk(2).values, x.max(), x.amax()), lambda: [r(7)]),
}  # fmt: skip


BY_OPERATOR = {"complex_numbers"}  # autograd takes the view of a number there


def _compiled(y):
    """Whether the value, or what it is a view of, comes from a compiled graph."""
    node = getattr(y, "grad_fn", None)
    return node is not None and "CompiledBackward" in str([node, *node.next_functions])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_values_and_gradients(name, backend):
    fn, make = CASES[name]
    torch.manual_seed(0)
    inputs = make()
    expected = outputs(fn, inputs)
    wanted = gradients(expected, inputs)
    call = dynamo.compile(fn, fullgraph=True, backend=backend)
    for _ in range(2):
        found = outputs(call, inputs)
        assert_same(expected, found)
        assert name in BY_OPERATOR or any(map(_compiled, found))
        got = gradients(found, inputs)
        assert [g is None for g in wanted] == [g is None for g in got]
        assert_same([g for g in wanted if g is not None], [g for g in got if g is not None])


@pytest.mark.parametrize(
    "name", ["two_outputs", "written_inside", "convolved", "normed", "views", "folded_products"]
)
def test_second_derivatives(name):
    fn, make = CASES[name]
    torch.manual_seed(0)
    inputs = make()
    call, _ = compiled(fn, *inputs)

    def second(f):
        first = gradients(outputs(f, inputs), inputs, create_graph=True)
        return gradients([g for g in first if g.requires_grad], inputs)

    assert_same(
        [g for g in second(fn) if g is not None], [g for g in second(call) if g is not None]
    )


def test_gradcheck():
    inputs = [r(3, 4), r(4, 2)]
    call, _ = compiled(two_outputs, *inputs)
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_no_second_derivative_where_it_would_differ():
    x = r(4)
    call, _ = compiled(dropped, x)
    (g,) = torch.autograd.grad(call(x).sum(), x, retain_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(call(x).sum(), x, create_graph=True)


def test_only_gradients_that_arrive():
    """An input that the differentiated output does not depend on gets None, not zeros."""
    x, w = r(3), r(3)
    call, _ = compiled(lambda x, w: (x * 2, w * 3), x, w)
    one, other = call(x, w)
    one.sum().backward(retain_graph=True)
    assert x.grad is not None and w.grad is None
    other.sum().backward()
    assert torch.equal(w.grad, torch.full((3,), 3.0, dtype=torch.float64))


def test_a_backward_enters_no_history_that_its_output_lacks():
    """What one input was made from may be freed, and its hooks run for no gradient of another."""
    a, b, w = r(3), r(3), r(3)
    seen = []
    call, training = compiled(lambda a, b, w: (a * 2, a + b, w.sin()), a.exp(), b.exp(), w)
    assert sorted(segment.tangents for segment in training.segments) == [[0, 1], [2]]
    call, training = compiled(lambda a, b, w: (a * 2, b * w, w.sin()), a.exp(), b.exp(), w)
    assert sorted(segment.tangents for segment in training.segments) == [[0], [1], [2]]
    freed, fresh = a.exp(), b.exp()
    freed.register_hook(seen.append)
    one, other, third = call(freed, fresh, w)
    freed.sum().backward()
    (other + third).sum().backward()
    assert len(seen) == 1
    assert torch.allclose(b.grad, b.detach().exp() * w.detach())
    with pytest.raises(RuntimeError, match="second time"):
        one.sum().backward()


def test_a_graph_is_freed_by_its_backward():
    x = r(3)
    call, _ = compiled(lambda x: x.exp() * 2, x)
    y = call(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    eager = x.detach().exp() * 4
    assert torch.allclose(x.grad, eager)


def test_overwriting_what_the_backward_needs_is_an_error():
    x, w = r(3), r(3)
    call, _ = compiled(lambda x, w: x * w, x, w)
    y = call(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_returned_value_that_is_saved_may_not_be_overwritten():
    x = r(3)
    call, training = compiled(lambda x: x.exp(), x)
    y = call(x)
    if training.saved == [("value", 0)]:
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    else:
        assert training.saved == [("input", 0)]
        y.mul_(2)
        y.sum().backward()
        assert torch.allclose(x.grad, 2 * x.detach().exp())


def test_hooks_and_accumulation():
    x, w = r(3, 4), r(4, 2)
    seen = []
    w.register_hook(lambda g: seen.append(g.shape))
    call, _ = compiled(two_outputs, x, w)
    for _ in range(3):
        sum(y.sum() for y in call(x, w)).backward()
    assert seen == [w.shape] * 3
    once = torch.autograd.grad(sum(y.sum() for y in two_outputs(x, w)), w)[0]
    torch.testing.assert_close(w.grad, 3 * once)


@pytest.mark.parametrize("run_backward_first", [False, True])
def test_what_is_saved_lives_as_long_as_the_graph(run_backward_first):
    leaf = r(64)
    x = leaf * 1
    call, _ = compiled(lambda x: torch.sin(x).exp().sum(), x)
    y = call(x)
    saved = weakref.ref(x)
    del x
    if run_backward_first:
        y.backward()
    else:
        del y
    gc.collect()
    assert saved() is None


def test_matrix_products_are_kept_and_pointwise_is_computed_again():
    def mlp(x, w, v):
        return torch.relu(x @ w + 1) @ v

    _, training = compiled(mlp, r(8, 4), r(4, 4), r(4, 4))
    backward = [n.target for n in training.backward.graph_module.graph.nodes]
    forward = [n.target for n in training.forward.graph_module.graph.nodes]
    assert forward.count(torch.ops.aten.mm.default) == 2
    assert backward.count(torch.ops.aten.mm.default) == 4  # two gradients of each product
    assert len([kind for kind, _ in training.saved if kind == "kept"]) == 1


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("low", "high", "dtype", "told"),
    [
        (0, 6, torch.float32, True),
        (-1.5, 0.25, torch.float64, True),
        (0, 0.1, torch.bfloat16, False),  # the result's bound is another number
        (1, 1, torch.float32, False),
    ],
)
def test_a_clamp_is_told_by_its_result(inplace, low, high, dtype, told):
    """Where it lets gradients through: what follows saves the result, too, and nothing else is."""

    def call(x, w):
        return F.hardtanh(x * 4 + w, low, high, inplace) * w

    def gradient(function):
        torch.manual_seed(0)
        bounds = torch.tensor([low, high, torch.inf, -0.0, low - 1, high + 1, 0.05], dtype=dtype)
        x = torch.cat([torch.randn(9, dtype=dtype), bounds]).requires_grad_()
        w = torch.linspace(-1, 1, 16, dtype=dtype).requires_grad_()
        return torch.autograd.grad(function(x, w).sum(), [x, w])

    made, training = compiled(call, r(16, dtype=dtype), r(16, dtype=dtype))
    assert_same(gradient(made), gradient(call))
    masks = [
        node.args[0].name
        for node in training.backward.graph_module.graph.nodes
        if node.target is torch.ops.aten.ge.Scalar
    ]
    assert [name.startswith("clamp") for name in masks] == [told]


@pytest.mark.parametrize("write", ["operand", "result"])
def test_a_clamp_that_the_caller_sees_is_told_as_in_eager(write):
    """By its operand, as it is when the backward runs; its result may be another by then."""

    def call(x):
        y = x * 2
        return y, F.hardtanh(y)

    def gradient(function):
        x = torch.tensor([-0.7, -0.2, 0.3, 0.9], requires_grad=True)
        y, z = function(x)
        written = y if write == "operand" else z
        written.data.fill_(0.5 if write == "operand" else 7)
        return torch.autograd.grad(z.sum(), x)

    made, _ = compiled(call, r(4, dtype=torch.float32))
    assert_same(gradient(made), gradient(call))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: torch.nn.functional.nll_loss(x, y),
        lambda x, y: torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1),
    ],
)
def test_a_number_in_each_row_is_placed_again(loss):
    """The backward is given no tensor of zeros with a number in each row."""
    x, y = r(5, 7), torch.tensor([3, -100, 0, 6, 2])
    call, training = compiled(loss, x, y)
    forward = [n.target for n in training.forward.graph_module.graph.nodes]
    assert torch.ops.aten.scatter.value not in forward
    assert torch.ops.aten.scatter.src not in forward
    call(x, y).backward()
    (expected,) = torch.autograd.grad(loss(x, y), x)
    torch.testing.assert_close(x.grad, expected)


def test_random_numbers_are_never_drawn_again():
    _, training = compiled(dropped, r(6))
    nodes = training.backward.graph_module.graph.nodes
    names = [str(n.target) for n in nodes if n.op == "call_function"]
    assert training.draws
    assert not any("bernoulli" in name or "dropout" in name for name in names)


def test_what_is_refused():
    x = r(3)
    with pytest.raises(Unfunctionalizable, match="one of several views"):
        compiled(lambda x, y: x.add_(y), r(4, grad=False)[1:], x)

    def overwrites(x):
        y = torch.exp(x)
        y.mul_(2)
        return y

    with pytest.raises(UndifferentiableHere, match="inplace"):
        compiled(overwrites, x)
    for fn in (overwrites,):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            dynamo.compile(fn)(x).sum().backward()


def test_a_backward_that_raises():
    """Of indices that are not contiguous: the forward runs all the same."""

    def unpooled(x, places):
        return F.max_unpool2d(x, places, 2)

    x, places = F.max_pool2d(r(1, 2, 4, 6, grad=False), 2, return_indices=True)
    x, places = x.mT.contiguous().mT.requires_grad_(), places.mT.contiguous().mT
    result = dynamo.compile(unpooled, backend="aot_eager")(x, places)
    assert_same(result, unpooled(x, places))
    for total in (result.sum(), unpooled(x, places).sum()):
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            total.backward()


def test_vectors_known_up_to_a_phase():
    """What depends on the phase of complex vectors has no gradient, which only data tells."""
    depends = {
        "eig": lambda x: torch.linalg.eig(x)[1].real.sum(),
        "eigh": lambda x: torch.linalg.eigh(x * 1j + (x * 1j).mH)[1].imag.sum(),
        "svd": lambda x: torch.linalg.svd(x * (1 + 2j) + x.mT)[0].real.sum(),
    }
    torch.manual_seed(0)
    x = r(3, 3)
    for name, fn in depends.items():
        for call in (fn, dynamo.compile(fn, backend="aot_eager")):
            with pytest.raises(RuntimeError, match=f"{name}_backward: "):
                call(x).backward()
    for vectors in (lambda x: torch.linalg.eig(x)[1].abs(), torch.linalg.eigvals):
        results = [vectors(x).abs(), dynamo.compile(vectors, backend="aot_eager")(x).abs()]
        assert_same(*(gradients([result], [x]) for result in results))


def test_batch_norm_updates_its_statistics():
    torch.manual_seed(0)
    layer = torch.nn.BatchNorm2d(3).double().train()
    other = torch.nn.BatchNorm2d(3).double().train()
    call = dynamo.compile(other, fullgraph=True)
    for _ in range(3):
        x = r(2, 3, 4, 4)
        a, b = layer(x), call(x)
        torch.testing.assert_close(a, b)
        assert_same(gradients([a], [x]), gradients([b], [x]))
    for one, two in zip(layer.buffers(), other.buffers()):
        torch.testing.assert_close(one, two)
    assert other.num_batches_tracked == 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_second_derivatives_of_leaves_have_memory_of_their_own(backend):
    """Though one tensor arrives for both."""
    a, b = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    compiled = dynamo.compile(lambda a, b: ((a + b) ** 2).sum(), backend=backend)
    first = torch.autograd.grad(compiled(a, b), (a, b), create_graph=True)
    sum((x**2).sum() for x in first).backward()
    a.grad.mul_(2)
    assert torch.equal(a.grad, 2 * b.grad)


def test_second_derivative_of_batch_norm():
    """Its statistics are written, once, and nothing else depends on them."""
    layer = torch.nn.BatchNorm1d(3).double()
    other = copy.deepcopy(layer)
    x = r(4, 3)
    for call in (layer, dynamo.compile(other, backend="aot_eager")):
        (first,) = torch.autograd.grad(call(x).sin().sum(), x, create_graph=True)
        first.square().sum().backward()
    assert_same([p.grad for p in layer.parameters()], [p.grad for p in other.parameters()])
    assert_same(list(layer.buffers()), list(other.buffers()))


def test_no_second_derivative_of_what_is_overwritten():
    def scaled(x, scale):
        y = x.sin() + scale
        scale.add_(1)
        return y

    x = r(4)
    y = dynamo.compile(scaled, backend="aot_eager")(x, torch.ones(4, dtype=x.dtype))
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
