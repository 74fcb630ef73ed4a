"""What a plan would cost on a GPU, by bytes, operations and launches: predicted, not measured.

    python -m benchmarks.roofline resnet18 --device h200
    python -m benchmarks.roofline bert gpt2 --device a100 --dtype bfloat16 --kernels
    python -m benchmarks.roofline densenet121 --device a10g --batch 16 --training

A kernel takes the longer of moving its bytes and computing its operations, at the shares of the
device's peaks below, and at least the time of an empty one. The host launches kernels while the
device computes; whichever of the two takes longer is the time of a call.

eager      one kernel for each operator of the captured graph, launched by torch
unfused    one kernel for each operator, launched by the plan (options={"fusion": False})
plan       ours
graph      ours, replayed by a device graph (mode="reduce-overhead")

What kernels need of a device, benchmarks.device_kernels tells.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tabulate import tabulate
from torch.utils.flop_counter import flop_registry

from benchmarks import device_plan
from benchmarks.gpu_subjects import EVERY
from benchmarks.profile import label_flops
from fxgraph.sizes import hint
from inductor.devices import DEVICES, Device
from inductor.runtime.plan import PlanSpec, TensorSpec, storage_bytes

# Seconds that the library takes for an operator however little there is to do, measured on an H200
# (benchmarks/RESULTS.md), as is the host's time for an operator in eager; the rest are assumptions.
LEAST = {"convolution": 8e-6, "convolution_backward": 24e-6, "addmm": 5e-6, "mm": 5e-6, "bmm": 5e-6}
# Seconds of the host.
HOST = {"eager": 19e-6, "unfused": 2e-6, "plan": 2e-6, "graph": 0.3e-6}  # to launch a kernel
LIBRARY = 6e-6  # to launch an operator of aten from a plan
CALL = {"eager": 0.0, "unfused": 10e-6, "plan": 10e-6, "graph": 15e-6}  # to begin a call


@dataclass
class Work:
    """What one kernel does."""

    name: str
    bytes: int
    flops: float
    matrix: bool = False  # in tensor cores
    library: bool = False  # an operator of aten

    def seconds(self, device: Device, dtype: str) -> float:
        least = LEAST.get(self.name, 0.0) if self.matrix else 0.0
        return max(least, device.seconds(self.bytes, self.flops, dtype if self.matrix else ""))


# --- what kernels do ------------------------------------------------------------------------------


def works_of_plan(c: Any) -> list[Work]:
    """Of each launch and operator of a plan."""
    spec: PlanSpec = c.spec
    nbytes, shapes = _memory(spec)
    found = []
    for step in spec.steps:
        if step.kind == "launch":
            names = dict.fromkeys(step.args)
            size = sum(nbytes[name] for name in names)
            operations = step.label.count("+") + 1
            elements = max((math.prod(shapes[n]) for n in names), default=0)
            products = label_flops(step.label)
            flops = products or float(operations * elements)
            found.append(Work(step.label or step.kernel, size, flops, matrix=products > 0))
        elif step.kind == "aten":
            tensors = [*dict.fromkeys(step.names()), *(n for n in step.produces() if n)]
            target = getattr(torch.ops.aten, step.op.removeprefix("aten::"), None)
            flops = _flops(target, step.args, shapes, step.outputs)
            size = sum(nbytes[name] for name in tensors)
            name = step.op.removeprefix("aten::")
            found.append(Work(name, size, flops, matrix=flops > 0, library=True))
    return found


def _memory(spec: PlanSpec) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Bytes and size of each name."""
    nbytes, shapes, dtypes = {}, {}, {}
    tensors: list[Any] = [t for t in spec.inputs if isinstance(t, TensorSpec)]
    for t in [*tensors, *spec.constants, *spec.derived, *spec.buffers]:
        nbytes[t.name] = hint(storage_bytes(t.dtype, t.size, t.stride))
        shapes[t.name] = tuple(map(hint, t.size))
        dtypes[t.name] = t.dtype
    for step in spec.steps:
        if step.kind == "view":
            dtypes[step.out] = dtypes[step.base]
            nbytes[step.out] = hint(storage_bytes(dtypes[step.base], step.size, step.stride))
            shapes[step.out] = tuple(map(hint, step.size))
    return nbytes, shapes


def _flops(target: Any, args: Sequence[Any], shapes: Any, outputs: Sequence[str]) -> float:
    """Of products, convolutions and attention; others are bound by memory."""
    name = getattr(target, "__name__", "")
    if name.startswith("_scaled_dot_product"):
        q, k = (shapes[arg["buf"]] for arg in args[:2])
        return 4.0 * math.prod(q) * k[-2]
    if name == "convolution_backward":  # as many as forward, for each gradient
        grad, _, weight = (shapes[arg["buf"]] for arg in args[:3])
        return 2.0 * sum(args[-1][:2]) * math.prod(grad) * math.prod(weight[1:])
    count = flop_registry.get(target)
    if count is None:
        return 0.0

    def plain(arg: Any) -> Any:
        if isinstance(arg, dict):
            return shapes[arg["buf"]] if "buf" in arg else None
        return [plain(a) for a in arg] if isinstance(arg, list) else arg

    out = next((shapes[name] for name in outputs if name), None)
    given = [plain(arg) for arg in args]
    raw = getattr(count, "__wrapped__", None)
    if raw is not None and out is not None:
        return float(raw(*given, out_shape=out))
    return 0.0


_VIEWS = ("view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
          "squeeze", "getitem", "as_strided", "alias", "detach", "split", "unbind")  # fmt: skip


# Operators of two passes: over their first tensors for the statistics, then for each element.
_READ_TWICE = {
    "_native_batch_norm_legit_functional": 1,
    "native_batch_norm_backward": 2,
    "native_layer_norm_backward": 2,
    "native_group_norm": 1,
    "native_group_norm_backward": 2,
}


def works_of_eager(c: Any, before: Collection[str] = ()) -> list[Work]:
    """Of each operator of the functional graph, less what eager does not run: views; what a
    backward computes anew, named as in the forward (`before`: its nodes); and copies to what an
    operator in place writes (running statistics), which are the graph's form of it alone.
    """
    found = []
    for node in c.functional.graph_module.graph.nodes:
        opname = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
        if node.op != "call_function" or opname.startswith("_assert") or opname in _VIEWS:
            continue
        if node.name in before or (opname == "copy_" and node.args[0].op == "placeholder"):
            continue
        results = [t for t in _leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]
        given = [n.meta.get("val") for n in node.all_input_nodes]
        tensors = [*(t for v in given for t in _leaves(v) if isinstance(t, torch.Tensor)), *results]
        shapes = {n.name: tuple(n.meta["val"].shape) for n in node.all_input_nodes
                  if isinstance(n.meta.get("val"), torch.Tensor)}  # fmt: skip
        args = [_named(arg, shapes) for arg in node.args]
        if results:
            shapes["out"] = tuple(results[0].shape)
        packet = getattr(node.target, "overloadpacket", None)
        flops = _flops(packet, args, shapes, ["out"] if results else [])
        size = sum(t.numel() * t.itemsize for t in tensors)
        again = [v for v in given[: _READ_TWICE.get(opname, 0)] if isinstance(v, torch.Tensor)]
        size += sum(t.numel() * t.itemsize for t in again)
        most = max((t.numel() for t in results), default=0)
        found.append(Work(opname, size, flops or most, matrix=flops > 0))
        found += _passes_of_bias(node)
    return found


def _passes_of_bias(node: Any) -> list[Work]:
    """Kernels beside cuDNN's of a convolution in eager: the sum with its bias, in a pass over the
    result, and the sum for the gradient of the bias."""
    aten = torch.ops.aten
    if node.target is aten.convolution.default and node.args[2] is not None:
        result = node.meta["val"]
        return [Work("add_", 2 * result.numel() * result.itemsize, float(result.numel()))]
    if node.target is aten.convolution_backward.default and node.args[-1][2]:
        grad = node.args[0].meta["val"]
        return [Work("sum", grad.numel() * grad.itemsize, float(grad.numel()))]
    return []


def _named(arg: Any, shapes: dict[str, Any]) -> Any:
    if isinstance(arg, (list, tuple)):
        return [_named(a, shapes) for a in arg]
    name = getattr(arg, "name", None)
    return {"buf": name} if isinstance(name, str) and name in shapes else arg


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


# --- tables ---------------------------------------------------------------------------------------


def predicted(
    works: list[Work], system: str, device: Device, dtype: str, eager_us: float = 0.0
) -> float:
    """Seconds of a call. eager_us: of the host for an operator in eager, if not as HOST has it."""
    computing = sum(work.seconds(device, dtype) for work in works)
    planned = system in ("unfused", "plan")
    host = HOST | ({"eager": eager_us * 1e-6} if eager_us else {})
    launching = sum(LIBRARY if planned and work.library else host[system] for work in works)
    return max(computing, launching + CALL[system])


def rows(name: str, given: argparse.Namespace) -> list[list[Any]]:
    device = DEVICES[given.device]
    dtype = None if given.dtype == "float32" else getattr(torch, given.dtype)
    works: dict[str, list[Work]] = {"eager": [], "unfused": [], "plan": []}
    fn, inputs = _subject(name, given)
    for gm, example in device_plan.captured(fn, inputs, training=given.training):
        about = (gm, example, dtype, given.training)
        for fused in device_plan.plans(*about):
            works["plan"] += works_of_plan(fused)
        before: set[str] = set()
        for whole in device_plan.plans(*about, whole=True, fusion=False):
            works["eager"] += works_of_eager(whole, before)
            before |= {node.name for node in whole.functional.graph_module.graph.nodes}
        for alone in device_plan.plans(*about, fusion=False):
            works["unfused"] += works_of_plan(alone)
    works["graph"] = works["plan"]
    if given.kernels:
        print(kernel_table(works["plan"], device, given.dtype))
    eager = predicted(works["eager"], "eager", device, given.dtype, given.eager_us)
    found = []
    for system, own in works.items():
        seconds = predicted(own, system, device, given.dtype, given.eager_us)
        found.append(
            [
                name,
                system,
                len(own),
                sum(w.bytes for w in own) / 2**20,
                sum(w.flops for w in own) / 1e9,
                1e6 * sum(w.seconds(device, given.dtype) for w in own),
                1e6 * seconds,
                eager / seconds,
            ]
        )
    return found


def kernel_table(works: list[Work], device: Device, dtype: str) -> str:
    table = [
        [w.name, w.bytes / 2**20, w.flops / 1e9, 1e6 * w.seconds(device, dtype)] for w in works
    ]
    return tabulate(table, ["kernel", "MiB", "Gflop", "us"], floatfmt=".2f") + "\n"


def _subject(name: str, given: argparse.Namespace) -> Any:
    fn, inputs = EVERY[name]()
    if given.training and isinstance(fn, torch.nn.Module):
        fn.train()
    if given.batch:
        inputs = {
            key: torch.cat([value] * given.batch)[: given.batch]
            if isinstance(value, torch.Tensor) else value for key, value in inputs.items()
        }  # fmt: skip
    return fn, inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="+", choices=list(EVERY), metavar="MODEL")
    parser.add_argument("--device", choices=list(DEVICES), default="h200")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--training", action="store_true", help="forward and backward")
    parser.add_argument("--batch", type=int, help="of inputs, in place of the subject's own")
    parser.add_argument("--eager-us", type=float, help="of the host, for an operator in eager")
    parser.add_argument("--kernels", action="store_true", help="also each kernel of the plan")
    given = parser.parse_args()
    torch.manual_seed(0)
    table = [row for name in given.subjects for row in rows(name, given)]
    heads = ["model", "system", "kernels", "MiB", "Gflop", "device us", "call us", "over eager"]
    print(f"predicted for {given.device}, {given.dtype}; nothing was measured")
    print(tabulate(table, heads, floatfmt=".2f"))


if __name__ == "__main__":
    main()
