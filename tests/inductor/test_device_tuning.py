"""Choices between kernels for a GPU: by the cost model, and as a clock tells that is made up."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from fxgraph import symbolic_trace
from inductor import devices, pipeline
from inductor.codegen import triton_products as template
from inductor.codegen.triton import TritonModule
from inductor.device_tuning import Tuner
from inductor.devices import DEVICES, device_model
from inductor.pipeline import new_compilation, run_stages
from inductor.plan_steps import build_plan
from inductor.runtime import _plan, cache, cubin

f32, bf16 = torch.float32, torch.bfloat16


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """CPU tensors are lowered as those of a GPU; nothing is remembered."""
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(devices, "is_gpu", lambda device: True)
    return cache.store()


class Clock:
    """A device that runs nothing. seconds: of a call, by the names of what it launches."""

    def __init__(self, seconds) -> None:
        self.seconds = seconds
        self.timed: list[tuple] = []
        self.launched: list = []

    def compiled(self, kernels):
        self.known = {kernel.source for kernel in kernels}

    def load(self, kernels):
        assert all(kernel.source in self.known for kernel in kernels)
        return {kernel.name: SimpleNamespace(code=Code(self, kernel)) for kernel in kernels}

    def time(self, call):
        self.launched = []
        call()
        self.timed.append(tuple(kernel.constants.get("XBLOCK") for kernel in self.launched))
        return self.seconds(self.launched)


class Code:
    def __init__(self, clock, kernel) -> None:
        self.clock, self.kernel = clock, kernel

    def launch(self, programs, arguments) -> None:
        assert programs > 0 and all(isinstance(a, int) and a for a in arguments)
        self.clock.launched.append(self.kernel)


def planned(fn, *inputs, clock=None, kind="made up"):
    with torch.no_grad():
        c = run_stages(
            new_compilation(symbolic_trace(fn), inputs, {"tuning": "off"}), until="schedule"
        )
    tuner = Tuner(clock, kind) if clock is not None else None
    triton = TritonModule(c.program, everywhere=True, device=DEVICES["h100"], tuner=tuner)
    _, spec = build_plan(c.program, c.items, triton)
    return spec


def linear(x, w, b):
    return (F.relu(F.linear(x, w, b)),)


def operands(rows, inner, columns, dtype=bf16):
    return [torch.randn(size).to(dtype) for size in ((rows, inner), (columns, inner), (columns,))]


def test_the_fastest_form_of_a_kernel_is_taken_and_remembered(gpu):
    x = torch.randn(64, 1000)
    plain = planned(lambda x: (torch.softmax(x, -1),), x).triton[0]

    def seconds(launched):
        return 1.0 if launched[0].warps == 2 else 2.0

    clock = Clock(seconds)
    chosen = planned(lambda x: (torch.softmax(x, -1),), x, clock=clock).triton[0]
    assert plain.warps == 4 and chosen.warps == 2 and len(clock.timed) > 2
    again = Clock(None)
    assert planned(lambda x: (torch.softmax(x, -1),), x, clock=again).triton[0] == chosen
    assert not again.timed
    other = Clock(lambda launched: 1.0)  # another kind of device knows nothing of it
    assert planned(lambda x: (torch.softmax(x, -1),), x, clock=other, kind="b").triton[0] == plain
    assert other.timed


def way_of(kernel):
    text = kernel.source
    special = "specialized" if "warp_specialize" in text else "described"
    return special if "descriptor" in text else "shares" if "share = " in text else "plain"


@pytest.mark.parametrize("way", ["shares", "described", "specialized"])
def test_other_ways_of_products_are_chosen_by_measuring_alone(gpu, way):
    given = operands(1024, 1024, 2560)
    plain = planned(linear, *given)
    assert {way_of(kernel) for kernel in plain.triton} == {"plain"}

    def seconds(launched):
        assert len(launched) == 1 + (way_of(launched[0]) == "shares")
        return 1.0 if way_of(launched[0]) == way else 2.0

    clock = Clock(seconds)
    spec = planned(linear, *given, clock=clock)
    assert way_of(spec.triton[0]) == way
    names = {buffer.name for buffer in spec.buffers}
    assert names == {"buf1", *(("k0_parts",) if way == "shares" else ("k0_scratch",))}, names
    again = planned(linear, *given, clock=Clock(None))
    assert again.triton == spec.triton


@pytest.mark.parametrize("stage", ["compile", "launch"])
def test_a_form_that_a_device_refuses_is_left_out(gpu, stage):
    class Refusing(Clock):
        def compiled(self, kernels):
            super().compiled(kernels)
            self.load(kernels)

        def load(self, kernels):
            for kernel in kernels:
                if "descriptor" in kernel.source and stage == "compile":
                    raise cubin.KernelError(kernel, "sm_90", "made up")
            return super().load(kernels)

        def time(self, call):
            seconds = super().time(call)
            if "descriptor" in self.launched[0].source:
                raise _plan.DeviceError("too many registers for a program")
            return seconds

    clock = Refusing(lambda launched: 1.0 if way_of(launched[0]) == "shares" else 2.0)
    spec = planned(linear, *operands(1024, 1024, 2560), clock=clock)
    assert [kernel.name for kernel in spec.triton] == ["k0", "k0_sums"]
    assert way_of(spec.triton[0]) == "shares"


def test_a_form_that_is_hardly_faster_is_not_taken(gpu):
    x = torch.randn(64, 1000)
    plain = planned(lambda x: (torch.softmax(x, -1),), x).triton[0]
    clock = Clock(lambda launched: 0.99 if launched[0].warps == 2 else 1.0)
    assert planned(lambda x: (torch.softmax(x, -1),), x, clock=clock).triton[0] == plain


@pytest.mark.parametrize(("of_template", "kinds"), [(1.0, ["launch"]), (3.0, ["aten", "launch"])])
def test_a_product_is_measured_against_the_library_and_what_follows(gpu, of_template, kinds):
    def seconds(launched):
        return of_template if "fg.dot" in launched[0].source else 2.0

    spec = planned(linear, *operands(32, 64, 48), clock=Clock(seconds))
    assert [step.kind for step in spec.steps if step.kind != "view"] == kinds


def test_what_cannot_be_measured_is_chosen_by_the_model(gpu):
    def seconds(launched):
        raise torch.OutOfMemoryError("no memory")

    x = torch.randn(64, 1000)
    plain = planned(lambda x: (torch.softmax(x, -1),), x).triton[0]
    assert planned(lambda x: (torch.softmax(x, -1),), x, clock=Clock(seconds)).triton[0] == plain


def test_indices_that_kernels_load_are_in_bounds(gpu):
    """They run on zeros."""
    index = torch.randint(5, (40,))
    clock = Clock(lambda launched: 1.0)
    planned(lambda t, i: (F.embedding(i, t).relu(),), torch.randn(5, 300), index, clock=clock)
    assert clock.timed


def test_the_model_of_products():
    for device in DEVICES.values():
        large, small = (4096, 4096, 4096), (64, 256, 64)
        for rows, inner, columns in (large, small):
            size = (1, rows, inner, columns)
            ways = template.configurations(size, bf16, "ieee", device)
            assert all(tiles.shared(2) <= device.shared for tiles in ways)
            own = template.best_seconds(size, bf16, "ieee", device)
            library = template.library_seconds(size, bf16, "ieee", device)
            peak = 2 * rows * inner * columns / device.tensor["bfloat16"]
            assert peak < library <= own
        if not device.products:
            continue
        tall = template.configurations((1, *large), bf16, "ieee", device)[0]
        flat = template.configurations((1, 8, 4096, 4096), bf16, "ieee", device)[0]
        assert tall.rows * tall.columns >= 64 * 128 and flat.rows == 16


def test_a_long_sum_of_few_tiles_is_split_where_others_join_it(gpu):
    spec = planned(linear, *operands(16, 8192, 64))
    assert [step.kind for step in spec.steps] == ["launch", "launch"]
    spec = planned(linear, *operands(512, 512, 512))
    assert [step.kind for step in spec.steps] == ["launch"]


@pytest.mark.parametrize("way", ["shares", "plain"])
def test_a_long_sum_is_split_as_measured(gpu, monkeypatch, way):
    everywhere = functools.partial(TritonModule, everywhere=True)
    clock = Clock(lambda launched: 1.0 if way_of(launched[0]) == way else 2.0)
    monkeypatch.setattr(pipeline, "TritonModule", everywhere)
    monkeypatch.setattr(pipeline, "_tuned", lambda c: clock)  # where the processor measures nothing
    c = new_compilation(symbolic_trace(linear), operands(16, 8192, 64), {"tuning": "off"})
    with torch.no_grad():
        run_stages(c, until="codegen")
    assert [kernel.name for kernel in c.spec.triton] == ["k0", "k0_sums"][: 1 + (way == "shares")]
    assert way_of(c.spec.triton[0]) == way and clock.timed


def test_models_of_devices(monkeypatch):
    """By name or capability, with the multiprocessors and the shared memory of the one at hand."""
    for target, kind in (("75", "t4"), ("80", "a100"), ("90", "h100"), ("100", "b200")):
        assert device_model(target=f"sm_{target}").kind == kind
    assert device_model(target="sm_120").shared < device_model(target="sm_100").shared
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, capability, units, shared, kind in (
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, 232448, "h100"),
        ("NVIDIA H100 PCIe", (9, 0), 114, 232448, "h100"),
        ("NVIDIA H200", (9, 0), 132, 232448, "h200"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912, "a100"),
        ("NVIDIA L4", (8, 9), 58, 101376, "l4"),
        ("NVIDIA GeForce RTX 4090", (8, 9), 128, 101376, "4090"),
        ("NVIDIA GeForce RTX 5070", (12, 0), 48, 101376, "5090"),
        ("Tesla T4", (7, 5), 40, 65536, "t4"),
    ):
        about = SimpleNamespace(
            name=name, major=capability[0], minor=capability[1], multi_processor_count=units,
            shared_memory_per_block_optin=shared,
        )  # fmt: skip
        devices._at_hand.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number, name=name: name)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number, it=about: it)
        found = device_model()
        assert (found.kind, found.units, found.shared) == (kind, units, shared)
        assert devices.kind_of(0) == name
        per_unit = devices.DEVICES[kind].vector / devices.DEVICES[kind].units
        assert found.vector == pytest.approx(per_unit * units)
    devices._at_hand.cache_clear()
