"""The places of the ones in a vector, mask.nonzero(), of which nobody knows how many there are.

Such places serve `for` loops over them (interp/loops_on_places.py), which may as well run for all
places. For anything else their number has to be known: then the next attempt takes nonzero() as an
operation whose result's size is data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo import breaks
from dynamo.bytecode import normalize
from dynamo.plans import BreakBefore, Retry
from dynamo.values.base import Value
from dynamo.values.containers.containers import TupleValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.memory_overlap import version_of
from dynamo.values.tensors.tensor import TensorValue, call_in_graph
from dynamo.values.tensors.tensor_functions import function_and_method

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph

_ROWS, _NUMBERS, _INTS = "rows", "numbers", "ints"  # items: tensors [i], tensors i, ints


class DeferredPlaces(Value):
    """step: of the instruction that asked for them. form: of the items."""

    def __init__(
        self,
        output: OutputGraph,
        mask: TensorValue,
        step: int,
        broken: BreakBefore,
        form: str = _ROWS,
        is_iterator: bool = False,
    ) -> None:
        super().__init__()
        self.output = output
        self.mask = mask
        self.step = step
        self.broken = broken
        self.form = form
        self.is_iterator = is_iterator
        self.version = version_of(mask.fake)
        # A tensor whose elements are the numbers of the ones.
        self.numbered: TensorValue | None = None

    def refuse(self) -> NoReturn:
        raise Retry(self.output.plan.skipping(self.step))

    def _like(self, form: str, is_iterator: bool = False) -> DeferredPlaces:
        made = DeferredPlaces(self.output, self.mask, self.step, self.broken, form, is_iterator)
        made.version, made.numbered = self.version, self.numbered
        return made

    def numbers(self) -> DeferredPlaces:
        """The same, in a vector."""
        return self._like(_NUMBERS)

    def numbers_in(self, tensor: TensorValue) -> DeferredPlaces:
        """The same, of a mask that says which numbers are in a tensor."""
        made = self.numbers()
        made.numbered = tensor
        return made

    def is_current(self) -> bool:
        """The mask is still as it was."""
        return version_of(self.mask.fake) == self.version

    def item(self, tx: Interpreter, place: int) -> Value:
        """The item that a loop is given for a place."""
        if self.form == _INTS:
            return ConstantValue(place)
        data = place if self.form == _NUMBERS else [place]
        fake = self.mask.fake
        with tx.output.fake_mode:
            made = torch.tensor(data, device=fake.device)
        kwargs = {} if fake.device.type == "cpu" else {"device": fake.device}
        node = tx.output.create_node("call_function", torch.tensor, (data,), kwargs, made, tx)
        tx.output.known_tensors.hold(made, torch.tensor(data))
        return tx.output.tensor_value(node, made, TensorValue)

    def python_type(self) -> type:
        if self.form == _INTS:
            return list
        return torch.Tensor

    def children(self) -> Sequence[Value]:
        return (self.mask,)

    def is_constant(self) -> bool:
        return False

    def describe(self) -> str:
        return f"the places in {self.mask.describe()}"

    def iterate(self, tx: Interpreter) -> Value:
        return self if self.is_iterator else self._like(self.form, True)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if self.is_iterator or name not in _METHODS or self.form == _INTS:
            self.refuse()
        return _PlacesMethod(self, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        given = [arg.as_constant() for arg in args if arg.is_constant()]
        fits = not kwargs and len(given) == len(args) and not self.is_iterator
        flat = self.form == _NUMBERS
        if fits and not flat and (name, given) in _FLATTENING:
            return self.numbers()
        if fits and flat and (name, given) == ("tolist", []):
            return self._like(_INTS)
        self.refuse()


_FLATTENING = (
    [(name, [-1]) for name in ("squeeze", "view", "reshape")]
    + [("squeeze", [1]), ("flatten", []), ("ravel", [])]
)  # fmt: skip
_METHODS = frozenset([*(name for name, _ in _FLATTENING), "tolist"])


class _PlacesMethod(Value):
    """places.method, not yet called."""

    def __init__(self, places: DeferredPlaces, name: str) -> None:
        super().__init__()
        self.places = places
        self.name = name

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.places.call_method(tx, self.name, args, kwargs)

    def children(self) -> Sequence[Value]:
        return (self.places,)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: DeferredPlaces, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse()

    refuse.__name__ = name
    return refuse


# Whatever else is asked of them needs their number.
for _name in (
    ["as_constant", "as_proxy", "identity", "setattr", "delattr", "hasattr", "call", "truth"]
    + ["truth_value", "deferred_truth", "length", "length_value", "getitem", "setitem", "delitem"]
    + ["next_value", "binary", "compare", "unary", "contains", "hash_key", "hash_key_by_identity"]
    + ["unpack", "recipe", "fill", "forwards", "tail_call"]
):
    setattr(DeferredPlaces, _name, _refusing(_name))


def deferrable(tx: Interpreter, size: Any) -> bool:
    """Whether a loop over the places of a vector of this size may be all that is interested."""
    output = tx.output
    if output.trial is not None or output.tensors_override or output.context.export:
        return False
    if type(size) is not int or size == 0 or tx.began in output.plan.skipped_regions:
        return False
    loops = any(instr.op == "FOR_ITER" for instr in normalize(tx.code)[tx.index :])
    return loops and output.symbols.data.has_room_in_loop(size)


def deferred_places(tx: Interpreter, mask: Value) -> DeferredPlaces | None:
    """The places of the ones in a vector, if a loop may be all that is interested."""
    output = tx.output
    if type(mask) is not TensorValue or mask.fake.ndim != 1:
        return None
    if (
        not deferrable(tx, mask.fake.shape[0])
        or output.known_tensors.real_of(mask.fake) is not None
    ):
        return None
    broken = output.checks.breaking_at(tx, breaks.DynamicShapeOp("nonzero"))
    return DeferredPlaces(output, mask, tx.began, broken)


@function_and_method("nonzero")
def fold_nonzero(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.nonzero and torch.argwhere."""
    as_tuple = kwargs.get("as_tuple", ConstantValue(False))
    plain = as_tuple.is_constant() and type(as_tuple.as_constant()) is bool
    known = frozenset() if target is torch.argwhere else frozenset(["as_tuple"])
    if len(args) == 1 and plain and kwargs.keys() <= known:
        found = deferred_places(tx, args[0])
        if found is not None:
            return TupleValue([found.numbers()]) if as_tuple.as_constant() else found
    return call_in_graph(tx, op, target, args, kwargs)
