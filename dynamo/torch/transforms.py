"""torch.func and torch.autograd.functional: the function is captured as a body, and the graph calls
the transform on it.

    torch.func.grad(f)(x)  ->  transform("torch.func.grad", body of f, lifted, options, (x,), {})

Shapes come from running that call on fake tensors, so an operation that a transform refuses breaks
the graph, and raises its own error when the call runs natively.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.torch.bodies import (
    constant,
    differentiable,
    opened,
    proxies,
    record,
    same_fake,
    trace_body,
)
from dynamo.torch.untried_backwards import refuse_untried_in
from dynamo.values.base import Value
from dynamo.values.builder import special_builder
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.functions.function import UserFunctionValue, function_guard
from dynamo.values.recipes import Named, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.higher_order import CURRIED, DIRECT, transform
from fxgraph.size_forms import at_least_one
from fxgraph.symbolic_values import depends_on_data

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.torch.bodies import Body

_AUTOGRAD = "torch.autograd.functional."


class TransformedValue(Value):
    """A function made by torch.func.grad(f) and its kin."""

    def __init__(self, name: str, function: Value, options: dict[str, Value]) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.options = options

    def python_type(self) -> type:
        return type(lambda: None)

    def describe(self) -> str:
        return f"{self.name} of {self.function.describe()}"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__doc__", "__module__"):
            return self.function.getattr(tx, name)
        return super().getattr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        options = {key: constant(value) for key, value in self.options.items()}
        nested = tuple(opened(tx, value) for value in args)
        named = {key: opened(tx, value) for key, value in kwargs.items()}
        body = _trace_curried(tx, self, options, nested, named)
        given = (proxies(nested), proxies(named))
        return _apply(tx, self.name, body, options, *given)

    def recipe(self) -> Recipe:
        return Named(CURRIED[self.name], self.options), [self.function, *self.options.values()]


def _trace_curried(
    tx: Interpreter, value: TransformedValue, options: dict[str, Any], args: Any, kwargs: Any
) -> Body:
    name = value.name
    # vmap runs its function, which of jacfwd is the body's derivative, for each chunk.
    once = name == "torch.func.jacrev" or options.get("chunk_size") is None
    if name == "torch.func.vmap":
        return _trace_mapped(tx, value.function, options.get("in_dims", 0), args, kwargs, once)
    if name == "torch.func.jacfwd":
        return trace_body(tx, value.function, args, kwargs, same_fake, True, once)
    wanted = _chosen_leaves(options.get("argnums", 0), args)

    def make(number: int, fake: torch.Tensor) -> torch.Tensor:
        return differentiable(number, fake) if number in wanted else same_fake(number, fake)

    return trace_body(tx, value.function, args, kwargs, make, True, once)


def _chosen_leaves(argnums: Any, args: Any) -> set[int]:
    """Numbers of the leaves of `args` that are differentiated."""
    chosen = {argnums} if isinstance(argnums, int) else set(argnums)
    chosen = {n + len(args) if n < 0 else n for n in chosen}
    counts = [len(pytree.tree_leaves(arg)) for arg in args]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return {
        leaf for i in chosen if i < len(args) for leaf in range(starts[i], starts[i] + counts[i])
    }


def _trace_mapped(
    tx: Interpreter, function: Value, in_dims: Any, args: Any, kwargs: Any, once: bool
) -> Body:
    """The body of vmap sees one example."""
    spec = pytree.tree_flatten(args)[1]
    dims = pytree._broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise Unsupported(breaks.OpError("vmap", "in_dims does not fit the arguments"))

    def make(number: int, fake: torch.Tensor) -> torch.Tensor:
        dim = dims[number] if number < len(dims) else None
        if dim is None:
            return same_fake(number, fake)
        if fake.is_nested:
            raise Unsupported(breaks.UncapturedCall("vmap of a nested tensor"))
        if not isinstance(dim, int) or not -fake.ndim <= dim < fake.ndim:
            raise Unsupported(breaks.OpError("vmap", f"in_dims {dim} does not fit an argument"))
        count, size, stride = fake.shape[dim], list(fake.shape), list(fake.stride())
        del size[dim], stride[dim]
        if depends_on_data(count) and not at_least_one(count):
            # Of no rows, some operations raise.
            raise Unsupported(breaks.DataDependentValue("vmap of a size from data"))
        if count:
            example = fake.select(dim, 0)
        else:
            example = fake.new_empty_strided(size, stride, requires_grad=fake.requires_grad)
        example.is_example = True  # type: ignore[attr-defined]
        return example

    return trace_body(tx, function, args, kwargs, make, runs_once=once)


def _apply(
    tx: Interpreter, name: str, body: Body, options: dict[str, Any], args: Any, kwargs: Any
) -> Value:
    node = body.attach(tx)
    refuse_untried_in(tx, node.meta["example_value"])
    return record(tx, transform, (name, node, body.lifted, options, args, kwargs))


# -- torch.func.grad(f), which are called later ---------------------------------------------------
def _curry(name: str) -> Any:
    signature = inspect.signature(CURRIED[name])

    def make(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise Unsupported(breaks.OpError(name, str(error))) from error
        return TransformedValue(name, given.pop("func"), given)

    return make


for _name, _function in CURRIED.items():
    TABLE[_function] = _curry(_name)


class TransformedFunctionValue(UserFunctionValue):
    """torch.func.grad(f), made outside: the transform's arguments are variables of the closure."""

    def is_plain_function(self) -> bool:
        return False

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        made, args, kwargs = self.forwards(tx, args, kwargs)
        return made.call(tx, args, kwargs)

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        name = MAKERS[id(self.code)]
        cells = dict(zip(self.code.co_freevars, self.closure(tx)))
        given = [p for p in inspect.signature(CURRIED[name]).parameters if p in cells]
        options = {option: cells[option].load(tx) for option in given}
        return TransformedValue(name, options.pop("func"), options), args, kwargs


# The id of the code of the functions that they make (a program's code may have no hash), and their
# names; that of hessian(f) is jacfwd's.
MAKERS = {
    id(transform_of(abs).__code__): name
    for name, transform_of in CURRIED.items()
    if transform_of is not torch.func.hessian
}


@special_builder(lambda obj: type(obj) is types.FunctionType and id(obj.__code__) in MAKERS)
def build_transformed(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    function_guard(tx, obj, source)
    source = source or tx.output.install(obj.__name__, obj)
    return tx.output.remember(obj, source, TransformedFunctionValue(obj, source))


# -- those that are called with the arguments -----------------------------------------------------
@handles(torch.func.vjp)
def _vjp(tx, function, *primals, **options):
    nested = tuple(opened(tx, value) for value in primals)
    body = trace_body(tx, function, nested, {}, differentiable, True, True)
    settings = {key: constant(value) for key, value in options.items()}
    return _apply(tx, "torch.func.vjp", body, settings, proxies(nested), {})


@handles(torch.func.jvp)
def _jvp(tx, func, primals, tangents, **options):
    nested = opened(tx, primals)
    if not isinstance(nested, tuple):
        raise Unsupported(breaks.OpError("jvp", "primals is not a tuple"))
    body = trace_body(tx, func, nested, {}, same_fake, True, True)
    settings = {key: constant(value) for key, value in options.items()}
    args = (proxies(nested), proxies(opened(tx, tangents)))
    return _apply(tx, "torch.func.jvp", body, settings, args, {})


def _autograd_functional(name: str) -> Any:
    signature = inspect.signature(DIRECT[name])

    def handler(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if torch.is_inference_mode_enabled():  # where autograd records nothing
            raise Unsupported(breaks.UncapturedCall(f"{name} in inference mode"))
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise Unsupported(breaks.OpError(name, str(error))) from error
        function, inputs = given.pop("func"), opened(tx, given.pop("inputs"))
        vector = proxies(opened(tx, given.pop("v", ConstantValue(None))))
        nested = inputs if isinstance(inputs, tuple) else (inputs,)
        body = trace_body(tx, function, nested, {}, differentiable, True)
        settings = {key: constant(value) for key, value in given.items()}
        leaves = [v.fake for v in pytree.tree_leaves(nested) if isinstance(v, TensorValue)]
        if settings.get("create_graph") and not all(leaf.requires_grad for leaf in leaves):
            # The results require gradients with respect to tensors that only torch's code has.
            raise Unsupported(breaks.UncapturedCall(f"{name} with create_graph of a constant"))
        if "v" in signature.parameters:
            return _apply(tx, name, body, settings, (proxies(inputs), vector), {})
        return _apply(tx, name, body, settings, (proxies(inputs),), {})

    return handler


for _name, _function in DIRECT.items():
    if _name.startswith(_AUTOGRAD):
        TABLE[_function] = _autograd_functional(_name)
