"""Tensor subclasses that wrap tensors: captured as they are, taken apart by the backends."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

import dynamo
from backends.registry import lookup_backend
from fxgraph.higher_order import dispatch_keys_kept

BACKENDS = ["eager", "aot_eager", "inductor"]


class Pair(torch.Tensor):
    """Two tensors on which each operator works."""

    @staticmethod
    def __new__(cls, a, b, tag="pair"):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device,
            requires_grad=a.requires_grad,
        )  # fmt: skip

    def __init__(self, a, b, tag="pair"):
        self.a, self.b, self.tag = a, b, tag

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return f"Pair({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Pair(inner["a"], inner["b"], tag)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        kwargs = kwargs or {}
        (one, *_) = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, Pair)]
        a = func(
            *tree_map_only(Pair, lambda x: x.a, args), **tree_map_only(Pair, lambda x: x.a, kwargs)
        )
        b = func(*tree_map_only(Pair, lambda x: x.b, args),
                 **tree_map_only(Pair, lambda x: x.b, kwargs))  # fmt: skip

        def together(x, y):
            return type(one)(x, y, one.tag) if isinstance(x, torch.Tensor) else x

        several = isinstance(a, (tuple, list))
        result = type(a)(map(together, a, b)) if several else together(a, b)
        return return_and_correct_aliasing(func, args, kwargs, result)

    def doubled(self):
        return self * 2

    @property
    def first(self):
        return self.a


class Scaled(torch.Tensor):
    """A matrix of int8 and a scale for each row, which a linear layer multiplies by."""

    @staticmethod
    def __new__(cls, values, scales):
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=scales.dtype, device=values.device
        )

    def __init__(self, values, scales):
        self.values, self.scales = values, scales

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __tensor_flatten__(self):
        return ["values", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["values"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.alias.default):
            w = args[0]
            return return_and_correct_aliasing(func, args, kwargs, Scaled(w.values, w.scales))
        if func is aten.t.default:
            w = args[0]
            return (w.values.to(w.scales.dtype) * w.scales[:, None]).t()
        raise NotImplementedError(f"{func}")


def pair(*size, grad=False, inner=None):
    made = [torch.randn(*size) if inner is None else inner() for _ in range(2)]
    return Pair(*made).requires_grad_(grad)


def copy_of(x):
    if not isinstance(x, Pair):
        return x.detach().clone().requires_grad_(x.requires_grad)
    return Pair(copy_of(x.a), copy_of(x.b), x.tag).requires_grad_(x.requires_grad)


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, Pair):
        assert (got.tag, got.shape, got.stride()) == (
            expected.tag, expected.shape, expected.stride(),
        )  # fmt: skip
        assert got.requires_grad == expected.requires_grad
        assert_same(got.a, expected.a)
        assert_same(got.b, expected.b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert got == expected


def pointwise(x, y):
    return (x * 2 + y).sin(), x.doubled()


def products(x, y):
    return torch.relu(x @ y.t()), torch.cat([x, x]).sum(0), x.softmax(-1)


def parts(x, y):
    a, b = x.chunk(2)
    return a.exp() + b, x.first + y, x.tag, x.shape[0], isinstance(x, Pair), type(x) is Pair


def itself(x, y):
    return x, y + 1, x


def views(x, y):
    return x.t(), x.view(-1)[1:] * 2


def with_break(x, y):
    z = x + y
    dynamo.graph_break()
    return z * x, z.tag


def in_containers(x, y):
    held = {"x": x, "rest": [y, x * 2]}
    return held["rest"][1] + held["x"], [one.sum() for one in (x, y)]


def made(x, y):
    p = Pair(y * 2, y, tag="made")
    q = Pair.__tensor_unflatten__({"a": p.a, "b": x.b}, "other", None, None)
    return p.exp() * p, q + 1, p.a


PROGRAMS = [made, pointwise, products, parts, itself, views, with_break, in_containers]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_inference(fn, backend):
    x, y = pair(4, 4), torch.randn(4, 4)
    compiled = dynamo.compile(fn, backend=backend, fullgraph=fn is not with_break)
    for _ in range(2):
        assert_same(compiled(x, y), fn(x, y))
    if fn is itself:
        got, _, again = compiled(x, y)
        assert got is x and again is x


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrappers_in_wrappers(backend):
    x, y = pair(4, 4, inner=lambda: pair(4, 4)), torch.randn(4, 4)
    assert_same(dynamo.compile(products, backend=backend, fullgraph=True)(x, y), products(x, y))


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes(backend):
    def fn(x, y):
        x.add_(y)
        x.a.mul_(2)
        return x * 2

    x, y = pair(3, 4), torch.randn(3, 4)
    other = copy_of(x)
    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    assert_same(compiled(x, y), fn(other, y))
    assert_same(x, other)


def layer(x, y):
    return nn.functional.layer_norm(x * y, [4]), (x @ y).relu()


def dropped(x, y):
    return (nn.functional.dropout(x, 0.5) * y,)


def detached(x, y):
    return (x * 2).detach(), x.exp() + y


def made_of_results(x, y):
    p = Pair(y * 2, y.detach())
    return (p.a * 3, x * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grads", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("fn", [layer, dropped, detached, views, made_of_results])
def test_training(fn, grads, backend):
    x, y = pair(4, 4, grad=grads[0]), torch.randn(4, 4).requires_grad_(grads[1])
    other, plain = copy_of(x), copy_of(y)
    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    results = []
    for f, a, b in ((compiled, x, y), (fn, other, plain)):
        torch.manual_seed(0)
        results.append(f(a, b))
        torch.autograd.backward([one.sum() for one in results[-1] if one.requires_grad])
    assert_same(*results)
    assert_same((x.grad, y.grad), (other.grad, plain.grad))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_is_compiled(backend):
    report = dynamo.explain(layer, backend=backend)(pair(4, 4, grad=True), torch.randn(4, 4))
    assert report.graph_count == 1
    assert not any("op by op" in note for note in report.notes), report.notes


def test_a_module_with_wrapped_parameters():
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    for module in (net[0], net[2]):
        weight = module.weight.detach()
        module.weight = nn.Parameter(Pair(weight, weight * 2))
    x = torch.randn(3, 4)
    compiled = dynamo.compile(net, fullgraph=True)
    found = []
    for f in (compiled, net):
        net.zero_grad()
        y = f(x)
        y.sum().backward()
        found.append((y.detach(), [p.grad for p in net.parameters()]))
    assert_same(*found)


def test_a_weight_of_int8():
    values = torch.randint(-128, 127, (8, 4), dtype=torch.int8)
    net = nn.Linear(4, 8).requires_grad_(False)
    net.weight = nn.Parameter(Scaled(values, torch.rand(8)), requires_grad=False)
    x = torch.randn(3, 4, requires_grad=True)
    compiled = dynamo.compile(net, fullgraph=True)
    expected, got = net(x), compiled(x)
    torch.testing.assert_close(got, expected)
    (one,) = torch.autograd.grad(got.sum(), x)
    (other,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(one, other)
    report = dynamo.explain(net)(x)
    assert report.graph_count == 1
    assert not any("op by op" in note for note in report.notes), report.notes


def test_what_is_guarded():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = dynamo.compile(lambda x: x * 2, backend=backend, dynamic=False)
    compiled(pair(3))
    compiled(pair(3))
    assert len(graphs) == 1
    assert_same(compiled(Pair(torch.ones(3), torch.ones(3), "other")),
                Pair(torch.ones(3) * 2, torch.ones(3) * 2, "other"))  # fmt: skip
    assert len(graphs) == 2  # another context
    compiled(pair(3, inner=lambda: pair(3)))
    assert len(graphs) == 3  # wrappers inside
    compiled(Pair(torch.ones(3), torch.ones(6)[::2]))
    assert len(graphs) == 4  # other strides of the second tensor
    compiled(torch.ones(3))
    assert len(graphs) == 5


@pytest.mark.parametrize("function", [lambda x: x * 2, lambda x: x * x, lambda x: x.exp().sin()])
def test_a_gradient_of_another_type(function):
    def gradient(run):
        x = Pair(torch.arange(4.0), torch.ones(4) / 3).requires_grad_()
        run(x).backward(torch.arange(4.0))
        return x.grad

    assert_same(gradient(dynamo.compile(function, fullgraph=True)), gradient(function))


class Lopsided(Pair):
    """The second tensor is looked at only beside plain tensors."""

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Lopsided(inner["a"], inner["b"], tag)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        tensors = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        if all(isinstance(x, Pair) for x in tensors):
            args = tree_map_only(Pair, lambda x: Lopsided(x.a, x.a, x.tag), args)
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_a_gradient_that_needs_what_was_not_saved():
    x = Lopsided(torch.ones(4), torch.ones(4)).requires_grad_()
    y = dynamo.compile(lambda x: x * x, fullgraph=True)(x)
    with pytest.raises(RuntimeError, match="gradient of type Tensor"):
        y.backward(torch.ones(4))


def test_gradients_with_other_strides():
    x = pair(4, 5, grad=True)
    y = dynamo.compile(lambda x: x.exp(), fullgraph=True)(x)
    grad = Pair(torch.randn(5, 4).t(), torch.randn(5, 4).t())
    (got,) = torch.autograd.grad(y, x, grad)
    assert_same(got.a.contiguous(), (x.a.exp() * grad.a).contiguous())
    assert_same(got.b.contiguous(), (x.b.exp() * grad.b).contiguous())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_tensor_inside_twice(backend):
    """The next call has two, each of which is written."""
    compiled = dynamo.compile(lambda x: x.mul_(2), backend=backend)
    one = torch.ones(2)
    compiled(Pair(one, one))
    assert one.tolist() == [4, 4]
    left, right = torch.ones(2), torch.ones(2) * 3
    compiled(Pair(left, right))
    assert left.tolist() == [2, 2] and right.tolist() == [6, 6]


def test_a_class_that_is_unflattened_as_its_base():
    class Derived(Pair):
        pass

    compiled = dynamo.compile(lambda x: (x + 1, type(x).__name__), backend="eager")
    for cls in (Pair, Derived, Pair):
        assert compiled(cls(torch.ones(2), torch.ones(2)))[1] == cls.__name__


class Overriding(Pair):
    """A Pair that counts what it is asked, and answers `sin` otherwise."""

    asked: list[str] = []

    @staticmethod
    def __new__(cls, a, b, tag="pair"):
        return Pair.__new__(cls, a, b, tag)

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Overriding(inner["a"], inner["b"], tag)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(func.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result + 10 if func is torch.sin else result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True])
def test_a_wrapper_with_a_torch_function(grad, backend):
    def fn(x):
        Overriding.asked.clear()
        return torch.sin(x) * 2, list(Overriding.asked)

    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        x = Overriding(torch.randn(3), torch.randn(3)).requires_grad_(grad)
        (y, asked), (z, expected) = compiled(x), fn(x)
        assert asked == expected == ["sin", "mul"]
        assert_same(y, z)
        if grad:
            (one,), (other,) = (torch.autograd.grad(t.sum(), x) for t in (y, z))
            assert_same(one, other)


def flat(x):
    return x.reshape(-1) * x.shape[0], x.a + x.shape[1]


def kept(x):
    return (x.exp(), x.t().sum(0))


def parts(x):
    return x[1:] * 2, x[:, ::2].sum(0), x.narrow(0, 1, 1), x[-1].exp()


def filled(x):
    wide = torch.nn.functional.pad(x, (1, 1), "reflect")
    return torch.where(wide > 0, wide, -wide), x.div(3, rounding_mode="floor"), x.floor()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn", [flat, kept, parts, filled])
def test_sizes_that_vary(fn, grad, backend):
    graphs = []

    def counting(gm, example_inputs):
        graphs.append(gm)
        return lookup_backend(backend)(gm, example_inputs)

    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (2, 3, 5, 7):
        x = pair(n, 4, grad=grad)
        got, expected = compiled(x), fn(x)
        assert_same(got, expected)
        if grad:
            roots = [[t.sum() for t in results if t.requires_grad] for results in (got, expected)]
            assert_same(*[torch.autograd.grad(some, x) for some in roots])
    assert len(graphs) == 2


def written(x, y):
    y.add_(1)
    return x * 2, y


def same_part(x, y):
    return x * 2, y + 1, x.a is y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [written, same_part])
def test_whether_a_part_is_another_input_is_guarded(fn, backend):
    def alike():
        a = torch.randn(3)
        return Pair(a, torch.randn(3)), a

    def apart():
        return pair(3), torch.randn(3)

    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for make in (alike, alike, apart, alike):
        torch.manual_seed(0)
        got = compiled(*make())
        torch.manual_seed(0)
        assert_same(got, fn(*make()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_whether_parts_are_the_same_is_guarded(backend):
    def fn(x, y):
        x.mul_(2)
        return x + y

    def alike():
        a = torch.randn(3)
        return Pair(a, torch.randn(3)), Pair(a, torch.randn(3))

    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for make in (alike, lambda: (pair(3), pair(3)), alike):
        torch.manual_seed(0)
        got = compiled(*make())
        torch.manual_seed(0)
        assert_same(got, fn(*make()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_become_tensors(backend):
    def fn(x):
        y = x.clone()
        y[0] = 1
        y[1:] = x[:2]
        return y

    x = pair(3)
    assert_same(dynamo.compile(fn, backend=backend, fullgraph=True)(x), fn(x))


@pytest.mark.parametrize("mark", [dynamo.mark_dynamic, dynamo.maybe_mark_dynamic])
def test_marks_on_a_wrapper(mark):
    compiled = dynamo.compile(flat, backend="aot_eager", fullgraph=True)
    for n in (3, 5, 7):
        x = pair(n, 4)
        mark(x, 0)
        assert_same(compiled(x), flat(x))


class Odd(Pair):
    """A Pair that has a part of another kind."""

    @staticmethod
    def __new__(cls, a, b, tag="odd"):
        return Pair.__new__(cls, a, a, tag)

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Odd(inner["a"], inner["b"], tag)


def test_a_part_that_is_no_tensor_in_memory():
    def fn(x):
        return x.a * 2

    x = Odd(torch.randn(3, 3), torch.eye(3).to_sparse())
    with pytest.warns() as warned:
        torch.testing.assert_close(dynamo.compile(fn)(x), fn(x))
        warnings.warn("none of a fault", stacklevel=1)
    assert [str(one.message) for one in warned] == ["none of a fault"]


def test_one_that_is_not_whole():
    """A continuation of __new__ gives a wrapper into which __init__ has put nothing yet."""

    class Broken(Pair):
        @staticmethod
        def __new__(cls, a, b, tag="pair"):
            made = Pair.__new__(cls, a, b, tag)
            dynamo.graph_break()
            return made

    compiled = dynamo.compile(lambda x: Broken(x, x + 1).a * 2, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        assert compiled(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("breaks", [False, True])
def test_what_init_stores_is_read_inside_of_try(breaks):
    def fn(x, tag):
        try:
            if breaks:
                dynamo.graph_break()
            found = Pair(x, x * 2, tag).tag
            with contextlib.suppress(ValueError):
                found += Pair(x, x, tag).tag
            found += str(Pair(x, x, tag).absent)
        except AttributeError as error:
            found += str(error)
        return x + 1, found

    compiled = dynamo.compile(fn, backend="eager")
    for tag in ("a", "b", "b"):
        (y, found), (z, expected) = compiled(torch.ones(2), tag), fn(torch.ones(2), tag)
        assert torch.equal(y, z) and found == expected


def test_gradients_are_wrappers_while_capturing():
    def fn(x):
        (x * x).sum().backward()
        (second,) = torch.autograd.grad((x * x).sum(), x)
        return isinstance(x.grad, Pair), x.grad.a, second.tag, second.b

    compiled = dynamo.compile(fn, backend="aot_eager")
    results = []
    for function in (fn, compiled):
        x = Pair(torch.ones(2), torch.ones(2) * 3).requires_grad_()
        results.append(repr(function(x)))
    assert results[0] == results[1]
    assert [len(record.graphs) for record in compiled.context.records] == [1]


def test_what_a_change_of_shape_in_place_leaves_compiles_nothing_again():
    """torch itself leaves the key of dense tensors included in the thread."""
    compiled = dynamo.compile(lambda x: x * 2, backend="eager")
    with dispatch_keys_kept():
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
            pair(3, 4).t_()
    assert len(compiled.context.records) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_changes_of_shape_one_after_the_other(backend):
    """Aten's own Python functions, which the class's dispatch runs into, are not compiled."""

    def transposed(x):
        x.t_()
        x.t_()
        x.mul_(2)
        return x

    results = []
    for function in (transposed, dynamo.compile(transposed, backend=backend)):
        x = function(Pair(torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)))
        results.append((x.a.tolist(), x.b.tolist(), [(y.shape, y.stride()) for y in (x, x.a, x.b)]))
    assert results[0] == results[1]


def _written(x):
    with torch.no_grad():
        x.mul_(2)


CHANGES = {
    "write": _written,
    "data": lambda x: setattr(x, "data", Pair(torch.full((2, 2), 0.5), torch.full((2, 2), 0.25))),
    "data_write": lambda x: x.data.mul_(2),
    "inner_write": lambda x: x.a.mul_(2),
    "inner_replaced": lambda x: setattr(x, "b", torch.full((2, 2), 3.0)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_saved_wrapper_is_changed_before_the_backward(change, backend):
    """The backward reads the wrapper that was saved, and what it wraps then."""

    def fn(x):
        return (x.sin() * x).exp()

    results = []
    for function in (fn, dynamo.compile(fn, backend=backend)):
        x = Pair(torch.ones(2, 2), torch.ones(2, 2) * 3).requires_grad_()
        y = function(x)
        change(x)
        try:
            y.backward(Pair(torch.ones(2, 2), torch.ones(2, 2)))
            results.append(repr(x.grad))
        except RuntimeError as error:
            results.append(str(error).split(" is at version")[-1])
    assert results[0] == results[1]


def test_a_part_of_a_jagged_tensor_is_wrapped():
    rows = [torch.randn(3, 4, requires_grad=True), torch.randn(2, 4)]
    part = torch.nested.as_nested_tensor(rows, layout=torch.jagged).sin().unbind()[0]

    def run(x):
        return x.doubled() + 1

    call = dynamo.compile(run, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, expected = (f(Pair(part, part.detach())) for f in (call, run))
    assert torch.equal(got.a, expected.a)
    assert torch.equal(got.b, expected.b)
