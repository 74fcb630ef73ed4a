"""Functional graphs against eager: mutation, views, aliases, constants, random numbers."""

import operator

import pytest
import torch
import torch.nn.functional as F

import dynamo
import fxgraph
from fxgraph.aot import Unfunctionalizable, functionalize, needs_autograd, run_functional
from tests.fxgraph.support import check


def r(*size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(0))


def inplace_on_input(x):
    x.add_(1)
    return (x * 2,)


def inplace_chain(x):
    y = x.relu()
    y.mul_(3).add_(x)
    return (y,)


def setitem_slice(x, y):
    x[1:, ::2] = y
    return (x.sum(),)


def setitem_scalar(x):
    z = x.clone()
    z[0] = 5
    z[:, 1] = -1.5
    return (z, x)


def setitem_mask(x):
    z = x * 1
    z[z > 0] = 0.0
    return (z,)


def setitem_index(x, i):
    x[i] = 7.0
    return (x + 1,)


def index_put_accumulate(x, i):
    x.index_put_((i,), torch.ones(3), accumulate=True)
    return (x,)


def write_through_chain(x):
    x.t()[1].unsqueeze(0).view(-1)[1:].mul_(10)
    return (x * 1,)


def view_sees_base_write(x):
    y = x * 1
    v = y[0]
    y.add_(1)
    return (v * 2, y, v)


def base_sees_view_write(x):
    y = x * 1
    v = y.t()
    w = y[:, 1]
    v.mul_(2)
    return (w, y, v)


def return_view_of_input(x):
    return (x.t(), x[1:], x.view(-1))


def return_input(x, y):
    return (y, x, x + y, x)


def return_view_of_intermediate(x):
    return ((x + 1).t(),)


def return_two_views(x):
    y = x + 1
    return (y[0], y[1:], y.t())


def return_expanded(x):
    return (x.sum(0, keepdim=True).expand(3, 4),)


def return_expanded_input(x):
    return (x[:1].expand(3, 4),)


def return_same_twice(x):
    y = x.relu()
    return (y, x, y, [y, (x, y)], {"a": y})


def return_constants(x):
    return (x + 1, 3, None, "s", 2.5)


def detach_output(x):
    y = x + 1
    return (y, y.detach(), x.detach())


def split_write(x):
    y = x.clone()
    a, b = y.split(2, dim=1)
    a.zero_()
    b.fill_(3)
    return (y, a)


def unbind_write(x):
    rows = x.unbind(0)
    rows[1].copy_(rows[0])
    return (rows[2] + 1,)


def chunk_outputs(x):
    a, b = (x * 2).chunk(2, dim=-1)
    return (a, b)


def copy_from_input(x, y):
    z = torch.empty_like(x)
    z.copy_(y)
    return (z,)


def swap(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)
    return ()


def swap_without_clone(x, y):
    a = x * 1
    x.copy_(y)
    y.copy_(a)
    return (x - y,)


def copy_own_transpose(x):
    x.copy_(x.t().clone())
    return (x[0],)


def old_value_and_write(x):
    y = x.clone()
    x.zero_()
    return (y, x)


def inplace_dtype(x):
    y = x.to(torch.float64)
    x.add_(y)
    z = x.half()
    z.mul_(y)
    return (z,)


def compare_inplace(x):
    y = x * 1
    y.lt_(0)
    return (y,)


def out_variant(x):
    y = torch.empty(3, 4)
    torch.add(x, 1, out=y)
    return (y,)


def out_of_kron(x):
    """Written through an _unsafe_view, which no schema calls a view."""
    y = x.new_zeros(9, 16)
    torch.kron(x[:, :4], x[:3], out=y)
    torch.kron(x[:1, :1] + 1, x * 1, out=x)
    return (y, x * 2)


def out_of_rank(x):
    y = torch.zeros((), dtype=torch.int64)
    torch.linalg.matrix_rank(x, out=y)
    return (y * 2,)


def sort_out(x):
    v, i = torch.sort(x, dim=-1)
    w = v.cumsum(-1)
    w.clamp_(max=1)
    return (w, i)


def diagonal_write(x):
    x.diagonal().fill_(1)
    x[:, :3].diagonal(1).add_(5)
    return (x * 1,)


def as_strided_write(x):
    y = x * 1
    y.as_strided((2, 2), (1, 4), 1).mul_(3)
    return (y,)


def as_strided_of_view(x):
    y = x * 1
    return (y[1:].as_strided((2,), (1,), 0), y)


def squeeze_write(x):
    y = x.unsqueeze(0)
    y.squeeze(0)[0].add_(1)
    y.squeeze_(0)
    return (y,)


def transpose_inplace(x):
    y = x * 1
    v = y[0]
    y.t_()
    y.add_(1)
    return (y, v)


def unsqueeze_one_of_several(x):
    y, z = x.cummax(0)
    y.add_(1)
    y.unsqueeze_(0)
    return (y * 2, z)


def unsqueeze_input_inplace(x):
    x.unsqueeze_(0)
    x.mul_(2)
    return (x, x.sum())


def transpose_input_inplace(x):
    y = x.t()
    x.t_()
    return (x + 1, y)


def masked(x):
    y = x.masked_fill(x > 0, float("-inf"))
    y.masked_fill_(y < -1, 2.0)
    return (y,)


def scatter_inplace(x, i):
    x.scatter_(1, i.view(3, 1), 9.0)
    x.scatter_add_(1, i.view(3, 1), torch.ones(3, 1))
    return (x.max(),)


def tensor_constant(x):
    c = torch.tensor([1.0, 2.0, 3.0, 4.0])
    c.add_(1)
    return (x + c, c)


def scalar_constant(x):
    return (x * torch.tensor(2.0), torch.tensor(5))


def complex_views(x):
    y = torch.view_as_complex(x.view(3, 2, 2).contiguous())
    torch.view_as_real(y).mul_(2)
    return (y * y, y.abs())


def view_dtype(x):
    y = x.view(torch.int32)
    return (y + 1,)


def reshape_non_contiguous(x):
    y = x.t().reshape(-1)
    y.add_(1)
    return (y, x)


def reshape_contiguous_write(x):
    x.reshape(-1)[3:6].mul_(-1)
    return (x.t(),)


def contiguous_of_contiguous(x):
    return (x.contiguous(), x.t().contiguous())


def write_to_strided(x):
    y = (x * 1).t()
    y.add_(1)
    y.view(4, 3).mul_(2)
    return (y,)


def write_to_gaps(x):
    y = x[:, ::2]
    y.add_(1)
    return (y, x * 2)


def foreach(x, y):
    a, b = x * 1, y * 1
    torch._foreach_add_([a, b], 1.0)
    torch._foreach_mul_([a, b], [x, y])
    return (a, b)


FUNCTIONS_1 = [
    inplace_on_input, inplace_chain, setitem_scalar, setitem_mask, write_through_chain,
    view_sees_base_write, base_sees_view_write, return_view_of_input, return_view_of_intermediate,
    return_two_views, return_expanded, return_expanded_input, return_same_twice, return_constants,
    detach_output, split_write, unbind_write, chunk_outputs, old_value_and_write, inplace_dtype,
    compare_inplace, out_variant, out_of_kron, out_of_rank, sort_out, diagonal_write,
    as_strided_write, as_strided_of_view,
    squeeze_write, transpose_inplace, unsqueeze_one_of_several, unsqueeze_input_inplace,
    transpose_input_inplace, masked, tensor_constant, scalar_constant, complex_views, view_dtype,
    reshape_non_contiguous,
    reshape_contiguous_write, contiguous_of_contiguous, write_to_strided, write_to_gaps,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS_1, ids=lambda fn: fn.__name__)
def test_one_input(fn):
    check(fn, r(3, 4), exact=False)


@pytest.mark.parametrize("fn", FUNCTIONS_1, ids=lambda fn: fn.__name__)
def test_one_input_inside_its_memory(fn):
    if fn in (as_strided_write, view_dtype):
        pytest.skip("needs memory from its start")
    check(fn, r(7, 4)[2:5], exact=False)


@pytest.mark.parametrize("fn", FUNCTIONS_1, ids=lambda fn: fn.__name__)
def test_one_input_transposed(fn):
    if fn in (
        return_view_of_input, reshape_contiguous_write, view_dtype, write_to_strided, complex_views,
        as_strided_write,
    ):  # fmt: skip
        pytest.skip("not valid on transposed memory in eager")
    check(fn, r(4, 3).t(), exact=False)


@pytest.mark.parametrize(
    "fn",
    [return_input, copy_from_input, swap, swap_without_clone, foreach],
    ids=lambda f: f.__name__,
)
def test_two_inputs(fn):
    check(fn, r(3, 4), r(3, 4) + 1)


def test_index_inputs():
    i = torch.tensor([2, 0, 1])
    check(setitem_index, r(3, 4), i[:2])
    check(index_put_accumulate, r(5), i)
    check(scatter_inplace, r(3, 4), i)
    check(setitem_slice, r(3, 4), r(2, 2))
    check(copy_own_transpose, r(3, 3))


class TestSharedInputs:
    def test_same_tensor_twice(self):
        x = r(3, 4)
        check(swap_without_clone, x, x)
        check(return_input, x, x)

    def test_equal_views_of_one_memory(self):
        def fn(x, y):
            x.add_(1)
            return (y * 2, y, x)

        x = r(3, 4)
        check(fn, x, x.detach())
        check(fn, x, x[:])

    def test_rows_that_do_not_overlap(self):
        def fn(x, y):
            x.add_(1)
            y.mul_(2)
            return (x + y,)

        x = r(3, 4)
        check(fn, x[0], x[1])

    def test_partial_overlap_and_write_is_refused(self):
        def fn(x, y):
            x.add_(1)
            return (y * 2,)

        x = r(3, 4)
        with pytest.raises(Unfunctionalizable, match="overlap"):
            functionalize(fxgraph.symbolic_trace(fn), [x, x[1:]])
        check(lambda x, y: (x + 1, y[0]), x, x[1:])

    def test_sharing_that_appears_later_runs_the_source_graph(self):
        def fn(x, y):
            x.add_(1)
            return (y * 2,)

        gm = fxgraph.symbolic_trace(fn)
        functional = functionalize(gm, [r(3), r(3)])
        x = torch.zeros(3)
        (out,) = run_functional(functional, [x, x])
        assert torch.equal(out, torch.full((3,), 2.0))


class TestModules:
    def test_batch_norm_train_writes_statistics(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bn = torch.nn.BatchNorm2d(3)

            def forward(self, x):
                return (F.relu(self.bn(x)),)

        net, reference = Net(), Net()
        gm = fxgraph.symbolic_trace(net)
        x = r(2, 3, 4, 4)
        functional = functionalize(gm, [x])
        assert net.bn.num_batches_tracked == 0
        for _ in range(2):
            torch.testing.assert_close(run_functional(functional, [x]), reference(x))
        for one, other in zip(net.buffers(), reference.buffers()):
            torch.testing.assert_close(one, other)
        gm.eval(), reference.eval()
        torch.testing.assert_close(run_functional(functionalize(gm, [x]), [x]), reference(x))

    def test_attribute_returned(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(3))

            def forward(self, x):
                return (self.scale, x * self.scale, self.scale[1:])

        gm = fxgraph.symbolic_trace(Net())
        out = run_functional(functionalize(gm, [r(3)]), [r(3)])
        assert out[0] is gm.scale
        assert out[2].data_ptr() == gm.scale[1:].data_ptr()


class TestRandom:
    def test_draws_as_eager(self):
        def fn(x):
            a = F.dropout(x, 0.5, True)
            b = torch.rand_like(x)
            y = torch.empty_like(x)
            y.normal_()
            y.bernoulli_(0.3)
            return (a, b, y, torch.randn(3), x.uniform_())

        check(fn, r(3, 4))

    def test_unused_draw_is_kept(self):
        def fn(x):
            torch.rand_like(x)
            return (torch.rand_like(x),)

        check(fn, r(3))


lib = torch.library.Library("fxgraph_test", "FRAGMENT")
lib.define("scale_(Tensor(a!) x, float s) -> ()")
lib.impl("scale_", lambda x, s: (x.mul_(s), None)[1], "CPU")
lib.impl("scale_", lambda x, s: None, "Meta")
lib.define("twice(Tensor x) -> Tensor")
lib.impl("twice", lambda x: x * 2, "CPU")
lib.impl("twice", lambda x: torch.empty_like(x), "Meta")
lib.define("bump(Tensor x, Tensor(a!) y) -> Tensor")


def _bump(x, y):
    y.add_(x)
    return x - 1


lib.impl("bump", _bump, "CPU")
lib.impl("bump", lambda x, y: torch.empty_like(x), "Meta")


class TestCustomOperators:
    def test_in_place_goes_through_a_copy(self):
        def fn(x):
            y = x * 1
            torch.ops.fxgraph_test.scale_(y[0], 3.0)
            torch.ops.fxgraph_test.scale_(x, 2.0)
            return (y, torch.ops.fxgraph_test.twice(x))

        functional = check(fn, r(3, 4))
        targets = [n.target for n in functional.graph_module.graph.nodes]
        assert torch.ops.fxgraph_test.twice.default in targets

    def test_result_and_write(self):
        check(lambda x, y: (torch.ops.fxgraph_test.bump(x, y), y * 2), r(3), r(3))


class TestRefused:
    @pytest.mark.parametrize(
        "fn",
        [
            lambda x: (x.nonzero(),),
            lambda x: (x[x > 0],),
            lambda x: (torch.unique(x),),
            lambda x: (x.resize_(2),),
            lambda x: (x.set_(torch.zeros(2)),),
        ],
    )
    def test_data_dependent_and_memory_changes(self, fn):
        with pytest.raises(Unfunctionalizable):
            functionalize(fxgraph.symbolic_trace(fn), [r(3, 4)])

    def test_item(self):
        g = fxgraph.Graph()
        x = g.placeholder("x")
        g.output((g.call_method("item", (x,)),))
        with pytest.raises(Unfunctionalizable, match="_local_scalar_dense"):
            functionalize(fxgraph.GraphModule({}, g), [r(1)])


class TestModes:
    def test_inference_mode(self):
        def fn(x, w, b):
            x.add_(1)
            return (F.linear(x, w, b).softmax(-1), x.t())

        gm = fxgraph.symbolic_trace(fn)
        inputs = [r(3, 4), r(5, 4), r(5)]
        with torch.inference_mode():
            functional = functionalize(gm, inputs)
            out = run_functional(functional, inputs)
            assert out[0].is_inference()
            assert torch.is_inference_mode_enabled()
        targets = {n.target for n in functional.graph_module.graph.nodes}
        assert torch.ops.aten.addmm.default in targets
        assert torch.ops.aten.linear.default not in targets

    def test_autocast_is_traced_once(self):
        gm = fxgraph.symbolic_trace(lambda x, w: (x @ w,))
        inputs = [r(3, 4), r(4, 5)]
        with torch.autocast("cpu", torch.bfloat16):
            functional = functionalize(gm, inputs)
            expected = gm(*inputs)
            assert torch.equal(run_functional(functional, inputs)[0], expected[0])
        assert torch.equal(run_functional(functional, inputs)[0], expected[0])

    def test_grad_mode_calls_are_not_recorded(self):
        g = fxgraph.Graph()
        x = g.placeholder("x")
        g.call_function(torch._C._set_grad_enabled, (False,))
        y = g.call_function(torch.relu, (x,))
        g.call_function(torch._C._set_grad_enabled, (True,))
        g.output((y,))
        functional = functionalize(fxgraph.GraphModule({}, g), [r(3)])
        assert [n.op for n in functional.graph_module.graph.nodes] == [
            "placeholder", "call_function", "output",
        ]  # fmt: skip
        assert torch.is_grad_enabled()

    def test_needs_autograd(self):
        gm = fxgraph.symbolic_trace(lambda x: (x + 1,))
        x = r(3)
        assert needs_autograd(gm, [x]) is None
        x.requires_grad_()
        assert "requires grad" in needs_autograd(gm, [x])
        with torch.no_grad():
            assert needs_autograd(gm, [x]) is None

    def test_fake_mode_of_capture_is_used(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        gm = fxgraph.symbolic_trace(lambda x: (x + 1,))
        mode = FakeTensorMode()
        x = r(3)
        node = next(iter(gm.graph.nodes))
        node.meta.update(val=mode.from_tensor(x), source="L['x']", static=True)
        gm.meta["fake_mode"] = mode
        functional = functionalize(gm, [x])
        nodes = list(functional.graph_module.graph.nodes)
        assert nodes[0].meta["source"] == "L['x']" and nodes[0].meta["static"]
        assert all(n.meta["val"].fake_mode is mode for n in nodes if n.op != "output")


class TestDecompositions:
    def test_keep(self):
        gm = fxgraph.symbolic_trace(lambda x: (F.hardswish(x),))
        whole = functionalize(gm, [r(3)], keep=[torch.ops.aten.hardswish])
        targets = [n.target for n in whole.graph_module.graph.nodes]
        assert torch.ops.aten.hardswish.default in targets
        apart = functionalize(gm, [r(3)])
        assert len(apart.graph_module.graph.nodes) > 3

    @pytest.mark.parametrize(
        "fn",
        [
            F.hardswish, F.hardtanh, F.leaky_relu, F.elu, F.mish, F.softplus, F.glu, F.logsigmoid,
            F.relu6, F.hardsigmoid, F.celu, F.selu, F.softshrink, F.tanhshrink, F.gelu, F.silu,
            lambda x: torch.logsumexp(x, -1), lambda x: torch.std_mean(x, 0), torch.frac,
            lambda x: x // 0.3, lambda x: x.norm(dim=1), lambda x: torch.roll(x, 1, 0),
            lambda x: torch.tril(x), lambda x: F.pad(x, (1, 1), mode="reflect"),
            lambda x: F.pixel_shuffle(x.view(1, 4, 3, 1), 2), lambda x: torch.stack([x, x]),
            lambda x: torch.zeros_like(x) + torch.ones(4) + torch.arange(4),
            lambda x: x.lerp(x * 2, 0.3),
            lambda x: F.mse_loss(x, x * 2), lambda x: F.huber_loss(x, x * 2),
            lambda x: x.new_full((2,), 3),
            lambda x: F.layer_norm(x, (4,)), lambda x: F.rms_norm(x, (4,)), lambda x: x.var(0),
            lambda x: F.interpolate(x.view(1, 1, 3, 4), scale_factor=2, mode="bilinear"),
            lambda x: torch.addcmul(x, x, x, value=2), lambda x: torch.eye(3, 4) * x,
            lambda x: x.sinc(),
        ],
    )  # fmt: skip
    def test_rules_agree_with_eager_and_give_aten(self, fn):
        functional = check(lambda x: (fn(x),), r(3, 4), exact=False)
        for node in functional.graph_module.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem:
                assert node.target._schema.name.startswith("aten::"), node.target


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_results_that_their_target_cannot_hold_raise(backend):
    """Fake tensors of bool take products with whole numbers."""

    def program(x):
        y = x.clone()
        y *= 3
        return y

    with pytest.raises(RuntimeError, match="Long can't be cast to the desired output type Bool"):
        dynamo.compile(program, backend=backend)(torch.tensor([True, False]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
def test_random_slopes_of_a_transposed_tensor(backend, training):
    """The kernel's result is contiguous, that of its functional variant follows its argument."""

    def program(x):
        y = F.rrelu(x, training=training)
        return y, y.view(-1) * 2

    def seen(function):
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 12).reshape(4, 3).t().requires_grad_()
        results = function(x)
        (gradient,) = torch.autograd.grad(sum(y.sum() for y in results), x)
        return [(y.tolist(), y.stride()) for y in results], gradient.tolist()

    assert seen(dynamo.compile(program, backend=backend)) == seen(program)
