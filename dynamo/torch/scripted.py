"""Functions that torch.jit made: captured by their Python source where a script takes the
arguments as Python would, or by the Python of a trace's operators.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.bytecode.cache import IdentityMap
from dynamo.errors import Unsupported
from dynamo.guards.sources import Source
from dynamo.torch.overrides import has_override
from dynamo.torch.torch_function import StandInFunction
from dynamo.torch.traced import python_of
from dynamo.values.base import Value
from dynamo.values.builder import special_builder

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Kind of a script's type -> the Python types of its values; that of dtypes is an integer's.
_TAKEN: dict[str, tuple[type, ...]] = {
    "TensorType": (torch.Tensor,),
    "FloatType": (float,),
    "IntType": (int, torch.dtype, torch.layout, torch.memory_format),
    "BoolType": (bool,),
    "ComplexType": (complex,),
    "StringType": (str,),
}


class ScriptedFunction(StandInFunction):
    """A function that torch.jit made: no class and no mode is asked inside of it."""

    def is_plain_function(self) -> bool:
        return False

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if has_override(tx, [*args, *kwargs.values()]) or self._converts(args, kwargs):
            raise Unsupported(breaks.UncapturedCall(f"script {self.name}"))
        return super().call(tx, args, kwargs)

    def _converts(self, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
        """Whether the script takes an argument or a default as another type, or refuses it."""
        declared = self.real.schema.arguments
        defaults = inspect.signature(self.function).parameters
        given = dict(zip((argument.name for argument in declared), args)) | kwargs
        for argument in declared:
            value = given.get(argument.name)
            kind = type(defaults[argument.name].default) if value is None else value.python_type()
            if not _is_taken(argument.type, kind):
                return True
        return False


def _is_taken(declared: Any, kind: type) -> bool:
    """Whether a script takes objects of this type as they are for a parameter of a declared one:
    a float's parameter makes floats of integers.
    """
    name = declared.kind()
    if name == "OptionalType":
        return kind is type(None) or _is_taken(declared.getElementType(), kind)
    if name in _TAKEN:
        return issubclass(kind, _TAKEN[name]) and (kind is not bool or name == "BoolType")
    return not {"float", "complex"} & set(re.findall(r"\w+", declared.annotation_str))


def _source_of(obj: Any) -> Any:
    """The Python function behind one of torch.jit's; None for any other object."""
    if type(obj) is not torch.jit.ScriptFunction:
        return None
    return _sources.computed(obj, lambda: _python_of(obj))


def _python_of(function: torch.jit.ScriptFunction) -> types.FunctionType | None:
    if _is_scripted(function):
        return getattr(function, "_torchdynamo_inline", None)
    return python_of(function)


_sources: IdentityMap[Any, Any] = IdentityMap()


def _is_scripted(function: Any) -> bool:
    """Not traced, which would have left the sizes of examples in the types of inputs."""
    inputs = list(function.graph.inputs())
    return bool(inputs) and not any(value.isCompleteTensor() for value in inputs)


@special_builder(lambda obj: _source_of(obj) is not None)
def build_scripted(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, ScriptedFunction(_source_of(obj), obj))
