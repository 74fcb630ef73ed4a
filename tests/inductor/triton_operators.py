"""torch's table of operators in Triton's interpreter: values and gradients of a sample of each
operator, from Triton kernels for all loops, are compared with eager.

`python -m tests.inductor.interpreting triton_operators [PART PARTS | NAME...]`; each line has the
number of kernels, and whether a sample was compared.
"""

from __future__ import annotations

import warnings
from functools import partial

import torch

import dynamo
from inductor import devices, pipeline, plan_cache
from inductor.codegen.triton import TritonModule
from tests.dynamo.torch_ops import operators
from tests.inductor.test_operators import LEFT_OUT, assert_same, outcome

MOST_ELEMENTS = 4096  # of a sample: each program of a kernel takes milliseconds
modules: list[TritonModule] = []


class Everywhere(TritonModule):
    def __init__(self, program, **chosen) -> None:
        super().__init__(program, everywhere=True, **chosen)
        modules.append(self)


def samples(op):
    given = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for sample in given:
        tensors = [t for t in (sample.input, *sample.args) if isinstance(t, torch.Tensor)]
        if all(t.numel() <= MOST_ELEMENTS for t in tensors):
            yield sample


def kernels() -> int:
    """How many were made since `modules` was cleared."""
    return sum(len(module.kernels) for module in modules)


def everywhere() -> None:
    """Programs on CPU tensors are lowered as on a GPU, each loop to a Triton kernel."""
    warnings.simplefilter("ignore")
    pipeline.TritonModule = Everywhere
    devices.is_gpu = lambda device: True
    torch.backends.cudnn.allow_tf32 = False  # convolutions are as exact as products
    plan_cache.recall = lambda key: None  # of plans with C++ kernels


def run(op):
    modules.clear()
    for sample in samples(op):
        args = sample.input, *sample.args
        try:
            wanted = outcome(op.op, args, sample.kwargs)
        except RuntimeError:
            continue  # a sample that eager refuses
        dynamo.reset()

        def call(*args, **kwargs):  # a frame to capture, which a builtin has not
            return op.op(*args, **kwargs)

        compiled = dynamo.compile(call, options={"tuning": "off"})
        assert_same(outcome(compiled, args, sample.kwargs), wanted)
        return {"compared": True, "kernels": kernels()}
    return {"compared": False, "kernels": 0}


def cases(*arguments: str):
    everywhere()
    table = {
        name: op
        for name, op in operators().items()
        if op.name not in LEFT_OUT
        and not op.name.startswith("jiterator")  # those need a GPU
        and op.supports_dtype(torch.float32, "cpu")
    }
    if len(arguments) == 2 and arguments[0].isdigit():
        part, parts = map(int, arguments)
        arguments = list(table)[part::parts]
    return {name: partial(run, table[name]) for name in arguments or table}
