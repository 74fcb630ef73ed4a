"""From a functional aten graph to an `ir.Program`: runs the table over the graph's nodes."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch

from fxgraph import effects
from fxgraph.aot.kernel_types import refused
from fxgraph.faults import blame
from fxgraph.node import Node
from fxgraph.sizes import Undecided, is_symbolic, read_name, solved_for, symbols
from inductor import costs, devices
from inductor.derive import Derivation
from inductor.devices import Device
from inductor.ir import Buffer, Program, Tensor
from inductor.lowering import (  # noqa: F401  (fill the table)
    attention,
    convolution,
    creation,
    indexing,
    losses,
    normalization,
    pointwise,
    pooling,
    products,
    random,
    reduction,
    resizing,
    scatter,
    strided,
    views,
)
from inductor.lowering.assembly import Assembled
from inductor.lowering.attention import compute_scores
from inductor.lowering.context import Lowering
from inductor.lowering.overwrites import (
    OVERWRITING,
    lazy_readers,
    may_overwrite,
    writes_of_inputs,
)
from inductor.lowering.products import (
    FLOAT8,
    OF_FLOAT8,
    reads_in_memory,
    shortens,
)
from inductor.lowering.registry import LOWERINGS, NotLowered, aten
from inductor.ops import COMPUTE_TYPES
from inductor.softmax_attention import SCORES


def lower_graph(
    gm: Any,
    *,
    static: Sequence[bool] = (),
    aten_ops: Sequence[str] = (),
    derived: Derivation | None = None,
    gpu: Device | None = None,
    measured: bool = False,
) -> tuple[Program, list[Any]]:
    """Lower a functional graph module. Returns the program and, per graph output, a Tensor or plain
    value.

    `static[i]`: placeholder i is a parameter. `aten_ops`: operators to leave to aten, by name.
    `derived`: nodes that are computed elsewhere, with the names of their values. `gpu`: that
    kernels are chosen for, by measuring if `measured`.
    Raises sizes.Undecided for a graph whose sizes have no form here.
    """
    run = _Run(gm, static, frozenset(aten_ops))
    run.ctx.gpu, run.ctx.measured = gpu or run.ctx.gpu, measured
    for node in gm.graph.nodes:
        if derived is not None and derived.skips(node):
            run.derived(node, derived.kept.get(node))
            continue
        try:
            run.node(node)
        except Exception as error:
            blame(error, node)
            raise
    return run.ctx.program, run.results


class _Run:
    def __init__(self, gm: Any, static: Sequence[bool], aten_ops: frozenset[str]) -> None:
        self.gm = gm
        self.static = static
        self.aten_ops = aten_ops
        self.ctx = Lowering()
        self.env: dict[Any, Any] = {}
        self.results: list[Any] = []
        self.mutating = False
        self.writes = writes_of_inputs(list(gm.graph.nodes))

    def node(self, node: Any) -> None:
        self.ctx.node = node
        match node.op:
            case "placeholder":
                self.env[node] = self._placeholder(node)
            case "get_attr":
                self.env[node] = self._constant(node)
            case "call_function":
                self.env[node] = self._call(node)
            case "output":
                self.results = [self._value(a) for a in node.args[0]]
                compute_scores(self.ctx)
                self.ctx.require_bound([b.size for b in self.ctx.program.buffers.values()])
            case _:
                raise AssertionError(f"{node.op} in a functional graph")

    def derived(self, node: Node, name: str | None) -> None:
        if name is None:
            return
        val = node.meta["val"]
        size, stride = tuple(val.shape), tuple(val.stride())
        buffer = Buffer(name, val.dtype, size, stride, val.device, "constant")
        self.ctx.program.buffers[name] = buffer
        self.env[node] = Tensor.of(buffer)

    def _value(self, arg: Any) -> Any:
        """The argument tree with nodes replaced by their lowered values."""
        if isinstance(arg, (list, tuple)):
            return [self._value(a) for a in arg]
        if not (hasattr(arg, "op") and hasattr(arg, "graph")):
            return arg
        value = self.env[arg]
        if isinstance(value, _Opaque):
            raise Undecided(f"{value.text}, which is no integer")
        return value

    def _placeholder(self, node: Any) -> Any:
        program, val = self.ctx.program, node.meta.get("val")
        position = len(program.inputs)
        if not isinstance(val, torch.Tensor):
            self.ctx.sizes.give(val)
            program.inputs.append(self.ctx.sizes.of(val))
            self._note_symbols([program.inputs[-1]])
            return program.inputs[-1]
        static = self.static[position] if position < len(self.static) else False
        buffer = Buffer(
            f"arg{position}",
            val.dtype,
            self.ctx.shape(val),
            self.ctx.strides(val) if val.layout == torch.strided else (),
            val.device,
            "input",
            static,
        )
        self._note_symbols(buffer.size)
        program.inputs.append(buffer)
        program.buffers[buffer.name] = buffer
        return Tensor.of(buffer)

    def _note_symbols(self, sizes: Any) -> None:
        """The symbols that these sizes of an input tell, also to checks."""
        names = [found[0].name for size in sizes if (found := solved_for(size)) is not None]
        self.ctx.bound.update(names, map(read_name, names))

    def _constant(self, node: Any) -> Any:
        value = self.gm
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        program = self.ctx.program
        name = f"const{len(program.constants)}"
        value = value.detach().contiguous()
        program.constants[name] = value
        buffer = Buffer(
            name, value.dtype, tuple(value.shape), value.stride(), value.device, "constant"
        )
        program.buffers[name] = buffer
        return Tensor.of(buffer)

    def _call(self, node: Any) -> Any:
        target, val = node.target, node.meta.get("val")
        if isinstance(val, torch.SymFloat | torch.SymBool):
            return _Opaque(str(val))
        if target is aten._local_scalar_dense.default:
            self.ctx.sizes.give(val)
        if isinstance(val, torch.SymInt):
            size, read = self.ctx.sizes.of(val), self.ctx.sizes.read(val)
            needed = [s.name for s in symbols(size)] + ([read] if read else [])
            if self.ctx.bound.issuperset(needed):
                return size
        if target is aten._assert_scalar.default:
            return self._assert(node)
        args = self._value(node.args)
        kwargs = {k: self._value(v) for k, v in node.kwargs.items()}
        if target is aten._assert_async.msg:
            return self.ctx.aten(target, args, kwargs, ordered=True, asserts=True)
        if target is operator.getitem:
            part = args[0][args[1]]
            if isinstance(part, Tensor):
                self._settle(part, node)
            return part
        if target is aten.copy_.default:
            return self._copy_(node, *args[:2])
        if not isinstance(target, torch._ops.OpOverload):
            return target(*args, **kwargs)  # arithmetic on sizes
        if target._schema.is_mutable:
            return self._mutate(node)
        if target in OVERWRITING and isinstance(args[0], Tensor):
            self._overwrite(node, args[0])
        result = self._lowered(target, args, kwargs, node)
        self.ctx.overwritten = None
        if isinstance(result, Tensor):
            self._settle(result, node)
        return result

    def _overwrite(self, node: Any, base: Tensor) -> None:
        """Have the operator write in the memory of its first argument, if nobody reads that later;
        what still waits to read it is computed first.
        """
        write = self.writes.get(node)
        if may_overwrite(self.ctx.program, self.env, node, base, write):
            for t in lazy_readers(self.env, node, base):
                self.ctx.realize(t)
            self.ctx.overwritten = base

    def _assert(self, node: Any) -> None:
        condition, message = node.args
        value = getattr(condition, "meta", {"val": condition})["val"]
        holds = self.ctx.sizes.truth(value, self.ctx.bound)
        if holds != 1:
            self.ctx.require_bound(holds)
            self.ctx.aten(node.target, [holds, message], {}, ordered=True, asserts=True)

    def _mutate(self, node: Any) -> Any:
        """An operator that writes arguments. They are copies that the tracer made for it: each gets
        a buffer of its own, which later readers find written.
        """
        written: list[str] = []

        def own(arg: Any) -> None:
            if isinstance(arg, (list, tuple)):
                for one in arg:
                    own(one)
            elif isinstance(self.env.get(arg) if hasattr(arg, "meta") else None, Tensor):
                fresh = self.ctx.copy(self.env[arg], self.ctx.strides(arg.meta["val"]))
                assert fresh.window is not None
                self.env[arg] = fresh
                written.append(fresh.window.buffer.name)

        for position, argument in enumerate(node.target._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = node.args[position:] or [node.kwargs.get(argument.name)]
                own(given[0])
        args = self._value(node.args)
        kwargs = {k: self._value(v) for k, v in node.kwargs.items()}
        return self.ctx.aten(node.target, args, kwargs, ordered=True, mutates=tuple(written))

    def _lowered(self, target: Any, args: Any, kwargs: Any, node: Any) -> Any:
        lowering = LOWERINGS.get(target)
        if self.aten_ops and (
            str(target) in self.aten_ops or str(target.overloadpacket) in self.aten_ops
        ):
            lowering = None
        if lowering is not None and refused(target, (*args, *kwargs.values())):
            lowering = None
        more = FLOAT8 if target in OF_FLOAT8 else ()
        if lowering is not None and _representable([args, kwargs], node.meta.get("val"), more):
            # Buffers realised until then stay: others may hold them, and dead steps are dropped.
            with contextlib.suppress(NotLowered, Undecided):
                result = lowering(self.ctx, *args, **kwargs)
                self._compare(result, node)
                return result
        return self.ctx.aten(target, args, kwargs, ordered=effects.of_overload(target).impure())

    def _compare(self, result: Any, node: Any) -> None:
        """Check the shape: an assertion for numbers, Undecided if expressions differ in form."""
        if not isinstance(result, Tensor):
            return
        val = node.meta["val"]
        size = self.ctx.shape(val)
        assert result.dtype == val.dtype, (node, result.dtype, val.dtype)
        if result.size != size:
            assert is_symbolic([*result.size, *size]), (node, result.size, size)
            raise Undecided(f"whether {result.size} is {size}")

    def _settle(self, result: Tensor, node: Any) -> None:
        """Remember eager's strides, and realise a value that several readers would recompute, or a
        product reads, by way of a transpose say: in the value's own layout, once for all views.
        """
        val = node.meta["val"]
        if result.window is not None:
            return
        result.hint = self.ctx.strides(val)
        trivial = result.work <= costs.TRIVIAL_WORK and result.reads <= costs.TRIVIAL_READS
        if result.work and any(user.op == "output" for user in node.users):
            trivial = False  # in memory anyway
        if isinstance(result, Assembled) and (of_pieces := _read_in_pieces(node)) is not None:
            if of_pieces:
                for piece in result.pieces:
                    self._settle_source(piece.source)
            return
        again = len(node.users) > 1 and (result.split is not None or not trivial)
        inside = node.meta.get(SCORES) or all(user.meta.get(SCORES) for user in node.users)
        if again and inside and devices.is_gpu(result.device):  # attention's kernels compute that
            again = False
        in_memory = not devices.is_gpu(result.device) and reads_in_memory(node)
        if again and not in_memory and (narrow := self._widened(node)) is not None:
            self.ctx.realize(narrow)
            result.work = result.reads = 1
        elif again or in_memory or _narrows_result(node) or shortens(node):
            self.ctx.realize(result)

    def _widened(self, node: Any) -> Tensor | None:
        """A lazy value of which the node, no result, is a copy in a wider type: that takes more
        memory, and its readers convert as they read.
        """
        if node.target is not aten._to_copy.default or not isinstance(node.args[0], Node):
            return None
        narrow = self.env[node.args[0]]
        if not isinstance(narrow, Tensor) or narrow.window is not None or narrow.split is not None:
            return None
        wider = narrow.dtype.is_floating_point and narrow.dtype.itemsize < node.meta["val"].itemsize
        return narrow if wider and all(user.op != "output" for user in node.users) else None

    def _settle_source(self, t: Tensor) -> None:
        """Realise a source whose elements several readers would compute again."""
        if t.window is None and (t.work > costs.TRIVIAL_WORK or t.reads > costs.TRIVIAL_READS):
            self.ctx.realize(t)

    def _copy_(self, node: Any, target: Tensor, source: Tensor) -> Tensor:
        """Write an input in place. Whatever still waits to read the old value is computed first."""
        if not self.mutating:
            self.mutating = True
            self._settle_waiting(node)
        window = target.window
        assert window is not None
        if source.window == window:
            return target  # written there
        if source.window is not None and source.window.buffer is window.buffer:
            source = self.ctx.copy(source)
        dtypes = {target.dtype, source.dtype}
        if source.device != target.device or not dtypes <= COMPUTE_TYPES.keys():
            self.ctx.aten_copy(source, window)
            return target
        source = pointwise.convert(self.ctx, source, target.dtype)
        source = self.ctx.pointwise(lambda v: v, [source], source.dtype, work=0, size=target.size)
        self.ctx.overwrite(source, window)
        return target

    def _settle_waiting(self, copy: Any) -> None:
        """Realise the lazy values that a node after `copy` (another copy_ or the output) takes."""
        for node, value in list(self.env.items()):
            if all(user in self.env or user is copy for user in node.users):
                continue
            for t in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(t, Tensor) and t.window is None:
                    self.ctx.realize(t)


_SCATTERS = frozenset([aten.slice_scatter.default, aten.select_scatter.default])
_SLICES = frozenset([aten.slice.Tensor, aten.select.int])
_TURNS = frozenset([aten.permute.default, aten.view.default])


def _read_in_pieces(node: Any) -> bool | None:
    """Whether pieces of an assembled tensor are read more than once, None if the tensor is better
    in memory. Slices are pieces; what has a slice overwritten consists of the others.
    """
    slices = others = written = 0
    for user in node.users:
        if _is_written_to(user, node):
            written += 1
        elif user.target not in _SLICES:
            others += 1
        elif not all(_is_written_to(u, user) for u in user.users):
            slices += 1
    if others and not written:
        return None
    return slices + others > (0 if written else 1)


def _narrows_result(node: Any) -> bool:
    """Whether the node copies a wider value for the caller alone. At once, it ends the wider one's
    life; at the graph's end, all of a training step's gradients would lie in memory twice.
    """
    if node.target is not aten._to_copy.default or not node.users:
        return False
    wide, narrow = node.args[0], node.meta["val"].dtype
    of_tensor = isinstance(wide, Node)  # not of a number
    return of_tensor and wide.meta["val"].dtype.itemsize > narrow.itemsize and _ends(node)


def _ends(node: Any) -> bool:
    """Whether all that becomes of the node is the graph's results, or views of it that are."""
    return all(
        user.op == "output" or (user.target in _TURNS and _ends(user)) for user in node.users
    )


def _is_written_to(user: Any, node: Any) -> bool:
    """Whether a node is another one with a slice overwritten."""
    return user.target in _SCATTERS and user.args[0] is node and node not in user.args[1:]


class _Opaque:
    """A number that is no size. It may stand in the graph, if only sizes are computed from it."""

    def __init__(self, text: str) -> None:
        self.text = text


def _representable(args: Any, val: Any, more: Collection[torch.dtype]) -> bool:
    """Whether loops can hold every tensor involved: a kernel sees the memory of one device. more:
    types beside those of loops."""
    tensors = _tensors([args, val])
    if len({t.device for t in tensors}) > 1:
        return False
    for t in tensors:
        if t.dtype not in COMPUTE_TYPES and t.dtype not in more:
            return False
        if isinstance(t, torch.Tensor) and t.layout != torch.strided:
            return False
    return True


def _tensors(tree: Any) -> list[Any]:
    if isinstance(tree, (Tensor, torch.Tensor)):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [t for item in tree for t in _tensors(item)]
    if isinstance(tree, dict):
        return [t for item in tree.values() for t in _tensors(item)]
    return []


__all__ = ["lower_graph"]
