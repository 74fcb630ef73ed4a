"""Derived statics: whatever is made of parameters and kept between calls, a change of a parameter
is seen by the next call, however it came about.
"""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo
from dynamo.api.compile import compile_fresh
from inductor.runtime.link import Derived
from inductor.runtime.plan import (
    AtenStep,
    BufferSpec,
    DerivationSpec,
    OutputSpec,
    PlanError,
    PlanSpec,
    TensorSpec,
)

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def settled(module):
    """In eval mode, with statistics and affine parameters that are not those of initialisation."""
    torch.manual_seed(0)
    for one in module.modules():
        if isinstance(one, nn.modules.batchnorm._BatchNorm):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 2)
            if one.affine:
                nn.init.uniform_(one.weight, 0.5, 2)
                nn.init.normal_(one.bias)
    return module.eval()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        self.head_norm = nn.BatchNorm1d(4)

    def forward(self, x):
        y = F.leaky_relu(self.norm(self.conv(x)))
        y = F.leaky_relu(self.second_norm(self.second(y)) + y)
        return self.head_norm(self.head(y.mean((2, 3))))


def image(batch=2):
    return torch.randn(batch, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def notes(context):
    return [note for r in context.records for g in r.graphs for note in g.report["notes"]]


def times_made(context):
    """How often the tensors of the only graph that derives some were made."""
    (note,) = [note for note in notes(context) if note.startswith("derived")]
    return int(note.split("made ")[1].split()[0])


@pytest.fixture(scope="module")
def pair():
    """A net and its compiled form."""
    net = settled(Net())
    with dynamo.config.patch(recompile_limit=len(CHANGES)):  # for every object that is replaced
        yield net, dynamo.compile(net), copy.deepcopy(net.state_dict())


@pytest.fixture
def kept(pair):
    """A net in its first state, its compiled form, which has derived from that; a comparison."""
    net, compiled, state = pair
    net.to(memory_format=torch.contiguous_format).load_state_dict(state)
    net.norm.eps = 1e-5

    def compare(x=None):
        x = image() if x is None else x
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x), **CLOSE)

    compare()
    return net, compiled, compare


def in_inference_mode(net):
    with torch.inference_mode():
        net.conv.weight.mul_(2)


def by_an_optimizer(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(image()).square().sum().backward()
    optimizer.step()


def by_fused_adam(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.5, fused=True)
    net(image()).square().sum().backward()
    optimizer.step()


def in_training(net):
    """The statistics of batch norm move."""
    net.train()
    with torch.no_grad():
        net(image() * 3)
    net.eval()


def loaded(net, **options):
    other = {
        key: torch.rand_like(value) + 0.5 for key, value in net.state_dict().items() if value.dim()
    }
    net.load_state_dict(other, strict=False, **options)


def through_numpy(net):
    array = net.conv.weight.detach().numpy()
    np.multiply(array, 2, out=array)


def by_storage(net):
    storage = net.conv.weight.untyped_storage()
    storage.copy_((net.conv.weight.detach() * 3).untyped_storage())


def resized_storage(net):
    """As sharding of parameters does: let the memory go, take it again, fill it."""
    weight, storage = net.conv.weight, net.conv.weight.untyped_storage()
    values, size = weight.detach() * 3, storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    weight.data.copy_(values)


def set_to(net):
    with torch.no_grad():
        net.conv.weight.set_(torch.randn_like(net.conv.weight))


def swapped(net):
    other = settled(Net())
    net.conv.weight.data, other.conv.weight.data = other.conv.weight.data, net.conv.weight.data
    with torch.no_grad():
        other.conv.weight.zero_()


def by_vector(net):
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector * 1.5, net.parameters())


def no_grad(write):
    def change(net):
        with torch.no_grad():
            write(net)

    return change


CHANGES = {
    "in place": no_grad(lambda net: net.conv.weight.mul_(2)),
    "one element": no_grad(lambda net: net.conv.weight[3, 1, 2, 0].add_(5)),
    "a view": no_grad(lambda net: net.second.weight.view(-1)[5:9].fill_(9)),
    "out=": no_grad(lambda net: torch.mul(net.second.bias, 3, out=net.second.bias)),
    "foreach": no_grad(lambda net: torch._foreach_mul_(list(net.parameters()), 1.5)),
    "inference mode": in_inference_mode,
    "data in place": lambda net: net.conv.weight.data.mul_(2),
    "data negated": lambda net: net.conv.weight.data.neg_(),
    "data of statistics": lambda net: net.norm.running_var.data.mul_(2),
    "data of one channel": lambda net: net.norm.weight.data[5].add_(1),
    "data of one filter": lambda net: net.second.weight.data[6].add_(1),
    "data of linear": lambda net: net.head.weight.data.add_(1),
    "data assigned": lambda net: setattr(net.conv.weight, "data", torch.randn(8, 3, 3, 3)),
    "data swapped": swapped,
    "set_": set_to,
    "storage": by_storage,
    "storage resized": resized_storage,
    "numpy": through_numpy,
    "load_state_dict": loaded,
    "load_state_dict, assigned": lambda net: loaded(net, assign=True),
    "optimizer": by_an_optimizer,
    "fused optimizer": by_fused_adam,
    "vector": by_vector,
    "training": in_training,
    "buffer": lambda net: net.second_norm.running_mean.add_(1),
    "buffer replaced": lambda net: setattr(net.norm, "running_mean", torch.randn(8)),
    "parameter replaced": lambda net: setattr(net.head, "weight", nn.Parameter(torch.randn(4, 8))),
    "module replaced": lambda net: setattr(net, "second", nn.Conv2d(8, 8, 3, padding=1)),
    "statistics reset": lambda net: net.norm.reset_running_stats(),
    "channels last": lambda net: net.to(memory_format=torch.channels_last),
    "shared": lambda net: setattr(net.second, "weight", nn.Parameter(net.second.weight.data)),
    "shared memory": lambda net: net.share_memory().conv.weight.data.mul_(2),
    "moved": lambda net: net.double().float().conv.weight.data.mul_(2),
    "eps": lambda net: setattr(net.norm, "eps", 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name, kept):
    net, _, compare = kept
    before = net(image())
    CHANGES[name](net)
    if name not in ("channels last", "shared"):
        assert not torch.allclose(net(image()), before, **CLOSE)
    compare()
    compare()


def test_changes_before_every_call(kept):
    net, _, compare = kept
    for number in range(4):
        net.second.weight.data.mul_(1 + number)
        compare()


def test_requires_grad_and_training_between_calls(kept):
    net, compiled, compare = kept
    net.requires_grad_(False)
    torch.testing.assert_close(compiled(image()), net(image()), **CLOSE)  # grad mode is on
    net.conv.weight.mul_(2)
    torch.testing.assert_close(compiled(image()), net(image()), **CLOSE)
    net.requires_grad_(True)
    for module in (compiled, net):
        net.zero_grad()
        module(image()).square().sum().backward()
    compare()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(image()), net(image()), **CLOSE)
        net.conv.weight.mul_(2)
        torch.testing.assert_close(compiled(image()), net(image()), **CLOSE)
    net.train()
    compare()
    net.eval()
    compare()


def test_calls_by_threads_at_once(kept):
    """Each sees one state or the other, while the weights change."""
    net, compiled, compare = kept
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.conv.weight.mul_(2)
        expected = [one(image()) for one in (net, other)]
        failures = []

        def call():
            with torch.no_grad():
                for _ in range(50):
                    result = compiled(image())
                    if not any(torch.allclose(result, e, **CLOSE) for e in expected):
                        failures.append(result)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            time.sleep(0.001)
            net.conv.weight.data, other.conv.weight.data = (
                other.conv.weight.data,
                net.conv.weight.data,
            )
        for thread in threads:
            thread.join()
    assert not failures
    compare()


# name -> module before a batch norm, the norm, an input's size
FOLDS = {
    "1d": (nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), (2, 3, 9)),
    "2d, no bias": (nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), (2, 3, 9, 9)),
    "3d": (nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), (1, 2, 5, 5, 5)),
    "no affine": (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False), (2, 3, 9, 9)),
    "grouped": (nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), (2, 4, 9, 9)),
    "depthwise": (nn.Conv2d(4, 8, 3, 2, 1, 1, 4), nn.BatchNorm2d(8), (2, 4, 9, 9)),
    "dilated": (nn.Conv2d(3, 8, 3, 1, 2, 2), nn.BatchNorm2d(8), (2, 3, 9, 9)),
    "reflected": (nn.Conv2d(3, 8, 3, padding_mode="reflect"), nn.BatchNorm2d(8), (2, 3, 9, 9)),
    "transposed": (nn.ConvTranspose2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8), (2, 3, 5, 5)),
    "transposed 1d": (nn.ConvTranspose1d(3, 8, 3), nn.BatchNorm1d(8), (2, 3, 5)),
    "transposed 3d": (nn.ConvTranspose3d(2, 4, 2), nn.BatchNorm3d(4), (1, 2, 3, 3, 3)),
    "transposed, grouped": (
        nn.ConvTranspose2d(6, 8, 3, 2, 1, 1, groups=2),
        nn.BatchNorm2d(8),
        (2, 6, 5, 5),
    ),
    "linear": (nn.Linear(5, 8), nn.BatchNorm1d(8), (4, 5)),
    "linear, no bias": (nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), (4, 5)),
    "double": (nn.Conv2d(3, 8, 3).double(), nn.BatchNorm2d(8).double(), (2, 3, 9, 9)),
}  # fmt: skip


def check_module(module, x, **options):
    """Eager's values, dtype and strides; returns the reports."""
    compiled, context = compile_fresh(module, **options)
    with torch.no_grad():
        for _ in range(2):
            got, expected = compiled(x), module(x)
            torch.testing.assert_close(got, expected, **CLOSE)
            assert got.stride() == expected.stride()
    return context


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold(name):
    product, norm, size = FOLDS[name]
    module = settled(nn.Sequential(product, norm))
    context = check_module(module, torch.randn(size, dtype=product.weight.dtype))
    assert "fold: 1 batch norms in the weights before them" in notes(context)
    assert times_made(context) == 1


def test_a_fold_of_sizes_that_vary():
    module = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()))
    compiled, context = compile_fresh(module, dynamic=True)
    with torch.no_grad():
        for size in (9, 12, 10):
            x = torch.randn(2, 3, size, size + 1)
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
        assert times_made(context) == 1
        module[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
        assert times_made(context) == 2


class Twice(nn.Module):
    """The convolution's result is read by others too."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y) + y


class Shared(nn.Module):
    """One weight, two batch norms; and a norm after something else than a product."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x):
        return self.norms[2](self.norms[1](self.conv(self.norms[0](self.conv(x)))) + x)


class Made(nn.Module):
    """A weight that is computed from the input, another in the graph itself."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(F.conv2d(x, self.conv.weight * x.mean()))


def layers(*epilogues, **options):
    """Convolutions with an operator after each."""
    parts, channels = [], 3
    for epilogue in epilogues:
        parts += [nn.Conv2d(channels, 8, 3, padding=1, **options), epilogue]
        channels = 8
    return nn.Sequential(*parts)


EPILOGUES = {
    "smooth": (nn.SiLU(), nn.Hardswish(), nn.Sigmoid(), nn.Tanh(), nn.GELU(), nn.GELU("tanh")),
    "slopes": (nn.LeakyReLU(0.2), nn.LeakyReLU()),
    "of a number from NaN": (nn.ReLU(), nn.ReLU6(), nn.Hardsigmoid(), nn.Hardtanh(-0.5, 0.5)),
    "none": (nn.Identity(), nn.Identity()),
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("last", [torch.contiguous_format, torch.channels_last])
def test_packed_convolutions(name, last):
    module = layers(*EPILOGUES[name]).to(memory_format=last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=last)
    context = check_module(module, x)
    count = len(EPILOGUES[name])
    after = f", which computes {count} operators after them" if name in ("smooth", "slopes") else ""
    packed = f"pack: weights of {count} convolutions in the library's layout{after}"
    assert packed in notes(context)
    compiled = dynamo.compile(module)
    special = x.clone()
    special[0, 1, 4, 4], special[0, 0, 0, 0], special[1, 2, 8, 8] = torch.nan, torch.inf, -torch.inf
    with torch.no_grad():
        for number in range(2):
            got = compiled(special)
            torch.testing.assert_close(got, module(special), equal_nan=True, **CLOSE)
            module[2].weight.data.mul_(2)
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)


class Kinds(nn.Module):
    """Convolutions of every kind; one weight for two sizes of images, another for two norms."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, (3, 1), 2, (1, 0), bias=False)
        self.grouped = nn.Conv2d(8, 8, 3, 1, "same", groups=4)
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        y = y + F.silu(self.norms[1](self.pointwise(self.depthwise(self.grouped(y)))))
        z = F.max_pool2d(F.hardswish(self.norms[2](self.pointwise(y))), 2)
        y = self.norms[3](self.up(self.pointwise(z))) + self.pointwise(y).sigmoid()[..., :8, :8]
        return F.conv2d(y, self.pointwise.weight, self.norms[0].bias)


def test_convolutions_of_every_kind():
    module = settled(Kinds())
    compiled, context = compile_fresh(module)
    x = torch.randn(2, 3, 17, 8 + 9)
    with torch.no_grad():
        for change in (False, False, True):
            if change:
                module.pointwise.weight.mul_(2)
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    assert times_made(context) == 2
    generated, library = [note for note in notes(context) if note.startswith("pack")]
    assert "computes 4 convolutions of one pixel, as products, 1 depthwise" in generated
    assert library.startswith("pack: weights of 2 convolutions"), library


def test_one_packed_weight_for_equal_images():
    weight = nn.Parameter(torch.randn(8, 8, 3, 3))

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            for _ in range(3):
                x = F.conv2d(x, self.weight, None, 1, 1)
            return x

    context = check_module(Again(), torch.randn(2, 8, 9, 9))
    assert any(note.startswith("derived: 1 tensor of") for note in notes(context))


@pytest.mark.parametrize("found", ["disabled", "without packing"])
def test_without_the_library(found, monkeypatch):
    """Batch norm is folded all the same."""
    module = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU()))
    if found == "without packing":
        monkeypatch.setattr("inductor.pack._KERNELS", (("mkldnn::unknown", "CPU"),))
    with torch.backends.mkldnn.flags(enabled=found != "disabled"):
        context = check_module(module, torch.randn(2, 3, 9, 9))
    assert not [note for note in notes(context) if note.startswith("pack")]
    assert times_made(context) == 1


def of_dtype(dtype):
    return settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))).to(dtype)


# name -> module, input, how often it folds
OTHERS = {
    "read twice": (settled(Twice()), torch.randn(2, 3, 9, 9), 0),
    "shared": (settled(Shared()), torch.randn(2, 8, 9, 9), 2),
    "made weight": (settled(Made()), torch.randn(2, 3, 9, 9), 0),
    "bfloat16": (of_dtype(torch.bfloat16), torch.randn(2, 3, 9, 9).bfloat16(), 0),
    "no norm": (nn.Conv2d(3, 8, 3), torch.randn(2, 3, 9, 9), None),
    "images alone": (settled(nn.BatchNorm2d(3)), torch.randn(2, 3, 9, 9), 0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_fold(name):
    module, x, folds = OTHERS[name]
    context = check_module(module, x)
    found = [note.split()[1] for note in notes(context) if note.startswith("fold")]
    assert found == ([] if folds is None else [str(folds)])


def test_under_modes_of_the_program():
    """Deriving takes no random numbers, and heeds neither autocast nor the default device."""
    module = settled(nn.Sequential(nn.ConvTranspose2d(3, 8, 3), nn.BatchNorm2d(8), Norms()))
    compiled, x = dynamo.compile(module), torch.randn(2, 3, 126, 126)
    results = []
    for call in (module, compiled):
        torch.manual_seed(0)
        with torch.no_grad(), torch.device("meta"):
            results.append((*call(x), torch.rand(4, device="cpu")))
    torch.testing.assert_close(*results, **CLOSE)
    with torch.no_grad(), torch.autocast("cpu"):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x), rtol=0.05, atol=0.05)
        module[2].g.mul_(2)
        torch.testing.assert_close(compiled(x), module(x), rtol=0.05, atol=0.05)


class StridedBias(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.bias = nn.Parameter(torch.randn(32))
        self.part = part
        self.last = nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return self.last(F.silu(F.conv2d(x, self.weight, self.part(self.bias))))


@pytest.mark.parametrize(
    "part",
    [lambda b: b[:16:2], lambda b: b[3].expand(8), lambda b: b[4:12], lambda b: b.view(8, 4)[:, 1]],
)
def test_a_bias_with_strides(part):
    check_module(StridedBias(part).eval(), image())


def test_without_packing():
    module = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    context = check_module(module, torch.randn(2, 3, 9, 9), options={"pack": False})
    assert not [note for note in notes(context) if note.startswith(("fold", "derived"))]


class Norms(nn.Module):
    """A weight computed from parameters, and results that are the caller's own."""

    def __init__(self):
        super().__init__()
        self.g, self.v = nn.Parameter(torch.rand(64, 1)), nn.Parameter(torch.randn(64, 128))

    def forward(self, x):
        weight = self.g * self.v / self.v.norm(dim=1, keepdim=True)
        return x @ weight.t(), weight


def test_other_values_of_parameters():
    module = Norms()
    compiled, context = compile_fresh(module)
    x = torch.randn(3, 64 * 2)
    with torch.no_grad():
        results = [compiled(x) for _ in range(2)]
        assert times_made(context) == 1
        results[0][1].zero_()  # the caller's, not ours
        for got in (results[1], compiled(x)):
            torch.testing.assert_close(got, module(x))
        module.g.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))
        assert times_made(context) == 2


class Counting(nn.Module):
    """Writes a buffer that it computes from."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.rand(128, 128))

    def forward(self, x):
        y = x @ (self.table * 2)
        self.table += 1
        return y


def test_what_the_graph_writes():
    module, twin = Counting(), Counting()
    twin.load_state_dict(module.state_dict())
    compiled, context = compile_fresh(module)
    x = torch.randn(3, 128)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), twin(x))
    assert not [note for note in notes(context) if note.startswith("derived")]


def test_inference_tensors():
    """Their writes move no version."""
    with torch.inference_mode():
        module = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
        compiled, context = compile_fresh(module)
        x = torch.randn(2, 3, 9, 9)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
            module[0].weight[0, 0, 0, 0] += 1
    assert not [note for note in notes(context) if note.startswith("derived")]


def test_derived_tensors_die_with_the_compiled_code(monkeypatch):
    def recording(self, *sources):
        made = real(self, *sources)
        held.extend(map(weakref.ref, made))
        return made

    held, real = [], Derived.__call__
    monkeypatch.setattr(Derived, "__call__", recording)
    module = settled(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)))
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        compiled(torch.randn(4, 64))
    gc.collect()
    assert held and all(ref() is not None for ref in held)
    del compiled, context, module
    dynamo.reset()
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []


def test_a_call_while_derived_tensors_die(monkeypatch):
    """The end of a tensor may let another thread run, which calls the plan."""

    @torch.no_grad()
    def call():
        results.append(compiled(x))

    def call_elsewhere():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    class Last:
        def __del__(self):
            if active:
                call_elsewhere()

    def calling(self, *sources):
        made = real(self, *sources)
        for tensor in made:
            tensor.last = Last()
        active.append(made)
        if len(active) == 1:
            call_elsewhere()  # derives, too; the call around replaces those tensors
            del active[1:]
        return made

    active, results, real = [], [], Derived.__call__
    monkeypatch.setattr(Derived, "__call__", calling)
    module, x = settled(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))), torch.randn(4, 64)
    compiled, context = compile_fresh(module)
    call_elsewhere()  # guards compare what a thread has set for itself: all calls are of new ones
    active.clear()
    assert [record.recompile_reason for record in context.records] == [None]
    assert len(results) > 2
    with torch.no_grad():
        expected = module(x)
    for result in results:
        torch.testing.assert_close(result, expected)


def test_a_plan_recalled_from_disk(tmp_path, monkeypatch):
    """It derives from the parameters of the module at hand."""
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    stages = []
    for scale in (1, 3):
        module = settled(Net())
        with torch.no_grad():
            module.conv.weight.mul_(scale)
        context = check_module(module, image())
        assert times_made(context) == 1
        stages += [g.report["stages"] for record in context.records for g in record.graphs]
    assert "lower" in stages[0] and "lower" not in stages[1]


def test_a_derivation_that_contradicts_the_plan():
    made = torch.ops.aten.mul.Tensor._schema
    x, product = TensorSpec("x", "float32", (4,), (1,)), ["x", "x"]
    steps = [AtenStep(made.name, "Tensor", [{"buf": name} for name in product], ["y"])]
    buffers = [BufferSpec("y", "float32", (4,), (1,), kind="aten")]
    plan = PlanSpec([x], buffers, steps, [OutputSpec("buffer", "y")])
    values = [TensorSpec("d", "float32", (4,), (1,))]
    spec = PlanSpec(
        [replace(x, static=True)],
        [],
        [],
        [OutputSpec("input", "x")],
        derivation=DerivationSpec(["x"], values, plan),
    )
    assert PlanSpec.from_json(spec.to_json()) == spec
    spec.validate()
    for wrong in (
        replace(spec.derivation, sources=["y"]),
        replace(spec.derivation, values=[replace(values[0], name="x")]),
        replace(spec.derivation, plan=replace(plan, source="void k();")),
    ):
        with pytest.raises(PlanError):
            replace(spec, derivation=wrong).validate()
