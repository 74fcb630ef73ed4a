"""Branches on data whose sides write to objects from outside: beside eager, in one graph where both
sides leave the same structure.
"""

from __future__ import annotations

import weakref

import pytest
import torch

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import Programs, same
from tests.dynamo.dynamic_support import Counting

CALLS = ([3.0, 1.0], [-1.0, -2.0], [0.5, 0.5], [9.0, 0.0], [-4.0, 1.0])


class Holder:
    def __init__(self):
        self.scale, self.other = torch.ones(2), torch.full((2,), 2.0)
        self.flag, self.word = False, "same"
        self.count = torch.tensor(2)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.ones_(self.linear.weight)
        self.low = torch.nn.Buffer(torch.zeros(1))
        self.high = torch.nn.Buffer(torch.zeros(1))
        self.norm = torch.nn.BatchNorm1d(1)
        self.plain = torch.zeros(2)
        self.holder = Holder()
        self.table = {"a": torch.zeros(2), "b": torch.ones(2)}
        self.seen = [torch.zeros(2)]

    def state(self):
        parts = [self.low, self.high, self.plain, *self.norm.buffers(), *vars(self.holder).values()]
        names = [*vars(self), *self._buffers, *vars(self.holder), *self.table]
        return [*parts, *self.table.values(), *self.seen, *names, len(self.seen)]


program = Programs()


@program(1)
def range_of_activations(m, given):
    x = given.detach()
    if m.low.min() > -1e-5 and m.high.max() < 1e-5:
        m.low = m.low + x.min()
        m.high = m.high + x.max()
    else:
        m.low = m.low * 0.9 + x.min() * 0.1
        m.high = m.high * 0.9 + x.max() * 0.1
    return given.clamp(m.low, m.high)


@program(1)
def one_side_writes(m, x):
    if x.sum() > 1:
        m.plain = m.plain + x.detach()
    return m.linear(x) + m.plain


@program(1)
def attributes_of_an_object(m, x):
    h = m.holder
    if x.sum() > 1:
        h.scale, h.word = h.scale * 2, "same"
        y = x * h.scale
    else:
        h.other = h.other - 1
        y = x * h.other
    return y + h.scale, h.word


@program(1)
def exchanges(m, x):
    y = x * 2
    h = m.holder
    if y.sum() > 1:
        h.scale, h.other = h.other * 1, h.scale * 1
    return y + h.scale


@program(1)
def items_of_a_dict(m, x):
    if x.sum() > 1:
        m.table["a"] = x.detach() * 2
    else:
        m.table["b"] = m.table["a"] - 1
    return x + m.table["b"]


@program(1)
def as_many_items(m, x):
    if x.sum() > 1:
        m.seen.append(x.detach() * 2)
        y = m.linear(x)
    else:
        m.seen.append(x.detach() - 1)
        y = x * 3
    return y + 1


@program(1)
def items_replaced(m, x):
    parts = [x * 1, x * 2]
    if x.sum() > 1:
        parts[0] = parts[1] + 1
    return parts[0] + parts[1]


@program(1)
def nested(m, x):
    if x.sum() > 1:
        m.plain = m.plain + 1
        if x.max() > 4:
            m.plain = m.plain * 2
        y = x + m.plain
    else:
        m.plain = m.plain - 1
        y = x * m.plain
    return y


@program(1)
def in_a_loop(m, x):
    for k in range(3):
        if x.sum() > k:
            m.holder.scale = m.holder.scale + x.detach() * k
            x = m.linear(x) * 0.5
    return x


@program(1)
def drops_layers_and_counts(m, x):
    for _ in range(2):
        if torch.rand([]) < 0.5:
            m.low = m.low + 1
        else:
            x = torch.nn.functional.dropout(m.linear(x), 0.4)
    return x


@program(1)
def written_before_and_behind(m, x):
    m.plain = m.plain + 1
    if x.sum() > 1:
        m.plain = m.plain * 3
    m.plain = m.plain - 2
    return x * m.plain


@program(1)
def a_flag(m, x):
    h = m.holder
    y = x * 1
    if x.sum() > 1:
        h.flag = True
        y = y + 1
    h.flag = False
    return y


@program(1)
def keeps_a_gradient(m, x):
    y = m.linear(x)
    if y.sum() > 1:
        m.holder.scale = y * 2
    else:
        m.holder.scale = y * y
    z = m.holder.scale.sum()
    m.holder.scale = m.holder.scale.detach()
    return z


@program(1)
def drops_layers_with_statistics(m, x):
    for _ in range(2):
        if torch.rand([]) > 0.4:
            x = m.norm(m.linear(x)[:, None])[:, 0]
    return x * m.norm.running_mean


@program(1)
def counts_in_place(m, x):
    before = m.holder.count
    if x.sum() > 1:
        m.holder.count.mul_(2).add_(1)
        m.holder.count += 1
        y = m.linear(x)
    else:
        if x.max() > 0.9:
            m.holder.count.sub_(1)
        y = x - m.low
    return y + m.holder.count, before is m.holder.count


@program(None)
def writes_what_another_may_view(m, x):
    if x.sum() > 1:
        m.low.add_(1)
        x = x * m.high
    return x


@program(None)
def writes_a_part(m, x):
    if x.sum() > 1:
        m.plain[0] = 3
    return m.linear(x) + m.plain


@program(None)
def writes_what_has_a_gradient(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.plain.copy_(y)
    z = x * m.plain
    m.plain = m.plain.detach()
    return z


@program(None)
def leaves_what_it_writes(m, x):
    y = m.high
    if x.sum() > 1:
        y = m.low.add_(1)
    return x * y, y is m.low


@program(None)
def writes_one_of_two_views(m, x):
    one, other = m.plain.view(2), m.plain
    if x.sum() > 1:
        other.add_(1)
        x = x * one
    return x * one


@program(None)
def more_items(m, x):
    if x.sum() > 1:
        m.seen.append(x.detach() * 2)
    return m.linear(x)


@program(1)
def collects_of_layers_kept(m, x):
    found = {"seen": []}
    seen = found["seen"]
    for _ in range(3):
        if torch.rand([]) > 0.4:
            if len(found["seen"]) == 0:
                seen.append(x)
            x = m.linear(x)
            seen += [x, None]
    found["all"] = tuple(seen)
    return x * 2, len(found), found["seen"] is seen, found["all"] is not None


@program(1)
def counts_what_was_kept(m, x):
    seen = []
    if x.sum() > 1:
        seen.append(x)
    elif x.sum() > 0:
        seen.append(x * 2)
        seen.append(x * 3)
    seen.append(x)
    if 3 > len(seen) > 1:
        return m.linear(x)
    return x * 2


def looks(function):
    """A program whose list has more items behind one side, at which the function looks."""

    def more_items_seen(m, x):
        seen = [x]
        if x.sum() > 1:
            seen.append(x * 2)
        y = m.linear(x)
        return y, function(seen, y)

    more_items_seen.__name__ = f"more_items_{function.__name__}"
    return program(None)(more_items_seen)


@looks
def returned(seen, y):
    return [item.tolist() for item in seen]


@looks
def hidden(seen, y):
    return {"seen": tuple(seen)}["seen"][-1].tolist()


@looks
def counted(seen, y):
    return len(seen)


@looks
def measured(seen, y):
    return len(seen) > 1


@looks
def last(seen, y):
    return seen[-1] is seen[0]


@looks
def shortened(seen, y):
    return len(seen[:-1])


@looks
def popped(seen, y):
    seen.pop()
    return bool(seen)


@looks
def copied(seen, y):
    other = list(seen)
    return other is seen, len(other)


@looks
def listed(seen, y):
    return len([0, *seen])


@looks
def joined(seen, y):
    return len(seen + [y])


@looks
def compared(seen, y):
    return tuple(seen) == (seen[0],)


@looks
def written_in_a_text(seen, y):
    return "%s" % tuple(len(item) for item in seen[1:]) if len(seen) == 2 else "one"


@looks
def multiplied(seen, y):
    seen *= 2
    return len(seen)


@looks
def cleared(seen, y):
    more = [1][: len(seen) - 1]
    seen.clear()
    return seen, more


@looks
def in_a_later_branch(seen, y):
    return len(seen) if y.sum() > 2 else -len(seen)


@looks
def iterated(seen, y):
    items = iter(seen)
    seen.append(y)
    return sum(1 for _ in items)


@looks
def behind_a_break(seen, y):
    word = str(y.tolist())
    return len(seen), word


@program(1)
def more_items_kept_for_a_while(m, x):
    m.holder.word = seen = []
    if x.sum() > 1:
        m.holder.word.append(x)
    seen.append(x)
    m.holder.word = "same"
    return m.linear(x)


@program(None)
def more_items_kept(m, x):
    m.holder.word = seen = []
    if x.sum() > 1:
        seen.append(1)
    return m.linear(x)


@program(None)
def more_items_weakly_referenced(m, x):
    m.holder.word = seen = []
    if x.sum() > 1:
        seen.append(x)
    y = x * 2
    seen.append(y)
    reference = weakref.ref(y)
    del y
    alive = reference() is not None
    m.holder.word = "same"
    return m.linear(x), alive


@program(None)
def more_items_of_a_kind_of_their_own(m, x):
    seen = []
    if x.sum() > 1:
        seen.append(Holder())
    return m.linear(x)


@program(None)
def a_new_key(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.table["c"] = x.detach() * 2
    return y + len(m.table)


@program(None)
def a_key_moves(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.table["a"] = m.table.pop("a") + 1
    return y


@program(None)
def a_new_attribute(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.holder.new = x.detach() * 2
    return y


@program(None)
def deleted(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.holder.new = 1
        del m.holder.new
        del m.holder.other
        m.holder.other = x.detach() * 2
    return y


@program(None)
def another_shape(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.plain = x.detach()[None]
    return y


@program(None)
def one_tensor_twice(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.holder.scale = m.holder.other
    return y + m.holder.scale


@program(1)
def written_in_place(m, x):
    y = m.linear(x)
    if x.sum() > 1:
        m.plain.add_(1)
    return y + m.plain


@program(1)
def clips_in_place(m, x):
    y = m.linear(x)
    with torch.no_grad():
        gradients = [y * 2, (x * m.plain)[None].mT]
        norm = sum(g.square().sum() for g in gradients).sqrt()
        if norm > 2 and norm.isfinite():
            for g in (each for each in gradients):
                g.mul_(2 / (norm + 1e-6))
    return y + gradients[0] + gradients[1].sum()


@program(1)
def writes_a_view_of_its_own(m, x):
    z = m.plain * 3
    if x.sum() > 1:
        z[0].add_(1)
    return m.linear(x) + z


@program(1)  # as no call writes
def writes_what_a_gradient_needs(m, x):
    z = m.plain * 3
    y = m.linear(x) * z
    if x.sum() > 100:
        z.add_(1)
    return y


@program(1)  # as no call writes
def writes_an_input_that_a_gradient_needs(m, x):
    y = m.linear(x) * m.holder.scale
    if x.sum() > 100:
        m.holder.scale.add_(1)
    return y


@program(None)
def writes_what_it_reads_through_a_view(m, x):
    z = m.plain + 3
    first = z[:1]
    if x.sum() > 1:
        z.add_(1)
        first = first * 2
    return m.linear(x) + first


@program(None)
def goes_on_with_an_outer_generator(m, x):
    rows = (row for row in (m.plain, m.linear(x).detach()))
    y = m.linear(x)
    if x.sum() > 1:
        y = y + next(rows)
    return y + next(rows)


def outcomes(run):
    """All that calls of the program leave, and which of the state's tensors are which."""
    torch.manual_seed(0)
    found, facts, m = [], [], Layer()
    for values in CALLS:
        before = m.state()
        x = torch.tensor(values, requires_grad=True)
        result = run(m, x)
        result = result if isinstance(result, tuple) else (result,)
        y = result[0]
        m.linear.weight.grad = None
        y.sum().backward()
        kept = [[a is b for b in before] for a in m.state() if isinstance(a, torch.Tensor)]
        tensors = [t.detach().clone() for t in m.state() if isinstance(t, torch.Tensor)]
        others = [t for t in (*m.state(), *result[1:]) if not isinstance(t, torch.Tensor)]
        found += [y.detach(), x.grad, m.linear.weight.grad, tensors, torch.rand(2)]
        facts.append((kept, others))
    return found, facts


def check(function, backend):
    counting = Counting(backend)
    compiled = dynamo.compile(lambda m, x: function(m, x), backend=counting)
    (actual, facts), (expected, known) = outcomes(compiled), outcomes(function)
    same(actual, expected)
    assert facts == known
    if program[function] == 1:
        assert len(counting.graphs) == 1
    else:
        assert len(counting.graphs) > 1 or not counting.graphs


@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function):
    check(function, eager)


COMPILED = [range_of_activations, one_side_writes, nested, in_a_loop, keeps_a_gradient, exchanges]
COMPILED += [collects_of_layers_kept, clips_in_place, writes_a_view_of_its_own]


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_compiled(function, backend):
    check(function, backend)


def halves(p, n):
    p.grad = p.grad * 0.5


def halves_in_place(p, n):
    p.grad *= 0.5


def counts(p, n):
    p.grad = torch.full_like(p, n)


def drops(p, n):
    p.grad = None


def tags(p, n):
    p.tag = n


@pytest.mark.parametrize("backend", [eager, inductor])
@pytest.mark.parametrize("change", [halves, halves_in_place, counts, drops, tags])
def test_gradients(change, backend):
    """Gradients as in eager, and the same objects where the side is not run, or writes in place."""

    def steps(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        parameters = list(model.parameters())
        for p in parameters:
            p.grad = torch.ones_like(p)

        def function(x):
            n = x.sum().item()
            if n > 2:
                for p in model.parameters():
                    change(p, n)
            return model(x)

        run, found = wrap(function), []
        for value in (0.1, 1.0, 0.2, 3.0, -1.0):
            before = [p.grad for p in parameters]
            y = run(torch.full((2, 3), value))
            found.append([old is p.grad for old, p in zip(before, parameters)])
            y.sum().backward()
            found.append([None if p.grad is None else p.grad.clone() for p in parameters])
            found.append([getattr(p, "tag", None) for p in parameters])
        return found

    whole = change in (halves, counts)
    expected = steps(lambda f: f)
    actual = steps(lambda f: dynamo.compile(f, backend=backend, fullgraph=whole))
    torch.testing.assert_close(actual, expected)
