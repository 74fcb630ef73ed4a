"""Symbolic sizes for backends that trace graphs again with torch's own tools, as its AOT autograd.

Such tools make fake tensors of the example inputs, whose sizes are numbers: a graph for any size
would become one for the sizes of the first call. While such a backend runs, the tools find a fake
tensor with torch's symbols for each example; what they assume of these is assumed of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from fxgraph import GraphModule
from fxgraph.expressions import evaluate
from fxgraph.sym_node import SymNode
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbolic, layout_numbers
from fxgraph.symbols import ShapeEnv


def call_with_symbols(
    backend: Callable[[list[Any]], Any], gm: GraphModule, examples: Sequence[Any]
) -> Any:
    """backend(examples), with torch's symbols for ours, while its tools find the fake tensors.

    Not with numbers that have no value while compiling. Where the backend fails on symbolic floats,
    of which torch's inductor takes none, these become constants.
    """
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("val") for node in nodes]
    numbers = [number for value in values for number in layout_numbers(value)]
    if not numbers or any(map(depends_on_data, numbers)):
        return backend(list(examples))
    try:
        return _call(backend, values, numbers, examples)
    except Exception:
        floats = [number for number in numbers if isinstance(number, torch.SymFloat)]
        if not floats:
            raise
        for number in floats:
            number.node.shape_env.specialise(number)
        return _call(backend, values, numbers, examples)


def _call(
    backend: Callable[[list[Any]], Any],
    values: Sequence[Any],
    numbers: Sequence[Any],
    examples: Sequence[Any],
) -> Any:
    from torch._guards import TracingContext, tracing

    symbols = _Symbols(numbers)
    given = symbols.examples(values, examples)
    with tracing(TracingContext(symbols.mode)):
        compiled = backend(given)
    symbols.assume()
    return compiled


def _number_of(env: ShapeEnv, symbol: sympy.Symbol) -> Any:
    """The torch.SymInt or SymFloat of a symbol of ours."""
    if env.symbols[symbol].is_float:
        return torch.SymFloat(SymNode(symbol, env, float))
    return env.symint(symbol)


class _Symbols:
    """The symbols of a graph's inputs, ours and torch's."""

    def __init__(self, numbers: Sequence[Any]) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._torchs_env = ShapeEnv()
        self._our_env = numbers[0].node.shape_env
        self.mode = _fake_tensor_mode(self._torchs_env, self._fake_of)
        self._values: dict[int, torch.Tensor] = {}  # our fake tensors, by id of the example
        self._shared: set[int] = set()
        self._fakes: dict[int, torch.Tensor] = {}  # torch's, made when asked for
        self._torchs: dict[sympy.Symbol, Any] = {}  # the number, by our symbol
        self._ours: dict[sympy.Symbol, Any] = {}  # the number, by torch's symbol
        for number in numbers:
            for symbol in sorted(expr_of(number).free_symbols - self._torchs.keys(), key=str):
                self._make(symbol)

    def _make(self, symbol: sympy.Symbol) -> None:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        info, env = self._our_env.symbols[symbol], self._torchs_env
        source = ConstantSource(f"framegraph_{symbol}")
        if info.is_float and self._our_env.simplify(symbol).is_number:
            self._torchs[symbol] = info.hint
            return
        # No more is known of torch's symbol than of ours: 0 and 1 are as other numbers.
        made = env.create_symbol(
            info.hint,
            source,
            dynamic_dim=DimDynamic.DYNAMIC,
            positive=(info.low or 0) > 0 or None,
            do_not_specialize_zero_one=info.low is None or info.low < 2,
        )
        node_of = env.create_symfloatnode if info.is_float else env.create_symintnode
        self._torchs[symbol] = node_of(made, hint=info.hint, source=source)
        self._ours[made] = _number_of(self._our_env, symbol)

    def examples(self, values: Sequence[Any], examples: Sequence[Any]) -> list[Any]:
        """The examples of inputs with these fake tensors and numbers."""
        self._shared = _with_shared_memory(examples)
        given = []
        for value, real in zip(values, examples, strict=True):
            if is_symbolic(value):
                real = self._number(value)
            elif isinstance(real, torch.Tensor):
                self._values[id(real)] = value
            given.append(real)
        return given

    def _number(self, number: Any) -> Any:
        return evaluate(expr_of(number), self._torchs)

    def _fake_of(self, real: torch.Tensor) -> torch.Tensor | None:
        """The fake tensor with symbols for an example. None: it has none, and none are assumed to
        vary from here on.
        """
        value = self._values.get(id(real))
        varies = layout_numbers(value)
        if not varies:
            return None
        if type(real) not in _PLAIN or id(real) in self._shared:
            for number in varies:
                self._our_env.specialise(number)
            return None
        if id(real) not in self._fakes:
            self._fakes[id(real)] = self._fake(value, real)
        return self._fakes[id(real)]

    def _fake(self, value: Any, real: torch.Tensor) -> torch.Tensor:
        sizes, strides = map(self._number, value.shape), map(self._number, value.stride())
        with self.mode, torch.inference_mode(real.is_inference()):
            fake = torch.empty_strided(
                tuple(sizes), tuple(strides), dtype=value.dtype, device=value.device
            )
            return fake.requires_grad_(real.requires_grad)

    def assume(self) -> None:
        """Assume of our symbols what was assumed of torch's."""
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        env = self._torchs_env
        conditions = [guard.expr for guard in env.guards]
        conditions += [sympy.Eq(*pair, evaluate=False) for pair in env.replacements.items()]
        for condition in conditions:
            if condition.free_symbols <= self._ours.keys():
                bool(sympy_interp(PythonReferenceAnalysis, self._ours, condition))


def _fake_tensor_mode(env: Any, fake_of: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
    """A mode with the fake tensors of fake_of, and without symbols where that has none."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Rules of torch's control flow are for the class itself, and for no subclass.
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    of_any = mode.from_tensor

    def from_tensor(tensor: torch.Tensor, **settings: Any) -> Any:
        found = fake_of(tensor)
        if found is not None:
            return found
        return of_any(tensor, static_shapes=True, source=settings.get("source"))

    mode.from_tensor = from_tensor  # type: ignore[method-assign]
    return mode


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _with_shared_memory(examples: Sequence[Any]) -> set[int]:
    """The ids of tensors that share memory, or do not begin where theirs does."""
    plain = [one for one in examples if type(one) in _PLAIN]
    times = Counter(one.untyped_storage().data_ptr() for one in plain)
    return {
        id(one)
        for one in plain
        if times[one.untyped_storage().data_ptr()] > 1 or one.storage_offset()
    }
