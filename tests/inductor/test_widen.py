"""Products and convolutions of half precision, computed in float32 where that is faster."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dynamo.api.compile import compile_fresh
from inductor import costs, measure, panel_sample
from inductor import widen as widening
from inductor.measure import Choice
from tests.inductor.compiling import staged
from tests.inductor.test_derived import notes

HALF = [torch.bfloat16, torch.float16]
CLOSE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    measure.forget()
    yield
    measure.forget()


@pytest.fixture
def fixed(monkeypatch):
    """Let the candidate of a name be the fastest, on a processor without products of pairs."""
    monkeypatch.setattr(widening, "has_pairs", lambda: False)
    monkeypatch.setattr(costs, "WIDEN_SECONDS", 60)
    monkeypatch.setattr("inductor.windows.measured", lambda convolution, budget: "packed")

    def fix(name):
        def measured(candidates, budget, ahead, before):
            first, *others = [prepare()() for prepare in candidates.values()]
            for other in others if isinstance(first, torch.Tensor) else ():
                assert other.dtype == first.dtype and other.stride() == first.stride()
                torch.testing.assert_close(other, first, rtol=2e-2, atol=2e-2)
            return Choice(name if name in candidates else "aten", dict.fromkeys(candidates, 1.0))

        monkeypatch.setattr(measure, "_measured", measured)

    return fix


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.mT / 6, -1) @ v) + x


def images(*layers):
    return nn.Sequential(*layers)


def seeded_modules():
    """Of the same weights in each run: where rounding decides the sign that a ReLU sees, gradients
    differ, of eager's from exact ones or of ours (2 of 60 seeds of "batch norm").
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            "linear": (nn.Linear(32, 48), (4, 9, 32)),
            "mlp": (nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32)), (40, 32)),
            "attention": (Attention(), (3, 16, 32)),
            "conv": (images(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)), (2, 4, 12, 12)),
            "grouped": (
                images(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.SiLU()),
                (2, 8, 12, 12),
            ),
            "depthwise of one dimension": (images(nn.Conv1d(8, 8, 3, groups=8)), (2, 8, 70)),
            "conv1d": (images(nn.Conv1d(8, 16, 3, dilation=2)), (2, 8, 70)),
            "conv3d": (images(nn.Conv3d(4, 4, 3, stride=2)), (1, 4, 9, 9, 9)),
            "transposed": (images(nn.ConvTranspose2d(4, 8, 3, stride=2)), (2, 4, 12, 12)),
            "batch norm": (
                images(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
                (2, 4, 12, 12),
            ),
        }


MODULES = seeded_modules()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", MODULES)
def test_inference(fixed, name, dtype):
    fixed("float32")
    module, size = MODULES[name]
    module = copy.deepcopy(module).eval().to(dtype)
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        for number in range(2):
            x = torch.randn(size, generator=torch.Generator().manual_seed(number)).to(dtype)
            got, expected = compiled(x), module(x)
            torch.testing.assert_close(got, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])
            assert got.stride() == expected.stride()
        assert any(note.startswith("widen: ") for note in notes(context))
        for parameter in module.parameters():  # copies of weights are made again
            parameter.mul_(-1)
        torch.testing.assert_close(compiled(x), module(x), rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", MODULES)
def test_training(fixed, name, dtype):
    fixed("float32")
    module, size = MODULES[name]
    module = copy.deepcopy(module).train().to(dtype)
    results = []
    compiled, context = compile_fresh(module)
    for fn in (compiled, module):
        module.zero_grad()
        x = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)
        out = fn(x.requires_grad_())
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        (out * weights).sum().backward()
        results.append([out, x.grad, *(p.grad for p in module.parameters())])
    for got, expected in zip(*results, strict=True):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        scale = expected.abs().max().item()
        torch.testing.assert_close(got, expected, rtol=0.05, atol=max(0.05 * scale, 0.02))
    assert any("widen: " in note for note in notes(context))


def attention_step(fn, given, mask, causal=False, **settings):
    """The result and the gradients of queries, keys and values, heads side by side in memory."""
    tensors = [x.detach().requires_grad_() for x in given]
    out = fn(*(x.transpose(1, 2) for x in tensors), mask, is_causal=causal, **settings)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    (out * weights).sum().backward()
    return [out, *(x.grad for x in tensors)]


def attend(q, k, v, mask, is_causal, scale=0.3):
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale)


def drawn(*size, dtype):
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).to(dtype)


def check_attention(compiled, given, mask, causal=False):
    got, expected = (attention_step(fn, given, mask, causal) for fn in (compiled, attend))
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05, equal_nan=True)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("masked", ["no", "causal", "bool", "of its dtype", "float32"])
def test_backward_of_attention(fixed, dtype, masked):
    fixed("float32")
    given = [drawn(2, n, 3, 16, dtype=dtype) for n in (33, 40, 40)]
    seen = torch.ones(2, 1, 33, 40, dtype=torch.bool).tril(5)
    added = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    masks = {"bool": seen, "of its dtype": added.to(dtype), "float32": added}
    compiled, context = compile_fresh(attend)
    check_attention(compiled, given, masks.get(masked), masked == "causal")
    note = f"backward: widen: 1 operators of {str(dtype).removeprefix('torch.')} in float32"
    assert any(one.startswith(note) for one in notes(context))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(64, 96), (96, 32), (128, 128)])
def test_backward_of_attention_by_products(fixed, sizes, causal):
    fixed("products")
    queries, keys = sizes
    given = [drawn(2, n, 3, 32, dtype=HALF[0]) for n in (queries, keys, keys)]
    compiled, context = compile_fresh(attend)
    check_attention(compiled, given, None, causal)
    note = "backward: widen: 1 operators of bfloat16 by products"
    assert any(one.startswith(note) for one in notes(context))
    exact = attention_step(attend, [x.double() for x in given], None, causal)[1:]
    ours, theirs = (attention_step(fn, given, None, causal)[1:] for fn in (compiled, attend))
    for a, b, e in zip(ours, theirs, exact, strict=True):
        assert (a - e).abs().max() <= 4 * (b - e).abs().max()


def test_products_scaled_by_zero(fixed):
    fixed("products")
    given = [drawn(1, 64, 2, 32, dtype=HALF[0]) for _ in range(3)]
    compiled, context = compile_fresh(attend)
    out, *gradients = attention_step(compiled, given, None, scale=0.0)
    exact = attention_step(attend, [x.double() for x in given], None, scale=0.0)
    for ours, theirs in zip((out, *gradients), exact, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0.05, atol=0.05)
    assert any("by products" in note for note in notes(context))


@pytest.mark.parametrize(
    "dtype, keys, masked", [(HALF[1], 32, False), (HALF[0], 32, True), (HALF[0], 33, False)]
)
def test_no_products(fixed, dtype, keys, masked):
    """For masks, float16, and sizes of which some are no whole tiles."""
    fixed("products")
    given = [drawn(2, n, 3, 32, dtype=dtype) for n in (32, keys, keys)]
    mask = torch.ones(32, keys, dtype=torch.bool).tril(5) if masked else None
    compiled, context = compile_fresh(attend)
    check_attention(compiled, given, mask)
    assert not any("by products" in note for note in notes(context))


@pytest.mark.parametrize("way", ["float32", "products"])
def test_backward_of_attention_of_special_values(fixed, way):
    """As eager's of float32: that of bfloat16 leaves NaN of one query to others on some threads."""
    fixed(way)
    given = [drawn(1, 33 if way == "float32" else 64, 2, 32, dtype=HALF[0]) for _ in range(3)]
    given[0][0, 3, 0, 5], given[2][0, 9, 1, 0] = torch.nan, torch.inf
    compiled, _ = compile_fresh(attend)
    got = attention_step(compiled, given, None)
    expected = attention_step(attend, [x.float() for x in given], None)
    for ours, theirs in zip(got, expected, strict=True):
        assert theirs.isnan().any()
        torch.testing.assert_close(ours.float(), theirs, rtol=0.05, atol=0.05, equal_nan=True)


def test_backward_of_attention_of_sizes_that_vary(fixed):
    fixed("float32")
    compiled, context = compile_fresh(attend, dynamic=True)
    for batch, length in ((1, 40), (3, 17), (2, 64)):
        check_attention(compiled, [drawn(batch, length, 2, 32, dtype=HALF[0])] * 3, None)
    assert any("backward: widen: 1 operators" in note for note in notes(context))


def test_long_sequences_are_measured_by_shorter_ones(monkeypatch):
    keys = []

    def kept(key, candidates, budget, ahead):
        keys.append(key)
        return Choice("as it is", {})

    monkeypatch.setattr(widening, "fastest", kept)
    compiled, context = compile_fresh(attend)
    given = [drawn(1, n, 1, 16, dtype=HALF[0]) for n in (8, 4000, 4000)]
    check_attention(compiled, given, None)
    assert keys == ["widen bfloat16 attention backward 8x512x16"]
    assert not any("widen: " in note for note in notes(context))


@pytest.mark.parametrize("lacking", [0, 1])
def test_room_for_copies(fixed, monkeypatch, lacking):
    """The wide weight and bias are kept where both have room: all bytes, or one too few."""
    fixed("float32")
    monkeypatch.setattr("inductor.widen.room_for_copies", lambda: 4 * 33 * 48 - lacking)
    monkeypatch.setattr("inductor.products.room_for_copies", lambda: 2 * 32 * 48 - 1)
    module, x = copy.deepcopy(MODULES["linear"][0]).bfloat16(), torch.randn(8, 32).bfloat16()
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x), rtol=2e-2, atol=2e-2)
            module.weight.mul_(-1)
    found = notes(context)
    assert any(note.startswith("widen: 1 ") for note in found)
    assert any(note.startswith("derived") for note in found) is (not lacking)


@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_is_a_kind_of_its_own(monkeypatch, rows):
    keys = []
    monkeypatch.setattr("inductor.widen.fastest", lambda key, *rest, **more: keys.append(key))
    staged(product, (torch.randn(rows, 64).bfloat16(), torch.randn(32, 64).bfloat16().t()))
    assert keys == [f"widen bfloat16 mm {'one row by ' if rows == 1 else ''}columns"]


@pytest.mark.parametrize("supported", [False, True])
def test_large_products_are_a_kind_of_their_own(monkeypatch, supported):
    """Where the library has instructions: the time of a small one is that of the call."""
    keys = []
    monkeypatch.setattr("inductor.widen.fastest", lambda key, *rest, **more: keys.append(key))
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    for rows in (16, 256):
        staged(product, (torch.randn(rows, 64).bfloat16(), torch.randn(64, 128).bfloat16()))
    assert keys == [f"widen bfloat16 mm {large}rows" for large in ("", "large by " * supported)]


def product(x, w):
    return (x @ w,)


@pytest.mark.parametrize("dtype", HALF)
def test_special_values(fixed, dtype):
    fixed("float32")
    x = torch.zeros(40, 32)
    x[0, 0], x[1, 0], x[2, 0], x[3] = torch.inf, -torch.inf, torch.nan, 3e4
    w = torch.full((32, 32), 2.0)
    x, w = x.to(dtype), w.to(dtype)
    c = staged(product, (x, w))
    torch.testing.assert_close(c.compiled(x, w)[0], x @ w, equal_nan=True, rtol=1e-2, atol=0)


def test_a_sum_is_rounded_once(fixed):
    fixed("float32")
    x = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    w = torch.full((4096, 1), 1.0, dtype=torch.bfloat16)
    assert staged(product, (x, w)).compiled(x, w)[0].item() == 4096


def test_sizes_that_vary(fixed):
    fixed("float32")
    module = copy.deepcopy(MODULES["attention"][0]).eval().bfloat16()
    compiled, context = compile_fresh(module, dynamic=True)
    with torch.no_grad():
        for length in (16, 9, 33):
            x = torch.randn(2, length, 32).bfloat16()
            torch.testing.assert_close(compiled(x), module(x), rtol=2e-2, atol=2e-2)
    assert any(note.startswith("widen: 4 operators of bfloat16") for note in notes(context))


def test_autocast(fixed):
    fixed("float32")
    module, size = MODULES["mlp"]
    module, x = copy.deepcopy(module), torch.randn(size)

    def run(fn):
        module.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = fn(x)
        out.sum().backward()
        return [out, *(p.grad for p in module.parameters())]

    compiled, context = compile_fresh(module)
    for got, expected in zip(run(compiled), run(module), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
    assert any("widen: " in note for note in notes(context))


@pytest.mark.parametrize("way", ["as it is", "off", "small", "float32", "mixed"])
def test_what_stays(fixed, way):
    fixed("as it is" if way == "as it is" else "float32")
    dtype = torch.float32 if way == "float32" else torch.bfloat16
    size = 5 if way == "small" else 40
    x, w = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)

    def fn(x, w):
        if way == "mixed":
            return (x.float() @ w.float(),)
        return (x @ w,)

    c = staged(fn, (x, w), **({"tuning": "off"} if way == "off" else {}))
    assert not [note for note in c.notes if note.startswith("widen")]
    torch.testing.assert_close(c.compiled(x, w), fn(x, w), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("way", ["small", "as it is", "unmeasured"])
def test_convolutions_that_stay(fixed, monkeypatch, way, innermost):
    """The library refuses to lay out weights of bfloat16 on processors without it."""
    fixed("as it is")
    if way == "unmeasured":
        monkeypatch.setattr(costs, "WIDEN_SECONDS", 0)
    size, channels = (8, 3) if way == "small" else (24, 16)
    layers = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.GELU()).to(HALF[0]).eval()
    x = torch.randn(2, channels, size, size, dtype=HALF[0])
    if innermost:
        layers = layers.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    compiled, context = compile_fresh(layers)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layers(x), rtol=2e-2, atol=2e-2)
    assert not [note for note in notes(context) if note.startswith("widen")]


@pytest.mark.skipif(panel_sample.identity() is None, reason="no C++ compiler")
def test_depthwise_convolutions_are_generated(fixed):
    """Unmeasured: the fixture lets everything else be as it is."""
    fixed("as it is")
    layers = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3)).to(HALF[0]).eval()
    layers = layers.to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 12, 12, dtype=HALF[0]).to(memory_format=torch.channels_last)
    compiled, context = compile_fresh(layers)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layers(x), rtol=2e-2, atol=2e-2)
    assert any("1 operators of bfloat16 in float32" in note for note in notes(context))
    assert any("1 depthwise ones" in note for note in notes(context))


def test_the_measured_way():
    """Whatever this machine finds: the right values, the same way again from the cache. Of a busy
    machine, after ATTEMPTS.
    """
    x, w = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    seen = []
    for _ in range(measure.ATTEMPTS + 1):
        measure.forget()
        c = staged(product, (x, w))
        seen.append([note for note in c.notes if note.startswith("widen")])
        torch.testing.assert_close(c.compiled(x, w)[0], x @ w, rtol=2e-2, atol=2e-2)
    assert seen[-2] == seen[-1]


def test_a_library_that_cannot(monkeypatch):
    def cannot():
        raise RuntimeError("could not create a primitive descriptor")

    calls = {"aten": lambda: lambda: None, "other": cannot, "late": lambda: cannot}
    choice = measure.fastest("a", calls, measure.Budget(1.0), ahead=0.9)
    assert choice.name == "aten" and choice.times["other"] == float("inf")
    measure.forget()
    assert measure.fastest("a", calls, measure.Budget(0.0), ahead=0.9) == choice


def test_functional_convolution_of_a_bias_of_another_dtype(fixed):
    fixed("float32")

    def fn(x, w, b):
        return (F.conv2d(x, w) + b,)

    x, w = torch.randn(1, 4, 12, 12).bfloat16(), torch.randn(8, 4, 3, 3).bfloat16()
    b = torch.randn(8, 1, 1)
    c = staged(fn, (x, w, b))
    got, expected = c.compiled(x, w, b)[0], fn(x, w, b)[0]
    assert got.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", HALF)
def test_products_of_sizes_that_vary(dtype):
    """A backward is compiled when its sizes can be guarded no more."""

    def fn(a, b):
        return F.linear(a, b.t()) * 2

    compiled, _ = compile_fresh(fn, dynamic=True)
    for n in (5, 9):
        a, b = torch.randn(n, n + 1).to(dtype), torch.randn(n + 1, n + 2).to(dtype)
        leaves, others = ([t.clone().requires_grad_() for t in (a, b)] for _ in range(2))
        got, expected = compiled(*leaves), fn(*others)
        torch.testing.assert_close(got, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])
        got.float().sum().backward()
        expected.float().sum().backward()
        for one, other in zip(leaves, others, strict=True):
            torch.testing.assert_close(
                one.grad, other.grad, rtol=CLOSE[dtype], atol=10 * CLOSE[dtype]
            )


def test_transposed_products_of_sizes_that_vary():
    """The strides of what a backward saved are compared behind capture, which takes no guards."""
    layers = nn.RNN(8, 8), nn.LSTM(8, 8), nn.LSTM(8, 16, proj_size=8)
    compiled, _ = compile_fresh(lambda layer, x: layer(x))
    for layer, dtype in itertools.product(layers, (torch.float32, torch.bfloat16)):
        layer, x = layer.to(dtype), torch.randn(5, 3, 8).to(dtype)
        gradients = []
        for fn in (compiled, lambda layer, x: layer(x)):
            leaf = x.clone().requires_grad_()
            layer.zero_grad()
            fn(layer, leaf)[0].float().sum().backward()
            gradients.append([leaf.grad, *(p.grad for p in layer.parameters())])
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=5e-2, atol=0.1)
