"""The programs of OneFlow's chapters on nn.Graph, line by line.

000: "八、静态图模块 nn.Graph" of the notebook of all chapters; 001: "静态图模块 nn.Graph", the
chapter's own page. `flow` is torch and nn.Graph is dynamo.Graph; the data sets are generated, and
models are small members of the families.
"""

from __future__ import annotations

import copy
import shutil

import pytest
import torch
import torch as flow
from torch import nn

import dynamo
from tutorials.models.mobilenet import MobileNetV2

BATCH_SIZE = 8
EPOCH_NUM = 1
DEVICE = "cpu"
AFFINE = "affine=True"


class Graph(dynamo.Graph):
    """nn.Graph, with a backend that needs no C++ compiler."""

    def __init__(self):
        super().__init__(backend="aot_eager")


def cifar(count=4 * BATCH_SIZE):
    generator = flow.Generator().manual_seed(1)
    images = flow.rand(count, 3, 32, 32, generator=generator)
    return flow.utils.data.TensorDataset(images, flow.arange(count) % 10)


def mobilenet_v2():
    flow.manual_seed(0)
    settings = ((1, 8, 1, 1), (4, 12, 1, 2))
    return MobileNetV2(1000, settings, first_channel=8, last_channel=32)


def world():
    """The lines before the loops: data, model, loss and optimizer."""
    training_data = cifar()
    train_dataloader = flow.utils.data.DataLoader(
        training_data, BATCH_SIZE, shuffle=True, generator=flow.Generator().manual_seed(2)
    )
    model = mobilenet_v2().to(DEVICE)
    # As there: a name that no forward uses, so that the optimizer has parameters without gradients.
    model.classifer = nn.Sequential(nn.Dropout(0.2), nn.Linear(model.last_channel, 10))
    model.train()
    loss_fn = nn.CrossEntropyLoss().to(DEVICE)
    optimizer = flow.optim.SGD(model.parameters(), lr=1e-3)
    return train_dataloader, model, loss_fn, optimizer


def train_graph(train_dataloader, model, loss_fn, optimizer):
    """The Graph of "使用 Graph 做训练" (000 and 001), over these."""

    class GraphMobileNetV2(Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.loss_fn = loss_fn
            self.add_optimizer(optimizer)

        def build(self, x, y):
            y_pred = self.model(x)
            loss = self.loss_fn(y_pred, y)
            loss.backward()
            return loss

    return GraphMobileNetV2()


def eager_epochs(train_dataloader, model, loss_fn, optimizer):
    """ "OneFlow 的 Eager 模式" (000 and 001)."""
    shown = []
    for t in range(EPOCH_NUM):
        print(f"Epoch {t + 1}\n-------------------------------")
        size = len(train_dataloader.dataset)
        for batch, (x, y) in enumerate(train_dataloader):
            x = x.to(DEVICE)
            y = y.to(DEVICE)

            # Compute prediction error
            pred = model(x)
            loss = loss_fn(pred, y)

            # Backpropagation
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            current = batch * BATCH_SIZE
            shown.append(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")
    return shown


def graph_epochs(graph_mobile_net_v2, train_dataloader):
    """ "使用 Graph 做训练" (000 and 001)."""
    shown = []
    for t in range(EPOCH_NUM):
        print(f"Epoch {t + 1}\n-------------------------------")
        size = len(train_dataloader.dataset)
        for batch, (x, y) in enumerate(train_dataloader):
            x = x.to(DEVICE)
            y = y.to(DEVICE)
            loss = graph_mobile_net_v2(x, y)
            current = batch * BATCH_SIZE
            shown.append(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")
    return shown


def lines_of(text, *tags):
    return [line for line in text.splitlines() if line.strip().startswith(tuple(tags))]


# -- 000 and 001, "自定义一个 Graph" ----
def test_a_graph_of_ones_own():
    class ModuleMyLinear(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.weight = nn.Parameter(flow.randn(in_features, out_features))
            self.bias = nn.Parameter(flow.randn(out_features))

        def forward(self, input):
            return flow.matmul(input, self.weight) + self.bias

    model = ModuleMyLinear(4, 3)

    class GraphMyLinear(dynamo.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, input):
            return self.model(input)

    graph_mylinear = GraphMyLinear()
    input = flow.randn(1, 4)
    out = graph_mylinear(input)
    torch.testing.assert_close(out, model(input))

    class ModelGraph(Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x, y):
            y_pred = self.model(x)
            return loss  # as there: of no such name  # noqa: F821

    model_graph = ModelGraph()
    with pytest.raises(NameError, match="name 'loss' is not defined"):
        model_graph(input, out)


# -- 000 and 001, "使用 Graph 做预测" ----
def test_prediction():
    train_dataloader, model, *_ = world()
    twin = copy.deepcopy(model)

    class GraphMobileNetV2(Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)

    graph_mobile_net_v2 = GraphMobileNetV2()

    x, _ = next(iter(train_dataloader))
    x = x.to(DEVICE)
    flow.manual_seed(3)
    y_pred = graph_mobile_net_v2(x)
    flow.manual_seed(3)
    torch.testing.assert_close(y_pred, twin(x))
    assert "GraphConfig(training=False, )" in str(graph_mobile_net_v2)


# -- 000 and 001, "使用 Graph 做训练" and "Graph 的保存与加载" ----
def test_training_printing_debugging_and_saving(tmp_path, capsys, golden):
    first, second = world(), world()
    graph_mobile_net_v2 = train_graph(*second)

    # "Graph 调试": print before the first call.
    print(graph_mobile_net_v2)
    before = capsys.readouterr().out
    name = graph_mobile_net_v2.name
    assert name.startswith("GraphMobileNetV2_")

    def shown(text):
        # Later releases of torch tell of batch norms' bias.
        return text.replace(name, "GraphMobileNetV2_0").replace("affine=True, bias=True", AFFINE)

    golden("static_graph/before_the_first_call.txt", shown(before))
    assert not lines_of(before, "(INPUT", "(OUTPUT")

    # graph_mobile_net_v2.debug(), of which there three lines are shown.
    graph_mobile_net_v2.debug()
    flow.manual_seed(4)
    found = graph_epochs(graph_mobile_net_v2, second[0])
    told = lines_of(capsys.readouterr().out, "(GRAPH")
    title = f"(GRAPH:{name}:GraphMobileNetV2)"
    assert [line.split(":")[2] for line in told] == [
        "GraphMobileNetV2) end building graph",
        "GraphMobileNetV2) start compiling plan.",
        "GraphMobileNetV2) end compiling plan",
    ]
    assert all(line.startswith(title) for line in told)

    flow.manual_seed(4)
    expected = eager_epochs(*first)
    assert [text[16:] for text in found] == [text[16:] for text in expected]
    losses = [[float(text[6:14]) for text in shown] for shown in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    torch.testing.assert_close(second[1].state_dict(), first[1].state_dict())

    capsys.readouterr()

    # print after the first call: inputs and outputs besides.
    print(graph_mobile_net_v2)
    after = capsys.readouterr().out
    golden("static_graph/after_the_first_call.txt", shown(after))
    assert {line.strip() for line in lines_of(before, "(PARAMETER", "(BUFFER", "(CONFIG")} <= {
        line.strip() for line in after.splitlines()
    }

    # The second way: graph_mobile_net_v2.debug(v_level=1), in short debug(1).
    graph_mobile_net_v2.debug(v_level=1)
    graph_mobile_net_v2.debug(1)

    # 000, "Graph 模型的保存与加载".
    CHECKPOINT_SAVE_DIR = tmp_path / "GraphMobileNetV2"
    CHECKPOINT_SAVE_DIR.mkdir()
    shutil.rmtree(CHECKPOINT_SAVE_DIR)
    flow.save(graph_mobile_net_v2.state_dict(), CHECKPOINT_SAVE_DIR)
    state_dict = flow.load(CHECKPOINT_SAVE_DIR)
    fresh = train_graph(*world())
    fresh.load_state_dict(state_dict)
    torch.testing.assert_close(fresh.model.state_dict(), second[1].state_dict())

    # 001, "Graph 的保存与加载". There graph.model.state_dict() is an error; here it is the model's.
    flow.save(second[1].state_dict(), tmp_path / "graph_model")
    flow.save(graph_mobile_net_v2.model.state_dict(), tmp_path / "graph_model_2")
    for path in ("graph_model", "graph_model_2"):
        model = mobilenet_v2().to(DEVICE)
        model.classifer = nn.Sequential(nn.Dropout(0.2), nn.Linear(model.last_channel, 10))
        model.load_state_dict(flow.load(tmp_path / path))
        torch.testing.assert_close(model.state_dict(), second[1].state_dict())


# -- 000, "Graph 与部署" --------------------------------------------------------------------------
class StyleNet(nn.Module):
    """A small network of neural style transfer: convolutions with reflected borders and instance
    norms, a residual, and an upsampled output.
    """

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.residual = nn.Conv2d(8, 8, 3)
        self.up = nn.Conv2d(8, 3, 3)

    def forward(self, x):
        pad = nn.functional.pad
        x = self.norm(self.down(pad(x, (1, 1, 1, 1), mode="reflect"))).relu()
        x = x + self.residual(pad(x, (1, 1, 1, 1), mode="reflect"))
        x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
        return self.up(pad(x, (1, 1, 1, 1), mode="reflect"))


def test_deployed_graph(tmp_path):
    class MyGraph(Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, *input):
            return self.model(*input)

    fake_image = flow.ones((1, 3, 32, 32))
    model = StyleNet()
    model.eval()
    graph = MyGraph(model)
    out = graph(fake_image)
    torch.testing.assert_close(out, model(fake_image))

    # flow.save(graph, MODEL_SAVE_DIR): the graph with its parameters, without the model's code.
    MODEL_SAVE_DIR = tmp_path / "neural_style_transfer_model"
    dynamo.export(graph)(fake_image).save(MODEL_SAVE_DIR)
    loaded = dynamo.load(MODEL_SAVE_DIR, backend="aot_eager")
    torch.testing.assert_close(loaded(fake_image), out)
    assert dict(loaded.named_parameters()).keys() == dict(graph.named_parameters()).keys()


# -- 000 and 001, "扩展阅读：动态图与静态图" ----
def test_dynamic_and_static_graphs():
    def loss(y_pred, y):
        return flow.sum(1 / 2 * (y_pred - y) ** 2)

    x = flow.ones(1, 5)
    w = flow.randn(5, 3, requires_grad=True)
    b = flow.randn(1, 3, requires_grad=True)
    z = flow.matmul(x, w) + b

    y = flow.zeros(1, 3)
    l = loss(z, y)

    class Static(Graph):
        def build(self, x, w, b, y):
            z = flow.matmul(x, w) + b
            l = loss(z, y)
            return l

    static = Static()
    found = static(x, w, b, y)
    torch.testing.assert_close(found, l)
    torch.testing.assert_close(flow.autograd.grad(found, (w, b)), flow.autograd.grad(l, (w, b)))
