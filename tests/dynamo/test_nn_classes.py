"""Every module class of torch.nn that can be built from small arguments: one graph, equal to eager,
in training and in evaluation, with gradients and running statistics.
"""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn

import dynamo
from tests.dynamo.values_support import CountingBackend


def T(*shape, grad=False):
    count = torch.Size(shape).numel()
    values = (torch.arange(count, dtype=torch.float64) * 0.37).sin().reshape(shape).float()
    return values.requires_grad_() if grad else values


def I(*shape, high=3):  # noqa: E743
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % high


V, M = (2, 4), (2, 3, 4)
ACTIVATIONS = {
    name: ((), {}, (V,))
    for name in """CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU
    LogSigmoid LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmin Softplus
    Softshrink Softsign Tanh Tanhshrink Dropout AlphaDropout FeatureAlphaDropout""".split()
} | {
    "Softmax2d": ((), {}, ((2, 3, 4, 4),)),
    "GLU": ((), {}, (V,)),
    "Threshold": ((0.1, 2.0), {}, (V,)),
    "Dropout1d": ((0.5,), {}, (M,)),
    "Dropout2d": ((0.5,), {}, ((2, 3, 4, 4),)),
    "Dropout3d": ((0.5,), {}, ((2, 3, 2, 2, 2),)),
    "Flatten": ((), {}, (M,)),
    "Unflatten": ((1, (2, 2)), {}, (V,)),
    "ChannelShuffle": ((2,), {}, ((2, 4, 3, 3),)),
    "PixelShuffle": ((2,), {}, ((2, 4, 3, 3),)),
    "PixelUnshuffle": ((2,), {}, ((2, 1, 4, 4),)),
    "Upsample": ((), {"scale_factor": 2, "mode": "bilinear"}, ((2, 3, 4, 4),)),
    "UpsamplingNearest2d": ((), {"scale_factor": 2}, ((2, 3, 4, 4),)),
    "UpsamplingBilinear2d": ((), {"scale_factor": 2}, ((2, 3, 4, 4),)),
    "Fold": (((4, 4), (2, 2)), {}, ((1, 8, 9),)),
    "Unfold": (((2, 2),), {}, ((1, 2, 4, 4),)),
}
SHAPES = {1: (2, 3, 8), 2: (2, 3, 8, 8), 3: (2, 3, 8, 8, 8)}
DIMENSIONS = {}
for _n, _shape in SHAPES.items():
    DIMENSIONS |= {
        f"AvgPool{_n}d": ((2,), {}, (_shape,)),
        f"MaxPool{_n}d": ((2,), {}, (_shape,)),
        f"LPPool{_n}d": ((2, 2), {}, (_shape,)),
        f"AdaptiveAvgPool{_n}d": ((2,), {}, (_shape,)),
        f"AdaptiveMaxPool{_n}d": ((2,), {"return_indices": True}, (_shape,)),
        f"BatchNorm{_n}d": ((3,), {}, (_shape,)),
        f"InstanceNorm{_n}d": ((3,), {"affine": True, "track_running_stats": True}, (_shape,)),
        f"Conv{_n}d": ((3, 2, 3), {"padding": 1}, (_shape,)),
        f"ConvTranspose{_n}d": ((3, 2, 2), {"stride": 2}, (_shape,)),
        f"ConstantPad{_n}d": ((1, 2.5), {}, (_shape,)),
        f"ZeroPad{_n}d": ((1,), {}, (_shape,)),
        f"ReflectionPad{_n}d": ((1,), {}, (_shape,)),
        f"ReplicationPad{_n}d": ((1,), {}, (_shape,)),
        f"CircularPad{_n}d": ((1,), {}, (_shape,)),
    }
    if _n > 1:
        DIMENSIONS[f"FractionalMaxPool{_n}d"] = ((2,), {"output_size": 3}, (_shape,))
LAYERS = {
    "Linear": ((4, 3), {}, (V,)),
    "Bilinear": ((4, 4, 2), {}, (V, V)),
    "LayerNorm": ((4,), {}, (V,)),
    "RMSNorm": ((4,), {}, (V,)),
    "GroupNorm": ((1, 3), {}, (M,)),
    "LocalResponseNorm": ((2,), {}, ((2, 3, 4, 4),)),
    "CrossMapLRN2d": ((2,), {}, ((2, 3, 4, 4),)),
    "CosineSimilarity": ((), {}, (V, V)),
    "PairwiseDistance": ((), {}, (V, V)),
    "Embedding": ((5, 3), {"max_norm": 0.5}, (I(2, 2),)),
    "EmbeddingBag": ((5, 3), {}, (I(2, 3),)),
    "MultiheadAttention": ((4, 2), {"batch_first": True}, (M, M, M)),
    "Transformer": ((4, 2, 1, 1, 8), {"dropout": 0.0, "batch_first": True}, (M, M)),
    "TransformerEncoderLayer": ((4, 2, 8), {"dropout": 0.0, "batch_first": True}, (M,)),
    "TransformerDecoderLayer": ((4, 2, 8), {"dropout": 0.1, "batch_first": True}, (M, M)),
    "RNN": ((4, 3), {"num_layers": 2, "nonlinearity": "relu"}, (M,)),
    "LSTM": ((4, 3), {"bidirectional": True, "batch_first": True}, (M,)),
    "GRU": ((4, 3), {"num_layers": 2, "dropout": 0.5}, (M,)),
    "RNNCell": ((4, 3), {}, (V,)),
    "LSTMCell": ((4, 3), {}, (V,)),
    "GRUCell": ((4, 3), {}, (V,)),
    "AdaptiveLogSoftmaxWithLoss": ((4, 6), {"cutoffs": [2, 4]}, (V, I(2, high=6))),
}
PROBABILITIES = torch.tensor([[0.1, 0.8, 0.3, 0.4], [0.6, 0.2, 0.9, 0.5]])
SIGNS = torch.tensor([1.0, -1.0])
# New in torch 2.13.
CHUNKS = getattr(nn, "LinearCrossEntropyOptions", dict)(allow_retain_graph=True)
LOSSES = {
    "L1Loss": ((), {}, (V, V)),
    "MSELoss": ((), {}, (V, V)),
    "SmoothL1Loss": ((), {}, (V, V)),
    "HuberLoss": ((), {}, (V, V)),
    "BCELoss": ((), {}, (PROBABILITIES, PROBABILITIES.round())),
    "BCEWithLogitsLoss": ((), {}, (V, PROBABILITIES.round())),
    "CrossEntropyLoss": ((), {"label_smoothing": 0.1}, (V, I(2))),
    "NLLLoss": ((), {}, (V, I(2))),
    "NLLLoss2d": ((), {}, ((2, 3, 4, 4), I(2, 4, 4))),
    "PoissonNLLLoss": ((), {}, (V, PROBABILITIES)),
    "GaussianNLLLoss": ((), {}, (V, V, PROBABILITIES)),
    "KLDivLoss": ((), {"reduction": "batchmean"}, (V, PROBABILITIES)),
    "HingeEmbeddingLoss": ((), {}, (V, torch.ones(V))),
    "MarginRankingLoss": ((), {}, ((2,), (2,), SIGNS)),
    "CosineEmbeddingLoss": ((), {}, (V, V, SIGNS)),
    "TripletMarginLoss": ((), {}, (V, V, V)),
    "TripletMarginWithDistanceLoss": ((), {}, (V, V, V)),
    "MultiLabelMarginLoss": ((), {}, (V, I(*V))),
    "MultiLabelSoftMarginLoss": ((), {}, (V, PROBABILITIES.round())),
    "MultiMarginLoss": ((), {}, (V, I(2))),
    "SoftMarginLoss": ((), {}, (V, torch.ones(V))),
    "LinearCrossEntropyLoss": ((4, 3), {"options": CHUNKS}, (V, I(2))),
    "CTCLoss": (
        (),
        {},
        ((5, 2, 4), I(2, 3) + 1, torch.tensor([5, 5]), torch.tensor([3, 2])),
    ),
}


class Stacked(nn.Module):
    """Modules around modules, and those that need the results of another."""

    def __init__(self):
        super().__init__()
        encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        decoder = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, 2)
        self.decoder = nn.TransformerDecoder(decoder, 2)
        self.pools = nn.ModuleList([nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2)])
        self.by_name = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
        self.sequence = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(1))])
        self.shifts = nn.ParameterDict({"k": nn.Parameter(torch.zeros(4))})

    def forward(self, x):
        x = self.decoder(x, self.encoder(x))
        pooled, indices = self.pools[0](x)
        x = self.pools[1](pooled, indices)
        for module in self.by_name.values():
            x = module(x)
        for scale in self.scales:
            x = x * scale
        return self.sequence(x) + self.shifts["k"]


class Unpools(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{dim}d")(2, return_indices=True)
        self.back = getattr(nn, f"MaxUnpool{dim}d")(2)

    def forward(self, x):
        values, indices = self.pool(x)
        return self.back(values, indices)


TABLE = {**ACTIVATIONS, **DIMENSIONS, **LAYERS, **LOSSES}
# Containers and those that are run by `Stacked` and `Unpools`; base classes.
ELSEWHERE = set(
    """Module Container Sequential ModuleList ModuleDict ParameterList ParameterDict MaxUnpool1d
    MaxUnpool2d MaxUnpool3d TransformerEncoder TransformerDecoder RNNBase RNNCellBase Buffer
    Parameter UninitializedParameter UninitializedBuffer SyncBatchNorm DataParallel
    LinearCrossEntropyOptions""".split()
)
# Nothing to compute in evaluation; or checks and sizes that depend on the values of the inputs.
IDLE = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"}
BREAKS = {"GaussianNLLLoss": 1, "CTCLoss": 0}


def test_the_table_has_all_classes():
    classes = {n for n, c in vars(nn).items() if inspect.isclass(c) and not n.startswith("Lazy")}
    assert classes - ELSEWHERE - set(TABLE) == set()


def make(name):
    if name == "Stacked":
        return Stacked(), ((2, 3, 4),)
    if name.startswith("Unpools"):
        dim = int(name[-1])
        return Unpools(dim), (SHAPES[dim],)
    args, kwargs, inputs = TABLE[name]
    return getattr(nn, name)(*args, **kwargs), inputs


def inputs_of(shapes):
    return [T(*s, grad=True) if isinstance(s, tuple) else s.clone() for s in shapes]


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for item in result or () for t in flat(item)]


def run(module, function, shapes):
    """Results, gradients and state after two steps."""
    seen = []
    for step in range(2):
        torch.manual_seed(step)
        inputs = inputs_of(shapes)
        results = flat(function(*inputs))
        total = sum(r.double().sum() for r in results if r.requires_grad)
        if isinstance(total, torch.Tensor):
            total.backward()
        seen += [*results, *(i.grad for i in inputs if i.grad is not None)]
        seen += [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return [*seen, *module.state_dict().values()]


# A class that this torch does not have yet is left out.
NAMES = sorted(n for n in TABLE if hasattr(nn, n)) + ["Stacked", "Unpools1", "Unpools2", "Unpools3"]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", NAMES)
def test_class(name, training):
    torch.manual_seed(0)
    eager, shapes = make(name)
    eager.train(training)
    module = copy.deepcopy(eager)
    expected = run(eager, eager, shapes)
    backend = CountingBackend()
    whole = name not in BREAKS
    found = run(module, dynamo.compile(module, backend=backend, fullgraph=whole), shapes)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype and torch.equal(one, other)
    idle = name == "Identity" or (name in IDLE and not training)
    assert backend.graphs == BREAKS.get(name, 0 if idle else 1)


# -- tensors that count as parameters or buffers ---------------------------------------------------
def told_apart(x):
    return x + isinstance(x, nn.Buffer) + 10 * isinstance(x, nn.Parameter)


def flagged_within(x):
    y = x.detach()
    before = isinstance(y, nn.Buffer), isinstance(y, nn.Parameter)
    y._is_buffer = y._is_param = True
    return before, isinstance(y, nn.Buffer), isinstance(y, nn.Parameter), y * 2


@pytest.mark.parametrize("f", [told_apart, flagged_within])
@pytest.mark.parametrize("turn", range(3))
def test_attributes_that_make_parameters_and_buffers(f, turn):
    flagged, refused = torch.ones(3), torch.ones(3)
    flagged._is_param, refused._is_param = True, False
    inputs = [nn.Buffer(torch.ones(3)), torch.ones(3), flagged, refused]
    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    for x in [*inputs[turn:], *inputs[:turn], nn.Parameter(torch.ones(3))]:
        assert str(compiled(x)) == str(f(x))
