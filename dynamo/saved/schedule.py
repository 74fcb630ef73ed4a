"""The numbers of optimizers that schedulers change, by step: a table, since schedulers are Python.

{"steps": 1000, "names": ["optimizers.0.param_groups.0.lr"], "end": "...", "tensors": [null],
 "table": {"start": 0, "bytes": 8000, "offset": 0}}     # float64, a row for each step, in constants

A learning rate that is a tensor is one of the program's (`tensors`), and written before each step;
others are symbols, read as ["schedule", column].
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo.errors import ProgramError
from dynamo.static_graph.rates import LR, Column, columns_of

_TRIED = 50  # steps in which a scheduler that changes momentum is expected to do so


# -- saving ---------------------------------------------------------------------------------------
def varying(state: Any) -> frozenset[str]:
    """The sources of the numbers that the schedulers of a Graph change."""
    if not state.schedulers:
        return frozenset()
    columns, rows, _ = tabulated(state, _TRIED)
    found = (
        column.source
        for number, column in enumerate(columns)
        if column.key == LR or len({row[number] for row in rows}) > 1
    )
    return frozenset(found)


def tabulated(state: Any, steps: int) -> tuple[list[Column], list[list[float]], str]:
    """Columns, a row for each of the next `steps` steps, and why there are no more."""
    optimizers, schedulers = _copies(state)
    scheduled = {id(one.optimizer) for one in schedulers}
    columns = [
        column for column in columns_of(optimizers)
        if id(optimizers[column.optimizer]) in scheduled
    ]  # fmt: skip
    rows: list[list[float]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no step of the optimizer comes between
        for _ in range(steps):
            rows.append([float(column.read(optimizers)) for column in columns])
            try:
                for scheduler in schedulers:
                    scheduler.step()
            except ValueError as error:
                return columns, rows, str(error)
    return columns, rows, f"it was saved with the learning rates of {steps} steps"


def _copies(state: Any) -> tuple[list[torch.optim.Optimizer], list[Any]]:
    """Optimizers and schedulers whose steps change nothing; parameters are the same."""
    kept: dict[int, Any] = {}
    for optimizer in state.optimizers:
        for group in optimizer.param_groups:
            kept |= {id(parameter): parameter for parameter in group["params"]}
        for values in optimizer.state.values():
            kept |= {id(v): v for v in values.values() if isinstance(v, torch.Tensor)}
    return copy.deepcopy((state.optimizers, state.schedulers), kept)


class Schedule:
    """The schedule of a program that is being saved: data, once its columns are known."""

    def __init__(self, state: Any, steps: int, fail: Callable[[str], ProgramError]) -> None:
        marked = varying(state)
        columns, rows, self.end = tabulated(state, steps)
        used = []
        for number, column in enumerate(columns):
            if column.source in marked:
                used.append(number)
            elif len({row[number] for row in rows}) > 1:
                raise fail(
                    f"its scheduler changes {column.name} late, after more than {_TRIED} steps"
                )
        self.columns = [columns[number] for number in used]
        self.optimizers = state.optimizers
        self.table = torch.tensor(rows, dtype=torch.float64)[:, used].contiguous()
        self.numbers = {column.source: number for number, column in enumerate(self.columns)}

    def data(self, place: Any, tensor_number: Callable[[torch.Tensor, str], int]) -> Any:
        values = [column.read(self.optimizers) for column in self.columns]
        tensors = [
            tensor_number(value, column.name) if isinstance(value, torch.Tensor) else None
            for column, value in zip(self.columns, values)
        ]
        return {
            "steps": len(self.table),
            "names": [column.name for column in self.columns],
            "end": self.end,
            "tensors": tensors,
            "table": place(self.table),
        }


# -- loaded ---------------------------------------------------------------------------------------
class Rates:
    """The schedule of a loaded program, `program.schedule`.

    step: how many steps were taken since the program was saved; assign to it to go on elsewhere.
    steps: how many there are.
    """

    def __init__(
        self, data: Any, table: torch.Tensor, tensors: Sequence[torch.Tensor], name: str
    ) -> None:
        self.names = [str(row) for row in data["names"]]
        self.steps, self.end, self._name = data["steps"], str(data["end"]), name
        if type(self.steps) is not int or tuple(table.shape) != (self.steps, len(self.names)):
            raise ValueError("a schedule of another size")
        where = data["tensors"]
        if len(where) != len(self.names):
            raise ValueError("a schedule of other columns")
        self._table = table
        self._written = [(i, tensors[n]) for i, n in enumerate(where) if _is_of(n, tensors)]
        if any(tensor.dim() or not tensor.is_floating_point() for _, tensor in self._written):
            raise ValueError("a learning rate that is none")
        self._step = 0

    @property
    def step(self) -> int:
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        if type(step) is not int or not 0 <= step <= self.steps:
            raise ValueError(f"a step from 0 to {self.steps}, not {step!r}")
        self._step = step

    def rates(self) -> dict[str, float]:
        """The numbers of the next step by name: {"optimizers.0.param_groups.0.lr": 0.1}"""
        return dict(zip(self.names, self._row()))

    def begin(self) -> None:
        """Before a step: learning rates that are tensors are written."""
        row = self._row()
        for column, tensor in self._written:
            tensor.fill_(row[column])

    def advance(self) -> None:
        self._step += 1

    def value(self, column: int) -> float:
        return self._row()[column]

    def _row(self) -> list[float]:
        if self._step >= self.steps:
            raise ProgramError(
                f"{self._name}: its schedule ends after {self.steps} steps: {self.end}. Save it "
                "with more: save(..., steps=N)"
            )
        return self._table[self._step].tolist()


def _is_of(number: Any, tensors: Sequence[torch.Tensor]) -> bool:
    if number is None:
        return False
    if type(number) is not int or not 0 <= number < len(tensors):
        raise ValueError("a learning rate in no tensor")
    return True
