"""Lazy modules, which get their parameters when they are first called.

No graph can do that. Where it is the same as doing it in place, it is done while capturing, and
capture starts again: the frame then finds the module as it is from now on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.modules import module as _module_globals
from torch.nn.modules.lazy import LazyModuleMixin

from dynamo import breaks
from dynamo.break_regions import break_is_error
from dynamo.errors import Unsupported
from dynamo.guards.sources import LocalSource, SequenceItemSource
from dynamo.plans import Retry
from dynamo.torch.modules import ModuleValue
from dynamo.torch.overrides import is_watched
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
    from dynamo.interp.root import RootInterpreter


@handles(LazyModuleMixin._infer_parameters)
def _infer_parameters(
    tx: Interpreter, owner: Value, module: Value, args: Value, *rest: Value
) -> Any:
    inputs = _inputs(tx, args, *rest)
    if inputs is None or module is not owner or not _is_unchanged(tx, module):
        raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
    assert isinstance(module, ModuleValue)
    real: Any = module.real
    own = not type(real).__module__.startswith("torch.nn.modules.")
    if own:
        inputs = _real_inputs(tx, module, args)
    try:
        with program_draws():
            real._infer_parameters(real, inputs)
    except Exception as error:
        context = tx.output.context
        if own and not (context.fullgraph or context.export or break_is_error()):
            _raise_again(real, error)
        raise Unsupported(
            breaks.UncapturedCall(f"the first call of a lazy module ({error})")
        ) from None
    raise Retry(tx.output.plan.anew("a lazy module has made its parameters"))


def _raise_again(module: Any, error: Exception) -> None:
    """Have the native call behind the graph break raise the error: the program's code has run."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not _INFER:
        trace = trace.tb_next
    trace = trace.tb_next if trace is not None else None

    def initialize_parameters(*args: Any, **kwargs: Any) -> None:
        vars(module).pop("initialize_parameters", None)
        raise error.with_traceback(trace)

    vars(module)["initialize_parameters"] = initialize_parameters


_INFER = LazyModuleMixin._infer_parameters.__code__


def _inputs(
    tx: Interpreter, args: Value, kwargs: Value | None = None
) -> tuple[torch.Tensor, ...] | None:
    """Tensors like the arguments: only their shapes matter."""
    if kwargs is not None and not (isinstance(kwargs, DictValue) and not kwargs.entries):
        return None
    if not isinstance(args, TupleValue) or is_watched(tx, args.wrapped()):
        return None
    fakes = [value.fake for value in args.wrapped() if isinstance(value, TensorValue)]
    if len(fakes) != len(args.contents) or any(fake.is_nested for fake in fakes):
        return None
    if any(depends_on_data(size) for fake in fakes for size in fake.shape):
        return None
    shapes = [tuple(map(hint_of, fake.shape)) for fake in fakes]  # those of this call
    return tuple(
        torch.empty(shape, dtype=fake.dtype, device="meta") for fake, shape in zip(fakes, shapes)
    )


def _real_inputs(tx: Interpreter, module: ModuleValue, args: Value) -> tuple[torch.Tensor, ...]:
    """The arguments themselves, for a module of the program's own, whose code may do anything with
    them and change anything: locals of the frame, or items of its tuples, such as `*args`; and the
    frame has done and read nothing else yet.
    """
    assert isinstance(args, TupleValue) and module.source is not None
    cls: Any = type(module.real)
    becomes = cls.cls_to_become or cls
    given = [value for value in args.wrapped() if isinstance(value, TensorValue)]
    held = _held_for_good(tx)
    fits = all(_is_local(value.source, held) for value in given)
    fits = fits and becomes.forward is cls.forward  # the old one is called first
    if not fits or "initialize_parameters" in vars(module.real):
        raise Unsupported(breaks.UncapturedCall("the first call of a lazy module"))
    known = {value.source.name for value in given if value.source is not None}
    known |= held
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


def _held_for_good(tx: Interpreter) -> set[str]:
    """The names of arguments that no other code changes: tuples, and the names and values that a
    compiled module was called with.
    """
    frame = tx
    while frame.parent is not None:
        frame = frame.parent
    arguments = cast("RootInterpreter", frame).arguments.values()
    given = [(arg.obj, arg.source) for arg in arguments if isinstance(arg.source, LocalSource)]
    of_wrapper = not tx.output.continues and any(source.renamed for _, source in given)
    kinds = (tuple, dict) if of_wrapper else (tuple,)
    return {source.name for obj, source in given if type(obj) in kinds}


def _is_local(source: Source | None, held: set[str]) -> bool:
    if isinstance(source, SequenceItemSource) and source.base.name in held:
        source = source.base
    return isinstance(source, LocalSource)


def _is_unchanged(tx: Interpreter, module: Value) -> bool:
    """A module from before the frame, which has not changed it; nothing that was
    captured, or is made before the graph, draws random numbers or sees the module as it was.
    """
    if not isinstance(module, ModuleValue) or module.real is None or module.source is None:
        return False
    if module.source.made_by_frame or tx.output.side_effects.is_dirty(module):
        return False
    if _module_globals._global_forward_pre_hooks or tx.output.hoisted_calls:
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
