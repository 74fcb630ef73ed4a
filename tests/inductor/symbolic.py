"""Functions compiled once, with symbols for sizes, and run with several: without frame capture.

The graphs are made here, operator by operator, so that what inductor does with symbols is tested
apart from what makes symbols.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fxgraph import expressions
from fxgraph.aot import decompositions
from fxgraph.aot.functional import FunctionalGraph, OutputSpec
from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule
from fxgraph.symbols import ShapeEnv
from fxgraph.torch_fx import fake_tensor_mode
from inductor.lowering.graph import LOWERINGS
from inductor.options import Options
from inductor.pipeline import Compilation, run_stages
from tests.inductor.compiling import clones, same_layout

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class _Recorder(TorchDispatchMode):
    """Records aten calls on fake tensors as nodes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.rules = decompositions.table(LOWERINGS)
        self.tensors: dict[int, Any] = {}
        self.held: list[Any] = []
        self.sizes: dict[Any, Any] = {}

    def note(self, value: Any, node: Any) -> None:
        node.meta["val"] = value
        self.held.append(value)
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = node
        elif isinstance(value, torch.SymInt):
            self.sizes[value.node.expr] = node
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                if item is not None:
                    part = self.graph.call_function(operator.getitem, (node, number))
                    self.note(item, part)

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensors[id(value)]
        if isinstance(value, torch.SymInt):
            if value.node.expr not in self.sizes:  # lowering reads meta["val"] alone
                self.note(value, self.graph.call_function(operator.add, (0, 0)))
            return self.sizes[value.node.expr]
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(func).startswith(("aten.sym_", "aten.size", "prim.")):
            return func(*args, **kwargs)
        rule = self.rules.get(func)
        if rule is None and func.has_kernel_for_dispatch_key(_COMPOSITE):
            rule = func.decompose
        if rule is not None:
            with self:
                taken_apart = rule(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        result = _padded(*args) if func is aten.constant_pad_nd.default else func(*args, **kwargs)
        given = {key: self.argument(value) for key, value in kwargs.items()}
        node = self.graph.call_function(func, tuple(map(self.argument, args)), given)
        self.note(result, node)
        return result


def _padded(x: torch.Tensor, pad: Sequence[Any], value: float = 0) -> torch.Tensor:
    """The fake result, which C++ cannot tell for sizes that are symbols."""
    shape = list(x.shape)
    for k in range(len(pad) // 2):
        shape[-1 - k] = shape[-1 - k] + pad[2 * k] + pad[2 * k + 1]
    return torch.empty(shape, dtype=x.dtype)


class Symbolic:
    """`fn` of tensors, returning a tuple, traced with a symbol for each size but 0 and 1 that
    `dynamic(argument, dim)` names; equal sizes are one symbol. `ints`: the plan takes their values
    besides the tensors."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[torch.Tensor],
        dynamic: Callable[[int, int], bool] = lambda argument, dim: True,
        ints: bool = True,
        data_dependent: bool = False,
    ) -> None:
        self.env = ShapeEnv()
        self.env.allow_scalar_outputs = data_dependent
        self.env.allow_dynamic_output_shape_ops = data_dependent
        self.graph = Graph()
        self.dynamic = dynamic
        self.ints = ints
        self.symbols: dict[int, torch.SymInt] = {}
        self.names: dict[int, Any] = {}  # of the same: as they were before anything was assumed
        mode = fake_tensor_mode(shape_env=self.env)
        mode.cache_enabled = False
        record = _Recorder(self.graph)
        self.sizes = [tuple(a.shape) for a in args]
        self.shapes = [self._shape(k, a) for k, a in enumerate(args)]
        if ints:
            for symbol in self.symbols.values():
                record.note(symbol, self.graph.placeholder(str(symbol.node.expr)))
        fakes = []
        for k, (a, size) in enumerate(zip(args, self.shapes)):
            with mode:
                fakes.append(torch.empty_strided(size, _strides(a, size), dtype=a.dtype))
            record.note(fakes[-1], self.graph.placeholder(f"x{k}"))
        with torch.no_grad(), mode, record:
            results = fn(*fakes)
        self.graph.output(tuple(map(record.argument, results)))
        self.graph.eliminate_dead_code()

    def _shape(self, k: int, tensor: torch.Tensor) -> list[Any]:
        shape: list[Any] = []
        for dim, size in enumerate(tensor.shape):
            if size < 2 or not self.dynamic(k, dim):
                shape.append(size)
                continue
            if size not in self.symbols:
                self.symbols[size] = self.env.new_symbol(size, f"x{k}.size({dim})")
                self.names[size] = self.symbols[size].node.expr
            shape.append(self.symbols[size])
        return shape

    def functional(self) -> FunctionalGraph:
        gm = GraphModule({}, self.graph)
        count = len(next(reversed(list(self.graph.nodes))).args[0])
        outputs = [OutputSpec("fresh", k) for k in range(count)]
        return FunctionalGraph(gm, outputs, [], list(range(count)), gm)

    def compile(self, until: str | None = None, **options: Any) -> Compilation:
        inputs = len(self.shapes) + len(self.symbols) * self.ints
        c = Compilation(None, [None] * inputs, [False] * inputs, Options.of(options))
        c.functional = self.functional()
        return run_stages(c, until=until)

    def arguments(self, args: Sequence[torch.Tensor]) -> list[Any]:
        """The plan's arguments: what the symbols are, then the tensors."""
        values = self.values(args)
        numbers = [values[name] for name in self.names.values()]
        return [*(numbers if self.ints else []), *args]

    def values(self, args: Sequence[torch.Tensor]) -> dict[Any, int]:
        return {
            self.names[was]: size
            for a, sizes in zip(args, self.sizes)
            for size, was in zip(a.shape, sizes)
            if was in self.names
        }

    def allows(self, args: Sequence[torch.Tensor]) -> bool:
        """Whether all that tracing assumed of sizes holds for these."""
        values = self.values(args)
        return all(expressions.evaluate(g.condition, values) for g in self.env.guards)


def _strides(tensor: torch.Tensor, size: Sequence[Any]) -> list[Any]:
    """The tensor's strides with symbols: each the product of the sizes inside it, where it is."""
    strides: list[Any] = list(tensor.stride())
    step, plain = 1, 1
    for dim in sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), -d)):
        if tensor.stride(dim) != plain:
            continue
        strides[dim] = step
        step, plain = step * size[dim], plain * tensor.shape[dim]
    return strides


def resized(
    args: Sequence[torch.Tensor],
    change: Callable[[int], int],
    dynamic: Callable[[int, int], bool] = lambda argument, dim: True,
) -> list[torch.Tensor]:
    """Tensors of other sizes (0 and 1 kept), in the same order of memory, of the same values."""
    made = []
    for k, a in enumerate(args):
        new = a
        for dim, size in enumerate(a.shape):
            if size > 1 and dynamic(k, dim):
                at = torch.arange(change(size)) % size
                new = new.index_select(dim, at)
        order = sorted(range(a.dim()), key=lambda d: (-a.stride(d), d))
        dense = new.permute(order).contiguous()
        made.append(dense.permute([order.index(d) for d in range(a.dim())]))
    return made


# Other sizes to run with: one off, prime, twice.
CHANGES: tuple[Callable[[int], int], ...] = (
    lambda n: n,
    lambda n: n + 1,
    lambda n: max(n - 1, 2),
    lambda n: 2 * n + 1,
)


def check(
    fn: Callable[..., Any],
    *args: torch.Tensor,
    rtol: float | None = None,
    atol: float | None = None,
    fallbacks: Sequence[str] = (),
    names: Sequence[str] = (),
    dynamic: Callable[[int, int], bool] = lambda argument, dim: True,
    changes: Sequence[Callable[[int], int]] = CHANGES,
    least: int = 1,
    **options: Any,
) -> Compilation:
    """One compile, several sizes: results beside eager's, as compiling.check does it. Sizes that
    break what tracing assumed are left out, but for `least` of them."""
    traced = Symbolic(fn, args, dynamic)
    c = traced.compile(**options)
    assert c.program is not None
    assert set(c.program.fallbacks) <= set(fallbacks), c.program.fallbacks
    if rtol is not None and atol is None:
        atol = 1e-5
    runs = 0
    for change in changes:
        now = resized(args, change, dynamic)
        if not traced.allows(now):
            continue
        runs += 1
        with torch.no_grad():
            expected, got = fn(*clones(now)), c.compiled(*traced.arguments(clones(now)))
        for number, (e, g) in enumerate(zip(expected, got, strict=True)):
            label = f"{names[number] if names else number} of {[tuple(a.shape) for a in now]}"
            if not isinstance(e, torch.Tensor):
                assert e == g, label
                continue
            assert (e.dtype, e.shape) == (g.dtype, g.shape), label
            assert e.numel() < 2 or same_layout(e, g), (label, e.stride(), g.stride())
            with _labelled(label):
                torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
    assert runs >= least, f"only {runs} sizes are allowed: {traced.env.guards}"
    return c


@contextlib.contextmanager
def _labelled(label: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{label}: {error}") from None
