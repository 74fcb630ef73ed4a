"""The graph being built for one frame, with its inputs, guards, side effects and installed globals.

One OutputGraph serves the root interpreter of a frame and every interpreter inlined below it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import time
import types
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.guards.history import SeenFrame
from dynamo.guards.kinds import GuardSet, Reads
from dynamo.guards.lookups import Lookups, is_trusted
from dynamo.guards.shapes import FrameSymbols
from dynamo.guards.sources import (
    INSTALLED,
    GlobalSource,
    GlobalsSource,
    InstalledSource,
    Source,
    readable_name,
)
from dynamo.interp.checks import Checks
from dynamo.interp.conditionals import Conditionals
from dynamo.interp.data_dependent_loops import Trial
from dynamo.interp.watched_tensors import WatchedTensors
from dynamo.plans import EmissionPlan, Plan
from dynamo.torch.devices import default_device
from dynamo.torch.entered_modes import EnteredModes
from dynamo.torch.subgraph import Subgraph, check_local
from dynamo.torch.written_state import WrittenState
from dynamo.values.effects.lifetimes import UniqueReferences
from dynamo.values.effects.side_effects import SideEffects
from dynamo.values.objects.identity_numbers import TokenKeys
from dynamo.values.tensors.known_tensors import KnownTensors
from dynamo.values.tensors.memory_overlap import history_of, version_of
from dynamo.values.tensors.tensor import TensorValue
from fxgraph import Graph, Node
from fxgraph.expression_nodes import value_of
from fxgraph.fallible_operations import can_fail
from fxgraph.symbolic_values import numbers_of
from fxgraph.symbols import SymbolInfo
from fxgraph.torch_fx import fake_tensor_mode, forget_real_tensors
from fxgraph.type_trials import has_unusual_types

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.interp.emptiness import Emptiness
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.root import RootInterpreter
    from dynamo.values.base import Value
    from dynamo.values.effects.hoisted_modules import HoistedCall
    from dynamo.values.effects.lifetimes import Finalizable
    from dynamo.values.objects.exception_objects import TracebackValue
    from dynamo.values.tensors.tensor import TensorValue

# Kinds of guards that an object which compilation put into the globals cannot fail.
_OF_INSTALLED = frozenset(["id", "address", "constant", "none", "static_tensor"])
_installed_counter = itertools.count()
# After so many steps, the size of the graph decides whether capture goes on, and processor time
# where the graph may break.
_STEPS = 100_000
_MANY_NODES = 5_000
_SECONDS = 1.0


class Installed(dict[str, Any]):
    """The objects that rewritten frames of one dict of globals load: it dies with that dict, which
    may be copied.
    """

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner

    def __repr__(self) -> str:
        return "what compiled code loads"


@dataclass
class GraphInput:
    """A placeholder and where its tensor, or its number (a symbol), comes from."""

    node: Node
    source: Source
    example: Any
    static: bool
    history: Any = None  # a fake tensor's, before the frame


class OutputGraph:
    """The products of one attempt to capture a frame: graph, inputs, guards, side effects."""

    reads_inputs = False  # numbers, of tensors that are inputs
    guarded_truths: frozenset[Any] = frozenset()  # of tensors that are inputs
    # Seen was a tensor, or another object, whose class has __torch_function__, or a mode.
    tensors_override = objects_override = False
    looked_in: Interpreter | None = None  # the frame of the last look for finalizable objects
    regions_guarded = False  # see values/effects/break_regions.py
    nesting_guarded = False  # whether the frame began inside of autocast
    has_dual_level = False  # of forward-mode autograd, entered
    has_generators = False
    continues = False  # the frame is a continuation
    compiled = False  # a backend has got the graph
    overrides_disabled = 0  # depth of DisableTorchFunctionSubclass
    trial: Trial | None = None
    emptiness: Emptiness | None = None  # where the iteration being captured is not made
    running: Any = None  # the interpreter whose instruction is being executed
    steps = 0  # instructions executed so far, over all interpreters
    _nodes = 0
    _last_placeholder: Node | None = None

    def __init__(
        self,
        context: CompileContext,
        frame_globals: dict[str, Any],
        seen: SeenFrame | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.context = context
        self.plan = plan or Plan()
        self.emission = EmissionPlan()
        self.symbols = FrameSymbols(self, context, seen or SeenFrame())
        self.frame_globals = frame_globals
        self.graph = Graph()
        self.root = torch.nn.Module()  # holds the captured bodies that nodes of the graph run
        self.bodies: list[Subgraph] = []  # those being captured, innermost last
        self.fake_mode = fake_tensor_mode(allow_non_fake_inputs=False)
        self.guards = GuardSet()
        self.lookups = Lookups()
        self.side_effects = SideEffects()
        self.inputs: list[GraphInput] = []
        self._input_names: set[str] = set()  # a graph's function takes each name once
        self.installed: dict[str, Any] = {}
        self.hoisted_calls: list[HoistedCall] = []  # see values/effects/hoisted_modules.py
        # reader -> its result at the frame's entry, of settings that the frame changed
        self.settings_before: dict[Any, Any] = {}
        self.parts: list[tuple[Source, torch.Tensor]] = []  # held by wrappers among inputs
        self.modes = EnteredModes()
        self.default_dtype = torch.get_default_dtype()
        self.function_modes = torch._C._len_torch_function_stack()  # when the frame starts
        self.default_device = default_device()
        self.token_keys = TokenKeys()
        self.plain_references: dict[int, Value] = {}  # id(target) -> its weak reference
        # By id: objects whose end the program notices (values/effects/lifetimes.py).
        self.finalizable: dict[int, Finalizable] = {}
        self.real_strides: dict[Node, Any] = {}  # see values/tensors/stride_reads.py
        self._distinct_groups: dict[int, Value] = {}  # by id
        self.classes_known: list[Value] = []  # of lazy modules whose class the program knows
        self.unique = UniqueReferences()  # objects that nothing else holds
        self.inference: list[Value] = []  # managers of torch.inference_mode that are entered
        self.known_tensors = KnownTensors()
        self.checks = Checks(self)
        self.conditionals = Conditionals(self)
        self.stop_at = -1 if self.plan.stop is None else self.plan.stop.step  # steps of capture
        self.unrolled: list[Any] = []  # loops to be captured to their end (resumed_iterators.py)
        self.began = time.thread_time()
        # No interpreter looks up before this step.
        self.limit_at = self.next_event = min(config.loop_limit, _STEPS)
        if self.stop_at >= 0:
            self.next_event = min(self.stop_at, self.next_event)
        self.handled_outside = sys.exception()  # by callers of the frame
        self.watched = WatchedTensors()
        # By number of the bodies around: see torch/checkpoint.py.
        self.checkpointed: dict[int, list[Any]] = {0: []}
        self.checkpoint_reads: list[Reads] = []  # see torch/checkpoint_reads.py
        self.untried_backwards: list[type] = []  # see torch/untried_backwards.py
        self.contexts: list[Any] = []  # of autograd.Functions that were given the program's objects
        # One Value per outside object and per source; objects live on, so that ids stay theirs.
        self.values_by_source: dict[Source, Value] = {}
        self.values_by_id: dict[int, tuple[Any, Value]] = {}
        self.written = WrittenState()  # by functions that the graph calls
        self.root_frame: RootInterpreter  # that of the compiled frame
        self.frames: weakref.WeakSet[Interpreter] = weakref.WeakSet()  # all of them
        self.tracebacks: dict[int, TracebackValue] = {}  # by the identity of their frames
        # id of the class, name, whether only the type of what is found
        self.guarded_class_attrs: set[tuple[int, str, bool]] = set()
        # (id of a dict of globals, name) -> the dict, and the source of the global; of globals that
        # are known to be absent, the dict.
        self.global_sources: dict[tuple[int, str], tuple[dict[str, Any], Source]] = {}
        self.absent_globals: dict[tuple[int, str], dict[str, Any]] = {}
        # The same -> the class, and the result of a guarded lookup of the name in it.
        self.guarded_lookups: dict[tuple[int, str], tuple[type, Any]] = {}
        # (id of a class, name and id of a method for access to attributes) -> is it the class's own
        self.overridden: dict[tuple[int, str, int], bool] = {}
        self._tensor_values: dict[int, TensorValue] = {}  # id(FakeTensor) -> its value

    # -- state ----------------------------------------------------------------------------------
    def release(self) -> None:
        """Let go of everything outside the frame: capture of it has ended."""
        for tx in self.frames:
            tx.release()
        if not self.compiled:
            self.graph.discard()
        forget_real_tensors(self.fake_mode)
        for context in self.contexts:
            vars(context).clear()
        # Values of the program's objects, which may hold each other.
        for value in (*self.side_effects.tracked, *(v for _, v in self.values_by_id.values())):
            vars(value).clear()
        for part in (self.symbols.data, self.symbols.computed):  # in cycles with the symbols
            vars(part).clear()
        if self.symbols.active:
            self.symbols.env.takes_guards = False
        vars(self).clear()

    @property
    def epoch(self) -> int:
        """Grows with everything that cannot be done twice: nodes and side effects (not guards)."""
        return self._nodes + self.side_effects.epoch

    @property
    def node_count(self) -> int:
        """How many nodes were made, those that were removed again included."""
        return self._nodes

    @property
    def op_count(self) -> int:
        return sum(node.op.startswith("call_") for node in self.graph.nodes)

    def observe(self, trial: Trial) -> None:
        """Have the interpreters look up before every step."""
        self.trial, self.next_event = trial, 0

    def go_on_behind_limit(self, step: int) -> None:
        """Allow more steps to a frame with few nodes: a loop over Python numbers costs microseconds
        an iteration, a loop of operations a graph that no backend likes. Else the graph breaks, and
        a continuation does not try the rest of the loop at such length again.
        """
        tired = self.continues or time.thread_time() - self.began >= _SECONDS
        tired = tired and self.stop_at <= step and not self.context.fullgraph
        if step >= config.loop_limit or self._nodes >= _MANY_NODES or tired:
            raise Unsupported(breaks.LoopLimit(self.limit_at))
        self.limit_at = min(config.loop_limit, step + _STEPS)
        if self.trial is None and not self.written.function:
            self.next_event = self.limit_at
            if self.stop_at > step:
                self.next_event = min(self.stop_at, self.next_event)

    @property
    def guesses(self) -> bool:
        """Whether this is a trial, in which data may be anything."""
        return self.trial is not None and self.trial.is_behind(self)

    @property
    def has_overrides(self) -> bool:
        return self.tensors_override or self.objects_override

    # -- guards ---------------------------------------------------------------------------------
    def assume_nothing_handled(self) -> None:
        """Assume that no caller of the frame is handling an exception."""
        if self.handled_outside is not None:
            raise Unsupported(breaks.HandledOutside(repr(self.handled_outside)))
        self.guards.add(GlobalsSource(), "predicate", nothing_handled)

    def guard(self, source: Source | None, kind: str, payload: Any = None) -> None:
        """Assume `kind` about the value at `source`; no-op for values that the frame made (source
        None).
        """
        if source is None or (kind in _OF_INSTALLED and isinstance(source, InstalledSource)):
            return
        if kind in _IDENTITY_KINDS and is_trusted(source):
            self.lookups.add_source(source)
            return
        self.guards.add(source, kind, payload)

    # -- nodes ----------------------------------------------------------------------------------
    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple,
        kwargs: dict[str, Any],
        example: Any,
        tx: Interpreter | None = None,
    ) -> Node:
        """Append a node. `args` and `kwargs` hold Nodes and constants; `example` is the fake
        result.
        """
        if tx is not None and can_fail(target, args):
            self.checks.node_may_fail(target, tx)
        if tx is not None and has_unusual_types(target, args, kwargs):
            self.checks.node_may_be_refused(op, target, args, kwargs, example, tx)
        self._nodes += 1
        self.watched.check()
        graph = self.graph
        if self.bodies:
            graph = self.bodies[-1].graph
            args, kwargs = self.bodies[-1].local(args), self.bodies[-1].local(kwargs)
        elif self.root._modules:
            check_local((args, kwargs), graph)
        node = graph.create_node(op, target, args, kwargs)
        node.meta["val"] = node.meta["example_value"] = example
        if self.symbols.data.has_data():
            # Before a method like `t_` changes the tensor's own.
            node.meta["numbers"] = numbers_of(example)
        if tx is not None:
            self.watched.note_views(example)
            _note_place(node, tx)
            if isinstance(example, tuple | list):
                node.meta["began"] = tx.breakable_chain()[-1].began
        self.checks.node_added(node, tx)
        self.conditionals.node_added(node)
        self.known_tensors.node_added(node)
        if self.context.hooks is not None:
            self.context.hooks.node_created(node)
        return node

    def add_input(
        self, tensor: torch.Tensor, source: Source, static: bool, fake: torch.Tensor | None = None
    ) -> Node:
        """A placeholder for an outside tensor, named after its source. `fake`: made already."""
        with torch.inference_mode(False) if self.inference else contextlib.nullcontext():
            if fake is None and not static:
                fake = self.symbols.fake_input(tensor, source)
            if fake is None:
                fake = self.fake_mode.from_tensor(tensor, static_shapes=True)
        name = _placeholder_name(source)
        with self._at_placeholders():
            node = self._placeholder(name)
        self._last_placeholder = node
        self._nodes += 1
        version = version_of(fake)
        node.meta.update(val=fake, example_value=fake, source=source.name, version=version)
        if static:
            node.meta["static"] = True
        self.inputs.append(GraphInput(node, source, tensor, static, history_of(fake)))
        return node

    def add_symbol(self, info: SymbolInfo) -> Node:
        """A placeholder for the number of a symbol, in front of the tensors."""
        first = next(iter(self.graph.nodes), None)
        after = [item.node for item in self.inputs if not isinstance(item.example, torch.Tensor)]
        with self.graph.inserting_after(after[-1]) if after else self.graph.inserting_before(first):
            node = self._placeholder(info.symbol.name)
        value = value_of(self.symbols.env, info.symbol)
        node.meta.update(val=value, example_value=value, source=readable_name(info.source))
        if self._last_placeholder is (after[-1] if after else None):
            self._last_placeholder = node  # no tensor stands behind the symbols yet
        self.inputs.insert(len(after), GraphInput(node, info.source, value, False))
        return node

    def _placeholder(self, name: str) -> Node:
        while name in self._input_names:
            name += "_"
        self._input_names.add(name)
        return self.graph.placeholder(name)

    def unmark_static(self, source: Source) -> None:
        """Make a static buffer dynamic, as captured code replaces it: from call to call it is
        another tensor.
        """
        for item in self.inputs:
            if item.source == source:
                item.node.meta.pop("parameter", None)
            if item.static and item.source == source:
                item.static = False
                item.node.meta.pop("static", None)
                self.guards.weaken(source, "static_tensor", "tensor")

    def _at_placeholders(self):
        if self._last_placeholder is not None:
            return self.graph.inserting_after(self._last_placeholder)
        first = next(iter(self.graph.nodes), None)
        if first is None:
            return self.graph.inserting_before(None)
        return self.graph.inserting_before(first)

    def tensor_value(
        self, node: Node, fake: torch.Tensor, make: Callable[[Node, torch.Tensor], TensorValue]
    ) -> TensorValue:
        """The Value of a fake tensor: the same one for the same tensor object (in-place ops return
        their input).
        """
        known = self._tensor_values.get(id(fake))
        if known is None:
            known = self._tensor_values[id(fake)] = make(node, fake)
        return known

    def adopt(self, fake: torch.Tensor, value: TensorValue) -> None:
        """`value` is the Value of this fake tensor from now on, and of no other."""
        self._tensor_values.pop(id(value.fake), None)
        value.fake = fake
        self._tensor_values[id(fake)] = value

    def fake_value(self, fake: torch.Tensor) -> TensorValue | None:
        """The Value that a fake tensor already has."""
        return self._tensor_values.get(id(fake))

    def tensor_values(self) -> Collection[TensorValue]:
        """The Values of all fake tensors so far."""
        return self._tensor_values.values()

    # -- installed objects ----------------------------------------------------------------------
    def install(self, prefix: str, obj: Any) -> InstalledSource:
        """Give `obj` a unique name among the installed objects of the frame's globals, into which
        `publish` writes them when compilation succeeds.
        """
        for name, known in self.installed.items():
            if known is obj:
                return InstalledSource(name)
        name = f"__framegraph_{_identifier(prefix)}_{next(_installed_counter)}"
        self.installed[name] = obj
        return InstalledSource(name)

    def publish(self) -> Installed:
        """Write the installed objects into the frame's globals, and guard that these hold them: the
        same code may be run with other globals, too.
        """
        published = self.frame_globals.get(INSTALLED)
        if type(published) is not Installed or published.owner != id(self.frame_globals):
            published = self.frame_globals[INSTALLED] = Installed(id(self.frame_globals))
        published.update(self.installed)
        self.guards.add(GlobalSource(INSTALLED), "id", published)
        return published

    def continuation(self, code: types.CodeType, namespace: dict[str, Any]) -> InstalledSource:
        """The function over a continuation's code, installed once."""
        for name, known in self.installed.items():
            if isinstance(known, types.FunctionType) and known.__code__ is code:
                return InstalledSource(name)
        return self.install(f"resume_{code.co_name}", types.FunctionType(code, namespace))

    # -- identity -------------------------------------------------------------------------------
    def known_value(self, obj: Any, source: Source | None) -> Value | None:
        """The Value that `obj` or `source` already has. A second way to the same object is guarded
        as an alias.
        """
        self.guards.note(source)
        if source is not None and (value := self.values_by_source.get(source)) is not None:
            return value
        entry = self.values_by_id.get(id(obj))
        if entry is None:
            return None
        value = entry[1]
        by_identity = _is_guarded_by_identity(value)
        if source is not None and value.source is None and by_identity:
            self.guard(source, "id", obj)
            self.values_by_source[source] = value
        if source is not None and value.source is not None and value.source != source:
            if by_identity and not _is_local_function(obj):
                self.guard(source, "id", obj)
            else:
                self.guard(source, "aliased", value.source)
            self.values_by_source[source] = value
            if value.source.weak and not source.weak:
                value.source = source  # by which it is loaded
        return value

    def remember(self, obj: Any, source: Source | None, value: Value) -> Value:
        """Let `value` stand for `obj` from now on, whatever the source."""
        if source is not None:
            self.values_by_source[source] = value
        self.values_by_id[id(obj)] = (obj, value)
        value.outside = obj
        return value

    def guard_parts(self) -> list[Source]:
        """The sources of tensors inside of the inputs' wrappers that no input and no other wrapper
        holds; the others are guarded by their own sources.
        """
        known = {id(item.example): item.source for item in self.inputs}
        alone: list[Source] = []
        for source, part in self.parts:
            first = known.setdefault(id(part), source)
            if first is source:
                alone.append(source)
            elif first != source:
                self.guards.add(source, "aliased", first)
        return alone

    def not_aliased_sources(self) -> Sequence[Source]:
        """Sources of the inputs that must stay different tensors (static ones are guarded by
        identity).
        """
        return [
            item.source
            for item in self.inputs
            if not item.static and isinstance(item.example, torch.Tensor)
        ]

    def guard_distinct(self, value: Value) -> None:
        """The frame is about to tell this object from others, by identity."""
        if value.source is not None and not value.is_constant():
            self._distinct_groups[id(value)] = value

    def distinct_groups(self) -> list[tuple[Source, ...]]:
        """Groups of sources of one type that must stay different objects. Tensors are inputs."""
        groups: dict[type, list[Source]] = {}
        for value in self._distinct_groups.values():
            known = _is_guarded_by_identity(value) or isinstance(value, TensorValue)
            if value.source is not None and not known:
                groups.setdefault(value.python_type(), []).append(value.source)
        return [tuple(sources) for sources in groups.values() if len(sources) > 1]

    def static_ids(self) -> tuple[int, ...]:
        """ids of the parameters and buffers, which the other inputs must not be."""
        return tuple(sorted(id(item.example) for item in self.inputs if item.static))


_GUARDED_BY_IDENTITY = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_IDENTITY_KINDS = frozenset(["id", "function_code"])


def _note_place(node: Node, tx: Interpreter) -> None:
    """The user's lines and modules, in the terms of torch.fx; a layer of torch.nn is the source of
    what it computes.
    """
    node.meta["stack_trace"] = tx.stack_trace()
    modules = tx.module_stack()
    origin: Any = node.target
    if modules:
        node.meta["nn_module_stack"] = modules
        innermost = next(reversed(modules.values()))[1]
        if innermost.__module__.startswith(("torch.nn.modules.", "torch.ao.")):
            origin = innermost
    node.meta["source_fn_stack"] = [(node.name, origin)]


def _is_guarded_by_identity(value: Value) -> bool:
    """Not a bound method of C, whose guards another method of the same object passes."""
    known = issubclass(type(value.outside), _GUARDED_BY_IDENTITY)
    return known and not hasattr(value, "receiver")


def _is_local_function(obj: Any) -> bool:
    """A function that another one makes with each call: its code is guarded, not the object."""
    return type(obj) is types.FunctionType and "<locals>" in obj.__qualname__


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_") or "value"


def _placeholder_name(source: Source) -> str:
    """L['self'].layers[0].weight -> self_layers_0_weight."""
    text = re.sub(r"\b[LGC]\[|_modules\[|_parameters\[|_buffers\[|__dict__", " ", source.name)
    name = _identifier(text)
    if name == "self":  # the graph's function has one of its own
        return "self_tensor"
    return name if not name[0].isdigit() else f"input_{name}"


__all__ = ["GraphInput", "OutputGraph"]


def nothing_handled(_: Any = None) -> bool:
    """Whether no exception is being handled here."""
    return sys.exception() is None
