"""Plans kept on disk, so that a second process goes from the functional graph straight to its plan.

The key is everything that lowering, scheduling and codegen look at: the graph's operators and
arguments, the metadata of its inputs, the values of its constants, the frame of outputs and written
inputs, the options, and torch's settings that lowering reads. A graph with something that has no
faithful text (a large constant, a Python operator, an unusual tensor) has no key and is compiled
anew.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import torch

from fxgraph.aot import FunctionalGraph
from inductor.lowering.creation import fills_memory
from inductor.lowering.device_products import allows_tf32
from inductor.runtime import cache
from inductor.runtime.plan import PlanSpec

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
    state = (torch.get_default_dtype(), fills_memory(), kind, allows_tf32() if kind else False)
    return cache.plan_key("\n".join(nodes), about, (options, torch.get_num_threads(), state))


def recall(key: str | None) -> PlanSpec | None:
    """The kept plan. None too while someone watches the stages that make it."""
    if key is None or any(
        logging.getLogger(f"inductor.{channel}").isEnabledFor(logging.DEBUG) for channel in CHANNELS
    ):
        return None
    return cache.load_plan(key)


def keep(key: str | None, spec: PlanSpec) -> None:
    """Store a plan, unless its constants would make it large, objects keep it here, or Triton's
    interpreter stands in for a device.
    """
    if (
        key is not None
        and not spec.objects
        and not any(kernel.device == "cpu" for kernel in spec.triton)
        and sum(len(c.data) for c in spec.constants) <= 2 * CONSTANT_BYTES
    ):
        cache.save_plan(key, spec)


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
    """The expression, as it is known to be, with the ranges of its symbols: plans rely on them."""
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
