"""Tensors: a Node of the graph with a FakeTensor that knows shape, dtype, device and gradient
flag.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    UnsupportedFakeTensorException,
)

from dynamo import breaks
from dynamo.bytecode.branches import is_compared_with_none
from dynamo.errors import Unsupported
from dynamo.guards.classes import MISSING
from dynamo.guards.sources import AttrSource, CallSource, Source
from dynamo.values import late_bound
from dynamo.values.base import Value, is_none
from dynamo.values.builder import subclass_builder
from dynamo.values.classes.lookup import class_lookup, type_holds
from dynamo.values.functions.monkey_patches import (
    call_replacement,
    changed_function,
    is_original,
    refuse_replacement,
    replacement,
)
from dynamo.values.objects.descriptors import bind
from dynamo.values.objects.exceptions import call_handler, raise_python
from dynamo.values.objects.reflection import no_attribute
from dynamo.values.recipes import Attribute, GraphOutput, Recipe
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.operators import (
    BINARY_FUNCTIONS,
    COMPARE_DUNDERS,
    COMPARE_FUNCTIONS,
    UNARY_DUNDERS,
    UNARY_FUNCTIONS,
    binary_dunder,
)
from dynamo.values.tensors.autograd_state import OF_HISTORY, assume_history, read_version
from dynamo.values.tensors.fake_calls import run_fake
from dynamo.values.tensors.operands import number_of_operand
from dynamo.values.tensors.tensor_calls import (
    OF_FAKES,
    arguments_as_numbers,
    changes_something,
    check_layouts,
    check_usable,
    holds_tensor,
    is_plain,
    keeps_form,
    refuse_odd_inference,
    refuse_odd_memory,
    sparse_form,
    target_name,
    writes,
)
from fxgraph import Node
from fxgraph.symbolic_values import depends_on_data, is_symbolic
from fxgraph.tensor_state import set_data_

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.plans import BreakBefore

# Attributes that follow from the FakeTensor's metadata.
METADATA_ATTRIBUTES = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "ndim",
        "requires_grad",
        "layout",
        "itemsize",
        "nbytes",
        "names",
        "is_leaf",
        "retains_grad",
        "output_nr",
        "is_cpu",
        "is_cuda",
        "is_meta",
        "is_mps",
        "is_mkldnn",
        "is_nested",
        "is_quantized",
        "is_sparse",
        "is_sparse_csr",
        "is_xla",
        "is_xpu",
        "is_vulkan",
    ]
)
# Attributes by which two tensors of one value can be told apart.
_OF_OBJECT = frozenset(
    [
        "is_leaf",
        "grad_fn",
        "retains_grad",
        "grad",
        "_grad",
        "data",
        "_version",
        "_base",
        "output_nr",
    ]
)
# Attributes that are tensor operations.
TENSOR_ATTRIBUTES = frozenset(["T", "mT", "H", "mH", "data", "real", "imag"])
# Methods that need the values of the tensor, or hand it to code outside the graph.
VALUE_METHODS = frozenset(
    [
        "item",
        "tolist",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__complex__",
        "__format__",
        "__repr__",
        "__str__",
        "__hash__",
    ]
)
ESCAPING_METHODS = frozenset(
    [
        "data_ptr",
        "const_data_ptr",
        "mutable_data_ptr",
        "storage",
        "untyped_storage",
        "share_memory_",
        "is_shared",
        "pin_memory",
        "record_stream",
        "__dlpack__",
        "__reduce_ex__",
        "__deepcopy__",
        "apply_",
        "map_",
        "to_sparse",
        "coalesce",
        "is_coalesced",
    ]
)
# In place, on the tensor itself: autograd's state and the storage are changed natively.
METADATA_METHODS = frozenset(["set_", "requires_grad_", "detach_"])
NUMPY_METHODS = frozenset(["numpy", "__array__"])


class TensorValue(Value):
    """A tensor. `node` computes it in the graph; `fake` stands for it while capturing.

    `real` is the tensor itself where it came from outside (attributes that users hung on it are
    read there).
    """

    is_deferred = True

    def __init__(self, node: Node, fake: torch.Tensor, source: Source | None = None) -> None:
        super().__init__(source)
        self.node = node
        self.fake = fake
        self.real: torch.Tensor | None = None

    def python_type(self) -> type:
        if self.real is not None:
            return type(self.real)
        return torch.nn.Parameter if isinstance(self.fake, torch.nn.Parameter) else torch.Tensor

    def as_proxy(self) -> Node:
        return self.node

    def history(self) -> Any:
        """The function of autograd behind the tensor; None where autograd refuses to tell, since a
        view or its base has been written.
        """
        try:
            return self.fake.grad_fn
        except RuntimeError:
            return None

    def describe(self) -> str:
        where = f" {self.source.name}" if self.source is not None else ""
        return f"tensor{where} of shape {tuple(self.fake.shape)}"

    # -- attributes and methods -----------------------------------------------------------------
    def getattr(self, tx: Interpreter, name: str) -> Value:
        stored = tx.output.side_effects.load_attr(self, name)
        if isinstance(stored, Value):
            return stored
        if self.may_be_another and (name in _OF_OBJECT or not type_holds(torch.Tensor, name)):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        replaced = replacement(tx, name, self.python_type())
        if replaced is not MISSING:
            return self._bound(tx, name, replaced)
        if tx.output.modes.asked and not callable(getattr(self.python_type(), name, None)):
            operands = [self, ConstantValue(name)]
            dispatched = late_bound.dispatch(tx, "call_function", getattr, operands, {})
            if dispatched is not None:
                return dispatched
        if name in OF_HISTORY and self.fake.requires_grad:
            assume_history(tx, self, name)
        if name == "nbytes" and self.fake.layout is torch.strided:  # torch's refuses symbols
            return tx.wrap(self.fake.numel() * self.fake.itemsize)
        if name in METADATA_ATTRIBUTES and hasattr(self.fake, name):
            told = getattr(self.fake, name)
            # Each read makes another object.
            return tx.wrap(torch.device(told) if name == "device" else told)
        if name.startswith("is_") and isinstance(flag := getattr(self.fake, name, None), bool):
            return ConstantValue(flag)
        if name in TENSOR_ATTRIBUTES:
            return call_in_graph(tx, "call_function", getattr, [self, ConstantValue(name)], {})
        if name == "__class__":
            return tx.wrap(self.python_type(), None)
        if name == "grad_fn" and self.fake.grad_fn is None:
            return ConstantValue(None)
        read = name == "grad_fn" and tx.current.op == "LOAD_ATTR" and not tx.output.bodies
        if read and is_compared_with_none(tx.code, tx.current):
            return ConstantValue(True)  # stands for the function, which is dropped at once
        if name in ("grad", "_grad"):
            return self._grad(tx)
        if name == "_version":
            return read_version(tx, self)
        on_class = type_holds(self.python_type(), name)
        if on_class and callable(getattr(self.python_type(), name)):
            return TensorMethodValue(self, name)
        return self._own_attribute(tx, name, on_class)

    def _bound(self, tx: Interpreter, name: str, found: Any) -> Value:
        """The attribute that a program has put into the class."""
        if is_original(found):  # torch.Tensor.relu = torch.Tensor.sigmoid
            return TensorMethodValue(self, found.__name__)
        return bind(tx, self, found, name)

    def _grad(self, tx: Interpreter) -> Value:
        if self.real is not None and self.source is not None:
            with torch._C.DisableTorchFunctionSubclass():
                real = self.real.grad
            return tx.wrap(real, AttrSource(self.source, "grad"))
        if not self.fake.requires_grad or self.fake.is_leaf or self.fake.retains_grad:
            return ConstantValue(None)
        raise Unsupported(breaks.AttributeAccess(self.describe(), "grad"))

    def _own_attribute(self, tx: Interpreter, name: str, on_class: bool) -> Value:
        if (
            self.real is not None
            and self.source is not None
            and name in getattr(self.real, "__dict__", ())
        ):
            return tx.wrap(self.real.__dict__[name], AttrSource(self.source, name))
        if on_class:
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        if self.source is not None:
            tx.guard(self.source, "has_attr", (name, False))
        no_attribute(tx, self.python_type(), name)

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        """`grad`, and attributes that users hang on a tensor, are stored when the frame ends."""
        if type_holds(torch.Tensor, name) and late_bound.is_watched(tx, [self]):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        if name == "requires_grad":
            call_in_graph(tx, "call_method", "requires_grad_", [self, value], {})
            return
        if name == "data" and isinstance(value, TensorValue):
            self._set_data(tx, value)
            return
        on_class = type_holds(self.python_type(), name)
        grad = name == "grad" and self._may_be_grad(value)
        if (on_class and not grad) or (self.source is None and self.real is not None):
            raise Unsupported(breaks.AttributeMutation(self.describe(), name))
        effects = tx.output.side_effects
        if self.mutation is None and self.real is None:
            effects.track_new(self)
        elif self.mutation is None:
            effects.track_existing(self)
        effects.store_attr(self, name, value)

    def _set_data(self, tx: Interpreter, value: TensorValue) -> None:
        """self.data = value."""
        if value is self:  # module.to(...) that changes nothing
            return
        mine, other = self.fake, value.fake
        same = (mine.device, mine.layout) == (other.device, other.layout)
        if not same or type(self) is not TensorValue or type(value) is not TensorValue:
            raise Unsupported(breaks.AttributeMutation(self.describe(), "data"))
        varies = tensor_has_symbols(other) and not tensor_has_symbols(mine)  # not to be asked
        if not varies and _form(mine) == _form(other):
            call_in_graph(tx, "call_function", set_data_, [self, value], {})
        else:
            self._take_form(tx, value)

    def _take_form(self, tx: Interpreter, value: TensorValue) -> None:
        """self.data = value, of another dtype or other sizes: the same object with the node of the
        assignment, since the form of the node before is that of the graph's input.
        """
        mine, other = self.fake, value.fake
        # Symbols of its sizes are read from the tensor itself, also behind the assignment.
        symbols = tensor_has_symbols(mine) or any(map(depends_on_data, other.shape))
        fits = mine.is_leaf and not mine.retains_grad and not mine.is_inference()
        fits = fits and (not mine.requires_grad or other.dtype.is_floating_point)
        # Nodes of autograd expect gradients of the shape before.
        fits = fits and (not (mine.requires_grad and self.node.users) or mine.shape == other.shape)
        if not fits or symbols or tx.output.bodies or tx.output.has_overrides:
            raise Unsupported(breaks.AttributeMutation(self.describe(), "data"))
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass(), tx.output.fake_mode:
            fake = other.detach()
        if isinstance(mine, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, mine.requires_grad)
        else:
            fake.requires_grad_(mine.requires_grad)
        nodes = (self.node, value.node)
        self.node = tx.output.create_node("call_function", set_data_, nodes, {}, fake, tx)
        tx.output.adopt(fake, self)
        tx.output.side_effects.tensor_written()
        tx.output.known_tensors.forget()

    def _may_be_grad(self, value: Value) -> bool:
        """Whether autograd takes `value` as the gradient of this tensor: a leaf, or one that keeps
        its gradient.
        """
        is_leaf = self.fake.is_leaf if self.real is None else self.real.is_leaf
        if not (is_leaf or self.fake.retains_grad):
            return False
        if not isinstance(value, TensorValue):
            return is_none(value)
        mine, other = self.fake, value.fake
        same = (mine.shape, mine.dtype, mine.device) == (other.shape, other.dtype, other.device)
        return same and value is not self and other.layout is torch.strided

    def hasattr(self, tx: Interpreter, name: str) -> bool:
        if isinstance(tx.output.side_effects.load_attr(self, name), Value):
            return True
        if name in TENSOR_ATTRIBUTES:
            return True
        if self.real is not None:
            present = hasattr(self.real, name)
            if not type_holds(type(self.real), name):
                tx.guard(self.source, "has_attr", (name, present))
            return present
        if name not in METADATA_ATTRIBUTES and self._computes(name):
            raise Unsupported(breaks.AttributeAccess(self.describe(), name))
        return type_holds(self.python_type(), name)

    def _computes(self, name: str) -> bool:
        """Whether Python code of torch's says if there is such an attribute."""
        return type(class_lookup(self.python_type(), name)) is property

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        replaced = replacement(tx, name, self.python_type())
        if replaced is not MISSING:
            return self._bound(tx, name, replaced).call(tx, args, kwargs)
        if tx.output.modes.asked and name != "__iter__":
            dispatched = late_bound.dispatch(tx, "call_method", name, [self, *args], kwargs)
            if dispatched is not None:
                return dispatched
        if name in READ_METHODS and not args and not kwargs:
            number = READ_METHODS[name](tx, self)
            if number is not None:
                return number
        special = SPECIAL_METHODS.get(name)
        if special is not None:
            return call_handler(tx, name, special, [self, *args], kwargs) or ConstantValue(None)
        if name in VALUE_METHODS:
            raise Unsupported(breaks.DataDependentValue(f"Tensor.{name}()"))
        if name in NUMPY_METHODS:
            raise Unsupported(breaks.NumpyConversion(f"Tensor.{name}()"))
        if name in ESCAPING_METHODS:
            raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}()"))
        if not type_holds(self.python_type(), name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        return call_in_graph(tx, "call_method", name, [self, *args], kwargs)

    def call_inherited(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        """torch.Tensor's method of this name, past any override of a subclass."""
        return self.call_method(tx, name, args, kwargs)

    # -- operators ------------------------------------------------------------------------------
    def binary(self, tx: Interpreter, op: str, other: Value, reflected: bool) -> Value | None:
        made = call_replacement(tx, self, binary_dunder(op, reflected), [other])
        if made is not None:
            refused = made.is_constant() and made.as_constant() is NotImplemented
            return None if refused else made
        other = number_of_operand(other, self.fake.dtype, op)
        if op[0] == "*" and other.python_type_is(list, tuple):  # a sequence, so often repeated
            raise Unsupported(breaks.UncapturedCall("a sequence's operator *"))
        known = isinstance(other, TensorValue) or other.is_constant() or other.is_symbolic()
        if not (known or other.alternatives):
            return None
        operands = [other, self] if reflected else [self, other]
        return call_in_graph(tx, "call_function", BINARY_FUNCTIONS[op], operands, {})

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        made = call_replacement(tx, self, COMPARE_DUNDERS[op], [other])
        if made is not None:
            refused = made.is_constant() and made.as_constant() is NotImplemented
            return None if refused else made
        other = number_of_operand(other, self.fake.dtype)
        if not (isinstance(other, TensorValue) or other.is_constant() or other.is_symbolic()):
            return None
        return call_in_graph(tx, "call_function", COMPARE_FUNCTIONS[op], [self, other], {})

    def unary(self, tx: Interpreter, op: str) -> Value:
        made = call_replacement(tx, self, UNARY_DUNDERS[op], [])
        if made is not None:
            return made
        return call_in_graph(tx, "call_function", UNARY_FUNCTIONS[op], [self], {})

    def contains(self, tx: Interpreter, item: Value) -> Value:
        made = call_replacement(tx, self, "__contains__", [item])
        if made is not None:
            return made
        raise Unsupported(breaks.DataDependentValue("item in tensor"))

    # -- items ----------------------------------------------------------------------------------
    def truth(self, tx: Interpreter) -> bool:
        refuse_replacement(tx, self, "__bool__")
        known = self._known_truth(tx)
        if known is not None:
            return known
        if tx.output.guesses:
            return False
        guarded = late_bound.truth_of_input(tx, self)
        if guarded is not None:
            return guarded
        raise Unsupported(breaks.DataDependentJump(self.describe()))

    def truth_value(self, tx: Interpreter, negated: bool = False) -> Value:
        refuse_replacement(tx, self, "__bool__")
        known = self._known_truth(tx)
        if known is not None:
            return ConstantValue(known is not negated)
        later = late_bound.tensor_truth_value(tx, self, negated)
        return super().truth_value(tx, negated) if later is None else later

    def deferred_truth(self, tx: Interpreter) -> tuple[TensorValue, BreakBefore] | None:
        refuse_replacement(tx, self, "__bool__")
        if self._known_truth(tx) is not None:
            return None
        return late_bound.deferred_tensor_truth(tx, self)

    def _known_truth(self, tx: Interpreter) -> bool | None:
        real = tx.output.known_tensors.real_of(self.fake)
        return None if real is None or real.numel() != 1 else bool(real)

    def length_value(self, tx: Interpreter) -> Value:
        if tx.output.modes.asked:
            return late_bound.length_by_modes(tx, self)
        refuse_replacement(tx, self, "__len__")
        return tx.wrap(self.fake.shape[0]) if self.fake.ndim else super().length_value(tx)

    def length(self, tx: Interpreter) -> int:
        refuse_replacement(tx, self, "__len__")
        if self.fake.ndim == 0:
            raise_python(tx, TypeError, "len() of a 0-d tensor")
        return int(self.fake.shape[0])

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        made = call_replacement(tx, self, "__getitem__", [key])
        if made is None and tx.output.modes.asked:
            made = late_bound.dispatch(tx, "call_function", operator.getitem, [self, key], {})
        if made is not None:
            return made
        selected, rest = late_bound.select(tx, self, key, reads=True)
        if rest is None:
            return selected
        return call_in_graph(tx, "call_function", operator.getitem, [selected, rest], {})

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        if call_replacement(tx, self, "__setitem__", [key, value]) is not None:
            return
        operands = [self, key, value]
        if tx.output.modes.asked and late_bound.dispatch(
            tx, "call_function", operator.setitem, operands, {}
        ):
            return
        selected, rest = late_bound.select(tx, self, key)
        operands = [selected, rest or ConstantValue(...), value]
        call_in_graph(tx, "call_function", operator.setitem, operands, {})

    def iterate(self, tx: Interpreter) -> Value:
        return self._unbound(tx).iterate(tx)

    def unpack(self, tx: Interpreter) -> list[Value]:
        return self._unbound(tx).unpack(tx)

    def _unbound(self, tx: Interpreter) -> Value:
        if tx.output.modes.asked and replacement(tx, "__iter__", self.python_type()) is MISSING:
            return late_bound.unbound_by_modes(tx, self)
        refuse_replacement(tx, self, "__iter__")
        if self.fake.ndim == 0:
            raise_python(tx, TypeError, "iteration over a 0-d tensor")
        return call_in_graph(tx, "call_method", "unbind", [self, ConstantValue(0)], {})

    def recipe(self) -> Recipe:
        return GraphOutput(self), []


class TensorMethodValue(Value):
    """tensor.method, not yet called."""

    def __init__(self, tensor: TensorValue, name: str) -> None:
        super().__init__()
        self.tensor = tensor
        self.name = name

    def python_type(self) -> type:
        return type(getattr(self.tensor.fake, self.name))

    def describe(self) -> str:
        return f"Tensor.{self.name}"

    def getattr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.tensor
        if name == "__name__":
            return ConstantValue(self.name)
        kind = self.python_type()
        if kind is types.MethodType and not type_holds(kind, name):
            return tx.wrap(class_lookup(self.tensor.python_type(), self.name)).getattr(tx, name)
        return super().getattr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.tensor.call_method(tx, self.name, args, kwargs)

    def recipe(self) -> Recipe:
        return Attribute(self.name), [self.tensor]


# -- calls that go into the graph ----------------------------------------------------------------
def call_in_graph(
    tx: Interpreter, op: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """Run `target` on fake tensors, and record it as a node unless it only gave Python values."""
    changed = changed_function(tx, target)
    if changed is not None:
        return changed.call(tx, args, kwargs)
    dispatched = late_bound.dispatch(tx, op, target, args, kwargs)
    if dispatched is not None:
        return dispatched
    if any(arg.alternatives for arg in args):
        return late_bound.call_on_choice(tx, op, target, args, kwargs)
    proxy_args = tuple(arg.as_proxy() for arg in args)
    proxy_kwargs = {name: value.as_proxy() for name, value in kwargs.items()}
    name = target_name(target)
    if name in OF_FAKES:
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}"))
    if name in METADATA_METHODS and not _of_the_frame(name, args):
        raise Unsupported(breaks.TensorMetadata(f"Tensor.{name}()"))
    computed = tx.output.known_tensors.computed
    try:
        if writes(target, kwargs):
            with keeps_form(tx, name, (proxy_args, proxy_kwargs), "out" in kwargs):
                result = run_fake(tx, op, target, proxy_args, proxy_kwargs)
        else:
            result = run_fake(tx, op, target, proxy_args, proxy_kwargs)
    except Unsupported as error:
        if isinstance(error.reason, breaks.DynamicShapeOp):
            real = computed(op, target, proxy_args, proxy_kwargs)
            if real is not None:
                return _tensor_of_numbers(tx, real)
        needs_value = isinstance(error.reason, breaks.DataDependentValue)
        numbers = arguments_as_numbers(tx, op, args, kwargs) if needs_value else None
        if numbers is not None:
            return call_in_graph(tx, op, target, *numbers)
        by_data = needs_value or isinstance(error.reason, breaks.OpError)
        made = late_bound.view_by_numbers(tx, target, args, kwargs) if by_data else None
        made = made or late_bound.whether_equal(tx, target, args, kwargs)
        made = made or late_bound.call_with_real_numbers(
            tx, op, target, proxy_args, proxy_kwargs, error.reason
        )
        if made is None:
            raise
        return made
    return record_call(tx, op, target, proxy_args, proxy_kwargs, result)


def record_call(
    tx: Interpreter, op: str, target: Any, args: tuple, kwargs: dict[str, Any], result: Any
) -> Value:
    """The Value of the fake result of a call, which is recorded as a node unless the call only gave
    Python values.
    """
    name, symbols = target_name(target), tx.output.symbols
    computed = tx.output.known_tensors.computed
    check_layouts(name, args, result)
    if not holds_tensor(result) and result is not None:
        if not is_plain(result):
            kind = type(result).__name__
            raise Unsupported(breaks.UncapturedCall(f"{name}, which returns a {kind}"))
        if is_symbolic(result) and symbols.data.has_fresh():
            node = tx.output.create_node(op, target, args, kwargs, result, tx)
            symbols.data.bind_fresh(tx, node, result)
        return tx.wrap(result)
    if isinstance(result, FakeTensor):
        known = tx.output.fake_value(result)
        if known is not None and not changes_something(target):
            return known
    real = computed(op, target, args, kwargs) if symbols.data.has_fresh() else None
    if real is not None:
        return _tensor_of_numbers(tx, real)
    node = tx.output.create_node(op, target, args, kwargs, result, tx)
    symbols.data.bind_fresh(tx, node, result)
    tx.output.known_tensors.note(result, op, target, args, kwargs)
    return wrap_result(tx, node, result)


def _tensor_of_numbers(tx: Interpreter, real: torch.Tensor) -> Value:
    """A tensor of the graph with the values of a known one, in its order of memory."""
    order = sorted(range(real.ndim), key=real.stride, reverse=True)
    real, back = real.permute(order), tuple(map(order.index, range(real.ndim)))
    numbers, dtype = ConstantValue(tuple(real.flatten().tolist())), ConstantValue(real.dtype)
    made = call_in_graph(tx, "call_function", torch.tensor, [numbers], {"dtype": dtype})
    steps = [("reshape", tuple(real.shape)), ("permute", back)]
    for name, dims in steps[: 1 + (order != sorted(order))]:
        made = call_in_graph(tx, "call_method", name, [made, ConstantValue(dims)], {})
    return made


def _of_the_frame(name: str, args: Sequence[Value]) -> bool:
    """Whether a call only asks for the gradient of a tensor that the frame made."""
    return (
        name == "requires_grad_"
        and isinstance(args[0], TensorValue)
        and args[0].node.op.startswith("call_")
    )


def wrap_result(tx: Interpreter, node: Node, result: Any) -> Value:
    """The Value of a node's result: a tensor, a nest of them, or a plain Python value."""
    if isinstance(result, torch.Tensor):
        return tx.output.tensor_value(node, result, value_class(result))
    if not holds_tensor(result) or type(result) is torch.Size:
        return tx.wrap(result)
    if type(result) is dict:
        entries = {key: _wrap_item(tx, node, key, item) for key, item in result.items()}
        return tx.output.side_effects.track_new(late_bound.DictValue.of(tx, entries))
    return late_bound.sequence_like(
        tx, result, [_wrap_item(tx, node, *pair) for pair in enumerate(result)]
    )


def _wrap_item(tx: Interpreter, node: Node, key: int | str, item: Any) -> Value:
    """The Value of one item of a node's result."""
    known = tx.output.fake_value(item) if isinstance(item, torch.Tensor) else None
    if known is not None:
        return known
    if not holds_tensor(item):
        return tx.wrap(item)
    child = tx.output.create_node("call_function", operator.getitem, (node, key), {}, item, tx)
    return wrap_result(tx, child, item)


def value_class(result: torch.Tensor) -> Callable[[Node, torch.Tensor], TensorValue]:
    """The class of the Value of a tensor that a node returns."""
    if isinstance(result, FakeTensor) or type(result) is torch.nn.Parameter:
        return TensorValue
    return late_bound.wrapper_result if late_bound.is_wrapper(result) else TensorValue


# -- special methods -----------------------------------------------------------------------------
def _setitem(tx: Interpreter, tensor: TensorValue, key: Value, value: Value) -> Value:
    tensor.setitem(tx, key, value)
    return ConstantValue(None)


def _requires_grad_(
    tx: Interpreter, tensor: TensorValue, requires_grad: Value | None = None
) -> Value:
    given = [] if requires_grad is None else [requires_grad]
    wanted: Any = True  # None: unknown
    if requires_grad is not None:
        wanted = requires_grad.as_constant() if requires_grad.is_constant() else None
    fake = tensor.fake
    # A view that was made without gradients says what its base does, and gets none.
    if wanted is fake.requires_grad and not (wanted and fake._is_view() and fake.is_leaf):
        return tensor
    if isinstance(wanted, bool) and late_bound.requires_from_start(tx, tensor, wanted):
        return tensor
    return call_in_graph(tx, "call_method", "requires_grad_", [tensor, *given], {})


def _detach_(tx: Interpreter, tensor: TensorValue) -> Value:
    """tensor.detach_(): of a tensor that the frame made, and has not used, the same object with the
    node of a detached alias. A node that has saved the tensor for its backward raises there.
    """
    unused = tensor.node.op.startswith("call_") and not tensor.node.users
    plain = type(tensor) is TensorValue and not tensor.fake._is_view()
    if not (unused and plain) or tx.output.bodies:
        raise Unsupported(breaks.TensorMetadata("Tensor.detach_()"))
    if tensor.fake.requires_grad:
        alias = call_in_graph(tx, "call_method", "detach", [tensor], {})
        assert isinstance(alias, TensorValue)
        tensor.node = alias.node
        tx.output.adopt(alias.fake, tensor)
        tx.output.watched.check()
        tx.output.side_effects.tensor_written()
    return tensor


# Method without arguments that reads the tensor -> `(tx, tensor) -> Value | None`, None where it is
# not captured as a number; values/tensors/captured_scalars.py.
READ_METHODS: dict[str, Callable[..., Value | None]] = {}
# Method -> `(tx, tensor, *args, **kwargs) -> Value`; other modules add to it.
SPECIAL_METHODS: dict[str, Callable[..., Value]] = {
    "__len__": lambda tx, tensor: tensor.length_value(tx),
    "__iter__": lambda tx, tensor: tensor.iterate(tx),
    "__setitem__": _setitem,
    "requires_grad_": _requires_grad_,
    "detach_": _detach_,
}


# -- tensors from outside ------------------------------------------------------------------------
@subclass_builder(torch.Tensor)
def build_tensor(tx: Interpreter, obj: torch.Tensor, source: Source | None) -> Value:
    """A graph input. Parameters are static."""
    return wrap_tensor(tx, obj, source, static=isinstance(obj, torch.nn.Parameter))


def constant_sizes(obj: torch.Tensor, fake: torch.Tensor) -> Any:
    """The payload of a tensor guard: sizes and strides that are symbols are left to theirs."""
    if not tensor_has_symbols(fake):
        return obj
    sizes = tuple(None if isinstance(n, torch.SymInt) else n for n in fake.shape)
    return obj, sizes, tuple(None if isinstance(n, torch.SymInt) else n for n in fake.stride())


def _form(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.dtype, fake.shape, fake.stride(), fake.storage_offset()


def tensor_has_symbols(fake: torch.Tensor) -> bool:
    return any(isinstance(n, torch.SymInt) for n in (*fake.shape, *fake.stride()))


def wrap_tensor(tx: Interpreter, obj: torch.Tensor, source: Source | None, static: bool) -> Value:
    """The Value of an outside tensor. static: a parameter or buffer, guarded by identity."""
    known = tx.output.known_value(obj, source)
    if known is not None:
        return known
    transformed = torch._C._functorch.is_functorch_wrapped_tensor(obj)
    plain = type(obj) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not plain and late_bound.is_known_subclass(type(obj)) and not transformed:
        refuse_odd_memory(obj)
        return late_bound.build_subclass_tensor(tx, obj, source)
    if not plain and not transformed and late_bound.is_wrapper(obj):
        return late_bound.build_wrapper_tensor(tx, obj, source)
    if not plain or transformed:  # whose attributes may run code of the program's
        raise Unsupported(breaks.UnknownObject(type(obj).__name__))
    refuse_odd_memory(obj)
    refuse_odd_inference(obj)
    check_usable(obj)
    if source is None:
        source = tx.output.install("tensor", obj)
    parameter = static and not source.made_by_frame
    static = parameter and not tx.output.symbols.has_changed_parameter(obj, source)
    try:
        node = tx.output.add_input(obj, source, static)
    except UnsupportedFakeTensorException as error:  # a view of a sparse tensor
        raise Unsupported(breaks.UnknownObject(type(obj).__name__)) from error
    if obj.layout is torch.sparse_coo:
        tx.guard(CallSource(source, sparse_form, "form of "), "constant", sparse_form(obj))
    if static:
        tx.guard(source, "static_tensor", obj)
    else:
        tx.guard(source, "tensor", constant_sizes(obj, node.meta["example_value"]))
        node.meta.update({"parameter": True} if parameter else {})
    value = tx.output.tensor_value(node, node.meta["example_value"], TensorValue)
    value.source = source
    value.real = obj
    tx.output.remember(obj, source, value)
    return value
