"""The driver layer of plans against a stand-in for libcuda.so (stub_libcuda.cpp)."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import shutil
import threading
import weakref
from dataclasses import replace

import pytest
import torch

from fxgraph.sizes import Size, Symbol
from inductor.runtime import _plan
from inductor.runtime.device_graph import DeviceGraphs
from inductor.runtime.driver import Loaded
from inductor.runtime.link import link
from inductor.runtime.plan import (
    AtenStep,
    BufferSpec,
    LaunchStep,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    TritonSpec,
)
from tests.inductor import stub_driver
from tests.inductor.stub_driver import (
    ILLEGAL_ADDRESS,
    LOST,
    OUT_OF_MEMORY,
    SimulatedDevice,
    Stub,
    image,
)
from tests.inductor.test_pipeline import fake_tensor_mode

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return stub_driver.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library):
    return Stub(library)


def load(stub, name="k0", parameters=2, *, shared=0, hidden=2, aligned=True, device=0):
    return stub.driver.load(
        image(parameters + hidden), name, device=device, threads=128, shared=shared, hidden=hidden,
        aligned=aligned,
    )  # fmt: skip


KERNEL = TritonSpec("k0", "", {"arg0": "*fp32", "buf0": "*fp32"}, {})


def doubling(size=8, steps=1):
    """A plan of launches of k0: from its argument to its result."""
    names = ["arg0", *(f"buf{k}" for k in range(steps))]
    return PlanSpec(
        inputs=[TensorSpec("arg0", "float32", (size,), (1,))],
        buffers=[
            BufferSpec(n, "float32", (size,), (1,), kind="output" if n == names[-1] else "temp")
            for n in names[1:]
        ],
        steps=[
            LaunchStep("k0", [a, b], [b], programs=3)
            for a, b in zip(names, names[1:], strict=False)
        ],
        outputs=[OutputSpec("buffer", names[-1])],
        triton=[KERNEL],
    )


def twice(stub):
    """Have the stub's k0 double eight floats."""

    def run(name, programs, arguments):
        x, out = (over(address, 8) for address in arguments[:2])
        torch.mul(x, 2, out=out)

    stub.on_launch(run)


def over(address, count):
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


def test_a_kernel_is_loaded_launched_and_unloaded(stub):
    kernel = load(stub)
    assert (kernel.registers, kernel.spills, kernel.device, kernel.aligned) == (32, 0, 0, True)
    kernel.launch(5, (1 << 40, 16))
    assert stub.live("module") == 1
    assert stub.log() == [
        "load parameters=4",
        "function k0",
        "launch k0 programs=5 threads=128 shared=0 stream=7 arguments=1099511627776,16,0,0",
    ]
    del kernel
    assert stub.log() == ["unload"]
    assert stub.live("module") == stub.live("context") == 0


def test_no_programs_are_no_launch(stub):
    load(stub).launch(0, (16, 16))
    assert not any(line.startswith("launch") for line in stub.log())


def test_much_shared_memory_is_asked_for(stub):
    load(stub, shared=100_000)
    assert "attribute k0 8=100000" in stub.log()
    with pytest.raises(_plan.DeviceError, match="needs 300000 bytes of shared memory"):
        load(stub, shared=300_000)
    assert stub.live("module") == 0


def test_capabilities(stub):
    assert stub.driver.count() == 2
    assert stub.driver.capability(1) == (9, 0)
    with pytest.raises(_plan.DeviceError, match="CUDA_VISIBLE_DEVICES"):
        stub.driver.capability(5)


# --- plans ---


def test_a_plan_launches(stub):
    twice(stub)
    plan = link(doubling(steps=3), callables={"k0": Loaded(load(stub))})
    assert plan.kernels == 3
    x = torch.arange(8.0)
    (result,) = plan(x)
    assert torch.equal(result, x * 8)
    launches = [line.split("arguments=")[1].split(",") for line in stub.log() if "launch" in line]
    assert len(launches) == 3
    assert launches[0][0] == str(x.data_ptr()) and launches[-1][1] == str(result.data_ptr())
    assert all(line[2:] == ["0", "0"] for line in launches)
    assert launches[0][1] == launches[1][0]


def test_the_current_stream_of_each_call(stub):
    plan = link(doubling(), callables={"k0": Loaded(load(stub))})
    for stream in (0, 11, 1 << 60):
        stub.stream = stream
        plan(torch.ones(8))
        assert f"stream={stream} " in stub.log()[-1]


def test_a_plan_without_memory_of_its_arguments_in_a_list(stub):
    twice(stub)
    plan = link(doubling(), callables={"k0": Loaded(load(stub))})
    x = torch.ones(8)
    gone = weakref.ref(x)
    given = [x]
    del x
    (result,) = plan.take(given)
    assert given == [] and gone() is None and torch.equal(result, torch.full((8,), 2.0))


def test_memory_of_a_kernel_comes_behind_its_arguments(stub):
    spec = doubling()
    spec.steps[0].scratch = "scratch"
    spec.buffers.append(BufferSpec("scratch", "uint8", (200,), (1,), kind="temp"))
    spec.triton = [replace(KERNEL, scratch=100)]
    spec = PlanSpec.from_json(spec.to_json())
    plan = link(spec, callables={"k0": Loaded(load(stub, hidden=1, parameters=3))})
    x = torch.ones(8)
    (result,) = plan(x)
    given = stub.log()[-1].split("arguments=")[1].split(",")
    assert given[:2] == [str(x.data_ptr()), str(result.data_ptr())]
    assert int(given[2]) > 0 and given[3:] == ["0"]


def test_a_kernel_that_python_launches_reads_results_as_the_plan_has_them():
    """An operator's result may lie in memory otherwise than torch's shape functions tell."""
    spec = doubling()
    spec.inputs[0] = TensorSpec("arg0", "float32", (3, 4), (4, 1))
    spec.buffers = [
        BufferSpec("buf0", "float32", (3, 4), (1, 3), kind="aten"),
        BufferSpec("buf1", "float32", (12,), (1,), kind="output"),
    ]
    spec.steps = [
        AtenStep("aten::clone", "", [{"buf": "arg0"}], ["buf0"]),  # of strides (4, 1)
        LaunchStep("k0", ["buf0", "buf1"], ["buf1"], programs=1),
    ]
    spec.outputs = [OutputSpec("buffer", "buf1")]

    def kernel(x, out, programs):
        out.copy_(x.as_strided((12,), (1,)))  # by address

    x = torch.arange(12.0).view(3, 4)
    (result,) = link(spec, callables={"k0": kernel})(x)
    assert torch.equal(result, x.t().flatten())


def test_sizes_and_programs_of_a_call(stub):
    n = Symbol("s0", 2, 1 << 20, 8)
    size = Size.of(n)
    spec = doubling()
    spec.inputs = [TensorSpec("arg0", "float32", (size,), (1,))]
    spec.buffers = [BufferSpec("buf0", "float32", (size,), (1,), kind="output")]
    spec.steps = [LaunchStep("k0", ["arg0", "buf0"], ["buf0"], size // 4, [size, size * 3])]
    spec.symbols = [n]
    spec = PlanSpec.from_json(spec.to_json())
    plan = link(spec, callables={"k0": Loaded(load(stub, parameters=4))})
    for count in (8, 8, 20):
        x = torch.ones(count)
        (result,) = plan(x)
        assert result.shape == (count,)
        line = stub.log()[-1]
        assert f"programs={count // 4} " in line
        wanted = f"{x.data_ptr()},{result.data_ptr()},{count},{3 * count},0,0"
        assert line.endswith(f"arguments={wanted}")


def test_arguments_that_are_not_aligned(stub):
    made = []

    def careful():
        made.append(load(stub, name="careful", aligned=False))
        return made[-1]

    plan = link(doubling(), callables={"k0": Loaded(load(stub), careful)})
    memory = torch.zeros(32)
    plan(memory[:8])
    plan(memory[1:9])
    plan(memory[2:10])
    plan(memory[4:12])
    names = [line.split()[1] for line in stub.log() if line.startswith("launch")]
    assert names == ["k0", "careful", "careful", "k0"] and len(made) == 1


def test_arguments_that_are_not_aligned_without_another_form(stub):
    plan = link(doubling(), callables={"k0": Loaded(load(stub))})
    with pytest.raises(RuntimeError, match="takes aligned tensors only"):
        plan(torch.zeros(9)[1:])


def test_kernels_of_two_devices_in_one_plan(stub):
    spec = doubling(steps=2)
    spec.triton.append(TritonSpec("k1", "", KERNEL.signature, {}))
    spec.steps[1].kernel = "k1"
    kernels = {"k0": Loaded(load(stub)), "k1": Loaded(load(stub, name="k1", device=1))}
    plan = link(spec, callables=kernels)
    plan(torch.ones(8))
    assert stub.library.stub_contexts() == 0
    assert [line.split()[1] for line in stub.log() if "launch" in line] == ["k0", "k1"]


def test_an_argument_on_another_device_of_the_type(stub):
    """Tensors without memory stand for those of two GPUs."""
    spec = doubling()
    spec.inputs[0].device = "cuda:1"
    plan = link(spec, callables={"k0": Loaded(load(stub))})
    with fake_tensor_mode():
        here, there = (torch.empty(8, device=f"cuda:{number}") for number in (1, 0))
    with pytest.raises(RuntimeError, match="on cuda:0, but this plan was compiled for.*on cuda:1"):
        plan(there)
    with pytest.raises(RuntimeError, match="^(?!.*was compiled for)"):  # it has no memory
        plan(here)
    assert not [line for line in stub.log() if "launch" in line]


def test_profiles_name_launches(stub):
    spec = doubling()
    spec.steps[0].label = "mul"
    plan = link(spec, callables={"k0": Loaded(load(stub))})
    with torch.profiler.profile() as profile:
        plan(torch.ones(8))
    assert "framegraph::mul" in {event.name for event in profile.events()}


def test_a_launch_of_a_kernel_that_the_plan_has_not():
    spec = doubling()
    spec.triton = []
    with pytest.raises(ValueError, match="no such kernel"):
        link(spec, callables={})


# --- failures ---


def test_no_driver():
    with pytest.raises(_plan.DeviceError, match="no CUDA driver.*Install the NVIDIA driver"):
        _plan.Driver("libcuda-that-is-not-there.so.1", lambda device: 0)


def test_a_driver_without_a_function(tmp_path):
    library = stub_driver.build(tmp_path, "-DWITHOUT_LAUNCH")
    with pytest.raises(_plan.DeviceError, match="no function cuLaunchKernel.*newer driver"):
        Stub(library)


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("cuModuleLoadData", OUT_OF_MEMORY, "Smaller batches"),
        ("cuModuleLoadData", 209, "another device"),
        ("cuModuleGetFunction", 500, "clear the cache"),
        ("cuDevicePrimaryCtxRetain", LOST, "nvidia-smi"),
        ("cuCtxPushCurrent", 201, "loading|cuCtxPushCurrent"),
        ("cuFuncGetAttribute", 1, "cuFuncGetAttribute"),
    ],
)
def test_loading_fails(stub, function, code, text):
    kind = torch.OutOfMemoryError if code == OUT_OF_MEMORY else _plan.DeviceError
    stub.fail(function, code)
    with pytest.raises(kind, match=text):
        load(stub)
    if code != LOST:
        assert stub.live("module") == stub.live("context") == 0
        load(stub)  # the next try works


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (OUT_OF_MEMORY, torch.OutOfMemoryError, "Smaller batches"),
        (ILLEGAL_ADDRESS, _plan.DeviceError, "CUDA_LAUNCH_BLOCKING=1"),
        (LOST, _plan.DeviceError, "no longer answers"),
        (701, _plan.DeviceError, "aten_ops"),
        (12345, _plan.DeviceError, "DYNAMO_DISABLE=1"),
    ],
)
@pytest.mark.parametrize("owning", [False, True])
def test_a_launch_fails(stub, code, kind, text, owning):
    """One clear error, all memory given back, and the next call works where the device does."""
    twice(stub)
    plan = link(doubling(steps=3), callables={"k0": Loaded(load(stub))})
    plan(torch.ones(8))
    x = torch.ones(8)
    gone = weakref.ref(x)
    stub.fail("cuLaunchKernel", code, after=1)
    with pytest.raises(kind, match=text) as caught:
        plan.take([x]) if owning else plan(x)
    assert f"({code})" in str(caught.value) and "k0" in str(caught.value)
    del x, caught
    gc.collect()
    assert gone() is None and stub.library.stub_contexts() == 0
    if code in (ILLEGAL_ADDRESS, LOST):
        with pytest.raises(_plan.DeviceError):
            plan(torch.ones(8))
    else:
        assert torch.equal(plan(torch.ones(8))[0], torch.full((8,), 8.0))


# Each call of the driver's in the life of a plan with a device graph fails in turn.
LIFE = (
    "cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent",
    "cuCtxPushCurrent", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute",
    "cuFuncSetAttribute", "cuLaunchKernel", "cuStreamBeginCapture", "cuStreamEndCapture",
    "cuGraphInstantiate", "cuGraphLaunch", "cuModuleUnload",
)  # fmt: skip
FAILURES = (OUT_OF_MEMORY, LOST, 1)


def life(library, function, code, after):
    """The errors of each stage: loading, then calls until a graph was replayed twice; whether the
    failure came at all. Each call that raises nothing gives what it should."""
    errors, held, stub = [], [], Stub(library, opened=False)
    stub.fail(function, code, after)
    try:
        stub.open()
        spec = doubling(steps=2)
        loaded = Loaded(load(stub, shared=100_000), device=SimulatedDevice(stub))
        plan = link(spec, callables={"k0": loaded})
        call = DeviceGraphs(plan, spec, loaded.device, 1)
    except RuntimeError as error:
        errors.append(error)
        return errors, held, stub
    twice(stub)
    for turn in range(5):
        x = torch.full((8,), float(turn))
        held.append(weakref.ref(x))
        try:
            assert torch.equal(call.take([x])[0], torch.full((8,), 4.0 * turn))
        except RuntimeError as error:
            errors.append(error.with_traceback(None))
        del x
    call.reset()
    return errors, held, stub


@pytest.mark.parametrize("function", LIFE)
def test_any_call_fails(library, function):
    """One clear error for a call that fails; memory is given back, and what follows works unless
    the device is lost."""
    reached = 0
    for code in FAILURES:
        for after in itertools.count():
            errors, held, stub = life(library, function, code, after)
            assert not any(reference() is not None for reference in held)
            if stub.armed(function):
                break
            reached += 1
            kind = torch.OutOfMemoryError if code == OUT_OF_MEMORY else RuntimeError
            assert code == LOST or len(errors) <= 1, (code, after, errors)
            for error in errors:
                assert isinstance(error, kind) or "the driver returned" in str(error)
                assert str(code) in str(error)
            assert stub.live("graph") == stub.library.stub_contexts() == 0
            if code != LOST:
                assert stub.live("context") == 0
                # A module stays where unloading itself failed.
                assert stub.live("module") == 0 or not errors, (code, after)
    assert reached >= len(FAILURES)


def test_the_current_stream_cannot_be_told(library):
    stub = Stub(library)
    stub.driver = _plan.Driver(stub.path, lambda device: 1 / 0)
    plan = link(doubling(), callables={"k0": Loaded(load(stub))})
    with pytest.raises(ZeroDivisionError):
        plan(torch.ones(8))


def test_nothing_is_kept_alive(stub):
    kernel = load(stub)
    plan = link(doubling(), callables={"k0": Loaded(kernel, functools.partial(load, stub))})
    plan(torch.ones(8))
    gone = weakref.ref(plan)
    del plan, kernel
    gc.collect()
    assert gone() is None and stub.live("module") == 0


def test_threads_launch_side_by_side(stub):
    """Long enough that a call gives up the lock of the interpreter."""
    plan = link(doubling(size=1 << 17), callables={"k0": Loaded(load(stub))})
    found = []

    def work():
        for _ in range(50):
            x = torch.ones(1 << 17)
            (result,) = plan(x)
            found.append((x.data_ptr(), result.data_ptr()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = {line.split("arguments=")[1] for line in stub.log() if line.startswith("launch")}
    assert lines == {f"{x},{out},0,0" for x, out in found} and len(found) == 200
