"""Graphs as text: runnable Python, a readable class with source lines and shapes, and a table.

Generated code names objects of torch, math, operator and builtins by dotted path; any other object
(a user's function, an enum) gets a global name and travels in `PythonCode.globals`.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fxgraph.node import Node
from fxgraph.targets import qualified_name

if TYPE_CHECKING:
    from fxgraph.graph import Graph

INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=", operator.is_: "is", operator.is_not: "is not",
}  # fmt: skip
PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+", operator.not_: "not "}

DTYPE_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.complex64: "c64", torch.complex128: "c128", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.bool: "b8", torch.uint8: "u8",
}  # fmt: skip

_FRAME = re.compile(r'File "(?P<file>.*?)", line (?P<line>\d+), in (?P<function>.*)')


@dataclass
class PythonCode:
    """Source of `forward`, and the objects that its global names stand for."""

    src: str
    globals: dict[str, Any] = field(default_factory=dict)


class _Writer:
    """Writes expressions and collects the globals they need."""

    def __init__(self, graph: Graph, root_module: str) -> None:
        self.globals: dict[str, Any] = {}
        self.imports: set[str] = set()
        self.root = root_module
        self._names = {node.name for node in graph.nodes}
        self._targets: dict[int, str] = {}

    def callable_name(self, target: Any) -> str:
        known = self._targets.get(id(target))
        if known is None:
            path = qualified_name(target)
            if path is None:
                path = self._add_global(target)
            elif "." in path:
                self.imports.add(path.split(".")[0])
            known = self._targets[id(target)] = path
        return known

    def _add_global(self, value: Any) -> str:
        module = getattr(value, "__module__", None)
        name = getattr(value, "__name__", None) or type(value).__name__
        hint = re.sub(r"\W+", "_", f"{module}_{name}" if isinstance(module, str) else name)
        count, unique = 0, hint
        while unique in self._names or unique in self.globals:
            count += 1
            unique = f"{hint}_{count}"
        self.globals[unique] = value
        return unique

    def expression(self, arg: Any) -> str:
        """Source of an argument."""
        kind = type(arg)
        if kind is Node:
            return arg.name
        if kind is float and not math.isfinite(arg):
            return f"float('{arg}')"
        writer = _EXPRESSIONS.get(kind)
        if writer is not None:
            return writer(self, arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            inside = ", ".join(self.expression(item) for item in arg)
            return f"{self.callable_name(kind)}({inside})"
        if kind is OrderedDict:
            return f"{self.callable_name(kind)}({self._dict(arg)})"
        if isinstance(arg, torch.Size):
            return f"torch.Size({self.expression(list(arg))})"
        if isinstance(arg, (torch.dtype, torch.layout, torch.memory_format)):
            self.imports.add("torch")
            return repr(arg)
        if isinstance(arg, (type, torch._ops.OpOverload)) or callable(arg):
            return self.callable_name(arg)
        return self._targets.setdefault(id(arg), "") or self._bind(arg)

    def _bind(self, arg: Any) -> str:
        name = self._targets[id(arg)] = self._add_global(arg)
        return name

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        parts = [self.expression(arg) for arg in args]
        if all(key.isidentifier() and not keyword.iskeyword(key) for key in kwargs):
            parts += [f"{key} = {self.expression(arg)}" for key, arg in kwargs.items()]
        else:  # `normal_(from=0)`: the keyword is a Python keyword
            inside = ", ".join(f"{k!r}: {self.expression(a)}" for k, a in kwargs.items())
            parts.append(f"**{{{inside}}}")
        return ", ".join(parts)

    def call(self, node: Node) -> str:
        """Source of the right-hand side of a node's assignment."""
        return _CALLS[node.op](self, node)

    def attribute(self, path: str) -> str:
        source = self.root
        for part in path.split("."):
            if part.isidentifier() and not keyword.iskeyword(part):
                source = f"{source}.{part}"
            else:
                source = f'getattr({source}, "{part}")'
        return source

    def _call_function(self, node: Node) -> str:
        target, args, kwargs = node.target, node.args, node.kwargs
        if not kwargs and len(args) == 2:
            infix = INFIX.get(target)
            if infix is not None:
                return f"{self._operand(args[0])} {infix} {self._operand(args[1])}"
            if target is operator.getitem and isinstance(args[0], Node):
                return f"{self.expression(args[0])}[{self._index(args[1])}]"
            plain = (
                isinstance(args[0], Node) and isinstance(args[1], str) and args[1].isidentifier()
            )
            if target is getattr and plain:
                return f"{args[0].name}.{args[1]}"
        if not kwargs and len(args) == 1 and target in PREFIX:
            return f"{PREFIX[target]}{self._operand(args[0])}"
        return f"{self.callable_name(target)}({self.arguments(args, kwargs)})"

    def _operand(self, arg: Any) -> str:
        text = self.expression(arg)
        return f"({text})" if text.startswith("-") else text

    def _index(self, index: Any) -> str:
        if type(index) is tuple and index:
            inside = ", ".join(self._index(item) for item in index)
            return f"({inside},)" if len(index) == 1 else f"({inside})"
        return self.expression(index)

    def _call_method(self, node: Node) -> str:
        this = self.expression(node.args[0])
        arguments = self.arguments(node.args[1:], node.kwargs)
        if not isinstance(node.args[0], Node):
            this = f"({this})"
        return f"{this}.{node.target}({arguments})"

    def _call_module(self, node: Node) -> str:
        return f"{self.attribute(node.target)}({self.arguments(node.args, node.kwargs)})"

    def _get_attr(self, node: Node) -> str:
        return self.attribute(node.target)

    def _sequence(self, arg: Any) -> str:
        inside = ", ".join([self.expression(item) for item in arg])
        if type(arg) is list:
            return f"[{inside}]"
        return f"({inside},)" if len(arg) == 1 else f"({inside})"

    def _dict(self, arg: dict[Any, Any]) -> str:
        pairs = ", ".join(
            f"{self.expression(key)}: {self.expression(value)}" for key, value in arg.items()
        )
        return f"{{{pairs}}}"

    def _slice(self, arg: slice) -> str:
        return f"slice({', '.join(self.expression(x) for x in (arg.start, arg.stop, arg.step))})"

    def _device(self, arg: torch.device) -> str:
        self.imports.add("torch")
        return f"torch.device({str(arg)!r})"


def _plain(writer: _Writer, arg: Any) -> str:
    return repr(arg)


def _complex(writer: _Writer, arg: complex) -> str:
    """A literal is a sum, which loses signs of zeros, and has no name for infinity."""
    parts = (arg.real, arg.imag)
    exact = all(parts) or all(math.copysign(1, part) > 0 for part in parts)
    if exact and all(map(math.isfinite, parts)):
        return repr(arg)
    return f"complex({', '.join(map(writer.expression, parts))})"


_EXPRESSIONS: dict[type, Callable[[_Writer, Any], str]] = {
    int: _plain, float: _plain, bool: _plain, str: _plain, bytes: _plain, complex: _complex,
    type(None): _plain, type(...): lambda writer, arg: "...", range: _plain,
    tuple: _Writer._sequence, list: _Writer._sequence, dict: _Writer._dict,
    slice: _Writer._slice, torch.device: _Writer._device,
}  # fmt: skip
_CALLS: dict[str, Callable[[_Writer, Node], str]] = {
    "call_function": _Writer._call_function,
    "call_method": _Writer._call_method,
    "call_module": _Writer._call_module,
    "get_attr": _Writer._get_attr,
}


def python_code(graph: Graph, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
    """The graph as `def forward(self, ...)`.

    A value is dropped (`x = None`) after its last use, so that running the code holds no more
    memory than needed. With `verbose`, user source lines stand above the operations and values
    carry shapes.
    """
    writer = _Writer(graph, root_module)
    parameters, body = _statements(graph, writer, verbose)
    signature = ", ".join([root_module, *parameters])
    lines = [f"import {name}" for name in sorted(writer.imports)]
    lines += ["", f"def forward({signature}):", *(f"    {line}".rstrip() for line in body)]
    return PythonCode("\n".join(lines) + "\n", dict(writer.globals))


def _statements(graph: Graph, writer: _Writer, verbose: bool) -> tuple[list[str], list[str]]:
    parameters: list[str] = []
    body: list[str] = []
    renamed: dict[str, str] = {}  # value -> its parameter, which may be another value's name
    drops = _last_uses(graph)
    last_comment = None
    for node in graph.nodes:
        if node.op == "placeholder":
            parameters.append(_parameter(node, writer, verbose))
            bare = node.target.lstrip("*")
            if bare != node.name and bare.isidentifier():
                renamed[node.name] = bare
            continue
        if verbose:
            comment = source_comment(node)
            if comment is not None and comment != last_comment:
                body += ["", comment]
            last_comment = comment or last_comment
        if node.op == "output":
            body.append(f"return {writer.expression(node.args[0])}")
            break
        annotation = f': "{described}"' if verbose and (described := describe(node)) else ""
        statement = f"{node.name}{annotation} = {writer.call(node)}"
        if drops.get(node):
            names = " = ".join(dead.name for dead in drops[node])
            statement += f";  {names} = None"
        body.append(statement)
    if renamed:  # all at once, before any of the names is given to a value
        body.insert(0, f"{', '.join(renamed)} = {', '.join(renamed.values())}")
    return parameters, body or ["pass"]


def _parameter(node: Node, writer: _Writer, verbose: bool) -> str:
    text = node.target if node.target.lstrip("*").isidentifier() else node.name
    if verbose and (described := describe(node)):
        text += f': "{described}"'
    if node.args:
        text += f" = {writer.expression(node.args[0])}"
    return text


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, the values that are dead once it has run."""
    seen: set[Node] = set()
    drops: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        dead = []
        if node not in seen and node.op not in ("placeholder", "output"):
            dead.append(node)  # nobody uses it
        for used in reversed(node.all_input_nodes):
            if used not in seen:
                seen.add(used)
                dead.append(used)
        seen.add(node)
        if dead and node.op not in ("output", "placeholder"):
            drops[node] = dead
    return drops


def describe(node: Node) -> str | None:
    """A value in short: `f32[2, 3]`, with strides when they are not contiguous."""
    value = node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(value, torch.Tensor):
        return "Sym(" + str(value) + ")" if isinstance(value, torch.SymInt) else None
    dtype = DTYPE_SHORT.get(value.dtype, str(value.dtype).removeprefix("torch."))
    text = f"{dtype}[{', '.join(map(str, value.shape))}]"
    if value.layout is torch.strided and not value.is_contiguous():
        text += f" strides ({', '.join(map(str, value.stride()))})"
    if value.device.type != "cpu":
        text += f" {value.device}"
    return text


def source_comment(node: Node) -> str | None:
    """`# File: model.py:12 in forward, code: x = self.fc(x)` from the node's stack trace."""
    trace = node.stack_trace
    if not trace:
        return None
    lines = trace.strip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        frame = _FRAME.search(lines[index])
        if frame:
            code = lines[index + 1].strip() if index + 1 < len(lines) else ""
            where = f"{frame['file']}:{frame['line']} in {frame['function'].strip()}"
            return f"# File: {where}, code: {code}"
    return None


def readable(graph: Graph, class_name: str = "GraphModule") -> str:
    """The graph as a class with source lines, shapes and the sources of its inputs."""
    code = python_code(graph, verbose=True)
    head, _, function = code.src.partition("def forward")
    provenance = [
        f"#   {node.name} = {node.meta['source']}{' (static)' if node.meta.get('static') else ''}"
        for node in graph.nodes
        if node.op == "placeholder" and "source" in node.meta
    ]
    lines = [line for line in head.splitlines() if line] + ["import torch"] * (
        "import torch" not in head
    )
    lines += ["", f"class {class_name}(torch.nn.Module):"]
    lines += [f"    {line}" for line in (["# inputs", *provenance] if provenance else [])]
    lines += [f"    {line}".rstrip() for line in f"def forward{function}".splitlines()]
    return "\n".join(lines) + "\n"


def table(graph: Graph) -> str:
    """The graph as a table with the columns opcode, name, target, args, kwargs."""
    from tabulate import tabulate

    rows = [
        [node.op, node.name, _target_text(node), node.args, node.kwargs] for node in graph.nodes
    ]
    return tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"])


def _target_text(node: Node) -> str:
    return node.target if isinstance(node.target, str) else str(node.target)


def format_node(node: Node) -> str:
    """`%relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})`."""
    if node.op == "placeholder":
        default = f"(default={node.args[0]})" if node.args else ""
        head = f"%{node.name} : [num_users={len(node.users)}]"
        return f"{head} = placeholder[target={node.target}]{default}"
    if node.op == "output":
        return f"return {node.args[0]}"
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    text = (
        f"%{node.name} : [num_users={len(node.users)}] = {node.op}[target={target or node.target}]"
    )
    if node.op == "get_attr":
        return text
    args, kwargs = _percent(node.args), _percent(node.kwargs)
    return f"{text}(args = {args}, kwargs = {kwargs})"


def _percent(arg: Any) -> str:
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if type(arg) is tuple:
        return "(" + ", ".join(map(_percent, arg)) + ("," if len(arg) == 1 else "") + ")"
    if type(arg) is list:
        return "[" + ", ".join(map(_percent, arg)) + "]"
    if type(arg) is dict:
        return "{" + ", ".join(f"{key}: {_percent(value)}" for key, value in arg.items()) + "}"
    return str(arg)
