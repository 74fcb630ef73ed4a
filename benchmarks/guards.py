"""What a check of the guard tree costs: single guards, and a deep residual MLP.

    python benchmarks/guards.py [blocks]

Prints a table; times are medians of repeated runs, per check.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from tabulate import tabulate

from dynamo.guards.kinds import GuardSet, GuardTree
from dynamo.guards.shape_payload import ShapePayload
from dynamo.guards.sources import (
    DictItemSource,
    GlobalSource,
    InstanceDictSource,
    LocalSource,
    Source,
    TensorSizeSource,
    TensorStrideSource,
)
from fxgraph.symbols import ShapeEnv

X, SELF = LocalSource("x", 0), LocalSource("self", 1)
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.act = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.linear(x))


def attribute(source: Source, name: str) -> Source:
    return DictItemSource(InstanceDictSource(source), name)


def guard_module(guards: GuardSet, source: Source, module: torch.nn.Module) -> None:
    """What a capture of module(x) assumes: class, forward, flags, hooks, parameters, submodules."""
    guards.add(source, "type", type(module))
    guards.add(source, "type_attr", ("forward", type(module).forward))
    guards.add(source, "no_instance_attr", "forward")
    guards.add(attribute(source, "training"), "constant", module.training)
    for name in HOOKS:
        guards.add(attribute(source, name), "length", 0)
    parameters = attribute(source, "_parameters")
    for name, parameter in module._parameters.items():
        guards.add(DictItemSource(parameters, name), "static_tensor", parameter)
    guards.add(attribute(source, "_modules"), "dict_keys", list(module._modules))
    for name, child in module._modules.items():
        guard_module(guards, DictItemSource(attribute(source, "_modules"), name), child)


def per_check(check: Callable[[], bool], n: int, repeats: int = 15) -> float:
    """Median nanoseconds of one check."""
    assert check()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        for _ in range(n):
            check()
        times.append((time.perf_counter_ns() - begin) / n)
    return statistics.median(times)


def measure(tree: GuardTree, local_values: tuple, n: int) -> float:
    names = {"flag": 1}
    return per_check(lambda: tree.check(local_values, names, None, None), n)


def single_guards() -> list[list[object]]:
    x = torch.randn(4, 3)
    empty = measure(GuardSet().build(), (x,), 20000)
    rows: list[list[object]] = [["no guard (the call from Python)", empty]]
    cases = {
        "tensor": [(X, "tensor", x)],
        "10 tensors": [(LocalSource(f"x{i}", i), "tensor", x) for i in range(10)],
        "static_tensor": [(X, "static_tensor", x)],
        "type": [(X, "type", torch.Tensor)],
        "global constant": [(GlobalSource("flag"), "constant", 1)],
        "globals (grad mode, autocast, ...)": [(None, "globals", None)],
    }
    for label, guards in cases.items():
        guard_set = GuardSet()
        for guard in guards:
            guard_set.add(*guard)
        rows.append([label, measure(guard_set.build(), (x,) * 10, 20000) - empty])
    rows.append(["tensor of two symbolic sizes", measure(symbolic(x).build(), (x,), 20000) - empty])
    return rows


def symbolic(x: torch.Tensor) -> GuardSet:
    """A tensor whose sizes are symbols: their ranges, a stride, and two conditions of the code."""
    env = ShapeEnv()
    read: list[tuple[Any, Source]] = []
    for dim, size in enumerate(x.shape):
        where = TensorSizeSource(X, dim)
        read.append((env.new_symbol(size, f"x.size({dim})", source=where), where))
    rows, columns = (value for value, _ in read)
    read.append((columns, TensorStrideSource(X, 0)))
    env.evaluate((rows // 2 <= columns).node.expr)
    env.evaluate((rows * columns < 100).node.expr)
    guards = GuardSet()
    guards.add(X, "tensor", (x, [None, None], [None, 1]))
    guards.add(None, "shapes", ShapePayload(SimpleNamespace(env=env, read=read)))  # type: ignore[arg-type]
    return guards


def deep_mlp(blocks: int) -> list[list[object]]:
    model = torch.nn.Sequential(*[Block(8) for _ in range(blocks)])
    guards = GuardSet()
    begin = time.perf_counter()
    guards.add(None, "globals", None)
    x = torch.randn(2, 8)
    guards.add(X, "tensor", x)
    guard_module(guards, SELF, model)
    tree = guards.build()
    build_us = (time.perf_counter() - begin) * 1e6
    rows: list[list[object]] = [[f"{len(guards)} guards, collected and built", build_us]]
    rows.append(["check, unchanged containers skipped", measure(tree, (x, model), 500) / 1e3])
    tree.skips_unchanged = False
    rows.append(["check, every container walked", measure(tree, (x, model), 100) / 1e3])
    tree.skips_unchanged = True

    def change_and_check() -> bool:
        model[0].linear.training = not model[0].linear.training
        model[0].linear.training = not model[0].linear.training
        return tree.check((x, model), {}, None, None)

    fresh = guards.build()
    fresh.check((x, model), {}, None, None)
    rows.append(["first check after 1000 others", measure(fresh, (x, model), 1000) / 1e3])
    rows.append(["check after a change of one module", per_check(change_and_check, 50) / 1e3])
    return rows


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 80
    print(tabulate(single_guards(), headers=["guard", "ns"], floatfmt=".0f"))
    print()
    rows = deep_mlp(blocks)
    print(tabulate(rows, headers=[f"residual MLP, {blocks} blocks", "us"], floatfmt=".1f"))


if __name__ == "__main__":
    main()
