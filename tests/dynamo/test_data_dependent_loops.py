"""Loops that read tensors in each turn run as they are; what is around them is captured."""

from __future__ import annotations

import pytest
import torch

import dynamo
from backends.eager import eager
from tests.dynamo.capturing import compiled
from tests.dynamo.differential import check
from tests.dynamo.dynamic_support import Counting

SHIFTS = torch.tensor([1, 0, 2])  # of no frame: its values are not known while capturing
PROGRAMS = {
    "shifts": """
        def f(x):
            y, k = x + 1, (x.argsort() + 1) % 3
            for i in range(3):
                y = y.roll(int(k[i])) + i
            return y * 2
        ---
        run(T(3))
        run(T(4))
    """,
    "comprehension": """
        def f(x, n):
            y = x.abs() + 1
            z = torch.stack([y[v] * n for v in (y.long() % 2)], -1)
            return z.sum() + y
        ---
        run(T(3), 2)
        run(T(3), 3)
    """,
    "comprehension_in_a_callee": """
        def pick(y, k, out):
            out.append([y[i].item() for i in k])
            return y + 1
        def middle(y, k, out):
            with contextlib.nullcontext():
                y = pick(y, k, out)
            return y * 2
        def f(x, k, out):
            return middle(x + 1, k, out) + 3
        ---
        out = []
        run(T(3), [0, 2], out)
        run(T(3), [1], out)
        run(T(3), [9, 0], out)
    """,
    "callee_of_callees": """
        def deepest(y, n):
            total = 0
            for i in range(n):
                total = total + y[i].item()
                log.append(total)
            return y * total
        def deeper(y, n):
            return deepest(y, n) + 1
        def deep(y, n):
            return deeper(y + 1, n) - 1
        def f(x, n):
            return deep(x * 2, n) * 2
        ---
        run(T(3), 3)
        run(T(3), 3)
        run(T(3), 2)
        run(T(3), 4)
    """,
    "closure": """
        def f(x):
            total, k = 0.0, x.long()
            def add(v):
                nonlocal total
                total += float(v)
            def inner(y):
                for v in y:
                    add(v)
                    log.append(k[int(v) % 2].item())
                return y * total
            return inner(x + 1) * 2, total
        ---
        run(T(3))
        run(T(3))
    """,
    "raised_inside": """
        def f(x, limit):
            y = x + 1
            for i in range(4):
                v = y[i].item()
                if v > limit:
                    raise ValueError(i, v)
                y = y * 1.5
            return y
        ---
        run(T(4), 100.0)
        run(T(4), 0.5)
        run(T(3), 100.0)
    """,
    "caught_by_the_caller": """
        def steps(y, n):
            for i in range(n):
                log.append(y[i].item())
            return y + 5
        def f(x, n):
            y = x + 1
            try:
                y = steps(y, n)
            except IndexError as error:
                log.append(str(error))
                y = y * 2
            return y - 1
        ---
        run(T(3), 3)
        run(T(3), 4)
    """,
    "try_around_it": """
        def f(x, n):
            y, seen = x + 1, -1
            try:
                for i in range(n):
                    seen = i
                    log.append(y[i].item())
            except IndexError:
                y = y * 2
            finally:
                log.append(seen)
            return y, seen
        ---
        run(T(3), 3)
        run(T(3), 4)
    """,
    "try_inside": """
        def f(x, n):
            y = x + 1
            for i in range(n):
                try:
                    log.append(y[i].item())
                except IndexError:
                    y = y * 2
                    continue
                finally:
                    y = y + 1
            return y
        ---
        run(T(3), 3)
        run(T(3), 5)
    """,
    "break_and_else": """
        def f(x, limit):
            y = x + 1
            for v in y:
                if v.item() > limit:
                    y = y * 2
                    break
                y = y + 1
            else:
                y = y - 7
            return y * 3
        ---
        run(T(3), 0.0)
        run(T(3), 9.0)
    """,
    "break_without_else": """
        def f(x, limit):
            y = x + 1
            for v in y:
                y = y + 1
                if v.item() > limit:
                    break
            return y * 3
        ---
        run(T(3), 0.0)
        run(T(3), 9.0)
    """,
    "return_inside": """
        def f(x, limit):
            y = x + 1
            for i, v in enumerate(y):
                if v.item() > limit:
                    return y * 2, i
                y = y + 1
            return y * 3
        ---
        run(T(3), 0.0)
        run(T(3), 9.0)
    """,
    "variables_of_the_loop_behind_it": """
        def f(x):
            y = x + 1
            for i in range(3):
                last = y[i].item()
                y = y + 1
            return y * last, i
        ---
        run(T(3))
        run(T(3))
    """,
    "variables_with_an_earlier_value": """
        def f(x):
            y, i, last, gone = x + 1, -1, 0, 3
            for i in range(3):
                last = y[i].item()
                y = y + 1
                if i == 1:
                    del gone
            return y * last, i
        ---
        run(T(3))
        run(T(3))
    """,
    "deleted_inside": """
        def f(x):
            y, gone = x + 1, 3
            for i in range(3):
                if y[i].item() > 0:
                    del gone
                y = y + 1
            return y, gone
        ---
        run(T(3))
        run(-T(3) - 9)
    """,
    "deleted_in_the_last_turn": """
        def f(x):
            y, gone = x + 1, 3
            for i in range(3):
                if y[i].item() > 0 and i == 2:
                    del gone
                y = y + 1
            return y, gone
        ---
        run(T(3))
        run(T(3) - 9)
    """,
    "nested": """
        def f(x):
            y = x + 1
            for i in range(2):
                for j in range(2):
                    y = y + y[i].item() * j
                y = y * 2
            return y - 1
        ---
        run(T(3))
        run(T(3))
    """,
    "generator": """
        def numbers(y):
            log.append("starts")
            for i in range(3):
                yield y + i
            log.append("ends")
        def f(x):
            y, total = x + 1, 0
            for z in numbers(y):
                total = total + z.sum().item()
                log.append(total)
            return y * total
        ---
        run(T(3))
        run(T(3))
    """,
    "items": """
        def f(x, d):
            y = x + 1
            for (k, v), w in zip(d.items(), reversed([1, 2])):
                y = y + v.sum().item() * w
                log.append(k)
            return y * 2
        ---
        run(T(3), {"a": T(2), "b": T(3)})
        run(T(3), {"a": T(2), "b": T(3), "c": T(1)})
    """,
    "changed_while_it_runs": """
        def f(x, xs):
            y = x + 1
            for v in xs:
                if v.item() < 3:
                    xs.append(v + 1)
                y = y + v
            return y * 2
        ---
        xs = [torch.tensor(1), torch.tensor(5)]
        run(T(3), xs)
        run(T(3), xs)
    """,
    "in_an_exception_handler": """
        def f(x):
            y = x + 1
            try:
                [].pop()
            except IndexError as error:
                for i in range(2):
                    log.append((y[i].item(), str(error)))
                    y = y + 1
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    "in_a_with_block": """
        def f(x):
            with torch.no_grad():
                y = x + 1
                for i in range(2):
                    y = y + y[i].item()
            return y * 2 * x
        ---
        run(T(3, grad=True))
        run(T(3, grad=True))
    """,
    "methods": """
        class Base(nn.Module):
            def steps(self, y):
                for i in range(len(self.found), 3):
                    self.found.append(y[i].item())
                return y + 1
        class M(Base):
            def __init__(self):
                super().__init__()
                self.found = []
            def steps(self, y):
                for _ in range(2):
                    y = super().steps(y) + (y > 0).sum().item()
                return y
            def forward(self, x):
                return self.steps(x * 2) * 3
        m = M()
        def f(x):
            return m(x)
        ---
        run(T(3))
        run(T(3))
        m.found
    """,
    "gradients": """
        def f(x, w):
            y = x * w
            for i in range(3):
                y = y * y[i].item() + w
            return (y * y).sum()
        ---
        w = T(3, grad=True)
        run(T(3), w).backward()
        w.grad
        run(T(3), w).backward()
        w.grad
    """,
    "in_place": """
        def f(x, out):
            view = out[1:]
            for i in range(2):
                view += x[i].item()
                out[0] = i
            return out * 2, view.sum()
        ---
        out = T(3)
        run(T(3), out)
        run(T(3), out)
        out
    """,
    "random_numbers": """
        def f(x):
            y = torch.rand(3)
            for i in range(2):
                y = y + torch.rand(3) * y[i].item()
            return y + torch.rand(3)
        ---
        run(T(3))
        run(T(3))
    """,
    "a_compiled_function_inside": """
        import dynamo
        @dynamo.compile(backend="eager")
        def g(y):
            return y.sin() + 1
        def f(x):
            y = x + 1
            for i in range(3):
                y = g(y) + y[i].item()
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    "as_an_argument": """
        def f(x):
            y = x + 1
            i = 5
            z = torch.stack([y * y[i].item() for i in range(3)], dim=0).add(i)
            return z * 2, i
        ---
        run(T(3))
        run(T(3))
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    check(PROGRAMS[name])


def shifts(x):
    y, k = x + 1, SHIFTS
    for i in range(3):
        y = y.roll(int(k[i])) + i
    return y * 2


def long_turns(x):
    y = x + 1
    for i in range(3):
        for _ in range(10):
            y = y.sin() + 1
        y = y + y[i].item()
    return y * 2


def depends_on_data(x):
    y = x + 1
    for i in range(3):
        if y[i] > 0:
            y = y.double()
    return y * 2


def inside_callee(x):
    return [shifts(x + i) for i in range(2)], x + 1


def both_sides(x):
    y = x + 1
    for _ in range(2):
        y = y * y.max().item()
    y = y + 1
    for v in [float(v) for v in y]:
        y = y + v
    return y


def long_and_short(x):
    y = x + 1
    for i in range(33):
        y = y * x[i % 3].item()
    return both_sides(y + 1)


# function -> operations of each graph, and codes of the breaks
GRAPHS = {
    shifts: ([14], []),
    depends_on_data: ([1, 1], ["DATA_DEPENDENT_LOOP"]),
    inside_callee: ([31], []),
    both_sides: ([18], []),
    # A graph holds few numbers that are data.
    long_and_short: ([1, 19], ["DATA_DEPENDENT_LOOP"]),
}


@pytest.fixture
def data_breaks():
    with dynamo.config.patch(capture_scalar_outputs=False):
        yield


def test_short_loops_are_captured_with_what_they_read():
    fn, captured = compiled(both_sides)
    for _ in range(2):
        with dynamo.config.patch(capture_scalar_outputs=True):
            torch.testing.assert_close(fn(torch.arange(3.0)), both_sides(torch.arange(3.0)))
    assert captured.codes == [] and len(captured.op_counts) == 1


def test_long_loops_run_as_they_are():
    def fn(x):
        y = x + 1
        for i in range(100):
            y = y * x[i].item()
        return y * 2

    x = torch.linspace(0.9, 1.1, 100)
    compiled_fn, captured = compiled(fn)
    torch.testing.assert_close(compiled_fn(x), fn(x))
    assert captured.codes == ["DATA_DEPENDENT_LOOP"] and captured.op_counts == [1, 1]


@pytest.mark.usefixtures("data_breaks")
@pytest.mark.parametrize("function", GRAPHS, ids=lambda function: function.__name__)
def test_graphs(function):
    fn, captured = compiled(function)
    for _ in range(2):
        torch.testing.assert_close(fn(torch.arange(3.0)), function(torch.arange(3.0)))
    assert (captured.op_counts, captured.codes) == GRAPHS[function]


@pytest.mark.usefixtures("data_breaks")
def test_long_turns_are_captured():
    fn, captured = compiled(long_turns)
    torch.testing.assert_close(fn(torch.arange(3.0)), long_turns(torch.arange(3.0)))
    assert "DATA_DEPENDENT_LOOP" not in captured.codes
    assert sum(count >= 20 for count in captured.op_counts) >= 1
    fn, captured = compiled(shifts)
    with dynamo.config.patch(data_dependent_loop_limit=0):
        torch.testing.assert_close(fn(torch.arange(3.0)), shifts(torch.arange(3.0)))
    assert not captured.codes and len(captured.op_counts) == 1


@pytest.mark.usefixtures("data_breaks")
def test_fullgraph_captures_the_reads():
    x = torch.arange(3.0)
    found = dynamo.compile(shifts, backend="eager", fullgraph=True)(x)
    assert torch.equal(found, shifts(x))


# -- suppression of boxes: as many turns as there are boxes --------------------------------------
def overlap(box, others):
    def area(b):
        return (b[..., 2:] - b[..., :2]).prod(-1)

    low, high = torch.max(box[:2], others[:, :2]), torch.min(box[2:], others[:, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    return both / (area(box) + area(others) - both)


def suppress(boxes, scores):
    order, kept = scores.argsort(descending=True), []
    while order.numel() > 0:
        first = order[0]
        kept.append(first)
        others = boxes[order[1:]]
        size = lambda b: (b[..., 2:] - b[..., :2]).prod(-1)  # noqa: E731
        both = overlap(boxes[first], others) * (size(boxes[first]) > 0) * (size(others) >= 0)
        order = order[1:][both <= 0.5]
    return torch.stack(kept)


def suppress_by_place(boxes, scores):
    order = scores.argsort(descending=True)
    boxes = boxes[order]
    keep = torch.ones(len(boxes), dtype=torch.bool)
    for i in range(len(boxes)):
        if keep[i]:
            keep[i + 1 :] &= overlap(boxes[i], boxes[i + 1 :]) <= 0.5
    return order[keep]


def suppress_from(boxes, scores):
    """A range that begins and ends at sizes."""
    kept = []
    for i in range(len(scores) // 2, len(boxes)):
        if scores[i] >= 0:
            kept.append(boxes[i] * 2)
    return kept


@pytest.mark.parametrize("function", [suppress, suppress_by_place, suppress_from])
def test_loops_over_sizes_are_compiled_for_any(function):
    """Not for each number of turns."""
    counting = Counting(eager)
    compiled = dynamo.compile(function, backend=counting)
    counts = []
    generator = torch.Generator().manual_seed(0)
    counted = [6, 1, 0, 3, 2, 9, 4, 30, 14, 5, 21, 2, 1, 0, 40]
    for count in [n for n in counted if n or function is not suppress]:
        low, scores = (torch.rand(count, n, generator=generator) for n in (2, 1))
        boxes = torch.cat([low, low + torch.rand(count, 2, generator=generator) / 2], 1)
        expected, got = (f(boxes, scores[:, 0]) for f in (function, compiled))
        torch.testing.assert_close(got, expected)
        counts.append(len(counting.graphs))
    assert counts[6] == counts[-1], counts


def test_functions_that_each_turn_makes_are_known_by_their_code():
    def loop(x):
        found = []
        while len(found) < 6:
            n = len(found)
            shifted = lambda t: t * 2 + n  # noqa: E731
            found.append(shifted(x) + x[0].item() + shifted(x))
        return found

    counting = Counting(eager)
    compiled = dynamo.compile(loop, backend=counting)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), loop(torch.ones(3)))
        count = len(counting.graphs)
    compiled(torch.ones(3))
    assert count == len(counting.graphs)


def test_loops_with_products_are_compiled():
    """A product and what follows gain more than a break costs."""
    weights = torch.linspace(-1, 1, 48).view(3, 4, 4)

    def mixture(x, chosen):
        out = torch.zeros_like(x)
        for e in range(33):
            out = out + torch.relu(x @ weights[e % 3]) @ weights[e % 3] * float(chosen[e % 3])
        return out

    def sums(x, chosen):
        out = torch.zeros_like(x)
        for e in range(33):
            out = out + torch.relu(x * weights[e % 3, 0]) * float(chosen[e % 3]) + weights[e % 3, 1]
        return out

    x = torch.linspace(-1, 1, 24).view(6, 4)
    found = []
    for function in (mixture, sums):
        report = dynamo.explain(function, backend="eager")(x, torch.tensor([0, 1, 2]))
        found.append([reason.code for reason in report.break_reasons])
        compiled = dynamo.compile(function, backend="eager")
        for chosen in ([0, 1, 2], [1, 1, 1], [0, 0, 2]):
            given = x, torch.tensor(chosen)
            torch.testing.assert_close(compiled(*given), function(*given))
    assert found == [[], ["DATA_DEPENDENT_LOOP"]]
    weights.requires_grad_()
    report = dynamo.explain(mixture, backend="eager")(x, torch.tensor([0, 1, 2]))
    assert [reason.code for reason in report.break_reasons] == ["DATA_DEPENDENT_LOOP"]


def test_sizes_in_loops_are_captured():
    """A loop of no other data is in the graph whole; where data breaks it, as it would anyway."""

    def rows(x, chosen):
        out = torch.zeros_like(x)
        for e in range(33):
            at = torch.where(chosen == e)[0]
            out[at] += x[at] * (e + 1)
        return out * 2

    def breaks(x, chosen):
        return rows(x, chosen), [0] * int(chosen.sum())

    x = torch.linspace(-1, 1, 24).view(6, 4)
    for function, codes in ((rows, []), (breaks, ["DATA_DEPENDENT_VALUE"])):
        counting = Counting(eager)
        compiled = dynamo.compile(function, backend=counting)
        for chosen in ([0, 1, 2, 2, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 2, 2, 2, 0]):
            given = x, torch.tensor(chosen)
            torch.testing.assert_close(compiled(*given), function(*given))
        report = dynamo.explain(function, backend="eager")(x, torch.tensor([0, 1, 2, 2, 1, 0]))
        found = [reason.code for reason in report.break_reasons]
        assert set(codes) <= set(found) and (bool(codes) or len(counting.graphs) == 1)


def test_what_computes_sizes_is_no_frame_of_the_program():
    """Numbers that a continuation is given are made by functions of ours, which run as they are."""

    def function(x):
        kept = []
        for i in range(len(x) // 2, len(x)):
            if x[i] >= 0:
                kept.append(x[i] * 2)
        return kept

    compiled = dynamo.compile(function, backend="eager")
    for count in (6, 3, 9, 4):
        torch.testing.assert_close(compiled(torch.ones(count)), function(torch.ones(count)))
    assert {record.name for record in compiled.context.records} == {"function"}
