# %% [markdown]
# # Tutorial 02: training
#
# A training step is one function: gradients are cleared, the model runs, the loss is taken back
# through it, the optimizer changes the parameters. `dynamo.compile` makes one graph of all that,
# `loss.backward()` and `optimizer.step()` included, and one set of fused kernels.
#
# Run this file from the root of the repository: `python tutorials/tutorial_02_training.py`. It
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
from tutorials.models import CNN, clothes

torch.manual_seed(0)

# %% [markdown]
# ## A step
#
# The model is a small convolutional network, the data has the shapes of FashionMNIST and is
# generated. `train` is what one would write without a compiler.

# %%
model = CNN(channels=(8, 16), hidden=(64, 32))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_function = nn.CrossEntropyLoss()


def train(model, optimizer, images, classes):
    optimizer.zero_grad()
    loss = loss_function(model(images), classes)
    loss.backward()
    optimizer.step()
    return loss.detach()


train_compiled = dynamo.compile(train)

# %% [markdown]
# ## An epoch
#
# The same loop twice, from the same parameters: once as it is, once compiled. The first steps of
# the compiled loop take longer: the first is compiled for an optimizer without state, the second
# for one with it.


# %%
def run_epoch(step, model, optimizer, data, batch_size, name):
    """The losses of an epoch, and the seconds that each step took."""
    images, classes = data
    losses, seconds = [], []
    batches = list(zip(images.split(batch_size), classes.split(batch_size)))
    for batch in tqdm(batches, desc=name, unit="step", file=sys.stdout, mininterval=1.0):
        start = time.perf_counter()
        losses.append(step(model, optimizer, *batch))
        seconds.append(time.perf_counter() - start)
    return torch.stack(losses), seconds


data = clothes(2048)
twin = copy.deepcopy(model)
twin_optimizer = torch.optim.Adam(twin.parameters(), lr=2e-3)
eager_losses, eager_seconds = run_epoch(train, twin, twin_optimizer, data, 64, "eager")
losses, seconds = run_epoch(train_compiled, model, optimizer, data, 64, "compiled")
print(f"first step {seconds[0]:.1f} s, second {seconds[1]:.1f} s")
print(f"median of the others: {statistics.median(seconds[2:]) * 1e3:.1f} ms", end="; ")
print(f"eager: {statistics.median(eager_seconds[2:]) * 1e3:.1f} ms")

# %% [markdown]
# Both learn the same. Rounding differs where operations are fused, and a network amplifies that
# from step to step: the curves agree to a few digits.

# %%
print(f"loss {float(losses[0]):.3f} -> {float(losses[-1]):.3f}")
assert losses[-4:].mean() < losses[0] / 2
torch.testing.assert_close(losses[:8], eager_losses[:8], rtol=1e-3, atol=1e-4)

pyplot.plot(eager_losses, label="eager", linewidth=3, alpha=0.4)
pyplot.plot(losses, label="compiled")
pyplot.xlabel("step")
pyplot.ylabel("loss")
pyplot.legend()
pyplot.savefig("loss.png")
assert Path("loss.png").stat().st_size > 0

# %% [markdown]
# ## What was captured
#
# `explain` runs one step and reports: one graph, no break. The parameters are updated by a few
# kernels, however many there are.

# %%
report = dynamo.explain(train)(model, optimizer, data[0][:64], data[1][:64])
print(report)
assert report.graph_count == 1 and report.graph_break_count == 0

# %% [markdown]
# ## More in a step
#
# Gradients may be clipped, and gathered over several parts of a batch; `backward` runs once per
# part, inside the one graph.


# %%
@dynamo.compile(fullgraph=True)
def train_in_parts(model, optimizer, images, classes):
    optimizer.zero_grad()
    total = torch.zeros(())
    for part, wanted in zip(images.chunk(2), classes.chunk(2)):
        loss = loss_function(model(part), wanted) / 2
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


print(float(train_in_parts(model, optimizer, data[0][:64], data[1][:64])))

# %% [markdown]
# ## Compiling the model alone
#
# The step need not be one function. A compiled model is differentiated like any other: its backward
# is compiled too, and runs when autograd asks for it.

# %%
compiled_model = dynamo.compile(model)
optimizer.zero_grad()
loss_function(compiled_model(data[0][:64]), data[1][:64]).backward()
gradients = [p.grad.clone() for p in model.parameters()]

optimizer.zero_grad()
loss_function(model(data[0][:64]), data[1][:64]).backward()
for compiled_gradient, parameter in zip(gradients, model.parameters()):
    torch.testing.assert_close(compiled_gradient, parameter.grad, rtol=1e-3, atol=1e-4)
