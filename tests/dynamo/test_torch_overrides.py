"""The torch function protocol: what a subclass's __torch_function__ answers, where it is not asked,
and that the captured state says so; each beside eager.
"""

from __future__ import annotations

import pytest
import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.checkpoint import checkpoint

import dynamo
from tests.dynamo import differential
from tests.dynamo.capturing import compiled

Tensor = torch.Tensor


class Answers(Tensor):
    """Answers everything, by name."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "asked", func.__name__, len(args)


class Compares(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == Tensor.ndim.__get__:
            return 90
        if Tensor.shape.__get__ == func:
            return (9, 9)
        if func == Tensor.dim:
            return 91
        return super().__torch_function__(func, types, args, kwargs or {})


TABLE = {Tensor.ndim.__get__: 80, Tensor.requires_grad.__get__: 81, Tensor.dim: 82}


class LooksUp(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in TABLE:
            return TABLE[func]
        return super().__torch_function__(func, types, args, kwargs or {})


class Language(Tensor):
    """Answers what operations of the language ask."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        answers = {
            "__len__": 5,
            "__bool__": False,
            "__iter__": iter((1, 2)),
            "__contains__": True,
            "item": 8,
        }
        name = getattr(func, "__name__", "")
        if name in answers:
            return answers[name]
        return super().__torch_function__(func, types, args, kwargs or {})


log: list[str] = []


class Skips(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(func.__name__)
        return torch.overrides.redispatch_function(func, types, args, kwargs or {})


def scaled(a, b):
    if has_torch_function((a, b)):
        return handle_torch_function(scaled, (a, b), a, b)
    return torch.add(torch.mul(a, b), 1)


def check(function, cls, ops=None):
    """The same results and the same calls of __torch_function__; `ops`: the sizes of the graphs."""
    seen = []
    captured, record = compiled(function)
    for one in (function, captured, captured):
        log.clear()
        x = torch.ones(2, 3)
        result = one(x if cls is None else x.as_subclass(cls), torch.ones(2))
        seen.append((repr(result), list(log)))
    assert seen[0] == seen[1] == seen[2]
    reasons = [b.reason for r in record.context.records for b in r.breaks]
    assert not [reason for reason in reasons if "fault" in reason]
    if ops is not None:
        assert (record.op_counts, reasons) == (ops, [])


ATTRIBUTES = (
    "ndim T grad is_leaf dtype device data is_cuda real H layout mT grad_fn is_sparse itemsize "
    "nbytes output_nr _version shape requires_grad is_nested retains_grad _backward_hooks"
).split()
METHODS = (
    "size dim numel stride item tolist type is_contiguous storage_offset element_size __len__ "
    "clone is_floating_point get_device data_ptr nelement ndimension sum detach cpu __bool__ neg"
).split()


@pytest.mark.parametrize("asked", [*ATTRIBUTES, *(f"{name}()" for name in METHODS)])
def test_everything_asks(asked):
    space = {}
    exec(f"def f(x, t): return t + 1, x.{asked}", space)
    check(space["f"], Answers, [1])


@pytest.mark.parametrize("cls", [Compares, LooksUp])
def test_a_function_is_recognised(cls):
    check(lambda x, t: (t + 1, x.ndim, x.shape, x.dim(), x.requires_grad, x.dtype), cls, [1])


def test_of_a_tensor_that_the_frame_makes():
    check(lambda x, t: (t + 1, x.as_subclass(Compares).ndim), None, [1])


LANGUAGE = {
    "len": "len(x)",
    "truth": "(1 if x else 2, not x)",
    "iteration": "([i for i in x], list(x))",
    "unpacking": "(lambda a, b: (a, b))(*x)",
    "membership": "3 in x",
    "item": "x.item()",
}


@pytest.mark.parametrize("asked", LANGUAGE)
def test_operations_of_the_language(asked):
    space = {}
    exec(f"def f(x, t): return t + 1, {LANGUAGE[asked]}", space)
    check(space["f"], Language)


def says():
    state = torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()
    return *state, torch._C._is_torch_function_mode_enabled()


def in_subclass_region(x, t):
    y = x + 1
    with torch._C.DisableTorchFunctionSubclass():
        inside = says(), y.ndim, has_torch_function((x,))
    return inside, says(), y.ndim, has_torch_function((x,)), y


def in_region(x, t):
    y = x + 1
    with torch._C.DisableTorchFunction():
        inside = says(), y.ndim, has_torch_function((x,))
    return inside, says(), y.ndim, has_torch_function((x,)), y


# -- methods that call the tensor's own -----------------------------------------------------------
class Extends(Tensor):
    def add(self, other):
        return Tensor.add(self, other) + 100

    def __add__(self, other):
        return super().__add__(other) * 2

    def relu(self):
        return super().relu() - 1

    def __getitem__(self, index):
        return super().__getitem__(index) + 1

    def view(self, *sizes):
        return super(Extends, self).view(*sizes) * 3

    def mul(self, other):
        return "mul"


class ExtendsAndCounts(Extends):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Tensor):
            result.depth = 1 + max(getattr(arg, "depth", 0) for arg in args)
        return result

    def add(self, other):
        return super().add(other) - 1


class Measures(Answers):
    """With properties of Tensor's names, as torchvision's images have."""

    @property
    def shape(self):
        return super().shape

    @property
    def is_leaf(self):
        with torch._C.DisableTorchFunctionSubclass():
            return super().is_leaf

    @property
    def grad(self):
        return super().grad


@pytest.mark.parametrize("asked", ["shape", "is_leaf", "grad"])
@pytest.mark.parametrize("inside", [False, True])
def test_properties_that_read_the_inherited_ones(inside, asked):
    def f(x, t):
        made = x.as_subclass(Measures) if inside else x
        return t + 1, getattr(made, asked)

    check(f, None if inside else Measures, [1])


@pytest.mark.parametrize("cls", [Extends, ExtendsAndCounts])
def test_methods_that_call_the_inherited_ones(cls):
    def f(x):
        y = x.add(1), x + 1, x.relu(), x[0], x.view(-1), x.mul(2), x * 2, torch.add(x, 1)
        return y, [getattr(one, "depth", None) for one in y]

    for size in (3, 5):
        x = torch.linspace(-1, 1, size).as_subclass(cls)
        found, expected = dynamo.compile(f, backend="eager", fullgraph=True)(x), f(x)
        assert found[1] == expected[1]
        for one, other in zip(found[0], expected[0], strict=True):
            assert type(one) is type(other)
            plain = not isinstance(one, Tensor)
            assert one == other if plain else one.tolist() == other.tolist()


@pytest.mark.parametrize("cls", [Compares, None])
@pytest.mark.parametrize("function", [in_subclass_region, in_region])
def test_regions_without_overrides(function, cls):
    check(function, cls, [1])


REGIONS = {
    "none": torch.no_grad,
    "subclasses": torch._C.DisableTorchFunctionSubclass,
    "all": torch._C.DisableTorchFunction,
    "device": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("region", REGIONS)
def test_the_state_around_the_frame(region):
    with REGIONS[region]():
        check(lambda x, t: (says(), x.ndim, t + 1), Compares, [1])


def test_the_state_around_the_frame_is_guarded():
    captured, _ = compiled(lambda x: (x + 1, says(), x.ndim))
    x = torch.ones(2).as_subclass(Compares)
    for region in (*REGIONS.values(), *REGIONS.values()):
        with region():
            found, state, ndim = captured(x)
            assert (state, ndim) == (says(), x.ndim)


class Logs(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


WITH_NUMBERS = {
    "operator": lambda x, n: x * n,
    "float": lambda x, n: torch.add(x, n * 0.5),
    "slice": lambda x, n: x[:, 1 : n + 1],
    "sizes": lambda x, n: x.new_zeros(n, x.shape[0] + n),
    "keyword": lambda x, n: x.narrow(1, start=n - 2, length=1),
}


@pytest.mark.parametrize("program", WITH_NUMBERS.values(), ids=WITH_NUMBERS)
def test_overrides_are_asked_with_numbers_that_vary(program):
    captured, _ = compiled(program)
    for n in (2, 3, 4, 5):
        x = torch.ones(2, 6).as_subclass(Logs)
        seen = []
        for function in (program, captured):
            log.clear()
            seen.append((repr(function(x, n)), list(log)))
        assert seen[0] == seen[1]


DIFFERENTIATED = {
    "grad": lambda x, of: torch.autograd.grad((x * x).sum(), x),
    "func.grad": lambda x, of: torch.func.grad(lambda y: (y * of(y)).sum())(x),
    "vjp": lambda x, of: torch.func.vjp(lambda y: y * of(y), x)[0],
    "vmap": lambda x, of: torch.vmap(lambda y: y * of(y))(x),
    "checkpoint": lambda x, of: checkpoint(lambda y: y * of(y), x, use_reentrant=False),
}


@pytest.mark.parametrize("kind", [Logs, type("Plain", (Tensor,), {})])
@pytest.mark.parametrize("program", DIFFERENTIATED.values(), ids=DIFFERENTIATED)
def test_classes_of_differentiated_tensors(program, kind):
    def fn(x):
        return program(x, lambda y: 2 if type(y) is kind else 3)

    captured, _ = compiled(fn)
    x = torch.ones(2).as_subclass(kind).requires_grad_()
    seen = []
    for function in (fn, captured, captured):
        log.clear()
        seen.append((repr(function(x)), list(log)))
    assert seen[0] == seen[1] == seen[2]


NEEDS_REDISPATCH = pytest.mark.skipif(
    not hasattr(torch.overrides, "redispatch_function"),
    reason="redispatch_function is torch 2.13's",
)
REDISPATCHED = {
    "operation": lambda x, t: torch.mul(x, x),
    "function with overrides": lambda x, t: scaled(x, x),
    "attribute": lambda x, t: (x.ndim, x + x),
    "softmax": lambda x, t: torch.nn.functional.softmax(x, 0),
    "split": lambda x, t: torch.split(x, 1),
    "dropout": lambda x, t: torch.nn.functional.dropout(x, 0.0),
}


@NEEDS_REDISPATCH
@pytest.mark.parametrize("name", REDISPATCHED)
def test_redispatch_skips_one_call(name):
    check(REDISPATCHED[name], Skips)


@NEEDS_REDISPATCH
def test_a_captured_function_is_skipped_after_it_was_captured():
    """The flag is guarded: a call that skips overrides has no graph of one that asked them."""
    captured, _ = compiled(scaled)

    def through(x, t):
        return captured(x, x)

    check(through, Skips)


NESTS = {
    "cat": "torch.cat(given)",
    "stack": "torch.stack(given)",
    "named": "torch.stack(tensors=given, dim=1)",
    "einsum of a list": "torch.einsum('ij,kj->ik', given)",
    "foreach": "torch._foreach_mul(given, 2)[0]",
    "of a dict": "torch.cat([*{'a': given[0], 'b': 1}.values()][:1])",
    "of a list of lists": "torch.cat([g for g in nested[0]])",
    "an attribute": "torch.cat(holder.given)",
    "the last one": "torch.cat([x, *mixed])",
    "the last one, unread": "torch.cat(mixed)",
}


@pytest.mark.parametrize("call", NESTS.values(), ids=NESTS)
@pytest.mark.parametrize("kind", ["list", "tuple"])
def test_tensors_in_a_sequence_from_outside(call, kind):
    """The class of a tensor that nothing has read before the call."""
    differential.check(f"""
        class Noted(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func.__name__ != '__get__': log.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {{}})
        given = {kind}([T(2, 3).as_subclass(Noted), T(2, 3)])
        nested = {kind}([given])
        mixed = {kind}([T(2, 3), T(2, 3).as_subclass(Noted)])
        class Holder: pass
        holder = Holder()
        holder.given = given
        def f(x): return {call} * 2
        ---
        run(T(2, 3))
        run(T(2, 3))
    """)


@pytest.mark.parametrize("call", ["torch.tensor(given)", "x.new_tensor(given)"])
def test_a_tensor_of_numbers_of_a_class(call):
    """The tensor that is made of them is a plain one."""
    differential.check(f"""
        class Negated(torch.Tensor): pass
        def f(x):
            given = [row.sum() for row in x]
            return torch.ones(2) + {call.replace("x.", "torch.ones(2).")}
        ---
        run(T(2, 3).as_subclass(Negated))
        run(T(2, 3))
    """)
