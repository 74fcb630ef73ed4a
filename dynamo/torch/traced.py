"""Python of what torch.jit.trace recorded: a call of an operator in each line."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

# Nodes beside operators -> the Python of their inputs.
_FORMS = {
    "prim::ListConstruct": "[{0}]",
    "prim::TupleConstruct": "({0},)",
    "prim::ListUnpack": "{p}items_of({0}, {1})",
    "prim::TupleUnpack": "{0}",
    "prim::NumToTensor": "{p}torch.tensor({0})",
    "aten::Int": "{p}int({0})",
    "aten::size": "{p}torch.Tensor.size({0})",
}
_CONSTANTS = (int, float, bool, str, torch.device, type(None))


def python_of(trace: torch.jit.ScriptFunction) -> types.FunctionType | None:
    """A function that does what the trace does; None: the trace holds tensors, or does more than
    call operators.
    """
    if not all(map(_is_told, trace.graph.nodes())):
        return None
    schema: Any = trace.schema
    arguments = [argument.name for argument in schema.arguments]
    prefix = "_".join(["", *arguments, ""])  # longer than an argument's name, which it cannot be
    namespace: dict[str, Any] = {
        f"{prefix}torch": torch,
        f"{prefix}int": int,
        f"{prefix}items_of": _items_of,
    }
    given = trace.graph.inputs()
    names = {value.debugName(): name for value, name in zip(given, arguments, strict=True)}
    lines = [
        line for node in trace.graph.nodes() for line in _lines(node, names, namespace, prefix)
    ]
    (result,) = trace.graph.return_node().inputs()
    lines.append(f"return {names[result.debugName()]}")
    text = f"def trace({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, f"<trace {trace.name}>", "exec"), namespace)
    return namespace["trace"]


def _items_of(found: list[Any], count: int) -> list[Any]:
    if len(found) != count:
        raise RuntimeError(f"Expected {count} elements in a list but found {len(found)}")
    return found


def _lines(
    node: Any, names: dict[str, str], namespace: dict[str, Any], prefix: str
) -> Iterator[str]:
    inputs = [names[value.debugName()] for value in node.inputs()]
    for value in node.outputs():
        names[value.debugName()] = f"{prefix}{len(names)}"
    made = "".join(f"{names[value.debugName()]}, " for value in node.outputs())
    kind = node.kind()
    if kind == "prim::Constant":
        namespace[names[node.output().debugName()]] = node.output().toIValue()
    elif kind in _FORMS:
        form = _FORMS[kind].format(", ".join(inputs), node.outputsSize(), p=prefix)
        yield f"{made if 'Unpack' in kind else made[:-2]} = {form}"
    else:
        schema: Any = torch._C.parse_schema(node.schema())
        keywords = [argument.name for argument in schema.arguments if argument.kwarg_only]
        function = f"{prefix}f{len(names)}"
        namespace[function] = _operator(node, schema)
        positional = inputs[: len(inputs) - len(keywords)]
        named = [f"{k}={v}" for k, v in zip(keywords, inputs[len(positional) :])]
        yield f"{made[:-2]} = {function}({', '.join([*positional, *named])})"


def _is_told(node: Any) -> bool:
    """Whether Python says what a node does; of constants, tensors have no source."""
    if node.kind() == "prim::Constant":
        return isinstance(node.output().toIValue(), _CONSTANTS)
    if node.kind() in _FORMS:
        return True
    if not node.kind().startswith("aten::") or node.schema() == "(no schema)":
        return False
    schema: Any = torch._C.parse_schema(node.schema())
    return _operator(node, schema) is not None and node.inputsSize() == len(schema.arguments)


def _operator(node: Any, schema: Any) -> Any:
    packet = getattr(torch.ops.aten, node.kind().removeprefix("aten::"), None)
    return getattr(packet, schema.overload_name or "default", None)
