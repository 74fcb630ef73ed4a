"""Which sizes become symbols, when, and what is said about it."""

from __future__ import annotations

import logging

import pytest
import torch

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting, check


def double(x):
    return x * 2


def shapes_of(counting):
    """The sizes of the first tensor of each graph, as text."""
    found = []
    for gm in counting.graphs:
        vals = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
        found.append(str(tuple(next(v for v in vals if isinstance(v, torch.Tensor)).shape)))
    return found


def compiled_for(fn, *calls, **options):
    counting = Counting(eager)
    compiled = dynamo.compile(fn, backend=counting, **options)
    for args in calls:
        result = compiled(*args)
        torch.testing.assert_close(result, fn(*args))
    return shapes_of(counting)


def ones(*size):
    return torch.ones(*size)


def eager_of_constants(gm, example_inputs):
    return gm.forward


eager_of_constants.dynamic_shapes = False


class TestWhen:
    def test_the_second_size_is_a_symbol(self):
        assert compiled_for(double, [ones(3, 4)], [ones(5, 4)], [ones(9, 4)]) == [
            "(3, 4)",
            "(s0, 4)",
        ]

    def test_dimensions_vary_one_by_one(self):
        calls = [ones(3, 4)], [ones(5, 4)], [ones(5, 6)], [ones(8, 9)]
        assert compiled_for(double, *calls) == ["(3, 4)", "(s0, 4)", "(s0, s1)"]

    def test_dynamic_true_is_at_once(self):
        assert compiled_for(double, [ones(3, 4)], [ones(5, 6)], dynamic=True) == ["(s0, s1)"]

    def test_dynamic_false_is_never(self):
        shapes = compiled_for(double, [ones(3)], [ones(5)], [ones(7)], dynamic=False)
        assert shapes == ["(3,)", "(5,)", "(7,)"]

    def test_config(self):
        with dynamo.config.patch(automatic_dynamic_shapes=False):
            assert compiled_for(double, [ones(3)], [ones(5)]) == ["(3,)", "(5,)"]

    def test_config_holds_for_the_last_version_too(self):
        sizes = range(2, 3 + dynamo.config.recompile_limit)
        with dynamo.config.patch(automatic_dynamic_shapes=False):
            shapes = compiled_for(double, *([ones(n)] for n in sizes))
        assert shapes == [f"({n},)" for n in sizes[:-1]]

    def test_zero_and_one_are_sizes_as_any(self):
        calls = [ones(3)], [ones(5)], [ones(1)], [ones(0)], [ones(9)], [ones(1)]
        assert compiled_for(double, *calls) == ["(3,)", "(s0,)"]

    def test_zero_is_compiled_for_itself_where_strides_depend_on_it(self):
        calls = [ones(4, 3)], [ones(4, 5)], [ones(4, 1)], [ones(4, 0)], [ones(4, 9)]
        assert compiled_for(double, *calls) == ["(4, 3)", "(4, s0)", "(4, 0)"]

    def test_one_is_compiled_for_itself_where_it_is_asked(self):
        def fn(x):
            return x.squeeze(0) * 2

        calls = [ones(3, 4)], [ones(5, 4)], [ones(1, 4)], [ones(7, 4)]
        assert compiled_for(fn, *calls) == ["(3, 4)", "(s0, 4)", "(1, 4)"]

    def test_one_first(self):
        assert compiled_for(double, [ones(1)], [ones(4)], [ones(6)]) == ["(1,)", "(s0,)"]

    def test_a_backend_without_symbols_has_constants(self):
        sizes = []

        def backend(gm, example_inputs):
            sizes.append(example_inputs[0].shape)
            return gm.forward

        backend.dynamic_shapes = False
        compiled = dynamo.compile(double, backend=backend)
        for n in (3, 4, 5):
            compiled(ones(n))
        assert sizes == [(3,), (4,), (5,)]

    def test_parameters_stay_constants(self):
        linear = torch.nn.Linear(4, 4)
        counting = Counting(eager)
        compiled = dynamo.compile(linear, backend=counting, dynamic=True)
        with torch.no_grad():
            compiled(ones(3, 4))
        vals = [n.meta["val"] for n in counting.graphs[0].graph.nodes if n.op == "placeholder"]
        tensors = [v for v in vals if isinstance(v, torch.Tensor)]
        assert [tuple(v.shape) for v in tensors if v.requires_grad] == [(4, 4), (4,)]
        assert str(tuple(tensors[0].shape)) == "(s0, 4)"

    def test_after_reset_it_begins_anew(self):
        counting = Counting(eager)
        compiled = dynamo.compile(double, backend=counting)
        compiled(ones(3))
        dynamo.reset()
        compiled(ones(4))
        assert shapes_of(counting) == ["(3,)", "(4,)"]

    def test_another_number_of_dimensions(self):
        calls = [ones(3)], [ones(3, 4)], [ones(5, 4)], [ones(6)], [ones(7, 1)]
        assert len(compiled_for(double, *calls)) == 3

    def test_the_recompile_limit_compiles_the_most_general_form(self):
        def fn(x, y):
            return x * 2, y + 1

        calls = [(ones(3), ones(2, 3)), (ones(4), ones(2, 3)), (ones(4), ones(5, 6))]
        counting = Counting(eager)
        with dynamo.config.patch(recompile_limit=2):
            compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
            for args in [*calls, (ones(7), ones(8, 9))]:
                torch.testing.assert_close(compiled(*args), fn(*args))
        assert len(counting.graphs) == 2


class TestMarks:
    def test_mark_dynamic(self):
        x = ones(3, 4)
        dynamo.mark_dynamic(x, 0)
        assert compiled_for(double, [x], [ones(7, 4)]) == ["(s0, 4)"]

    def test_several_dimensions(self):
        x = ones(3, 4, 5)
        dynamo.mark_dynamic(x, (0, -1))
        assert compiled_for(double, [x], [ones(7, 4, 9)]) == ["(s0, 4, s1)"]

    def test_mark_static(self):
        x = ones(5, 4)
        dynamo.mark_static(x, 0)
        assert compiled_for(double, [ones(3, 4)], [x]) == ["(3, 4)", "(5, 4)"]

    def test_mark_static_all(self):
        x = ones(3, 4)
        dynamo.mark_static(x)
        assert compiled_for(double, [x], dynamic=True) == ["(3, 4)"]

    def test_marks_after_a_static_compile(self):
        """What is marked otherwise than it was compiled is compiled for its marks, once."""

        def marked(mark, *size):
            x = ones(*size)
            mark(x, 0)
            return x

        for mark in (dynamo.mark_dynamic, dynamo.maybe_mark_dynamic):
            calls = [ones(3, 4)], [marked(mark, 3, 4)], [ones(7, 4)], [marked(mark, 8, 4)]
            more = [marked(mark, 1, 4)], [marked(mark, 1, 4)], [ones(3, 4)]
            dynamo.reset()
            assert compiled_for(double, *calls, *more) == ["(3, 4)", "(s0, 4)"]

    def test_static_marks_after_a_dynamic_compile(self):
        x = ones(5, 4)
        dynamo.mark_static(x, 0)
        calls = [ones(3, 4)], [ones(6, 4)], [ones(5, 4)], [x], [x], [ones(8, 4)]
        assert compiled_for(double, *calls) == ["(3, 4)", "(s0, 4)", "(5, 4)"]

    def test_marks_that_are_added_to_a_tensor(self):
        def fn(x):
            return x * 2 if x.size(0) == 3 else x

        counting = Counting(eager)
        compiled = dynamo.compile(fn, backend=counting)
        x = ones(3)
        x.label = "other attributes are none of ours"
        for _ in range(2):
            compiled(x)
        assert len(counting.graphs) == 1
        dynamo.maybe_mark_dynamic(x, 0)
        for _ in range(2):
            compiled(x)
        assert len(counting.graphs) == 2
        assert "dimension 0 is marked dynamic" in compiled.context.records[1].recompile_reason
        dynamo.mark_dynamic(x, 0)
        with pytest.raises(dynamo.errors.ConstraintViolation):
            compiled(x)

    @pytest.mark.parametrize("options", [{"dynamic": False}, {"backend": eager_of_constants}])
    def test_marks_that_change_nothing(self, options):
        counting = []
        backend = options.pop("backend", eager)

        def counted(gm, example_inputs):
            counting.append(gm)
            return backend(gm, example_inputs)

        counted.dynamic_shapes = getattr(backend, "dynamic_shapes", True)
        compiled = dynamo.compile(double, backend=counted, **options)
        x = ones(3)
        compiled(x)
        dynamo.mark_dynamic(x, 0)
        compiled(x)
        assert len(counting) == 1

    def test_a_marked_tensor_in_a_container(self):
        counting = Counting(eager)
        compiled = dynamo.compile(lambda xs: xs["a"][0] * 2, backend=counting)
        xs = {"a": [ones(3), ones(4)], "b": 1}
        for _ in range(3):
            compiled(xs)
        dynamo.mark_dynamic(xs["a"][0], 0)
        for _ in range(3):
            compiled(xs)
        assert shapes_of(counting) == ["(3,)", "(s0,)"]

    def test_maybe_mark_dynamic_gives_way(self):
        x = ones(3)
        dynamo.maybe_mark_dynamic(x, 0)

        def fn(x):
            return x * 2 if x.size(0) == 3 else x

        assert compiled_for(fn, [x]) == ["(3,)"]

    def test_mark_dynamic_does_not(self):
        x = ones(3)
        dynamo.mark_dynamic(x, 0)

        def fn(x):
            return x * int(str(x.size(0)))

        with pytest.raises(dynamo.errors.ConstraintViolation, match=r"x.size\(0\).*to be 3"):
            dynamo.compile(fn, backend="eager")(x)

    @pytest.mark.parametrize(
        ("size", "bounds"), [(4, {"min": 6}), (9, {"max": 8}), (1, {"min": 2})]
    )
    def test_a_size_beyond_its_range(self, size, bounds):
        x = ones(size)
        dynamo.mark_dynamic(x, 0, **bounds)
        compiled = dynamo.compile(lambda x: x + 1, backend="eager")
        with pytest.raises(dynamo.errors.ConstraintViolation, match=rf"x.size\(0\) is {size}"):
            compiled(x)
        assert compiled(ones(size)).shape == (size,)

    def test_ranges_decide_branches(self):
        x = ones(12)
        dynamo.mark_dynamic(x, 0, min=10, max=20)

        def fn(x):
            return x * 2 if 5 < x.size(0) < 30 else x

        counting = Counting(eager)
        compiled = dynamo.compile(fn, backend=counting)
        compiled(x)
        guards = compiled.context.records[0].guards
        assert [g for g in guards if "asked at" in g] == []
        assert "x.size(0) <= 20 (given with the mark)" in guards
        compiled(ones(20))
        assert len(counting.graphs) == 1
        compiled(ones(21))
        assert len(counting.graphs) == 2

    def test_wrong_arguments(self):
        with pytest.raises(IndexError, match="2 dimensions"):
            dynamo.mark_dynamic(ones(2, 2), 2)
        with pytest.raises(ValueError, match="min 5 is more than max 3"):
            dynamo.mark_dynamic(ones(2, 2), 0, min=5, max=3)
        with pytest.raises(TypeError):
            dynamo.mark_static([1, 2])


class TestDuckShaping:
    def test_equal_sizes_share_a_symbol(self):
        def fn(x, y):
            return x + y

        check(fn, [(ones(n), ones(n)) for n in (3, 5, 8)], compiles=2)

    def test_sizes_that_have_varied_do_not_share(self):
        def fn(x, y):
            return x * 2, y * 3

        calls = [(ones(3), ones(3)), (ones(5), ones(5)), (ones(6), ones(7)), (ones(9), ones(8))]
        check(fn, [*calls, (ones(4), ones(4))], compiles=2)

    def test_it_is_dropped_where_it_is_wrong(self):
        def fn(x, y):
            return x * 2, y * 3

        calls = [(ones(5), ones(5)), (ones(3), ones(3)), (ones(6), ones(7)), (ones(9), ones(8))]
        check(fn, [*calls, (ones(4), ones(4))], compiles=2, dynamic=True)

    def test_sizes_that_have_to_be_equal_are_guarded(self):
        def fn(x, y):
            return x + y

        counting = Counting(eager)
        compiled = dynamo.compile(fn, backend=counting)
        for n in (3, 5):
            compiled(ones(n), ones(n))
        guards = compiled.context.records[1].guards
        assert any(guard.startswith("x.size(0) == y.size(0) (asked at") for guard in guards)
        with pytest.raises(RuntimeError, match="must match"):
            compiled(ones(6), ones(7))


class TestStrides:
    def test_transposed(self):
        check(lambda x: x * 2, [(ones(n, 4).t(),) for n in (3, 5, 8)], compiles=2)

    def test_a_slice_of_something_wider(self):
        check(lambda x: x.sum(0), [(ones(n, 8)[:, :4],) for n in (3, 5, 8)], compiles=2)

    def test_strides_that_vary_alone(self):
        def call(width):
            return (torch.arange(3.0 * width).view(3, width)[:, :4],)

        compiled = dynamo.compile(lambda x: x + 1, backend="eager")
        for width in (6, 8, 10, 12):
            (x,) = call(width)
            torch.testing.assert_close(compiled(x), x + 1)
        assert len(compiled.context.records) == 2

    def test_channels_last(self):
        def call(n):
            return (torch.randn(n, 3, 4, 5).to(memory_format=torch.channels_last),)

        check(lambda x: x.relu() + 1, [call(n) for n in (2, 4, 7)], compiles=2)

    def test_expanded(self):
        check(lambda x: x + 1, [(ones(1, 4).expand(n, 4),) for n in (3, 5, 8)], compiles=2)

    def test_a_view_that_starts_inside(self):
        check(lambda x: x * 2, [(torch.arange(20.0)[5 : 5 + n],) for n in (3, 5, 8)], compiles=2)


class TestExplained:
    def test_what_varies_and_why(self):
        compiled = dynamo.compile(lambda x, k: x * k, backend="eager")
        compiled(ones(3), 5)
        compiled(ones(4), 7)
        assert compiled.context.records[1].symbols == [
            "x.size(0) is a symbol: was 3, then 4",
            "k is a symbol: was 5, then 7",
        ]

    def test_explain_shows_it(self):
        text = str(dynamo.explain(double, backend="eager", dynamic=True)(ones(3)))
        assert "x.size(0) is a symbol: dynamic=True" in text

    def test_a_recompile_names_the_users_line(self):
        def fn(x):
            return x * 2 if x.size(0) < 6 else x * 3

        compiled = dynamo.compile(fn, backend="eager")
        for n in (3, 4, 9):
            compiled(ones(n))
        reason = compiled.context.records[2].recompile_reason
        assert "x.size(0) <= 5" in reason
        assert "test_dynamic_policy.py" in reason
        assert "return x * 2 if x.size(0) < 6 else x * 3" in reason
        assert "x.size(0) is 9" in reason

    def test_the_log_says_it(self, caplog):
        with caplog.at_level(logging.DEBUG, logger="dynamo.recompiles"):
            compiled = dynamo.compile(double, backend="eager")
            compiled(ones(3))
            compiled(ones(4))
        assert "x.size(0) is a symbol: was 3, then 4" in caplog.text

    def test_only_what_was_asked_is_guarded(self):
        def fn(x):
            if x.size(0) > 2:
                x = x + 1
            if x.size(0) > 4:
                x = x + 1
            return x

        compiled = dynamo.compile(fn, backend="eager", dynamic=True)
        compiled(ones(7))
        asked = [g for g in compiled.context.records[0].guards if "asked at" in g]
        assert len(asked) == 1
        assert asked[0].startswith("x.size(0) >= 5")


class TestAcrossBreaks:
    def test_sizes_go_on_behind_a_break(self):
        def fn(x):
            n = x.size(0)
            y = x * n
            dynamo.graph_break()
            return y + n, n

        counting = Counting(eager)
        compiled = dynamo.compile(fn, backend=counting)
        for n in (3, 5, 8, 11):
            torch.testing.assert_close(compiled(ones(n)), fn(ones(n)))
        assert len(counting.graphs) == 4

    def test_in_containers(self):
        def fn(x):
            state = {"sizes": [x.size(0), x.size(1) + 1], "x": x * 2}
            dynamo.graph_break()
            return state

        compiled = dynamo.compile(fn, backend="eager")
        for n in (3, 5, 8):
            result = compiled(ones(n, n + 1))
            assert result["sizes"] == [n, n + 2]
            assert [type(size) for size in result["sizes"]] == [int, int]

    def test_stored_on_objects(self):
        class Holder:
            size = 0

        holder = Holder()

        def fn(x):
            holder.size = x.size(0) * 2
            return x + 1

        compiled = dynamo.compile(fn, backend="eager")
        for n in (3, 5, 8):
            compiled(ones(n))
            assert holder.size == 2 * n
            assert type(holder.size) is int


class TestNamesOfTheUser:
    """What is said of frames that we made is said in the user's names."""

    def calls(self, model):
        compiled = dynamo.compile(model, backend="eager")
        for n, k in ((3, 3), (4, 5), (9, 6)):
            model.inner.k = k
            mask, extra = ones(2, n + 1), {"v": ones(n + 2, 4)}
            torch.testing.assert_close(compiled(ones(n, 4), mask=mask, extra=extra), n * k)
        return compiled._dynamo_context.records

    def model(self, breaks):
        class Inner(torch.nn.Module):
            k = 3

            def forward(self, y):
                if y.size(0) < 6:
                    return y * self.k
                return self.k * y

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x, *, mask, extra):
                x = self.inner(x)
                if breaks:
                    dynamo.graph_break()
                rows = [0] * (mask.size(1) - 1)
                return int(x[0, 0] * len(rows) + extra["v"].sum() * 0)

        model = Outer()
        model.inner.k = 3
        return model

    @pytest.mark.parametrize("breaks", [False, True])
    def test_symbols(self, breaks):
        symbols = {text for record in self.calls(self.model(breaks)) for text in record.symbols}
        assert {
            "x.size(0) is a symbol: was 3, then 4",
            "self.inner.k is a symbol: was 3, then 5",
            "mask.size(1) is a symbol: was 4, then 5",
            "extra['v'].size(0) is a symbol: was 5, then 6",
        } <= symbols
        assert not any("argument" in text or "args" in text for text in symbols)

    @pytest.mark.parametrize("breaks", [False, True])
    def test_guards_and_recompiles(self, breaks):
        records = self.calls(self.model(breaks))
        guards = [guard for record in records for guard in record.guards]
        assert any(guard.startswith("x.size(0) <= 5 (asked at ") for guard in guards)
        assert any(guard.startswith("mask.size(1) == 5 (asked at ") for guard in guards)
        reasons = [record.recompile_reason or "" for record in records]
        assert any(reason.startswith("x.size(0) <= 5 (asked at ") for reason in reasons)
        assert not any("argument" in reason or "args" in reason for reason in reasons)

    def test_what_an_expression_had_given(self):
        def one():
            dynamo.graph_break()
            return 1

        def fn(x):
            return (x * 2) + one() * x.size(0)

        compiled = dynamo.compile(fn, backend="eager")
        for n in (3, 5, 8):
            torch.testing.assert_close(compiled(ones(n)), fn(ones(n)))
        symbols = [text for record in compiled.context.records for text in record.symbols]
        first = fn.__code__.co_firstlineno + 1
        assert f"intermediate value 0 of line {first}.size(0) is a symbol: was 3, then 5" in symbols


def test_the_number_of_symbols_is_limited():
    counting = Counting(eager)
    with dynamo.config.patch(symbol_limit=3):
        compiled = dynamo.compile(lambda x, ks: x + sum(ks), backend=counting, fullgraph=True)
        for n in (2, 3, 3, 4):
            ks = [n, n + 5, n + 7, n + 9, n + 11]
            torch.testing.assert_close(compiled(ones(2), ks), ones(2) + sum(ks))
    symbols = compiled.context.records[1].symbols
    assert [text.split(" is ")[1][:8] for text in symbols] == ["a symbol"] * 3 + ["constant"] * 2
    assert "ks[3] is constant: the frame has config.symbol_limit symbols" in symbols
    assert len(counting.graphs) == 3


@pytest.mark.parametrize("alive", [True, False])
def test_parameters_that_are_arguments_vary_from_the_second_on(alive):
    graphs, kept = [], []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    @dynamo.compile(backend=backend)
    def update(p, state, rate):
        with torch.no_grad():
            state["mean"].lerp_(p.grad, 0.5)
            p.sub_(state["mean"] * state["scales"][0], alpha=rate)

    for n in range(6):
        p = torch.nn.Parameter(torch.full((3,), float(n)))
        p.grad = torch.ones(3)
        state = {"mean": torch.zeros(3), "scales": [torch.nn.Parameter(torch.tensor(2.0))]}
        update(p, state, 0.5)
        assert torch.equal(p.detach(), torch.full((3,), n - 0.5))
        kept += [p, state] if alive else []
    assert len(graphs) == 2
