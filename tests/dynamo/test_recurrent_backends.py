"""Recurrent layers under the compiling backends: one graph, values and gradients as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo

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
