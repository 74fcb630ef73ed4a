"""What runs on the stand-in, in groups, name -> function. Each compares compiled calls with eager
ones on the same device.

operators   samples of torch's table, with gradients
models      small ones, inference and training, plans and device graphs
cuda        what only programs on CUDA tensors do (cuda_programs.py, graph_programs.py)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import dynamo
from tests.gpu.stand_in import graph_programs, harness
from tests.gpu.stand_in.harness import DEVICE, GRAPHS, Program, same
from tests.inductor.test_operators import LEFT_OUT, outcome, tensors_of

# --- operators ---


def operator(info: Any, dtype: torch.dtype, count: int = 2) -> None:
    given = info.sample_inputs(DEVICE, dtype, requires_grad=info.supports_autograd)
    for sample, _ in zip(given, range(count), strict=False):
        args = sample.input, *sample.args
        if any(t.numel() > 4096 for t in tensors_of(args)):
            continue
        try:
            wanted = outcome(info.op, args, sample.kwargs)
        except (RuntimeError, NotImplementedError):
            continue  # refused, or a kernel that the stand-in lacks

        def call(*args: Any, **kwargs: Any) -> Any:  # a frame to capture
            return info.op(*args, **kwargs)

        dynamo.reset()
        compiled = dynamo.compile(call, options={"tuning": "off"})
        wide = dtype == torch.float32
        same(
            outcome(compiled, args, sample.kwargs), wanted,
            rtol=1e-3 if wide else 5e-2, atol=1e-4 if wide else 5e-2,
        )  # fmt: skip


def operators() -> dict[str, Program]:
    from tests.dynamo.torch_ops import operators as table

    return {
        name: partial(operator, info, torch.float32)
        for name, info in table().items()
        if info.name not in LEFT_OUT
        and not info.name.startswith(("jiterator", "sparse.", "to_sparse"))
        and info.name not in ("native_batch_norm", "_native_batch_norm_legit")  # memory as it was
        and info.name != "ormqr"  # in a graph, of other strides, as torch's shape function tells
        and info.supports_dtype(torch.float32, DEVICE)
    }


# --- models ---


def calls_of(example: dict[str, Any]) -> Iterable[dict]:
    """Inputs elsewhere in each of four calls, as a loop over data has them."""
    for _ in range(4):
        yield {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in example.items()}


def inference(build: Callable[[], Any], dtype: torch.dtype = torch.float32, **options: Any) -> None:
    net, inputs = build_on_device(build, dtype)
    net.eval()
    run = dynamo.compile(net, **options)
    with torch.no_grad():
        wanted = net(**inputs)
        for given in calls_of(inputs):
            same(_first(run(**given)), _first(wanted), rtol=1e-3, atol=1e-3)


def training(build: Callable[[], Any], dtype: torch.dtype = torch.float32, **options: Any) -> None:
    net, inputs = build_on_device(build, dtype)
    net.train()
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    other = copy.deepcopy(net)
    run = dynamo.compile(net, **options)
    for given in calls_of(inputs):
        found = []
        for model, call in ((net, run), (other, other)):
            torch.manual_seed(3)
            result = _first(call(**given))
            result.float().square().mean().backward()
            found.append([result, *(p.grad for p in model.parameters()), *model.buffers()])
        same(*found, rtol=1e-3, atol=1e-3)
        del found, result
        for parameter in (*net.parameters(), *other.parameters()):
            parameter.grad = None


def build_on_device(build: Callable[[], Any], dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    net, inputs = build()

    def moved(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.to(DEVICE, dtype if x.is_floating_point() else x.dtype)

    return net.to(DEVICE, dtype), {name: moved(x) for name, x in inputs.items()}


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else next(iter(result.values()))


def _images(name: str) -> tuple[Any, dict[str, Any]]:
    from tutorials import models

    return getattr(models, name)(), {"x": torch.randn(2, 3, 32, 32)}


def models() -> dict[str, Program]:
    from tests.inductor import triton_models, triton_zoo

    builders: dict[str, Callable[[], Any]] = {
        name: build for name, (build, _) in triton_models.MODELS.items()
    }
    builders |= {
        "attention": _attention,
        **{f"{name}_library": build for name, (build, _) in triton_zoo.MODELS.items()},
    }
    found: dict[str, Program] = {}
    for name, build in builders.items():
        found[f"{name} inference"] = partial(inference, build, **GRAPHS)
        found[f"{name} training"] = partial(training, build)
        found[f"{name} training, graphs"] = partial(training, build, **GRAPHS)
    found["resnet18 inference"] = partial(inference, partial(_images, "resnet18"), **GRAPHS)
    if not harness.compared:  # gradients of norms of few numbers are noise, and interpreters slow
        for name in ("resnet18", "densenet121"):
            found[f"{name} training"] = partial(training, partial(_images, name))
            found[f"{name} inference"] = partial(inference, partial(_images, name), **GRAPHS)
    return found


class Attention(torch.nn.Module):
    """torch's kernels of attention, with dropout in training."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(
            *parts.unbind(0), is_causal=True, dropout_p=0.1 * self.training
        )
        return x + self.out(seen.transpose(1, 2).flatten(2))


def _attention() -> Any:
    return Attention(), {"x": torch.randn(2, 9, 32)}


# They read what kernels have computed: bernoulli, indices.
OF_VALUES = ("dropout_and_random_numbers", "data_sizes", "embeddings")


def cuda() -> dict[str, Program]:
    table = graph_programs.CUDA
    return {name: fn for name, fn in table.items() if harness.compared or name not in OF_VALUES}


GROUPS: dict[str, Callable[[], dict[str, Program]]] = {
    "cuda": cuda,
    "models": models,
    "operators": operators,
}
