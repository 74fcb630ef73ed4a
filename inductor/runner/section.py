"""A plan as plain data for the runner, which reads it from the section `plan` of a saved program.

A number is an int, or [register, 0]: registers are computed for each call, in their order
(runtime/size_program.py).

    values      [kind, name, dtype, size, stride, where, offset, nbytes] for each tensor
    kind        where
    input       which of the inputs that a call brings
    static      which of `statics`
    own         -: memory of its own, from its "alloc" step on
    arena       byte offset in the memory that a call has to itself
    produced    -: memory that an operator of libtorch gives
    view        the value that it is a window of, from element `offset` on
    registers   [operation, a, b] or, computed only after the n-th operator that gives numbers,
                [operation, a, b, n]; the operation "result" is such a number
    steps       ["alloc", value]; ["free", value]; ["kernel", symbol, [[value, byte offset], ...],
                total, grain, label]; ["check", [value, byte offset], is an index, message, sizes];
                ["operator", name, overload, arguments, those by keyword, [value, or -1: unread],
                and, of one that gives numbers, [[register, result, dimension, or -1: itself], ...]]
    arguments   None, bools, ints, strings and lists are themselves; others have one of the keys
                "value", "register", "real" (its bits as an int64), "dtype", "device", "layout",
                "memory_format"
    outputs     ["tensor", value]; ["same", value], an input; ["view", value, size, stride, offset]
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductor import pipeline, reports
from inductor.runtime import shipped
from inductor.runtime.link import Derived, Linker, link
from inductor.runtime.plan import PlanError, PlanSpec, dtype_name
from inductor.runtime.toolchain import NoCompiler

FORMAT = 1
OPTIONS = {"standalone": True}
# Torch's types in a plan: those that DLPack has a name for.
DTYPES = frozenset(
    ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
     "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]
)  # fmt: skip
LIBTORCH = "libtorch"
_ELSEWHERE = ("framegraph", "prims")  # namespaces that Python alone fills


class NotStandalone(Exception):
    """Why a program does not run without torch."""


@dataclass
class Standalone:
    """plan: the data. statics: input numbers of the graph's static inputs, or tensors that the plan
    brings. libraries: target -> library of its kernels.
    """

    plan: dict[str, Any]
    statics: list[int | torch.Tensor]
    libraries: dict[str, bytes]


def standalone(
    traced: Any, inputs: Sequence[Any], targets: Sequence[str], library: str = ""
) -> Standalone:
    """The plan of a functional graph without torch's operators, or (library: LIBTORCH) with those
    that have no generated code. Raises NotStandalone.
    """
    c = pipeline.new_compilation(traced.graph_module, inputs, OPTIONS)
    c.functional = traced
    try:
        pipeline.run_stages(c, until="codegen")
    except pipeline.SIGNALS as error:
        raise NotStandalone(str(error)) from error
    assert c.spec is not None and c.functional is not None
    _check(c, library)
    spec, numbers, derived = _as_read(c.spec, c.inputs)
    statics = [c.inputs[i] for i in numbers] + derived
    program = Linker(spec, _Symbols(), statics, {}).program()
    brought = program["statics"][len(numbers) :]
    units = spec.units or ([spec.source] if spec.source else [])
    try:
        libraries = {t: shipped.compile_for(units, t) for t in targets} if units else {}
    except NoCompiler as error:
        raise NotStandalone(str(error)) from error
    return Standalone(_data(program), [*numbers, *brought], libraries)


def _as_read(
    spec: PlanSpec, inputs: Sequence[Any]
) -> tuple[PlanSpec, list[int], list[torch.Tensor]]:
    """The plan with the static inputs that its steps read, then the tensors derived from others;
    the numbers of the former, and the tensors of the latter.
    """
    tensors: list[torch.Tensor] = []
    values = []
    if spec.derivation is not None:
        given = {one.name: inputs[i] for i, one in enumerate(spec.inputs)}
        with torch.no_grad():
            derive = Derived(link(spec.derivation.plan), spec.derivation.values)
            tensors = derive(*(given[name] for name in spec.derivation.sources))
        values = [dataclasses.replace(value, static=True) for value in spec.derivation.values]
    read = {name for step in spec.steps for name in step.names()}
    read |= {out.name for out in spec.outputs}
    kept = [i for i, one in enumerate(spec.inputs) if not one.static or one.name in read]
    left = [spec.inputs[i] for i in kept]
    numbers = [i for i in kept if spec.inputs[i].static]
    return dataclasses.replace(spec, inputs=[*left, *values], derivation=None), numbers, tensors


class _Symbols:
    """In place of a library: kernels are found by name when the program is loaded."""

    def address(self, symbol: str) -> str:
        return symbol


def _check(c: pipeline.Compilation, library: str) -> None:
    assert c.spec is not None and c.functional is not None
    operators = reports.fallbacks(c.spec)
    calls = [step.function for step in c.spec.steps if step.kind == "call"]
    ours = any(s.op.partition("::")[0] in _ELSEWHERE for s in c.spec.steps if s.kind == "aten")
    if calls or (operators and not library):
        names = [f"{name} ({count})" for name, count in sorted(operators.items())]
        text = f"operators without generated code: {', '.join([*names, *calls])}"
        hint = "" if calls or ours else ' (standalone="libtorch" leaves them to libtorch)'
        raise NotStandalone(text + hint)
    if ours:
        names = sorted(name for name in operators if name.partition(".")[0] in _ELSEWHERE)
        raise NotStandalone(f"operators that libtorch has none of: {', '.join(names)}")
    if c.spec.objects:
        raise NotStandalone(f"an argument of a {type(c.spec.objects[0]).__name__}")
    written = c.functional.input_mutations
    if any(c.static[m.index] for m in written):
        raise NotStandalone("it writes its buffers, which calls side by side would share")
    if c.functional.same_inputs or any(m.metadata for m in written):
        raise NotStandalone("it writes inputs that share memory, or changes their size")
    if c.floats:
        raise NotStandalone("real numbers among its arguments")


def _data(program: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {
            "format": FORMAT,
            "registers": [[*r, n] if n else [*r] for n, *r in program["registers"]],
            "sizes": program["sizes"],
            "arena": program["arena_bytes"],
            "values": [_value(value) for value in program["values"]],
            "steps": [_step(step) for step in program["steps"]],
            "outputs": [_output(out) for out in program["outputs"]],
            "written": [v for v, _ in program["mutated"]],
        }
    except PlanError as error:
        raise NotStandalone(str(error)) from error


def _value(value: Sequence[Any]) -> list[Any]:
    kind, name, dtype, size, stride, device, where, offset, nbytes, *_ = value
    if device.type != "cpu" or dtype_name(dtype) not in DTYPES:
        raise NotStandalone(f"tensors of {dtype_name(dtype)} on {device}")
    return [kind, name, dtype_name(dtype), size, stride, where, offset, nbytes]


def _step(step: Sequence[Any]) -> list[Any]:
    if step[0] != "aten":
        return list(step)
    _, name, overload, args, kwargs, results, binds = step
    keywords = {key: _argument(value) for key, value in kwargs.items()}
    row = ["operator", name, overload, _argument(args), keywords, results]
    return [*row, [list(bind) for bind in binds]] if binds else row


def _argument(value: Any) -> Any:
    if isinstance(value, tuple):  # (value,) or (register, 0)
        return {"value" if len(value) == 1 else "register": value[0]}
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if isinstance(value, float):
        return {"real": struct.unpack("<q", struct.pack("<d", value))[0]}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    for tag, kind in _NAMED.items():
        if isinstance(value, kind):
            return {tag: str(value).removeprefix("torch.")}
    raise NotStandalone(f"an argument of a {type(value).__name__}")


_NAMED: dict[str, type] = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def _output(out: Sequence[Any]) -> list[Any]:
    if out[0] not in ("tensor", "same", "view", "reshaped"):
        raise NotStandalone("results that are no tensors")
    return ["view" if out[0] == "reshaped" else out[0], *out[1:5]]  # there is no autograd
