"""A table of programs over what data chooses, one graph each for none, one, some and all of it.

A line is the body of a function of x and w, both (6,), with m = x > 0; statements end with `;`, the
last is the result. Each is called with none, one, some, all and NaN, inference and training, and
with tensors of no elements. `breaks` are those that only run as eager does.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils import _pytree as pytree

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting

NAMES = {"torch": torch, "F": F, "associative_scan": associative_scan, "torch_map": torch_map}
NAMES |= {"scan": scan, "while_loop": while_loop, "flex_attention": flex_attention}
TABLE = {
    "nonzero": """
x * 2 if (m.any() and not m.all()) else w
m.nonzero()
w[m.nonzero().squeeze(1)] * 2
w[torch.where(m)[0]].cumsum(0)
torch.where(m)[0].float().sum() * w
torch.argwhere(m).flatten() + 1
torch.nonzero(m, as_tuple=True)[0].flip(0)
torch.zeros(6).index_add(0, m.nonzero()[:, 0], w[m])
x.index_select(0, m.nonzero()[:, 0]).exp()
(x[:, None] * w > 0).nonzero().sum(0)
torch.zeros(6).index_put((m.nonzero()[:, 0],), x[m] * w[m])
x.gather(0, m.nonzero()[:, 0]).relu()
len(m.nonzero()), w * 2
i, j = torch.where(x[:, None] > w); x[i] * w[j]
""",
    "masks read": """
x[m]
(x * w)[m].sin() + 1
x[m] * w[m]
x[m][w[m] > 0]
(x[:, None] * w)[m]
(x[:, None] * w)[m].softmax(-1)
(x[:, None] * w)[:, m].sum(0)
(x[:, None] * w)[x[:, None] > w]
x[m].sum() + w
x[m].mean().nan_to_num() + w
x[m].std().nan_to_num() + w
torch.cat([x[m], w[~m]])
torch.stack([x, w])[:, m].t()
x[m] @ w[m] + w
(x[:, None] * w)[m] @ torch.ones(6, 2)
x[m].flip(0)
x[m].sort()[0]
x[m].view(-1, 1) * w
x[m][:2]
x[m].expand(2, -1)
x[m].cumsum(0).detach() * w[m]
F.pad(x[m], (1, 2))
x[m].new_zeros(3).sum() + w
x[m].prod() * w
torch.outer(x[m], w[m])
x[m].logsumexp(0) + w
F.cross_entropy((x[:, None] * w)[m], torch.arange(6)[m], reduction='sum') + w
(x[m] - x[m].mean()).square()
x[m].to(torch.float64) * 2
x[m][0] * w
x[m].view(2, -1).sum(0)
x[m].max() + w
""",
    "masks written": """
y = x * 1; y[m] = 0.5; y * w
y = x * 1; y[m] = w[m] * 2; y
y = x * 1; y[m] *= 3; y + w
y = x * 1; y[m.nonzero()[:, 0]] = 1.0; y
x.masked_fill(m, 2.0) * w
x.masked_scatter(m, w) * 2
torch.where(m, x, w)
y = x[:, None] * w; y[m] = 1.0; y
y = x[:, None] * w; y[:, m] = 0.0; y
y = torch.zeros(6); y[m] = x[m].exp(); y
y = x * 1; y.index_put_((m,), w[m], accumulate=True); y
y = x * 1; y.masked_fill_(m, 0.0); y * w
y = x * 1; y[m] = y[m].flip(0); y
""",
    "masked_select": """
torch.masked_select(x, m)
torch.masked_select(x[:, None] * w, m)
torch.masked_select(x * w, m).sum() + w
torch.masked_select(x, m).view(-1, 1).expand(-1, 2)
x.masked_select(m) * w.masked_select(m)
torch.masked_select(x.exp(), m[:, None]).view(-1, 6).sum(1)
""",
    "unique": """
torch.unique(x.detach().round())
torch.unique(m).float().sum() + w
torch.unique(m.long(), return_counts=True)[1] * 2
torch.unique(x.detach().round(), return_inverse=True)[1] + 1
v, i, c = torch.unique(m, return_inverse=True, return_counts=True); c[i] * w
torch.unique_consecutive(m).float() * 2
v, c = torch.unique_consecutive(m, return_counts=True); c / v.numel()
g = torch.unique(m.long(), return_inverse=True)[1]; torch.zeros(2).index_add(0, g, x)
torch.unique(torch.stack([m, ~m]), dim=1).sum(1) * w[:2]
len(torch.unique(m)), w + 1
""",
    "repeat_interleave": """
x.repeat_interleave(m.long())
x.repeat_interleave(m.long() * 2) * 3
(x[:, None] * w).repeat_interleave(m.long(), 0)
torch.repeat_interleave(m.long()) * 2
torch.repeat_interleave(x, m.long() + 1).sum() + w
torch.arange(6).repeat_interleave(m.long())
x.repeat_interleave(m.sum()) * 2
""",
    "counts": """
torch.bincount(m.long(), minlength=2) * 2
torch.bincount(m.nonzero()[:, 0]).sum() + w
torch.bincount(m.long(), x.detach().abs().nan_to_num(), 2) * 2
torch.histc(x.detach().nan_to_num(), 4, -4, 4) * 2
F.one_hot(m.long(), 2).sum(0) * 2
m.sum() * x
m.count_nonzero() + w
x[m].numel() * w
x / x[m].numel()
x[m].shape[0] + w
torch.segment_reduce(x.detach(), 'sum', lengths=torch.stack([m.sum(), (~m).sum()]))
""",
    "sizes of pieces": """
k = int(m.sum()); x.split([k, 6 - k])[0] * 2
k = int(m.sum()); [t.sum() for t in x.split([k, 6 - k])]
a, b = torch.stack([m.sum(), (~m).sum()]).tolist(); [t * 2 for t in x.split([a, b])]
[t.sum() for t in x.split(torch.stack([m.sum(), (~m).sum()]).tolist())]
k = int(m.sum()); [t + 1 for t in x.tensor_split([k])]
[t.sum() for t in x.tensor_split(m.cumsum(0)[1:3])]
torch.cat(x.split_with_sizes([m.sum().item(), (~m).sum().item()])[::-1])
[x[:n].sum() for n in m.long().tolist()]
torch.cat([x[:n] for n in m.long().tolist()])
s = m.cumsum(0).tolist(); x[s[0] : s[5]] * 2
""",
    "bounds": """
x[: int(m.sum())]
x[int(m.sum()) :] * w.sum()
x[m.sum() :].exp()
x[-int(m.sum()) :] + 1
x[:: int(m.sum()) + 1].sum() + w
(x[:, None] * w)[:, : int(m.sum())].sum(1)
x.narrow(0, 0, int(m.sum())) * 2
torch.cat([x, w]).narrow(0, int(m.sum()), 6)
torch.arange(int(m.sum())) * 2
torch.arange(m.sum()).float().sum() + w
torch.arange(1, int(m.sum()) + 2).sum() * w
torch.zeros(int(m.sum())) + x.sum()
torch.full((int(m.sum()), 2), 3.0) * x.sum()
torch.ones(int(m.sum()), 6) * w
x.new_zeros(int(m.sum())).sum() + w
torch.eye(int(m.sum())).sum() * w
x.roll(int(m.sum())) * w
torch.cat([x[int(m.sum()) :], w[: int(m.sum())]])
y = x * 1; y[: int(m.sum())] += w[: int(m.sum())]; y
str(int(m.sum())), x * 2
y = x * 1; y[: int(m.sum())] = 0; y
x[None].expand(int(m.sum()), -1).sum(0)
x.repeat(int(m.sum())) * 2
torch.linspace(0, 1, int(m.sum()) + 1).sum() + x
F.pad(x, (0, int(m.sum())))
(torch.arange(6) < m.sum()) * x
x.unfold(0, int(m.sum()) + 1, 1)[0] * 2
k = int(m.sum()); x[:k] @ w[:k] + w
k = int(m.sum()); (x[:k, None] * w[:k]).sum(1)
""",
    "numbers": """
x * m.sum().item()
x * x.detach().nan_to_num().max().item()
x + float(m.sum())
x * int(m.sum()) ** 2 + int(m.sum()) // 2
x * (m.sum().item() / 6)
x.clamp(max=m.sum().item())
k = m.sum().item(); torch._check(k <= 6); x[:k].sum() + w
k = m.sum().item(); torch._check_is_size(k); torch.zeros(k) + w.sum()
k = m.sum().item(); assert k <= 6; x[:k] * 2
k = m.sum().item(); assert 0 <= k < 7, 'count'; torch.arange(k)
x * sum(m.long().tolist())
x * max(int(m.sum()), 2)
x * abs(int(m.sum()) - 3)
x ** (m.sum().item() % 3)
x * min(1.0, x.detach().nan_to_num().sum().item())
a, b = torch.stack([x.sum(), w.sum()]).tolist(); x * (b - b) + w
x * m[0].item() + m[1].item()
x[m.sum() - 1] * w
torch.stack([x, w])[m.any().long()] * 2
F.embedding(m.long(), torch.stack([x, w]))
""",
    "branches": """
x * 2 if m.any() else w
x * 2 if m.all() else w + x
x + 1 if x.sum() > 1 else x * w
x[m].sum() * w if m.any() else w
x + w[m].mean() if m.any() else x * 2
x if m.sum().item() > 2 else w * 2
x[m] if x.sum() > 1 else w[w > 0]
torch.where(m, x, x[~m].sum()) if not m.all() else x * w
(x * 2 if x[0] > 0 else x * 3) if m.any() else w
x[: int(m.sum())].sum() + w if m.any() else w
x * (2 if m.any() else 3)
y = x[m]; y.sum() + w if y.numel() > 1 else w * 2
y = x[m]; y * 2 if len(y) else y + 1
""",
    "torch.cond and loops": """
torch.cond(m.any(), lambda x, w: x * w, lambda x, w: x + w, (x, w))
torch.cond(m.sum() > 2, lambda x: x.sin(), lambda x: x.cos(), (x,)) + w
torch.cond(x.sum() > 0, lambda x: (x * 2, x + 1), lambda x: (x, x - 1), (x * w,))
y = x[m]; torch.cond(m.all(), lambda y: y * 2, lambda y: y + 1, (y,))
while_loop(lambda i: i < m.sum(), lambda i: (i + 1,), (torch.tensor(0),))[0] + w
while_loop(lambda i, y: i < m.sum(), lambda i, y: (i + 1, y * 2), (torch.tensor(0), x.detach()))[1]
scan(lambda c, t: (c + t, c * t), torch.zeros(()), x)[1] * 2
scan(lambda c, t: (c + t, c * 1), torch.zeros(()), torch.cat([x[m], w]))[1]
scan(lambda c, t: (c + t, c * 1), w[0] * 1, x, reverse=True)[0] + w
torch_map(lambda t, w: t * w, x, w)
torch_map(lambda t: t.sin() + 1, torch.cat([x[m], w]))
associative_scan(lambda a, b: a + b, x, 0, combine_mode='generic') * w
associative_scan(torch.mul, torch.cat([x[m], w]), 0, combine_mode='generic')
flex_attention(*[x.nan_to_num().view(1, 1, 3, 2)] * 3, lambda s, b, h, q, k: s + q - k).sum() + w
""",
}
BREAKS = """
[t.sum() for t in x.split(int(m.sum()) + 1)]
[t.sum() for t in x.chunk(int(m.sum()) + 1)]
[t.sum() for t in x.tensor_split(int(m.sum()) + 1)]
[t * 2 for t in x[m].unbind(0)]
[t * 2 for t in x[m]]
[x, w][m.any().long()] * 2
not m.any() or w * 2
x * bool(m.any())
x[m.nonzero()[:, 0].tolist()] * 2
{1: x, 2: w}.get(int(m.sum()), x * w)
"""


def experts(x, w):
    out = torch.zeros(6)
    expert = x.detach().nan_to_num().long() % 3
    for e in range(3):
        rows = torch.where(expert == e)[0]
        out.index_add_(0, rows, x[rows] * w[e])
    return out


def experts_by_masks(x, w):
    out = torch.zeros(6)
    expert = x.detach().nan_to_num().long() % 3
    for e in range(3):
        mask = expert == e
        if mask.any():
            out[mask] = (x[mask] + e) * w[mask]
    return out


def segments(x, w):
    lengths = torch.stack([(x > 0).sum(), (x > 1).sum() * 0 + 2]).tolist()
    return torch.stack([x[:n].sum() * w[i] for i, n in enumerate(lengths)])


def packed(x, w):
    lengths = torch.stack([(x > 0).sum(), 6 - (x > 0).sum()])
    return torch.stack([(t.softmax(0) * 2).sum() for t in x.split(lengths.tolist())]) + w[:2]


def suppressed(x, w):
    """As a detector does."""
    boxes, scores = x[x > 0], w[x > 0]
    order = scores.detach().argsort(descending=True, stable=True)
    boxes = boxes[order]
    kept = ~((boxes[:, None] - boxes).abs() < 0.6).triu(1).any(0)
    return boxes[kept], scores[order][kept]


def halved_while(x, w):
    while x.detach().nan_to_num().abs().max() > 1:
        x = x / 2
    return x * w


def counted(x, w):
    for i in range(int((x > 0).sum())):
        w = w * 0.5 + i
    return w + x


def each_element(x, w):
    total = w
    for t in x:
        if t > 0:
            total = total + t
        else:
            total = total * 0.5
    return total


FUNCTIONS = [experts, experts_by_masks, segments, packed, suppressed, halved_while]
FUNCTIONS += [counted, each_element]

NAN = float("nan")
VALUES = {
    "some": [1.0, -1.0, 2.0, -2.0, 0.5, 3.0],
    "none": [-1.0, -2.0, -0.5, -3.0, -1.5, -0.25],
    "one": [-1.0, 4.0, -2.0, 0.0, -3.0, -0.5],
    "all": [1.0, 0.5, 2.0, 3.0, 0.25, 1.5],
    "nan": [NAN, 1.0, -1.0, 2.0, NAN, -2.0],
    "zeros": [0.0] * 6,
    "two": [0.0, 0.0, 1.0, 2.0, -1.0, 0.0],
}
WEIGHTS = [0.5, -1.0, 1.5, 2.0, -0.5, 1.0]


def made(line):
    *body, result = line.split("; ")
    text = "\n    ".join(["def f(x, w):", "m = x > 0", *body, f"return {result}"])
    scope = dict(NAMES)
    exec(compile(text, f"<{line}>", "exec"), scope)
    return scope["f"]


def lines(text):
    return text.strip().splitlines()


PROGRAMS = {line: made(line) for text in TABLE.values() for line in lines(text)}
PROGRAMS |= {function.__name__: function for function in FUNCTIONS}


def outcome(function, values, grad):
    x = torch.tensor(values, requires_grad=grad)
    w = torch.tensor(WEIGHTS[: len(values)], requires_grad=grad)
    try:
        result = function(x, w)
        leaves = pytree.tree_leaves(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        wanted = [t.sum() * (i + 1) for i, t in enumerate(tensors) if t.requires_grad]
        if wanted:
            sum(wanted).backward()
    except (RuntimeError, IndexError, ValueError, AssertionError) as error:
        return [], [type(error)]
    facts = [(t.requires_grad, t.shape, t.dtype) for t in tensors]
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return [*(t.detach() for t in tensors), x.grad, w.grad], [facts, others]


def check(function, compiled, values, grad):
    (found, facts), (expected, known) = (outcome(f, values, grad) for f in (compiled, function))
    assert facts == known
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_serves_all(name):
    function = PROGRAMS[name]
    for grad in (False, True):
        counting = Counting(eager)
        compiled = dynamo.compile(function, backend=counting, isolate_recompiles=True)
        for values in VALUES.values():
            check(function, compiled, values, grad)
        assert len(counting.graphs) == 1
        check(function, compiled, [], grad)


@pytest.mark.parametrize("line", lines(BREAKS))
def test_breaks(line):
    function = made(line)
    for grad in (False, True):
        compiled = dynamo.compile(function, backend="eager", isolate_recompiles=True)
        for values in [*VALUES.values(), []]:
            check(function, compiled, values, grad)
        assert any(record.breaks for record in compiled.context.records)
