"""Functions and classes that modules of values use before they are made: their modules are built on
the users of them.

    late_bound.shown(tx, value)        # values/scalars/texts.py imports the module that says this

`@bound_late` puts a function or class here when its module is loaded, which capture waits for
(builder.load). The imports below are for type checkers, and say where each is:
tests/test_structure.py compares the declared, the bound and the used ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dynamo.interp.chosen_operations import branch_on_choice as branch_on_choice
    from dynamo.torch.function_modes import length_by_modes as length_by_modes
    from dynamo.torch.function_modes import unbound_by_modes as unbound_by_modes
    from dynamo.torch.overrides import dispatch as dispatch
    from dynamo.torch.overrides import is_watched as is_watched
    from dynamo.torch.tensor_subclass import as_subclass as as_subclass
    from dynamo.torch.tensor_subclass import build_subclass_tensor as build_subclass_tensor
    from dynamo.torch.tensor_subclass import is_known_subclass as is_known_subclass
    from dynamo.torch.tensor_subclass import new_subclass_tensor as new_subclass_tensor
    from dynamo.torch.wrapper_subclass import build_wrapper_tensor as build_wrapper_tensor
    from dynamo.torch.wrapper_subclass import is_wrapper as is_wrapper
    from dynamo.torch.wrapper_subclass import is_wrapper_class as is_wrapper_class
    from dynamo.torch.wrapper_subclass import make_wrapper as make_wrapper
    from dynamo.torch.wrapper_subclass import wrapper_result as wrapper_result
    from dynamo.values.builtins.polyfill_calls import polyfill_method as polyfill_method
    from dynamo.values.classes.classes import ClassValue as ClassValue
    from dynamo.values.classes.classes import new_instance as new_instance
    from dynamo.values.containers.containers import sequence_like as sequence_like
    from dynamo.values.containers.dicts import DictValue as DictValue
    from dynamo.values.containers.hash_keys import unhashable as unhashable
    from dynamo.values.containers.sets import SetValue as SetValue
    from dynamo.values.containers.sets import gather as gather
    from dynamo.values.effects.hoisted_modules import requires_from_start as requires_from_start
    from dynamo.values.functions.functional import partial_method as partial_method
    from dynamo.values.iterators.native_iterators import TextIterator as TextIterator
    from dynamo.values.objects.descriptors import assume_absent as assume_absent
    from dynamo.values.objects.descriptors import attribute_of_type as attribute_of_type
    from dynamo.values.objects.descriptors import is_absent as is_absent
    from dynamo.values.objects.exception_objects import make_exception as make_exception
    from dynamo.values.objects.instance_dict import InstanceDictValue as InstanceDictValue
    from dynamo.values.objects.instance_dict import changed_attributes as changed_attributes
    from dynamo.values.objects.opaque_objects import LargeIntValue as LargeIntValue
    from dynamo.values.objects.slots import call_slot as call_slot
    from dynamo.values.objects.storage import fill_storage as fill_storage
    from dynamo.values.objects.storage import wrap_storage as wrap_storage
    from dynamo.values.scalars.conversions import text_by_address as text_by_address
    from dynamo.values.scalars.mixed_numbers import extreme_of_numbers as extreme_of_numbers
    from dynamo.values.scalars.operators import as_index as as_index
    from dynamo.values.scalars.symbol import SymbolValue as SymbolValue
    from dynamo.values.scalars.symbolic_text import concatenated as concatenated
    from dynamo.values.scalars.symbolic_text import format_method as format_method
    from dynamo.values.scalars.texts import Shown as Shown
    from dynamo.values.scalars.texts import shown as shown
    from dynamo.values.scalars.texts import shown_operand as shown_operand
    from dynamo.values.tensors.captured_scalars import truth_of_input as truth_of_input
    from dynamo.values.tensors.captured_scalars import whether_equal as whether_equal
    from dynamo.values.tensors.captured_scalars import with_numbers as with_numbers
    from dynamo.values.tensors.choice import call_on_choice as call_on_choice
    from dynamo.values.tensors.choice import chosen_extreme as chosen_extreme
    from dynamo.values.tensors.deferred_scalar import deferred_tensor_truth as deferred_tensor_truth
    from dynamo.values.tensors.deferred_scalar import tensor_truth_value as tensor_truth_value
    from dynamo.values.tensors.indexing import select as select
    from dynamo.values.tensors.number_calls import call_with_real_numbers as call_with_real_numbers
    from dynamo.values.tensors.number_views import view_by_numbers as view_by_numbers
    from dynamo.values.tensors.python_numbers import call_python as call_python
    from dynamo.values.tensors.tensor_texts import formatted_tensor as formatted_tensor
    from dynamo.values.tensors.tensor_texts import text_of_tensor as text_of_tensor

Bound = TypeVar("Bound")
BOUND: dict[str, Any] = {}  # by name


def bound_late(made: Bound) -> Bound:
    """Decorator of a function or class: make it an attribute of this module."""
    name: str = made.__name__  # type: ignore[attr-defined]
    assert name not in globals(), name
    globals()[name] = BOUND[name] = made
    return made
