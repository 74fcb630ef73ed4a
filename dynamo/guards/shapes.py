"""The choice of sizes and numbers that become symbols, and the assumptions about them.

A dimension of an input, or an int or float from outside, becomes a symbol

    at once             with compile(dynamic=True) (arguments, and their contents), or
                        mark_dynamic(t, dim, min, max)
    at the second size  that is seen for it, by code object and source name (a code object is
                        compiled for the sizes it meets first), or if it had other dimensions, or
                        was a number of another type
    never               with compile(dynamic=False), mark_static(t, dim), for parameters and
                        buffers, for sizes that are 0 or 1 when the code is compiled, or for a
                        backend that takes no symbols

A symbol stands for the sizes 0 and 1, too, unless what is captured depends on them: asks whether
it is that, or has strides that count a size of 0 as 1. A size of 0 or 1 that has varied is captured
as one of many would be; where this call does not satisfy the assumptions of that, the frame is
captured for 0 or 1 itself, and so are all later ones.

A tensor that is marked otherwise than the compiled code takes it is compiled for (a guard).
Sizes that are equal and become symbols at once share one ("duck shaping"), which is guarded; if
that turns out wrong, the next compilation sees other sizes and gives each its own. Sizes that have
varied have their own symbols: they are equal where the captured code asks that. What it asks about
a symbol becomes a guard (fxgraph/symbols.py); what it never asks stays open.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import ConstraintViolation, Unsupported
from dynamo.guards.computed_numbers import ComputedNumbers, fits_symbol
from dynamo.guards.data_symbols import BodyNumbers, DataSymbols
from dynamo.guards.history import VARIES, SeenFrame, SeenTensor, strides_order
from dynamo.guards.kinds import KnownTensor
from dynamo.guards.marks import MARKED, MAYBE, RAGGED, STATIC, UNBACKED, marked_range, marks
from dynamo.guards.named_sources import is_argument, is_named
from dynamo.guards.shape_payload import ShapePayload
from dynamo.guards.sources import (
    ClosureSource,
    DictItemSource,
    LocalSource,
    ModuleItemSource,
    SequenceItemSource,
    Source,
    TensorSizeSource,
    TensorStrideSource,
    readable_name,
)
from fxgraph import Node
from fxgraph.expression_nodes import ExpressionNodes, function_of
from fxgraph.expressions import evaluate
from fxgraph.fake_results import make_fake
from fxgraph.symbolic_values import expr_of, layout_numbers
from fxgraph.symbols import ShapeEnv

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.interp.output import OutputGraph


_MEMBERS = 2  # in each other's place: more than a state dict that is assigned


class FrameSymbols:
    """The symbols of one attempt to capture a frame: decisions, placeholders, guards."""

    def __init__(self, output: OutputGraph, context: CompileContext, seen: SeenFrame) -> None:
        self.output = output
        self.seen = seen
        takes = takes_symbols(context.backend_now)
        self.automatic = (
            takes and context.dynamic is not False and config.automatic_dynamic_shapes
        ) or (takes and context.dynamic is True)
        at_once = context.dynamic is True or not config.assume_static_by_default
        self.at_once = self.automatic and (at_once or seen.general)
        self.allowed = takes and context.dynamic is not False
        self.varying = context.varying
        self.takes_any = context.takes_any
        self.root: Any = None  # the frame's own interpreter
        self._env: ShapeEnv | None = None
        self._nodes: ExpressionNodes | None = None
        self._by_hint: dict[int, torch.SymInt] = {}
        # Sizes of 0 and 1 of this call, for which symbols with larger hints stand.
        self.small: dict[sympy.Symbol, int] = {}
        self._numbers: dict[Source, Any] = {}
        self.inputs: dict[sympy.Symbol, Node] = {}
        # Numbers read from the inputs, as (the expression equal to it, source); guarded at the end.
        self.read: list[tuple[Any, Source]] = []
        self.strict: dict[sympy.Symbol, str] = {}  # marked by the user: may not become constants
        self.reasons: list[str] = []
        self.data = DataSymbols(self, output)
        self.computed = ComputedNumbers(self)
        self._functions: dict[Any, Callable[..., Any]] = {}

    @property
    def active(self) -> bool:
        return self._env is not None

    @property
    def env(self) -> ShapeEnv:
        """The ShapeEnv; made with the first symbol, so that frames without any are as ever."""
        if self._env is None:
            env = self._env = ShapeEnv()
            env.locate, env.rely_on = self._locate, self.data.rely_on
            env.is_read = self.data.are_read
            mode: Any = self.output.fake_mode
            mode.shape_env, mode.cache_enabled = env, False
            self._nodes = ExpressionNodes(env, self._placeholder, self._create)
        return self._env

    @property
    def nodes(self) -> ExpressionNodes | None:
        """The nodes of expressions where the frame is now; None: there are no symbols."""
        found = self._nodes
        for body in self.output.bodies:
            if found is not None and body.takes_data:
                body.numbers = body.numbers or BodyNumbers(found, body)
                found = body.numbers
        return found

    def has_changed_parameter(self, parameter: torch.Tensor, source: Source) -> bool:
        """Whether other parameters come in this place of the frame: from then on any may. Of an
        argument, one that was another in an earlier compilation is enough; of a global, a cell, a
        module or an object's attribute, that they keep coming. What a list in a module holds is
        known by its module.
        """
        if isinstance(source, ModuleItemSource):
            return self.others_come(parameter, source)
        step: Source = source
        while isinstance(step, SequenceItemSource | DictItemSource) and step.base is not None:
            if isinstance(step, ModuleItemSource):
                return False
            step = step.base
        if not isinstance(step, LocalSource):
            return self.others_come(parameter, source)
        before = self.seen.parameters.setdefault(source.name, KnownTensor(parameter))
        if before is not VARIES and not before.is_(parameter):
            self.seen.parameters[source.name] = VARIES
        return self.seen.parameters[source.name] is VARIES

    def has_changed_object(self, obj: Any, source: Source) -> bool:
        """Whether the source led to another object in an earlier compile, such as a global or class
        to another function of this code. Unknown of those without weak references.
        """
        if not type(obj).__weakrefoffset__:
            return False
        before = self.seen.objects.setdefault(source.name, weakref.ref(obj))
        if before is not VARIES and before() is not obj:
            self.seen.objects[source.name] = before = VARIES
        return before is VARIES

    def others_come(self, tensor: torch.Tensor, source: Source) -> bool:
        """Whether other modules, or other parameters and buffers, keep coming in this place of the
        frame: from then on any may come.
        """
        if self.takes_any and isinstance(source.root, LocalSource | ClosureSource):
            return True
        members = self.seen.members.setdefault(source.name, [])
        if len(members) <= _MEMBERS and not any(known.is_(tensor) for known in members):
            members.append(KnownTensor(tensor))
        # Beside one that still lives, another came: layers or models in turn.
        return len(members) - self.seen.ended > 1 or self.seen.ended >= _MEMBERS

    def _locate(self) -> tuple[str | None, str]:
        tx = self.output.running or self.root
        if tx is None:
            return None, ""
        frame = tx.user_stack()[-1]
        return f"{frame.filename}:{frame.lineno} in {frame.name}", (frame.line or "").strip()

    # -- tensors ----------------------------------------------------------------------------------
    def fake_input(
        self, tensor: torch.Tensor, source: Source, shares: bool = True
    ) -> FakeTensor | None:
        """The fake tensor with symbolic sizes for an input; None: all its sizes are constants."""
        layout = self.layout(tensor, source, shares) if _can_vary(tensor) else None
        return None if layout is None else self._fake(tensor, *layout)

    def layout(
        self, tensor: torch.Tensor, source: Source, shares: bool = True
    ) -> tuple[list[Any], list[Any]] | None:
        """Sizes and strides of an input, with symbols; None: all of them are constants. `shares`:
        sizes that are equal share symbols, and marks of the user's are promises.
        """
        if not self.allowed or source.made_by_frame:
            return None
        if isinstance(source, ModuleItemSource) and isinstance(tensor, torch.nn.Parameter):
            return None
        name = source.name
        seen = self.seen.tensors.get(name)
        if seen is None:
            seen = self.seen.tensors[name] = SeenTensor.of(tensor)
        elif len(seen.sizes) != tensor.dim():
            seen = self.seen.tensors[name] = seen.of_other_rank(tensor)
        else:
            seen.update(tensor)
        for dim in marks(tensor, MARKED):
            marked_range(tensor, dim, readable_name(TensorSizeSource(source, dim)))
        named = is_named(source, config.dynamic_sources)
        unbacked = is_named(source, config.unbacked_sources)
        varying = {
            dim: why
            for dim in range(tensor.dim())
            if (why := self._why(tensor, dim, seen, named, unbacked))
        }
        if varying and self.is_full() and not marks(tensor, MARKED):
            self._note_symbol_limit(readable_name(source))
            return None
        strides = [dim for dim, stride in enumerate(seen.strides) if stride is None]
        if not varying and not (strides and self.automatic):
            return None
        sizes = [
            self._size(tensor, source, dim, varying[dim], shares) if dim in varying else size
            for dim, size in enumerate(tensor.shape)
        ]
        return sizes, self._strides(tensor, source, sizes, strides)

    def is_full(self) -> bool:
        """Whether the frame has as many symbols as allowed: guards and algebra grow with them."""
        return self._env is not None and len(self._env.symbols) >= config.symbol_limit

    def _note_symbol_limit(self, name: str) -> None:
        self.reasons.append(f"{name} is constant: the frame has config.symbol_limit symbols")

    def _why(
        self, tensor: torch.Tensor, dim: int, seen: SeenTensor, named: bool, unbacked: bool
    ) -> str | None:
        """Why the size is a symbol; None: it is a constant."""
        size = tensor.shape[dim]
        if dim in marks(tensor, STATIC):
            return None
        if dim in marks(tensor, UNBACKED):
            return "marked by mark_unbacked"
        if unbacked:
            return "dynamo.config.unbacked_sources names it"
        if dim in marks(tensor, MARKED):
            return "marked by mark_dynamic" if size > 1 else None
        if size < 2:
            return seen.why[dim] if self._stands_for_many(tensor, dim, seen) else None
        if named:
            return "dynamo.config.dynamic_sources names it"
        if dim in marks(tensor, MAYBE):
            return "marked by maybe_mark_dynamic"
        if self.automatic and dim in marks(tensor, RAGGED):
            return "rows of a jagged tensor"
        if self.automatic and seen.sizes[dim] is None:
            return seen.why[dim]
        if not self.at_once:
            return None
        if self.seen.general:
            return "the most general form is compiled"
        return (
            "dynamic=True" if config.assume_static_by_default else "assume_static_by_default=False"
        )

    def _stands_for_many(self, tensor: torch.Tensor, dim: int, seen: SeenTensor) -> bool:
        """Whether a size of 0 or 1 is captured as one of many. No stride depends on the outermost
        dimension's.
        """
        varies = self.automatic and seen.sizes[dim] is None and not self.seen.asks_small
        return varies and dim == strides_order(tensor)[-1] and type(tensor) is torch.Tensor

    def fits_small(self) -> bool:
        """Whether this call's sizes of 0 and 1, too, satisfy the assumptions made so far."""
        values = {symbol: info.hint for symbol, info in self.env.symbols.items()} | self.small
        with contextlib.suppress(ArithmeticError):  # of sizes that are 0
            return all(evaluate(guard.condition, values) for guard in self.env.guards)
        return False

    def _size(
        self, tensor: torch.Tensor, source: Source, dim: int, why: str, shares: bool
    ) -> torch.SymInt:
        size = tensor.shape[dim]
        where = TensorSizeSource(source, dim)
        name = readable_name(where)
        low, high = marked_range(tensor, dim, name)
        self.reasons.append(f"{name} is a symbol: {why}")
        if dim in marks(tensor, UNBACKED) or is_named(source, config.unbacked_sources):
            made = self.env.new_unbacked(name, max(low or 0, 0), high, where)
            if low is not None or high is not None:
                self.read.append((made, where))
            return made
        seen = self.seen.tensors[source.name]
        hint = size if size > 1 else seen.many[dim]
        alone = not shares or seen.sizes[dim] is None or low is not None or high is not None
        known = None if alone else self._by_hint.get(size)
        symbol = known
        if symbol is None:
            symbol = self.env.new_symbol(hint, name, max(low or 0, 0), high, where)
        if not alone:
            self._by_hint[size] = symbol
        if hint != size:
            self.small[symbol.node.expr] = size
        if shares and dim in marks(tensor, MARKED):
            self.strict.setdefault(symbol.node.expr, name)
        self.read.append((symbol, where))
        return symbol

    def _strides(
        self, tensor: torch.Tensor, source: Source, sizes: list[Any], varying: list[int]
    ) -> list[Any]:
        strides: list[Any] = list(tensor.stride())
        done: list[int] = []
        for dim in strides_order(tensor):
            stride = strides[dim]
            inner = [d for d in done if tensor.stride(d) * tensor.shape[d] == stride]
            where = TensorStrideSource(source, dim)
            if (
                stride > 1
                and inner
                and not isinstance(made := strides[inner[-1]] * sizes[inner[-1]], int)
            ):
                self.env.assume_elements(expr_of(sizes[inner[-1]]))
                strides[dim] = made
                self.read.append((made, where))
            elif stride > 1 and dim in varying:
                strides[dim] = self.env.new_symbol(stride, readable_name(where), 2, None, where)
                self.read.append((strides[dim], where))
            done.append(dim)
        return strides

    def _fake(self, tensor: torch.Tensor, sizes: list[Any], strides: list[Any]) -> FakeTensor:
        offset = int(tensor.storage_offset())
        meta = tensor.dtype, tuple(sizes), tuple(strides), offset, tensor.device
        with torch.inference_mode(tensor.is_inference()):
            fake = make_fake(self.output.fake_mode, *meta)
        if tensor.requires_grad:
            fake.requires_grad_()
            if not tensor.is_leaf:
                with torch.enable_grad():
                    return _Derived.apply(fake, lambda: make_fake(self.output.fake_mode, *meta))
        return fake

    # -- numbers ----------------------------------------------------------------------------------
    def number(self, value: Any, source: Source, at_once: str = "") -> Any:
        """The torch.SymInt or SymFloat for an int or float from outside; None: a constant.

        at_once: why the first one that is seen is a symbol already.
        """
        if not self.allowed or source.made_by_frame:
            return None
        known = self._numbers.get(source)
        if known is not None:
            return known
        key = self.seen.key_of(source)
        before = self.seen.numbers.setdefault(key, value)
        if not fits_symbol(value):
            return None
        kind = type(value)
        at_once = at_once or _varies_anyway(value, source)
        if before is not VARIES and (type(before) is not kind or before != value):
            self.seen.numbers[key] = VARIES
            shown = before if type(before) is not int or fits_symbol(before) else "a longer int"
            self.seen.why[key] = f"was {shown}, then {value}"
        scheduled = source.name in self.varying
        if not scheduled and (config.specialize_int if kind is int else config.specialize_float):
            return None
        varies = self.automatic and (bool(at_once) or self.seen.numbers[key] is VARIES)
        if is_named(source, config.unbacked_sources):
            self._numbers[source] = self.drawn(kind, None, None, source)
            return self._numbers[source]
        varies = varies or scheduled or is_named(source, config.dynamic_sources)
        if not varies and not (self.at_once and is_argument(source) and value not in (0, 1)):
            return None
        if self.is_full():
            self._note_symbol_limit(readable_name(source))
            return None
        why = "scheduled" if scheduled else self.seen.why.get(key) or at_once or "dynamic=True"
        self.reasons.append(f"{readable_name(source)} is a symbol: {why}")
        text = readable_name(source)
        if kind is int:
            made: Any = self.env.new_symbol(value, text, None, None, source)
        else:
            made = self.env.new_float(value, text, source)
        self._numbers[source] = made
        self.read.append((made, source))
        return made

    def is_beyond(self, value: Any, source: Source) -> bool:
        """Whether an int from outside is one of several that no symbol can stand for."""
        constant = config.specialize_int or not self.automatic or source.made_by_frame
        if constant or source in self._numbers or type(value) is not int or fits_symbol(value):
            return False
        return self.is_another(value, source)

    def is_another(self, value: Any, source: Source) -> bool:
        """Whether several values of a source were seen, of which no symbol can be made."""
        key = self.seen.key_of(source)
        if self.seen.numbers.setdefault(key, value) != value:
            self.seen.numbers[key] = VARIES
        return self.seen.numbers[key] is VARIES

    def drawn(self, kind: type, low: int | None, high: int | None, source: Source) -> Any:
        """The symbol of a number of which nothing is assumed: a random number that the rewritten
        frame draws before the graph, or one that config.unbacked_sources names.
        """
        name = readable_name(source)
        if kind is float:
            return self.env.new_float(None, name, source)
        return self.env.new_unbacked(name, low, high, source)

    # -- the graph --------------------------------------------------------------------------------
    def node(self, value: Any) -> Any:
        """The graph's counterpart of a torch.SymInt or SymFloat: a node, or a number."""
        assert self.nodes is not None, "a symbol exists"
        return self.nodes.of(value)

    def nodes_of(self, exprs: Iterable[Any]) -> list[Any]:
        """The nodes of these expressions."""
        assert self.nodes is not None, "a symbol exists"
        return [self.nodes.of_expression(expr) for expr in exprs]

    def _placeholder(self, symbol: sympy.Symbol) -> Node:
        known = self.inputs.get(symbol)
        if known is None:
            if self.env.symbols[symbol].source is None:
                raise Unsupported(breaks.DataDependentValue(f"the number {symbol}"))
            known = self.inputs[symbol] = self.output.add_symbol(self.env.symbols[symbol])
        return known

    def _create(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        return self.output.graph.call_function(function, args)

    def function(self, expr: Any, symbols: Sequence[sympy.Symbol]) -> Callable[..., Any]:
        """The Python function that computes `expr`; the same one for the same expression."""
        known = self._functions.get(expr)
        if known is None:
            known = self._functions[expr] = function_of(expr, symbols)
        return known

    def check_marks(self) -> None:
        """Raises ConstraintViolation if a size that the user marked has become a constant."""
        for symbol, name in self.strict.items():
            value = self.env.simplify(symbol)
            if value == symbol or not value.is_Integer:
                continue
            asked = next((g for g in self.env.guards if symbol in g.condition.free_symbols), None)
            where = f"\n  at {asked.where}\n    {asked.line}" if asked and asked.where else ""
            raise ConstraintViolation(
                f"{name} was marked by mark_dynamic, and the captured code needs it to be "
                f"{value}:{where}\n  hint: mark it with maybe_mark_dynamic, or change this line"
            )

    def answered_marks(self, tensor: torch.Tensor, source: Source) -> tuple[int, int, int] | None:
        """The dimensions, as bits, of which the code is what mark_dynamic, maybe_mark_dynamic and
        mark_static ask for; None: marks change nothing.
        """
        if not self.allowed or source.made_by_frame or not _can_vary(tensor):
            return None
        symbols = {
            where.dim: value
            for value, where in self.read
            if isinstance(where, TensorSizeSource) and where.origin == source
        }
        kept = [dim for dim, size in symbols.items() if not size.node.expr.is_number]
        fixed = [dim for dim in range(tensor.dim()) if dim not in symbols]
        answers = ((MARKED, kept), (MAYBE, symbols), (STATIC, fixed))
        # The marks of this very tensor were considered.
        dynamic, maybe, static = (
            sum(1 << dim for dim in {*dims, *getattr(tensor, mark, ())}) for mark, dims in answers
        )
        return dynamic, maybe, static

    def guard_payload(self) -> ShapePayload:
        """The frame's assumptions about its symbols, as data of a guard."""
        return ShapePayload(self)

    def used_by(self, values: Iterable[Any]) -> set[Node]:
        """The placeholders, made if need be, of all symbols in the sizes of these tensors."""
        found: set[sympy.Symbol] = set()
        for value in values:
            for number in layout_numbers(value):
                found |= number.node.expr.free_symbols
        return {self._placeholder(symbol) for symbol in sorted(found, key=str)}


def takes_symbols(backend: Any) -> bool:
    """Whether its graphs may have symbols: unless the backend declares `dynamic_shapes = False`."""
    function = getattr(backend, "func", backend)  # of a functools.partial
    return bool(getattr(function, "dynamic_shapes", True))


class _Derived(torch.autograd.Function):
    """A tensor with a history: no leaf, and no view of one, which nothing may write to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return gradient, None


def _can_vary(tensor: torch.Tensor) -> bool:
    """Whether a fake tensor with other sizes can be made: plain memory, no lazy conjugation, and no
    tensors inside.
    """
    if is_traceable_wrapper_subclass(tensor):
        return False
    plain = not tensor.is_conj() and not tensor.is_neg() and tensor.layout is torch.strided
    history = tensor.requires_grad and tensor._is_view()
    return plain and tensor.dim() > 0 and not history


_FIRST_LARGE = 1 << 32


def _varies_anyway(value: Any, source: Source) -> str:
    """Why an int that a break has left on the stack varies: an address, an identity, a hash or a
    time is as large; an empty text: not known.
    """
    left = isinstance(source, LocalSource) and source.local.startswith(".")
    return (
        "addresses and times vary"
        if left and abs(value) >= _FIRST_LARGE and type(value) is int
        else ""
    )
