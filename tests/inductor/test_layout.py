"""Images between convolutions are laid out with channels innermost: nobody outside of the graph
notices, and where the program's layout decides on a value, the program has that.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo
from fxgraph.args import leaves
from inductor.layout import channels_innermost
from tests.inductor.compiling import staged

aten = torch.ops.aten
WEIGHTS = [torch.randn(8, 3, 3, 3) / 5, *(torch.randn(8, 8, 3, 3) / 8 for _ in range(3))]


def body(x, first, *rest):
    """Several convolutions, so that it pays."""
    y = F.conv2d(x, first, None, 1, 1)
    for weight in rest:
        y = F.conv2d(F.relu(y), weight, None, 1, 1)
    return y


def between(middle):
    def function(x, *weights):
        y = body(x, *weights)
        return middle(y, x), body(F.relu(y)[:, :3], *weights)

    return function


def with_buffer(y, x):
    x += y[:, :3]
    return y


def pooled(y, x):
    values, where = F.max_pool2d(y, 2, return_indices=True)
    return values, where, F.max_unpool2d(values, where, 2)


MIDDLES = {
    "nothing": lambda y, x: y * 2,
    "returned with what is made of it": lambda y, x: (y, y.relu(), y[:, 1:], y.flatten(1)),
    "residual": lambda y, x: y + y.mean((2, 3), keepdim=True) - x.mean(1, keepdim=True),
    "flattened": lambda y, x: y.flatten(1) @ torch.ones(8 * 16 * 16, 2),
    "viewed": lambda y, x: y.view(2, 4, 2, 256).sum(-1),
    "strided": lambda y, x: y.as_strided((3, 3), (7, 2), 5) * 2,
    "permuted": lambda y, x: (y.permute(0, 2, 3, 1) + 1, y.transpose(2, 3).contiguous()),
    "asked for a layout": lambda y, x: y.contiguous(memory_format=torch.channels_last),
    "random": lambda y, x: (F.dropout(y, 0.5, True), torch.rand_like(y), y.sigmoid().bernoulli()),
    "filled": lambda y, x: (torch.zeros_like(y) + y.new_ones(1), torch.empty_like(y).fill_(3)),
    "indexed": lambda y, x: (y[:, [1, 0]], y[y.sum((1, 2, 3)) > -1e9], y[0, :, 3]),
    "sorted": lambda y, x: (y.sort(1).values, y.topk(3, 1), y.argmax(1), y.argmax()),
    "pooled": pooled,
    "averaged": lambda y, x: (F.avg_pool2d(y, 3, 2, 1), F.adaptive_avg_pool2d(y, 1), y.amax(1)),
    "resized": lambda y, x: (F.interpolate(y, None, 2), F.interpolate(y, 9, mode="bilinear")),
    "padded": lambda y, x: (F.pad(y, (1, 2, 3, 0)), F.pad(y, (1, 1, 1, 1), mode="reflect")),
    "joined": lambda y, x: (torch.cat([y, x], 1), torch.cat([y, y], 2), torch.stack([y, y])),
    "normalised": lambda y, x: (F.group_norm(y, 2), F.instance_norm(y), F.layer_norm(y, (16, 16))),
    "attended": lambda y, x: torch.softmax(y.flatten(2).transpose(1, 2) @ y.flatten(2), -1),
    "shuffled": lambda y, x: (F.pixel_shuffle(y, 2), F.pixel_unshuffle(y, 2)),
    "transposed": lambda y, x: F.conv_transpose2d(y, torch.ones(8, 2, 2, 2), stride=2),
    "of other types": lambda y, x: ((y > 0) & (y < 1), y.to(torch.float64).sin(), y.int() // 2),
    "in place": lambda y, x: y.mul(2).add_(1).clamp_(0, 1),
    "written": with_buffer,
    "folded": lambda y, x: (F.unfold(y, 2), y.unfold(2, 2, 2).sum(-1)),
    "scanned": lambda y, x: (y.cumsum(1), y.flip(3), y.roll(1, 2), y.tril()),
}  # fmt: skip


def strides(value):
    return [t.stride() for t in torch.utils._pytree.tree_leaves(value)]


@pytest.mark.parametrize("name", MIDDLES)
def test_between_convolutions(name):
    function, results = between(MIDDLES[name]), []
    for call in (function, dynamo.compile(function)):
        torch.manual_seed(0)
        x = torch.randn(2, 3, 16, 16)
        with torch.no_grad():
            results.append((call(x, *WEIGHTS), x))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    assert strides(results[1]) == strides(results[0])


def all_of_them(x, a, b, c, d):
    return (body(x, a, b, c, d),)


def reordered(c):
    """The sizes of the images that the graph reorders, and of those that lie that way."""
    nodes = c.functional.graph_module.graph.nodes
    copies = [n for n in nodes if n.target is aten.clone.default]
    vals = [n.meta["val"] for n in nodes if n.target is aten.convolution.default]
    moved = [v for v in vals if not v.is_contiguous()]
    return [tuple(n.meta["val"].shape) for n in copies], len(moved)


def test_the_ends_alone_are_reordered():
    c = staged(all_of_them, [torch.randn(2, 3, 16, 16), *WEIGHTS], until="layout")
    assert reordered(c) == ([(2, 3, 16, 16), (2, 8, 16, 16)], 4)


@pytest.mark.parametrize(
    ("function", "x", "weights"),
    [
        (lambda x, w: (F.conv2d(x, w),), torch.randn(2, 3, 16, 16), WEIGHTS[:1]),
        (all_of_them, torch.randn(1, 3, 4, 4), WEIGHTS),
        (all_of_them, torch.randn(2, 3, 16, 16).double(), [w.double() for w in WEIGHTS]),
        (
            all_of_them,
            torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last),
            WEIGHTS,
        ),
    ],
    ids=["one", "weights larger than images", "double", "the program's own"],
)
def test_what_would_not_pay_stays(function, x, weights):
    assert reordered(staged(function, [x, *weights], until="layout"))[0] == []


@pytest.mark.parametrize(
    ("size", "generated", "pays"), [(40, False, True), (200, False, False), (200, True, True)]
)
def test_a_packed_weight_alone_does_not_pay_for_copies(size, generated, pays):
    """Of large images; but kernels of ours, which read images that lie that way, do."""
    weight = torch.randn(8, 8, 5, 5)
    arguments = [torch.randn(2, 8, size, size), weight]
    c = staged(lambda x, w: (F.conv2d(x, w, None, 1, 2),), arguments, until="functionalize")
    nodes = c.functional.graph_module.graph.nodes
    packed = [node for node in nodes if node.target is aten.convolution.default]
    found = channels_innermost(c.functional, packed, lambda convolution: generated)
    assert (found is not None) is pays


@pytest.mark.parametrize("count, pays", [(1, False), (2, True)], ids=["one", "in a row"])
def test_small_products_of_pixels(count, pays):
    """A lone one is no faster for the copies; between two, nothing is reordered."""
    weight = torch.randn(16, 16, 1, 1)

    def function(x, w):
        for _ in range(count):
            x = F.conv2d(x, w)
        return (x,)

    c = staged(function, [torch.randn(2, 16, 32, 32), weight], until="functionalize")
    nodes = c.functional.graph_module.graph.nodes
    packed = [node for node in nodes if node.target is aten.convolution.default]
    assert (channels_innermost(c.functional, packed, lambda convolution: False) is not None) is pays


def layouts(graph):
    """The graph as text: of each value its size and layout, and which are reordered."""
    lines = []
    for node in graph.nodes:
        first = next(iter(leaves(node.meta.get("val"))), None)
        if node.op != "call_function" or not isinstance(first, torch.Tensor):
            continue
        moved = first.dim() == 4 and not first.is_contiguous()
        layout = "channels innermost" if moved else "as the program"
        made = getattr(node.target, "_overloadpacket", node.target.__name__)
        made = "reorder" if node.target is aten.clone.default else made
        used = ", ".join(arg.name for arg in node.all_input_nodes)
        lines.append(f"{node.name} = {made}({used}) | {'x'.join(map(str, first.shape))} | {layout}")
    return "\n".join(lines) + "\n"


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.middle = nn.Conv2d(16, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        y = F.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        y = self.grouped((self.middle(y) + y).relu())
        return (self.last(y.mean((2, 3))), y)


def test_golden_text_of_a_chain(golden):
    """Reorders at both ends: of the images given, and of those that the caller sees."""
    torch.manual_seed(0)
    c = staged(Chain().eval(), [torch.randn(2, 3, 32, 32)], until="layout")
    golden("inductor/layout_chain.txt", layouts(c.functional.graph_module.graph))


def test_golden_text_of_a_lone_layer(golden):
    torch.manual_seed(0)
    c = staged(
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()), [torch.randn(2, 3, 32, 32)], until="layout"
    )
    golden("inductor/layout_lone.txt", layouts(c.functional.graph_module.graph))


def test_without_the_library():
    x = torch.randn(2, 3, 16, 16)
    with torch.backends.mkldnn.flags(enabled=False):
        c = staged(all_of_them, [x, *WEIGHTS], until="functionalize")
        assert channels_innermost(c.functional) is None
    assert channels_innermost(c.functional) is not None


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_that_changes(dynamic):
    """Batch norm that is training updates its statistics; then other sizes and weights."""
    model = nn.Sequential(
        *(m for _ in range(3) for m in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.SiLU()))
    )
    twin = nn.Sequential(
        *(m for _ in range(3) for m in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.SiLU()))
    )
    twin.load_state_dict(model.state_dict())
    compiled = dynamo.compile(model, dynamic=dynamic)
    with torch.no_grad():
        for size in (40, 40, 50, 33):
            x = torch.randn(2, 3, size, size + 1)
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(model.state_dict(), twin.state_dict())
            for one in (model, twin):
                one[0].weight.mul_(1.5)
        model.eval(), twin.eval()
        torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grad", [False, True])
def test_the_layout_of_results_of_varying_sizes(grad):
    """Sizes that may be 0 leave max(n, 1) in the strides of torch's rules."""
    conv = nn.Conv2d(3, 4, 3, stride=2).to(memory_format=torch.channels_last)

    def function(x):
        y = conv(x).relu()
        return y, y + 1

    compiled = dynamo.compile(function, dynamic=True)
    with torch.set_grad_enabled(grad):
        for shape in ((2, 3, 7, 7), (3, 3, 9, 9), (0, 3, 9, 9)):
            x = torch.randn(shape)
            assert strides(compiled(x)) == strides(function(x))
            torch.testing.assert_close(compiled(x), function(x))
