"""Training steps: eager, torch.compile and framegraph side by side, as ratios.

    python -m benchmarks.training                  # every subject
    python -m benchmarks.training resnet18 gpt2    # some

A step is forward, mean of squares, backward; parameters are not updated, so that each step is the
same. Dropout is on: all three draw the same numbers, torch.compile by its option fallback_random,
since a step that draws others cannot be checked. How the figures come about is told in
benchmarks/inference.py; peak memory is counted from a state that holds the gradients of the step
before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.inference import PEER, arena_bytes, interleaved, main, peak_growth
from benchmarks.inference import compiler as compiler_of

SUBJECTS = ["mlp", "chain", "lstm", "gru", "resnet18", "mobilenet_v2", "bert", "gpt2", "vit"]


def compiler(system: str) -> Callable[..., Any]:
    found = compiler_of(system)
    if system != PEER:
        return found
    return lambda fn: found(fn, options={"fallback_random": True})


def check(actual: list[Any], expected: list[Any], exact: list[Any] | None = None) -> None:
    """All gradients as one vector, close to eager's: small batches' norms amplify rounding so much
    that eager's own float32 gradients of a MobileNetV2 are 0.7% from those of float64. Where eager
    has none, zeros will do, which torch.compile gives. `exact`: gradients of wider numbers, which
    those of narrow ones are compared with; eager's are as far from them, or nearly.
    """
    limit = 0.02 if exact is None else 1.25 * _distance(expected, exact) + 0.02
    distance = _distance(actual, expected if exact is None else exact)
    assert distance < limit, f"the gradients are {distance:.1%} off, of at most {limit:.1%}"


def _distance(actual: list[Any], expected: list[Any]) -> float:
    import torch

    pairs = [(a, e) for a, e in zip(actual, expected, strict=True) if e is not None]
    assert all(a is not None for a, _ in pairs), "a gradient is missing"
    ours, theirs = (torch.cat([g.flatten().float() for g in grads]) for grads in zip(*pairs))
    return ((ours - theirs).norm() / theirs.norm()).item()


def watch(fn: Any, inputs: dict[str, Any]) -> list[Any]:
    """The tensors whose gradients a step computes: parameters in training mode, else the inputs."""
    import torch

    if isinstance(fn, torch.nn.Module):
        fn.train()
        return list(fn.parameters())
    return [x.requires_grad_() for x in inputs.values()]


def step(call: Any, inputs: dict[str, Any], watched: list[Any]) -> list[Any]:
    """Forward, mean of squares and backward; the gradients, None where there is none."""
    import torch

    for tensor in watched:
        tensor.grad = None
    torch.manual_seed(0)
    output = call(**inputs)
    output = getattr(output, "last_hidden_state", output)
    output.square().mean().backward()
    return [tensor.grad for tensor in watched]


def child(system: str, subject: str, budget_s: float) -> dict[str, float]:
    """Measure one subject under one compiler in this process."""
    import torch

    from benchmarks import subjects

    torch.manual_seed(0)
    fn, inputs = subjects.SUBJECTS[subject]()
    watched = watch(fn, inputs)
    result: dict[str, float] = {}
    expected = step(fn, inputs, watched)
    result["eager_peak"] = peak_growth(lambda: step(fn, inputs, watched))
    start = time.perf_counter()
    compiled = compiler(system)(fn)
    actual = step(compiled, inputs, watched)
    result["compile"] = time.perf_counter() - start
    check(actual, expected)
    for _ in range(3):
        step(compiled, inputs, watched)
    result["peak"] = peak_growth(lambda: step(compiled, inputs, watched), arena_bytes(system))
    result["eager_call"], result["call"] = interleaved(
        lambda: step(fn, inputs, watched), lambda: step(compiled, inputs, watched), budget_s
    )
    return result


if __name__ == "__main__":
    main(child, "benchmarks.training", SUBJECTS)
