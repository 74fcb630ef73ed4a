"""Random numbers of Python and numpy: the rewritten frame draws them, natively and in the program's
order, before it calls the graph, and they are inputs of the graph.

A number is a symbol without a value (fxgraph/symbols.py): captured code computes with it, and
breaks where it asks which number it is. An array is a graph input as any other. Only literal
arguments are taken, so that the draw is the same one in every call; where a bound varies, the graph
breaks, unless it must not (fullgraph=True).

A clock that is read before the first operation on tensors is such a number. Behind an operation it
tells how long that took, and breaks the graph.
"""

from __future__ import annotations

import functools
import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.history import VARIES
from dynamo.guards.sources import AttrSource, MadeSource, ModuleSource, Source
from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.builder import special_builder
from dynamo.values.builtins.table import TABLE, BuiltinValue, callable_name
from dynamo.values.effects.hoisted_modules import HoistedCall, can_be_first
from dynamo.values.objects.exceptions import call_real
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars.constant import ConstantValue, is_literal
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from fxgraph.seeds import RNG_STATE_SIZE, get_rng_state, manual_seed, set_rng_state

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Methods of random.Random that are drawn whole: their results depend on arguments alone.
_FLOATS = ["random", "uniform", "triangular", "betavariate", "expovariate", "gammavariate"]
_FLOATS += ["gauss", "lognormvariate", "normalvariate", "vonmisesvariate", "paretovariate"]
_FLOATS += ["weibullvariate"]
_INTS = ["randint", "randrange", "getrandbits"]
# Methods that read or change the program's objects: a graph break at the whole call.
_OPAQUE = ["choices", "sample", "shuffle", "randbytes", "getstate", "setstate"]
# Functions of numpy.random's one generator.
OF_NUMPY = ["rand", "randn", "random", "random_sample", "uniform", "normal"]
OF_NUMPY += ["standard_normal", "randint", "exponential", "standard_exponential", "gamma", "beta"]
OF_NUMPY += ["laplace", "logistic", "lognormal", "poisson", "binomial", "geometric", "chisquare"]
OF_NUMPY += ["permutation", "triangular", "rayleigh", "weibull", "pareto", "gumbel", "choice"]
_LARGEST = 2**62
_SEED_BITS = 62  # torch has 64, more than a symbol holds
_TORCHS = ("torch.manual_seed", "torch.random.manual_seed")
_CLOCKS = ["time", "perf_counter", "monotonic", "process_time", "thread_time"]


class Draw:
    """generator.name(*args, **kwargs), of the generator that is given."""

    def __init__(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.__name__ = name

    def __call__(self, generator: Any) -> Any:
        return getattr(generator, self.name)(*self.args, **self.kwargs)

    def bounds(self) -> tuple[int, int] | None:
        """Of the ints that are drawn, both included; None: not known."""
        if self.kwargs:
            return None
        if self.name == "randint" and len(self.args) == 2:
            return self.args[0], self.args[1]
        if self.name == "choice":
            if isinstance(self.args[0], int):  # numpy's, of range(n)
                return 0, self.args[0] - 1
            return min(self.args[0]), max(self.args[0])
        if self.name == "randrange":
            numbers = range(*self.args)
            return min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        if self.name.endswith("_ns"):
            return 0, _LARGEST - 1
        return (0, 2 ** self.args[0] - 1) if self.name == "getrandbits" else None


def drawn(
    tx: Interpreter,
    owner: str,
    name: str,
    stand_in: Any,
    function: Callable[[Draw], HoistedCall],
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value:
    refused = Unsupported(breaks.UncapturedCall(f"{owner}.{name}"))
    output = tx.output
    if output.bodies or output.context.export or not output.symbols.allowed:
        raise refused
    varies = any(value.is_symbolic() for value in (*args, *kwargs.values()))
    if varies and not output.context.fullgraph:
        raise refused  # each bound of a draw would be a compilation
    try:
        known = [v.as_constant() for v in args], {k: v.as_constant() for k, v in kwargs.items()}
    except Unsupported:
        raise refused from None
    if name == "choice" and type(known[0][0]) is list:
        known[0][0] = tuple(known[0][0])
    if not is_literal((*known[0], *known[1].values())) or not _of_one_type(name, *known[0]):
        raise refused
    draw = Draw(name, *known)
    try:
        example = draw(stand_in)
    except Exception:  # raised where the program asks for it
        raise refused from None
    bounds = draw.bounds() if type(example) is int else None
    if type(example) not in (float, int, np.ndarray, type(None)):
        raise refused
    if type(example) is int and (bounds is None or max(map(abs, bounds)) >= _LARGEST):
        raise refused
    output.checks.numbers_drawn(tx)
    output.hoisted_calls.append(function(draw))
    output.side_effects.touch()
    if example is None:
        return ConstantValue(None)
    source = MadeSource(len(output.hoisted_calls) - 1)
    if isinstance(example, np.ndarray):
        return tx.wrap(example, source)
    low, high = bounds or (None, None)
    number = output.symbols.drawn(type(example), low, high, source)
    return SymbolValue(output, number, source)


def _of_one_type(name: str, *args: Any) -> bool:
    """Whether the type of the chosen number is known."""
    if name != "choice" or type(args[0]) is int:
        return True
    kinds = {type(item) for item in args[0]} if type(args[0]) is tuple else set()
    return kinds in ({int}, {float})


def _of_generator(name: str) -> Callable[..., Value]:
    """A method of a random.Random from outside."""

    def draw(tx: Interpreter, generator: Value, *args: Value, **kwargs: Value) -> Value:
        source = generator.source
        if not _is_plain(generator) or source is None:
            raise Unsupported(breaks.UncapturedCall(f"Random.{name}"))

        def call(draw: Draw) -> HoistedCall:
            return HoistedCall(draw, source)

        return drawn(tx, "Random", name, random.Random(0), call, args, kwargs)

    return draw


def _is_plain(generator: Value) -> bool:
    return isinstance(generator, ObjectValue) and generator.cls is random.Random


def _of_numpy(name: str) -> Callable[..., Value]:
    """A function of numpy.random."""
    function = getattr(np.random, name)

    def call(draw: Draw) -> HoistedCall:
        return HoistedCall(functools.partial(function, *draw.args, **draw.kwargs))

    def draw(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        stand_in = np.random.RandomState(0)
        return drawn(tx, "numpy.random", name, stand_in, call, args, kwargs)

    return draw


def _refuse_behind_operations(tx: Interpreter, name: str) -> None:
    """A clock behind an operation on tensors tells how long that took."""
    if any(node.op.startswith("call_") for node in tx.output.graph.nodes):
        raise Unsupported(breaks.UncapturedCall(name))


def _clock(name: str) -> Callable[..., Value]:
    def read(tx: Interpreter, *args: Value) -> Value:
        _refuse_behind_operations(tx, f"time.{name}")

        def call(draw: Draw) -> HoistedCall:
            return HoistedCall(functools.partial(draw, time))

        return drawn(tx, "time", name, time, call, args, {})

    return read


def hoist_clock(tx: Interpreter, read: Callable[[], Any], name: str) -> MadeSource:
    """read(), before the graph."""
    _refuse_behind_operations(tx, name)
    return _hoisted(tx, HoistedCall(read), name)


def maker_of(cls: Callable[..., Any]) -> Callable[..., Value]:
    """cls(seed), a generator that is made before the graph."""

    def make(tx: Interpreter, *seed: Value) -> Value:
        example = call_real(tx, cls, *(value.as_constant() for value in seed))
        return tx.wrap(example, hoist(tx, cls, *seed))

    return make


def hoist(tx: Interpreter, function: Callable[..., Any], *args: Value) -> MadeSource:
    """function(*args), which makes or seeds a generator, before the graph: of a number that
    varies, or of literals.
    """
    varies = len(args) == 1 and args[0].is_symbolic() and args[0].source is not None
    literal = all(value.is_constant() and is_literal(value.as_constant()) for value in args)
    name = callable_name(function)
    if not (varies or literal):
        raise Unsupported(breaks.UncapturedCall(name))
    if varies:
        return _hoisted(tx, HoistedCall(function, args[0].source), name)
    given = (value.as_constant() for value in args)
    return _hoisted(tx, HoistedCall(functools.partial(function, *given)), name)


def _hoisted(tx: Interpreter, call: HoistedCall, name: str) -> MadeSource:
    output = tx.output
    if output.bodies or output.context.export:
        raise Unsupported(breaks.UncapturedCall(name))
    # Behind a failed check, a frame sets back the numbers of torch, on its own devices.
    if name not in _TORCHS or torch.accelerator.is_available():
        output.checks.numbers_drawn(tx)
    output.hoisted_calls.append(call)
    output.side_effects.touch()
    return MadeSource(len(output.hoisted_calls) - 1)


def _fits(seed: Value) -> bool:
    """Whether a seed, if it is a known number, is one that an operator takes."""
    return not seed.is_constant() or -(2**63) <= int(seed.as_constant()) < 2**63


def _manual_seed(tx: Interpreter, seed: Value) -> Value:
    """torch.manual_seed: before the graph where no random number comes first, or in the graph."""
    output = tx.output
    inside = output.bodies or output.context.export or output.has_overrides
    inside = inside or not _fits(seed)  # torch refuses it
    first = can_be_first(tx, None)
    # Both run before a lock is let go, and torch takes those of its devices.
    locked = bool(output.side_effects.locks)
    if not seed.python_type_is(int) or (inside and not first) or locked:
        raise Unsupported(breaks.UncapturedCall("torch.manual_seed"))
    _let_vary(tx, seed)
    computed = seed.is_symbolic() and seed.source is None
    if first and (inside or not computed):
        hoist(tx, torch.manual_seed, seed)
    else:
        output.create_node("call_function", manual_seed, (seed.as_proxy(),), {}, None, tx)
        output.side_effects.touch()
    return tx.wrap(torch.default_generator, AttrSource(ModuleSource("torch"), "default_generator"))


def _seed(tx: Interpreter) -> Value:
    """torch.seed: its seed, which nobody can foresee, is drawn before the graph."""
    output = tx.output
    _refuse_states(tx, "torch.seed")
    if not output.symbols.allowed or output.side_effects.locks:
        raise Unsupported(breaks.UncapturedCall("torch.seed"))
    output.hoisted_calls.append(HoistedCall(functools.partial(secrets.randbits, _SEED_BITS)))
    source = MadeSource(len(output.hoisted_calls) - 1)
    seed = SymbolValue(output, output.symbols.drawn(int, 0, 2**_SEED_BITS - 1, source), source)
    _manual_seed(tx, seed)
    return seed


def _get_rng_state(tx: Interpreter) -> Value:
    _refuse_states(tx, "torch.get_rng_state")
    tx.output.side_effects.touch()
    return call_in_graph(tx, "call_function", get_rng_state, [], {})


def _set_rng_state(tx: Interpreter, new_state: Value) -> Value:
    """torch.set_rng_state of what may be a state of the CPU's generator."""
    _refuse_states(tx, "torch.set_rng_state")
    if not (isinstance(new_state, TensorValue) and _may_be_state(new_state.fake)):
        raise Unsupported(breaks.UncapturedCall("torch.set_rng_state"))
    tx.output.side_effects.touch()
    return call_in_graph(tx, "call_function", set_rng_state, [new_state], {})


def _may_be_state(fake: torch.Tensor) -> bool:
    """Whether torch may take a tensor for a state of the CPU's generator."""
    fits = type(fake) is FakeTensor and fake.device.type == "cpu" and fake.dtype is torch.uint8
    return fits and fake.is_contiguous() and fake.numel() == RNG_STATE_SIZE


def _refuse_states(tx: Interpreter, name: str) -> None:
    output = tx.output
    if output.bodies or output.context.export or output.has_overrides:
        raise Unsupported(breaks.UncapturedCall(name))


def _let_vary(tx: Interpreter, seed: Value) -> None:
    """Have the next attempt take a symbol for a seed from outside."""
    symbols, source = tx.output.symbols, seed.source
    if not seed.is_constant() or source is None or not symbols.automatic:
        return
    if symbols.seen.numbers.get(source.name) in (None, VARIES):
        return
    symbols.seen.numbers[source.name] = VARIES
    symbols.seen.why[source.name] = "seeds vary"
    raise Retry(tx.output.plan.anew("a seed is a number that varies"))


def _broken(name: str) -> Callable[..., Value]:
    def refuse(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        raise Unsupported(breaks.UncapturedCall(name))

    return refuse


def _register() -> None:
    for name in (*_FLOATS, *_INTS, "seed", "choice"):
        TABLE[getattr(random.Random, name)] = _of_generator(name)
    for name in _OPAQUE:
        TABLE[getattr(random.Random, name)] = _broken(f"Random.{name}")
    for name in (*_CLOCKS, *(f"{name}_ns" for name in _CLOCKS)):
        TABLE[getattr(time, name)] = _clock(name)
    TABLE[random.Random] = maker_of(random.Random)
    TABLE[torch.random.manual_seed] = _manual_seed
    TABLE[torch.random.seed] = _seed
    TABLE[torch.get_rng_state] = _get_rng_state
    TABLE[torch.set_rng_state] = _set_rng_state
    for name in (*OF_NUMPY, "seed"):
        function = getattr(np.random, name)
        TABLE[function] = _of_numpy(name)
        _numpys[id(function)] = function


_numpys: dict[int, Any] = {}  # by id: most are methods, bound to numpy's one generator
_register()


@special_builder(lambda obj: id(obj) in _numpys)
def build_numpy_draw(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, BuiltinValue(obj, source))
