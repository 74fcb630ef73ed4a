"""The tracer: runs a torch-level graph over fake tensors and records functional aten operators.

Every fake tensor the program holds has a View: which memory (Alias) it looks at, by which chain of
view operators, and which node computes its present value. A write gives the written tensor a new
node, carries it up the chain to the memory's base (x[0].add_(1) -> select_scatter), and makes the
other views of that memory stale; a stale view is computed anew from the base when it is next read.
So the recorded graph has values only.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fxgraph.aot import batch_norm, inplace, views
from fxgraph.aot.data import CHECK_FAILED, FreshSymbols, gives_data
from fxgraph.aot.data_conditions import conditions_of
from fxgraph.aot.fake import FakePropagation, geometry, metadata
from fxgraph.aot.functional import Unfunctionalizable, is_view
from fxgraph.aot.recompute import PART
from fxgraph.aot.strided import as_views, covers
from fxgraph.aot.views import ViewCall
from fxgraph.args import leaves
from fxgraph.expression_nodes import ExpressionNodes
from fxgraph.graph import Graph
from fxgraph.node import Node
from fxgraph.sym_node import sym_divide
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbol, is_symbolic, numbers_of

aten = torch.ops.aten
_LEAVES = (int, float, bool, str, type(None))


class Alias:
    """A piece of memory. `origin`: an input's number, an attribute's name, None if made here."""

    __slots__ = ("base", "origin", "version")

    def __init__(self, origin: int | str | None) -> None:
        self.origin = origin
        self.version = 0
        self.base: View


class View:
    """A tensor of the program. `node` holds its value if `version` is that of the memory.

    `call` is None for the base, and for a tensor that is just another object with its parent's
    value.
    """

    __slots__ = ("alias", "call", "fake", "node", "parent", "version")

    def __init__(
        self, alias: Alias, fake: FakeTensor, node: Node, parent: View | None, call: ViewCall | None
    ) -> None:
        self.alias = alias
        self.fake = fake
        self.node = node
        self.parent = parent
        self.call = call
        self.version = alias.version


class Tracer:
    """Records into `graph`.

    decompositions: overload -> rule; rules run under the tracer, so that their operators are
        recorded.
    constants: name -> real tensor, for each get_attr node made.
    """

    def __init__(
        self, fake_mode: FakeTensorMode, decompositions: dict[Any, Callable[..., Any]]
    ) -> None:
        self.graph = Graph()
        self.fake = FakePropagation(fake_mode)
        self.fake_mode = fake_mode
        self.decompositions = decompositions
        self.mode = _RecordingMode(self)
        self.constants: dict[str, torch.Tensor] = {}
        self.attribute_names: dict[int, str] = {}
        self.place: dict[str, Any] = {}  # in the program, of the next nodes
        self.written: set[Any] = set()  # the inputs, by number, until a reader clears them
        self.part: object | None = None  # of the recorded nodes: see recompute.py
        self._views: dict[int, View] = {}
        self._constant_fakes: dict[int, FakeTensor] = {}
        self.copied: set[Alias] = set()  # memory, and copies, that data may make one
        self._real: dict[Node, torch.Tensor] = {}
        self._kinds: dict[Any, Callable[[Tracer, Any, Any, Any], Any]] = {}
        self._symbols: dict[Any, Node] = {}  # symbol -> its placeholder
        self._sizes: ExpressionNodes | None = None
        self.data = FreshSymbols(fake_mode, self._bind, self._size_of)
        self._assumed = self._assumptions()  # those that the program's own checks tell

    # -- tensors ----------------------------------------------------------------------------------

    def add_input(self, name: str, index: int, like: torch.Tensor) -> FakeTensor:
        """A placeholder with the metadata of `like`; returns the program's tensor for it."""
        fake = self.fake.like(like)
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        self._new_memory(fake, node, origin=index)
        return fake

    def add_symbol(self, name: str, value: Any) -> Node:
        """A placeholder for the number of a symbol (a torch.SymInt or SymFloat)."""
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        self._bind(value.node.expr, node)
        return node

    def _bind(self, symbol: Any, node: Node) -> None:
        """`node` is the value of a symbol."""
        self._symbols[symbol] = node
        if self._sizes is None:
            env: Any = self.fake_mode.shape_env
            self._sizes = ExpressionNodes(env, self._symbol_node, self._size_node)

    def _size_of(self, node: Node, dim: int, size: torch.SymInt) -> Node:
        made = self.graph.call_function(aten.sym_size.int, (node, dim))
        made.meta["val"] = size
        return made

    def _symbol_node(self, symbol: Any) -> Node:
        if symbol not in self._symbols:
            raise Unfunctionalizable(f"the number {symbol} is not among the inputs")
        return self._symbols[symbol]

    def _size_node(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        if function is operator.truediv:  # the program's own are guarded; others are of C++
            function = sym_divide
        return self.graph.call_function(function, args)

    def number(self, leaf: Any) -> Any:
        """The graph's counterpart of a symbolic number: a node, or its constant value."""
        if not is_symbolic(leaf):
            return leaf
        if self._sizes is None:
            raise Unfunctionalizable(f"the number {leaf} is not among the inputs")
        return self._sizes.of(leaf)

    def note_captured(self, result: Any, captured: Any) -> None:
        """The symbols for data that capture made for a result have the values of this one."""
        self.data.rename(result, captured)
        if not self.data.allowed:
            return
        env: Any = self.fake_mode.shape_env
        for one, other in zip(numbers_of(result), numbers_of(captured)):
            symbol = other.node._expr if is_symbol(other) else None
            if symbol is None or symbol in self._symbols or env.symbols[symbol].hint is not None:
                continue
            # More is known here of the operator's arguments.
            self._bind(symbol, self.number(one))
            env.define(symbol, expr_of(one))

    def add_same_input(self, name: str, like: torch.Tensor, first: FakeTensor) -> FakeTensor:
        """A placeholder for another object with the memory and metadata of `first`."""
        fake = self.fake.like(like)
        self.graph.placeholder(name).meta["val"] = fake
        view = self._views[id(first)]
        self._views[id(fake)] = View(view.alias, fake, view.node, view, None)
        return fake

    def view_of(self, tensor: torch.Tensor) -> View:
        """The View of a tensor of the program (real tensors become constants)."""
        view = self._views.get(id(tensor))
        if view is None:
            if not isinstance(tensor, torch.Tensor):
                raise Unfunctionalizable(f"a view of the number {tensor}")
            view = self._views[id(self._constant(tensor))]
        return view

    def value(self, view: View) -> Node:
        """The node that holds the present value of `view`, recorded now if it is stale."""
        if view.version != view.alias.version:
            assert view.parent is not None
            base = self.value(view.parent)
            view.node = views.replay(self.emit, view.call, base) if view.call else base
            view.version = view.alias.version
        return view.node

    def views_by_node(self) -> dict[Node, list[View]]:
        found: dict[Node, list[View]] = {}
        for view in self._views.values():
            found.setdefault(view.node, []).append(view)
        return found

    def _new_memory(self, fake: FakeTensor, node: Node, origin: int | str | None = None) -> View:
        alias = Alias(origin)
        view = alias.base = self._views[id(fake)] = View(alias, fake, node, None, None)
        return view

    def _constant(self, tensor: torch.Tensor) -> FakeTensor:
        """The program's tensor for a real tensor, which becomes an attribute of the graph."""
        known = self._constant_fakes.get(id(tensor))
        if known is not None:
            return known
        if isinstance(tensor, FakeTensor):
            raise Unfunctionalizable("a fake tensor that does not come from this graph")
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise Unfunctionalizable("a transform hides a tensor from the tracer")
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise Unfunctionalizable(f"a constant of type {type(tensor).__name__}")
        fake = self.fake.like(tensor)
        name = self.attribute_names.get(id(tensor))
        if name is None and tensor.dim() == 0 and tensor.device.type == "cpu":
            # Values that C++ wraps into tensors, such as the right side of `x[mask] = 0`.
            node = self.emit(
                aten.full.default, [], tensor.item(), dtype=tensor.dtype, device=tensor.device
            )
            self._new_memory(fake, node)
        else:
            name = name or f"_tensor_constant{len(self.constants)}"
            node = self.graph.get_attr(name)
            node.meta["val"] = fake
            self._new_memory(fake, node, origin=name)
            self.constants[name] = tensor
        self._constant_fakes[id(tensor)] = fake
        # Also keeps the tensor alive, so that its id stays its own.
        self._real[node] = tensor
        return fake

    # -- recording --------------------------------------------------------------------------------

    def emit(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """Record `op` on nodes, whose fake values give its result."""

        def fake_of(arg: Any) -> Any:
            return arg.meta["val"] if isinstance(arg, Node) else arg

        fake_args = _map(args, fake_of)
        fake_kwargs = {key: fake_of(arg) for key, arg in kwargs.items()}
        result = self.fake.run(op, fake_args, fake_kwargs, is_view(op))
        return self._node(op, args, kwargs, result)

    def _assumptions(self) -> int:
        env: Any = self.fake_mode.shape_env
        return 0 if env is None else len(env.assertions)

    def _check_assumed(self) -> None:
        """Check the assumptions that shape rules have made of data since the last operator."""
        env: Any = self.fake_mode.shape_env
        start, self._assumed = self._assumed, len(env.assertions)
        for assumed in env.assertions[start:]:
            if assumed.condition.free_symbols <= self._symbols.keys():
                self.check(assumed.condition)

    def _node(self, op: Any, args: Any, kwargs: Any, result: Any) -> Node:
        if self._assumptions() != self._assumed:
            self._check_assumed()
        if self._sizes is not None:
            args, kwargs = _map(args, self.number), _map(kwargs, self.number)
        node = self.graph.call_function(op, args, kwargs)
        node.meta["val"] = result
        node.meta.update(self.place)
        if self.part is not None:
            node.meta[PART] = self.part
        return node

    def record(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record `op` on tensors of the program; its results are new memory."""
        args, kwargs = self._own(args), self._own(kwargs)
        node_args, node_kwargs = _map(args, self._to_node), _map(kwargs, self._to_node)
        data = self.data.allowed and gives_data(op)
        if data:
            result = self.data.run(op, args, kwargs)
        else:
            try:
                result = self.fake.run(op, args, kwargs, is_view(op))
            except ZeroDivisionError as error:  # in a rule of torch: the operator itself can
                raise Unfunctionalizable(f"the rule of {op} divides by a size of 0") from error
        if isinstance(result, torch.Tensor) and result.layout is not torch.strided:
            raise Unfunctionalizable(f"the result of {op} is sparse")
        node = self._node(op, node_args, node_kwargs, result)
        if data:
            self.data.note(node, result)
        if isinstance(result, FakeTensor):
            self._new_memory(result, node)
        elif isinstance(result, (tuple, list)):
            for index, item in enumerate(result):
                if isinstance(item, FakeTensor):
                    part = self.graph.call_function(operator.getitem, (node, index))
                    part.meta.update(node.meta, val=item)
                    if data:
                        self.data.note(part, item)
                    self._new_memory(item, part)
                elif isinstance(item, (tuple, list)):
                    raise Unfunctionalizable(f"the result of {op} is a nest of lists")
        elif is_symbolic(result) and not data:
            raise Unfunctionalizable(f"the result of {op} depends on the data")
        return result

    def _own(self, arg: Any) -> Any:
        """The nest `arg` with real tensors replaced by the program's tensors for them."""

        def own(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return self.view_of(leaf).fake if id(leaf) not in self._views else leaf
            return leaf

        return _map(arg, own)

    def _to_node(self, leaf: Any) -> Any:
        return self.value(self._views[id(leaf)]) if isinstance(leaf, torch.Tensor) else leaf

    # -- dispatch ---------------------------------------------------------------------------------

    def dispatch(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an operator that the program runs; called by the dispatch mode."""
        kind = self._kinds.get(op)
        if kind is None:
            kind = self._kinds[op] = self._kind(op)
        if self.data.allowed:
            for condition in conditions_of(op, args):
                self.check(condition)
        return kind(self, op, args, kwargs)

    def _kind(self, op: Any) -> Callable[[Tracer, Any, Any, Any], Any]:
        special = SPECIAL.get(op)
        if special is not None:
            return special
        if not isinstance(op, torch._ops.OpOverload):
            raise Unfunctionalizable(f"{op} is not an operator overload")
        if op in self.decompositions:
            return Tracer._decompose
        if op in views.IDENTITY:
            return Tracer._identity
        if op in views.RESPELLED:
            return Tracer._respelled_view
        if op in views.SEVERAL:
            return Tracer._several_views
        if torch.Tag.inplace_view in op.tags:
            return Tracer._inplace_view
        if op._schema.is_mutable:
            return Tracer._mutate
        if op._schema.name.startswith("prim::"):
            return Tracer._metadata
        if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
            return Tracer._composite
        if op.is_view:
            return Tracer._view
        return Tracer.record

    def _metadata(self, op: Any, args: Any, kwargs: Any) -> Any:
        """prim.device: asked by C++ that ends the process at an exception."""
        with contextlib.suppress(Unfunctionalizable):
            args = self._own(args)
        return op(*args, **kwargs)

    def _decompose(self, op: Any, args: Any, kwargs: Any) -> Any:
        with self.mode:
            try:
                result = self.decompositions[op](*args, **kwargs)
            except (ZeroDivisionError, NotImplementedError, ValueError):
                # A mean over no elements, a base less than 0, a factor of another type: the
                # operator itself can.
                result = NotImplemented
        if result is not NotImplemented:
            return self._fresh_results(op, result)
        return self.record(op, args, kwargs)

    def _composite(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Operators that autograd would have taken apart come whole in inference mode."""
        with self.mode:
            result = op.decompose(*args, **kwargs)
        if result is NotImplemented:
            return self.record(op, args, kwargs)
        return result

    def _known_sizes(self, op: Any, args: Any, kwargs: Any) -> list[int]:
        """C++ that is not written for symbols asks for the numbers."""
        return [int(size) for size in args[0].shape]

    def _fresh_results(self, op: Any, result: Any) -> Any:
        """Give results of a decomposed operator their own memory, as the operator itself would."""
        if any(r.alias_info is not None for r in op._schema.returns):
            return result

        def fresh(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            view = self.view_of(leaf)
            if view.parent is None and view.alias.origin is None and view.alias.version == 0:
                return leaf
            node = self.value(view)
            made = self.fake.make(*_compact(view.fake))
            self._new_memory(made, node)
            return made

        return _map(result, fresh)

    # -- views ------------------------------------------------------------------------------------

    def _identity(self, op: Any, args: Any, kwargs: Any) -> Any:
        view = self.view_of(args[0])
        fake = self.fake.run(aten.alias.default, (view.fake,), {}, view=True)
        self._views[id(fake)] = View(view.alias, fake, self.value(view), view, None)
        return fake

    def _lift(self, op: Any, args: Any, kwargs: Any) -> Any:
        """A constant made in the program: new memory each time the program runs."""
        view = self.view_of(args[0])
        fake = self.fake.like(view.fake)
        self._new_memory(fake, self.value(view))
        return fake

    def _view(self, op: Any, args: Any, kwargs: Any) -> Any:
        return self._add_view(self.view_of(args[0]), ViewCall(op, args[1:], kwargs))

    def _respelled_view(self, op: Any, args: Any, kwargs: Any) -> Any:
        parent = self.view_of(args[0])
        return self._add_view(parent, views.RESPELLED[op](parent.fake, *args[1:], **kwargs))

    def _several_views(self, op: Any, args: Any, kwargs: Any) -> Any:
        parent = self.view_of(args[0])
        calls = views.SEVERAL[op](parent.fake, *args[1:], **kwargs)
        return [self._add_view(parent, call) for call in calls]

    def _add_view(self, parent: View, call: ViewCall) -> FakeTensor:
        if call.op is aten.as_strided.default:
            absolute = len(call.args) > 2 or "storage_offset" in call.kwargs
            parent, call = _from_base(parent, call)
            # An input may start elsewhere in its memory in another call.
            if parent.alias.origin is None or not absolute:
                plain = self._as_strided(parent, call)
                if plain is not None:
                    return plain
                if parent.alias.origin is not None and call.args[2:] not in ((), (0,)):
                    raise Unfunctionalizable("as_strided of a part of an input")
        fake = self.fake.run(call.op, (parent.fake, *call.args), call.kwargs, view=True)
        node = self._node(call.op, (self.value(parent), *call.args), call.kwargs, fake)
        self._views[id(fake)] = View(parent.alias, fake, node, parent, call)
        self.bind_sizes(fake, node)
        return fake

    def bind_sizes(self, fake: torch.Tensor, node: Node) -> None:
        """Name the data-dependent sizes that this tensor alone determines: of a slice with such
        bounds, of a result of another part of the program's graph.
        """
        if not self.data.allowed:
            return
        sizes: Any = fake.shape
        for dim, size in enumerate(sizes):
            symbol = size.node.expr if depends_on_data(size) else None
            if symbol is not None and symbol.is_Symbol and symbol not in self._symbols:
                self.data.found(symbol, self._size_of(node, dim, size))

    def _as_strided(self, parent: View, call: ViewCall) -> FakeTensor | None:
        """as_strided by way of other views, if those give its very strides."""
        size, stride, *start = call.args
        first = parent.fake.storage_offset()
        offset = start[0] if start else first
        fake, calls = parent.fake, []
        for step in as_views(fake, size, stride, offset - first) or ():
            made = self.fake.run(step.op, (fake, *step.args), {}, view=True)
            if _place(made) != _place(fake):
                calls.append(step)
                fake = made
        if _place(fake) != (tuple(size), tuple(stride), offset):
            return None
        if not calls:
            return self._identity(call.op, (fake,), {})
        for step in calls:
            fake = self._add_view(parent, step)
            parent = self.view_of(fake)
        return fake

    def _inplace_view(self, op: Any, args: Any, kwargs: Any) -> Any:
        """`x.t_()`: x becomes the view that `x.t()` would be."""
        this = args[0]
        name = op._schema.name.removeprefix("aten::").removesuffix("_")
        if name in ("resize", "set", "resize_as", "resize_as_sparse"):
            raise Unfunctionalizable(f"{op} changes the memory of a tensor")
        packet = getattr(aten, name)
        overloads = packet.overloads()  # transpose_ is transpose.int without its name
        known = op._overloadname in overloads
        plain = getattr(packet, op._overloadname if known else overloads[0])
        result = self.dispatch(plain, (this, *args[1:]), kwargs)
        # The old geometry must outlive the change: views of this tensor are replayed from it.
        old, new = self.view_of(this), self.view_of(result)
        old.fake = self.fake.make(*metadata(this), base=this)
        self._views[id(old.fake)] = old
        for node in self.graph.nodes:
            node.meta["val"] = _map(node.meta["val"], lambda t: old.fake if t is this else t)
        self.fake.mode.dispatch(op, (FakeTensor,), args, kwargs)
        self._views[id(this)] = View(new.alias, this, new.node, new, None)
        return this

    # -- writes -----------------------------------------------------------------------------------

    def _mutate(self, op: Any, args: Any, kwargs: Any) -> Any:
        variant = inplace.functional_variant(op)
        given = inplace.bind(op, args, kwargs)
        written = {a.name: given.get(a.name) for a in inplace.written_arguments(op)}
        if not inplace.stands_for(variant, written):
            variant = None
        if variant is None or any(isinstance(value, (tuple, list)) for value in written.values()):
            self._refuse_shared(op, given, written)
        if variant is None:
            fresh = self._mutate_copies(op, given, written)
        else:
            result = self.dispatch(variant.op, *inplace.arguments_for(variant, op, given))
            parts = list(result) if len(variant.op._schema.returns) > 1 else [result]
            fresh = parts[: variant.fresh]
            for old, new in zip(written.values(), parts[variant.fresh :]):
                _refuse_narrowing(op, old, new)
                self._write_nest(old, new)
        if not (op.namespace == "aten" or _moves_versions(op)):
            # A program's own operator: operators inside its kernel have moved the version counters.
            changed = [t for t in leaves(written) if isinstance(t, torch.Tensor)]
            torch._C._increment_version([t for t in changed if not t.is_inference()])
        return _returned(op, written, fresh)

    def _refuse_shared(self, op: Any, given: dict[str, Any], written: dict[str, Any]) -> None:
        """All results are computed before any write: no write may be read by the same call."""

        def memories(values: Any) -> list[Alias]:
            found = leaves(values)
            return [self.view_of(leaf).alias for leaf in found if isinstance(leaf, torch.Tensor)]

        every = memories(given)
        if any(every.count(alias) > 1 for alias in memories(written)):
            raise Unfunctionalizable(f"{op} writes memory that it is given twice")

    def _mutate_copies(self, op: Any, given: dict[str, Any], written: dict[str, Any]) -> list[Any]:
        """An operator without functional variant runs on copies, which are then copied back."""
        copies = {name: self._copy_nest(value) for name, value in written.items()}
        arguments = {**given, **copies}
        positional = [a for a in op._schema.arguments if not a.kwarg_only and a.name in arguments]
        args = tuple(arguments.pop(a.name) for a in positional)
        result = self.record(op, args, arguments)
        for name, value in written.items():
            self._write_nest(value, copies[name])
        parts = list(result) if len(op._schema.returns) > 1 else [result]
        kept = [part for part, r in zip(parts, op._schema.returns) if r.alias_info is None]
        return kept

    def _copy_nest(self, value: Any) -> Any:
        return _map(
            value,
            lambda leaf: (
                self.record(aten.clone.default, (leaf,), {})
                if isinstance(leaf, torch.Tensor)
                else leaf
            ),
        )

    def _write_nest(self, old: Any, new: Any) -> None:
        if isinstance(old, torch.Tensor):
            self.write(self.view_of(old), self.value(self.view_of(new)))
        elif isinstance(old, (tuple, list)):
            for one, other in zip(old, new):
                self._write_nest(one, other)

    def write(self, view: View, node: Node) -> None:
        """Make `node` the value of `view`, and update the value of its memory accordingly."""
        if view.alias in self.copied:
            raise Unfunctionalizable("memory is written that is a copy or not, as data decides")
        while view.call is None and view.parent is not None:
            view = view.parent
        node = self._with_size_and_dtype(node, view.fake)
        new, above = node, view
        while above.parent is not None:
            base = self.value(above.parent)
            _refuse_beside(above)
            new = views.write_through(self.emit, above.call, base, new) if above.call else new
            above = above.parent
        alias = view.alias
        new = self._with_strides(new, alias.base.fake)
        alias.version += 1
        self.written.add(alias.origin)
        alias.base.node, alias.base.version = new, alias.version
        if view.parent is not None and geometry(node.meta["val"]) == geometry(view.fake):
            view.node, view.version = node, alias.version

    def _with_size_and_dtype(self, node: Node, want: FakeTensor) -> Node:
        have = node.meta["val"]
        if have.is_conj() != want.is_conj() or have.is_neg() != want.is_neg():
            raise Unfunctionalizable("a write of a lazily conjugated or negated value")
        if have.dtype != want.dtype or have.device != want.device:
            options: dict[str, Any] = {"dtype": want.dtype}
            if have.device != want.device:
                options["device"] = want.device
            node = self.emit(aten._to_copy.default, node, **options)
        if have.shape != want.shape:
            try:
                node = self.emit(aten.expand.default, node, list(want.shape))
            except RuntimeError as error:
                raise Unfunctionalizable("a write of more elements than there are") from error
        return node

    def _with_strides(self, node: Node, want: FakeTensor) -> Node:
        if node.meta["val"].stride() == want.stride():
            return node
        memory = self.emit(
            aten.empty_strided.default,
            list(want.shape),
            list(want.stride()),
            dtype=want.dtype,
            device=want.device,
        )
        copied = self.emit(aten.copy.default, memory, node)
        if copied.meta["val"].stride() != want.stride():
            raise Unfunctionalizable("memory is written in which elements share a place")
        return copied

    def _copy_(self, op: Any, args: Any, kwargs: Any) -> Any:
        target, source = self.view_of(args[0]), self.view_of(args[1])
        self.write(target, self.value(source))
        return args[0]

    def _fill_(self, op: Any, args: Any, kwargs: Any) -> Any:
        target = self.view_of(args[0])
        value = args[1] if len(args) > 1 else kwargs.get("value", 0)
        size, dtype, device = list(target.fake.shape), target.fake.dtype, target.fake.device
        self.write(target, self.emit(aten.full.default, size, value, dtype=dtype, device=device))
        return args[0]

    # -- operators with their own treatment -------------------------------------------------------

    def _product(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Eager refuses matrices of two types, in words that depend on the caller's operator."""
        if len({arg.dtype for arg in args if isinstance(arg, torch.Tensor)}) > 1:
            raise Unfunctionalizable("a product of matrices of two types")
        return self.record(op, args, kwargs)

    def _item(self, op: Any, args: Any, kwargs: Any) -> Any:
        view = self.view_of(args[0])
        real = self._real.get(view.node)
        if real is not None and view.version == view.alias.version and view.fake.dim() == 0:
            return real.item()
        if not self.data.allowed:
            raise Unfunctionalizable(f"the result of {op} depends on the data")
        if args[0].dtype is torch.bool:  # graphs hold numbers
            wide = self.dispatch(aten._to_copy.default, (args[0],), {"dtype": torch.int64})
            return self.record(op, (wide,), kwargs) == 1
        return self.record(op, args, kwargs)

    def check(self, condition: Any) -> None:
        """The program's torch._check of a condition (an expression) that depends on data."""
        if self._sizes is None:
            raise Unfunctionalizable(f"the numbers of {condition} are not among the inputs")
        parts = condition.args if isinstance(condition, sympy.And) else [condition]
        for part in parts:
            holds = self._sizes.of_expression(part)
            self._node(aten._assert_scalar.default, (holds, CHECK_FAILED), {}, None)
            self._sizes.env.checked(part)


# Operators whose result may be made for one _unsafe_view and seen by nothing else.
_MADE_TO_BE_VIEWED = frozenset(
    getattr(aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "clone")
)


def _unsafe_view(tracer: Tracer, op: Any, args: Any, kwargs: Any) -> Any:
    """A new tensor for autograd; a view of memory that others see where kron writes its `out`."""
    parent = tracer.view_of(args[0])
    if tracer.value(parent).target in _MADE_TO_BE_VIEWED:
        return tracer.record(op, args, kwargs)
    return tracer._add_view(parent, ViewCall(aten.view.default, args[1:], kwargs))


SPECIAL: dict[Any, Callable[[Tracer, Any, Any, Any], Any]] = {
    aten._unsafe_view.default: _unsafe_view,
    aten.copy_.default: Tracer._copy_,
    aten.fill_.Tensor: Tracer._copy_,
    aten.fill_.Scalar: Tracer._fill_,
    aten.zero_.default: Tracer._fill_,
    **batch_norm.RULES,
    aten._local_scalar_dense.default: Tracer._item,
    **{op.default: Tracer._product for op in (aten.mm, aten.addmm, aten.bmm)},
    aten.size.default: Tracer._known_sizes,
    aten.lift_fresh.default: Tracer._lift,
    aten.lift.default: Tracer._lift,
}


class _RecordingMode(TorchDispatchMode):
    """Below autograd: detaching of tensors saved by autograd is outside of any operator of the
    program.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the base class wraps __torch_dispatch__, which costs time and imports torch's
        # own compiler at the first call.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self.tracer.dispatch(func, args, kwargs or {})


def _map(arg: Any, fn: Callable[[Any], Any]) -> Any:
    """map_aggregate for operator arguments, without the cases they do not have."""
    if isinstance(arg, _LEAVES):
        return arg
    if isinstance(arg, tuple):
        return tuple([_map(item, fn) for item in arg])
    if isinstance(arg, list):
        return [_map(item, fn) for item in arg]
    if isinstance(arg, dict):
        return {key: _map(item, fn) for key, item in arg.items()}
    return fn(arg)


def _compact(fake: torch.Tensor) -> Any:
    dtype, size, stride, _, device = metadata(fake)
    return dtype, size, stride, 0, device


def _refuse_narrowing(op: Any, old: Any, new: Any) -> None:
    """Refuse `out` of a type that eager refuses, which some operators do not report for fake
    tensors. Of `out` in another type than the result's some refuse all, and some compute in that
    type.
    """
    out = any(argument.is_out for argument in op._schema.arguments)
    for target, value in zip(leaves(old), leaves(new)):
        if not (isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor)):
            continue
        fits = target.dtype == value.dtype if out else torch.can_cast(value.dtype, target.dtype)
        if not fits:
            raise Unfunctionalizable(f"{op} of {value.dtype} into {target.dtype}")


def _returned(op: Any, written: dict[str, Any], fresh: list[Any]) -> Any:
    """The results of a mutating operator: written arguments and fresh results, in schema order."""
    by_set = {
        name: written.get(a.name)
        for a in inplace.written_arguments(op)
        for name in a.alias_info.before_set
    }
    rest = iter(fresh)
    results = [
        next(rest) if r.alias_info is None else by_set[next(iter(r.alias_info.before_set))]
        for r in op._schema.returns
    ]
    return results[0] if len(results) == 1 else tuple(results) if results else None


def _from_base(parent: View, call: ViewCall) -> tuple[View, ViewCall]:
    """as_strided reads the memory whatever its view: make the result a view of the base."""
    if parent.parent is None and len(call.args) == 2 and not call.kwargs:
        return parent, call
    size, stride, *rest = call.args
    offset = rest[0] if rest else call.kwargs.get("storage_offset")
    if offset is None:
        offset = parent.fake.storage_offset()
    base = parent.alias.base
    if base.fake.storage_offset() != 0 or base.fake.dtype != parent.fake.dtype:
        raise Unfunctionalizable("as_strided of a tensor that starts inside its memory")
    return base, ViewCall(call.op, (list(size), list(stride), offset), {})


def _refuse_beside(view: View) -> None:
    """The memory of an input may go on beside its elements, where no new value of it is stored."""
    call, parent = view.call, view.parent
    if call is None or call.op is not aten.as_strided.default or view.alias.origin is None:
        return
    assert parent is not None
    size, stride, *start = call.args
    first = parent.fake.storage_offset()
    if not covers(parent.fake, size, stride, start[0] - first if start else 0):
        raise Unfunctionalizable("a write to memory beside the elements of an input")


def _place(fake: torch.Tensor) -> tuple[Any, ...]:
    return tuple(fake.shape), fake.stride(), fake.storage_offset()


def _moves_versions(op: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "ADInplaceOrView")
