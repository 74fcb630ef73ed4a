"""The text of `python -m dynamo show FILE`: inputs, results, steps and tensors of a saved
program.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from dynamo.saved.container import Container
from dynamo.saved.nests import leaf_numbers, paths
from fxgraph.notices import amount_of_memory
from fxgraph.serialize import argument_from_json
from fxgraph.stored import from_data
from fxgraph.stored.symbols import names_from_data
from fxgraph.stored.tensors import dtype_of

_MOST_OPERATORS = 12


def text_of(container: Container, data: Any) -> str:
    """The text of a program's data."""
    kinds = ", ".join(data["graphs"])
    lines = [
        f"{data['name']} ({kinds}), saved by framegraph {data['framegraph']} and torch "
        f"{data['torch']}",
        "inputs",
        *_inputs(data),
        "results",
        *_results(data),
        *_sizes(data["symbols"]),
        *_schedule(data["schedule"]),
        *(line for kind, graph in data["graphs"].items() for line in _operators(kind, graph)),
        *_memory(container, data),
        *_runner(container),
    ]
    return "\n".join(lines)


def _inputs(data: Any) -> list[str]:
    names = names_from_data(data["symbols"])
    return [f"  {row['path']}: {_leaf(row, names)}" for row in data["signature"]["leaves"]]


def _leaf(row: Any, names: Any) -> str:
    if "tensor" in row:
        tensor = row["tensor"]
        grad = ", requires grad" if tensor["requires_grad"] else ""
        return f"{_tensor(tensor, names)}{grad}"
    if "symbol" in row:
        return f"a number, {row['symbol']}"
    if "same_as" in row:
        return f"the same object as input {row['same_as']}"
    return f"always {argument_from_json(row['constant'], {})!r}"


def _tensor(row: Any, names: Any) -> str:
    size = ", ".join(_number(n, names) for n in row["size"])
    return f"{row['dtype']}[{size}] on {row['device']}"


def _number(data: Any, names: Any) -> str:
    return str(from_data(data["expr"], names)) if isinstance(data, dict) else str(data)


def _results(data: Any) -> list[str]:
    outputs = data["outputs"]
    rows = outputs["leaves"]
    texts = dict(paths(outputs["nest"], ""))
    names = names_from_data(data["symbols"], data["graphs"])
    found = []
    for number in leaf_numbers(outputs["nest"]):
        kind, where = rows[number]
        what = {
            "output": "",
            "leaf": "the argument itself",
            "tensor": "a tensor that the program holds",
            "number": "a number",
            "item": "a number",
            "constant": "",
        }[kind]
        if kind == "output":
            what = _tensor(outputs["shapes"][where], names)
        if kind == "constant":
            what = f"always {argument_from_json(where, {})!r}"
        if kind == "leaf":
            what = f"the argument {data['signature']['leaves'][where]['path']} itself"
        found.append(f"  {texts[number] or 'result'}: {what}")
    return found


def _sizes(symbols: Any) -> list[str]:
    if not symbols["symbols"]:
        return []
    lines = ["sizes"]
    for row in symbols["symbols"]:
        low, high = row["low"], row["high"]
        ends = f"{'any' if low is None else low} to {'any' if high is None else high}"
        lines.append(f"  {row['name']}: {row['label']}, {ends}")
    return lines + [f"  {row['text']}" for row in symbols["guards"]]


def _schedule(schedule: Any) -> list[str]:
    if schedule is None:
        return []
    return [f"schedule of {schedule['steps']} steps", *(f"  {n}" for n in schedule["names"])]


def _operators(kind: str, graph: Any) -> list[str]:
    parts = [kind] if kind != "training" else ["forward", "backward"]
    lines = []
    for part in parts:
        nodes = graph["nodes" if kind != "training" else part]
        counts = Counter(node["op"] for node in nodes if "op" in node)
        shown = [
            f"{name.removesuffix('.default')} {count}"
            for name, count in counts.most_common(_MOST_OPERATORS)
        ]
        rest = len(counts) - len(shown)
        lines.append(f"operators of {part}: {sum(counts.values())}")
        lines.append(f"  {', '.join(shown)}{f' and {rest} others' if rest > 0 else ''}")
    return lines


def _memory(container: Container, data: Any) -> list[str]:
    """Sections, and weights, as many bytes as their elements take."""
    lines = ["memory", f"  file: {amount_of_memory(container.size)}"]
    lines += [
        f"  section {name}: {amount_of_memory(container.bytes_of(name))}"
        for name in container.names
    ]
    rows = [row for row in data["tensors"] if row["names"]]
    total = sum(math.prod(row["size"]) * dtype_of(row["dtype"]).itemsize for row in rows)
    outside = any("weights" not in row for row in rows)
    where = "given at load" if outside else "in the file"
    parameters = sum(bool(row["parameter"]) for row in rows)
    lines.append(
        f"  weights: {parameters} parameters and {len(rows) - parameters} buffers, "
        f"{amount_of_memory(total)}, {where}"
    )
    return lines


def _runner(container: Container) -> list[str]:
    if "plan" not in container.names:
        return []
    plan = json.loads(bytes(container.section("plan")))
    targets = [n.split("/")[1] for n in container.names if n.endswith(f"/{plan['kernels']}")]
    kernels = sum(step[0] == "kernel" for step in plan["steps"])
    where = ", ".join(targets) or "any processor"
    found = [f"runs without Python: {kernels} kernels for {where}"]
    calls = Counter(
        step[1].removeprefix("aten::") for step in plan["steps"] if step[0] == "operator"
    )
    if calls:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(calls.items()))
        found.append(f"  and operators of libtorch: {names}")
    return found
