"""Softmax over rows longer than a tile, with one pass for its maximum and its sum.

    top = max(x), total = sum(exp(x - top))

A second pass for the sum would read the row again. Online, a larger maximum scales the sum so far
(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018): each lane of the tile
keeps a maximum and a sum of its own, and the lanes are put together behind the loop.

`online_sums` finds such pairs in a kernel by the values of its tapes, not by operators, so that
log-softmax, cross-entropy and masked scores are among them.
"""

from __future__ import annotations

from typing import Any

import torch

from inductor.codegen.triton_body import Accumulator, Pass, spread
from inductor.ir import Loops
from inductor.ops import Value
from inductor.schedule.fusion import Kernel


def online_sums(kernel: Kernel) -> dict[Loops, Loops]:
    """Sums of a kernel of rows that a maximum of the same rows can run along with, by maximum."""
    numbers = _Numbers(kernel)
    found: dict[Loops, Loops] = {}
    for step in kernel.steps:
        if step.reduction != "sum":
            continue
        for top in kernel.steps:
            if top is step:
                break
            if top not in found and _is_maximum(top) and numbers.is_sum_of_exp(step, top):
                found[top] = step
    return found


def _is_maximum(step: Loops) -> bool:
    return step.reduction == "max" and step.values[0].dtype in (torch.float32, torch.float64)


class _Numbers:
    """Equal values of the tapes of a kernel have one number. A load from the buffer of an
    elementwise step of the kernel has the number of the step's value."""

    def __init__(self, kernel: Kernel) -> None:
        full = [s for s in kernel.steps if kernel.role(s) == "full"]
        self.made = {(s.target.name, s.index): s.values[0] for s in full}
        self.known: dict[Any, int] = {}
        self.of_values: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        found = self.of_values.get(value)
        if found is None:
            found = self.of_values[value] = self._number(value)
        return found

    def _number(self, value: Value) -> int:
        if value.op == "load" and not value.attr.masked:
            source = self.made.get((value.attr.buffer, value.attr.index))
            if source is not None:
                return self.number(source)
        attr = repr(value.attr) if value.op == "constant" else value.attr
        key = (value.op, value.dtype, attr, *map(self.number, value.args))
        return self.known.setdefault(key, len(self.known))

    def is_sum_of_exp(self, step: Loops, top: Loops) -> bool:
        """Whether a step sums exp(x - top), where `top` is the maximum of x."""
        power = self._source(step.values[0])
        if power.op != "exp":
            return False
        difference = self._source(power.args[0])
        if difference.op != "sub":
            return False
        x, subtracted = difference.args
        return (
            subtracted.op == "load"
            and (subtracted.attr.buffer, subtracted.attr.index) == (top.target.name, top.index)
            and x.dtype == top.target.dtype  # the maximum is not rounded
            and self.number(x) == self.number(top.values[0])
        )

    def _source(self, value: Value) -> Value:
        """The value that an elementwise step of the kernel gives, for a load of that."""
        while value.op == "load" and not value.attr.masked:
            source = self.made.get((value.attr.buffer, value.attr.index))
            if source is None:
                break
            value = source
        return value


class OnlineSum(Accumulator):
    """A maximum that runs along a loop, and the sum of exp(. - maximum) with it."""

    def __init__(self, emitter: Any, top: Loops, total: Loops) -> None:
        super().__init__(emitter, top)
        self.total = Accumulator(emitter, total)

    def start(self) -> list[str]:
        return [*super().start(), *self.total.start()]

    def update(self, body: Pass) -> None:
        (term,) = body.evaluate(self.step)
        tile = spread(body, term.text, term.axes)
        mask = self.emitter.mask("r")
        if mask:
            tile = body.bind(f"tl.where({mask}, {tile}, {self.neutral})", {"x", "r"}).text
        top = body.bind(f"fg.maximum({self.name}, {tile})", {"x", "r"}).text
        total = self.total.name
        body.lines.append(f"{total} = fg.online_sum({total}, {self.name}, {tile}, {top})")
        body.lines.append(f"{self.name} = {top}")

    def finish(self, rows: Pass) -> None:
        super().finish(rows)
        top = rows.known[self.step.target.name, self.step.index].text
        text = f"fg.row_online_sum({self.total.name}, {self.name}, {top})"
        rows.keep(self.total.step, rows.bind(text, {"x"}))
