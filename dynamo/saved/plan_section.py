"""The sections by which a saved program runs without Python.

plan        JSON: a call's inputs and results, beside the plan of inductor/runner/section.py
derived     tensors of the plan's own: weights in panels, constants; if there is no section
            `weights`, also the weights that kernels read as they are
kernels/... a library for each target

The plan's JSON has these keys more:

    symbols     [{"name", "label", "low", "high", "read": ["size", input, dim] | ["stride", input,
                dim] | ["number", input] | ["fixed", value]}]
    conditions  [{"holds": expression, "text"}] on them
    inputs      [{"path", "dtype", "number", "size": [expression], "stride": [expression]}] in order
    given       the kinds of the plan's inputs: ["leaf", input] or ["number", expression]
    statics     [{"section", "start", "bytes", "offset"}]: memory, and the byte in it where the
                tensor begins
    kernels     the digest in the names of the libraries' sections, or null
    results     [{"path", "source": ["output", number] | ["leaf", input] | ["number", expression] |
                ["held", value of the plan]}]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.backend_lookup import lookup_backend
from dynamo.errors import ProgramError
from dynamo.saved.memory import Memory
from dynamo.saved.nests import leaf_numbers, paths
from fxgraph.stored import assumed, to_data

if TYPE_CHECKING:
    from dynamo.saved.saving import Saving

TARGETS = ("x86-64-v3",)  # where none are named
_INT64 = {"dtype": "int64", "size": [], "stride": []}


def runner_sections(
    saving: Saving, data: Any, targets: Sequence[str], library: str
) -> dict[str, Any]:
    """The sections for a program whose data this is, which may call operators of `library`. Raises
    ProgramError, with the reason, for one that needs Python or torch.
    """
    graphs, inputs = saving.read_back(data)
    if "inference" not in graphs:
        raise _refused(saving, "it is a training step")
    make = lookup_backend("inductor").standalone  # type: ignore[attr-defined]
    try:
        made = make(graphs["inference"], inputs, tuple(targets) or TARGETS, library)
    except Exception as error:
        if type(error).__name__ != "NotStandalone":
            raise
        raise _refused(saving, str(error)) from error
    writer = _Writer(saving, data, made)
    guards = assumed(graphs["inference"], data["symbols"])
    plan = writer.plan([{"holds": to_data(g.condition), "text": str(g.condition)} for g in guards])
    sections = {"plan": [json.dumps(plan, allow_nan=False).encode()], "derived": writer.chunks}
    for target, library in made.libraries.items():
        sections[f"kernels/{target}/{plan['kernels']}"] = [library]
    return sections


def _refused(saving: Saving, text: str) -> ProgramError:
    return ProgramError(f"{saving.name} does not run without Python: {text}")


class _Writer:
    """Writes a plan as data."""

    def __init__(self, saving: Saving, data: Any, made: Any) -> None:
        self.saving, self.data, self.made = saving, data, made
        self.memory = Memory()
        self.leaves = data["signature"]["leaves"]
        called = [i for i, row in enumerate(self.leaves) if "tensor" in row or "symbol" in row]
        self.inputs = {leaf: number for number, leaf in enumerate(called)}
        self.statics = [self._static(one) for one in made.statics]

    @property
    def chunks(self) -> list[Any]:
        return self.memory.chunks

    def plan(self, guards: list[dict[str, Any]]) -> dict[str, Any]:
        symbols = self.data["symbols"]
        if any(row["name"].startswith("f") for row in symbols["symbols"]):
            raise _refused(self.saving, "real numbers among its arguments")
        stated = [{"holds": row["condition"], "text": row["text"]} for row in symbols["guards"]]
        plan = {
            **self.made.plan,
            "symbols": [self._symbol(row) for row in symbols["symbols"]],
            "conditions": stated + guards,
            "inputs": [self._input(leaf) for leaf in self.inputs],
            "given": [
                ["number", where] if kind == "symbol" else ["leaf", self._number(where)]
                for kind, where in self.data["graph_inputs"]
                if kind != "tensor"
            ],
            "statics": self.statics,
            "results": self._results(),
            "kernels": None,
        }
        _check_functions(self.saving, plan)
        if self.made.libraries:
            texts = [hashlib.sha256(text).hexdigest() for text in self.made.libraries.values()]
            plan["kernels"] = hashlib.sha256("".join(texts).encode()).hexdigest()
        return plan

    def _number(self, leaf: int) -> int:
        return self.inputs[self.leaves[leaf].get("same_as", leaf)]

    def _symbol(self, row: Mapping[str, Any]) -> dict[str, Any]:
        kind, *rest = self.data["signature"]["reads"][row["name"]]
        if kind != "fixed":
            rest[0] = self._number(rest[0])
        keys = ("name", "label", "low", "high")
        return {**{key: row[key] for key in keys}, "read": [kind, *rest]}

    def _input(self, leaf: int) -> dict[str, Any]:
        row = self.leaves[leaf]
        tensor = row.get("tensor", _INT64)
        sizes = {key: [_expression(n) for n in tensor[key]] for key in ("size", "stride")}
        number = "symbol" in row
        return {"path": row["path"], "dtype": tensor["dtype"], "number": number, **sizes}

    def _static(self, one: int | torch.Tensor) -> dict[str, Any]:
        if isinstance(one, int):
            return self._tensor(self.data["graph_inputs"][one][1])
        return _place("derived", self.memory.place(one), one.element_size())

    def _tensor(self, number: int) -> dict[str, Any]:
        """A tensor of the program's."""
        row = self.data["tensors"][number]
        for section in ("weights", "constants"):
            if section in row:
                return _place(section, row[section], _ELEMENT[row["dtype"]])
        return self._static(self.saving.held(number))

    def _results(self) -> list[dict[str, Any]]:
        outputs = self.data["outputs"]
        names = dict(paths(outputs["nest"], ""))
        rows = []
        for number in leaf_numbers(outputs["nest"]):
            kind, where = outputs["leaves"][number]
            if kind == "constant":
                continue
            if kind == "item":  # a tensor, as all results of the runner
                kind = "output"
            if kind == "leaf":
                where = self._number(where)
            if kind == "tensor":
                kind, where = "held", self._held(where)
            rows.append({"path": names[number] or "result", "source": [kind, where]})
        return rows

    def _held(self, tensor: int) -> int:
        """The value of the plan that is a tensor which the program returns unchanged."""
        row = self.data["tensors"][tensor]
        self.statics.append(self._tensor(tensor))
        last = sum((n - 1) * step for n, step in zip(row["size"], row["stride"], strict=True)) + 1
        size = 0 if 0 in row["size"] else last * _ELEMENT[row["dtype"]]
        value = ["static", "held", row["dtype"], row["size"], row["stride"]]
        self.made.plan["values"].append([*value, len(self.statics) - 1, 0, size])
        return len(self.made.plan["values"]) - 1


_ELEMENT = {
    str(dtype).removeprefix("torch."): dtype.itemsize
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}


def _place(section: str, place: Mapping[str, int], element: int) -> dict[str, Any]:
    offset = place["offset"] * element
    return {"section": section, "start": place["start"], "bytes": place["bytes"], "offset": offset}


def _expression(data: Any) -> Any:
    return data["expr"] if isinstance(data, dict) else data


# Functions of expressions that the runner knows (plan.cpp).
_FUNCTIONS = frozenset(
    ["Add", "Mul", "Pow", "FloorDiv", "Mod", "Max", "Min", "Truth", "Choose", "Eq", "Ne", "Le",
     "Ge", "Lt", "Gt", "And", "Or", "Not"]
)  # fmt: skip


def _check_functions(saving: Saving, plan: Mapping[str, Any]) -> None:
    def known(data: Any) -> bool:
        if isinstance(data, list):
            return data[0] in _FUNCTIONS and all(map(known, data[1:]))
        return not isinstance(data, dict)

    found = [(row["holds"], row["text"]) for row in plan["conditions"]]
    found += [
        (n, f"the size of {row['path']}")
        for row in plan["inputs"]
        for n in (*row["size"], *row["stride"])
    ]
    for row in plan["results"]:
        kind, where = row["source"]
        if kind == "number":
            found.append((where, f"the result {row['path']}"))
    for expression, text in found:
        if not known(expression):
            raise _refused(saving, f"an expression that the runner has no form of: {text}")
