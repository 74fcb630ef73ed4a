"""Fusion: steps into kernels.

A kernel runs an outer range in parallel and, for each outer index, one or more inner loops one
after another. Two shapes exist:

    pointwise  every step runs over the same elements; one pass
    rows       steps run over (outer, inner): reductions of the inner range, elementwise steps
               before and after them, and steps over the outer range alone. A softmax is one
               kernel: max, sum, store.

A scatter is a kernel of its own, of rows whose inner range runs in order: what it adds is computed
where it is added, but nothing else fits an order that only collisions ask for.

Steps are taken in program order; each joins the latest kernel that it shares data with, if the
loops can be put onto each other (`align`), every value it takes from the kernel is the one made in
the same iteration, and no other kernel would have to run in between. Fusing always saves memory
traffic; the limits below keep parallelism and compile time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fxgraph.fallible_operations import can_fail
from fxgraph.sizes import Extent, hint, product, symbols
from inductor import costs
from inductor.index import Index, Var
from inductor.ir import (
    AtenCall,
    Buffer,
    Called,
    Check,
    DeviceProduct,
    Loops,
    PanelProduct,
    Program,
    Step,
)
from inductor.schedule.align import by_stride, common_cut, recut, rewrite, same


@dataclass(eq=False)
class Kernel:
    """Steps that share loops. `inner` is empty for a pointwise kernel."""

    id: int
    outer: list[Var]
    inner: list[Var]
    steps: list[Loops] = field(default_factory=list)
    before: int = 0  # bit set of the ids of everything that must run earlier

    @property
    def is_rows(self) -> bool:
        return any(s.reduced for s in self.steps) or bool(self.inner)

    @property
    def is_scatter(self) -> bool:
        """Whether its one step is a scatter: such a kernel is its own."""
        return self.steps[0].mode is not None

    def role(self, step: Loops) -> str:
        """ "scatter", "reduce", "full" (elementwise over outer and inner) or "row" (over outer
        alone)."""
        if step.mode:
            return "scatter"
        if step.reduction:
            return "reduce"
        if not self.inner or len(step.dims) == len(self.outer) + len(self.inner):
            return "full"
        return "row"

    def reads(self) -> set[str]:
        return {b for s in self.steps for b in s.reads}

    def writes(self) -> dict[str, Loops]:
        return {s.target.name: s for s in self.steps}

    def __str__(self) -> str:
        outer = ", ".join(f"{v.name}<{v.size}" for v in self.outer)
        inner = ", ".join(f"{v.name}<{v.size}" for v in self.inner)
        lines = [f"kernel over ({outer})" + (f" rows of ({inner})" if inner else "")]
        for step in self.steps:
            kind = f"{self.role(step)} {step.reduction or ''}".strip()
            lines.append(f"    {step.name}: {kind} -> {step.target.name}")
        return "\n".join(lines)


@dataclass(eq=False)
class Bundle:
    """Kernels that depend on each other in no way and are launched as one (the parts of a cat)."""

    kernels: list[Kernel]

    def __str__(self) -> str:
        return "bundle\n" + "\n".join(str(k) for k in self.kernels)


@dataclass(eq=False)
class Call:
    """An aten operator in the schedule."""

    id: int
    step: AtenCall
    before: int = 0

    def __str__(self) -> str:
        return str(self.step)


@dataclass(eq=False)
class ProductKernel:
    """A product by a kernel of its own, and the kernel that first reads the result: the two run as
    one where the code generator can, block by block of the result (codegen/panels.py,
    codegen/triton_products.py). beside: other products, alike, that the same kernel is the first to
    read: the two halves of a gated layer.
    """

    id: int
    step: PanelProduct | DeviceProduct
    before: int = 0
    reader: Kernel | None = None
    beside: list[PanelProduct] = field(default_factory=list)

    @property
    def steps(self) -> list[PanelProduct | DeviceProduct]:
        return [self.step, *self.beside]

    @property
    def results(self) -> list[str]:
        return [step.target.name for step in self.steps]

    def __str__(self) -> str:
        products = "\n".join(map(str, self.steps))
        return products + (f"\nread by {self.reader}" if self.reader else "")


@dataclass(eq=False)
class CalledKernel:
    """A function of ours, as a kernel of its own."""

    id: int
    step: Called
    before: int = 0

    def __str__(self) -> str:
        return str(self.step)


MOST_BESIDE = 4  # products that one kernel follows (codegen/product.h)
Item = Kernel | Call | ProductKernel | CalledKernel
Scheduled = Kernel | Call | ProductKernel | CalledKernel | Bundle


def schedule(program: Program, wanted: Iterable[str], *, fusion: bool = True) -> list[Scheduled]:
    """Fuse (unless told not to) and order. `wanted`: buffers that outlive the program."""
    steps = live_steps(program, set(wanted))
    run = _Fusion(program, fusion)
    for step in steps:
        run.add(step)
    items = run.ordered()
    return _bundle(_read_products(items) if fusion else items)


def live_steps(program: Program, wanted: set[str]) -> list[Step]:
    """Without steps that fill buffers that nobody reads, and bind symbols that nobody needs."""
    needed, kept = set(wanted), []
    binds = _binds_symbols(program)
    symbols = _symbols_outside(program, wanted) if binds else set()
    for step in reversed(program.steps):
        if isinstance(step, AtenCall):
            live = step.ordered or not step.writes or any(n in needed for n in step.writes)
            live = live or any(name in symbols for name, _, _ in step.binds)
        else:
            live = any(n in needed for n in step.writes) or step.target.kind == "input"
        if live:
            kept.append(step)
            needed.update(step.reads)
            if binds:
                symbols |= step.symbols
    return kept[::-1]


def _binds_symbols(program: Program) -> bool:
    return any(isinstance(step, AtenCall) and step.binds for step in program.steps)


def _symbols_outside(program: Program, wanted: set[str]) -> set[str]:
    """The symbols of outputs and of inputs: a gradient of what data chose is checked once its size
    is known.
    """
    sizes: list[Any] = [[o.size, o.stride, o.offset, o.value] for o in program.outputs]
    sizes += [[program.buffers[name].size] for name in wanted if name in program.buffers]
    sizes += [[given.size] for given in program.inputs if isinstance(given, Buffer)]
    return {symbol.name for symbol in symbols(sizes)}


class _Fusion:
    def __init__(self, program: Program, fusion: bool) -> None:
        self.program = program
        self.fusion = fusion
        self.items: dict[int, Item] = {}
        self.writers: dict[str, list[int]] = {}  # buffer -> items that wrote it
        self.readers: dict[str, list[int]] = {}
        self.last_ordered: int | None = None
        self.last_assertion: int | None = None
        self.fallible: list[int] = []  # operators that may fail
        self.binds = _binds_symbols(program)
        self.binders: dict[str, int] = {}  # symbol -> the operator that gives its value

    def add(self, step: Step) -> None:
        deps = self._dependencies(step)
        if isinstance(step, Loops) and (joined := self._join(step, deps)) is not None:
            item: Item = joined
        elif isinstance(step, Loops):
            item = Kernel(len(self.items), list(step.dims), list(step.reduced), [step])
            self.items[item.id] = item
            item.before = self._closure(deps)
        elif isinstance(step, PanelProduct | DeviceProduct):
            item = ProductKernel(len(self.items), step, self._closure(deps))
            self.items[item.id] = item
        elif isinstance(step, Called):
            item = CalledKernel(len(self.items), step, self._closure(deps))
            self.items[item.id] = item
        else:
            item = Call(len(self.items), step)
            self.items[item.id] = item
            item.before = self._closure(deps)
            if step.ordered:
                self.last_ordered = item.id
            if step.asserts:
                self.last_assertion = item.id
            if isinstance(step, Check) or can_fail(step.target, tuple(step.args)):
                self.fallible.append(item.id)
            self.binders.update((name, item.id) for name, _, _ in step.binds)
        for name in step.reads:
            self._note(self.readers, name, item.id)
        for name in step.writes:
            self._note(self.writers, name, item.id)

    @staticmethod
    def _note(table: dict[str, list[int]], name: str, id: int) -> None:
        known = table.setdefault(name, [])
        if id not in known:
            known.append(id)

    def _dependencies(self, step: Step) -> set[int]:
        deps: set[int] = set()
        for name in step.reads:
            deps.update(self.writers.get(name, ()))
        for name in step.writes:
            deps.update(self.readers.get(name, ()))
            deps.update(id for id in self.writers.get(name, ()) if not self._is_beside(step, id))
        if isinstance(step, AtenCall) and step.ordered and self.last_ordered is not None:
            deps.add(self.last_ordered)
        if self.last_assertion is not None:
            deps.add(self.last_assertion)
        if self._writes_input(step):  # a graph that fails has written nothing
            deps.update(self.fallible)
        if self.binds:
            deps.update(self.binders[name] for name in step.symbols if name in self.binders)
        return deps

    def _is_beside(self, step: Step, id: int) -> bool:
        """Whether an item writes other parts of the step's buffer: those of a bundle do not
        overlap.
        """
        item = self.items[id]
        if step.bundle is None or not isinstance(item, Kernel):
            return False
        return any(s.bundle == step.bundle for s in item.steps)

    def _writes_input(self, step: Step) -> bool:
        buffers = self.program.buffers
        return any(name in buffers and buffers[name].kind == "input" for name in step.writes)

    def _closure(self, deps: Iterable[int]) -> int:
        mask = 0
        for d in deps:
            mask |= self.items[d].before | (1 << d)
        return mask

    def _join(self, step: Loops, deps: set[int]) -> Kernel | None:
        if not self.fusion:
            return None
        candidates = dict.fromkeys(sorted(deps, reverse=True))
        for name in step.reads:  # siblings, which read what this step reads
            if hint(product(self.program.buffers[name].size)) > 256:
                candidates.update(dict.fromkeys(self.readers.get(name, [])[-3:]))
        for id in candidates:
            kernel = self.items[id]
            if not isinstance(kernel, Kernel):
                continue
            if id not in deps and not step.reduced and not kernel.is_rows:
                continue  # elementwise siblings would keep results waiting for readers far away
            if self._early(kernel, step):
                continue
            others = [d for d in deps if d != id]
            if any(self.items[d].before >> id & 1 for d in others):
                continue  # something between them
            if fuse(kernel, step):
                before = self._closure(others) & ~(1 << id)
                kernel.before |= before
                for item in self.items.values():
                    if item.before >> id & 1:
                        item.before |= kernel.before
                return kernel
        return None

    def _early(self, kernel: Kernel, step: Loops) -> bool:
        """Whether the kernel would make the step's buffer long before it is wanted.

        pool -> part of cat 1, part of cat 2, ... part of cat 24, each read by its own layer: all in
        the kernel of the pool would keep 24 buffers alive at once for one read saved each.
        """
        target = self.program.buffers[step.target.name]
        if hint(product(target.size)) * target.dtype.itemsize <= costs.FEW_BYTES:
            return False
        later = (i for i in range(kernel.id + 1, len(self.items)))
        return sum(not isinstance(self.items[i], Kernel) for i in later) > costs.NEAR_CALLS

    def ordered(self) -> list[Item]:
        """Topological order, the first in program order of those that may run next: what is made
        just before it is read, stays there.
        """
        done, result = 0, []
        ready: list[int] = []
        waiting: dict[int, list[Item]] = {}  # id -> items that wait for it, among others
        released = list(self.items.values())
        while True:
            for item in released:
                if missing := item.before & ~done:
                    waiting.setdefault(missing.bit_length() - 1, []).append(item)
                else:
                    heapq.heappush(ready, item.id)
            if not ready:
                break
            item = self.items[heapq.heappop(ready)]
            result.append(item)
            done |= 1 << item.id
            released = waiting.pop(item.id, [])
        assert not waiting, "a cycle in the schedule"
        return result


def fuse(kernel: Kernel, step: Loops) -> bool:
    """Add the step to the kernel if it can run in the kernel's loops; the kernel is unchanged if
    not."""
    if len(kernel.steps) >= costs.MAX_STEPS or kernel.is_scatter or step.mode:
        return False
    if sum(len(s.tape.values) for s in kernel.steps) + len(step.tape.values) > costs.MAX_VALUES:
        return False
    for candidate in _placements(kernel, step):
        outer, inner, kernel_renaming, placed = candidate
        steps = kernel.steps
        if not same([*kernel.outer, *kernel.inner], kernel_renaming):
            steps = [_rename(kernel, s, kernel_renaming, outer, inner) for s in kernel.steps]
        if _agree(steps, placed, bool(inner)) and not _spoils_columns(steps, placed, outer, inner):
            kernel.outer, kernel.inner, kernel.steps = outer, inner, [*steps, placed]
            return True
    return False


def _rename(
    kernel: Kernel, step: Loops, renaming: dict[Var, Index], outer: list[Var], inner: list[Var]
) -> Loops:
    role = kernel.role(step)
    dims = outer if role in ("reduce", "row") else [*outer, *inner]
    return rewrite(step, renaming, dims, inner if role == "reduce" else [])


Placement = tuple[list[Var], list[Var], dict[Var, Index], Loops]


def _placements(kernel: Kernel, step: Loops) -> Iterable[Placement]:
    """Ways to lay the step's loops over the kernel's: new outer and inner variables, the kernel's
    renaming, the renamed step. Most likely first."""
    rows = extent(step.dims)
    if step.reduced and not kernel.is_rows:
        if hint(rows) < costs.FEW_ROWS and hint(rows * extent(step.reduced)) > costs.SMALL_WORK:
            return
        for order in _orders(kernel, step, kernel.outer, [*step.dims, *step.reduced]):
            yield from _split_kernel(kernel, step, order)
    elif step.reduced:
        outer = _lay(kernel.outer, step.dims)
        for inner_order in _orders(kernel, step, kernel.inner, step.reduced):
            inner = _lay(kernel.inner, inner_order)
            if outer and inner:
                yield _placed(step, outer, inner, reduced=True)
    elif not kernel.is_rows:
        for order in _orders(kernel, step, kernel.outer, step.dims):
            if lay := _lay(kernel.outer, order):
                yield _placed(step, lay, ([], {}, {}), reduced=False)
    else:
        kernel_rows = extent(kernel.outer)
        if rows == kernel_rows and (lay := _lay(kernel.outer, step.dims)):
            nothing: tuple = (kernel.inner, {v: Index({v: 1}) for v in kernel.inner}, {})
            yield _placed(step, lay, nothing, reduced=False, row=True)
        if hint(kernel_rows) < costs.FEW_ROWS and hint(rows) > costs.SMALL_WORK:
            return
        yield from _over_rows(kernel, step)


def _over_rows(kernel: Kernel, step: Loops) -> Iterable[Placement]:
    """An elementwise step over (outer, inner) of a kernel of rows: its dimensions are told apart by
    how it reads the kernel's inputs and outputs."""
    for order in _orders(kernel, step, [*kernel.outer, *kernel.inner], step.dims):
        total: Extent = 1
        rows = extent(kernel.outer)
        for cut_at in range(len(order) + 1):
            if total == rows:
                outer, inner = (
                    _lay(kernel.outer, order[:cut_at]),
                    _lay(kernel.inner, order[cut_at:]),
                )
                if outer and inner:
                    yield _placed(step, outer, inner, reduced=False)
                    break
            if cut_at < len(order):
                total = total * order[cut_at].size


def extent(vars: Iterable[Var]) -> Extent:
    """The number of iterations of these loops together."""
    return product(v.size for v in vars)


def _split_kernel(kernel: Kernel, step: Loops, order: list[Var]) -> Iterable[Placement]:
    """A reduction joins a pointwise kernel, which becomes a kernel of rows."""
    lay = _lay(kernel.outer, order)
    if lay is None:
        return
    vars, kernel_renaming, step_renaming = lay
    used = {v for d in step.dims for v in step_renaming[d].terms}
    outer = [v for v in vars if v in used]
    inner = [v for v in vars if v not in used]
    yield outer, inner, kernel_renaming, rewrite(step, step_renaming, outer, inner)


def _orders(
    kernel: Kernel, step: Loops, kernel_vars: list[Var], step_vars: list[Var]
) -> Iterable[list[Var]]:
    """Orders of the step's variables that might match the kernel's: as they are, and as a buffer
    that both touch has them."""
    yield step_vars
    if len(step_vars) < 2:
        return
    tried = [step_vars]
    for name, step_indices in step.reads.items():
        for theirs in _touches(kernel, name):
            for mine in step_indices[:2]:
                order = _match_order(mine, step_vars, theirs, kernel_vars)
                if order is not None and order not in tried:
                    tried.append(order)
                    yield order


def _touches(kernel: Kernel, name: str) -> list[Index]:
    found = []
    for s in kernel.steps:
        if s.target.name == name:
            found.append(s.index)
        found.extend(s.reads.get(name, [])[:2])
    return found[:3]


def _match_order(
    mine: Index, step_vars: list[Var], theirs: Index, kernel_vars: list[Var]
) -> list[Var] | None:
    """Step variables in the order of the kernel's, where both index one buffer with equal
    coefficients."""
    kernel_sorted, step_sorted = by_stride(kernel_vars, theirs), by_stride(step_vars, mine)
    if [v.size for v in kernel_sorted] != [v.size for v in step_sorted]:
        return None
    partner = dict(zip(kernel_sorted, step_sorted, strict=True))
    rest = [v for v in step_vars if v not in step_sorted]
    order = []
    for v in kernel_vars:
        if v in partner:
            order.append(partner[v])
        elif rest:
            order.append(rest.pop(0))
    return order if len(order) == len(step_vars) else None


Lay = tuple[list[Var], dict[Var, Index], dict[Var, Index]]


def _lay(kernel_vars: list[Var], step_vars: list[Var]) -> Lay | None:
    """Common variables, and both sides written in them."""
    if [v.size for v in kernel_vars] == [v.size for v in step_vars]:
        return (
            kernel_vars,
            {v: Index({v: 1}) for v in kernel_vars},
            {s: Index({k: 1}) for s, k in zip(step_vars, kernel_vars, strict=True)},
        )
    cut = common_cut([v.size for v in kernel_vars], [v.size for v in step_vars])
    if cut is None:
        return None
    if cut == [v.size for v in kernel_vars]:
        vars = kernel_vars
    else:
        prefix = kernel_vars[0].name.rstrip("0123456789") if kernel_vars else "c"
        vars = [Var(f"{prefix}{k}", n) for k, n in enumerate(cut)]
    return vars, recut(kernel_vars, vars), recut(step_vars, vars)


def _placed(step: Loops, outer: Lay, inner: Lay, *, reduced: bool, row: bool = False) -> Placement:
    renaming = {**outer[2], **inner[2]}
    kernel_renaming = {**outer[1], **inner[1]}
    dims = outer[0] if reduced or row else [*outer[0], *inner[0]]
    placed = rewrite(step, renaming, dims, inner[0] if reduced else [])
    return outer[0], inner[0], kernel_renaming, placed


def _agree(steps: list[Loops], new: Loops, rows: bool) -> bool:
    """Whether everything that `new` shares with the kernel's steps is touched in the same
    iteration."""
    shares = False
    reads_before = {name for s in steps for name in s.reads}
    for s in steps:
        name = s.target.name
        if name == new.target.name:
            return False  # written twice; parts of one buffer have loops of their own
        if name in new.reads:
            if any(index != s.index for index in new.reads[name]):
                return False
            shares = True
    if new.target.name in reads_before:
        if rows:
            return False
        for s in steps:
            if any(index != new.index for index in s.reads.get(new.target.name, [])):
                return False
        shares = True
    return shares or any(_walk_alike(steps, new, name) for name in reads_before & new.reads.keys())


def _walk_alike(steps: list[Loops], new: Loops, name: str) -> bool:
    """Whether one step reads the buffer in the order of another, so that one loop saves a read."""
    mine = [index.terms for index in new.reads[name]]
    return any(index.terms in mine for s in steps for index in s.reads.get(name, ()))


def _spoils_columns(steps: list[Loops], new: Loops, outer: list[Var], inner: list[Var]) -> bool:
    """Whether sums of columns, whose vectors are of neighbouring columns, would share a loop over
    each column with a step of all elements that takes nothing from them, nor they from it.
    """
    if not outer or not inner:
        return False
    parts = [*steps, new]
    every = [s for s in parts if not s.reduced and any(v in s.dims for v in inner)]
    sums = [s for s in parts if s.reduced and _is_of_columns(s, outer[-1], inner[-1])]
    if not every or not sums or (new not in every and new not in sums):
        return False
    return not any(
        one.target.name in other.reads
        for s in sums
        for e in every
        for one, other in ((s, e), (e, s))
    )


def _is_of_columns(step: Loops, outer: Var, inner: Var) -> bool:
    """Whether neighbours in what the step reads are of the outer loop, not of the inner one; what
    does not vary with both, a number for each row say, tells nothing.
    """
    found = [index for indices in step.reads.values() for index in indices]
    indices = [i for i in found if {outer, inner} <= i.variables()] or found
    along = any(index.terms.get(inner) == 1 for index in indices)
    return not along and any(index.terms.get(outer) == 1 for index in indices)


def _read_products(items: list[Item]) -> list[Item]:
    """Each product at the place of the kernel that is first to read its result, and with it; unless
    anything between the two waits for the product.
    """
    reader_of: dict[int, Kernel] = {}
    product_of: dict[int, ProductKernel] = {}
    for position, item in enumerate(items):
        if not isinstance(item, ProductKernel):
            continue
        later = next((one for one in items[position + 1 :] if one.before >> item.id & 1), None)
        if later is None or not _can_follow(later, item):
            continue
        assert isinstance(later, Kernel)
        first = product_of.setdefault(later.id, item)
        if first is not item:
            if not _are_alike(first, item):
                continue
            assert isinstance(item.step, PanelProduct)
            first.beside.append(item.step)
            first.before |= item.before
        reader_of[item.id] = later
    result: list[Item] = []
    for item in items:
        if isinstance(item, Kernel) and item.id in product_of:
            found = product_of[item.id]
            found.reader = item
            found.before |= item.before & ~(1 << found.id)
            result.append(found)
        elif item.id not in reader_of:
            result.append(item)
    return result


def _are_alike(first: ProductKernel, other: ProductKernel) -> bool:
    """Whether generated code can make blocks of both results side by side: of panels alike."""
    one, two = first.step, other.step
    if type(one) is not PanelProduct or type(two) is not PanelProduct:
        return False
    kinds = {(s.weight.buffer.dtype, len(s.weight.size), s.size) for s in (one, two)}
    return len(kinds) == 1 and len(first.steps) < MOST_BESIDE


def _can_follow(item: Item, product: ProductKernel) -> bool:
    if not isinstance(item, Kernel) or item.is_scatter:
        return False
    if item.writes().keys() & product.step.reads.keys():  # other parts still read them
        return False
    return product.step.target.name in item.reads()


def _bundle(items: list[Item]) -> list[Scheduled]:
    """Launch kernels that fill parts of one buffer together, at the place of the last of them."""
    groups: dict[str, list[Kernel]] = {}
    for item in items:
        if isinstance(item, Kernel) and not item.is_rows:
            names = {s.bundle for s in item.steps}
            if len(names) == 1 and (name := names.pop()) is not None:
                groups.setdefault(name, []).append(item)
    together: dict[int, Bundle] = {}
    moved: set[int] = set()
    position = {id(item): k for k, item in enumerate(items)}
    for members in groups.values():
        mask = sum(1 << k.id for k in members)
        if len(members) < 2 or any(k.before & mask for k in members):
            continue
        last = max(members, key=lambda k: position[id(k)])
        between = items[position[id(members[0])] : position[id(last)]]
        if any(item.before & mask for item in between):
            continue  # a reader of one part stands between
        together[id(last)] = Bundle(members)
        moved.update(id(k) for k in members if k is not last)
    return [together.get(id(item), item) for item in items if id(item) not in moved]
