"""Checks: exceptions that depend on the values of tensors.

    assert (x > 0).all()               out, ok = compiled_graph(x)
    log.append(x)               ->     if not ok:
    return x.log()                         return <the function as it was>(x)
                                       log.append(x)
                                       return out

Capture goes on as if the check held. The rewritten frame looks at the real value behind the graph
and before any effect; where it is not as it should be, or an operation of the graph fails, nothing
has happened yet, and the frame runs from its start once more, eagerly: it raises eager's exception,
with what came before it done and nothing behind it.

An operation that fails on the values of tensors (an index out of range) is handled in the same way,
so that `except`, `finally` and the ends of `with` around it, and what came before it, are as in
eager.

That needs a graph that leaves no trace: random numbers are given back, and tensors from outside
that it writes to before are copied before it runs, if they are small, and written back where the
frame runs again. So it does where an operation fails and larger ones are unwritten, as backends
leave them that write last. Any other graph breaks at the last check, as every other branch on a
tensor does, or at the operation that may fail, if anybody would notice.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from dynamo import breaks, directives
from dynamo.break_regions import break_is_error
from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.raising import good_side, may_be_caught, raises
from dynamo.errors import Unsupported
from dynamo.guards.sources import GlobalsSource
from dynamo.plans import BreakBefore, Retry
from dynamo.torch.torch_state import settings
from dynamo.values.base import Value
from dynamo.values.functions.function import FunctionValue, MethodValue
from dynamo.values.iterators.generator import GeneratorValue
from dynamo.values.tensors.captured_scalars import rely_on_truth
from dynamo.values.tensors.memory_overlap import is_fragile, is_leaf, version_of
from fxgraph import Graph, GraphModule, Node, effects
from fxgraph.aot.history import memory_of
from fxgraph.args import leaves
from fxgraph.dual_levels import LEVEL_SWITCHES
from fxgraph.fallible_operations import can_fail
from fxgraph.higher_order import transform
from fxgraph.inference_blocks import INFERENCE_SWITCHES
from fxgraph.passes.memory import written_inputs
from fxgraph.seeds import manual_seed
from fxgraph.symbolic_values import depends_on_data
from fxgraph.type_trials import REFUSED, tell_other_types, types_of_results

if TYPE_CHECKING:
    from types import CodeType

    from dynamo.bytecode import Instruction
    from dynamo.guards.history import SeenFrame
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import GraphInput, OutputGraph

# Nodes that only change torch's state, which the rewritten frame sets again.
STATE_FUNCTIONS = frozenset(
    [
        "_set_grad_enabled",
        "_set_default_dtype",
        "set_autocast_enabled",
        "set_autocast_dtype",
        "set_autocast_cache_enabled",
        "clear_autocast_cache",
        *(switch.__name__ for switch in INFERENCE_SWITCHES | LEVEL_SWITCHES),
        *(setter.__name__ for setter, _ in settings()),
    ]
)
# Exceptions of operations that fail on the values of tensors.
_FAILURES = (RuntimeError, IndexError, torch.linalg.LinAlgError)
_NUMPY_FAILURES = (IndexError, np.linalg.LinAlgError)
_ALL_FAILURES = (*_FAILURES, *_NUMPY_FAILURES)
_ASSERTIONS = frozenset(["_assert", "_assert_async", "_check"])
_NORMALISATIONS = ("batch_norm", "instance_norm")
# How large the tensors from outside may be that are copied before each run: a step that writes to
# parameters takes long beside their copies.
_COPIED_BYTES, _COPIED_BYTES_OF_STEPS = 1 << 20, 64 << 20
# And how many of them where no handler catches the graph's exceptions; and of larger ones, which
# are not copied.
_FEW_TENSORS, _MOST_WATCHED = 8, 128


@dataclass(frozen=True)
class Check:
    """`value`, a tensor, is to have the truth `passes`; else the frame runs eagerly.

    broken: the graph break here instead. version: of the tensor, when it was looked at. guessed:
    nothing but likelihood says so.
    """

    value: Any
    passes: bool
    broken: BreakBefore
    version: int
    guessed: bool = False


class Checks:
    """The checks of one graph, in the program's order."""

    def __init__(self, output: OutputGraph) -> None:
        self.output = output
        self.made: list[Check] = []
        self.promised = False  # the graph raises where the program's torch._check does
        # The graph break where an operation may fail after which the frame must run again.
        self.noticed: BreakBefore | None = None
        self.guesses = False  # the graph relies on what is likely, or usual of data
        self.drawn = False  # Python's or numpy's random numbers were drawn
        self._fails = False  # some node may fail
        self._refused = False  # kernels refuse the next node
        self.fails_surely = False  # some node is refused whatever the values are
        self._exposed: list[GraphInput] = []  # written before, or by, the last node that may fail
        self._new_writes = False  # behind that node
        self._writes = False  # some node writes to a tensor
        self._statistics: set[Node] = set()  # that normalisations write to
        self._memories: set[int] = set()  # that nodes write to: x.data has a version of its own
        self._looked_at: Node | None = None  # up to here, nodes are known to leave no trace

    def can_be_made(self) -> bool:
        """Whether the frame could run again after the graph as built so far."""
        return self._leaves_no_trace() and _can_write_back(self.written())

    def _leaves_no_trace(self) -> bool:
        """The same, were the graph's writes undone."""
        output = self.output
        if output.bodies or output.tensors_override or output.context.export or self.drawn:
            return False
        nodes = list(output.graph.nodes)
        for node in reversed(nodes):
            if node is self._looked_at:
                break
            if node.op.startswith("call_") and leaves_trace(node):
                return False
        self._looked_at = nodes[-1] if nodes else None
        return True

    def make(self, value: Any, broken: BreakBefore, passes: bool, guessed: bool = False) -> None:
        """Go on as if `value` had this truth, which `can_be_made` allows."""
        self.made.append(Check(value, passes, broken, version_of(value.fake), guessed))
        self.output.side_effects.tensor_written()
        if guessed:
            self._trust()

    def _trust(self) -> None:
        """Guard that few guesses about the frame were wrong."""
        if not self.guesses:
            self.guesses = True
            trust = _Trust(self.output.symbols.seen)
            self.output.guards.add(GlobalsSource(), "predicate", trust)

    def may_guess(self) -> bool:
        """Whether a truth that is likely may be taken for granted: too many guesses about the frame
        were wrong otherwise.
        """
        return self.can_be_made() and _Trust(self.output.symbols.seen)(None)

    def promise(self) -> None:
        """Promise that a failing check of the graph is raised by the frame itself, as by the
        program.
        """
        if self.can_be_made() and not self.written():
            self.promised = True
            self.output.side_effects.touch()

    @property
    def any(self) -> bool:
        """Whether the frame has to run again where the graph fails."""
        return bool(self.made) or self.promised or self.noticed is not None

    def may_run_again(self) -> bool:
        """Whether the frame runs again where its finished graph fails, so that eager's exception
        and effects are those of the program, too.
        """
        if self.any:
            return True
        few = len(self._exposed) <= _MOST_WATCHED
        return self._fails and few and self._leaves_no_trace()

    def copied(self) -> list[GraphInput]:
        """The inputs of which copies are made before the graph runs: all that it writes before the
        checks behind the graph, or before its last operation that may fail. (Backends write in the
        program's order, or behind all operations that may fail.)
        """
        if self.made or self.promised:
            return self.written()
        return self._exposed if self.any or _is_small(self._exposed) else []

    def watched(self) -> list[GraphInput]:
        """The inputs that are too large to copy: where an operation has failed, the frame runs
        again if none was written before, as by backends that write last.
        """
        return [] if self.any or _is_small(self._exposed) else self._exposed

    def node_may_fail(self, target: Any, tx: Interpreter) -> None:
        """Break before an operation that may fail, if the program could observe that the frame does
        not run again: it catches the exception, or has had effects before.
        """
        output = self.output
        if output.bodies or output.context.export:
            return
        name = getattr(target, "__name__", target)
        if output.side_effects.shown:
            reason: breaks.Break = breaks.ShownBefore(name)
        elif _is_caught(tx, _NUMPY_FAILURES if name == "translate" else _FAILURES):
            reason = breaks.CaughtFailure(name)
        elif self._loses_effects(tx):
            raise Unsupported(breaks.LostEffects(name))
        else:
            return
        if not self.runs_again_from(tx, reason):
            raise Unsupported(reason)

    def _loses_effects(self, tx: Interpreter) -> bool:
        """Whether effects of the frame so far would be missing if the next operation failed."""
        if self.any or not self._has_effects(tx):
            return False
        if self.drawn:
            return True
        written = self.written() if self._writes else []
        return not (_is_small(written) or self._written_last(written))

    def _has_effects(self, tx: Interpreter) -> bool:
        """Whether the frame has effects so far for which the graph may break, other than those of
        libraries that set their state back.
        """
        output = self.output
        if output.symbols.data.unbroken or break_is_error():
            return False
        restoring = all(_is_of(frame.f_globals, _RESTORING) for frame in _frames(tx))
        return not restoring and output.side_effects.changes_anything()

    def _written_last(self, written: list[GraphInput]) -> bool:
        """Whether the backend writes these inputs behind all that may fail. (A graph that gives
        them a history of autograd may run operation by operation.)
        """
        leaves = all(is_leaf(item.node.meta["example_value"]) for item in written)
        return leaves and writes_last(self.output.context.backend_now)

    def side_may_fail(self, tx: Interpreter) -> None:
        """Note that the next node is a branch with a side that may fail, after which the frame runs
        again; break if it cannot.
        """
        if self.output.bodies or self.output.context.export:  # of the branch around it; no frame
            return
        if not self.can_be_made():
            raise Unsupported(breaks.DataDependentJump("a side may raise"))
        self.node_may_fail("a branch", tx)
        self._refused = True

    def runs_again_from(self, tx: Interpreter, reason: breaks.Break) -> bool:
        """Have the frame run again where the graph fails at a check of the current instruction;
        False: it cannot. reason: of the graph break here instead, if a later node leaves a trace.
        """
        if not self.can_be_made():
            return False
        if self.noticed is None:
            self.noticed = self.breaking_at(tx, reason)
        return True

    def supposes(self, tx: Interpreter, reason: breaks.Break) -> bool:
        """The same, where numbers of data are not as they usually are; False also where too many
        such suppositions about the frame were wrong, unless a break is an error.
        """
        if self.output.symbols.data.unbroken or break_is_error():
            return self.output.context.export or self.runs_again_from(tx, reason)
        if not _Trust(self.output.symbols.seen)(None) or not self.runs_again_from(tx, reason):
            return False
        self._trust()
        return True

    def node_may_be_refused(
        self,
        op: str,
        target: Any,
        args: tuple,
        kwargs: dict[str, Any],
        example: Any,
        tx: Interpreter,
    ) -> None:
        """Break before an operation that kernels refuse where the program catches the exception, or
        has shown something to the user before (elsewhere the graph is going to fail, and the frame
        runs again); and before one whose results have other types than fake tensors tell.
        """
        name = getattr(target, "__name__", target)
        types = types_of_results(op, target, args, kwargs)
        if tell_other_types(types, example):
            raise Unsupported(
                breaks.OpError(name, "fake tensors do not tell the type of its result")
            )
        if types is not REFUSED:
            return
        again = self.can_be_made() or not self._changes_anything()
        if self.output.side_effects.shown or not again or _is_caught(tx, _FAILURES):
            raise Unsupported(breaks.OpError(name, "no kernel takes such types or numbers"))
        self._refused = True
        self.fails_surely = self.fails_surely or not self.output.bodies

    def _changes_anything(self) -> bool:
        """Whether an exception here leaves effects of the frame that the program may notice."""
        return self.output.side_effects.changes_anything() or self.drawn or bool(self.written())

    @staticmethod
    def may_be_wanted(tx: Interpreter) -> bool:
        """Whether a frame on the stack raises anything, so that a value may be for a check."""
        return any(raises(frame.code) for frame in _frames(tx))

    @staticmethod
    def breaking_at(tx: Interpreter, reason: breaks.Break) -> BreakBefore:
        """The break of the graph at the current instruction, for a later plan."""
        step = tx.breakable_chain()[-1].began
        return BreakBefore(step, reason, tx.user_stack(), forbidden=break_is_error())

    def _break_at(self, broken: BreakBefore) -> NoReturn:
        raise Retry(self.output.plan.breaking(broken))

    def _in_front_of_write(self, broken: BreakBefore, tx: Interpreter | None) -> BreakBefore:
        """The break before what writes too much to be undone: the outermost call behind the last
        check, which is then captured as a whole; the break at that check, if breaks are errors.
        """
        data = self.output.symbols.data
        if tx is None or self.output.bodies or data.unbroken or broken.forbidden:
            return broken
        steps = [frame.began for frame in tx.breakable_chain()]
        step = next((step for step in steps if step > broken.step), broken.step)
        reason = breaks.LostEffects("what was checked before")
        return BreakBefore(step, reason, tx.user_stack()) if step > broken.step else broken

    def node_added(self, node: Node, tx: Interpreter | None) -> None:
        """Break at a check, or behind it, where the frame could not run again after this node."""
        does = effects.of(node)
        if does.writes:
            if tx is not None and self._autograd_refuses(node):
                why = "autograd refuses writes to one of several views, or one made without it"
                raise Unsupported(breaks.OpError(_name(node), why))
            self._writes = True
            if tx is not None:
                self.output.watched.note_write(lambda reason: self.breaking_at(tx, reason))
            if _name(node) in _NORMALISATIONS:
                self._statistics.update(_statistics(node))
            self._memories.update(written_memories(node))
        fails = can_fail(node.target, node.args) or self._refused or _takes_data(node)
        if self._refused:
            node.meta["refused"] = True
        self._refused = False
        self._new_writes |= does.writes or does.other
        if fails:
            self._fails = True
            if self._new_writes:
                self._exposed, self._new_writes = self.written(), False
        if self.promised and (leaves_trace(node) or self.written()):
            self.promised = False  # the graph's own error has to do
        broken = self.made[-1].broken if self.made else self.noticed
        if broken is None:
            return
        if leaves_trace(node):
            self._break_at(broken)
        if not (does.writes or does.other or fails):
            return
        written = self.written()
        changed = self._memories_written() if self.made and written else self._memories
        for check in self.made:
            fake = check.value.fake
            if version_of(fake) != check.version or memory_of(fake) in changed:
                self._break_at(check.broken)
        if not _can_write_back(written if self.made or self.promised else self.copied()):
            self._break_at(self._in_front_of_write(broken, tx))

    def _autograd_refuses(self, write: Node) -> bool:
        """Whether it would have to record the write, to such an input."""
        made = write.meta["example_value"]
        if not (torch.is_grad_enabled() and isinstance(made, torch.Tensor) and made.requires_grad):
            return False
        examples = [item.example for item in self.output.inputs if item.node in write.args[:1]]
        return any(isinstance(one, torch.Tensor) and is_fragile(one) for one in examples)

    def has_written(self, fake: torch.Tensor) -> bool:
        """Whether the graph writes the memory of a tensor."""
        return memory_of(fake) in self._memories

    def _memories_written(self) -> set[int]:
        """The memory that the graph, which writes to inputs, may write: through `.data`, or through
        another input with the same memory.
        """
        examples = [item.node.meta["example_value"] for item in self.output.inputs]
        tensors = [example for example in examples if isinstance(example, torch.Tensor)]
        return self._memories.union(map(memory_of, tensors))

    def numbers_drawn(self, tx: Interpreter) -> None:
        """Note that the frame draws numbers that cannot be put back: break at an earlier check, if
        any, or here, if effects before an operation that may fail would be lost.
        """
        broken = self.made[-1].broken if self.made else self.noticed
        if broken is not None:
            self._break_at(broken)
        if self._fails and not self.drawn and self._has_effects(tx):
            raise Unsupported(breaks.LostEffects("an operation before"))
        self.promised, self.drawn = False, True

    def written(self) -> list[GraphInput]:
        """The inputs, tensors that others may see, that the graph writes to. Writes show in the
        versions of their fake tensors, but for those of batch_norm and through `.data`.
        """
        return [
            item
            for item in self.output.inputs
            if isinstance(item.example, torch.Tensor) and not item.source.made_by_frame
            if version_of(item.node.meta["example_value"]) != item.node.meta["version"]
            or item.node in self._statistics
            or (self._memories and memory_of(item.node.meta["example_value"]) in self._memories)
            or (self._writes and item.node.meta["example_value"].is_inference())  # has no version
        ]

    @property
    def draws(self) -> bool:
        """Whether the frame draws random numbers before the checks."""
        nodes = [node for node in self.output.graph.nodes if node.op.startswith("call_")]
        does = [effects.of(node) for node in nodes if _name(node) not in STATE_FUNCTIONS]
        return bool(self.output.hoisted_calls) or any(
            effect.random or effect.other for effect in does
        )

    @property
    def changes_state(self) -> bool:
        return _changes_state(self.output.graph)

    @property
    def devices(self) -> tuple[int, ...]:
        """The accelerators whose random numbers the graph may draw."""
        fakes = [node.meta.get("example_value") for node in self.output.graph.nodes]
        found = [fake.device for fake in fakes if isinstance(fake, torch.Tensor)]
        return tuple({device.index or 0 for device in found if device.type == "cuda"})


_MOST_WRONG = 3  # guesses, each of which is a call of the graph for nothing


class _Trust:
    """Whether a frame may be captured as if what is likely were so."""

    def __init__(self, seen: SeenFrame) -> None:
        self.seen = seen
        self.__name__ = "what was likely was so"

    def __call__(self, _: Any) -> bool:
        return self.seen.wrong_guesses < _MOST_WRONG


def note_wrong_guess(seen: SeenFrame) -> None:
    seen.wrong_guesses += 1


def _can_write_back(written: list[GraphInput]) -> bool:
    """Whether all tensors that the graph wrote can be restored when the graph has failed."""
    for item in written:
        fake = item.node.meta["example_value"]
        plain = type(item.example) in (torch.Tensor, torch.nn.Parameter)
        if not plain or item.example.layout != torch.strided or item.example.is_inference():
            return False
        if not is_leaf(fake) or fake.dim() != item.example.dim():  # its history changed, too
            return False
    is_step = any(item.example.requires_grad for item in written)
    return _size(written) <= (_COPIED_BYTES_OF_STEPS if is_step else _COPIED_BYTES)


def _is_small(written: list[GraphInput]) -> bool:
    """Whether tensors are copied even if no handler catches the graph's exceptions."""
    few = len(written) <= _FEW_TENSORS and _size(written) <= _COPIED_BYTES
    return few and _can_write_back(written)


def writes_last(backend: Any) -> bool:
    """Whether the graphs of a backend that fail have written nothing: if it says so."""
    return bool(getattr(getattr(backend, "func", backend), "writes_last", False))


def _size(written: list[GraphInput]) -> int:
    return sum(item.example.nbytes for item in written)


def leaves_trace(node: Node) -> bool:
    """Whether a node does something that running the frame again would do twice, other than writes
    to inputs.
    """
    does = effects.of(node)
    if does.writes and _name(node) in _NORMALISATIONS:
        kept = [arg for arg in _statistics(node) if arg.target is not torch.zeros_like]
        return any(arg.op != "placeholder" for arg in kept)
    if any(isinstance(leaf, torch.Generator) for leaf in leaves((node.args, node.kwargs))):
        return True
    if node.target is manual_seed:  # the states that a frame saves are those of its own devices
        return torch.accelerator.is_available()
    if not does.other or _name(node) in STATE_FUNCTIONS or _name(node) in _ASSERTIONS:
        return False
    if node.target is transform:  # such as a checkpoint: what its body does
        inner = node.args[1].meta["example_value"].graph.nodes
        calls = [item for item in inner if item.op.startswith("call_")]
        return any(effects.of(item).writes or leaves_trace(item) for item in calls)
    return not (id(node.target) in directives.ALLOWED or effects.runs_functions(node.target))


def _statistics(node: Node) -> list[Node]:
    """The buffers that a normalisation writes: its running mean and variance."""
    named = node.kwargs.get("running_mean"), node.kwargs.get("running_var")
    return [leaf for leaf in leaves((node.args[1:3], named)) if isinstance(leaf, Node)]


def _takes_data(node: Node) -> bool:
    """Whether a node checks, or is sized or places by, a number that only the call knows."""
    values = [leaf.meta.get("example_value") for leaf in leaves(node.args) if type(leaf) is Node]
    computes = isinstance(node.meta.get("example_value"), torch.Tensor)
    return _name(node) in _ASSERTIONS or (computes and any(map(depends_on_data, values)))


def written_memories(node: Node) -> Iterator[int]:
    """The memory that a node writes: for in-place functions of torch the first argument, and `out`;
    for operators the arguments named by the schema.
    """
    written: Any = node.args[:1], node.kwargs.get("out")
    if getattr(node.target, "_schema", None) is not None:
        written = written_inputs(node)
    for leaf in leaves(written):
        example = leaf.meta.get("example_value") if isinstance(leaf, Node) else None
        if isinstance(example, torch.Tensor) and torch._C._has_storage(example):
            yield memory_of(example)


def _name(node: Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", "").split(".")[0]


def _is_caught(tx: Interpreter, failures: tuple[type, ...]) -> bool:
    """Whether a frame on the stack handles an exception of the current instruction."""
    for frame in _frames(tx):
        names = collections.ChainMap(frame.f_globals, vars(builtins))
        exit_is_observable = partial(_exit_is_observable, frame)
        if may_be_caught(frame.code, frame.current, names.get, failures, exit_is_observable):
            return True
    return False


def _frames(tx: Interpreter) -> Iterator[Interpreter]:
    """The frames on the stack, from the innermost on."""
    frame: Interpreter | None = tx
    while frame is not None:
        yield frame
        frame = frame.parent


def _exit_is_observable(frame: Interpreter, depth: int | None) -> bool:
    """Whether a `finally` (depth None) or the manager whose `__exit__` is at this depth of the
    stack may do anything that a program notices. Those of torch set its modes back.
    """
    if depth is None:
        return not _is_of(frame.f_globals, _RESTORING)
    leave = frame.peek(len(frame.stack) - depth)
    if not isinstance(leave, MethodValue) or not isinstance(leave.function, FunctionValue):
        return False
    if leave.function.code is contextlib._GeneratorContextManager.__exit__.__code__:
        generator = leave.receiver.getattr(frame, "gen")
        torchs = isinstance(generator, GeneratorValue)
        return not (torchs and _is_of(generator.frame.f_globals, _MODES))  # type: ignore[attr-defined]
    return leave.function.code is not _DOES_NOTHING and not _is_of(leave.function.globals, _MODES)


_DOES_NOTHING = contextlib.nullcontext.__exit__.__code__


_MODES = ("torch", "dynamo")
# Libraries whose `finally` sets back what their function has changed before, which is the state
# where an exception leaves a graph: effects wait for its end. Of transformers, that is a model's
# configuration and what collects outputs, around all of its layers. The code of a block does not
# say so: the collector is reset by a method that stores constants, which are its state outside of
# models by convention only.
_RESTORING = (*_MODES, "transformers")


def _is_of(namespace: dict[str, Any], libraries: tuple[str, ...]) -> bool:
    """Whether these globals are those of a module of one of the libraries."""
    return str(namespace.get("__name__")).partition(".")[0] in libraries


def assume_truth(tx: Interpreter, jump: Instruction, value: Value) -> bool | None:
    """The truth of `value` that leads a conditional jump past an exception, with a check in the
    graph that the value has this truth. None: there is no such side, or no check can be made.
    """
    jumps = good_side(tx.code, jump)
    if jumps is None:
        return None
    passes = jumps is (jump.op == "POP_JUMP_IF_TRUE")
    if value.is_symbolic():
        return passes if rely_on_truth(tx, value, passes) else None
    checks = tx.output.checks
    if not checks.can_be_made():
        return None
    later = value.deferred_truth(tx)
    if later is None:
        return None
    checks.make(*later, passes)
    return passes


# -- called by rewritten frames ------------------------------------------------------------------
def is_ordinary(error: BaseException) -> bool:
    """Whether an operation raised the exception. Where hooks of the program pack saved tensors, a
    hook may have raised it (to end a checkpoint's recomputation), after other effects of its own.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return isinstance(error, Exception) and hooks is None


def failed_before_writes(error: BaseException) -> bool:
    """The same of a graph that writes behind its operations that may fail: memory may run out
    later, too.
    """
    of_memory = isinstance(error, torch.OutOfMemoryError) or "allocate" in str(error)
    return is_ordinary(error) and isinstance(error, _ALL_FAILURES) and not of_memory


_warned: CodeMap[bool] = CodeMap()


def warn_of_failure(
    code: CodeType, caught: bool, guessing: SeenFrame | None, error: BaseException | None
) -> None:
    """Warn once that the graph of `code` failed (None: it did not), and the original function
    succeeded. caught: possibly because the function catches the error. guessing: the history of a
    frame whose graph relies on what is usual of data, which was wrong.
    """
    if error is not None and guessing is not None:
        note_wrong_guess(guessing)
    if error is None or _warned.get(code) or (caught and isinstance(error, _ALL_FAILURES)):
        return
    _warned.set(code, True)
    failed = "".join(traceback.format_exception_only(error)).strip()
    warnings.warn(
        f"the graph of {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) failed where "
        f"eager execution does not, whose result is used: a fault in framegraph or in the backend. "
        f"Please report it.\n{failed}",
        RuntimeWarning,
        stacklevel=2,
    )


def versions_of(*tensors: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """The tensors that a graph may write, and their versions before."""
    return [(tensor, version_of(tensor)) for tensor in tensors]


def are_unwritten(before: list[tuple[torch.Tensor, int]]) -> bool:
    return all(version_of(tensor) == version for tensor, version in before)


def save_written(*tensors: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Copies of the tensors that a graph writes, and the versions."""
    return [(tensor, tensor.detach().clone(), version_of(tensor)) for tensor in tensors]


@torch.no_grad()
def restore_written(saved: list[tuple[torch.Tensor, torch.Tensor, int]]) -> None:
    for tensor, copy, _ in saved:
        tensor.copy_(copy)
    for tensor, _, version in saved:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def save_random(devices: tuple[int, ...]) -> list[torch.Tensor]:
    """The states of torch's random numbers: the CPU's, and each device's."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in devices)]


def _changes_state(graph: Graph) -> bool:
    """Whether the graph, or a body in it, changes torch's state."""
    bodies = [node.meta.get("example_value") for node in graph.find_nodes(op="get_attr")]
    return any(_name(node) in STATE_FUNCTIONS for node in graph.nodes) or any(
        _changes_state(body.graph) for body in bodies if isinstance(body, GraphModule)
    )


def restore_random(devices: tuple[int, ...], states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(devices, states[1:]):
        torch.cuda.set_rng_state(state, device)
