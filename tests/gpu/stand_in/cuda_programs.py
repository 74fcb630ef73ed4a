"""Programs that only CUDA tensors have: devices, streams, generators, mixed precision, operators of
libraries, optimizers on the device.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import threading
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import dynamo
from inductor.runtime import cache, driver
from tests.gpu.stand_in import launching
from tests.gpu.stand_in.harness import DEVICE, GRAPHS, Program, rand, repeated, same
from tests.inductor.test_operators import tensors_of

CUDA: dict[str, Program] = {}


def program(fn: Program) -> Program:
    CUDA[fn.__name__] = fn
    return fn


@program
def scalars_of_the_cpu() -> None:
    repeated(lambda x, y: (x * y + 1, y + x.sum()), rand(8), torch.tensor(3.0))


@program
def measured_choices_are_remembered() -> None:
    """Of kernels and of a product; by another compile too, which has no plan."""
    times, before = [], driver.Nvidia.time

    def time(self: Any, call: Any) -> float:
        times.append(before(self, call))
        return times[-1]

    def fn(x: Any, w: Any) -> Any:
        return torch.softmax(torch.relu(x @ w), -1)

    few = mock.patch.multiple(driver, ROUNDS=1, CALLS=1)
    with few, mock.patch.object(driver.Nvidia, "time", time), torch.no_grad():
        x, w = rand(8, 16), rand(16, 40)
        for turn in range(2):
            dynamo.reset()
            times.clear()
            same(dynamo.compile(fn, mode="max-autotune-no-cudagraphs")(x, w), fn(x, w))
            assert bool(times) == (turn == 0), times
            choices = list((cache.store().root / "choices").rglob("*.json"))
            assert len(choices) >= 2, choices
            shutil.rmtree(cache.store().root / "plans", ignore_errors=True)


@program
def data_of_the_cpu_are_written() -> None:
    def fn(x: Any, y: Any) -> Any:
        x.copy_(y)
        return x + 1

    repeated(fn, rand(8), torch.randn(8))


@program
def results_go_to_the_cpu() -> None:
    repeated(lambda x: ((x * 2).cpu(), x.sum().to("cpu") + 1), rand(8))


@program
def pinned_inputs() -> None:
    def fn(x: Any) -> Any:
        return x.to(DEVICE, non_blocking=True) * 2 + 1

    run, x = dynamo.compile(fn), torch.randn(9).pin_memory()
    same(run(x), fn(x))


@program
def the_second_device() -> None:
    def fn(x: Any) -> Any:
        return torch.softmax(x * 2, -1) + torch.arange(6, device=x.device)

    run = dynamo.compile(fn)
    for number in (1, 0, 1):
        x = rand(5, 6).to(f"cuda:{number}")
        same(run(x), fn(x))
    with torch.cuda.device(1):
        made = dynamo.compile(lambda: torch.ones(3, device="cuda") * 2)()
        assert made.device == torch.device("cuda", 1) and torch.cuda.current_device() == 1
    launching.check()


@program
def devices_that_a_program_chooses() -> None:
    def fn(x: Any) -> Any:
        with torch.cuda.device(1):
            y = torch.ones(4, device="cuda")
        return x.to("cuda:1") + y, torch.zeros(2, device="cuda")

    run, x = dynamo.compile(fn), rand(4)
    same(run(x), fn(x))


@program
def streams() -> None:
    def fn(x: Any) -> Any:
        return torch.softmax(x, -1) * 2

    for options in ({}, GRAPHS):
        dynamo.reset()
        run, side, x = dynamo.compile(fn, **options), torch.cuda.Stream(), rand(6, 7)
        want = fn(x)
        for turn in range(6):
            with torch.cuda.stream(side) if turn % 2 else contextlib.nullcontext():
                result = run(x)
                result.record_stream(side)
                same(result, want)
            del result


@program
def streams_inside() -> None:
    side = torch.cuda.Stream()

    def fn(x: Any) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        return y + 1

    repeated(fn, rand(8))


@program
def events_and_synchronization() -> None:
    def fn(x: Any) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y = x * 2
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 0
        return y + 1

    repeated(fn, rand(8))


@program
def threads() -> None:
    run = dynamo.compile(lambda x: torch.relu(x) + 1, **GRAPHS)
    wrong: list[Any] = []

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(5):
                    x = torch.randn(64, device=DEVICE)
                    same(run(x), torch.relu(x) + 1)
        except BaseException as error:
            wrong.append(error)

    team = [threading.Thread(target=work) for _ in range(2)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    if wrong:
        raise wrong[0]


@program
def dropout_and_random_numbers() -> None:
    repeated(lambda x: F.dropout(x, 0.5, training=True) + torch.rand_like(x), rand(50))
    repeated(lambda x: x + torch.randn(5, device=DEVICE) + torch.bernoulli(x.sigmoid()), rand(5))


@program
def random_numbers_go_on() -> None:
    def fn(x: Any) -> Any:
        return F.dropout(x, 0.5, training=True)

    for options in ({}, GRAPHS):
        dynamo.reset()
        run, x, found = dynamo.compile(fn, **options), torch.ones(64, device=DEVICE), []
        for call in (run, fn):
            torch.manual_seed(7)
            found.append([call(x).clone() for _ in range(5)])
            found[-1].append(torch.cuda.get_rng_state())
        same(*found)


@program
def seeds_inside() -> None:
    def fn(x: Any) -> Any:
        y = F.dropout(x, 0.5)
        torch.manual_seed(4)
        y = y + torch.rand(6, device=DEVICE)
        torch.cuda.manual_seed_all(5)
        return y + torch.rand(6, device=DEVICE), torch.rand(2)

    repeated(fn, rand(6))


@program
def states_of_generators() -> None:
    def fn(x: Any) -> Any:
        state = torch.cuda.get_rng_state()
        y = F.dropout(x, 0.5)
        torch.cuda.set_rng_state(state)
        return y, F.dropout(x, 0.5)

    repeated(fn, rand(6))


@program
def checkpointed() -> None:
    from torch.utils.checkpoint import checkpoint

    net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Tanh())
    net = net.to(DEVICE)

    def fn(x: Any) -> Any:
        return checkpoint(net, x * 2, use_reentrant=False) + x

    run, found = dynamo.compile(fn), []
    for call in (run, fn):
        torch.manual_seed(1)
        x = rand(4, 6).requires_grad_()
        out = call(x)
        out.square().sum().backward()
        found.append([out, x.grad, *(p.grad.clone() for p in net.parameters())])
        net.zero_grad()
    same(*found, rtol=1e-4, atol=1e-5)


@program
def generators() -> None:
    def fn(x: Any, g: Any) -> Any:
        return x + torch.rand(4, device=DEVICE, generator=g)

    run, found = dynamo.compile(fn), []
    for call in (run, fn):
        own = torch.Generator(DEVICE).manual_seed(5)
        found.append([call(rand(4), own) for _ in range(3)])
    same(*found)


def mixed(dtype: torch.dtype) -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(288, 5), torch.nn.Softmax(-1),
    ).to(DEVICE)  # fmt: skip
    other, x = copy.deepcopy(net), rand(2, 3, 8, 8)
    run, found = dynamo.compile(net), []
    for model, call in ((net, run), (other, other)):
        for _ in range(2):
            with torch.autocast("cuda", dtype=dtype):
                result = call(x)
                loss = result.square().sum()
            loss.backward()
        found.append([result, loss, *(p.grad for p in model.parameters()), *model.buffers()])
    same(*found, rtol=3e-2, atol=3e-2)


CUDA["autocast_bfloat16"] = partial(mixed, torch.bfloat16)
CUDA["autocast_float16"] = partial(mixed, torch.float16)


@program
def autocast_inside() -> None:
    w = rand(8, 8)

    def fn(x: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = x @ w
        return y.float() + 1, y

    run, x = dynamo.compile(fn), rand(4, 8)
    same(run(x), fn(x), rtol=2e-2, atol=2e-2)


@program
def attention_of_torchs_choice() -> None:
    """By the kernel that eager takes, which torch prefers from its first attention on: if that is
    in a capture, too."""
    q, k = rand(2, 8, 4, 64, dtype=torch.bfloat16), rand(2, 8, 2, 64, dtype=torch.bfloat16)
    q, k = q.transpose(1, 2), k.transpose(1, 2)

    def fn(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) * 2

    taken = dynamo.explain(fn)(q, k, k + 1).fallback_ops
    assert any("cudnn_attention" in name for name in taken), taken
    same(dynamo.compile(fn)(q, k, k + 1), fn(q, k, k + 1), rtol=2e-2, atol=2e-2)
    chosen = torch._fused_sdp_choice(q, k, k, None, 0.0, True, enable_gqa=True)
    assert torch.nn.attention.SDPBackend(chosen).name == "CUDNN_ATTENTION"


@program
def attention_of_repeated_keys() -> None:
    """Heads that share keys, as models repeat them for a mask's sake, by kernels without copies."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k = rand(2, 8, 6, 64, dtype=torch.bfloat16), rand(2, 8, 2, 64, dtype=torch.bfloat16)

    def repeated_heads(x: Any) -> Any:
        return x[:, :, None].expand(2, 2, 3, 8, 64).reshape(2, 6, 8, 64)

    def fn(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q * 2, k + 1, v * v))
        return F.scaled_dot_product_attention(q, repeated_heads(k), repeated_heads(v))

    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for options in ({}, GRAPHS):
            with sdpa_kernel(backend):
                run = dynamo.compile(fn, **options)
                for turn in range(3):
                    same(run(q, k, k + turn), fn(q, k, k + turn), rtol=2e-2, atol=2e-2)
                notes = dynamo.explain(fn)(q, k, k).notes
                assert any("read by all heads" in note for note in notes), notes
                # A backward has gradients of each repetition.
                given = [x.clone().requires_grad_() for x in (q, k, k + 1)]
                found = [
                    torch.autograd.grad(call(*given).float().mean(), given) for call in (run, fn)
                ]
                same(*found, rtol=4e-2, atol=1e-3)


@program
def group_norm_of_channels_innermost() -> None:
    """In one part of each group, and in several."""
    for size, groups in (((2, 12, 5, 5), 4), ((1, 20, 64, 64), 2)):
        x = rand(*size).to(memory_format=torch.channels_last)
        w, b = rand(size[1]), rand(size[1]) + 1

        def fn(x: Any, w: Any, b: Any, groups: int = groups) -> Any:
            return F.silu(F.group_norm(x * 2 + 1, groups, w, b))

        same(dynamo.compile(fn)(x, w, b), fn(x, w, b), rtol=1e-4, atol=1e-4)


def attention(dtype: torch.dtype, backend: Any, dropout: float, masked: bool) -> None:
    from torch.nn.attention import sdpa_kernel

    q, k, v = (rand(2, 3, 8, 16, dtype=dtype).add_(n / 7).requires_grad_() for n in range(3))
    mask = rand(8, 8, dtype=dtype) if masked else None

    def fn(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(
            q * 2, k, v, attn_mask=mask, dropout_p=dropout, is_causal=not masked
        )

    with sdpa_kernel(backend):
        for options in ({}, GRAPHS):
            dynamo.reset()
            run = dynamo.compile(fn, **options)
            for turn in range(3):
                found = []
                for call in (run, fn):
                    torch.manual_seed(turn)
                    out = call(q, k, v)
                    found.append([out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))])
                same(*found, rtol=2e-2, atol=2e-2)
                del found, out


for _name, _dtypes, _masks in (
    ("FLASH_ATTENTION", (torch.bfloat16, torch.float16), (False,)),
    ("EFFICIENT_ATTENTION", (torch.float32, torch.float16), (False, True)),
    ("CUDNN_ATTENTION", (torch.bfloat16,), (False, True)),
    ("MATH", (torch.float32,), (False, True)),
):
    for _dtype in _dtypes:
        for _masked in _masks:
            for _dropout in (0.0,) if "CUDNN" in _name else (0.0, 0.3):
                _kind = str(_dtype).removeprefix("torch.")
                _label = f"{_name.lower()} {_kind} {'masked' if _masked else 'causal'} {_dropout}"
                CUDA[_label] = partial(
                    attention, _dtype, getattr(torch.nn.attention.SDPBackend, _name), _dropout,
                    _masked,
                )  # fmt: skip


def optimizer(kind: str, scaled: bool, **options: Any) -> None:
    nets, found = [torch.nn.Linear(6, 5).to(DEVICE)], []
    nets.append(copy.deepcopy(nets[0]))
    x = rand(4, 6)
    for compiled, net in zip((True, False), nets, strict=True):
        made = getattr(torch.optim, kind)(net.parameters(), lr=0.1, **options)
        scaler = torch.amp.GradScaler(DEVICE, enabled=scaled, init_scale=16.0)

        def step(x: Any, net: Any = net, made: Any = made, scaler: Any = scaler) -> Any:
            made.zero_grad()
            loss = net(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(made)
            scaler.update()
            return loss

        run = dynamo.compile(step) if compiled else step
        losses = [run(x * (float("inf") if scaled and turn == 2 else 1)) for turn in range(4)]
        state = [t for p in made.state.values() for t in p.values()]
        found.append([losses, list(net.parameters()), state])
    same(*found, rtol=1e-4, atol=1e-5)


for _kind in ("SGD", "Adam", "AdamW", "Adagrad"):
    for _scaled in (False, True):
        for _way in ("foreach",) if _kind == "Adagrad" else ("fused", "foreach"):
            CUDA[f"{_kind} {_way}{' scaled' if _scaled else ''}"] = partial(
                optimizer, _kind, _scaled, **{_way: True}
            )
CUDA["Adam capturable"] = partial(optimizer, "Adam", False, capturable=True)
CUDA["SGD momentum fused"] = partial(optimizer, "SGD", False, momentum=0.9, fused=True)


def recurrent(
    kind: str, cell: bool = False, packed: bool = False, dynamic: bool = False, **options: Any
) -> None:
    net = getattr(torch.nn, kind)(6, 8, **options).to(DEVICE)
    other = copy.deepcopy(net)
    run, found = dynamo.compile(net, fullgraph=not packed, dynamic=dynamic or None), []
    for time in (4, 5, 7) if dynamic else (4,):
        x = rand(3, 6) if cell else rand(time, 3, 6)
        found = []
        for model, call in ((net, run), (other, other)):
            torch.manual_seed(2)
            leaf = x.clone().requires_grad_()
            given = pack_padded_sequence(leaf, [4, 3, 1]) if packed else leaf
            results = [t for t in tensors_of(call(given)) if t.requires_grad]
            sum(r.square().sum() for r in results).backward()
            found.append([results, leaf.grad, *(p.grad for p in model.parameters())])
            model.zero_grad()
        same(*found, rtol=1e-3, atol=1e-4)
    if packed:
        return
    net.eval(), other.eval()
    with torch.no_grad():
        same(run(x), other(x), rtol=1e-3, atol=1e-4)


for _kind in ("LSTM", "GRU", "RNN"):
    CUDA[_kind] = partial(recurrent, _kind)
    CUDA[f"{_kind} two layers"] = partial(
        recurrent, _kind, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2
    )
    CUDA[f"{_kind} of varying sizes"] = partial(recurrent, _kind, num_layers=2, dynamic=True)
    CUDA[f"{_kind} of packed sequences"] = partial(recurrent, _kind, packed=True)
    CUDA[f"{_kind}Cell"] = partial(recurrent, f"{_kind}Cell", cell=True)
CUDA["LSTM projected"] = partial(recurrent, "LSTM", proj_size=5)


@program
def recurrent_layers_in_a_model() -> None:
    """Seeds in between begin the dropout anew; frozen weights, states of the program's."""
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = torch.nn.GRU(6, 6, 3, dropout=0.4).to(DEVICE)
        net.weight_hh_l0.requires_grad_(False)

        def fn(x: Any, h: Any, net: Any = net) -> Any:
            y, h = net(x * 2, h)
            y, h = net(y + 1, h)
            return y.relu(), h

        run = dynamo.compile(fn, fullgraph=True) if compiled else fn
        made: list[Any] = []
        for turn in range(4):
            if turn % 2 == 0:
                torch.manual_seed(turn)
            h = rand(3, 2, 6).requires_grad_()
            y, last = run(rand(4, 2, 6), h)
            (y.sum() + last.square().sum()).backward()
            made += [y, last, h.grad]
        found.append([made, *(p.grad for p in net.parameters() if p.requires_grad)])
    same(*found, rtol=1e-3, atol=1e-4)


@program
def recurrent_layers_that_cannot_be_differentiated() -> None:
    net = torch.nn.RNN(4, 4).to(DEVICE).eval()
    try:
        dynamo.compile(net)(rand(3, 2, 4))[0].sum().backward()
    except RuntimeError as error:
        assert "training mode" in str(error), error
    else:
        raise AssertionError("no error")


@program
def convolutions() -> None:
    def fn(x: Any, w: Any, d: Any, t: Any) -> Any:
        y = F.conv2d(x, w, padding=1)
        return F.conv2d(y, d, groups=4, padding=1), F.conv_transpose2d(y, t, stride=2)

    x = rand(2, 3, 9, 9).requires_grad_()
    w, d, t = rand(4, 3, 3, 3), rand(4, 1, 3, 3), rand(4, 2, 2, 2)
    for layout in (torch.contiguous_format, torch.channels_last):
        dynamo.reset()
        run = dynamo.compile(fn)
        given = x.detach().contiguous(memory_format=layout).requires_grad_()
        found = []
        for call in (run, fn):
            parts = call(given, w, d, t)
            found.append([parts, torch.autograd.grad(sum(p.sum() for p in parts), given)])
        same(*found, rtol=1e-3, atol=1e-3)


@program
def libraries_by_name() -> None:
    x, w, b = rand(2, 4, 5, 5), rand(4).abs(), rand(4)
    mean, var = torch.zeros(4, device=DEVICE), torch.ones(4, device=DEVICE)

    def norm(x: Any, mean: Any, var: Any) -> Any:
        return torch.cudnn_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)[0] * 2

    repeated(norm, x, mean, var)
    k = rand(3, 4, 3, 3)

    def convolved(x: Any) -> Any:
        return torch.cudnn_convolution(x, k, [1, 1], [1, 1], [1, 1], 1, False, True, False) + 1

    repeated(convolved, x)


@program
def embeddings() -> None:
    table, index = rand(10, 4).requires_grad_(), torch.tensor([[1, 2, 9], [2, 2, 0]], device=DEVICE)
    run = dynamo.compile(lambda t, i: F.embedding(i, t, padding_idx=2) * 2)
    found = []
    for call in (run, lambda t, i: F.embedding(i, t, padding_idx=2) * 2):
        out = call(table, index)
        found.append([out, torch.autograd.grad(out.square().sum(), table)])
    same(*found)
    repeated(lambda t, i: F.embedding_bag(i, t, mode="mean"), rand(10, 4), index)


@program
def writes_by_index() -> None:
    index = torch.tensor([1, 3, 1], device=DEVICE)

    def fn(x: Any, v: Any) -> Any:
        x.index_put_((index,), v, accumulate=True)
        y = x.clone().scatter_reduce(0, index[:, None].expand(3, 4), v, "amax")
        return y, x.index_add(0, index, v), x.scatter_add(0, index[:, None].expand(3, 4), v)

    repeated(fn, rand(5, 4), rand(3, 4))


@program
def sorting_and_choosing() -> None:
    def fn(x: Any) -> Any:
        return (
            x.sort(-1, descending=True),
            x.topk(2),
            x.argsort(dim=0, stable=True),
            x.cumsum(1),
            x.median(1),
        )

    repeated(fn, rand(5, 7))


@program
def data_sizes() -> None:
    repeated(lambda x: (x[x > 0] * 2, (x > 0.5).nonzero()), rand(30))
    run = dynamo.compile(lambda x: x * x.sum().item())
    same(run(rand(4)), rand(4) * rand(4).sum().item())


@program
def decompositions_of_matrices() -> None:
    def fn(x: Any) -> Any:
        u, s, v = torch.linalg.svd(x + 1, full_matrices=False)
        q, r = torch.linalg.qr(x)
        return u * 2, s, v + 1, (v.t() @ v), q + 1, r * 2, torch.linalg.inv(x @ x.T + 3)

    repeated(fn, rand(5, 4) if False else rand(4, 4))
    repeated(lambda x: [t * 2 for t in torch.linalg.svd(x, full_matrices=False)], rand(6, 4))


@program
def memory_goes_back() -> None:
    for options in ({}, GRAPHS):
        dynamo.reset()
        run = dynamo.compile(lambda x: (torch.softmax(x, -1) * 2).sum(0), **options)
        x = rand(40, 50)
        for _ in range(4):
            run(x)
        before = torch.cuda.memory_allocated()
        for _ in range(8):
            run(x)
        assert torch.cuda.memory_allocated() <= before


@program
def results_that_live_on() -> None:
    run, held = dynamo.compile(lambda x: torch.relu(x * 2 + 1), **GRAPHS), []
    for step in range(6):
        x = torch.full((100,), float(step), device=DEVICE)
        held.append((run(x), torch.full((100,), 2.0 * step + 1, device=DEVICE)))
        for result, want in held:
            same(result, want)


@program
def too_much_memory() -> None:
    run = dynamo.compile(lambda x: x.expand(1 << 22, 1 << 20).contiguous())
    try:
        run(rand(1))
    except torch.OutOfMemoryError:
        return
    raise AssertionError("no error")


@program
def a_device_beside_another() -> None:
    def fn(x: Any, y: Any) -> Any:
        return x + y

    try:
        dynamo.compile(fn)(rand(4), torch.randn(4))
    except RuntimeError as error:
        assert "same device" in str(error), error
        return
    raise AssertionError("no error")


@program
def default_device() -> None:
    def fn(x: Any) -> Any:
        return torch.zeros(3) + x + torch.tensor([1.0, 2.0, 3.0])

    with torch.device(DEVICE):
        run = dynamo.compile(fn)
        same(run(rand(3)), fn(rand(3)))


@program
def static_graph() -> None:
    found = []
    for compiled in (True, False):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        net = net.to(DEVICE)
        made = torch.optim.AdamW(net.parameters(), lr=0.1)
        x, y = rand(4, 6), torch.tensor([0, 1, 2, 0], device=DEVICE)
        if compiled:
            step = Step(net, made)
            losses = [step(x, y).detach().clone() for _ in range(3)]
        else:
            losses = []
            for _ in range(3):
                made.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                made.step()
                losses.append(loss.detach())
        found.append([losses, list(net.parameters())])
    same(*found, rtol=1e-4, atol=1e-4)


class Step(dynamo.Graph):
    def __init__(self, net: Any, made: Any) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(made)

    def build(self, x: Any, y: Any) -> Any:
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        return loss
