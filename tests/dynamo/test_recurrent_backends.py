"""Recurrent layers under the compiling backends: one graph, values and gradients as in eager."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import dynamo
from backends import lookup_backend
from dynamo.api.compile import compile_fresh
from fxgraph.aot import functionalize, functionalize_training
from fxgraph.aot.cudnn_recurrent import cudnn_layers, cudnn_layers_backward
from fxgraph.aot.onednn_recurrent import onednn_layer
from fxgraph.aot.recurrent import (
    recurrent_layer,
    recurrent_layer_backward,
    recurrent_weights,
    run_recurrent,
)

LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, bidirectional=True),
    "lstm_batch_first": lambda: nn.LSTM(3, 4, 2, batch_first=True),
    "lstm_projected": lambda: nn.LSTM(3, 4, proj_size=2),
    "gru": lambda: nn.GRU(3, 4),
    "gru_batch_first": lambda: nn.GRU(3, 4, 2, batch_first=True),
    "rnn_relu": lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True),
    "lstm_cell": lambda: nn.LSTMCell(3, 4),
    "gru_cell": lambda: nn.GRUCell(3, 4),
}
CASES = [("aot_eager", name) for name in LAYERS]
CASES += [("inductor", "lstm"), ("inductor", "gru_batch_first"), ("inductor", "lstm_cell")]

KINDS = {
    "tanh": nn.RNN,
    "relu": lambda *sizes, **more: nn.RNN(*sizes, nonlinearity="relu", **more),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}
# name: (input size, hidden size, more of the layer, time, batch)
SETTINGS = {
    "plain": (7, 20, {}, 5, 3),
    "one_of_each": (1, 1, {}, 1, 1),
    "one_row": (7, 19, {"num_layers": 2}, 5, 1),
    "one_row_long": (7, 19, {"bidirectional": True}, 13, 1),
    "many_rows": (9, 35, {}, 4, 21),
    "no_bias": (5, 8, {"bias": False, "batch_first": True}, 4, 2),
    "all_at_once": (6, 10, {"num_layers": 2, "bidirectional": True, "batch_first": True}, 3, 5),
    "dropout": (6, 17, {"num_layers": 3, "dropout": 0.4}, 4, 3),
    "by_threads": (8, 160, {}, 3, 8),
    "by_rows": (8, 64, {}, 6, 24),
}
PROJECTED = {
    "projected": (5, 19, {"proj_size": 3}, 4, 3),
    "projected_all": (
        5, 18, {"proj_size": 17, "num_layers": 2, "bidirectional": True, "bias": False}, 4, 7,
    ),
}  # fmt: skip
VARIANTS = [(kind, name, sizes) for kind in KINDS for name, sizes in SETTINGS.items()]
VARIANTS += [("lstm", name, sizes) for name, sizes in PROJECTED.items()]


# Settings whose steps threads share; the others take one, since threads that wait cost most.
THREADED = ("by_threads", "by_rows")


@pytest.fixture(autouse=True)
def threads(request):
    before = torch.get_num_threads()
    settings = getattr(request.node, "callspec", None)
    threaded = settings is not None and settings.params.get("name") in THREADED
    torch.set_num_threads(2 if threaded else 1)
    yield
    torch.set_num_threads(before)


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for item in result for tensor in flat(item)]


@pytest.mark.parametrize("backend, name", CASES)
def test_layer(backend, name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    x = torch.randn((2, 3) if name.endswith("cell") else (5, 2, 3))
    compiled = dynamo.compile(layer, backend=backend, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))
    gradients = []
    for function in (layer, compiled):
        layer.zero_grad()
        results = flat(function(x))
        sum(result.sin().sum() for result in results).backward()
        gradients.append([*results, *(p.grad.clone() for p in layer.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)


def made(kind, sizes, dtype=torch.float32):
    """The layer, its input and its states."""
    inner, hidden, more, time, batch = sizes
    layer = KINDS[kind](inner, hidden, **more).to(dtype)
    shape = (batch, time, inner) if layer.batch_first else (time, batch, inner)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.randn(count, batch, layer.proj_size or hidden, dtype=dtype)]
    if kind == "lstm":
        states.append(torch.randn(count, batch, hidden, dtype=dtype))
    return layer, torch.randn(shape, dtype=dtype), states


def differentiated(function, layer, x, states):
    """Results and the gradients of all that a layer is given; the weights of a result vary."""
    torch.manual_seed(1)  # dropout
    given = [tensor.detach().clone().requires_grad_() for tensor in (x, *states)]
    hx = tuple(given[1:]) if len(states) == 2 else given[1] if states else None
    results = flat(function(given[0], hx))
    drawn = torch.rand(1)
    weights = [torch.cos(torch.arange(r.numel(), dtype=r.dtype)).view(r.shape) for r in results]
    leaves = [*given, *(p for p in layer.parameters() if p.requires_grad)]
    loss = sum((result * weight).sum() for result, weight in zip(results, weights))
    return [*results, *torch.autograd.grad(loss, leaves), drawn]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float", "double"])
@pytest.mark.parametrize("kind, name, sizes", VARIANTS, ids=[f"{k}-{n}" for k, n, _ in VARIANTS])
def test_variants(kind, name, sizes, dtype):
    """With given states and without; strides of the results, too."""
    torch.manual_seed(0)
    layer, x, states = made(kind, sizes, dtype)
    generated = name == "all_at_once" and dtype is torch.float32
    backend = "inductor" if generated else "aot_eager"
    compiled = dynamo.compile(layer, backend=backend, fullgraph=True)
    limits = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-11, 1e-9)}[dtype]
    for given in (states, []):
        actual = differentiated(compiled, layer, x, given)
        expected = differentiated(layer, layer, x, given)
        torch.testing.assert_close(actual, expected, atol=limits[0], rtol=limits[1])
        assert [a.stride() for a in actual] == [e.stride() for e in expected]
    layer.eval()
    with torch.no_grad():
        actual, expected = flat(compiled(x)), flat(layer(x))
    torch.testing.assert_close(actual, expected, atol=limits[0], rtol=limits[1])
    assert [a.stride() for a in actual] == [e.stride() for e in expected]


OPERATORS = {
    "plain": {},
    "reverse": {"reverse": True},
    "one_row": {"batch": 1},
    "one_step": {"time": 1},
    "wide": {"size": 67},
    "lengths": {"lengths": [3, 3, 2, 2, 1]},
    "projected": {"state": 7},
    "projected_lengths": {"state": 21, "lengths": [3, 2, 2, 1, 1], "size": 40},
}


def operator_arguments(kind, batch=3, time=5, size=19, state=None, lengths=None, reverse=False):
    """Of recurrent_layer, without `save`. Of 19 units the last vector of columns is not full."""
    rows, state = size * (1, 1, 4, 3)[kind], state or size
    inputs = torch.randn(time, batch, rows)
    inputs[0, 0, 3], inputs[-1, 0, 5] = float("nan"), float("inf")
    c0 = torch.randn(batch, size) if kind == 2 else None
    projection = torch.randn(state, size) / 4 if state != size else None
    given = inputs, torch.randn(batch, state), c0, torch.randn(rows, state) / 4, torch.randn(rows)
    sizes = None if lengths is None else torch.tensor(lengths)
    return [*given, projection], [kind, reverse], sizes


@pytest.mark.parametrize("kind", range(4), ids=["tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_bfloat16(name, kind):
    """The bits of those of float32 for the same values, rounded to even, also where they are NaN;
    states and cells between the steps are not rounded. So are the gradients, and the forms that
    write into given memory.
    """
    if kind != 2 and "state" in OPERATORS[name]:
        return
    torch.manual_seed(0)
    tensors, settings, sizes = operator_arguments(kind, **OPERATORS[name])
    narrow = [t if t is None else t.bfloat16() for t in tensors]
    wide = [t if t is None else t.float() for t in narrow]
    b_ih = torch.randn(wide[3].shape[0]).bfloat16()
    wide[0] = wide[0] + b_ih.float()
    for save in (False, True):
        found = recurrent_layer(*narrow, *settings, save, sizes, b_ih=b_ih)
        theirs = recurrent_layer(*wide, *settings, save, sizes)
        for ours, expected in zip(found, theirs, strict=True):
            assert ours.dtype is torch.bfloat16
            torch.testing.assert_close(ours, expected.bfloat16(), rtol=0, atol=0, equal_nan=True)
        check_out(recurrent_layer, found, [*narrow, *settings, save, sizes], b_ih=b_ih)
        check_out(recurrent_layer, theirs, [*wide, *settings, save, sizes])
    y, h, c, gates, cells = found
    tangents = [
        torch.randn_like(y),
        torch.randn_like(h),
        torch.randn_like(c) if kind == 2 else None,
    ]
    for given in (tangents, [tangents[0], None, None], [None, *tangents[1:]]):
        kept = narrow[1], narrow[2], narrow[3], narrow[5], y, gates, cells, *given
        kept_wide = [t if t is None else t.float() for t in kept]
        last = *settings, True, sizes
        found = recurrent_layer_backward(*kept, *last)
        theirs = recurrent_layer_backward(*kept_wide, *last)
        for ours, expected in zip(found, theirs, strict=True):
            assert ours.dtype is torch.bfloat16
            torch.testing.assert_close(ours, expected.bfloat16(), rtol=0, atol=0, equal_nan=True)
        check_out(recurrent_layer_backward, found, [*kept, *last])
        check_out(recurrent_layer_backward, theirs, [*kept_wide, *last])


def check_out(op, expected, given, **kwargs):
    """The form that writes: into memory that holds something else."""
    form = getattr(getattr(torch.ops.framegraph, op._schema.name.split("::")[1]), "out")
    names = [a.name for a in form._schema.arguments if a.alias_info is not None]
    made = {name: torch.full_like(e, 7.0) for name, e in zip(names, expected, strict=True)}
    form(*given, **kwargs, **made)
    for ours, theirs in zip(made.values(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def distances(results, exact):
    """The relative distance of each result from the exact one."""
    pairs = zip(results, exact, strict=True)
    return [((result.double() - e).norm() / e.norm()).item() for result, e in pairs]


REDUCED = [(kind, "all_at_once") for kind in KINDS] + [("lstm", "projected"), ("gru", "one_row")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "half"])
@pytest.mark.parametrize("kind, name", REDUCED)
def test_reduced_dtypes_in_training(kind, name, dtype):
    """Steps in float32: no further from the float64 results than eager's."""
    torch.manual_seed(0)
    layer, x, states = made(kind, {**SETTINGS, **PROJECTED}[name], dtype)
    exact = copy.deepcopy(layer).double()
    weights = []

    def run(call, of, *given):
        given = [tensor.detach().clone().requires_grad_() for tensor in given]
        results = flat(call(given[0], tuple(given[1:]) if kind == "lstm" else given[1]))
        weights.extend(torch.randn_like(r) for r in results[len(weights) :])
        loss = sum((r * w).sum(dtype=r.dtype) for r, w in zip(results, weights))
        return [*results, *torch.autograd.grad(loss, [*given, *of.parameters()])]

    eager = run(layer, layer, x, *states)
    reference = run(exact, exact, x.double(), *(state.double() for state in states))
    targets = []

    def counted(gm, example_inputs):
        forward = functionalize_training(gm, example_inputs).forward.graph_module
        targets.extend(node.target for node in forward.graph.nodes)
        return lookup_backend("aot_eager")(gm, example_inputs)

    compiled = dynamo.compile(layer, backend=counted, fullgraph=True)
    actual = run(compiled, layer, x, *states)
    assert recurrent_layer in targets
    assert [(a.dtype, a.stride()) for a in actual] == [(e.dtype, e.stride()) for e in eager]
    limit = torch.finfo(dtype).eps
    for ours, theirs in zip(distances(actual, reference), distances(eager, reference)):
        assert ours <= 1.3 * theirs + limit


@pytest.mark.parametrize("kind, name", REDUCED)
def test_bfloat16_in_inference(kind, name, monkeypatch):
    """Without instructions for it, one operator: no further from float64 than eager's, and as large
    and laid out. Weights are packed in float32, and follow the layer's.
    """
    monkeypatch.setattr("fxgraph.aot.recurrent._has_no_bfloat16", lambda kind: True)
    torch.manual_seed(0)
    layer, x, states = made(kind, {**SETTINGS, **PROJECTED}[name], torch.bfloat16)
    compiled, context = compile_fresh(layer.eval(), fullgraph=True)
    hx = tuple(states) if kind == "lstm" else states[0]
    for given in ((x,), (x, hx)):
        with torch.no_grad():
            layer.weight_ih_l0.mul_(-1)
            exact = copy.deepcopy(layer).double()
            wide = torch.utils._pytree.tree_map(torch.Tensor.double, given)
            results = [flat(call(*of)) for call, of in ((compiled, given), (layer, given))]
            reference = flat(exact(*wide))
        assert [(a.dtype, a.stride()) for a in results[0]] == [
            (e.dtype, e.stride()) for e in results[1]
        ]
        for ours, theirs in zip(*(distances(found, reference) for found in results)):
            assert ours <= 1.3 * theirs + torch.finfo(torch.bfloat16).eps
    graphs = [graph for record in context.records for graph in record.graphs]
    assert any("pack: weights of" in note for graph in graphs for note in graph.report["notes"])


@pytest.fixture
def by_onednn(monkeypatch):
    """LSTMs of bfloat16 train by oneDNN's layer, whatever their sizes. The targets of graphs."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has nothing for bfloat16 here")
    of_bfloat16 = lambda dtype, batch, hidden: dtype is torch.bfloat16  # noqa: E731
    monkeypatch.setattr("fxgraph.aot.recurrent.is_faster", of_bfloat16)
    targets = []

    def counted(gm, example_inputs):
        if torch.is_grad_enabled():
            forward = functionalize_training(gm, example_inputs).forward.graph_module
            targets.extend(node.target for node in forward.graph.nodes)
        return lookup_backend("inductor")(gm, example_inputs)

    return counted, targets


@pytest.mark.parametrize("name", ["plain", "one_row", "all_at_once", "by_threads"])
def test_trained_by_onednns_layer(name, by_onednn):
    """The operators are eager's, and so is each bit."""
    backend, targets = by_onednn
    torch.manual_seed(0)
    layer, x, states = made("lstm", SETTINGS[name], torch.bfloat16)
    compiled = dynamo.compile(layer, backend=backend, fullgraph=True, dynamic=False)
    for given in (states, []):
        actual = differentiated(compiled, layer, x, given)
        expected = differentiated(layer, layer, x, given)
        torch.testing.assert_close(actual, expected, atol=0, rtol=0)
        assert [a.stride() for a in actual] == [e.stride() for e in expected]
    assert onednn_layer in targets and recurrent_layer not in targets


def test_what_onednns_layer_leaves_out(by_onednn):
    """Layers without biases and projected ones, and results that only the states reach."""
    backend, targets = by_onednn
    for more in ({"bias": False}, {"proj_size": 2}):
        torch.manual_seed(0)
        layer, x, _ = made("lstm", (5, 8, more, 4, 3), torch.bfloat16)
        dynamo.compile(layer, backend=backend, fullgraph=True)(x)
    assert onednn_layer not in targets and recurrent_layer in targets
    layer, x, _ = made("lstm", SETTINGS["plain"], torch.bfloat16)
    compiled = dynamo.compile(layer, backend=backend, fullgraph=True, dynamic=False)
    for which in (0, 1):
        found = []
        for call in (compiled, layer):
            state = call(x)[1][which]
            found.append(torch.autograd.grad(state.float().square().sum(), [*layer.parameters()]))
        torch.testing.assert_close(*found, atol=0, rtol=0)
    assert onednn_layer in targets


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_frozen_layer_of_reduced_dtype(kind):
    """Autograd records only the second of two layers."""
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS["all_at_once"], torch.bfloat16)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_("_l1" in name)
    compiled = dynamo.compile(layer, backend="aot_eager", fullgraph=True)
    found = []
    for call in (compiled, layer):
        y, _ = call(x)
        trained = [p for p in layer.parameters() if p.requires_grad]
        found.append([y, *torch.autograd.grad(y.float().square().sum(), trained)])
    torch.testing.assert_close(*found, atol=2e-2, rtol=5e-2)


PACKED = [
    ("tanh", "plain"),
    ("gru", "all_at_once"),
    ("lstm", "one_row_long"),
    ("lstm", "projected_all"),
]


@pytest.mark.parametrize("kind, name", PACKED)
def test_packed_weights(kind, name):
    """Inference keeps packed weights until they change, whichever batches come."""
    torch.manual_seed(0)
    layer, x, states = made(kind, {**SETTINGS, **PROJECTED}[name])
    compiled, context = compile_fresh(layer.eval(), fullgraph=True)
    with torch.no_grad():
        for change in (1.0, 0.5, -2.0):
            layer.weight_hh_l0.mul_(change)
            layer.weight_hh_l0.data = layer.weight_hh_l0.data * change
            for given in (x, x.repeat_interleave(2, 0 if layer.batch_first else 1)):
                torch.testing.assert_close(flat(compiled(given)), flat(layer(given)))
    graphs = [graph for record in context.records for graph in record.graphs]
    notes = [note for graph in graphs for note in graph.report["notes"]]
    layers = layer.num_layers * (2 if layer.bidirectional else 1)
    assert len(graphs) == 2  # the second for batches of any size
    assert sum(note.startswith(f"pack: weights of {layers} recurrent") for note in notes) == 2


SEQUENCES = [(kind, name) for kind in KINDS for name in ("all_at_once", "no_bias", "by_threads")]
SEQUENCES += [("gru", "by_rows"), ("lstm", "by_rows"), ("lstm", "projected_all")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float", "double"])
@pytest.mark.parametrize("kind, name", SEQUENCES)
def test_packed_sequences(kind, name, dtype):
    """Layers of packed sequences and their gradients; each sequence begins with its own state."""
    torch.manual_seed(0)
    layer, x, states = made(kind, {**SETTINGS, **PROJECTED}[name], dtype)
    x = x.transpose(0, 1) if layer.batch_first else x
    lengths = torch.arange(x.shape[1]).flip(0) % x.shape[0] + 1
    lengths[0] = x.shape[0]
    packed = pack_padded_sequence(x, lengths.sort(descending=True)[0])
    given = [tensor.detach().requires_grad_() for tensor in (packed.data, *states)]
    hx = tuple(given[1:]) if kind == "lstm" else given[1]
    settings = (layer.bias, layer.num_layers, 0.0, True, layer.bidirectional)
    target = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu, "lstm": torch.lstm, "gru": torch.gru}
    arguments = (given[0], packed.batch_sizes, hx, layer._flat_weights, *settings)
    found = []
    ours = functools.partial(run_recurrent, target[kind])
    for run in (lambda given: target[kind](*given), ours):
        results = run(arguments)
        loss = sum(result.sin().sum() for result in results)
        found.append([*results, *torch.autograd.grad(loss, [*given, *layer.parameters()])])
        with torch.no_grad():
            found[-1] += run(arguments)
    atol, rtol = (1e-5, 1e-4) if dtype is torch.float32 else (1e-11, 1e-9)
    torch.testing.assert_close(found[1], found[0], atol=atol, rtol=rtol)


@pytest.mark.parametrize("sizes", [[3, 2], [3, 3, 4, 1, 1], [2, 2, 1, 1, 1], [3, 3, 2, 1, 0]])
def test_sizes_of_no_packed_sequences(sizes):
    layer, x, (h, c) = made("lstm", SETTINGS["plain"])
    given = (torch.randn(5, 3, 80), h[0], c[0], layer.weight_hh_l0, None, None, 2, False, False)
    with torch.no_grad(), pytest.raises(RuntimeError, match="sizes"):
        recurrent_layer(*given, torch.tensor(sizes))


def test_packed_weights_of_another_form():
    """A mistake of the compiler's is an error, never memory that is read behind its end."""
    layer, x, (h, c) = made("lstm", SETTINGS["plain"])
    inputs = torch.randn(5, 3, 80)
    given = (inputs, h[0], c[0], layer.weight_hh_l0, None, None, 2, False, False)
    with torch.no_grad(), pytest.raises(RuntimeError, match="packed weights of another form"):
        recurrent_layer(*given, None, torch.zeros(7))


INPUTS = {  # time, batch, reverse, whether batches come first
    "blocks": (9, 16, False, False),
    "backwards": (9, 16, True, False),
    "batch_first": (9, 16, True, True),
    "few_rows": (75, 2, False, True),
    "one_row": (70, 1, True, True),
    "many_rows": (3, 80, False, True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", range(4), ids=["tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("name", INPUTS)
def test_products_with_inputs(name, kind, dtype):
    """The operator's, of a few steps at a time by packed weights, and of all by others."""
    torch.manual_seed(0)
    time, batch, reverse, batch_first = INPUTS[name]
    tensors, _, _ = operator_arguments(kind, batch=batch, time=time)
    inputs, *tensors = [t if t is None else t.to(dtype) for t in tensors]
    x = torch.randn(batch, time, 7) if batch_first else torch.randn(time, batch, 7)
    x = x.to(dtype).transpose(0, 1) if batch_first else x.to(dtype)
    w_ih, b_ih = torch.randn(inputs.shape[2], 7).to(dtype), torch.randn(inputs.shape[2]).to(dtype)
    packed = recurrent_weights(w_ih, kind)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for bias in (b_ih, None):
        gates = x.to(wide) @ w_ih.to(wide).t() + (0 if bias is None else bias.to(wide))
        wide_ones = [t if t is None else t.to(wide) for t in tensors]
        expected = recurrent_layer(gates, *wide_ones, kind, reverse, False)
        for weights in (packed, None):
            more = None, None, None, bias, w_ih, weights
            found = recurrent_layer(x, *tensors, kind, reverse, False, *more)
            limit = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.02}[dtype]
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs.to(dtype), rtol=limit, atol=limit)


def test_packed_inputs_of_another_form():
    layer, x, (h, c) = made("lstm", SETTINGS["plain"])
    given = (x, h[0], c[0], layer.weight_hh_l0, None, None, 2, False, False, None, None, None, None)
    with torch.no_grad(), pytest.raises(RuntimeError, match="packed weights of another form"):
        recurrent_layer(*given, layer.weight_ih_l0, torch.zeros(7))
    with torch.no_grad(), pytest.raises(RuntimeError, match="packed weights of no inputs"):
        recurrent_layer(*given, None, torch.zeros(7))


@pytest.mark.parametrize("kind", KINDS)
def test_inference_keeps_no_gates_of_all_steps(kind):
    """Of a long sequence a plan has the results of two layers, and no products with inputs."""
    torch.manual_seed(0)
    layer = KINDS[kind](8, 64, num_layers=2, batch_first=True).eval()
    compiled, context = compile_fresh(layer, fullgraph=True)
    x = torch.randn(2, 400, 8)
    with torch.no_grad():
        result = compiled(x)
        torch.testing.assert_close(flat(result), flat(layer(x)))
    (graph,) = [graph for record in context.records for graph in record.graphs]
    assert graph.report["peak_bytes"] < 2.2 * result[0].nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_one_operator(kind):
    """A long sequence makes no long graph, in training either."""
    layer = KINDS[kind](3, 4, 2)
    sizes = []

    def noted(gm, example_inputs):
        sizes.append([node.target for node in gm.graph.nodes])
        return gm.forward

    def functional(gm, example_inputs):
        if torch.is_grad_enabled():
            training = functionalize_training(gm, example_inputs)
            for part in (training.forward, training.backward):
                noted(part.graph_module, ())
        else:
            noted(functionalize(gm, example_inputs).graph_module, ())
        return gm.forward

    x = torch.randn(300, 2, 3)
    dynamo.compile(layer, backend=functional)(x)
    with torch.no_grad():
        dynamo.compile(layer, backend=functional)(x)
    assert [targets.count(recurrent_layer) for targets in sizes] == [2, 0, 2]
    assert all(len(targets) < 120 for targets in sizes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", ["weight", "weight_ih", "weight_hh", "bias", "input"])
def test_frozen_parameters(kind, frozen):
    torch.manual_seed(0)
    layer, x, states = made(kind, SETTINGS["plain"])
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    compiled = dynamo.compile(layer, backend="aot_eager", fullgraph=True)
    if frozen == "input":
        results = [differentiated(f, layer, x, [])[:-1] for f in (compiled, layer)]
    else:
        results = [differentiated(f, layer, x, states) for f in (compiled, layer)]
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_strided_inputs(kind):
    torch.manual_seed(0)
    layer, x, states = made(kind, SETTINGS["plain"])
    compiled = dynamo.compile(layer, backend="aot_eager", fullgraph=True)
    strided = torch.randn(7, 3, 10)[..., ::2].permute(2, 1, 0)
    states = [state[:, :1].expand_as(state) for state in states]
    hx = tuple(states) if len(states) == 2 else states[0]
    torch.testing.assert_close(compiled(strided, hx), layer(strided, hx))


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_backpropagation(kind):
    """States carried over detached, weights stepped in place between calls, gradients clipped."""
    torch.manual_seed(0)
    layers = [made(kind, SETTINGS["plain"])[0]]
    layers.append(copy.deepcopy(layers[0]))
    calls = [layers[0], dynamo.compile(layers[1], fullgraph=True)]
    chunks = torch.randn(4, 5, 3, 7)
    histories = []
    for layer, call in zip(layers, calls):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        hx, history = None, []
        for chunk in chunks:
            y, hx = call(chunk, hx)
            optimizer.zero_grad()
            y.square().mean().backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            optimizer.step()
            hx = tuple(h.detach() for h in hx) if isinstance(hx, tuple) else hx.detach()
            history += [y.detach(), *flat(hx)]
        histories.append([*history, *layer.parameters()])
    torch.testing.assert_close(histories[1], histories[0], atol=1e-5, rtol=1e-4)


def outcome(run):
    try:
        return run()
    except RuntimeError as error:
        return type(error)


def same_outcome(actual, expected, limit=1e-4):
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected, atol=limit, rtol=limit)


WRITTEN = [(kind, "plain", torch.float32) for kind in KINDS]
WRITTEN += [("lstm", "all_at_once", torch.float32), ("gru", "plain", torch.bfloat16)]
WRITTEN += [("lstm", "plain", torch.bfloat16), ("lstm", "plain", torch.float16)]


@pytest.mark.parametrize("kind, name, dtype", WRITTEN)
def test_result_written_before_backward(kind, name, dtype):
    """As eager: an error where the layer saves its result, else the gradients of the old one."""
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS[name], dtype)

    def run(call):
        layer.zero_grad()
        y, _ = call(x)
        loss = y.sum()
        with torch.no_grad():
            y.mul_(3)
        loss.backward()
        return [p.grad.clone() for p in layer.parameters()]

    compiled = dynamo.compile(layer, backend="aot_eager")
    limits = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
    same_outcome(*(outcome(lambda f=f: run(f)) for f in (compiled, layer)), limits[dtype])


@pytest.mark.parametrize("kind, name, dtype", WRITTEN)
def test_result_written_in_the_graph(kind, name, dtype):
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS[name], dtype)

    def doubled(x):
        y, _ = layer(x)
        return y.mul_(2)

    def run(call):
        layer.zero_grad()
        call(x).sum().backward()
        return [p.grad.clone() for p in layer.parameters()]

    compiled = dynamo.compile(doubled, backend="aot_eager")
    limits = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
    same_outcome(*(outcome(lambda f=f: run(f)) for f in (compiled, doubled)), limits[dtype])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("onednn", [True, False])
def test_second_derivative(kind, onednn):
    """As eager, with oneDNN's LSTM, which has none, and without."""
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS["plain"])

    def run(call):
        given = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(call(given)[0].sin().sum(), given, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [given, *layer.parameters()])

    with torch.backends.mkldnn.flags(enabled=onednn):
        compiled = dynamo.compile(layer, backend="aot_eager")
        same_outcome(*(outcome(lambda f=f: run(f)) for f in (compiled, layer)))


@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind):
    """The dtypes of results are eager's, in training too, where the LSTM is oneDNN's."""
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS["all_at_once"])

    def run(call):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            y, states = call(x)
        y.float().sin().sum().backward()
        return y, *flat(states), *[p.grad for p in layer.parameters()]

    compiled = dynamo.compile(layer, backend="aot_eager", fullgraph=True)
    try:
        expected = run(layer)
    except RuntimeError as error:  # oneDNN's LSTM, on a CPU that has nothing for bfloat16
        if "primitive descriptor" not in str(error):
            raise
        pytest.skip(f"eager fails on this processor: {error}")
    torch.testing.assert_close(run(compiled), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_penalty_of_a_gradient(kind):
    """A gradient of a gradient, both within the graph."""
    torch.manual_seed(0)
    layer, x, _ = made(kind, SETTINGS["plain"])

    def penalty(x):
        (first,) = torch.autograd.grad(layer(x)[0].sin().sum(), x, create_graph=True)
        return first.square().sum()

    def run(call):
        given = x.clone().requires_grad_()
        return torch.autograd.grad(call(given), [given, *layer.parameters()])

    with torch.backends.mkldnn.flags(enabled=False):  # its LSTM has no second derivative
        compiled = dynamo.compile(penalty, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(run(compiled), run(penalty))


def test_onednn_is_guarded():
    """The setting decides what eager may save, so that a change of it captures again."""
    layer = nn.LSTM(3, 4)
    compiled = dynamo.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(compiled(x), layer(x))
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(x), layer(x))
        y, _ = compiled(x)
        loss = y.sum()
        with torch.no_grad():
            y.mul_(3)
        loss.backward()
    assert layer.weight_hh_l0.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_that_vary(kind):
    """Two graphs for all lengths and batch sizes: of the first, and of any."""
    torch.manual_seed(0)
    layer = KINDS[kind](7, 12, 2, dropout=0.3)
    graphs = []

    def counted(gm, example_inputs):
        graphs.append(gm)
        return lookup_backend("aot_eager")(gm, example_inputs)

    compiled = dynamo.compile(layer, backend=counted, fullgraph=True)
    for time, batch in ((5, 3), (6, 4), (9, 2), (40, 17)):
        x = torch.randn(time, batch, 7)
        actual = differentiated(compiled, layer, x, [])
        expected = differentiated(layer, layer, x, [])
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    assert len(graphs) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_cudnn_computes_and_no_operator_takes_breaks_the_graph(kind, monkeypatch):
    """A trial on fake tensors would find no whole graph, and take dropout's state from the call."""
    asked = []
    monkeypatch.setattr(torch, "cudnn_is_acceptable", lambda x: asked.append(x) or True)
    layer = KINDS[kind](3, 4)
    x = torch.randn(5, 2, 3)
    compiled = dynamo.compile(lambda x: layer(x * 2)[0] + 1, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x * 2)[0] + 1)
    assert asked and "cuDNN" in str(dynamo.explain(lambda x: layer(x * 2)[0] + 1)(x))


@pytest.mark.parametrize("projected", (0, 3))
@pytest.mark.parametrize("packed", (False, True))
def test_shapes_of_what_cudnn_computes(packed, projected):
    """The operator's results, without a device, are those of the call on the CPU."""
    layer = torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=projected)
    weights, directions = [p.detach() for p in layer.parameters()], 4
    x, sizes = torch.randn(5, 2, 3), None
    if packed:
        x, sizes, *_ = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 2])
    states = [torch.zeros(directions, 2, projected or 4), torch.zeros(directions, 2, 4)]
    settings = (True, 2, 0.0, True, True)
    wanted = torch.lstm(
        *(
            (x, states, weights, *settings, False)
            if sizes is None
            else (x, sizes, states, weights, *settings)
        )
    )
    x, *states = (t.to("meta") for t in (x, *states))
    weights = [w.to("meta") for w in weights]
    found = cudnn_layers(x, sizes, states, weights, 2, *settings, True)
    assert [t.shape for t in found[:3]] == [t.shape for t in wanted]
    none = x.new_empty(0)
    gradients = cudnn_layers_backward(
        x,
        sizes,
        states,
        weights,
        found[0],
        none,
        none,
        none,
        found[0],
        *states,
        2,
        *settings,
        [True] * 4,
    )
    assert [t.shape for t in gradients] == [t.shape for t in (x, *states, *weights)]


def test_a_frozen_layer_of_bfloat16_before_a_trained_one():
    """The first has no backward, a bias of its own for the inputs, and weights packed once."""
    torch.manual_seed(0)
    layer = torch.nn.GRU(16, 24, num_layers=2).bfloat16()
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name.endswith("l1"))
    x, trained = (
        torch.randn(7, 3, 16).bfloat16(),
        [p for p in layer.parameters() if p.requires_grad],
    )
    compiled = dynamo.compile(layer)
    for _ in range(2):
        found = [torch.autograd.grad(f(x)[0].sum(), trained) for f in (compiled, layer)]
        torch.testing.assert_close(*found, atol=0.06, rtol=0.06)
