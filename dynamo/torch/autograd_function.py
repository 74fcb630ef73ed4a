"""torch.autograd.Function: where no gradient is needed its forward is captured; else `apply` goes
into the graph whole, and its forward and backward are watched on a trial.

The node calls the class itself, so forward, setup_context, backward, jvp and vmap run as they are
each time that the graph runs op by op. The trial guards the objects that forward reads, and breaks
the graph where forward does more than compute tensors: that must happen once per call, and not
while capturing. If backward, too, only computes tensors from those saved by forward, the node is
marked `traceable`: compiling backends may then run both once, on fake tensors.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _FunctionBase
from torch._functorch.autograd_function import VmapInfo
from torch.autograd.function import FunctionCtx

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, ModuleSource
from dynamo.polyfills import torch_functions as torch_polyfills
from dynamo.torch.applied_objects import Objects
from dynamo.torch.bodies import Body, opened, same_fake, trace_body
from dynamo.torch.changed_state import refuse_changed_state
from dynamo.torch.overrides import is_watched
from dynamo.values.base import Value
from dynamo.values.builder import subclass_builder
from dynamo.values.builtins.table import handles, polyfill
from dynamo.values.classes.classes import ClassValue
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.sets import SetValue
from dynamo.values.effects.side_effects import SERIALS
from dynamo.values.objects.descriptors import class_lookup, guarded_lookup
from dynamo.values.objects.objects import ObjectValue, object_of_kind
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph.aot.history import memory_of

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

_DEFAULT_SETUP = class_lookup(torch.autograd.Function, "setup_context")
_DEFAULT_JVP = class_lookup(torch.autograd.Function, "jvp")
_DEFAULT_VMAP = class_lookup(torch.autograd.Function, "vmap")
_trying: set[type] = set()  # the classes whose rules for transforms are tried


class ContextValue(ObjectValue):
    """The `ctx` of a forward that runs while capturing."""

    def __init__(self, needs_input_grad: Sequence[bool]) -> None:
        super().__init__(FunctionCtx)
        self.needs_input_grad = needs_input_grad

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "needs_input_grad":
            return TupleValue([ConstantValue(needs) for needs in self.needs_input_grad])
        if name == "saved_tensors":
            saved = tx.output.side_effects.load_attr(self, "to_save")
            return saved if isinstance(saved, Value) else TupleValue([])
        return super().getattr(tx, name)


# The notes that forward leaves for torch, which reads them behind the frame.
_NOTES = ("to_save", "dirty_tensors", "non_differentiable", "materialize_grads")


class RunningContextValue(ObjectValue):
    """The `ctx` of a forward that torch has called, in a frame of its own: notes are written."""

    def generic_setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        if name in _NOTES and guarded_lookup(tx, self, name) is vars(_FunctionBase)[name]:
            tx.output.side_effects.store_attr(self, name, value)
        else:
            super().generic_setattr(tx, name, value)

    def generic_getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.stored_attrs(self)
        written = any(note in stored for note in _NOTES)
        # A field of C may be another note's: saved_tensors are those of to_save.
        if written and isinstance(class_lookup(self.cls, name), types.GetSetDescriptorType):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return super().generic_getattr(tx, name)


@subclass_builder(_FunctionBase)
def _build_context(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    return object_of_kind(tx, RunningContextValue, obj, source)


class ForwardValue(Value):
    """forward, and setup_context behind it, as one function of the arguments of `apply`."""

    def __init__(self, owner: ClassValue, needs_input_grad: Sequence[bool]) -> None:
        super().__init__()
        self.owner = owner
        self.needs_input_grad = needs_input_grad

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.run(tx, args, kwargs)[1]

    def run(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[ContextValue, Value]:
        """The context, and the result of forward."""
        context = ContextValue(self.needs_input_grad)
        tx.output.side_effects.track_new(context)
        forward = self.owner.getattr(tx, "forward")
        if class_lookup(self.owner.cls, "setup_context") is _DEFAULT_SETUP:
            return context, tx.call_function(forward, [context, *args], kwargs)
        result = tx.call_function(forward, args, kwargs)
        setup = self.owner.getattr(tx, "setup_context")
        tx.call_function(setup, [context, TupleValue(list(args)), result])
        return context, result


class WithoutHistoryValue(ForwardValue):
    """forward where autograd has nothing to record: in no-grad mode, and its result is none of
    its arguments, but for those that it has written.
    """

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context, result = self.run(tx, args, kwargs)
        dirty = tx.output.side_effects.load_attr(context, "dirty_tensors")
        written = dirty.items(tx) if isinstance(dirty, TupleValue) else []

        def alone(output: Value) -> Value:
            if not isinstance(output, TensorValue):
                return output
            given = any(output is arg for arg in args)
            if output.fake.requires_grad:
                if not given:  # torch detaches the tensor itself
                    raise _refuse("forward returns a tensor with a history")
                return output.call_method(tx, "detach", [], {})
            if not given or any(output is one for one in written):
                return output
            return output.call_method(tx, "view_as", [output], {})

        if isinstance(result, TupleValue):
            return TupleValue([alone(output) for output in result.items(tx)])
        return alone(result)


class RoundTripValue(ForwardValue):
    """forward, and backward on gradients for all that it returned. A backward may apply its own
    class, as sums over processes do. lasting: containers that nobody changes.
    """

    running: list[type] = []  # the classes whose backward is tried

    def __init__(
        self, owner: ClassValue, needs_input_grad: Sequence[bool], lasting: Sequence[Value] = ()
    ) -> None:
        super().__init__(owner, needs_input_grad)
        self.lasting = lasting

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        first = next(SERIALS)
        context, result = self.run(tx, args, kwargs)
        outputs = result.items(tx) if isinstance(result, TupleValue) else [result]
        for held in tx.output.side_effects.stored_attrs(context).values():
            if isinstance(held, Value):
                self._check_lasting(tx, held, first)
        materialize = tx.output.side_effects.load_attr(context, "materialize_grads")
        if len(outputs) > 1 and isinstance(materialize, Value):
            raise _refuse("backward may be given None")
        empty_like = tx.wrap(torch.empty_like)
        gradients = [tx.call_function(empty_like, [output], {}) for output in outputs]
        known = len(tx.output.guards)
        versions = _versions(tx)
        backward = self.owner.getattr(tx, "backward")
        self.running.append(self.owner.cls)
        try:
            tx.call_function(backward, [context, *gradients], {})
        finally:
            self.running.pop()
        # Whoever holds a gradient sees the write: `retain_grad`, the caller of `backward`.
        fakes = [one.fake for one in gradients if isinstance(one, TensorValue)]
        if any(version_of(fake) or tx.output.checks.has_written(fake) for fake in fakes):
            raise _refuse("backward writes to the gradients that it is given")
        if any(version_of(fake) != version for fake, version in versions):
            raise _refuse("backward writes to a tensor")
        # Guards hold when forward runs; objects that backward reads may have changed by then.
        for guard in list(tx.output.guards)[known:]:
            if guard.kind not in _LASTING and not _is_constant(guard.source):
                raise _refuse(f"backward reads {guard.source}")
        return result

    def _check_lasting(self, tx: Interpreter, value: Value, first: int) -> None:
        """Refuse an object that forward keeps for its backward, and that the program may change
        until then: a container or an object that was there before (of a serial below `first`).
        """
        if any(value is one for one in self.lasting):
            return
        if isinstance(value, TupleValue):
            for item in value.items(tx):
                self._check_lasting(tx, item, first)
        elif isinstance(value, (ListValue, DictValue, SetValue, ObjectValue)):
            mutation = value.mutation
            if mutation is None or not mutation.new or mutation.serial < first:
                raise _refuse(f"backward may read {value.describe()}")


class JvpValue(ForwardValue):
    """forward, and jvp on its own arguments."""

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context, result = self.run(tx, args, kwargs)
        effects = tx.output.side_effects
        saved = effects.load_attr(context, "saved_for_forward")
        if isinstance(saved, Value):
            effects.store_attr(context, "to_save", saved)
        tangents = [
            arg
            if isinstance(arg, TensorValue) and arg.fake.is_floating_point()
            else ConstantValue(None)
            for arg in args
        ]
        tx.call_function(self.owner.getattr(tx, "jvp"), [context, *tangents], {})
        return result


def _versions(tx: Interpreter) -> list[tuple[torch.Tensor, int]]:
    """The tensors of the body that is captured, and of those around it, and their versions."""
    graphs = [body.graph for body in tx.output.bodies]
    found = [node.meta.get("example_value") for graph in graphs for node in graph.nodes]
    return [(one, version_of(one)) for one in found if isinstance(one, torch.Tensor)]


# Guards on which functions and classes names stand for.
_LASTING = frozenset(["id", "type", "type_attr", "function_code", "no_instance_attr", "has_attr"])


def _is_constant(source: Source | None) -> bool:
    """Whether it is a number that no program changes: torch.pi, math.e."""
    module = source.origin if isinstance(source, AttrSource) else None
    return isinstance(module, ModuleSource) and module.module in ("torch", "math")


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("autograd.Function", text))


@handles(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]
def _apply(tx, owner, *args, **kwargs):
    assert isinstance(owner, ClassValue)
    if is_watched(tx, args):
        raise _refuse("a mode, or an argument's class, sees the operations of forward")
    args, kwargs = _by_place(tx, owner, args, kwargs), {}
    needs = [isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args]
    differentiates = torch.is_grad_enabled() and any(needs)
    if owner.cls in RoundTripValue.running:
        return ForwardValue(owner, [False] * len(args)).call(tx, args, kwargs)
    if not (differentiates or tx.output.bodies):
        forward = WithoutHistoryValue(owner, needs)
        if not torch.is_grad_enabled():
            return forward.call(tx, args, kwargs)
        run = torch_polyfills.run_with_grad_mode
        return polyfill(tx, run, ConstantValue(False), forward, *args, **kwargs)
    objects = Objects(tx, args)
    nest = tuple(opened(tx, arg) if isinstance(arg, TensorValue) else arg for arg in args)
    body = _tried(tx, RoundTripValue(owner, needs), nest, kwargs)
    if body is None and objects.holds_containers(args):
        objects.keep_containers(args)
        body = _tried(tx, RoundTripValue(owner, needs, objects.containers), nest, kwargs)
    # Tensors that forward finds elsewhere are no inputs of the node: only its own run sees them.
    traceable = body is not None and not body.lifted
    if body is None:
        tx.output.untried_backwards.append(owner.cls)
        trace_body(tx, ForwardValue(owner, needs), nest, kwargs, same_fake, False)
    if tx.output.bodies:
        _try_rules(tx, owner, needs, nest)
    run_natively = [owner.cls.forward, getattr(owner.cls, "setup_context", None)]
    refuse_changed_state(tx, f"{owner.cls.__name__}.forward", run_natively)
    objects.watch()
    given = [*objects.others(args), *objects.parts]
    with _real_tensors_read(tx):
        result = call_in_graph(tx, "call_function", objects.applied(owner.cls), given, kwargs)
    if objects.makers:
        tx.output.contexts += _contexts(result)
    if traceable:
        _mark(result, owner.cls, args)
    return result


def _by_place(
    tx: Interpreter, owner: ClassValue, args: Sequence[Value], kwargs: dict[str, Value]
) -> Sequence[Value]:
    """The arguments as torch hands them to forward, to autograd and to setup_context: all by their
    places, and for setup_context with the defaults of forward.
    """
    forward = owner.cls.forward  # type: ignore[attr-defined]
    context_given = class_lookup(owner.cls, "setup_context") is _DEFAULT_SETUP
    if context_given and not kwargs:
        return args
    if not isinstance(forward, types.FunctionType):
        if kwargs:
            raise _refuse("arguments are given by name to a forward that is no function")
        return args
    code, given = forward.__code__, [*args]
    if code.co_kwonlyargcount:
        raise _refuse("forward has keyword-only arguments")
    names = code.co_varnames[int(context_given) : code.co_argcount]
    defaults: Sequence[Value] = ()
    if not context_given and forward.__defaults__:
        stated = owner.getattr(tx, "forward").getattr(tx, "__defaults__")
        assert isinstance(stated, TupleValue)
        defaults = stated.items(tx)
    left = dict(kwargs)
    for place in range(len(given), len(names)):
        default = place - len(names) + len(defaults)
        if names[place] in left:
            given.append(left.pop(names[place]))
        elif left or not context_given:
            if default < 0:
                raise _refuse(f"forward lacks its argument {names[place]}")
            given.append(defaults[default])
    if left:
        raise _refuse(f"forward takes no argument by the name of {next(iter(left))}")
    return given


def _try_rules(tx: Interpreter, owner: ClassValue, needs: Sequence[bool], args: Any) -> None:
    """Break where the class's own rules for transforms, jvp and vmap, do more than compute tensors:
    trials, that of vmap with a batch of two.
    """
    if owner.cls in _trying:
        return
    _trying.add(owner.cls)
    try:
        if class_lookup(owner.cls, "jvp") is not _DEFAULT_JVP:
            trace_body(tx, JvpValue(owner, needs), args, {}, same_fake, False)
        if class_lookup(owner.cls, "vmap") is not _DEFAULT_VMAP:
            info = tx.wrap(VmapInfo(batch_size=2, randomness="error"))
            dims = [ConstantValue(0 if isinstance(arg, TensorValue) else None) for arg in args]
            rule = owner.getattr(tx, "vmap")
            trace_body(tx, rule, (info, TupleValue(dims), *args), {}, _two_of)
    finally:
        _trying.discard(owner.cls)


def _two_of(number: int, fake: torch.Tensor) -> torch.Tensor:
    return same_fake(number, fake.detach().expand(2, *fake.shape))


@contextmanager
def _real_tensors_read(tx: Interpreter) -> Iterator[None]:
    """In the block, objects and names that forward reads stand for themselves on fake tensors."""
    mode = tx.output.fake_mode
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def _tried(tx: Interpreter, function: Value, nest: Any, kwargs: dict[str, Value]) -> Body | None:
    """`function` as a body, or None if it cannot be captured as one."""
    try:
        return trace_body(tx, function, nest, kwargs, same_fake, False)
    except Unsupported:
        return None


def _tensors(result: Value) -> list[TensorValue]:
    leaves = result.wrapped() if isinstance(result, TupleValue) else [result]
    return [leaf for leaf in leaves if isinstance(leaf, TensorValue)]


def _contexts(result: Value) -> list[Any]:
    """The contexts of a forward that ran on fake tensors, which may hold its arguments."""
    nodes = [leaf.fake.grad_fn for leaf in _tensors(result)]
    return [node for node in nodes if isinstance(node, torch.autograd.function.BackwardCFunction)]


def _mark(result: Value, cls: type, args: Sequence[Value]) -> None:
    """Mark the node that calls apply, from its results; "views": its memory is that of an
    argument, but not by a view that autograd knows.
    """
    tensors = _tensors(result)
    given = {memory_of(arg.fake) for arg in args if isinstance(arg, TensorValue)}
    for leaf in tensors:
        node = leaf.node
        while node.target is operator.getitem:
            node = node.args[0]
        if getattr(node.target, "__self__", None) is cls:
            shared = any(memory_of(one.fake) in given for one in tensors)
            node.meta["traceable"] = "views" if shared else "fresh"
