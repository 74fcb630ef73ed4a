"""Graphs as JSON text and back. Nothing is unpickled or evaluated on loading.

    {"version": 1, "nodes": [{"name": "add", "op": "call_function",
      "target": "torch.ops.aten.add.Tensor", "args": [{"node": "x"}, 1], "kwargs": {}, "meta":
      {...}}]}

Leaves that JSON has not stand as one-key objects: {"node": name}, {"tuple": [...]}, {"dtype":
"float32"}, ... Callables are named by dotted path and must be torch's, math's, operator's or
builtins'. Tensors are not part of the text: get_attr and call_module take them from the module
given on loading. Of meta, the shape of the value and the user's stack are kept.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fxgraph.graph import Graph
from fxgraph.graph_module import GraphModule, fetch_attribute
from fxgraph.node import Node
from fxgraph.targets import qualified_name, resolve

VERSION = 1
# Where a path in a file may lead: to operations on tensors and numbers, not to torch.load or
# torch.hub.
_ROOTS = frozenset({"torch", "math", "operator", "fxgraph"})
_HOMES = (
    "torch.ops.", "torch.Tensor.", "torch.nn.functional.", "torch._C._nn.", "torch._VF.",
    "torch.linalg.", "torch.fft.", "torch.special.", "math.", "operator.",
)  # fmt: skip
_RUN_BODIES = frozenset({"fxgraph.higher_order.transform", "fxgraph.higher_order.call"})
_NEVER = frozenset(
    {"torch.from_file", "operator.attrgetter", "operator.methodcaller", "operator.call"}
)
# Special methods through which nothing but values is reached.
_OPERATORS = frozenset(
    f"__{name}__"
    for name in """
        add radd iadd sub rsub isub mul rmul imul matmul rmatmul imatmul truediv rtruediv itruediv
        floordiv rfloordiv ifloordiv mod rmod imod pow rpow ipow and rand iand or ror ior xor rxor
        ixor lshift rlshift ilshift rshift rrshift irshift neg pos abs invert eq ne lt le gt ge
        getitem setitem len bool int float index contains
    """.split()  # noqa: SIM905
)
_NEVER_UNDER = ("torch.ops.load_library", "torch.ops.import_module")
_BUILTINS = frozenset(
    {"getattr", "abs", "max", "min", "sum", "round", "len", "pow", "divmod", "float", "int", "bool"}
)


class SerializeError(ValueError):
    """Something has no text form, or a text is not a graph; the message names it."""


def dumps(graph: Graph, indent: int | None = None) -> str:
    """The graph as JSON text. Raises SerializeError for arguments and callables without a name."""
    rows = _rows(graph)
    return json.dumps({"version": VERSION, "nodes": rows}, indent=indent, allow_nan=False)


def loads(text: str, root: nn.Module | Mapping[str, Any] | None = None) -> GraphModule:
    """The graph that `dumps` wrote, as a module with parameters and submodules from `root`."""
    try:
        data = json.loads(text)
        version = data["version"]
        rows = data["nodes"]
    except (ValueError, KeyError, TypeError) as error:
        raise SerializeError("not a serialized graph") from error
    if version != VERSION:
        raise SerializeError(f"version {version} of the format; this program reads {VERSION}")
    return _module_from_rows(rows, root if root is not None else {})


# -- graphs, which may hold bodies -----------------------------------------------------------------
def _rows(graph: Graph) -> list[dict[str, Any]]:
    rows = []
    for node in graph.nodes:
        row = _node_to_json(node)
        body = _body_of(node)
        if body is not None:
            row["body"] = _rows(body.graph)
        rows.append(row)
    return rows


def _body_of(node: Node) -> GraphModule | None:
    """The sub-graph that a get_attr node names."""
    if node.op != "get_attr" or node.graph.owning_module is None:
        return None
    found = fetch_attribute(node.graph.owning_module, node.target)
    return found if isinstance(found, GraphModule) else None


def _module_from_rows(rows: Any, root: nn.Module | Mapping[str, Any]) -> GraphModule:
    graph = Graph()
    nodes: dict[str, Node] = {}
    bodies: dict[str, Any] = {}
    for row in rows:
        try:
            _node_from_json(graph, row, nodes)
            if "body" in row:
                bodies[row["target"]] = _module_from_rows(row["body"], {})
        except (KeyError, TypeError, AttributeError) as error:
            raise SerializeError(f"damaged node: {row!r}") from error
    if not bodies:
        return GraphModule(root, graph)
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target not in bodies:
            module = isinstance(root, nn.Module)
            found = fetch_attribute(root, node.target) if module else root[node.target]  # type: ignore[index]
            bodies[node.target] = found
    return GraphModule(bodies, graph)


# -- nodes ----------------------------------------------------------------------------------------


def _node_to_json(node: Node) -> dict[str, Any]:
    row: dict[str, Any] = {"name": node.name, "op": node.op}
    row["target"] = node.target if isinstance(node.target, str) else _callable_name(node.target)
    row["args"] = [argument_to_json(arg) for arg in node.args]
    row["kwargs"] = {key: argument_to_json(arg) for key, arg in node.kwargs.items()}
    meta: dict[str, Any] = {
        key: node.meta[key]
        for key in ("stack_trace", "source", "static", "parameter")
        if key in node.meta
    }
    value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, torch.Tensor):
        meta["val"] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "size": list(value.shape),
            "stride": list(value.stride()),
            "device": str(value.device),
        }
    if meta:
        row["meta"] = meta
    return row


def _node_from_json(graph: Graph, row: dict[str, Any], nodes: dict[str, Node]) -> None:
    target = row["target"]
    if row["op"] == "call_function":
        target = _callable(target)
    args = tuple(argument_from_json(arg, nodes) for arg in row["args"])
    kwargs = {key: argument_from_json(arg, nodes) for key, arg in row["kwargs"].items()}
    _check_names(row["op"], target, args, kwargs)
    node = graph.create_node(row["op"], target, args, kwargs, name=row["name"])
    meta = dict(row.get("meta", {}))
    described = meta.pop("val", None)
    if described is not None:
        meta["val"] = torch.empty_strided(
            described["size"],
            described["stride"],
            dtype=_torch_constant(described["dtype"], torch.dtype),
            device="meta",
        )
    node.meta = meta
    nodes[row["name"]] = node


def _check_names(op: str, target: Any, args: Any, kwargs: Any) -> None:
    """Refuse attributes that lead away from values: from a method to the modules of its code the
    way is short.
    """
    if op == "call_method" and not (
        isinstance(target, str)
        and hasattr(torch.Tensor, target)
        and (not target.startswith("_") or target in _OPERATORS)
    ):
        raise SerializeError(f"method {target!r} may not be called from a file")
    if target is getattr:
        name = args[1] if len(args) == 2 and not kwargs else None
        if not isinstance(name, str) or name.startswith("_"):
            raise SerializeError(f"attribute {name!r} may not be read from a file")
    if target in (max, min) and kwargs:
        raise SerializeError(f"{target.__name__} with {', '.join(kwargs)} from a file")


def _callable_name(target: Any) -> str:
    path = qualified_name(target, _ROOTS)
    if path is None or not _allowed(path):
        raise SerializeError(f"{target!r} has no name that a file may use")
    return path


def _allowed(path: str) -> bool:
    if "." not in path:
        return path in _BUILTINS
    if path in _NEVER or path.startswith(_NEVER_UNDER):
        return False
    if path.startswith(_HOMES) or path in _RUN_BODIES:
        return True
    home, name = path.rsplit(".", 1)
    if home != "torch":
        return False
    function = getattr(torch, name, None)
    of_tensors = getattr(function, "__module__", None) in ("torch.functional", "torch._tensor")
    return hasattr(torch._C._VariableFunctions, name) or of_tensors


def _callable(path: str) -> Callable[..., Any]:
    if not _allowed(path):
        raise SerializeError(f"{path!r} may not be called from a file")
    try:
        found = resolve(path)
    except LookupError as error:
        raise SerializeError(str(error)) from error
    # The path must be the object's own name: torch.os.system is not torch's.
    if qualified_name(found, _ROOTS) != path:
        raise SerializeError(f"{path!r} may not be called from a file")
    return found


# -- arguments ------------------------------------------------------------------------------------


def argument_to_json(arg: Any) -> Any:
    if isinstance(arg, Node):
        return {"node": arg.name}
    if arg is None or type(arg) in (bool, int, str):
        return arg
    if isinstance(arg, float):
        return arg if math.isfinite(arg) else {"float": str(arg)}
    for kind, (key, write, _) in _LEAVES.items():
        if isinstance(arg, kind):
            return {key: write(arg)}
    if isinstance(arg, list):
        return [argument_to_json(item) for item in arg]
    if isinstance(arg, tuple) and not hasattr(arg, "_fields"):
        return {"tuple": [argument_to_json(item) for item in arg]}
    if type(arg) is OrderedDict:
        return {
            "ordered_dict": [
                [argument_to_json(key), argument_to_json(value)] for key, value in arg.items()
            ]
        }
    if isinstance(arg, dict):
        return {
            "dict": [[argument_to_json(key), argument_to_json(value)] for key, value in arg.items()]
        }
    if isinstance(arg, slice):
        return {"slice": [argument_to_json(part) for part in (arg.start, arg.stop, arg.step)]}
    if arg is ...:
        return {"ellipsis": True}
    raise SerializeError(f"an argument of type {type(arg).__name__} has no text form: {arg!r}")


def argument_from_json(data: Any, nodes: dict[str, Node]) -> Any:
    if isinstance(data, list):
        return [argument_from_json(item, nodes) for item in data]
    if not isinstance(data, dict):
        return data
    ((key, value),) = data.items()
    if key == "node":
        return nodes[value]
    if key == "tuple":
        return tuple(argument_from_json(item, nodes) for item in value)
    if key == "dict":
        return {argument_from_json(k, nodes): argument_from_json(v, nodes) for k, v in value}
    if key == "ordered_dict":
        return OrderedDict(
            (argument_from_json(k, nodes), argument_from_json(v, nodes)) for k, v in value
        )
    if key == "slice":
        return slice(*(argument_from_json(part, nodes) for part in value))
    if key == "ellipsis":
        return ...
    if key == "float":
        return float(value)
    for leaf_key, _, read in _LEAVES.values():
        if leaf_key == key:
            return read(value)
    raise SerializeError(f"unknown kind of argument {key!r}")


def _name_in_torch(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _torch_constant(name: str, kind: type) -> Any:
    value = getattr(torch, name, None)
    if not isinstance(value, kind):
        raise SerializeError(f"torch.{name} is not a {kind.__name__}")
    return value


# type -> (key, value to JSON, JSON to value)
_LEAVES: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    torch.dtype: ("dtype", _name_in_torch, lambda name: _torch_constant(name, torch.dtype)),
    torch.layout: ("layout", _name_in_torch, lambda name: _torch_constant(name, torch.layout)),
    torch.memory_format: (
        "memory_format",
        _name_in_torch,
        lambda name: _torch_constant(name, torch.memory_format),
    ),
    torch.device: ("device", str, torch.device),
    complex: ("complex", lambda z: [z.real, z.imag], lambda parts: complex(*parts)),
    torch.Size: ("size", list, torch.Size),
}
