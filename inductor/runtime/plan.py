"""The plan: codegen's product for the runtime.

A `PlanSpec` says, in plain data, how to run one compiled graph: its inputs, its buffers, an ordered
list of steps and its outputs. It is JSON-able (`to_json` / `from_json`), so that it can be stored
next to its kernels and run by another process. Memory is not spelled out here: `schedule/memory.py`
derives liveness and places the temporaries.

Conventions
- A *name* is an input, constant, or buffer of the plan. Names are unique over all three.
- Sizes and strides count elements. A byte offset counts bytes from the tensor's first element (its
  `data_ptr()`, storage offset included). Every `offset` of a view counts elements from its base's
  first element; it is relative, so the plan holds for inputs with any storage offset.
- A size, stride, offset, total or int argument may be a `Size` over the plan's `symbols`, which the
  runtime computes for each call: symbols come from `NumberSpec` inputs, from the sizes of tensor
  inputs, or from the results of an AtenStep (its `binds`).
- Input pointers need not be aligned to more than their element size; temps are aligned to 64 bytes.
- A kernel is `extern "C" void NAME(void* const* ptrs, int64_t begin, int64_t end)`. It runs the
  half-open range [begin, end) of its flattened parallel extent; the runtime splits [0, total) in
  pieces of at least `grain`, each in one thread.

>>> add = PlanSpec(
...     inputs=[TensorSpec("x", "float32", (4,), (1,))],
...     buffers=[BufferSpec("out0", "float32", (4,), (1,), kind="output")],
...     steps=[KernelStep("k0", args=[("x", 0), ("out0", 0)], writes=["out0"], total=4)],
...     outputs=[OutputSpec("buffer", "out0")],
...     source="...",
... )
>>> PlanSpec.from_json(add.to_json()) == add
True
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from fxgraph.sizes import Extent, Size, Symbol, contiguous_strides, parse, product

FORMAT = 6  # raised whenever the meaning of a stored plan changes

BUFFER_KINDS = ("temp", "output", "aten")
PASSED = -(2**63)  # see CheckStep
SIZES = "*sizes"  # among a kernel's args: the array of PlanSpec.sizes, int64_t each
OUTPUT_KINDS = ("buffer", "input", "view", "reshaped", "value")


class PlanError(ValueError):
    """A plan that contradicts itself: a compiler bug, found before anything runs."""


@dataclass
class TensorSpec:
    """An input. Static ones (parameters, buffers) are bound at link time, absent from the call."""

    name: str
    dtype: str  # "float32", as in str(torch.float32) without "torch."
    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    offset: int = 0  # storage offset seen at compile time; informative, never relied on
    device: str = "cpu"
    static: bool = False


@dataclass
class NumberSpec:
    """An input that is an int. `value`: the input in terms of symbols; where that is a symbol
    itself, the input defines it."""

    name: str
    value: Extent

    static: ClassVar[bool] = False


@dataclass
class ConstantSpec:
    """A tensor that belongs to the graph itself. `data` is its contiguous bytes in base64."""

    name: str
    dtype: str
    size: tuple[int, ...]
    data: str
    device: str = "cpu"

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> ConstantSpec:
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        data = base64.b64encode(bytes(flat.tolist())).decode()
        return cls(name, dtype_name(tensor.dtype), tuple(tensor.shape), data, str(tensor.device))

    def tensor(self) -> torch.Tensor:
        raw = bytearray(base64.b64decode(self.data))
        dtype = torch_dtype(self.dtype)
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        return flat.reshape(self.size).clone().to(self.device)

    @property
    def stride(self) -> tuple[Extent, ...]:
        return contiguous_strides(self.size)


@dataclass
class BufferSpec:
    """A tensor made during the call.

    kind "temp": placed in the shared arena by the memory plan; never returned, nor the base of a
        returned view. Other steps than kernels may use it (as an out= argument, say).
    kind "output": a fresh tensor of its own (for whatever is returned, and bases of returned views)
    kind "aten": produced by an AtenStep or CallStep; later kernels rely on size and stride
        here: a result that comes with other strides is copied into these. May be returned.
    """

    name: str
    dtype: str
    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    device: str = "cpu"
    kind: str = "temp"


@dataclass
class KernelStep:
    """A call of a generated kernel.

    args: (name, byte offset) per pointer, in the kernel's parameter order; SIZES last, if at all.
    writes: names among args that the kernel writes (buffers, or inputs that the program mutates).
    total, grain: the parallel extent, and the least piece worth giving to a thread.
    inplace: pairs (out, in): `out` may take the memory of `in`, because each element of `in` is
        read before the element of `out` at the same byte position is written, by the same thread.
        Ignored unless both are temps and `in` dies here.
    label: the operators that the kernel computes, as profilers show them. operations: how many it
        fuses, a product or an attention as one.
    """

    symbol: str
    args: list[tuple[str, Extent]]
    writes: list[str]
    total: Extent
    grain: Extent = 32768
    inplace: list[tuple[str, str]] = field(default_factory=list)
    label: str = ""
    operations: int = 1

    kind: ClassVar[str] = "kernel"

    def names(self) -> Iterator[str]:
        return (name for name, _ in self.args if name != SIZES)

    def produces(self) -> Iterable[str]:
        return ()


@dataclass
class TritonSpec:
    """The text of a Triton kernel and how to compile it.

    signature: parameter -> Triton type ("*fp32", "i64", "constexpr"). constants: the values of the
    constexpr ones. warps: of 32 threads each. stages: of a pipelined loop. device: that runs it.
    divisible: parameters that are sizes known to be multiples of 16, so that whole groups of
    elements are inside of a mask and are read at once. careful: constants of the form that takes
    any addresses, where they are others. scratch: bytes of memory that Triton has for each program.
    contract: whether a * b + c may be rounded once. label: of what it computes.
    """

    name: str
    source: str
    signature: dict[str, str]
    constants: dict[str, int]
    warps: int = 4
    stages: int = 3
    device: str = "cpu"
    divisible: list[str] = field(default_factory=list)
    careful: dict[str, int] = field(default_factory=dict)
    scratch: int = 0
    contract: bool = False
    label: str = ""


@dataclass
class LaunchStep:
    """A launch of the TritonSpec named `kernel`, on a device.

    args: names of buffers, in parameter order; then come `sizes`. programs: how many run, numbered
    from 0. writes, label, operations: as a KernelStep's. scratch: the buffer of the kernel's.
    """

    kernel: str
    args: list[str]
    writes: list[str]
    programs: Extent
    sizes: list[Extent] = field(default_factory=list)
    label: str = ""
    operations: int = 1
    scratch: str = ""

    kind: ClassVar[str] = "launch"

    def names(self) -> Iterator[str]:
        return iter([*self.args, self.scratch] if self.scratch else self.args)

    def produces(self) -> Iterable[str]:
        return ()


@dataclass
class AtenStep:
    """A dispatcher call. `op` is "namespace::name", `args`/`kwargs` are trees made by `encode`.

    outputs: one name per tensor result, in order ("" drops it); an op that returns a tensor list
        names its elements. An in-place or out= op writes its arguments as its schema says; its
        result is usually dropped ([]).
    binds: (symbol, number of the result, dimension or None): the result, or one of its sizes, is
        the value of that symbol from here on.
    """

    op: str
    overload: str
    args: list[Any]
    outputs: list[str]
    kwargs: dict[str, Any] = field(default_factory=dict)
    binds: list[tuple[str, int, int | None]] = field(default_factory=list)

    kind: ClassVar[str] = "aten"

    def names(self) -> Iterator[str]:
        return tree_names([self.args, self.kwargs])

    def produces(self) -> Iterable[str]:
        return (name for name in self.outputs if name)


@dataclass
class CallStep:
    """A call of a Python callable given at link time by name; argument trees made by `encode`.

    The callable returns a tensor, a tuple of tensors, or None, matching `outputs`. `writes` names
    arguments that it fills.
    """

    function: str
    args: list[Any]
    outputs: list[str]
    kwargs: dict[str, Any] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    kind: ClassVar[str] = "call"

    def names(self) -> Iterator[str]:
        return tree_names([self.args, self.kwargs])

    def produces(self) -> Iterable[str]:
        return (name for name in self.outputs if name)


@dataclass
class ViewStep:
    """`out` names a strided window of `base` (of its dtype). Free by itself, needs no spec."""

    out: str
    base: str
    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    offset: Extent = 0

    kind: ClassVar[str] = "view"

    def names(self) -> Iterator[str]:
        return iter((self.base,))

    def produces(self) -> Iterable[str]:
        return (self.out,)


@dataclass
class CheckStep:
    """Raises `error` ("IndexError" or "RuntimeError") if kernels found something wrong with data.

    `found` names an int64 buffer of one element: PASSED, or the number for "{}" in `message`.
    "{0}", "{1}", ... stand for `sizes`.
    """

    found: str
    error: str
    message: str
    sizes: list[Extent] = field(default_factory=list)

    kind: ClassVar[str] = "check"

    def names(self) -> Iterator[str]:
        return iter((self.found,))

    def produces(self) -> Iterable[str]:
        return ()


Step = KernelStep | LaunchStep | AtenStep | CallStep | ViewStep | CheckStep
STEP_KINDS: dict[str, Any] = {
    s.kind: s for s in (KernelStep, LaunchStep, AtenStep, CallStep, ViewStep, CheckStep)
}


@dataclass
class OutputSpec:
    """An element of the returned tuple.

    kind "buffer": the tensor `name` (an "output" or "aten" buffer, or a constant)
    kind "input": the very object passed (or bound) as input `name`
    kind "view": a view of `name` (an input, an "output" or an "aten" buffer) as eager's view ops
        would make it: sharing the version counter, with `_base` set. A base that is returned too is
        the same tensor. detached: "base" for a view of what detach() makes of it, "view" for what
        detach() makes of the view, "data" for its `.data`.
    kind "reshaped": the tensor `name` (an "aten" buffer) in another shape, which alone is returned
    kind "value": the plain Python value `value` (None, int, float, bool, str), or a Size's
    """

    kind: str
    name: str = ""
    size: tuple[Extent, ...] = ()
    stride: tuple[Extent, ...] = ()
    offset: Extent = 0
    value: Any = None
    detached: str = ""


@dataclass
class DerivationSpec:
    """Tensors that depend on parameters alone: made once, kept between calls, and made again when
    one of these has changed.

    sources: names of inputs. plan: takes them, returns a tensor for each of `values`, none in the
    memory of a source; it has no kernels.
    """

    sources: list[str]
    values: list[TensorSpec]
    plan: PlanSpec


@dataclass
class PlanSpec:
    """A compiled graph.

    `source` is the C++ text of all kernels that KernelSteps name, or "". `units` is the same in
    several translation units, to be compiled in parallel ([]: `source` is the only one).
    `triton`: the kernels that LaunchSteps name.
    `bumps`: of a written input, how often that moves its version counter; else once. The steps may
    write none of it, where the values stay.
    `objects`: arguments of steps that live in this process only. Such a plan cannot be stored.
    `symbols`: those of all sizes. `sizes`: the content of the kernels' SIZES argument.
    `derivation`: names besides the inputs and constants, of tensors made of parameters.
    """

    inputs: list[TensorSpec | NumberSpec]
    buffers: list[BufferSpec]
    steps: list[Any]
    outputs: list[OutputSpec]
    constants: list[ConstantSpec] = field(default_factory=list)
    source: str = ""
    units: list[str] = field(default_factory=list)
    triton: list[TritonSpec] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    bumps: dict[str, int] = field(default_factory=dict)
    objects: list[Any] = field(default_factory=list)
    derivation: DerivationSpec | None = None

    @property
    def derived(self) -> list[TensorSpec]:
        return self.derivation.values if self.derivation is not None else []

    def validate(self) -> None:
        """Raise PlanError unless every name is defined before its use, exactly once."""
        given = [t.name for t in [*self.inputs, *self.constants, *self.derived]]
        defined = set(given)
        if len(defined) != len(given):
            raise PlanError("an input or constant name is used twice")
        if self.derivation is not None:
            tensors = {t.name for t in self.inputs if isinstance(t, TensorSpec)}
            if missing := set(self.derivation.sources) - tensors:
                raise PlanError(f"derived from {sorted(missing)}, which are no inputs")
            if self.derivation.plan.source or self.derivation.plan.triton:
                raise PlanError("a derivation has kernels")
        specs = {b.name: b for b in self.buffers}
        if len(specs) != len(self.buffers) or specs.keys() & defined:
            raise PlanError("a buffer name is used twice")
        for buffer in self.buffers:
            if buffer.kind not in BUFFER_KINDS:
                raise PlanError(f"buffer {buffer.name}: unknown kind {buffer.kind!r}")
        known = defined | {b.name for b in self.buffers if b.kind != "aten"}
        for index, step in enumerate(self.steps):
            where = f"step {index} ({step.kind} {_step_label(step)})"
            for name in step.names():
                if name not in known:
                    raise PlanError(f"{where} uses {name!r}, which nothing before it defines")
            for name in step.produces():
                if name in known:
                    raise PlanError(f"{where} defines {name!r} a second time")
                if step.kind != "view" and name not in specs:
                    raise PlanError(f"{where} produces {name!r}, which has no BufferSpec")
                known.add(name)
            self._check_kernel(step, where)
        inputs = {t.name for t in self.inputs}
        for out in self.outputs:
            if out.kind not in OUTPUT_KINDS:
                raise PlanError(f"unknown output kind {out.kind!r}")
            if out.kind != "value" and out.name not in (inputs if out.kind == "input" else known):
                raise PlanError(f"output {out.name!r} is not defined")

    def _check_kernel(self, step: Any, where: str) -> None:
        if step.kind == "launch" and step.kernel not in {k.name for k in self.triton}:
            raise PlanError(f"{where}: the plan has no such kernel")
        if step.kind not in ("kernel", "launch"):
            return
        if missing := set(step.writes) - set(step.names()):
            raise PlanError(f"{where} writes {sorted(missing)}, which are not among its args")
        if step.kind == "launch":
            return
        if not (_at_least(step.total, 0) and _at_least(step.grain, 1)):
            raise PlanError(f"{where}: total {step.total}, grain {step.grain}")

    def to_json(self, beside: dict[str, Any] | None = None) -> str:
        """beside: JSON data to be kept with the plan, which then is its entry "plan"."""
        data = self._stored() if beside is None else {**beside, "plan": self._stored()}
        return json.dumps(data, allow_nan=False, default=_size_to_json)

    def _stored(self) -> dict[str, Any]:
        if self.objects:
            raise PlanError(f"a plan with {self.objects[0]!r} cannot be stored")
        steps = [{"kind": s.kind, **vars(s)} for s in self.steps]
        rest = {
            key: [vars(item) for item in getattr(self, key)]
            for key in ("inputs", "constants", "buffers", "outputs", "triton")
        }
        symbols = [[s.name, s.low, s.high, s.hint] for s in self.symbols]
        derivation = self.derivation and {
            "sources": self.derivation.sources,
            "values": [vars(value) for value in self.derivation.values],
            "plan": self.derivation.plan._stored(),
        }
        return {
            "format": FORMAT,
            "symbols": symbols,
            "sizes": self.sizes,
            **rest,
            "steps": steps,
            "source": self.source,
            "units": self.units,
            "bumps": self.bumps,
            "derivation": derivation,
        }

    @classmethod
    def from_json(cls, text: str) -> PlanSpec:
        """The plan back from `to_json`; PlanError for another format, or text that is no plan."""
        try:
            return cls.from_data(json.loads(text))
        except ValueError as error:
            raise PlanError(f"not a stored plan: {error!r}") from error

    @classmethod
    def from_data(cls, data: Any) -> PlanSpec:
        """A plan from the parsed text of `to_json`."""
        try:
            return cls._restored(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PlanError(f"not a stored plan: {error!r}") from error

    @classmethod
    def _restored(cls, data: dict[str, Any]) -> PlanSpec:
        if data["format"] != FORMAT:
            raise PlanError(f"plan format {data['format']}, this runtime reads {FORMAT}")
        symbols = [Symbol(*s) for s in data["symbols"]]
        if symbols:
            data = _with_sizes(data, {s.name: s for s in symbols})
        derivation = data["derivation"]
        if derivation is not None:
            values = [_load(TensorSpec, d) for d in derivation["values"]]
            plan = cls._restored(derivation["plan"])
            derivation = DerivationSpec(derivation["sources"], values, plan)
        return cls(
            inputs=[_load(NumberSpec if "value" in d else TensorSpec, d) for d in data["inputs"]],
            constants=[_load(ConstantSpec, d) for d in data["constants"]],
            buffers=[_load(BufferSpec, d) for d in data["buffers"]],
            steps=[_load(STEP_KINDS[d.pop("kind")], d) for d in data["steps"]],
            outputs=[_load(OutputSpec, d) for d in data["outputs"]],
            source=data["source"],
            units=data["units"],
            triton=[_load(TritonSpec, d) for d in data["triton"]],
            symbols=symbols,
            sizes=data["sizes"],
            bumps=data["bumps"],
            derivation=derivation,
        )


def _at_least(size: Extent, low: int) -> bool:
    return isinstance(size, Size) or size >= low


def _size_to_json(value: Any) -> dict[str, str]:
    if isinstance(value, Size):
        return {"expr": str(value)}
    raise TypeError(f"a plan cannot hold {value!r}")


def _with_sizes(tree: Any, symbols: dict[str, Symbol]) -> Any:
    """The inverse of _size_to_json, everywhere in a tree."""
    if isinstance(tree, list):
        return [_with_sizes(item, symbols) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"expr"}:
        return parse(tree["expr"], symbols)
    return {key: _with_sizes(item, symbols) for key, item in tree.items()}


def _load(cls: Any, data: dict[str, Any]) -> Any:
    """A dataclass from its JSON form: lists of sizes and of pairs become tuples again."""
    for key in ("size", "stride"):
        if key in data:
            data[key] = tuple(data[key])
    if cls is KernelStep:
        data["args"] = [tuple(pair) for pair in data["args"]]
        data["inplace"] = [tuple(pair) for pair in data["inplace"]]
    if cls is AtenStep:
        data["binds"] = [tuple(bind) for bind in data["binds"]]
    return cls(**data)


def _step_label(step: Any) -> str:
    names = (getattr(step, name, "") for name in ("symbol", "kernel", "op", "out"))
    return next((name for name in names if name), "")


# --- argument trees -----------------------------------------------------------------------------
# A leaf is an int, Size, finite float, bool, str or None; a list is a list; a dict has one tag:
#   {"buf": name} {"dtype": "float32"} {"device": "cpu"} {"layout": "strided"}
#   {"memory_format": "channels_last"} {"float": "inf"} {"complex": [re, im]} {"object": 0}
# with special numbers as strings, since JSON has no infinities. An object, a process group say, is
# one of PlanSpec.objects: it has no JSON form.


def encode(
    value: Any, name_of: Callable[[Any], str | None], objects: list[Any] | None = None
) -> Any:
    """A Python argument tree to its JSON form. `name_of(leaf)` names a tensor leaf, else None.
    `objects` gets the leaves that have no such form; a TypeError without it."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [encode(item, name_of, objects) for item in value]
    if isinstance(value, torch.Size):
        return [int(item) for item in value]
    if (name := name_of(value)) is not None:
        return {"buf": name}
    if value is None or isinstance(value, bool | int | str | Size):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    for tag, kind in _TORCH_LEAVES.items():
        if isinstance(value, kind):
            return {tag: str(value).removeprefix("torch.")}
    if objects is None:
        raise TypeError(f"no stored form of an argument of type {type(value).__name__}: {value!r}")
    objects.append(value)
    return {"object": len(objects) - 1}


def decode(
    tree: Any,
    tensor: Callable[[str], Any],
    size: Callable[[Size], Any] = lambda n: n,
    objects: Sequence[Any] = (),
) -> Any:
    """The inverse of `encode`; `tensor(name)` gives the object in the place of a named tensor,
    `size(n)` that of a Size."""
    if isinstance(tree, list):
        return [decode(item, tensor, size, objects) for item in tree]
    if isinstance(tree, Size):
        return size(tree)
    if not isinstance(tree, dict):
        return tree
    ((tag, value),) = tree.items()
    match tag:
        case "buf":
            return tensor(value)
        case "float":
            return float(value)
        case "complex":
            return complex(float(value[0]), float(value[1]))
        case "device":
            return torch.device(value)
        case "object":
            return objects[value]
    return getattr(torch, value)


def tree_names(tree: Any) -> Iterator[str]:
    """Names of the tensors in an argument tree, in order, with repetitions."""
    if isinstance(tree, list):
        for item in tree:
            yield from tree_names(item)
    elif isinstance(tree, dict):
        for tag, item in tree.items():
            if tag == "buf" and isinstance(item, str):
                yield item
            elif isinstance(item, (list, dict)):
                yield from tree_names(item)


_TORCH_LEAVES: dict[str, type] = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


# --- small facts about tensors -----------------------------------------------------------------


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def storage_bytes(dtype: str, size: Iterable[Extent], stride: Iterable[Extent]) -> Extent:
    """Bytes from the first to one past the last element; 0 when there are none."""
    size = tuple(size)
    if product(size) == 0:
        return 0
    last: Extent = 0
    for extent, step in zip(size, stride, strict=True):
        last = last + (extent - 1) * step
    return (last + 1) * torch_dtype(dtype).itemsize
