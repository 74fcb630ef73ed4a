"""Between our graphs and torch.fx, and the one place that knows where torch's own compiler stands.

Outside backends/ nothing else names torch.fx or torch._dynamo.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses import meta_utils
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from fxgraph import packed_weights
from fxgraph.args import leaves
from fxgraph.fake_results import (
    PLAIN_RESULTS,
    FakeResults,
    check_arguments,
    corrected,
    key_of,
    make_fake,
    metadata,
    resized,
    ruled_as,
    selected,
)
from fxgraph.general_case import taking_general_case
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, assign_attribute, fetch_attribute
from fxgraph.higher_order import branch
from fxgraph.node import Node, map_arg
from fxgraph.shape_rules import Meta
from fxgraph.size_forms import rows_outside
from fxgraph.symbolic_rules import rules_for
from fxgraph.symbolic_values import expr_of, is_symbolic, layout_numbers

COMPTIME = "torch._dynamo.comptime"  # its functions do nothing outside of torch.compile's capture


def to_torch_fx(gm: GraphModule) -> torch.fx.GraphModule:
    """The same graph as a torch.fx.GraphModule, sharing parameters and submodules.

    Node meta is carried over; a fake value stands under both "val" and "example_value", since
    torch.compile's backends read either.
    """
    graph = torch.fx.Graph()
    made: dict[Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        args, kwargs = map_arg(node.args, made.__getitem__), map_arg(node.kwargs, made.__getitem__)
        target = torch.ops.higher_order.cond if node.target is branch else node.target
        new = graph.create_node(node.op, target, args, kwargs, name=node.name)
        new.meta = _both_names(node.meta)
        made[node] = new
    converted = torch.fx.GraphModule(gm, graph, gm._class_name)
    for name, body in _bodies(gm, GraphModule):
        assign_attribute(converted, name, to_torch_fx(body))
    converted.meta.update(gm.meta)
    return converted


def from_torch_fx(gm: torch.fx.GraphModule) -> GraphModule:
    """A torch.fx graph (from torch.fx, torch.export or a torch.compile backend) as ours."""
    graph = Graph()
    made: dict[torch.fx.Node, Node] = {}

    def ours(arg: Any) -> Any:
        def leaf_to_ours(leaf: Any) -> Any:
            return made[leaf] if isinstance(leaf, torch.fx.Node) else leaf

        return torch.fx.node.map_aggregate(arg, leaf_to_ours)

    for node in gm.graph.nodes:
        args, kwargs = _plain(ours(node.args)), _plain(ours(node.kwargs))
        new = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
        new.meta = _both_names(node.meta)
        made[node] = new
    converted = GraphModule(gm, graph, type(gm).__name__)
    for name, body in _bodies(gm, torch.fx.GraphModule):
        assign_attribute(converted, name, from_torch_fx(body))
    converted.meta.update(getattr(gm, "meta", {}))
    return converted


def _bodies(gm: Any, kind: type) -> list[tuple[str, Any]]:
    """The sub-graphs that get_attr nodes name, by dotted name."""
    names = dict.fromkeys(node.target for node in gm.graph.nodes if node.op == "get_attr")
    found = [(name, fetch_attribute(gm, name)) for name in names]
    return [(name, body) for name, body in found if isinstance(body, kind)]


def _both_names(meta: Mapping[str, Any]) -> dict[str, Any]:
    copied = dict(meta)
    if "val" in copied or "example_value" in copied:
        value = copied.get("val", copied.get("example_value"))
        copied.setdefault("val", value)
        copied.setdefault("example_value", value)
    return copied


def _plain(arg: Any) -> Any:
    """torch.fx's immutable lists and dicts as plain ones."""
    if isinstance(arg, tuple):
        items = [_plain(item) for item in arg]
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)
    if isinstance(arg, list):
        return [_plain(item) for item in arg]
    if isinstance(arg, dict):
        return {key: _plain(value) for key, value in arg.items()}
    return arg


class _FakeMode(FakeTensorMode):
    """A FakeTensorMode that does not load torch's own compiler, and keeps no stack.

    FakeTensorMode imports torch._dynamo (0.8 s) to read two flags, to wrap __torch_dispatch__, and
    to name where tensors come from. It reads the stack of its maker, with the source line of each
    frame (1 ms for each capture of a deep program), for a message about modes that are mixed.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    supports_higher_order_operators = True
    # Whether results are kept for equal arguments.
    remembers = True
    # The tensor whose number an operator asked for last.
    asked: torch.Tensor | None = None

    @property
    def results(self) -> FakeResults:
        """The cache of fake results, one of the mode's own once it has symbols."""
        return PLAIN_RESULTS if self.shape_env is None else self._symbolic_results

    @functools.cached_property
    def _symbolic_results(self) -> FakeResults:
        return FakeResults()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator) and not _has_fake_rule(func):
            if func is torch.ops.higher_order.cond and self.shape_env is not None:
                found = _result_of_sides(self, *args)
                if found is not None:
                    return found
            # Their rules are registered for the base class itself.
            return func.python_key_table[FakeTensorMode](self, *args, **(kwargs or {}))
        return self.dispatch(func, types, args, kwargs or {})

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            self.asked = args[0]
        if self.remembers and _depends_on_metadata_only(func):
            return self._remembered(func, types, args, kwargs)
        if self.shape_env is not None:
            _forget_unread(args, self.shape_env)
        metas = self._ruled(func, args, kwargs) if self.shape_env is None else None
        if metas is None:
            return self._run(func, types, args, kwargs)
        made = tuple([meta and make_fake(self, *meta) for meta in metas])
        return made if len(made) > 1 else made[0]

    def _run(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of torch's rule."""
        env: Any = self.shape_env
        if (packed := packed_weights.rule_of(func)) is not None:
            with self:
                return packed(*args, **kwargs)
        if any(kind is not FakeTensor for kind in types):
            return super().dispatch(func, types, args, kwargs)  # by the class of a wrapper
        func = ruled_as(func, args)
        check_arguments(func, args)
        if any(isinstance(arg, torch.ScriptObject) for arg in args):
            # torch's table of results compares arguments: packed weights refuse.
            return self._dispatch_impl(func, types, args, kwargs)
        if env is None:
            made = super().dispatch(func, types, args, kwargs)
            return corrected(func, args, kwargs, made, self)
        if func in _ALLOCATING:
            with taking_general_case(env):
                return super().dispatch(func, types, args, kwargs)
        for rule in (selected, resized):
            if (made := rule(func, args, self)) is not None:
                return made
        with env.asking_ones(_depends_on_ones(func, args)):
            result = super().dispatch(func, types, args, kwargs)
            result = corrected(func, args, kwargs, result, self)
        if func is torch.ops.aten.slice.Tensor:
            result = _placed(self, result, *args, **kwargs)
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, torch.Tensor) and made.layout is torch.strided:
                for stride in filter(is_symbolic, made.stride()):
                    env.assume_stride(expr_of(stride))
        return result

    def _ruled(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Sequence[Meta | None] | None:
        """The metadata of the results by a rule of ours; None without one."""
        rule = rules_for(self).get(func)
        if rule is None or kwargs:
            return None
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        ours = all(isinstance(t, FakeTensor) and t.fake_mode is self for t in tensors)
        return rule(*args) if ours else None

    def _remembered(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of `func`, run once for all calls with arguments of the same metadata."""
        key = key_of(func, args, kwargs, self)
        base = args[0] if func.is_view else None
        made = self.results.make(self, key, base)
        if made is not NotImplemented:
            return made
        metas = self._ruled(func, args, kwargs) if key is not None else None
        if metas is not None:
            self.results.add_metas(key, metas)
            made = self.results.make(self, key, base)
            if made is not NotImplemented:
                return made
        cached, self.cache_enabled = self.cache_enabled, False  # by torch, for which this is kept
        try:
            result = self._run(func, types, args, kwargs)
        finally:
            self.cache_enabled = cached
        env: Any = self.shape_env
        if key is not None and (env is None or not env.guards_suppressed):
            self.results.add(key, result)
        return result

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> torch.SymInt:
        """The size of a jagged tensor in its ragged dimension; it equals no other's."""
        if nt_tensor_id is None:
            nt_tensor_id = self.nt_tensor_id_counter
            self.nt_tensor_id_counter += 1
        return torch._C._get_nested_int(nt_tensor_id, 1)

    def from_tensor(self, tensor: torch.Tensor, **options: Any) -> Any:
        """The fake of a tensor, the same each time; fakes share memory as their tensors do."""
        converter = self.fake_tensor_converter
        # Made before there were symbols: torch's own way expects its own fake of a gradient.
        gradient = _gradient(tensor)
        begun = gradient is not None and converter._get_memo(gradient) is not None
        plain = self.shape_env is None or begun or options.get("static_shapes")
        if not plain or not _is_simple(tensor):
            try:
                return super().from_tensor(tensor, **options)
            except DataDependentOutputException:  # a part of a jagged tensor: sizes are its offsets
                return self._as_plain_view(tensor)
        fake = converter._get_memo(tensor)
        if fake is None:
            with torch.inference_mode(tensor.is_inference()):
                fake = self._over_memory(tensor)
                if tensor.requires_grad:
                    fake.requires_grad_(True)
            if isinstance(tensor, torch.nn.Parameter):
                fake._is_param = True
            if gradient is not None:
                _set_gradient(fake, self._fake_gradient(gradient))
            converter.set_tensor_memo(tensor, fake)
        return fake

    def _fake_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        try:
            return self.from_tensor(gradient)
        except AssertionError:  # torch's: a view whose data became others' (Module.double())
            fake = self._over_memory(gradient)
            self.fake_tensor_converter.set_tensor_memo(gradient, fake)
            return fake

    def _as_plain_view(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake of a view as one of a plain tensor with its sizes."""
        fake = self._over_memory(tensor)
        if tensor.requires_grad:
            with torch.enable_grad(), self:
                fake = fake.requires_grad_().view_as(fake)  # type: ignore[assignment]
        self.fake_tensor_converter.set_tensor_memo(tensor, fake)
        return fake

    def _over_memory(self, tensor: torch.Tensor) -> FakeTensor:
        """A fake leaf over the fake of the tensor's memory."""
        elem = torch.empty(0, dtype=tensor.dtype, device="meta")
        memory = self._meta_memory(tensor.untyped_storage())
        elem.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
        return FakeTensor(self, elem, tensor.device)

    def _meta_memory(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        known = self.__dict__.setdefault("_memory", {})
        entry = known.get(storage._cdata)
        if entry is None or entry[0].expired():
            entry = StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes(), device="meta")
            known[storage._cdata] = entry
        return entry[1]


def _set_gradient(fake: torch.Tensor, gradient: torch.Tensor) -> None:
    try:
        fake.grad = gradient
    except RuntimeError as error:  # of the memory that the tensor had before `tensor.data = ...`
        raise UnsupportedFakeTensorException("a gradient unlike its tensor") from error


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a tensor that may have one: asked for another's, torch warns. A fake has that
    of its tensor, whether or not autograd would store one.
    """
    if tensor.is_leaf or tensor.retains_grad:
        return tensor.grad
    if not isinstance(tensor, FakeTensor):
        return None
    with warnings.catch_warnings(action="ignore"):
        return tensor.grad


_MEMOS = ("item_memo", "nonzero_memo", "unique_memo", "unique_consecutive_memo")


def _forget_unread(args: Sequence[Any], env: Any) -> None:
    """Have a tensor forget numbers that no node of this place gives: it told them in a side."""
    if not args or not isinstance(args[0], FakeTensor):
        return
    for name in _MEMOS:
        known = getattr(args[0], name, None)
        if is_symbolic(known) and not env.is_read(expr_of(known)):
            setattr(args[0], name, None)


def _placed(
    mode: Any, result: Any, x: torch.Tensor, dim: int = 0, start: Any = None, *_: Any, **kwargs: Any
) -> Any:
    """A slice at a position that depends on data, with an offset that says where this is: torch's
    rule has a number of its own, that nobody computes.
    """
    offset, fresh = result.storage_offset(), mode.shape_env.pending_fresh_unbacked_symbols
    if not is_symbolic(offset) or offset.node.expr not in fresh:
        return result
    if any(offset.node.expr in n.node.expr.free_symbols for n in layout_numbers(x)):
        return result  # of a column of what an operator has just found
    fresh.remove(offset.node.expr)
    length = x.shape[dim]
    negative = -torch.sym_min(torch.sym_max(start, -1), 0)  # 1, or else 0
    start = torch.sym_min(torch.sym_max(start + length * negative, 0), length)
    dtype, size, stride, offset, device = metadata(result)
    offset = x.storage_offset() + start * x.stride(dim)
    return make_fake(mode, dtype, size, stride, offset, device, base=x)


_ALLOCATING = (torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty_strided.default)


def _depends_on_ones(func: Any, args: Any) -> bool:
    """Whether the result for a size of 1 has other dimensions, or, where an input's dimensions
    are permuted, other strides.
    """
    tensors = [arg for arg in leaves(args) if isinstance(arg, torch.Tensor)]
    return "squeeze" in func.name() or not all(map(rows_outside, tensors))


@functools.cache
def _depends_on_metadata_only(func: Any) -> bool:
    """Whether an operator gives new tensors, or views of its first argument, whose metadata
    follows from that of its arguments.
    """
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in ("aten", "prims"):
        return False
    data = (
        torch.Tag.data_dependent_output,
        torch.Tag.dynamic_output_shape,
        torch.Tag.inplace_view,
    )
    if func._schema.is_mutable or any(tag in func.tags for tag in data):
        return False
    if not all("Tensor" in str(one.type) for one in func._schema.returns):
        return False  # aten.size and its kin, which the dispatcher may not even know
    composite = "CompositeImplicitAutograd"
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite):
        return False
    returned = [one.alias_info is not None for one in func._schema.returns]
    if not func.is_view:
        return not any(returned)
    viewed = [arg.alias_info is not None for arg in func._schema.arguments]
    return viewed[0] and sum(viewed) == 1 and all(returned)


def _result_of_sides(
    mode: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]
) -> Any:
    """The fake result of a conditional whose sides give tensors of one form; None: left to torch's
    rule, which loads torch's own compiler to compare symbolic strides.
    """
    with mode, mode.shape_env.ignore_fresh_unbacked_symbols():
        left, spec = pytree.tree_flatten(true_fn(*operands))
        right, other = pytree.tree_flatten(false_fn(*operands))
        if spec != other or not all(map(_of_one_form, left, right)):
            return None
        made = [t.new_empty_strided(t.shape, t.stride()) for t in left]
    return pytree.tree_unflatten(made, spec)


def _of_one_form(left: Any, right: Any) -> bool:
    if not (isinstance(left, FakeTensor) and isinstance(right, FakeTensor)):
        return False
    if (left.dtype, left.device, left.ndim) != (right.dtype, right.device, right.ndim):
        return False
    sizes = zip((*left.shape, *left.stride()), (*right.shape, *right.stride()))
    return all(_expression(a) == _expression(b) for a, b in sizes)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _has_fake_rule(operator: Any) -> bool:
    """Whether FakeTensorMode finds the rule of a higher-order operator by itself."""
    from torch._higher_order_ops.utils import registered_hop_fake_fns

    return operator in registered_hop_fake_fns


def _is_simple(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but memory, sizes and strides, and a leaf for autograd."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
        and not (tensor.requires_grad and tensor._is_view())
        and tensor.device.type != "meta"
    )


def fake_tensor_mode(**options: Any) -> FakeTensorMode:
    """A new FakeTensorMode for plain (not symbolic) sizes. options: as of FakeTensorMode."""
    _defer_disabling()
    _silence_gradients()
    return _FakeMode(**options)


def asked_tensor(mode: FakeTensorMode) -> torch.Tensor | None:
    """The fake tensor whose number an operator asked for last."""
    return mode.asked if isinstance(mode, _FakeMode) else None


def forget_real_tensors(mode: FakeTensorMode) -> None:
    """Drop the weak references to the tensors that a mode has made fakes of: torch's swap_tensors
    refuses a tensor that has any. The fakes stay; of the same tensor, the mode makes another.
    """
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()


class _Flags:
    """torch._dynamo.config, as far as fake tensors read it: its defaults."""

    fake_tensor_cache_enabled = True
    fake_tensor_cache_crosscheck_enabled = False
    _custom_ops_profile = None


class _Dynamo:
    config = _Flags


class _Traceback:
    """The module traceback, as far as fake tensors use it: no stack."""

    extract_stack = list


class _Torch:
    """The module torch, with torch._dynamo replaced."""

    _dynamo = _Dynamo

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _without_dynamo(function: Any) -> Any:
    """`function`, for which torch._dynamo.config is the stand-in above, imported or named, and so
    is traceback.

    Nothing outside the returned function changes, so that user code may import the real one
    meanwhile.
    """
    facade = _Torch()

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if name == "torch._dynamo.config":
            return facade
        module = builtins.__import__(name, globals, locals, fromlist, level)
        # `import torch.x` binds torch: keep the facade bound.
        return facade if module is torch else module

    names = {**vars(builtins), "__import__": import_module}
    made = types.FunctionType(
        function.__code__,
        {
            **function.__globals__,
            "__builtins__": names,
            "torch": facade,
            "traceback": _Traceback,
        },
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


@functools.cache
def _silence_gradients() -> None:
    """Let torch's way to a fake of a tensor ask for no gradient that cannot be there: the warning,
    hidden only from the terminal, is an exception where warnings are errors.
    """
    meta_utils.safe_grad = _gradient  # type: ignore[assignment]


@functools.cache
def _defer_disabling() -> None:
    """Let torch's shape rules run without loading torch._dynamo.

    Many are wrapped so that torch.compile does not look into them; the wrapper loads torch._dynamo
    at the first call, to ask it for the disabled function. Give it one that asks when torch._dynamo
    is there.
    """
    wrapper = _inner_code(torch._compile._disable_dynamo.__code__, "inner")
    homes = (
        "torch._refs",
        "torch._prims",
        "torch._decomp.decompositions",
        "torch._meta_registrations",
    )
    waiting: list[Any] = []
    for name, module in list(sys.modules.items()):
        if name.startswith(homes):
            waiting += vars(module).values()
    waiting += torch._decomp.meta_table.values()
    seen: set[Any] = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, types.FunctionType) or function in seen:
            continue
        seen.add(function)
        # The callees of a decorated function are in its closure.
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        inside = {name: cell.cell_contents for name, cell in cells.items()}
        waiting += inside.values()
        if function.__code__ is wrapper and not hasattr(inside["fn"], "__dynamo_disable"):
            setattr(inside["fn"], "__dynamo_disable", _disabled_later(inside["fn"]))


def _inner_code(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            found = _inner_code(constant, name)
            if found is not None:
                return found
    return None


def _disabled_later(function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
        if disable is None:
            return function(*args, **kwargs)
        disabled = disable(function, True, wrapping=False)
        setattr(function, "__dynamo_disable", disabled)
        return disabled(*args, **kwargs)

    return run


for _name in ("__init__", "_dispatch_impl"):
    setattr(_FakeMode, _name, _without_dynamo(getattr(FakeTensorMode, _name)))


def allowed_by_torch(obj: Any) -> bool:
    """Whether the program gave a Python function to torch.compiler.allow_in_graph or
    nonstrict_trace, which torch._dynamo keeps.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or type(obj) is not types.FunctionType:
        return False
    names = ("_allowed_callable_ids", "_nonstrict_trace_callable_ids")
    return any(id(obj) in getattr(rules, name, ()) for name in names)
