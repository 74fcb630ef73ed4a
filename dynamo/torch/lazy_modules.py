"""Lazy modules, which get their parameters when they are first called.

No graph can do that. Where it is the same as doing it in place, it is done while capturing, and
capture starts again: the frame then finds the module as it is from now on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as _module_globals
from torch.nn.modules.lazy import LazyModuleMixin

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.plans import Retry
from dynamo.torch.modules import ModuleValue
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.effects.hoisted_modules import can_be_first
from dynamo.values.effects.random_state import program_draws
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.symbolic_values import depends_on_data, hint_of

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter


@handles(LazyModuleMixin._infer_parameters)
def _infer_parameters(
    tx: Interpreter, owner: Value, module: Value, args: Value, *rest: Value
) -> Any:
    inputs = _inputs(args, *rest)
    if inputs is None or module is not owner or not _is_unchanged(tx, module):
        raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
    assert isinstance(module, ModuleValue)
    real: Any = module.real
    if not type(real).__module__.startswith("torch.nn.modules."):
        later = type(real).cls_to_become or type(real)
        if later.forward is not type(real).forward:  # which this call still runs
            raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
        inputs = _real_inputs(tx, module, args)
    try:
        with program_draws():
            real._infer_parameters(real, inputs)
    except Exception as error:
        raise Unsupported(
            breaks.UncapturedCall(f"the first call of a lazy module ({error})")
        ) from None
    raise Retry(tx.output.plan.anew("a lazy module has made its parameters"))


def _inputs(args: Value, kwargs: Value | None = None) -> tuple[torch.Tensor, ...] | None:
    """Tensors like the arguments: only their shapes matter."""
    if kwargs is not None and not (isinstance(kwargs, DictValue) and not kwargs.entries):
        return None
    if not isinstance(args, TupleValue):
        return None
    fakes = [value.fake for value in args.wrapped() if isinstance(value, TensorValue)]
    if len(fakes) != len(args.contents):
        return None
    if any(depends_on_data(size) for fake in fakes for size in fake.shape):
        return None
    shapes = [tuple(map(hint_of, fake.shape)) for fake in fakes]  # those of this call
    return tuple(
        torch.empty(shape, dtype=fake.dtype, device="meta") for fake, shape in zip(fakes, shapes)
    )


def _real_inputs(tx: Interpreter, module: ModuleValue, args: Value) -> tuple[torch.Tensor, ...]:
    """The arguments themselves, for a module of the program's own, whose code may do anything with
    them and change anything: inputs of the frame, which has done and read nothing else yet.
    """
    assert isinstance(args, TupleValue) and module.source is not None
    given = [value for value in args.wrapped() if isinstance(value, TensorValue)]
    known = {value.source.name for value in given if value.source is not None}
    known.add(f"type({module.source.name}).forward")
    read = {guard.source.name for guard in tx.output.guards if guard.source is not None}
    rest = {name for name in read - known if "_hooks" not in name}
    done = any(node.op.startswith("call_") for node in tx.output.graph.nodes)
    done |= tx.output.side_effects.changes_anything()
    if done or not all(module.source.name.startswith(name) for name in rest):
        raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
    reals = tuple(value.real for value in given if value.real is not None)
    if len(reals) < len(given):
        raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
    return reals


def _is_unchanged(tx: Interpreter, module: Value) -> bool:
    """A module from before the frame, which has not changed it; nothing that was
    captured draws random numbers or sees the module as it was.
    """
    if not isinstance(module, ModuleValue) or module.real is None or module.source is None:
        return False
    if module.source.made_by_frame or tx.output.side_effects.is_dirty(module):
        return False
    if _module_globals._global_forward_pre_hooks:
        return False
    if any(known is module for known in tx.output.classes_known):
        return False
    if any(_reads_changed(guard.source, module.source.name) for guard in tx.output.guards):
        return False
    first = next(iter(module.real._forward_pre_hooks), None)
    return first == module.real._initialize_hook.id and can_be_first(tx, None)


# The attributes of a torch module that change once it has its parameters.
_CHANGED = (
    *("in_features", "in_channels", "num_features", "weight", "bias", "running_", "num_batches"),
    *("_parameters", "_buffers", "_initialize_hook", "_load_hook"),
)


def _reads_changed(source: Source | None, module: str) -> bool:
    """Whether the frame has read an attribute that changes."""
    if source is None or not source.name.startswith(module):
        return False
    return any(name in source.name.removeprefix(module) for name in _CHANGED)
