"""What the Triton kernels of plans need of a GPU: registers, shared memory, bytes that spill.
Compiled, never run.

    python -m benchmarks.device_kernels                          # twelve models, torch's operators
    python -m benchmarks.device_kernels bert vit --training --dtype bfloat16 --targets sm_90
    python -m benchmarks.device_kernels operators --part 0/8     # an eighth of the table

"operators" is a sample of each operator of torch's table, with its gradients where it has any.
Equal kernels count once. "angles" are bytes of kernels of sine and cosine, which Triton before 3.9
reduces in an array of 28 bytes. What does not compile, and what spills, is named below the table.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from tabulate import tabulate

from benchmarks import device_plan
from benchmarks.subjects import SUBJECTS
from inductor.pipeline import Compilation
from inductor.runtime.cubin import Cubin, KernelError, compile_kernels
from inductor.runtime.plan import TritonSpec

MODELS = (
    "chain", "mlp", "bert", "gpt2", "llama", "vit", "t5_encoder", "densenet121", "resnet50_one",
    "mobilenet_v2", "convnext", "swin",
)  # fmt: skip
HEADS = (
    "subject", "target", "kernels", "registers", "most", "spilling", "bytes", "angles", "shared",
)  # fmt: skip


Plans = Iterator[tuple[str, Compilation]]  # of what, and the plan


def model_plans(name: str, target: str, given: argparse.Namespace) -> Plans:
    fn, inputs = SUBJECTS[name]()
    if given.training and isinstance(fn, torch.nn.Module):
        fn.train()
    dtype = None if given.dtype == "float32" else getattr(torch, given.dtype)
    for gm, example in device_plan.captured(fn, inputs, training=given.training):
        for c in device_plan.plans(gm, example, dtype, given.training, target=target):
            yield name, c


def operator_plans(target: str, given: argparse.Namespace) -> Plans:
    """Of the first sample of each operator; of operators that have gradients, forward and
    backward. What eager refuses, or has no such graph, is left out."""
    from tests.dynamo.torch_ops import operators
    from tests.inductor.test_operators import LEFT_OUT

    part, parts = map(int, given.part.split("/"))
    dtype = getattr(torch, given.dtype)
    for op in list(operators().values())[part::parts]:
        if op.name in LEFT_OUT or op.name.startswith("jiterator"):
            continue
        if not op.supports_dtype(dtype, "cpu"):
            continue
        training = dtype in op.backward_dtypes and op.supports_autograd
        for sample in list(op.sample_inputs("cpu", dtype, requires_grad=training))[:1]:
            inputs = {f"x{k}": value for k, value in enumerate((sample.input, *sample.args))}

            def call(op: Any = op, kwargs: Any = sample.kwargs, **args: Any) -> Any:
                return op.op(*args.values(), **kwargs)

            try:
                graphs = device_plan.captured(call, inputs, training=training)
            except (RuntimeError, TypeError, ValueError):
                continue
            for gm, example in graphs:
                for c in _planned(gm, example, training, target):
                    yield op.name, c


def _planned(gm: Any, example: Any, training: bool, target: str) -> list[Compilation]:
    for differentiated in {training: None, False: None}:
        try:
            return device_plan.plans(gm, example, None, differentiated, target=target)
        except Exception as error:  # of a graph that no plan of a GPU can be made of here
            reason = error
    print(f"no plan: {type(reason).__name__}: {str(reason).partition(chr(10))[0][:100]}")
    return []


def row(name: str, target: str, given: argparse.Namespace) -> tuple[list[Any], list[str]]:
    """What the kernels of a subject need, and lines on those that spill or do not compile."""
    operators = name == "operators"
    plans = operator_plans(target, given) if operators else model_plans(name, target, given)
    kernels: dict[str, TritonSpec] = {}
    origins = {}
    for origin, c in plans:
        assert c.spec is not None
        for kernel in c.spec.triton:
            key = repr((kernel.source, kernel.signature, kernel.constants, kernel.warps))
            if key not in kernels:
                kernels[key], origins[id(kernel)] = kernel, origin
    made, lines = compiled(list(kernels.values()), target)
    registers = sorted(one.registers for _, one in made) or [0]
    spilling = [(kernel, one.spills) for kernel, one in made if one.spills]
    angles = sum(n for kernel, n in spilling if turns(kernel))
    others = [(kernel, n) for kernel, n in spilling if not turns(kernel)]
    lines += [f"{origins[id(k)]}: {k.name} spills {n} bytes for {target}" for k, n in others]
    shared = max((one.shared for _, one in made), default=0)
    nbytes = sum(n for _, n in others)
    counts = [registers[len(registers) // 2], registers[-1], len(others), nbytes, angles, shared]
    return [name, target, len(made), *counts], lines


def turns(kernel: TritonSpec) -> bool:
    """Whether a kernel computes a sine or a cosine."""
    return any(f"{function}(" in kernel.source for function in ("sin", "cos", "tan"))


def compiled(
    kernels: list[TritonSpec], target: str
) -> tuple[list[tuple[TritonSpec, Cubin]], list[str]]:
    """The kernels that compile, and lines on the others."""
    lines: list[str] = []
    while True:
        try:
            made = compile_kernels(kernels, target)
            return list(zip(kernels, made, strict=True)), lines
        except KernelError as error:
            lines.append(str(error).partition("\n")[0])
            kernels = [kernel for kernel in kernels if kernel is not error.kernel]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    subjects = [*SUBJECTS, "operators"]
    parser.add_argument("subjects", nargs="*", choices=[*subjects, []], metavar="SUBJECT")
    parser.add_argument("--targets", nargs="+", default=["sm_80", "sm_90", "sm_100"])
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--training", action="store_true", help="models' backward, too")
    parser.add_argument("--part", default="0/1", help="of the operators")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    found, lines = [], []
    for name in given.subjects or [*MODELS, "operators"]:
        for target in given.targets:
            one, more = row(name, target, given)
            found.append(one)
            lines += more
    print(tabulate(found, HEADS))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
