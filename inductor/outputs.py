"""Outputs of a plan: every value of the functional graph's frame as a buffer, input, view or
constant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fxgraph.sizes import Extent, Undecided, contiguous_strides, product
from inductor.ir import Buffer, Called, Program, Tensor, Window
from inductor.lowering.context import Lowering
from inductor.lowering.layouts import is_dense, is_distinct
from inductor.runtime.plan import OutputSpec


def plan_outputs(program: Program, functional: Any, results: list[Any]) -> list[OutputSpec]:
    """Realise the returned tensors, with eager's strides, and describe them. `results` are the
    values that the functional graph returns.
    """
    run = _Outputs(program, functional, results)
    return run.all()


Geometry = tuple[tuple[Extent, ...], tuple[Extent, ...]]


class _Outputs:
    def __init__(self, program: Program, functional: Any, results: list[Any]) -> None:
        self.program = program
        self.functional = functional
        self.results = results
        output = next(n for n in reversed(list(functional.graph_module.graph.nodes)))
        self.vals = [a.meta.get("val") if hasattr(a, "meta") else a for a in output.args[0]]
        self.ctx = Lowering(program)
        self.owned: dict[int, Buffer] = {}  # graph output -> the buffer made for it
        self.taken: set[str] = set()
        self.places: dict[int, list[int]] = {}  # graph output -> the results that it is
        for place, spec in enumerate(functional.outputs):
            if spec.kind in ("fresh", "alias_of_intermediate"):
                self.places.setdefault(spec.index, []).append(place)
        self.viewed = {
            spec.index
            for spec in functional.outputs
            if spec.kind in ("same_as_output", "alias_of_output")
        }
        called = (step for step in program.steps if isinstance(step, Called))
        self.called_for = {name for step in called for name in step.writes}

    def all(self) -> list[OutputSpec]:
        specs = self.functional.outputs
        done: dict[int, OutputSpec] = {}
        for late in (False, True):
            for number, spec in enumerate(specs):
                if (spec.kind in ("alias_of_output", "same_as_output")) is late:
                    done[number] = self._one(spec, done)
        return [done[n] for n in range(len(specs))]

    def _one(self, spec: Any, done: dict[int, OutputSpec]) -> OutputSpec:
        match spec.kind:
            case "input":
                return OutputSpec("input", f"arg{spec.index}")
            case "alias_of_input":
                return self._view(spec, f"arg{spec.index}")
            case "same_as_output":
                return done[spec.index]
            case "alias_of_output":
                return self._view(spec, done[spec.index].name)
            case "constant":
                return self._constant(spec)
        value = self.results[spec.index]
        if not isinstance(value, Tensor):
            return OutputSpec("value", value=value)
        if spec.kind == "fresh" and (repeated := self._repeated(spec.index)):
            return self._expanded(spec.index, value, repeated)
        if spec.kind == "fresh" and (shaped := self._reshaped(spec.index, value)) is not None:
            return shaped
        buffer = self._own(spec.index, value, *self._geometry(spec.index))
        if spec.kind == "alias_of_intermediate":
            return self._view(spec, buffer.name)
        return OutputSpec("buffer", buffer.name)

    def _view(self, spec: Any, name: str) -> OutputSpec:
        sizes = self.ctx.sizes
        size, stride = sizes.all(spec.size), sizes.all(spec.stride)
        detached = "view" if spec.creation < 0 else ""
        if not detached and spec.kind == "alias_of_input" and spec.detached:
            detached = "base"
        if spec.own_version:
            detached = "data"
        offset = sizes.of(spec.storage_offset)
        return OutputSpec("view", name, size, stride, offset, detached=detached)

    def _constant(self, spec: Any) -> OutputSpec:
        value = spec.constant
        if not isinstance(value, torch.Tensor):
            return OutputSpec("value", value=value)
        name = f"const{len(self.program.constants)}"
        self.program.constants[name] = value.detach()
        if spec.size is not None:
            return self._view(spec, name)
        return OutputSpec("buffer", name)

    def _geometry(self, number: int) -> Geometry:
        val = self.vals[number]
        return self.ctx.shape(val), self.ctx.strides(val)

    def _repeated(self, number: int) -> list[int]:
        """The dimensions along which eager's tensor has one element in memory, if that is all that
        its elements share: gradients of sums are expanded."""
        size, stride = self._geometry(number)
        dims = [d for d, (n, step) in enumerate(zip(size, stride)) if step == 0 and n != 1]
        return dims if is_distinct(_without(size, dims), stride) and product(size) != 0 else []

    def _expanded(self, number: int, value: Tensor, dims: list[int]) -> OutputSpec:
        size, stride = self._geometry(number)
        once = _without(size, dims)
        window = value.window
        if window is not None:
            window = Window(window.buffer, once, window.stride, window.offset)
        inner = None if window is not None else value.load
        value = replace(value, size=once, window=window, inner=inner, split=None, hint=None)
        strides = [s if s != 0 else 1 for s in stride]
        buffer = self._own(number, value, once, tuple(strides))
        return OutputSpec("view", buffer.name, size, stride)

    def _reshaped(self, number: int, value: Tensor) -> OutputSpec | None:
        """An operator's result that the graph returns in another shape, and in no other way."""
        window = value.window
        if window is None or window.buffer.kind != "aten" or window.buffer.name in self.taken:
            return None
        if self._is_returned_otherwise(number):
            return None
        size, stride = self._geometry(number)
        made = window.buffer
        if (
            number in self.owned
            or window.offset != 0
            or made.size == size
            or product(made.size) != product(size)
            or not _same_strides(size, window.stride, stride)
            or not (is_dense(made.size, made.stride) and is_dense(size, stride))
        ):
            return None
        self.taken.add(made.name)
        self.owned[number] = made
        return OutputSpec("reshaped", made.name, size, stride)

    def _is_returned_otherwise(self, number: int) -> bool:
        made = self.places[number]
        return len(made) > 1 or not self.viewed.isdisjoint(made)

    def _own(
        self, number: int, value: Tensor, size: tuple[Extent, ...], stride: tuple[Extent, ...]
    ) -> Buffer:
        """The buffer that holds graph output `number`, nothing else, with eager's strides."""
        if number in self.owned:
            return self.owned[number]
        if not is_distinct(size, stride):
            if not all(isinstance(n, int) for n in (*size, *stride)):
                raise Undecided("whether elements of a result share a place")
            stride = contiguous_strides(size)
        if value.window is None:
            self.ctx.realize(value, stride)
        window = value.window
        assert window is not None
        buffer = window.buffer
        if (
            buffer.kind in ("input", "constant")
            or buffer.name in self.taken
            or not self._holds(window, size, stride)
        ):
            buffer = self._copied(value, stride)
        if buffer.kind == "temp":
            buffer.kind = "output"
        self.taken.add(buffer.name)
        self.owned[number] = buffer
        return buffer

    def _holds(self, window: Window, size: tuple[Extent, ...], stride: tuple[Extent, ...]) -> bool:
        """Whether the buffer is exactly this tensor. A buffer of the same elements in the same
        order but another shape is simply given the shape, unless its writer goes by the shape.
        """
        buffer = window.buffer
        if window.offset != 0 or not _same_strides(size, window.stride, stride):
            return False
        if buffer.size == size and _same_strides(size, buffer.stride, stride):
            buffer.stride = stride
            return True
        if buffer.kind != "temp" or product(buffer.size) != product(size):
            return False
        if buffer.name in self.called_for:
            return False
        if is_dense(buffer.size, buffer.stride):
            buffer.size, buffer.stride = size, stride
            return True
        return False

    def _copied(self, value: Tensor, stride: tuple[Extent, ...]) -> Buffer:
        fresh = self.ctx.copy(value, stride)
        assert fresh.window is not None
        return fresh.window.buffer


def _without(size: tuple[Extent, ...], dims: list[int]) -> tuple[Extent, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(size))


def _same_strides(size: tuple[Extent, ...], a: tuple[Extent, ...], b: tuple[Extent, ...]) -> bool:
    return all(n == 1 or x == y for n, x, y in zip(size, a, b, strict=True))
