# %% [markdown]
# # Tutorial 05: static graphs
#
# `dynamo.compile` takes a function as it is and makes graphs of what it can. `dynamo.Graph` is the
# other way: a class whose `build` says what the graph is (modules, loss, `backward`, optimizer),
# and which is one graph or an error. This tutorial trains a perceptron on images in the shapes of
# FashionMNIST and a MobileNetV2 on images in the shapes of CIFAR10, eagerly and as graphs.
#
# Run this file from the root of the repository: `python tutorials/tutorial_05_static_graph.py`. It
# needs the packages of the extra `tutorials`, and writes `loss.png` in the current folder.

# %%
import copy
import statistics
import sys
import time
from pathlib import Path

import matplotlib
import torch
from torch import nn
from tqdm import tqdm

matplotlib.use("Agg")  # to a file, wherever this runs
from matplotlib import pyplot

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo
from dynamo.errors import GraphError, Unsupported
from tutorials.models import clothes
from tutorials.models.mobilenet import MobileNetV2

torch.manual_seed(0)
BATCH_SIZE = 64

# %% [markdown]
# ## Prediction
#
# A graph derives from `dynamo.Graph`, calls `super().__init__()` first, keeps modules as attributes
# and defines `build`. It is called like a module, and shares the modules' parameters.


# %%
class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


class Predict(dynamo.Graph):
    def __init__(self, model):
        super().__init__(dynamic=True)  # batches of any size
        self.model = model

    def build(self, x):
        return self.model(x).argmax(1)


model = NeuralNetwork()
images, classes = clothes(1024)
predict = Predict(model)
with torch.no_grad():
    assert torch.equal(predict(images[:5]), model(images[:5]).argmax(1))
    assert len(predict(images[:7])) == 7

# %% [markdown]
# ## Training
#
# `add_optimizer` makes a call of the graph a whole training step: gradients are cleared, `build`
# runs with its `loss.backward()`, then the optimizer steps, and the scheduler of its learning rate,
# if it has one. All of that is one graph. The eager program beside it is the one it equals.


# %%
class Train(dynamo.Graph):
    def __init__(self, model, optimizer, lr_sch=None):
        super().__init__()
        self.model = model
        self.loss_fn = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch)

    def build(self, x, y):
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        return loss


def eager_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def as_eager(model, optimizer):
    return lambda x, y: eager_step(model, optimizer, x, y)


def as_compiled(model, optimizer):
    step = dynamo.compile(eager_step)
    return lambda x, y: step(model, optimizer, x, y)


WAYS = {"eager": as_eager, "dynamo.compile": as_compiled, "dynamo.Graph": Train}


def train(title, model, data, make_optimizer):
    """Train copies of the model in each way; losses by way, and the time of a step by way."""
    batches = list(zip(*(part.split(BATCH_SIZE) for part in data)))
    losses, seconds = {}, {}
    for way, make in WAYS.items():
        twin = copy.deepcopy(model)
        step = make(twin, make_optimizer(twin.parameters()))
        losses[way], seconds[way] = [], []
        torch.manual_seed(1)
        bar = tqdm(batches, desc=f"{title}, {way}", unit="step", file=sys.stdout, mininterval=1.0)
        for x, y in bar:
            start = time.perf_counter()
            losses[way].append(float(step(x, y)))
            seconds[way].append(time.perf_counter() - start)
            bar.set_postfix(loss=f"{losses[way][-1]:.3f}", refresh=False)
    # What other programs do on the machine only adds to the time: that of the quickest tenth.
    return losses, {way: statistics.quantiles(taken, n=10)[0] for way, taken in seconds.items()}


def compare(title, losses, seconds):
    """The curves agree to a few digits at first; rounding is amplified from step to step."""
    print(f"{title}: loss {losses['dynamo.Graph'][0]:.3f} -> {losses['dynamo.Graph'][-1]:.3f}")
    for way in ("eager", "dynamo.compile"):
        print(
            f"  a step of the graph takes {seconds['dynamo.Graph'] / seconds[way]:.2f} of {way}'s"
        )
    torch.testing.assert_close(
        losses["dynamo.Graph"][:3], losses["eager"][:3], rtol=1e-2, atol=1e-2
    )
    assert statistics.mean(losses["dynamo.Graph"][-4:]) < losses["dynamo.Graph"][0] * 0.8


# %% [markdown]
# ### A perceptron, in the shapes of FashionMNIST

# %%
clothes_curves, seconds = train(
    "perceptron", model, clothes(2048), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)
)
compare("perceptron", clothes_curves, seconds)

# %% [markdown]
# ### MobileNetV2, in the shapes of CIFAR10
#
# Three stages of the network's seven. Each class of the generated images is a pattern of colours.


# %%
def coloured(count):
    """(count, 3, 32, 32) images in [0, 1], and ten classes."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 3, 4, 4, generator=generator)
    patterns = nn.functional.interpolate(patterns, size=(32, 32), mode="bilinear")
    classes = torch.randint(10, (count,), generator=generator)
    noise = torch.rand(count, 3, 32, 32, generator=generator)
    return 0.6 * patterns[classes] + 0.4 * noise, classes


mobile = MobileNetV2(
    10, settings=((1, 8, 1, 1), (4, 12, 2, 2), (4, 16, 1, 2)), first_channel=16, last_channel=64
)
mobile_curves, seconds = train(
    "MobileNetV2", mobile, coloured(2048), lambda p: torch.optim.Adam(p, lr=4e-3)
)
compare("MobileNetV2", mobile_curves, seconds)

# %%
figure, plots = pyplot.subplots(1, 2, figsize=(10, 4))
for plot, title, curves in zip(
    plots, ("perceptron", "MobileNetV2"), (clothes_curves, mobile_curves)
):
    for (way, losses), width in zip(curves.items(), (6, 3, 1)):
        plot.plot(losses, label=way, linewidth=width, alpha=0.6)
    plot.set(title=title, xlabel="step", ylabel="loss")
    plot.legend()
figure.savefig("loss.png")
assert Path("loss.png").stat().st_size > 0

# %% [markdown]
# ## What is in a graph
#
# `print` shows the modules with their parameters, and once the graph was called, inputs and outputs
# of each. `debug` prints while the graph is built: phases, modules (1), operators (2), and
# source lines, kernels and memory (3).

# %%
twin = copy.deepcopy(model)
graph = Train(twin, torch.optim.SGD(twin.parameters(), lr=0.1))
print(graph)
graph.debug(1)
x, y = images[:BATCH_SIZE], classes[:BATCH_SIZE]
graph(x, y)
print(graph)
assert f"(INPUT:_{graph.name}-input_0:tensor(..., size=(64, 1, 28, 28)" in str(graph)

# %% [markdown]
# ## Settings
#
# `graph.config` has mixed precision, gradient accumulation and activation checkpointing; each says
# in its docstring which eager program it equals. Groups of parameters with `clip_grad_max_norm`
# have their gradients clipped. A scheduler is stepped by the call.

# %%
optimizer = torch.optim.SGD([{"params": twin.parameters(), "clip_grad_max_norm": 1.0}], lr=0.1)
halving = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
graph = Train(twin, optimizer, halving)
graph.config.set_gradient_accumulation_steps(4)
before = float(graph(x, y))
assert optimizer.param_groups[0]["lr"] == 0.05
assert float(graph(x, y)) < before

# %% [markdown]
# ## One graph, or an error
#
# A graph is built for the shapes of its first call, and for what can be one graph. Anything else is
# an error that says what to do.

# %%
try:
    graph(x[:8], y[:8])
except GraphError as error:
    print(error)
    assert "x had shape (64, 1, 28, 28) and has (8, 1, 28, 28)" in str(error)
else:
    raise AssertionError("a batch of another size was taken")


class Undecided(dynamo.Graph):
    def build(self, x):
        if x.sum() > 0:
            print("positive")
        return x * 2


try:
    Undecided()(x)
except Unsupported as error:
    print(error)
else:
    raise AssertionError("a branch that prints is no graph")

# %% [markdown]
# A branch whose sides only compute tensors is in the graph.


# %%
class Positive(dynamo.Graph):
    def build(self, x):
        return x * 2 if x.sum() > 0 else -x


positive = Positive()
for batch in (x, -x):
    assert torch.equal(positive(batch), batch * 2 if batch.sum() > 0 else -batch)

# %% [markdown]
# ## Saving
#
# The state dict of a graph has the modules' tensors and the state of optimizers and schedulers, so
# training goes on from a file.

# %%
torch.save(graph.state_dict(), "graph_state")
twin = NeuralNetwork()
optimizer = torch.optim.SGD([{"params": twin.parameters(), "clip_grad_max_norm": 1.0}], lr=0.1)
resumed = Train(twin, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
resumed.load_state_dict(torch.load("graph_state", weights_only=True))
assert (
    optimizer.param_groups[0]["lr"] == graph.state_dict()["optimizers.0"]["param_groups"][0]["lr"]
)
