"""C++ translation units: the functions of fused kernels (cpp_loops.py), and the entries that the
plan calls.

    static void fn0(void* const* P, int64_t begin, int64_t end, const int64_t* n) {
      const int64_t n0 = n[0];  // sizes are parameters, so that kernels share text
      for (int64_t t = begin; t < end; ++t) {
        ...one row: vector loops over it, one after another...
      }
    }
    extern "C" void k0(void* const* P, int64_t begin, int64_t end) {
      static const int64_t n[] = {768};
      fn0(P, begin, end, n);
    }

Where sizes are known only when the code runs, the last pointer is the array S of the plan's sizes
(PlanSpec.sizes), and the entry reads `const int64_t n[] = {768, S[3]};`. The function is the same.

`CppModule.add` takes a scheduled kernel or bundle and returns its KernelStep; `source()` is the
translation unit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from fxgraph.sizes import Extent, Size, hint, is_symbolic, largest
from inductor import costs
from inductor.codegen import called_kernels, panels, product_kinds
from inductor.codegen.cpp_loops import Emitted, emit
from inductor.index import Index
from inductor.ir import Called, Loops, PanelProduct, Program
from inductor.runtime.plan import SIZES
from inductor.schedule.fusion import Bundle, Kernel, ProductKernel

# Kernels that fill one buffer and are shared between threads one by one.
MOST_SHARES = 16


class CppModule:
    """The kernels of one graph. `live`: buffers that something outside their kernel reads. `kept`:
    results of products that something outside of the kernel behind the product reads.
    """

    def __init__(self, program: Program, live: set[str], kept: Collection[str] = ()) -> None:
        self.program = program
        self.live = live
        self.kept = kept
        self._functions: dict[str, str] = {}
        self._entries: list[str] = []
        self.kernels: list[Emitted] = []
        self.sizes: list[Size] = []  # those that entries read from S

    def add(self, item: Kernel | Bundle, name: str) -> dict[str, Any]:
        """Emit one kernel; returns the fields of its KernelStep."""
        kernels = item.kernels if isinstance(item, Bundle) else [item]
        parts = [emit(self.program, k, self.live) for k in kernels]
        self.kernels.extend(parts)
        pointers = list(dict.fromkeys(b for p in parts for b in p.buffers))
        total: Extent = 0
        for part in parts:
            total = total + part.total
        work = max((p.work for p in parts), key=hint)
        starts = [p.total for p in parts] if len(parts) > 1 else []
        if is_symbolic([*starts, *(n for p in parts for n in p.constants)]):
            pointers.append(SIZES)
        lines = self._alone(parts[0]) if len(parts) == 1 else self._bundle(parts, pointers)
        self._entries.append(self._entry(name, pointers, lines))
        writes = list(dict.fromkeys(b for p in parts for b in p.writes))
        return {
            "symbol": name,
            "args": [(b, 0) for b in pointers],
            "writes": writes,
            "total": total,
            "grain": largest(costs.GRAIN_STEPS // largest(work, 1), 1),
            "inplace": self._in_place(parts),
        }

    def add_product(self, item: ProductKernel, name: str) -> list[dict[str, Any]]:
        """Emit a product, and the kernel that reads its result: as one where the kernel can follow
        it block by block. Returns the fields of their KernelSteps.
        """
        step, reader = item.step, item.reader
        assert isinstance(step, PanelProduct)
        part = emit(self.program, reader, self.live) if reader is not None else None
        kind = product_kinds.kind_of(step)
        shape, follower = kind.blocks(step), None
        if item.beside:
            shape = panels.blocks(step, count=len(item.steps))
            if part is None or not self._takes_blocks_of_all(item, part, shape):
                return self._one_by_one(item, name)
        if part is not None and part.order is not None and part.kernel is not None:
            reads = _reads_of(part.kernel, step)
            if not part.kernel.is_rows and panels.reads_by_element(part.order, reads, step):
                follower = panels.Follower(self._function(part), None)
            elif (n := panels.positions_of_a_row(part.order, reads, step)) is not None and (
                whole := kind.whole_rows(step)
            ) is not None:
                shape, follower = whole, panels.Follower(self._function(part), n)
        if part is not None and follower is None and reader is not None:
            alone = replace(item, reader=None)
            return [*self.add_product(alone, f"{name}p"), self.add(reader, name)]
        return [self._product(item, name, shape, part, follower)]

    def _takes_blocks_of_all(
        self, item: ProductKernel, part: Emitted, shape: panels.Blocks
    ) -> bool:
        """Whether the kernel takes the results of several products block by block, from memory of
        the thread's own."""
        if part.order is None or part.kernel is None or part.kernel.is_rows:
            return False
        steps = [step for step in item.steps if isinstance(step, PanelProduct)]
        return all(
            self._is_local(step, shape)
            and panels.reads_by_element(part.order, _reads_of(part.kernel, step), step)
            for step in steps
        )

    def _one_by_one(self, item: ProductKernel, name: str) -> list[dict[str, Any]]:
        """All products but the last in memory."""
        *early, last = item.steps
        found: list[dict[str, Any]] = []
        for number, step in enumerate(early):
            found += self.add_product(ProductKernel(item.id, step), f"{name}b{number}")
        return found + self.add_product(replace(item, step=last, beside=[]), name)

    def _product(
        self,
        item: ProductKernel,
        name: str,
        shape: panels.Blocks,
        part: Emitted | None,
        follower: panels.Follower | None,
    ) -> dict[str, Any]:
        step = item.step
        assert isinstance(step, PanelProduct)
        kind = product_kinds.kind_of(step)
        if part is not None:
            self.kernels.append(part)
        operands = [name for one in item.steps for name in (*one.reads, one.target.name)]
        pointers = list(dict.fromkeys([*(part.buffers if part else []), *operands]))
        positions = follower.positions if follower and follower.positions is not None else -1
        taken = None if item.beside else self._place_of_result(step, part)
        if follower is not None and taken is None and self._is_local(step, shape):
            taken = step.x.buffer.name  # of which nothing is read by this pointer
            slot, *slots = map(pointers.index, item.results)
            follower = replace(follower, slot=slot, slots=slots)
        numbers = [*kind.numbers(step, shape), positions]
        numbers += [n for one in item.beside for n in panels.numbers(one, shape)]
        if is_symbolic([*numbers, *(part.constants if part else [])]):
            pointers.append(SIZES)
        number = [self._number(n) for n in numbers]
        if item.beside:
            assert follower is not None
            every = [one for one in item.steps if isinstance(one, PanelProduct)]
            lines = panels.bodies(every, shape, pointers.index, number, follower)
        else:
            lines = kind.body(step, shape, pointers.index, number, follower)
        total, grain = kind.units(step, shape), kind.grain(step, shape)
        if follower is not None and follower.slot is not None:
            own = ", ".join(f"P[{i}]" for i in range(len(pointers)))
            lines = [f"  void* L[] = {{{own}}};", *lines]
        if part is not None:
            lines = [self._table("int64_t n[]", part.constants), *lines]
        self._entries.append(self._entry(name, pointers, lines))
        writes = [*(item.results if not taken else []), *(part.writes if part else [])]
        inplace = self._in_place([part]) if part else []
        return {
            "symbol": name,
            "args": [(taken if b in item.results and taken else b, 0) for b in pointers],
            "writes": writes,
            "total": total,
            "grain": grain,
            # the product is in its place before the kernel reads anything
            "inplace": [p for p in inplace if p[0] != taken and p[1] not in operands],
        }

    def add_called(self, step: Called, name: str) -> dict[str, Any]:
        """Emit a call of a function of ours; returns the fields of its KernelStep."""
        kind = called_kernels.kind_of(step)
        parts = [self._over_rows(body) for body in step.bodies]
        self.kernels.extend(parts)
        pointers = list(dict.fromkeys([*step.reads, *step.writes]))
        numbers = kind.numbers(step)
        if is_symbolic([n for group in numbers.values() for n in group]) or any(
            is_symbolic(part.constants) for part in parts
        ):
            pointers.append(SIZES)
        text = {key: [self._number(n) for n in group] for key, group in numbers.items()}
        declared, text["functions"] = self._row_functions(step, parts, pointers)
        lines = [*declared, *kind.body(step, pointers.index, text)]
        self._entries.append(self._entry(name, pointers, lines))
        return {
            "symbol": name,
            "args": [(b, 0) for b in pointers],
            "writes": [*step.writes],
            "total": kind.units(step),
            "grain": kind.grain(step),
            "inplace": [],
        }

    def _over_rows(self, body: Loops) -> Emitted:
        """The function of loops over memory of the caller's, piece by piece in their order."""
        kernel = Kernel(0, list(body.dims), [], [body])
        return emit(self.program, kernel, self.live | {body.target.name}, in_order=True)

    def _row_functions(
        self, step: Called, parts: list[Emitted], pointers: list[str]
    ) -> tuple[list[str], list[str]]:
        """Lines that declare the buffers of the step's bodies, and their descriptions
        (attention.h).
        """
        declared, described = [], []
        for number, (body, part) in enumerate(zip(step.bodies, parts, strict=True)):
            own = body.target.name
            given = [f"P[{pointers.index(b)}]" if b != own else "nullptr" for b in part.buffers]
            declared += [
                self._table(f"int64_t n{number}[]", part.constants),
                f"  void* const p{number}[] = {{{', '.join(given)}}};",
            ]
            slot = part.buffers.index(own)
            named = f"{self._function(part)}, p{number}, n{number}"
            described.append(f"{{{named}, {len(given)}, {slot}}}")
        return declared, described

    def _place_of_result(self, step: PanelProduct, part: Emitted | None) -> str | None:
        """The buffer whose memory holds a product until the kernel that reads the result overwrites
        it; None if something else reads the product, too.
        """
        if part is None or step.target.name in self.kept:
            return None
        buffers = self.program.buffers
        return next(
            (
                out
                for out, source in part.inplace
                if source == step.target.name
                and buffers[out].kind in ("temp", "output")
                and buffers[out].dtype == step.target.dtype
            ),
            None,
        )

    def _is_local(self, step: PanelProduct, shape: panels.Blocks) -> bool:
        """Whether the kernel that reads a product can take it block by block from a thread's own
        memory.
        """
        local: bool = product_kinds.kind_of(step).is_local(step, shape)
        return local and step.target.name not in self.kept

    def _in_place(self, parts: list[Emitted]) -> list[tuple[str, str]]:
        """No buffer in place: one part of a bundle may read a buffer that another has
        overwritten.
        """
        if len(parts) > 1:
            return []
        buffers = self.program.buffers
        return [
            (out, source)
            for out, source in parts[0].inplace
            if buffers[out].kind == "temp"
            and buffers[source].kind in ("temp", "aten")
            and buffers[out].dtype.itemsize == buffers[source].dtype.itemsize
        ]

    def _function(self, part: Emitted) -> str:
        return self._functions.setdefault(part.text, f"fn{len(self._functions)}")

    @staticmethod
    def _entry(name: str, pointers: list[str], lines: list[str]) -> str:
        """The symbol that the plan calls."""
        sizes = []
        if pointers[-1:] == [SIZES]:
            sizes = [f"  const int64_t* const S = (const int64_t*)P[{len(pointers) - 1}];"]
        head = f'extern "C" void {name}(void* const* P, int64_t begin, int64_t end) {{'
        return "\n".join([head, *sizes, *lines, "}"])

    def _alone(self, part: Emitted) -> list[str]:
        """Lines of an entry: the function with the sizes of one kernel."""
        sizes = self._table("int64_t n[]", part.constants)
        return [sizes, f"  {self._function(part)}(P, begin, end, n);"]

    def _table(self, declared: str, values: Sequence[Extent]) -> str:
        """An array: static, unless a call brings some of its numbers."""
        storage = "const" if is_symbolic(values) else "static const"
        return f"  {storage} {declared} = {{{', '.join(map(self._number, values)) or '0'}}};"

    def _number(self, value: Extent) -> str:
        if isinstance(value, int):
            return str(value)
        if value not in self.sizes:
            self.sizes.append(value)
        return f"S[{self.sizes.index(value)}]"

    def _bundle(self, parts: list[Emitted], pointers: list[str]) -> list[str]:
        """Parts laid end to end in one range; each runs the intersection with its stretch. As a
        table, since code for every part would take the compiler longer than the kernels do. Few
        parts of one buffer, which may lie between each other, are shared alike."""
        alike = len(parts) <= MOST_SHARES and len({tuple(p.writes) for p in parts}) == 1
        run = "run_shares" if alike else "run_bundle"
        rows: list[str] = []
        sizes: list[Extent] = []
        args: list[int] = []
        start: Extent = 0
        for part in parts:
            stop = start + part.total
            own = [pointers.index(b) for b in part.buffers]
            rows.append(
                f"    {{{self._function(part)}, {self._number(start)}, {self._number(stop)}, "
                f"n + {len(sizes)}, a + {len(args)}, {len(own)}}},"
            )
            sizes += part.constants
            args += own
            start = stop
        return [
            self._table("int64_t n[]", sizes),
            self._table("uint16_t a[]", args),
            f"  {'' if pointers[-1] == SIZES else 'static '}const Stretch parts[] = {{",
            *rows,
            "  };",
            f"  {run}(parts, {len(parts)}, P, begin, end);",
        ]

    def source(self) -> str:
        """All kernels as one translation unit; "" if there are none."""
        return self._unit(self._entries) if self._entries else ""

    def units(self, count: int) -> list[str]:
        """The same kernels in up to `count` units of about equal length."""
        order = sorted(self._entries, key=self._needs)  # those that share functions stay together
        total = sum(len(text) for text in self._functions)
        units: list[list[str]] = [[]]
        seen: set[str] = set()
        length = 0
        for entry in order:
            new = set(self._needs(entry)) - seen
            if length > total / count and new and len(units) < count:
                units.append([])
                seen, length, new = set(), 0, set(self._needs(entry))
            seen |= new
            length += sum(len(t) for t, n in self._functions.items() if n in new)
            units[-1].append(entry)
        return [self._unit(entries) for entries in units]

    @staticmethod
    def _needs(entry: str) -> list[str]:
        return sorted(set(re.findall(r"\bfn\d+\b", entry)))

    def _unit(self, entries: list[str]) -> str:
        needed = {name for entry in entries for name in self._needs(entry)}
        functions = [
            text.replace("FUNCTION", name)
            for text, name in self._functions.items()
            if name in needed
        ]
        texts = [*entries, *functions]
        used = ["vec.h"]  # first: toolchain.py has it precompiled
        used += [h for h, call in _HEADERS.items() if any(call in t for t in texts)]
        head = "\n".join([*(f'#include "{h}"' for h in used), "", "namespace fg {"])
        return "\n\n".join([head, *functions, "\n".join(entries), "}\n"])


def _reads_of(kernel: Kernel, step: PanelProduct) -> list[Index]:
    """How the kernel reads a product's result."""
    return [index for s in kernel.steps for index in s.reads.get(step.target.name, ())]


# Headers that include vec.h -> what tells that a text takes something of theirs.
_HEADERS = {
    "attention.h": "attention<",
    "depthwise.h": "depthwise(a",
    "matrices.h": "multiply<",
    "product.h": "product<",
    "windows.h": "convolve(a",
    "winograd.h": "winograd(a",
    "training.h": "train(a",
    "vec_pairs.h": "using namespace pairs;",
}


__all__ = ["CppModule"]
