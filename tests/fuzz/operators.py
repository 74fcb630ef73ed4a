"""python -m tests.fuzz.operators [--forms F,F] [--only TEXT] [--samples N] [--dtypes D,D]: a sweep
over torch's table of operators.

Each operator is called in the forms of `FORMS` with samples of the table, eagerly and compiled:
values, types, strides, shared memory, written arguments, gradients, exceptions and warnings are
compared. Operators run in child processes, some at a time; one that ends or hangs its process is
told by name, and the others of its group run on in another child.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import dynamo
from tests.dynamo.torch_ops import copied, operators, tensors_in

GROUP = 40  # operators of one child
SECONDS = 300  # without a line from a child
TOLERANCES = {  # relative, absolute
    torch.float64: (1e-9, 1e-9),
    torch.complex128: (1e-9, 1e-9),
    torch.bfloat16: (3e-2, 3e-2),
    torch.float16: (4e-3, 4e-3),
    torch.complex32: (4e-3, 4e-3),
}
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")


@dataclass
class Call:
    """One way to call an operator: `function(*args, **kwargs)` for each of `given`, in turn."""

    label: str
    function: Callable[..., Any]
    given: list[tuple[tuple[Any, ...], dict[str, Any]]]
    dynamic: bool | None = False
    order: int = 0  # of the gradients that are compared
    repeat: bool = False  # whether warnings are compared


def _given(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (sample.input, *sample.args), sample.kwargs


def _spread(found: Any, limit: int) -> list[Any]:
    found = list(found)
    return found[:: max(1, -(-len(found) // limit))][:limit]


def _gradient(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    if dtype not in info.supported_backward_dtypes("cpu"):
        return
    for sample in _spread(info.sample_inputs("cpu", dtype, requires_grad=True), limit):
        yield Call("gradient", info.op, [_given(sample)], order=1)


def _second(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    if not info.supports_gradgrad:
        return
    for call in _gradient(info, dtype, limit):
        yield Call("second", call.function, call.given, order=2)


def _dynamic(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    """Samples of the same form in turn, with symbolic sizes."""
    groups: dict[str, list[Any]] = {}
    trains = info.supports_autograd and dtype.is_floating_point
    for sample in info.sample_inputs("cpu", dtype, requires_grad=trains):
        args = _given(sample)
        leaves, spec = pytree.tree_flatten(args)
        form = [leaf.dim() if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves]
        groups.setdefault(f"{spec} {form}", []).append(args)
    for group in sorted(groups.values(), key=len, reverse=True)[:limit]:
        chosen = _spread(group, 3)
        order = int(trains)
        yield Call("dynamic", info.op, [*chosen, chosen[0]], dynamic=True, order=order)


def _inplace(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    variant = info.inplace_variant
    if variant is None:
        return
    trains = dtype in info.supported_backward_dtypes("cpu") and info.supports_inplace_autograd

    def on_copy(x: Any, *args: Any, **kwargs: Any) -> Any:
        y = x.clone()
        return variant(y, *args, **kwargs), y

    def on_view(x: Any, *args: Any, **kwargs: Any) -> Any:
        base = torch.stack([x, x], -1)
        view = base[..., 1]
        return variant(view, *args, **kwargs), view, base

    def on_rows(x: Any, *args: Any, **kwargs: Any) -> Any:
        base = x.mT.clone() * 1
        return variant(base.mT, *args, **kwargs), base

    for sample in _spread(info.sample_inputs("cpu", dtype, requires_grad=trains), limit):
        args, kwargs = _given(sample)
        order = int(trains)
        yield Call("inplace", on_copy, [(args, kwargs)], order=order)
        yield Call("inplace of a view", on_view, [(args, kwargs)], order=order)
        if args[0].dim() >= 2:
            yield Call("inplace, transposed", on_rows, [(args, kwargs)], order=order)
        plain = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        yield Call("inplace of an argument", variant, [plain])
        if order:
            yield Call("inplace of a leaf", variant, [(args, kwargs)])
        shared = args[0].detach().flatten()[:1].expand(args[0].numel()).view(args[0].shape)
        yield Call("inplace of repeated memory", variant, [((shared, *plain[0][1:]), plain[1])])


def _out(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    if not info.supports_out:
        return
    for sample in _spread(info.sample_inputs("cpu", dtype), limit):
        args, kwargs = _given(sample)
        torch.manual_seed(0)
        try:
            result = info.op(*args, **kwargs)
        except RuntimeError:
            continue
        if not tensors_in(result):
            continue
        for label, remade in OUTS.items():
            out = pytree.tree_map_only(torch.Tensor, remade, result)
            out = tuple(out) if isinstance(out, (tuple, list)) else out
            yield Call(f"out {label}", info.op, [(args, {**kwargs, "out": out})], repeat=True)
        if isinstance(result, torch.Tensor) and isinstance(args[0], torch.Tensor):
            if args[0].shape == result.shape and args[0].dtype == result.dtype:
                yield Call("out of the input", info.op, [(args, {**kwargs, "out": args[0]})])


OUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "right": lambda r: torch.zeros_like(r),
    "empty": lambda r: torch.zeros(0, dtype=r.dtype),
    "wrong shape": lambda r: torch.zeros([*r.shape, 2], dtype=r.dtype),
    "strided": lambda r: torch.zeros([*r.shape, 2], dtype=r.dtype)[..., 0],
    "double": lambda r: torch.zeros(r.shape, dtype=torch.float64),
    "integer": lambda r: torch.zeros(r.shape, dtype=torch.int64),
    "bool": lambda r: torch.zeros(r.shape, dtype=torch.bool),
    "repeated memory": lambda r: torch.zeros((), dtype=r.dtype).expand(r.shape),
    "leaf": lambda r: torch.zeros(r.shape).requires_grad_(),
}


def _errors(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    if info.error_inputs_func is None or dtype is not torch.float32:
        return
    for error in info.error_inputs("cpu"):
        yield Call("error", info.op, [_given(error.sample_input)])


def _fused(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    if not (dtype.is_floating_point or dtype.is_complex):
        return

    def before(x: Any) -> Any:
        return x * 2 if isinstance(x, torch.Tensor) else x

    def after(y: Any) -> Any:
        floats = [t for t in tensors_in(y) if t.dtype.is_floating_point or t.dtype.is_complex]
        return [t + 1 for t in tensors_in(y)], [((t + 1) * t).sum(-1) for t in floats]

    def fused(x: Any, *args: Any, **kwargs: Any) -> Any:
        return after(info.op(before(x), *args, **kwargs))

    trains = dtype in info.supported_backward_dtypes("cpu")
    for sample in _spread(info.sample_inputs("cpu", dtype, requires_grad=trains), limit):
        yield Call("fused", fused, [_given(sample)], order=int(trains))


def _autocast(info: Any, dtype: torch.dtype, limit: int) -> Iterator[Call]:
    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return info.op(*args, **kwargs)

    trains = dtype in info.supported_backward_dtypes("cpu")
    for sample in _spread(info.sample_inputs("cpu", dtype, requires_grad=trains), limit):
        yield Call("autocast", cast, [_given(sample)], order=int(trains))


FORMS = {
    "gradient": _gradient,
    "second": _second,
    "dynamic": _dynamic,
    "inplace": _inplace,
    "out": _out,
    "errors": _errors,
    "fused": _fused,
    "autocast": _autocast,
}


def _grads(results: list[torch.Tensor], inputs: list[torch.Tensor], order: int) -> list[Any]:
    found: list[Any] = []
    leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
    for step in range(order):
        results = [t for t in results if t is not None and t.requires_grad]
        if not results or not leaves:
            break
        generator = torch.Generator().manual_seed(1 + step)
        tangents = [torch.randn(t.shape, generator=generator).to(t.dtype) for t in results]
        results = list(
            torch.autograd.grad(
                results, leaves, tangents, allow_unused=True, create_graph=step + 1 < order
            )
        )
        found += results
    return found


def _facts(tensors: list[torch.Tensor]) -> list[Any]:
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    facts = []
    for k, t in enumerate(tensors):
        same = objects.setdefault(id(t), k)
        if t.layout is not torch.strided:
            facts.append((same, t.dtype, tuple(t.shape), t.layout, t.requires_grad))
            continue
        memory = storages.setdefault(t.untyped_storage()._cdata, len(storages))
        strides = tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()
        grad = type(t.grad_fn).__name__ if t.grad_fn is None else "function"
        facts.append((same, type(t), t.dtype, tuple(t.shape), strides, memory, t.storage_offset(),
                      t.requires_grad, grad, t.is_conj(), t.is_neg()))  # fmt: skip
    return facts


def outcome(call: Call, function: Callable[..., Any], given: Any) -> dict[str, Any]:
    """Everything a call shows, by what is compared."""
    args, kwargs = copied(given)
    inputs = tensors_in((args, kwargs))
    torch.manual_seed(0)
    shown: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            text = str(error).partition("\n")[0].partition(" [torch")[0]
            shown["exception"] = type(error).__name__, text
            shown["values"] = [t.detach().clone() for t in inputs]
            return shown
    shown["draws"] = torch.rand(1).item()
    if call.repeat:
        texts = {str(w.message).partition("\n")[0] for w in told if w.category is UserWarning}
        shown["warnings"] = {text.partition(" (Triggered")[0] for text in texts}
    leaves = pytree.tree_leaves(result)
    shown["others"] = [repr(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    shown["facts"] = _facts([*inputs, *tensors])
    shown["values"] = [t.detach().clone() for t in (*tensors, *inputs)]
    try:
        shown["gradients"] = _grads(tensors, inputs, call.order)
    except Exception as error:
        shown["exception of the gradient"] = type(error).__name__, str(error).partition("\n")[0]
    return shown


def _same(ours: Any, theirs: Any, exact: bool) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape or ours.layout != theirs.layout:
        return False
    if ours.layout is not torch.strided:
        ours, theirs = ours.to_dense(), theirs.to_dense()
    if ours.is_quantized:
        ours, theirs = ours.dequantize(), theirs.dequantize()
    if ours.dtype in (torch.complex32,):
        ours, theirs = ours.to(torch.complex64), theirs.to(torch.complex64)
    if exact or not (ours.dtype.is_floating_point or ours.dtype.is_complex):
        return bool(torch.equal(ours, theirs))
    if ours.numel() == 0:
        return True
    rtol, atol = TOLERANCES.get(theirs.dtype, (2e-4, 2e-5))
    return torch.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def difference(ours: dict[str, Any], theirs: dict[str, Any], values: bool = True) -> str | None:
    """The first difference between two outcomes."""
    for key in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(key), theirs.get(key)
        if key in ("values", "gradients") and a is not None and b is not None:
            if not values:
                continue
            for k, (one, other) in enumerate(zip(a, b)):
                if not _same(one, other, False):
                    return f"{key} {k}: eager {str(other)[:400]} compiled {str(one)[:400]}"
        elif key == "facts" and a is not None and b is not None:
            for k, (one, other) in enumerate(zip(a, b)):
                if one != other:
                    return f"facts {k}: eager {other} compiled {one}"
        elif key == "warnings" and a is not None and b is not None and b <= a:
            continue
        elif a != b and (key.startswith("exception") or (a is not None and b is not None)):
            return f"{key}: eager {b} compiled {str(a)[:400]}"
    return None


def mismatch(call: Call, backend: str, values: bool) -> str | None:
    """Where eager and compiled differ."""
    dynamo.reset()
    compiled = dynamo.compile(call.function, backend=backend, dynamic=call.dynamic)
    for k, given in enumerate(call.given):
        theirs = outcome(call, call.function, given)
        again = outcome(call, call.function, given)
        if difference(again, theirs, values):
            return None  # eager is not deterministic here
        ours = outcome(call, compiled, given)
        told = difference(ours, theirs, values)
        if told:
            return f"call {k}: {told}"
    return None


def run_operator(name: str, options: argparse.Namespace) -> None:
    info = operators()[name]
    values = not info.name.startswith(UNDEFINED)
    for text in options.dtypes.split(","):
        dtype = getattr(torch, text)
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for form in options.forms.split(","):
            try:
                torch.manual_seed(0)
                calls = list(FORMS[form](info, dtype, options.samples))
            except Exception as error:
                print(f"!! {name} {form} {text}: no samples: {str(error)[:100]!r}")
                continue
            seen = set()
            for call in calls:
                if call.label in seen:
                    continue
                try:
                    told = mismatch(call, options.backend, values)
                except Exception as error:
                    told = f"sweep: {type(error).__name__}: {str(error)[:300]}"
                print(f"++ {call.label}", flush=True)
                if told:
                    seen.add(call.label)
                    shapes = [tuple(t.shape) for t in tensors_in(call.given[0])]
                    told = told.replace("\n", " ")
                    print(f"-- {name} | {call.label} {text} {shapes} | {told}", flush=True)


def child(names: list[str], options: argparse.Namespace, pipe: int) -> None:
    os.dup2(pipe, 1)
    torch.set_warn_always(True)
    for name in names:
        print(f"== {name}", flush=True)
        run_operator(name, options)
    print("== end", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.operators", description=__doc__)
    parser.add_argument("--forms", default="gradient,fused,inplace,out,errors,dynamic")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--only", default="", help="operators whose name holds this text")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--backend", default="inductor")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [n for n in operators() if options.only in n and not n.startswith("jiterator")]
    calls = wrong = 0
    while names:
        group, names = names[:GROUP], names[GROUP:]
        reads, writes = os.pipe()
        sys.stdout.flush()
        process = os.fork()
        if not process:
            os.close(reads)
            child(group, options, writes)
            os._exit(0)
        os.close(writes)
        current, rest = group[0], b""
        while True:
            ready, _, _ = select.select([reads], [], [], SECONDS)
            piece = os.read(reads, 1 << 16) if ready else b""
            if not piece:
                if not ready:
                    os.kill(process, signal.SIGKILL)
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in (one.decode() for one in lines):
                if line.startswith("== "):
                    current = line[3:]
                elif line.startswith("++ "):
                    calls += 1
                else:
                    wrong += line.startswith("-- ")
                    print(line, flush=True)
        os.close(reads)
        _, status = os.waitpid(process, 0)
        if current != "end":
            wrong += 1
            print(f"-- {current} | ended its process ({status})", flush=True)
            names = group[group.index(current) + 1 :] + names
    print(f"{calls} calls, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
