"""Device graphs on a simulated device: what is captured, replayed, copied, and what is not."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import shutil
import threading

import pytest
import torch

import dynamo
from dynamo.api.compile import compile_fresh
from fxgraph.aot._autograd import Tensors
from fxgraph.sizes import Size, Symbol
from inductor import compiled as compiled_module
from inductor import pipeline
from inductor.runtime import _plan, cubin, driver
from inductor.runtime.device_graph import DeviceGraphs
from inductor.runtime.driver import Loaded
from inductor.runtime.link import link
from inductor.runtime.plan import (
    BufferSpec,
    LaunchStep,
    OutputSpec,
    PlanSpec,
    TensorSpec,
    TritonSpec,
)
from tests.inductor import stub_driver
from tests.inductor.stub_driver import Simulated, SimulatedDevice, Stub, image

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return stub_driver.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library, monkeypatch):
    """CPU tensors are those of a device; graphs are compiled and launched as for a GPU."""
    stub = Stub(library)
    device = SimulatedDevice(stub)
    monkeypatch.setattr(pipeline, "TritonModule", Simulated)
    monkeypatch.setattr(driver, "device_of", lambda *given: device)
    dynamo.reset()
    yield stub
    dynamo.reset()
    assert not stub.errors


def compiled(fn, **more):
    return dynamo.compile(fn, mode="reduce-overhead", **more)


def kinds(stub):
    """What happened since: "launch" for a call that ran the plan, "capture", "replay"."""
    names = {"launch": "launch", "begin": "capture", "replay": "replay"}
    found = [names[line.split()[0]] for line in stub.log() if line.split()[0] in names]
    return [kind for i, kind in enumerate(found) if kind != "launch" or found[i - 1 : i] != [kind]]


def fn(x, y):
    return torch.relu(x * 2 + y), (x + y).sum(0)


def check(run, eager, *args):
    for got, want in zip(run(*args), eager(*args), strict=True):
        torch.testing.assert_close(got, want, check_stride=True)


@torch.no_grad()
def test_a_plan_runs_is_captured_and_replayed(stub):
    run = compiled(fn)
    seen = []
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    for _ in range(4):
        check(run, fn, x, y)
        seen.append(kinds(stub))
        x.normal_()
    assert seen == [["launch"], ["capture", "replay"], ["replay"], ["replay"]]


@torch.no_grad()
def test_known_sizes_are_not_looked_at(stub):
    gc.collect()
    run = compiled(fn)
    run(torch.randn(6, 8), torch.randn(6, 8))
    (graphs,) = (one for one in gc.get_objects() if isinstance(one, DeviceGraphs))
    assert graphs.frame.sized == [] and list(graphs.graphs) == [()]


@torch.no_grad()
def test_arguments_that_move_are_copied(stub):
    run = compiled(fn)
    y = torch.randn(6, 8)
    kept = []
    seen = []
    for _ in range(5):
        x = torch.randn(6, 8)
        kept.append(x)  # so that the next one is elsewhere
        check(run, fn, x, y)
        seen.append(kinds(stub))
    assert seen == [["launch"], ["capture", "replay"], ["replay"], ["replay"], ["replay"]]
    kept.append(y)
    check(run, fn, torch.randn(6, 8), torch.randn(6, 8))  # y moves for the first time
    assert kinds(stub) == ["launch"]
    check(run, fn, torch.randn(6, 8), torch.randn(6, 8))
    assert kinds(stub) == ["capture", "replay"]


@torch.no_grad()
def test_results_that_live_on_are_not_written_over(stub):
    run = compiled(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    held = []
    for step in range(8):
        x.fill_(step)
        results = run(x, y)
        held.append((results[0], results[0].clone(), fn(x, y)[0]))
        for result, then, wanted in held:
            assert torch.equal(result, then)
            torch.testing.assert_close(result, wanted)
    assert len({result.data_ptr() for result, _, _ in held}) == len(held)
    assert "replay" in kinds(stub)[-1]


@torch.no_grad()
def test_a_view_of_a_result_keeps_it(stub):
    run = compiled(lambda x: x * 2 + 1)
    x = torch.zeros(4, 4)
    run(x), run(x)
    view = run(x)[1]
    x.fill_(5)
    run(x)
    assert torch.equal(view, torch.ones(4))


@torch.no_grad()
def test_views_arguments_and_numbers_are_returned(stub):
    def returns(x, y):
        z = torch.exp(x + y)
        return z[1:, ::2], x, z, y[0], 7, None, z.t()

    run = compiled(returns)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    for _ in range(4):
        results = run(x, y)
        wanted = returns(x, y)
        for got, want in zip(results, wanted, strict=True):
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want, check_stride=True)
                assert (got._base is None) == (want._base is None)
            else:
                assert got == want
        assert results[1] is x
        results[2].zero_()
        assert not results[0].any() and not results[6].any()
        del results
    assert kinds(stub)[-1] == "replay"


def test_in_inference_mode(stub):
    def returns(x):
        z = torch.exp(x)
        return z[1:], z

    run = compiled(returns)
    with torch.inference_mode():
        x = torch.randn(4, 6)
        for _ in range(4):
            check(run, returns, x)
    assert kinds(stub)[-1] == "replay"


def doubling(stub, **bounds):
    """The graphs of a plan with a symbol; its kernel doubles n floats."""

    def run(name, programs, arguments):
        x, out, count = arguments[:3]
        torch.mul(floats(x, count), 2, out=floats(out, count))

    stub.on_launch(run)
    size = Size.of(Symbol("s0", 2, 1 << 20, 8))
    kernel = TritonSpec("k0", "", {"arg0": "*fp32", "buf0": "*fp32", "n0": "i64"}, {})
    spec = PlanSpec(
        inputs=[TensorSpec("arg0", "float32", (size,), (1,))],
        buffers=[BufferSpec("buf0", "float32", (size,), (1,), kind="output")],
        steps=[LaunchStep("k0", ["arg0", "buf0"], ["buf0"], 1, [size])],
        outputs=[OutputSpec("buffer", "buf0")],
        triton=[kernel],
        symbols=[Symbol("s0", 2, 1 << 20, 8)],
    )
    device = SimulatedDevice(stub)
    stub.on_launch(run)
    code = stub.driver.load(image(5), "k0", 0, 128, 0, 2, True)
    plan = link(spec, callables={"k0": Loaded(code, None, device)})
    return DeviceGraphs(plan, spec, device, **bounds)


@pytest.mark.parametrize(
    ("bounds", "note"),
    [
        ({"most": 2}, "none for more than 2 sets of sizes (option device_graphs)"),
        ({"most": 8, "most_bytes": 200},
         "none that would hold more than 200 bytes (option device_graph_bytes)"),
    ],
    ids=["number", "bytes"],
)  # fmt: skip
def test_each_set_of_sizes_has_a_graph_up_to_a_bound(library, bounds, note):
    stub = Stub(library)
    graphs = doubling(stub, **bounds)
    for step in range(4):
        for count in (4, 6, 8):
            x = torch.full((count,), float(step))
            assert torch.equal(graphs(x)[0], x * 2)
    assert stub.live("graph") == 2
    assert graphs.notes == [f"device graph: {note}"]
    graphs.reset()
    assert stub.live("graph") == 0


def floats(address, count):
    memory = (ctypes.c_float * count).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32)


def test_training(stub):
    net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    other = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    run = compiled(net)
    torch.manual_seed(0)
    for _ in range(5):
        x = torch.randn(4, 8, requires_grad=True)
        mine = x.detach().clone().requires_grad_()
        run(mine).square().sum().backward()
        other(x).square().sum().backward()
        torch.testing.assert_close(mine.grad, x.grad)
        for got, want in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-4)
            with torch.no_grad():
                got -= 0.1 * got.grad
                want -= 0.1 * want.grad
            got.grad = want.grad = None
    assert kinds(stub).count("replay") >= 2


def graphs_of_training(net, calls, keep=False):
    """The graphs of the forward and the backward, after steps whose gradients are those of eager.
    keep: whether each result is alive while the next is made, as that of a loop's last step."""
    other, run, held, kept = copy.deepcopy(net), compiled(net), None, []
    for step in range(calls):
        x = torch.randn(4, 8)
        kept.append(x)  # so that the next one is elsewhere
        result = run(x)
        result.square().sum().backward()
        other(x).square().sum().backward()
        for got, want in zip(net.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-4)
            got.grad = want.grad = None
        held = result if keep and step % 3 == 0 else None
    del held
    found = [one for one in gc.get_objects() if isinstance(one, DeviceGraphs)]
    assert len(found) == 2
    return [graph for one in found for graph in one.graphs.values()]


def test_a_forward_and_its_backward_hand_over_no_python_objects(stub, monkeypatch):
    gc.collect()
    seen = []
    for name in ("bare", "take"):

        def spied(self, *given, original=getattr(DeviceGraphs, name)):
            seen.append(type(given[0]))
            found = original(self, *given)
            seen.append(type(found))
            return found

        spied.takes_tensors = True
        monkeypatch.setattr(DeviceGraphs, name, spied)
    graphs_of_training(torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU()), 6)
    assert seen[:4] == [torch.Tensor, tuple, Tensors, tuple]  # the plans
    assert seen[-4:] == [torch.Tensor, Tensors, Tensors, Tensors]


@pytest.mark.parametrize("keep", [False, True])
def test_a_backward_reads_what_the_forward_left_where_it_is(stub, keep):
    """Of the backward's arguments, the gradient and the model's input alone are copied."""
    gc.collect()
    net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    graphs = graphs_of_training(net, 9, keep)
    assert all(graph.graph is not None for graph in graphs)
    own = [len(graph.own) for graph in graphs]
    assert max(own) <= 2 + keep, own
    assert kinds(stub)[-2:] == ["replay"] * 2


@torch.no_grad()
def test_memory_of_graphs_that_are_gone_is_that_of_nobody(stub):
    from inductor.runtime import device_graph

    run = compiled(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    before = set(device_graph._replayed)
    for _ in range(3):
        run(x, y)
    assert len(device_graph._replayed - before) == 2
    del run
    dynamo.reset()
    gc.collect()
    assert not device_graph._replayed - before


def test_the_report_of_training_tells_of_graphs(stub):
    net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU())
    run, context = compile_fresh(net, mode="reduce-overhead")
    held = []
    for _ in range(4):
        held.append(run(torch.randn(4, 8)))
        held[-1].sum().backward()
    ((graph,),) = (record.graphs for record in context.records)
    (note,) = (note for note in graph.report["notes"] if "device graph" in note)
    assert note.startswith("forward: device graph: 1 of ") and "lived on" in note


@torch.no_grad()
def test_results_of_two_graphs_by_turns(stub):
    """Read where either leaves them at first, then copied: no graph is captured for ever."""
    gc.collect()
    first, second = (lambda x: torch.exp(x) * 2), (lambda x: torch.sin(x) + 1)
    last = compiled(lambda x: torch.relu(x) + 3)
    runs, kept = [(compiled(fn), fn) for fn in (first, second)], []
    for step in range(40):
        x = torch.randn(4, 8)
        kept.append(x)
        run, fn = runs[step % 2]
        torch.testing.assert_close(last(run(x)), torch.relu(fn(x)) + 3)
    found = [one for one in gc.get_objects() if isinstance(one, DeviceGraphs)]
    assert kinds(stub)[-2:] == ["replay"] * 2
    assert [len(g.own) for one in found for g in one.graphs.values()] == [1, 1, 1]


def test_two_forwards_before_a_backward(stub):
    net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU())
    run = compiled(net)
    for _ in range(5):
        xs = [torch.randn(4, 8, requires_grad=True) for _ in range(3)]
        sum(run(x).square().sum() for x in xs).backward()
        got = [x.grad.clone() for x in xs]
        for x in xs:
            x.grad = None
        sum(net(x).square().sum() for x in xs).backward()
        for x, g in zip(xs, got, strict=True):
            torch.testing.assert_close(g, x.grad)
    assert "replay" in kinds(stub)


@torch.no_grad()
def test_buffers_that_are_written(stub):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x * self.seen

    net, other = Counting(), Counting()
    run = compiled(net)
    for _ in range(5):
        x = torch.randn(3, 8)
        version = net.seen._version
        torch.testing.assert_close(run(x), other(x))
        torch.testing.assert_close(net.seen, other.seen)
        assert net.seen._version > version
    assert kinds(stub)[-1] == "replay"


def test_a_training_step_looks_once_at_how_written_buffers_share_memory(stub, monkeypatch):
    """The step does; the forward's plan need not. Statistics that the input is a part of are as
    eager's."""
    monkeypatch.setattr(compiled_module, "same_sharing", None)
    net = torch.nn.BatchNorm1d(8)
    other = copy.deepcopy(net)
    run = compiled(net)
    for step in range(6):
        x = torch.randn(4, 8)
        if step == 4:
            x, y = net.running_mean.expand(4, 8), other.running_mean.expand(4, 8)
        else:
            y = x.clone()
        torch.testing.assert_close(run(x), other(y))
        run(torch.ones(4, 8)).sum().backward(), other(torch.ones(4, 8)).sum().backward()
        torch.testing.assert_close(net.running_mean, other.running_mean)
        torch.testing.assert_close(net.running_var, other.running_var)
    assert "replay" in kinds(stub)


@torch.no_grad()
def test_an_argument_that_is_written(stub):
    def writes(x, y):
        x.add_(y)
        return x * 2

    run = compiled(writes)
    x, y = torch.zeros(4), torch.ones(4)
    for step in range(4):
        assert torch.equal(run(x, y), torch.full((4,), 2.0 * (step + 1)))
    assert kinds(stub)[-1] == "replay"
    moved = torch.zeros(4)
    assert torch.equal(run(moved, y), torch.full((4,), 2.0))
    assert torch.equal(moved, y) and torch.equal(x, torch.full((4,), 4.0))
    assert kinds(stub) == ["launch"]


@torch.no_grad()
def test_parameters_that_move(stub):
    net = torch.nn.LayerNorm(8)
    run = compiled(net)
    x = torch.randn(3, 8)
    for step in range(12):
        if step % 3 == 2:
            net.weight.data = torch.randn(8)
        torch.testing.assert_close(run(x), net(x))
    assert "replay" in kinds(stub)


@torch.no_grad()
def test_another_stream(stub):
    run = compiled(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    for _ in range(3):
        run(x, y)
    kinds(stub)
    stub.stream = 9
    check(run, fn, x, y)
    assert kinds(stub) == ["launch"]
    stub.stream = 7
    check(run, fn, x, y)
    assert kinds(stub) == ["replay"]


@torch.no_grad()
def test_two_threads(stub):
    run = compiled(fn)
    errors = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(20):
                x, y = (torch.randn(6, 8, generator=generator) for _ in range(2))
                for got, want in zip(run(x, y), fn(x, y), strict=True):
                    if not torch.allclose(got, want, atol=1e-5):
                        errors.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@torch.no_grad()
@pytest.mark.parametrize(
    "function", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"]
)
def test_a_capture_that_fails(stub, function):
    run = compiled(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    run(x, y)
    stub.fail(function, 901)
    for _ in range(3):
        check(run, fn, x, y)
    assert "replay" not in kinds(stub) and stub.live("graph") == 0


class Cuda:
    """What TorchGraph asks torch for: a graph that fails at `failing`; `log` is what happened."""

    def __init__(self, monkeypatch, failing=()):
        self.failing, self.log = failing, []
        for name in ("synchronize", "empty_cache", "graph_pool_handle"):
            monkeypatch.setattr(torch.cuda, name, lambda *given, name=name: (0, 5))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"side of {device}")
        monkeypatch.setattr(torch.cuda, "stream", self.stream)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.close_pool, raising=False)
        clear = "_cuda_clearCublasWorkspaces"
        monkeypatch.setattr(torch._C, clear, lambda: self.log.append("cleared"), raising=False)
        driver._capturing_stream.cache_clear()

    @contextlib.contextmanager
    def stream(self, stream):
        self.log.append(stream)
        yield
        self.log.append("the stream before")

    def close_pool(self, number, pool):
        self.log.append(f"pool {pool} of {number} is closed")

    def capture_begin(self, pool, capture_error_mode):
        self.step("begin")

    def capture_end(self):
        self.step("end")

    def step(self, name):
        self.log.append(name)
        if name in self.failing:
            raise RuntimeError(f"{name} failed")


@pytest.mark.parametrize("failing", [(), ("begin",), ("end",)])
def test_a_captured_stream_is_left(monkeypatch, failing):
    """Whatever fails: what the caller launches next is on the caller's stream."""
    cuda = Cuda(monkeypatch, failing)
    with pytest.raises(RuntimeError, match="failed") if failing else contextlib.nullcontext():
        with driver.TorchGraph(1):
            pass
    begun = ["side of cuda:1", "begin"] + ["end"] * (failing != ("begin",))
    closed = ["pool (0, 5) of 1 is closed"] * bool(failing)
    assert cuda.log == [*begun, "cleared", *closed, "the stream before"]
    driver._capturing_stream.cache_clear()


def test_what_failed_while_capturing_is_told(monkeypatch):
    """The driver then also refuses to end the capture, which tells nothing."""
    cuda = Cuda(monkeypatch, ("end",))
    with pytest.raises(ValueError, match="of the block"):
        with driver.TorchGraph(0):
            raise ValueError("of the block")
    assert cuda.log[-1] == "the stream before"
    driver._capturing_stream.cache_clear()


def test_graphs_go_with_their_function(stub):
    run = compiled(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    for _ in range(3):
        run(x, y)
    assert stub.live("graph") == 1
    del run
    dynamo.reset()
    gc.collect()
    assert stub.live("graph") == 0


@torch.no_grad()
def test_work_on_the_host_is_told(stub):
    def works(x):
        return torch.linalg.inv(x) * 2 + 1

    report = dynamo.explain(compiled(works))(torch.eye(3))
    assert "device graph: none, because of an operator on the CPU" in str(report)


@torch.no_grad()
@pytest.mark.parametrize("strict", [True, False])
def test_a_device_that_fails_while_kernels_are_loaded(stub, strict):
    stub.fail("cuModuleLoadData", 999)
    with dynamo.config.patch(strict=strict):
        with pytest.raises(dynamo.errors.BackendCompilerFailed, match="see nvidia-smi") as caught:
            dynamo.compile(fn)(torch.randn(6, 8), torch.randn(6, 8))
        assert isinstance(caught.value.__cause__, _plan.DeviceError)
        stub.library.stub_reset()


@torch.no_grad()
def test_without_triton_the_graph_runs_on_aten(stub, monkeypatch):
    def missing(*given):
        raise cubin.NoTriton

    monkeypatch.setattr(SimulatedDevice, "compiled", missing)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    with pytest.warns(UserWarning, match="pip install triton"):
        check(dynamo.compile(fn), fn, x, y)


@torch.no_grad()
def test_nothing_without_the_mode(stub):
    run = dynamo.compile(fn)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    for _ in range(4):
        check(run, fn, x, y)
    assert set(kinds(stub)) == {"launch"}
