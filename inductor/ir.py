"""The loop-level program between lowering and scheduling: buffers, and the steps that fill them.

A `Tensor` is the argument and result of lowerings. It is either *realised*, a strided window of a
buffer, or *lazy*, a function from an index to one element that whoever reads it inlines. A `Loops`
fills (a part of) one buffer from one body; an `AtenCall` is an operator that stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxgraph.sizes import Extent, Size, Symbol, product, symbols
from inductor.boxes import Box
from inductor.index import Index, Var, linear
from inductor.ops import Access, Tape, Value, ops, print_tape

Indices = tuple[Index, ...]


@dataclass(eq=False)
class Buffer:
    """Memory with a name. kind: input, constant, temp, output (returned, fresh), aten (made by an
    AtenCall)."""

    name: str
    dtype: torch.dtype
    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    device: torch.device
    kind: str = "temp"
    static: bool = False  # an input whose identity is guarded

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name}: {dtype}{list(self.size)} strides {list(self.stride)} {self.kind}"


@dataclass(frozen=True)
class Window:
    """A strided view of a buffer; `offset` counts elements from the buffer's first."""

    buffer: Buffer
    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    offset: Extent = 0

    def index(self, idx: Sequence[Index]) -> Index:
        return linear(tuple(idx), self.stride, self.offset)

    def is_whole(self) -> bool:
        return (
            self.offset == 0 and self.size == self.buffer.size and self.stride == self.buffer.stride
        )


@dataclass(eq=False)
class Tensor:
    """See the module's docstring. `work` and `reads` estimate the cost of one element. A lazy
    tensor is best computed box by box of `split`, which have no element in common (a cat's parts).
    """

    size: tuple[Extent, ...]
    dtype: torch.dtype
    device: torch.device
    window: Window | None = None
    inner: Callable[[Indices], Value] | None = None
    work: int = 0
    reads: int = 1
    split: tuple[Box, ...] | None = None
    hint: tuple[Extent, ...] | None = None  # the strides that eager gives this tensor

    @classmethod
    def of(cls, buffer: Buffer) -> Tensor:
        return cls(
            buffer.size, buffer.dtype, buffer.device, Window(buffer, buffer.size, buffer.stride)
        )

    @property
    def numel(self) -> Extent:
        return product(self.size)

    def load(self, idx: Indices) -> Value:
        if self.window is not None:
            return ops.load(self.window.buffer.name, self.window.index(idx), self.dtype)
        assert self.inner is not None
        return self.inner(idx)


@dataclass(eq=False)
class Loops:
    """`target[index] = value` over `dims`, reduced over `reduced` first when `reduction` names a
    kind.

    Dimensions are ordered outermost first, as memory is walked. `index` is written in `dims` alone.

    A *scatter* has a `mode`: it combines its value with `target[index]` ("add", "mul",
    "max", "min"), or replaces it ("set"). Its index may be loaded, and depends on `reduced` too:
    those iterations may meet at one element, so they run one after another, in their order. No two
    iterations of `dims` do.
    """

    name: str
    dims: list[Var]
    reduced: list[Var]
    tape: Tape
    values: tuple[Value, ...]
    reduction: str | None
    target: Buffer
    index: Index
    bundle: str | None = (
        None  # steps with one bundle fill parts of one buffer and may share a kernel
    )
    # buffer name -> the indices it is read at; filled from the tape
    reads: dict[str, list[Index]] = field(default_factory=dict)
    mode: str | None = None

    def __post_init__(self) -> None:
        for access in self.tape.loads():
            known = self.reads.setdefault(access.buffer, [])
            if access.index not in known:
                known.append(access.index)
        if self.mode is not None:  # the rest of its target stays as it was
            self.reads.setdefault(self.target.name, []).append(self.index)

    def is_idle(self) -> bool:
        """Whether the step writes what is there."""
        if self.mode is not None or self.reduction is not None:
            return False
        value = self.values[0]
        if value.op != "load" or value.attr.masked or value.attr.buffer != self.target.name:
            return False
        return bool(value.attr.index == self.index)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target.name,)

    @property
    def symbols(self) -> set[str]:
        """The symbols needed by the step, also for making its outputs, perhaps in part."""
        sizes = [v.size for v in (*self.dims, *self.reduced)]
        sizes += [*self.target.size, *self.target.stride]
        sizes += [n for index in (self.index, *self.tape.indices()) for n in index.sizes()]
        sizes += [v.attr for v in self.tape.values if isinstance(v.attr, Size)]
        return {s.name for s in symbols(sizes)}

    def __str__(self) -> str:
        dims = ", ".join(f"{v.name}<{v.size}" for v in self.dims)
        red = ", ".join(f"{v.name}<{v.size}" for v in self.reduced)
        kind = self.mode or self.reduction
        head = f"{self.name}: for {dims or '()'}" + (f" {kind} over {red}" if red else "")
        value = ", ".join(repr(v) for v in self.values)
        if self.mode is not None:
            value = f"{self.mode} {value}"
        body = "\n".join("    " + line for line in print_tape(self.tape).splitlines())
        return f"{head}\n{body}\n    {self.target.name}[{self.index!r}] = {value}"


@dataclass(eq=False)
class AtenCall:
    """An operator run by aten. `args`/`kwargs` are trees whose tensor leaves are Windows."""

    name: str
    target: Any  # torch._ops.OpOverload
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: list[Buffer | None]
    ordered: bool = False  # has effects (random numbers, printing): keeps its place among such
    mutates: tuple[str, ...] = ()  # buffers that the operator writes in place
    # symbols that the results define: (name, number of the result, dimension; None: the result)
    binds: tuple[tuple[str, int, int | None], ...] = ()
    asserts: bool = False  # raises unless the data is as everything after it expects
    bundle: None = None

    @property
    def reads(self) -> dict[str, list[Index]]:
        return {w.buffer.name: [] for w in windows([self.args, self.kwargs])}

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(b.name for b in self.outputs if b is not None) + self.mutates

    @property
    def symbols(self) -> set[str]:
        """The symbols needed by the step."""
        sizes = [self.args, self.kwargs]
        sizes += [[w.size, w.stride, w.offset] for w in windows(sizes)]
        return {s.name for s in symbols(sizes)}

    def __str__(self) -> str:
        names = ", ".join(b.name if b else "_" for b in self.outputs)
        shown = [w.buffer.name for w in windows([self.args, self.kwargs])]
        return f"{self.name}: {names} = {self.target}({', '.join(shown)})"


@dataclass(eq=False)
class Check(AtenCall):
    """Not a call, though ordered like one: raises `error` unless the int64 that its argument holds
    is PASSED (see runtime/plan.py's CheckStep)."""

    error: str = "RuntimeError"
    message: str = ""
    sizes: tuple[Extent, ...] = ()  # for "{0}", "{1}", ... in the message

    @property
    def symbols(self) -> set[str]:
        return super().symbols | {s.name for s in symbols(self.sizes)}


@dataclass(eq=False)
class PanelProduct:
    """`target = x @ weight`, computed by a generated kernel.

    x: (rows, inner), elements of a row side by side. weight: (panels, inner, PANEL) or of pairs,
    contiguous (see inductor/panels.py). size: rows and columns; `target` holds these elements row
    by row.
    """

    name: str
    x: Window
    weight: Window
    size: tuple[Extent, Extent]
    target: Buffer
    bundle: None = None

    @property
    def reads(self) -> dict[str, list[Index]]:
        return {self.x.buffer.name: [], self.weight.buffer.name: []}

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target.name,)

    @property
    def symbols(self) -> set[str]:
        """The symbols needed by the step."""
        sizes = [[w.size, w.stride, w.offset] for w in (self.x, self.weight)]
        return {s.name for s in symbols([self.size, sizes])}

    def __str__(self) -> str:
        operands = f"{self.x.buffer.name}, {self.weight.buffer.name}"
        return f"{self.name}: {self.target.name} = panel product({operands})"


@dataclass(eq=False, kw_only=True)
class Winograd(PanelProduct):
    """A convolution of 3x3 windows as products of its transformed weight: `weight`, in panels.

    x: (images, height, width, channels), contiguous. weight_as_it_was: (columns, channels, 3, 3).
    pixels: images, rows and columns of the result, which has a row of `size` for each pixel.
    transposed: the weight is (channels, columns, 3, 3), and its windows are mirrored.
    """

    weight_as_it_was: Window
    padding: tuple[int, int]
    pixels: tuple[Extent, Extent, Extent]
    transposed: bool = False

    @property
    def reads(self) -> dict[str, list[Index]]:
        return {**super().reads, self.weight_as_it_was.buffer.name: []}

    def __str__(self) -> str:
        return super().__str__().replace("panel product", "winograd")


@dataclass(eq=False, kw_only=True)
class WindowProduct(PanelProduct):
    """A convolution of bfloat16 as a product of its windows and its weight, in panels of pairs.

    x: (images, height, width, channels), contiguous. pixels: images, rows and columns of the
    result, which has a row of `size` for each pixel.
    """

    pixels: tuple[Extent, Extent, Extent]
    window: tuple[int, int]
    steps: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def __str__(self) -> str:
        return super().__str__().replace("panel product", "product of windows")


class MatrixProduct(PanelProduct):
    """`target = x @ weight` of matrices as they are: of each, rows or columns side by side.

    x: (rows, inner). weight: (inner, columns).
    """

    def __str__(self) -> str:
        return super().__str__().replace("panel product", "product")


class Called:
    """`target` computed by a function of ours, in a kernel of its own. operands: buffers read."""

    name: str
    target: Buffer
    bundle: None = None

    @property
    def operands(self) -> list[Window]:
        raise NotImplementedError

    @property
    def bodies(self) -> list[Loops]:
        """Loops that the function runs piece by piece, over memory of its own as their target."""
        return []

    @property
    def reads(self) -> dict[str, list[Index]]:
        found: dict[str, list[Index]] = {window.buffer.name: [] for window in self.operands}
        for body in self.bodies:
            found.update((name, at) for name, at in body.reads.items() if name != body.target.name)
        return found

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target.name,)

    @property
    def symbols(self) -> set[str]:
        """The symbols needed by the step."""
        sizes = [[w.size, w.stride, w.offset] for w in self.operands]
        found = {s.name for s in symbols([self.target.size, self.target.stride, sizes])}
        return found.union(*(body.symbols for body in self.bodies))

    def __str__(self) -> str:
        operands = ", ".join(window.buffer.name for window in self.operands)
        call = f"{self.name}: {self.target.name} = {type(self).__name__}({operands})"
        return "\n".join([call, *map(str, self.bodies)])


@dataclass(eq=False)
class WinogradPanels(Called):
    """A weight of 3x3 windows, transformed, in panels, as Winograd reads it.

    weight: (columns, channels, 3, 3). transposed: for the gradient of the images, of which the
    columns are channels.
    """

    name: str
    weight: Window
    transposed: bool
    target: Buffer

    @property
    def operands(self) -> list[Window]:
        return [self.weight]


@dataclass(eq=False)
class WeightGradient(Called):
    """The gradient of a convolution's weight: `target`, (columns, channels, *window).

    x, gradient: (images, height, width, channels) and (images, rows, across, columns), contiguous.
    winograd: by Winograd's transforms, of 3x3 windows at every pixel.
    """

    name: str
    x: Window
    gradient: Window
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    winograd: bool
    target: Buffer

    @property
    def operands(self) -> list[Window]:
        return [self.x, self.gradient]


@dataclass(eq=False)
class Depthwise(Called):
    """A convolution of each channel by a window of its own: `target`, an image of the layout of x.

    x: (images, height, width, channels), contiguous. weight: (height, width, channels).
    """

    name: str
    x: Window
    weight: Window
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    target: Buffer

    @property
    def operands(self) -> list[Window]:
        return [self.x, self.weight]


@dataclass(eq=False)
class DepthwiseGradient(Called):
    """The gradients of such a convolution: `image`, laid out as x, and of the weight `target`,
    (parts, height, width, channels), a sum over some images each.

    x, weight: as of Depthwise. gradient: (images, rows, across, channels), contiguous.
    """

    name: str
    x: Window
    gradient: Window
    weight: Window
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    target: Buffer
    image: Buffer

    @property
    def operands(self) -> list[Window]:
        return [self.x, self.gradient, self.weight]

    @property
    def writes(self) -> tuple[str, ...]:
        return self.image.name, self.target.name


@dataclass(eq=False)
class Attention(Called):
    """`target = softmax(q k^T scale + mask) v`, computed by a generated kernel.

    q, target: (sequences, heads, queries, size); k, v: (sequences, heads, keys, size), or of fewer
    heads, each for several of q; elements of a head side by side. mask: of the scores' size, the
    stride of its keys 0 or 1. causal: query i sees the keys up to i.

    scores: the exponents of the softmax from the products q k^T, in place of scale and mask; over
    (sequences, heads, queries, keys) in this order. visible: False for keys whose weight is 0,
    where the values are finite and either `exact` holds or no product by `bound` overflows;
    alike: so for all heads.
    nothing_is_nan: a query that sees no key has NaN as its result, not 0. sums: logsumexp of the
    exponents, for the backward; of a query that sees no key NaN or +inf.
    """

    name: str
    q: Window
    k: Window
    v: Window
    mask: Window | None
    scale: float
    causal: bool
    target: Buffer
    scores: Loops | None = None
    visible: Loops | None = None
    bound: float = 1.0
    alike: bool = False
    exact: bool = False
    nothing_is_nan: bool = False
    sums: Buffer | None = None

    @property
    def operands(self) -> list[Window]:
        return [self.q, self.k, self.v, *([] if self.mask is None else [self.mask])]

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target.name, *([] if self.sums is None else [self.sums.name]))

    @property
    def bodies(self) -> list[Loops]:
        return [body for body in (self.scores, self.visible) if body is not None]


@dataclass(eq=False)
class AttentionGradient(Called):
    """The gradient of an attention's queries, keys or values (`of`: "q", "k", "v"), from that of
    its result.

    q, k, v, gradient, sums: as of Attention, of as many heads. inner: of gradient and result, by
    query. scores: the exponents and, but for values, the gradient of the products q k^T, from the
    products and from the gradient of exponents, `score_gradient`, which has no memory either.
    """

    name: str
    of: str
    q: Window
    k: Window
    v: Window | None
    gradient: Window
    sums: Window
    inner: Window | None
    scores: Loops
    score_gradient: str
    target: Buffer

    @property
    def operands(self) -> list[Window]:
        given = [self.q, self.k, self.v, self.gradient, self.sums, self.inner]
        return [window for window in given if window is not None]

    @property
    def bodies(self) -> list[Loops]:
        return [self.scores]

    @property
    def reads(self) -> dict[str, list[Index]]:
        return {name: at for name, at in super().reads.items() if name != self.score_gradient}


@dataclass(eq=False)
class Operand:
    """A tensor that a product reads element by element: a body over the product's variables."""

    tape: Tape
    value: Value


@dataclass(eq=False)
class DeviceProduct:
    """`target[z, x, r] = alpha * sum over k of a[z, x, k] * b[z, k, r] + beta * bias[z, x, r]` on a
    GPU, computed by a generated kernel or by `call`, the library's operator.

    size: of z, x, k and r. place: z, x and r as indices, 0 for an extent of 1; their variables have
    these names, and k is "ka" in a and "kb" in b. dtype: that a and b have when they are
    multiplied; sums are float32, int32 of int8. precision: of a product of float32, "ieee" or
    "tf32". target: contiguous. call: None where the library would need other operands. scales:
    alpha and beta. factors: of the sums, too.
    """

    name: str
    a: Operand
    b: Operand
    bias: Operand | None
    size: tuple[Extent, Extent, Extent, Extent]
    place: tuple[Index, Index, Index]
    dtype: torch.dtype
    precision: str
    target: Buffer
    call: AtenCall | None
    scales: tuple[float, float] = (1.0, 1.0)
    factors: list[Operand] = field(default_factory=list)
    bundle: None = None

    @property
    def sums(self) -> torch.dtype:
        return torch.int32 if self.dtype == torch.int8 else torch.float32

    @property
    def operands(self) -> list[Operand]:
        return [self.a, self.b, *self.factors, *([] if self.bias is None else [self.bias])]

    @property
    def reads(self) -> dict[str, list[Index]]:
        found: dict[str, list[Index]] = {}
        for access in (access for operand in self.operands for access in operand.tape.loads()):
            found.setdefault(access.buffer, []).append(access.index)
        return found

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.target.name,)

    @property
    def symbols(self) -> set[str]:
        """The symbols needed by the step."""
        indices = [i for operand in self.operands for i in operand.tape.indices()]
        sizes = [*self.size, *(n for index in indices for n in index.sizes())]
        return {s.name for s in symbols(sizes)}

    def __str__(self) -> str:
        operands = ", ".join(self.reads)
        return f"{self.name}: {self.target.name} = product({operands})"


Step = Loops | AtenCall | PanelProduct | Called | DeviceProduct


def windows(tree: Any) -> list[Window]:
    """The Windows in an argument tree, in order."""
    if isinstance(tree, Window):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [w for item in tree for w in windows(item)]
    if isinstance(tree, dict):
        return [w for item in tree.values() for w in windows(item)]
    return []


@dataclass(eq=False)
class Program:
    """A lowered graph: steps in a valid order, outputs as OutputSpec-like rows."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    inputs: list[Buffer | Extent] = field(default_factory=list)  # not a tensor: its value
    symbols: dict[str, Symbol] = field(default_factory=dict)  # those of the sizes
    values: dict[str, Extent] = field(default_factory=dict)  # of names that are no symbols
    given: dict[Any, Extent] = field(default_factory=dict)  # expressions with symbols of their own
    steps: list[Step] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    fallbacks: dict[str, int] = field(default_factory=dict)
    next_buffer: int = 0
    next_step: int = 0

    def new_number(self) -> int:
        """A number that no step has in its name, those included that are gone."""
        self.next_step += 1
        return self.next_step - 1

    def __str__(self) -> str:
        buffers = "\n".join(repr(b) for b in self.buffers.values())
        steps = "\n".join(str(s) for s in self.steps)
        return f"{buffers}\n\n{steps}\n\nreturn {self.outputs}"


__all__ = [
    "Access",
    "AtenCall",
    "Attention",
    "AttentionGradient",
    "Buffer",
    "Called",
    "Check",
    "Depthwise",
    "DepthwiseGradient",
    "DeviceProduct",
    "Indices",
    "Loops",
    "MatrixProduct",
    "Operand",
    "PanelProduct",
    "Program",
    "Step",
    "Tape",
    "Tensor",
    "Value",
    "WeightGradient",
    "Window",
    "WindowProduct",
    "Winograd",
    "WinogradPanels",
    "windows",
]
