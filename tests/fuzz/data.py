"""python -m tests.fuzz.data [--programs N] [--seed S] [--backend B]: programs that depend on data.

Branches and loops on tensors, on numbers read from them and on how many elements a mask picks;
masks, places and sizes that data chooses; loops over experts, rows and segments; cond, while_loop
and scans; writes (also to a tensor that is too large to copy); operations that fail behind effects;
lists and dicts that sides leave. Each program is called with none, one, some and all of the
elements chosen, with and without gradients, and compared with eager: values, objects, gradients,
effects.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.functional import interpolate
from torch.utils import _pytree as pytree

import dynamo

NAN = float("nan")
VALUES = (
    [1.0, 0.5, 2.0, 3.0],
    [-1.0, -2.0, -0.5, -3.0],
    [0.0, 0.0, 0.0, 0.0],
    [-1.0, 4.0, -2.0, 0.0],
    [NAN, 1.0, -1.0, 2.0],
)
NAMES = "abc"
SIMPLE = """
x + y; x * w; x.sin(); y - x; torch.where(x > k, x, y); x * 2; x.cumsum(0); x + k; y
x.scatter(0, torch.tensor([3, 1]), y[:2]); x.masked_fill(y > k, 0.5); x + p.sum()
x.clone().index_put_(((y > k).long(),), w); x.index_add(0, torch.tensor([1, 1, 0, 2]), y)
x.clone().masked_fill_(y > k, 0.5); x.clone().scatter_(0, torch.tensor([2, 0]), y[1:3])
"""
# Of how many elements data chooses.
PICKED = """
x[x > k]; p * 2; p.sin() + p; p[p > k]; torch.cat([p, x]); x[torch.where(y > k)[0]]; p.cumsum(0)
(x * y)[y > k]; p[:2]; p.flip(0); p.clone().clamp_(-1, 1); x.repeat_interleave((y > k).long())
p + p.sum(); p.relu(); p - k; x.clone()
"""
EXPRESSIONS = """
x + y; x * 2; x * w; x.sin(); y - x; torch.where(x > k, x, y); x.clamp(-3, 3); x.cumsum(0)
x.flip(0); x + k; x.masked_fill(x > k, 0.5); x + x[x > k].sum(); x[[0, 0, 2, 1]]; x.detach() * y
torch.zeros(4).index_add(0, (x > k).nonzero()[:, 0], x[x > k]); torch.cat([x[x > k], y])[:4]
torch.zeros(4).masked_scatter(x > k, x[x > k] * 2); x + len(x[x > k]); x * int((x > k).sum())
torch.cat([x, y])[int((x > k).sum()) :][:4]; torch.cat([x, y]).narrow(0, int((y > k).sum()), 4)
x + torch.unique(x.detach().nan_to_num().round()).numel()
x + torch.arange(int((x > k).sum())).sum()
x + torch.bincount((x > k).long(), minlength=4)[:4]; x.repeat_interleave((x > k).long() + 1)[:4]
x + sum(t.sum() for t in torch.cat([x, y]).split([int((x > k).sum()), 8 - int((x > k).sum())]))
x * 2 if (x > k).any() else y; x if x.sum() > k else y + 1
(x if (n := int((y > k).sum())) > 1 else w) * n; x * n if (n := len(x[x > k])) else y
y + torch.stack([x, y])[:, x > k].sum(1)[0]
x * (1 / int((y > k).sum())); x + 7 % int((y > k).sum())
x * (n / 2) ** -1 if (n := len(x[x > k])) else y; x * math.sqrt(y[1].item())
x + math.log(y[0].item() + 2); x * 2 ** int((x > k).sum())
x + (9 >> int((y > k).sum())); x * round(y[2].item()); x + x[: 4 // int((y > k).sum())].sum()
x + x.view(int((y > k).sum()), -1).sum(0).sum(); x * (x[0].item() % y[0].item())
x + torch.arange(0, y[0].item(), 0.5).sum(); x + x[:: int((y > k).sum())].sum()
x + torch.cat([x, y])[3 * int((y > k).sum())]; x * min(y[0].item(), 2.5) // (y[1].item() + 4)
x * (int((y > k).sum()) > 1); y + torch.cat([x, y])[: int((x > k).sum())].squeeze(0).sum()
x + torch.nn.functional.pad(y, (0, -2 * int((y > k).sum()))).sum(); x * (y[0].item() // 0.7)
x[: int(y[3].item())].sum() + y; x * (int((x > k).sum()) & 3) + (1 << int((y > k).sum()))
x + y[x > k].std().nan_to_num(); torch.cat([x, y])[: max(int((y > k).sum()), 2)][:2].sum() + x
x * math.isqrt(int((x > k).sum())); x + math.comb(int((x > k).sum()), 2); x * y[1].item() ** 0.5
x + math.gcd(int((x > k).sum()), 6 - len(y[y > k])); x * math.atan2(y[0].item(), x[1].item())
x * (math.log1p(n) if (n := y[0].item()) > -1 else 2.0); x + min(y[2].item(), math.inf)
x[: math.perm(int((y > k).sum()), 1)].sum() + y; x * int((x > k).sum()).bit_length()
y + torch.cat([x, y])[[int((x > k).sum()), 0, int((y > k).sum()) + 3, 1]]
l[0] + 1; l[-1]; d['k'] * 2; x + p.sum(); x * p.numel(); x[: len(p)].sum() + y
[x, y][(x > k).any().long()]; [x, y, w][(y > k).sum()]; x + (1, 2, 3)[(y > k).sum()]
x[y.long()]; x.index_select(0, (y > k).long() * 2 + 1); x[(y > k).long() * 4]; x[p.long()].sum() + y
x.gather(0, (y > k).sum()[None] + torch.arange(4)); x.clone().scatter_(0, y.long(), w)
x + torch.full((int((y > k).sum()),), 2.0).sum(); torch.masked_select(x, y > k).sum() + y
x + torch.cat([x, y]).tensor_split([int((y > k).sum())])[1][:3].sum(); x + x[y > k].sort()[1].sum()
x + torch.cat([x, y]).tensor_split((y > k).cumsum(0)[1:3])[2].sum(); x * x[y > k].prod()
x + torch.unique(y.detach().nan_to_num().round(), return_counts=True)[1].sum(); y + x[y > k].var(0)
x[torch.unique((y > k).long(), return_inverse=True)[1]]; x + torch.unique_consecutive(y > k).sum()
x + sum(t.sum() for t in x[y > k].unbind(0)); x + x.split(int((y > k).sum()) + 1)[-1].sum()
torch.stack([x.chunk(int((y > k).sum()) + 1)[0].sum(), y[0]]); x + sum((y > k).long().tolist())
x + sum(t[:n].sum() for t, n in zip((x, y), torch.stack([(x > k).sum(), (y > k).sum()]).tolist()))
torch.cond((y > k).any(), lambda x: x * 2, lambda x: x + 1, (x,)); x + x[y > k].softmax(0).sum()
torch.cond((y > k).all(), lambda x, y: x[y > k].sum() + y, lambda x, y: x * 1.5 + y, (x, y))
x + while_loop(lambda n: n < (y > k).sum(), lambda n: (n + 1,), (torch.zeros((), dtype=int),))[0]
scan(lambda s, t: (s + t, s * t), torch.zeros(()), torch.cat([x[y > k], w]))[1][:4]
associative_scan(lambda s, t: s + t, torch.cat([x[y > k], w]), 0, combine_mode='generic')[:4]
x.new_zeros(4).scatter_reduce(0, (y > k).long(), x, 'sum'); x + x[torch.argwhere(y > k)].sum()
x.new_zeros(4).index_put(((y > k).nonzero()[:, 0],), x[y > k]); x + torch.zeros((y > k).sum()).sum()
y + torch.segment_reduce(x.detach(), 'sum', lengths=torch.stack([(y > k).sum(), (y <= k).sum()]))
x * (y > k).sum().item() / 4; x ** (y > k).sum().item(); x.roll(int((y > k).sum())); y - len(p) * x
x[p.numel() :].sum() + y; torch.nn.functional.one_hot((y > k).long()).sum(0)[:1] * x
interpolate(x[None, None], size=(y > k).sum(), mode='linear', align_corners=True).sum() + y
interpolate(x[None, None], size=int((y > k).sum()) + 2)[0, 0, :1] * y; x + torch.ones(len(p)).sum()
x * max(0, min(1, y[0].item())); x - (1 - max(y[1].item(), 0)) / 2; x / max([1, y[2].item(), 0.5])
x * max(0.5, y.sum()); y / min(x.norm(), 2.0) + x; x * (max(0, x[0].item()) * max(0, y[0].item()))
log.append(max(0, x[0].item())) or y * 1; x * max(0, y[3].item()) ** 2 + w; x + torch.allclose(x, y)
"""
PREDICATES = """
x.sum() > k; (x > k).any(); (x > k).all(); torch.isnan(x).any(); x.max() < y.min(); x[0] > k
"""
NUMBERS = """
x.sum().item() > k; int((x > k).sum()) > 2; bool((x > k).any()); float(x[1]) <= k
k < x[2].item(); not (x > k).any(); (x > k).sum().item() == 0
torch.allclose(x, y); x.equal(y); math.isnan(x.sum().item()); max(0, y[0].item()) > k
math.hypot(x[0].item(), y[0].item()) > 2; x[0].item() < math.inf
len(x[x > k]) == 0; p.numel() > 2; not len(torch.where(x > k)[0]); p.shape[0] < 2; p.numel() == 0
len(p) == 1; (x > k).nonzero().shape[0] >= 3; len(p) > len(y[y > k]); p.numel(); p.sum() > k
"""
STATEMENTS = """
x = E; x = E; x = E; x, y = y, x; x = y; x = x.clone(); x += 1; x = x.clone(); x[x > k] = 0.5
l = [x, y * 2]; l = [x]; d = {'k': x}; l.append(x); log.append(k); y = x.view(2, 2).t().reshape(4)
x.mul_(2); p = P; p = P; p = P; big.add_(1); big[0, :4] = x.detach(); x[y.long()]
log.append(len(l)); l[(y > k).any().long() - 1] = x; w.index_select(0, (y > k).long() * 4)
w[(p > k).long()]; assert int((x > k).sum()) < 5; torch._check(len(p) >= 0); x[x > k] = y[x > k] * 2
x[: int((y > k).sum())] += 1; x[(y > k).nonzero()[:, 0]] *= 2; x.masked_scatter_(y > k, w)
"""
# Loops over experts, elements, chosen rows and segments.
LOOPS = """
for e in range(3):
    i = torch.where((x > k).long() + (y > k).long() == e)[0]
    x = x.index_add(0, i, w[i] * e + x[i])

for e in ((x > k).long() + 1).unique():
    x = x + (y * e)[(x > k) + 1 == e].sum()

for t in x:
    y = y + t if t > k else y * 0.5

for t in x[y > k]:
    y = y + t

for i in (y > k).nonzero()[:, 0].tolist():
    x = x + y[i]

s = 0
for n in (y > k).long().tolist():
    x = x + y[s : s + n + 1].sum()
    s += n

i = x.detach().argsort()
while len(i):
    y = y + x[i[0]]
    i = i[1:][x[i[1:]] > y[i[0]]]

if (y > k).any():
    x = x + y[y > k].mean()
else:
    x = x * 2

if not (x > k).all():
    x = torch.where(x > k, x, x[x <= k].sum())

for n in range(int((y > k).sum())):
    x = x * 0.5 + n

g = [x[(y > k) == t].sum() for t in (y > k).unique()]
x = x + len(g) + g[-1]

n = (y > k).sum()
if n <= 1:
    x = x * 2
else:
    x = x + torch.ones(n).sum()
y = y + torch.arange(n).sum() * n.item()
"""


def _choices(text: str) -> list[str]:
    return [one.strip() for line in text.strip().splitlines() for one in line.split(";")]


class Programs:
    """An endless row of the source texts of functions f(a, b, w, log, big)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.expressions, self.predicates = _choices(EXPRESSIONS), _choices(PREDICATES)
        self.simple, self.picked = _choices(SIMPLE), _choices(PICKED)
        self.numbers, self.statements = _choices(NUMBERS), _choices(STATEMENTS)
        self.loops = LOOPS.strip().split("\n\n")

    def __iter__(self) -> Programs:
        return self

    def __next__(self) -> str:
        body = ["c, l, d, p = a + b, [a], {'k': b}, a[b > 0]", *self._block(2, 4)]
        ends = self.random.choice(["a, b, c", "a, b, c, l, d, p", "a * 1, b + c", "c, p", "l, d"])
        return "def f(a, b, w, log, big):\n" + textwrap.indent(
            "\n".join([*body, f"return {ends}"]), "    "
        )

    def _filled(self, text: str) -> str:
        one, other = self.random.sample(NAMES, 2)
        words = {"x": one, "y": other, "k": str(self.random.choice([0, 1, -1, 2.5]))}
        made, word = "", ""
        for char in text + "\n":
            if char.isalnum() or char in "_'":
                word += char
                continue
            if word in ("E", "P"):
                word = self._expression() if word == "E" else self._picked()
            made += words.get(word, word) + char
            word = ""
        return made[:-1]

    def _expression(self) -> str:
        return self._filled(self.random.choice(self.expressions)).replace("d[k]", "d['k']")

    def _picked(self) -> str:
        return self._filled(self.random.choice(self.picked))

    def _predicate(self) -> str:
        kind = self.random.random()
        if kind < 0.15:
            word = self.random.choice([" and ", " or "])
            return word.join(self._filled(self.random.choice(self.predicates)) for _ in range(2))
        pool = self.predicates if kind < 0.65 else self.numbers
        return self._filled(self.random.choice(pool))

    def _block(self, depth: int, most: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, most)):
            lines += self._statement(depth)
        return lines

    def _statement(self, depth: int) -> list[str]:
        kind = self.random.random()
        if depth < 2 and self.random.random() < 0.6:  # what one graph can hold
            if self.random.random() < 0.2:
                return [f"p = {self._picked()}"]
            name, value = self.random.choice(NAMES), self.random.choice(self.simple)
            return [f"{name} = {self._filled(value)}"]
        if depth and self.random.random() < 0.12:
            return self._filled(self.random.choice(self.loops)).splitlines()
        if depth == 0 or kind < 0.4:
            return [self._filled(self.random.choice(self.statements))]
        body = [f"    {line}" for line in self._block(depth - 1, 3)]
        if kind < 0.55:
            return [f"if {self._predicate()}:", *body]
        if kind < 0.8:
            other = [f"    {line}" for line in self._block(depth - 1, 3)]
            return [f"if {self._predicate()}:", *body, "else:", *other]
        if kind < 0.84:
            return [f"if {self._predicate()}:", f"    return {self._expression()}, c"]
        name = f"n{self.random.randrange(1000)}"
        counts = f"    {name} = {name} + 1"
        if kind < 0.94:
            going = self._filled(self.random.choice(self.predicates))
            head = f"while ({name} < 3) & ({going}):"
            return [f"{name} = torch.zeros(())", head, counts, *body]
        ends = [f"    if {name} > 2:", "        break"]
        return [f"{name} = torch.zeros(())", "while True:", counts, *body, *ends]


def _outcome(function: Callable[..., Any], values: list[float], grad: bool) -> Any:
    given = [torch.tensor(values), torch.tensor([0.5, -1.0, 1.5, 0.0]), torch.ones(4) * 0.5]
    if grad:
        given = [
            t.requires_grad_() * 1 if i < 2 else t.requires_grad_() for i, t in enumerate(given)
        ]
        for tensor in given[:2]:
            tensor.retain_grad()
    log: list[Any] = []
    big = torch.ones(2, 1 << 18)
    try:
        result = function(*given, log, big)
        leaves = pytree.tree_leaves(result)
        wanted = [leaf.sum() * (i + 1) for i, leaf in enumerate(leaves) if leaf.requires_grad]
        if wanted:
            sum(wanted).backward()
    except Exception as error:
        text = str(error).partition("\n")[0].partition(" [torch")[0]
        return type(error).__name__, text, log, [t.detach() for t in given], big[0, :5], big.sum()
    which = [[leaf is other for other in (*given, *leaves)] for leaf in leaves]
    facts = [(leaf.detach(), leaf.requires_grad, leaf.stride()) for leaf in leaves]
    grads = [t.grad for t in given]
    return facts, which, [t.detach() for t in given], grads, log, big[0, :5], big.sum()


def _agree(one: Any, other: Any) -> bool:
    left, spec = pytree.tree_flatten(one)
    right, other_spec = pytree.tree_flatten(other)
    return spec == other_spec and all(map(_alike, left, right))


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and one == other
    if not isinstance(other, torch.Tensor) or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def mismatch(text: str, backend: str, captured: bool) -> str | None:
    """Where eager and compiled differ. captured: whether numbers and sizes become symbols."""
    scope: dict[str, Any] = {"torch": torch, "math": math, "while_loop": while_loop}
    scope["interpolate"] = interpolate
    scope |= {"scan": scan, "associative_scan": associative_scan}
    exec(compile(text, "<data>", "exec"), scope)
    options = {"capture_scalar_outputs": captured, "capture_dynamic_output_shape_ops": captured}
    dynamo.reset()
    with dynamo.config.patch(capture_branches="all", **options), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = dynamo.compile(scope["f"], backend=backend)
        for values in VALUES:
            for grad in (False, True):
                sides = [_outcome(f, values, grad) for f in (scope["f"], compiled)]
                if not _agree(*sides):
                    told = f"{values} grad={grad} captured={captured}"
                    return f"{text}\n  {told}\n  eager    {sides[0]}\n  compiled {sides[1]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.data", description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--backend", default="eager")
    options = parser.parse_args()
    print(f"--seed {options.seed} --programs {options.programs} --backend {options.backend}")
    wrong = 0
    for number, text in zip(range(options.programs), Programs(options.seed)):
        found = mismatch(text, options.backend, bool(number % 2))
        if found:
            wrong += 1
            print(found, flush=True)
    print(f"{options.programs} programs, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
