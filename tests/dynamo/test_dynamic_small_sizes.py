"""Sizes 0 and 1 beside many: eager's results, and how many graphs serve all of them.

`python -m benchmarks.small_sizes` prints the graphs of all programs.
"""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo.size_programs import NOT_TRAINED, PROGRAMS, floats, graphs_of

# Programs that compile once for 5, 1, 0, 7, 2 and 1 rows.
ONE_GRAPH = """
pointwise of_one_dimension with_a_row with_a_column where masked clamped to_double compared sums
means variance standardised softmax cumulated linear linear_of_batches mlp batched layer_norm
max_pool embedding squares cross_entropy flattened alias expanded repeated concatenated unbound
gathered index_add padded positions made written
""".split()
# Those that depend on what the sizes are, in one way or another.
SEVERAL = {"both": 3, "convolution": 6, "multihead": 3, "squeezed": 2, "asks_one": 3, "first": 3}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph_serves_all_sizes(name):
    graphs, why = graphs_of(name, False, "dynamic")
    assert graphs == 1, why


@pytest.mark.parametrize("order", ["automatic", "small_first"])
@pytest.mark.parametrize("name", ONE_GRAPH[::6])
def test_two_graphs_serve_sizes_that_turn_out_to_vary(name, order):
    """The second is captured for many rows, though it is called with one or none."""
    graphs, why = graphs_of(name, False, order)
    assert graphs == 2, why


@pytest.mark.parametrize("name", SEVERAL)
def test_other_sizes_are_compiled_for_themselves(name):
    graphs, why = graphs_of(name, False, "dynamic")
    assert graphs <= SEVERAL[name], why


@pytest.mark.parametrize("name", ["both", "squeezed", "asks_one", "first"])
def test_sizes_that_decide_are_captured_for_themselves(name):
    graphs, why = graphs_of(name, False, "automatic")
    assert 3 <= graphs <= 5, why


@pytest.mark.parametrize("name", ["pointwise", "sums", "linear", "squares", "concatenated"])
def test_one_graph_serves_all_sizes_in_training(name):
    graphs, why = graphs_of(name, True, "dynamic")
    assert graphs == 1, why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "order"), [(False, "automatic"), (False, "small_first"), (True, "dynamic")]
)
def test_results_of_all_programs(train, order):
    names = [n for n in PROGRAMS if not train or (floats(n) and n not in NOT_TRAINED)]
    for name in names[order == "automatic" :: 2]:
        graphs_of(name, train, order)


# Strides of sizes 0 and 1, as the program reads them of what it makes.
STRIDES = {
    "product": lambda x: (x.t() * 2).stride(),
    "like": lambda x: torch.empty_like(x.t()).stride(1),
    "rows": lambda x: (x[1:].t() * 2).stride(),
    "middle": lambda x: (x.unsqueeze(1).transpose(0, 2) * 2).stride(),
    "sum": lambda x: x.t().sum(0, keepdim=True).stride(),
    "contiguous": lambda x: ((x.t() * 2).is_contiguous(), x.t().contiguous().stride()),
    "made": lambda x: torch.empty_strided(x.shape, (x * 2).stride()).stride(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", STRIDES)
def test_strides_are_read_as_those_of_few_rows(name, dynamic):
    def program(x):
        return x + 1, STRIDES[name](x)

    compiled = dynamo.compile(program, backend="aot_eager", dynamic=dynamic)
    for rows in (2, 4, 1, 0, 5, 1):
        x = torch.ones(rows, 3)
        assert compiled(x)[1] == program(x)[1], rows


def test_strides_of_few_rows_that_data_chose():
    def program(x, mask):
        y = x[mask].t() * 2
        return y, y.stride()

    compiled = dynamo.compile(program, backend="eager")
    for rows in (2, 3, 1, 0):
        args = torch.ones(4, 3), torch.arange(4) < rows
        assert compiled(*args)[1] == program(*args)[1], rows


def test_strides_after_views_of_one_element():
    def program(x):
        return x + 1, x.t().flatten().stride()

    x = torch.ones(1, 2)[:, :1]
    assert dynamo.compile(program, backend="eager")(x)[1] == program(x)[1]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "call", ["max()", "min(0)", "max(dim=0)", "median(0)", "mode(0)", "amax(0)", "argmin(0)"]
)
def test_selections_of_no_rows_fail_where_the_program_catches(call, dynamic):
    names = {}
    lines = ["def program(x, steps):", " steps.append(0)", " y = x + 1", " try:"]
    lines += [f"  y.{call}", "  steps.append(1)"]
    lines += [" except (IndexError, RuntimeError) as error:", "  steps.append(str(error))"]
    exec("\n".join([*lines, " return y"]), names)
    compiled = dynamo.compile(names["program"], backend="eager", dynamic=dynamic)
    for rows in (2, 4, 0, 1, 0):
        mine, theirs = [], []
        compiled(torch.ones(rows, 3), mine)
        names["program"](torch.ones(rows, 3), theirs)
        assert mine == theirs, rows


@pytest.mark.parametrize("dynamic", [None, True])
def test_strides_of_few_rows_that_an_int_chose(dynamic):
    def program(x, n):
        y = x[:n].t() * 2
        return y, y.stride()

    compiled = dynamo.compile(program, backend="eager", dynamic=dynamic)
    for rows in (2, 0, 1, 3):
        args = torch.ones(3, 4), rows
        assert compiled(*args)[1] == program(*args)[1], rows


def test_channels_last_order_of_no_images():
    def program(x):
        y = x.to(memory_format=torch.channels_last).relu()
        return y, y.is_contiguous(memory_format=torch.channels_last)

    compiled = dynamo.compile(program, backend="eager", dynamic=True)
    for rows in (2, 0, 1):
        x = torch.ones(rows, 3, 4, 4)
        assert compiled(x)[1] == program(x)[1], rows
