"""Programs that capture device graphs around compiled functions, or have these captured, as users
write them; and what such graphs hold of the device's memory.
"""

from __future__ import annotations

import copy
import ctypes
import gc
from typing import Any

import torch
import torch.nn.functional as F

import dynamo
from tests.gpu.stand_in import launching
from tests.gpu.stand_in.cuda_programs import CUDA, program
from tests.gpu.stand_in.harness import DEVICE, GRAPHS, rand, same

__all__ = ["CUDA"]  # with these programs


def _net(*layers: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A model on the device, and another like it."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*layers).to(DEVICE)
    return net, copy.deepcopy(net)


@program
def graphs_of_the_user() -> None:
    """torch.cuda.graph around a compiled model, called before on a stream of its own."""
    net, other = _net(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    for options in ({}, GRAPHS):
        dynamo.reset()
        run, x = dynamo.compile(net, **options), rand(4, 6)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                run(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            result = run(x)
        for turn in range(3):
            x.copy_(rand(4, 6) * turn)
            graph.replay()
            run(torch.ones(4, 6, device=DEVICE)), torch.zeros(4000, device=DEVICE)
            with torch.no_grad():
                same(result, other(x), rtol=1e-3, atol=1e-4)


@program
def graphs_of_the_user_in_training() -> None:
    """A whole step: forward, backward and a capturable optimizer."""
    nets = _net(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x, y = torch.zeros(4, 6, device=DEVICE), torch.zeros(4, dtype=torch.int64, device=DEVICE)
    run, found = dynamo.compile(nets[0]), []
    for net, call in zip(nets, (run, nets[1]), strict=True):
        made = torch.optim.Adam(net.parameters(), lr=0.05, capturable=True)

        def step(call: Any = call, made: Any = made) -> Any:
            made.zero_grad(set_to_none=True)
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            made.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                x.copy_(rand(4, 6))
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph, losses = torch.cuda.CUDAGraph(), []
        made.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = step()
        for turn in range(3):
            x.copy_(rand(4, 6) + turn)
            graph.replay()
            losses.append(loss.detach().clone())
        found.append([losses, *net.parameters()])
    same(*found, rtol=1e-3, atol=1e-4)


@program
def graphed_callables() -> None:
    nets = _net(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    run, found = dynamo.compile(nets[0]), []
    run(rand(4, 6)).sum().backward()
    nets[0].zero_grad()
    graphed = torch.cuda.make_graphed_callables(run, (rand(4, 6),))
    for net, call in zip(nets, (graphed, nets[1]), strict=True):
        results = []
        for turn in range(3):
            results.append(call(rand(4, 6) * turn).clone())
            results[-1].square().sum().backward()
            results += [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
        found.append(results)
    same(*found, rtol=1e-3, atol=1e-4)


@program
def graphs_on_the_second_device() -> None:
    nets = _net(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    nets = tuple(net.to("cuda:1") for net in nets)
    run, found = dynamo.compile(nets[0], **GRAPHS), []
    for net, call in zip(nets, (run, nets[1]), strict=True):
        made, losses = torch.optim.SGD(net.parameters(), lr=0.1, fused=True), []
        for turn in range(5):
            made.zero_grad()
            loss = call((rand(4, 6) + turn).to("cuda:1")).square().mean()
            loss.backward()
            made.step()
            losses.append(loss.detach())
        found.append([losses, *net.parameters()])
    same(*found, rtol=1e-3, atol=1e-4)
    assert torch.cuda.current_device() == 0


@program
def graphs_of_varying_batches() -> None:
    """Another graph for each size, as many as there may be; training too."""
    nets = _net(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    run = dynamo.compile(nets[0], **GRAPHS)
    for count in (4, 4, 4, 5, 5, 5, 7, 4, 7, 7, 5):
        found = []
        for net, call in zip(nets, (run, nets[1]), strict=True):
            result = call(rand(count, 6))
            result.square().sum().backward()
            found.append([result, *(p.grad for p in net.parameters())])
            net.zero_grad()
        same(*found, rtol=1e-3, atol=1e-4)


@program
def images_with_channels_innermost() -> None:
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    layers += [torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 1), torch.nn.AdaptiveAvgPool2d(1)]
    nets = _net(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 5))
    nets = tuple(net.to(memory_format=torch.channels_last) for net in nets)
    x = rand(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    run = dynamo.compile(nets[0], **GRAPHS)
    for _ in range(4):
        found = []
        for net, call in zip(nets, (run, nets[1]), strict=True):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                result = call(x)
            result.float().square().sum().backward()
            found.append([result, *(p.grad for p in net.parameters()), *net.buffers()])
            net.zero_grad()
        same(*found, rtol=5e-2, atol=5e-2)


@program
def copies_that_do_not_wait() -> None:
    def fn(x: Any) -> Any:
        y = x.cuda(non_blocking=True) * 2
        z = y.to("cpu", non_blocking=True)
        torch.cuda.synchronize()
        return y + 1, z.pin_memory().to(y.device, non_blocking=True) - 1

    run = dynamo.compile(fn)
    for x in (torch.randn(9).pin_memory(), torch.randn(9), torch.randn(9).pin_memory()):
        same(run(x), fn(x))


@program
def batches_on_a_stream_of_copies() -> None:
    """The next batch is copied while the last is computed with, as loaders do."""
    net, other = _net(torch.nn.Linear(6, 8), torch.nn.ReLU())
    for options in ({}, GRAPHS):
        dynamo.reset()
        run, side = dynamo.compile(net, **options), torch.cuda.Stream()
        batches = [torch.randn(4, 6).pin_memory() for _ in range(6)]
        following = None
        with torch.no_grad():
            for batch in [*batches, None]:
                x = following
                if x is not None:
                    torch.cuda.current_stream().wait_stream(side)
                    x.record_stream(torch.cuda.current_stream())
                if batch is not None:
                    with torch.cuda.stream(side):
                        following = batch.to(DEVICE, non_blocking=True)
                if x is not None:
                    same(run(x), other(x), rtol=1e-3, atol=1e-4)


@program
def memory_of_graphs_goes_back() -> None:
    """After dynamo.reset() nothing holds any; the same again holds as much as before."""
    held = []
    for _ in range(3):
        net, _ = _net(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
        run = dynamo.compile(net, **GRAPHS)
        for _ in range(4):
            run(rand(32, 64)).square().mean().backward()
        del net, run
        dynamo.reset()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    assert held[1] == held[2], held
    launching.check()


@program
def scaled_gradients_of_a_mixed_model() -> None:
    """GradScaler, clipping and a fused optimizer around a compiled model with device graphs."""
    nets = _net(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    run, found = dynamo.compile(nets[0], **GRAPHS), []
    for net, call in zip(nets, (run, nets[1]), strict=True):
        made = torch.optim.AdamW(net.parameters(), lr=0.05, fused=True)
        scaler, losses = torch.amp.GradScaler(DEVICE, init_scale=64.0, growth_interval=2), []
        for turn in range(6):
            made.zero_grad(set_to_none=True)
            x = rand(4, 6) * (float("inf") if turn == 3 else 1 + turn)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.mse_loss(call(x), torch.ones(4, 3, device=DEVICE, dtype=torch.float16))
            scaler.scale(loss).backward()
            scaler.unscale_(made)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(made)
            scaler.update()
            losses.append(loss.detach())
        found.append([losses, scaler.get_scale(), *net.parameters()])
    same(found[0][0], found[1][0], rtol=2e-2, atol=2e-2)
    assert found[0][1] == found[1][1]
    same(found[0][2:], found[1][2:], rtol=2e-2, atol=2e-2)


@program
def workspaces_are_of_one_graph() -> None:
    """cuBLAS' of a stream, which the next capture there would find, are let go."""
    let_go, function = [], torch._C._cuda_clearCublasWorkspaces
    torch._C._cuda_clearCublasWorkspaces = lambda: let_go.append(function())
    try:
        run = dynamo.compile(lambda x: torch.softmax(x, -1) * 2, **GRAPHS)
        for _ in range(4):
            same(run(rand(4, 5)), torch.softmax(rand(4, 5), -1) * 2)
    finally:
        torch._C._cuda_clearCublasWorkspaces = function
    assert len(let_go) == 1, let_go


def _written(net: torch.nn.Module, turn: int) -> None:
    """Weights changed in a way of programs, with a new version or without one."""
    weight, state = net[0].weight, net.state_dict()
    if turn == 1:
        with torch.no_grad():
            weight.mul_(2)
    elif turn == 2:
        weight.data.sub_(0.5)
    elif turn == 3:
        weight.data = weight.data * 0.5
    elif turn == 4:
        net.load_state_dict({name: value + 0.25 for name, value in state.items()})
    elif turn == 5:
        net.held = [weight.data]  # an alias that lives on
    elif turn == 6:
        net.held[0].add_(1)
    elif turn == 7:
        net.held.clear()
    elif turn == 8:
        graph, write = torch.cuda.CUDAGraph(), weight.detach()
        version = weight._version
        with torch.cuda.graph(graph):
            write.mul_(3)
        torch._C._autograd._unsafe_set_version_counter((weight,), (version,))
        net.held.append(graph)
        graph.replay()
    elif turn == 9:
        net.held[0].replay()
    elif turn == 10:
        ctypes.memset(weight.data_ptr(), 0, weight.nbytes // 2)  # as a kernel by bare address


@program
def weights_in_the_layout_of_images() -> None:
    """Kept between calls, and laid out again after each kind of write."""
    for options in ({}, GRAPHS):
        layers = (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3))
        nets = _net(*(layer.bfloat16() for layer in layers))
        x = rand(2, 8, 6, 6, dtype=torch.bfloat16)
        dynamo.reset()
        run = dynamo.compile(nets[0], **options)
        with torch.no_grad():
            for turn in range(12):
                for net in nets:
                    _written(net, turn)
                for _ in range(3):
                    same(run(x + turn), nets[1](x + turn), rtol=2e-2, atol=2e-2)
            report = dynamo.explain(nets[0])(x)
            assert any("in the layout of their images" in note for note in report.notes)
            assert "clone.default" not in report.fallback_ops
            off = dynamo.explain(nets[0], options={"pack": False})(x)
            assert not any("layout of their images" in note for note in off.notes)


@program
def weights_in_the_layout_of_images_captured() -> None:
    """In a graph of the program's own, by each replay from the weights of its time."""
    nets = _net(torch.nn.Conv2d(8, 8, 3, padding=1).bfloat16(), torch.nn.Conv2d(8, 4, 3).bfloat16())
    x, run = rand(2, 8, 6, 6, dtype=torch.bfloat16), dynamo.compile(nets[0])
    with torch.no_grad():
        run(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = run(x)
        for turn in range(3):
            for net in nets:
                net[0].weight.mul_(1 - turn / 4)
            graph.replay()
            same(result, nets[1](x), rtol=2e-2, atol=2e-2)
            same(run(x), nets[1](x), rtol=2e-2, atol=2e-2)


class Attended(torch.nn.Module):
    """Queries, keys and values of one input, and a gated layer; one product is a result."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(16, n, bias) for n in (32, 16, 16))
        self.gate, self.up = torch.nn.Linear(32, 24, bias), torch.nn.Linear(32, 24, bias)
        self.out = torch.nn.Linear(16, 4, bias)

    def forward(self, x: Any) -> Any:
        q, k, v = (part(x).unflatten(-1, (-1, 16)).transpose(1, 2) for part in self.parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = y.transpose(1, 2).flatten(2)
        return F.silu(self.gate(y)) * self.up(y), self.out(x)


@program
def joint_weights() -> None:
    """Of queries, keys and values, and of a gated layer; a result of the graph stays apart."""
    for bias in (True, False):
        for options in ({}, GRAPHS):
            nets = _net(Attended(bias).bfloat16())
            x = rand(2, 8, 16, dtype=torch.bfloat16)
            dynamo.reset()
            run = dynamo.compile(nets[0], **options)
            with torch.no_grad():
                for turn in range(3):
                    for net in nets:
                        net[0].gate.weight.add_(0.1)
                        net[0].parts[2].weight.data.mul_(1.5)
                    for _ in range(3):
                        same(run(x + turn), nets[1](x + turn), rtol=4e-2, atol=4e-2)
                notes = dynamo.explain(nets[0])(x).notes
                assert any("products: 5 with 2 joint weights" in note for note in notes), notes
