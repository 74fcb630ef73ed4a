"""The memory plan: lifetimes, placement, reuse, peaks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from inductor.runtime.plan import (
    AtenStep,
    KernelStep,
    LaunchStep,
    OutputSpec,
    PlanSpec,
    TritonSpec,
    ViewStep,
)
from inductor.schedule.memory import (
    ALIGNMENT,
    GPU_ALIGNMENT,
    buffer_bytes,
    lifetimes,
    plan_memory,
)
from tests.inductor.compiling import check
from tests.inductor.plan_kernels import add1, buffer, chain_plan, tensor_input


def kernel(reads, writes, inplace=()):
    return KernelStep("k", [(n, 0) for n in [*reads, *writes]], list(writes), 1, 1, list(inplace))


def aten(op, args, out):
    return AtenStep(f"aten::{op}", "", [{"buf": a} for a in args], [out])


def plan(steps, buffers, outputs):
    return PlanSpec(
        inputs=[tensor_input("x", 64)],
        buffers=buffers,
        steps=steps,
        outputs=[OutputSpec("buffer", name) for name in outputs],
    )


def check_disjoint(spec):
    """No two buffers that live at once overlap, unless one takes the other's place as it dies."""
    memory = plan_memory(spec)
    lives, _ = lifetimes(spec)
    sizes = {b.name: buffer_bytes(b) for b in spec.buffers}
    shared = {pair for s in spec.steps if s.kind == "kernel" for pair in s.inplace}
    places = {name: ("arena", start) for name, start in memory.offsets.items()}
    for name, root in memory.windows.items():
        places[name] = places[root] = (root, 0)
        assert sizes[name] <= sizes[root]
    for a, (space, start) in places.items():
        if space == "arena":
            assert start % ALIGNMENT == 0 and start + sizes[a] <= memory.arena_bytes
        for b, (elsewhere, other) in places.items():
            if space != elsewhere or a == b or not lives[a].overlaps(lives[b]):
                continue
            if (a, b) in shared and lives[b].last == lives[a].first:
                continue
            if (b, a) in shared and lives[a].last == lives[b].first:
                continue
            assert start + sizes[a] <= other or other + sizes[b] <= start, (a, b)
    return memory


def test_memory_of_a_gpu_is_aligned_for_descriptors():
    names = [f"b{k}" for k in range(5)]
    spec = plan(
        [LaunchStep("k0", ["x", *names], names, programs=1)],
        [replace(buffer(name, 3 + 30 * k), device="cuda:0") for k, name in enumerate(names)],
        [],
    )
    spec.triton = [TritonSpec("k0", "", {}, {}, device="cuda:0")]
    offsets = check_disjoint(spec).offsets
    assert offsets.keys() == {*names} and all(n % GPU_ALIGNMENT == 0 for n in offsets.values())


def test_dead_temps_give_their_place():
    spec = chain_plan(8, 64)
    for step in spec.steps:
        step.inplace = []
    assert check_disjoint(spec).arena_bytes == 2 * 256


def test_in_place_needs_one_place():
    assert check_disjoint(chain_plan(8, 64)).arena_bytes == 256


def test_in_place_only_if_the_input_dies():
    buffers = [buffer("a", 64), buffer("b", 64), buffer("c", 64), buffer("o", 64, kind="output")]
    steps = [
        kernel(["x"], ["a"]),
        kernel(["a"], ["b"], [("b", "a")]),
        kernel(["a", "b"], ["o"]),
    ]
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.offsets["a"] != memory.offsets["b"]
    assert "c" not in memory.offsets  # nothing touches it


def test_in_place_only_into_enough_room():
    buffers = [buffer("a", 32), buffer("b", 64), buffer("o", 64, kind="output")]
    steps = [kernel(["x"], ["a"]), kernel(["a"], ["b"], [("b", "a")]), kernel(["b"], ["o"])]
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.offsets["a"] != memory.offsets["b"]


def test_in_place_not_where_a_view_of_the_input_is_read_too():
    buffers = [buffer("a", 64), buffer("b", 64), buffer("o", 64, kind="output")]
    steps = [
        kernel(["x"], ["a"]),
        ViewStep("flipped", "a", (64,), (1,), 1),
        kernel(["a", "flipped"], ["b"], [("b", "a")]),
        kernel(["b"], ["o"]),
    ]
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.offsets["a"] != memory.offsets["b"]


def test_a_view_keeps_its_base_alive():
    buffers = [buffer("a", 64), buffer("b", 64), buffer("o", 64, kind="output")]
    steps = [
        kernel(["x"], ["a"]),
        ViewStep("v", "a", (64,), (1,)),
        ViewStep("w", "v", (64,), (1,)),
        kernel(["x"], ["b"]),
        kernel(["w", "b"], ["o"]),
    ]
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.offsets["a"] != memory.offsets["b"]


def test_an_aliasing_aten_result_keeps_its_argument_alive():
    buffers = [
        buffer("a", 64),
        buffer("v", 64, kind="aten"),
        buffer("b", 64),
        buffer("o", 64, kind="output"),
    ]
    steps = [
        kernel(["x"], ["a"]),
        AtenStep("aten::view", "", [{"buf": "a"}, [64]], ["v"]),
        kernel(["x"], ["b"]),
        kernel(["v", "b"], ["o"]),
    ]
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.offsets["a"] != memory.offsets["b"]
    memory = plan_memory(plan(steps[:2], buffers[:2], ["v"]))
    assert memory.offsets == {} and memory.allocs[0] == ["a"]  # returned through the view


def test_own_tensors_are_made_late_and_dropped_early():
    buffers = [
        buffer("r", 64, kind="aten"),
        buffer("s", 64, kind="output"),
        buffer("o", 64, kind="output"),
    ]
    steps = [
        AtenStep("aten::neg", "", [{"buf": "x"}], ["r"]),
        kernel(["r"], ["s"]),
        kernel(["s"], ["o"]),
    ]
    memory = plan_memory(plan(steps, buffers, ["o"]))
    assert memory.allocs == [[], ["s"], ["o"]]
    assert memory.frees == [["x"], ["r"], ["s"]]
    assert memory.peak_bytes == 2 * 256


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed):
    rng = random.Random(seed)
    buffers, steps, known = [], [], ["x"]
    for i in range(40):
        names = [f"t{i}{part}" for part in "ab"[: rng.randint(1, 2)]]
        reads = rng.sample(known, min(len(known), rng.randint(1, 3)))
        made = rng.random() < 0.3
        for name in names:
            size = rng.choice([1, 16, 64, 300, 1000])
            buffers.append(buffer(name, size, kind="aten" if made else "temp"))
        inplace = [(name, r) for name in names for r in reads if rng.random() < 0.5]
        if made:
            steps += [aten("sin", reads[:1], name) for name in names]
        else:
            steps.append(kernel(reads, names, inplace))
        known = [*known, *names][-rng.randint(3, 12) :]
    buffers.append(buffer("o", 64, kind="output"))
    steps.append(add1(known[-1], "o", 1))
    memory = check_disjoint(plan(steps, buffers, ["o"]))
    assert memory.arena_bytes <= sum(buffer_bytes(b) + ALIGNMENT for b in buffers)


def test_a_temp_takes_over_the_result_of_an_operator():
    buffers = [
        buffer("a", 64, kind="aten"),
        buffer("b", 64),
        buffer("c", 64),
        buffer("o", 64, kind="output"),
    ]
    steps = [
        aten("sin", ["x"], "a"),
        kernel(["a"], ["b"], [("b", "a")]),
        kernel(["b"], ["c"], [("c", "b")]),
        kernel(["c"], ["o"]),
    ]
    memory = plan_memory(plan(steps, buffers, ["o"]))
    assert memory.windows == {"b": "a", "c": "a"} and memory.arena_bytes == 0
    assert memory.frees == [["x"], [], [], ["a"]]
    assert memory.peak_bytes == 2 * 256


@pytest.mark.parametrize("op", ["detach", "sin"])
@pytest.mark.parametrize("reader", ["x", "a"])
def test_no_take_over_of_what_is_read_later_or_may_alias(op, reader):
    buffers = [buffer("a", 64, kind="aten"), buffer("b", 64), buffer("o", 64, kind="output")]
    steps = [
        aten(op, ["x"], "a"),
        kernel(["a"], ["b"], [("b", "a")]),
        kernel(["b", reader], ["o"]),
    ]
    taken = op == "sin" and reader == "x"
    assert plan_memory(plan(steps, buffers, ["o"])).windows == ({"b": "a"} if taken else {})


def test_inputs_are_let_go_after_their_last_use():
    spec = PlanSpec(
        inputs=[tensor_input("x", 64), tensor_input("y", 64), tensor_input("w", 64, static=True)],
        buffers=[buffer("a", 64), buffer("b", 64, kind="output")],
        steps=[
            kernel(["x", "w"], ["a"]),
            ViewStep("v", "y", (64,), (1,)),
            kernel(["a", "v"], ["b"]),
        ],
        outputs=[OutputSpec("buffer", "b")],
    )
    assert plan_memory(spec).frees == [["x"], [], ["y"]]
    spec.outputs.append(OutputSpec("view", "y", (64,), (1,)))
    assert plan_memory(spec).frees == [["x"], [], []]


@pytest.mark.parametrize("view", [lambda y: y, lambda y: y.t()], ids=["as it is", "turned"])
def test_a_narrowed_result_ends_the_life_of_the_wide_one(view):
    """Gradients of reduced precision, say, whose products are in float32: not two at a time."""

    def products(x, a, b, c):
        return tuple(view((x @ w).to(torch.bfloat16)) for w in (a, b, c))

    args = [torch.randn(64, 64) for _ in range(4)]
    c = check(products, *args, aten_ops=["aten.mm"], fallbacks=["mm.default"])
    assert c.spec is not None and plan_memory(c.spec).arena_bytes == 64 * 64 * 4
