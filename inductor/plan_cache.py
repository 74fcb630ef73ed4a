"""Plans kept on disk, so that a second process goes from the functional graph straight to its plan.

The key is everything that lowering, scheduling and codegen look at: the graph's operators and
arguments, the metadata of its inputs, the values of its constants, the frame of outputs and written
inputs, the options, and torch's settings that lowering reads. A graph with something that has no
faithful text (a large constant, a Python operator, an unusual tensor) has no key and is compiled
anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from inductor.layout import convolutions_allow_tf32
from inductor.lowering.creation import fills_memory
from inductor.lowering.device_products import allows_tf32
from inductor.runtime import cache
from inductor.runtime.plan import PlanError, PlanSpec

log = logging.getLogger(__name__)

CHANNELS = ("schedule", "kernel", "plan")  # logs of the stages that a recalled plan skips
CONSTANT_BYTES = 1 << 20
PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


class _NoKey(Exception):
    pass


def key_of(
    functional: FunctionalGraph,
    static: Sequence[bool],
    options: Any,
    derived: Any = None,
    kind: str = "",
) -> str | None:
    """The plan's key, or None if this graph cannot be kept. kind: of the GPU that kernels are
    chosen for.
    """
    try:
        gm = functional.graph_module
        nodes = [_node(gm, node) for node in gm.graph.nodes]
        frame = [_output(out) for out in functional.outputs]
    except _NoKey:
        return None
    about = (frame, functional.input_mutations, functional.same_inputs, list(static), str(derived))
    libraries = _libraries() if kind else ()
    state = (torch.get_default_dtype(), fills_memory(), kind, libraries)
    return cache.plan_key("\n".join(nodes), about, (options, torch.get_num_threads(), state))


def _libraries() -> tuple[bool, ...]:
    """Settings of a GPU's libraries that the stages read."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    return allows_tf32(), convolutions_allow_tf32(), torch.backends.cudnn.enabled, deterministic


def recall(key: str | None) -> PlanSpec | None:
    """The kept plan. None too while someone watches the stages that make it."""
    return None if key is None or _is_watched() else cache.load_plan(key)


def _is_watched() -> bool:
    channels = (logging.getLogger(f"inductor.{channel}") for channel in CHANNELS)
    return any(channel.isEnabledFor(logging.DEBUG) for channel in channels)


def keep(key: str | None, spec: PlanSpec) -> None:
    """Store a plan that can be."""
    if key is not None and _can_be_stored(spec):
        cache.save_plan(key, spec)


def _can_be_stored(spec: PlanSpec) -> bool:
    """Not if its constants would make it large, objects or functions keep it here, or Triton's
    interpreter stands in for a device.
    """
    return (
        not spec.objects
        and not any(step.kind == "call" for step in spec.steps)
        and not any(kernel.device == "cpu" for kernel in spec.triton)
        and sum(len(c.data) for c in spec.constants) <= 2 * CONSTANT_BYTES
    )


# -- of saved programs ----------------------------------------------------------------------------
def program_key(graph: Sequence[str], ordinary: Sequence[bool], options: Any) -> str:
    """The key of the plan of a graph that need not be read: `graph` tells one from any other.
    The stages before `recall` look at the rest besides the graph; ordinary: whether values may be
    derived from each static input.
    """
    library = torch.backends.mkldnn
    state = (
        torch.get_default_dtype(),
        fills_memory(),
        torch.get_num_threads(),
        library.is_available() and library.enabled,
        _libraries(),
    )
    return cache.plan_key(repr(["program", *graph]), list(ordinary), (options, state))


def recall_program(key: str) -> tuple[PlanSpec, dict[str, Any]] | None:
    """The plan kept by keep_program, and the data kept beside it."""
    data = None if _is_watched() else cache.store().read("plans", key, ".program")
    if data is None:
        return None
    try:
        kept = json.loads(data)
        return PlanSpec.from_data(kept.pop("plan")), kept
    except (PlanError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep_program(key: str, spec: PlanSpec, beside: dict[str, Any]) -> None:
    """Store a plan that can be, and JSON data beside it."""
    if not _can_be_stored(spec):
        return
    text = spec.to_json(beside)
    try:
        cache.store().write("plans", key, ".program", text.encode())
    except OSError as error:
        log.warning("the plan of a program could not be stored: %s", error)


def _node(gm: Any, node: Any) -> str:
    target = str(node.target)
    if isinstance(node.meta.get("val"), torch.SymInt) and node.op != "placeholder":
        return f"{node.name} {_symbolic(node.meta['val'])}"  # lowering looks at nothing else
    if node.op == "placeholder":
        target = _input(node.meta.get("val"))
    elif node.op == "get_attr":
        target = _constant(gm, node.target)
    elif not isinstance(node.target, (str, torch._ops.OpOverload)):
        module = getattr(node.target, "__module__", "")
        if module not in ("operator", "_operator"):
            raise _NoKey
    return f"{node.name} {node.op} {target} {_argument(node.args)} {_argument(node.kwargs)}"


def _input(value: Any) -> str:
    if isinstance(value, torch.SymInt):
        return _symbolic(value)
    return repr(value) if isinstance(value, int) else _tensor(value)


def _tensor(value: Any) -> str:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise _NoKey
    size, stride = (", ".join(map(_number, part)) for part in (value.shape, value.stride()))
    return f"{value.dtype} ({size}) ({stride}) {value.device}"


def _number(value: Any) -> str:
    return _symbolic(value) if isinstance(value, torch.SymInt) else str(value)


def _symbolic(value: torch.SymInt) -> str:
    """The expression, simplified by known facts, with the ranges of its symbols: plans rely on
    them.
    """
    env = value.node.shape_env
    expr = env.simplify(value.node.expr)
    ranges = (f"{symbol} in {env.bounds(symbol)}" for symbol in sorted(expr.free_symbols, key=str))
    return f"{expr} with {', '.join(ranges)}"


def _constant(gm: Any, path: str) -> str:
    value = gm
    for part in path.split("."):
        value = getattr(value, part)
    text = _tensor(value)
    if value.device.type != "cpu" or value.nbytes > CONSTANT_BYTES:
        raise _NoKey
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
    return f"{text} {hashlib.sha256(flat.numpy().tobytes()).hexdigest()}"


def _argument(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_argument(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_argument(v)}" for k, v in value.items()) + "}"
    if isinstance(value, PLAIN):
        return repr(value)
    if hasattr(value, "graph") and hasattr(value, "name"):
        return value.name
    raise _NoKey


def _output(out: Any) -> str:
    if isinstance(out.constant, torch.Tensor):
        raise _NoKey
    sizes = (*(out.size or ()), *(out.stride or ()), out.storage_offset)
    return f"{out!r} {', '.join(map(_number, sizes))}"
