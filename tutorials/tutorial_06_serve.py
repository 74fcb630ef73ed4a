# %% [markdown]
# # Tutorial 06: serving a saved program
#
# A model is exported once, with a number of images that varies, and saved. The server loads the
# file: it needs neither the model's source nor its packages, and starts without tracing. Requests
# that come at the same time are computed together, as one batch.
#
# Run this file from the root of the repository: `python tutorials/tutorial_06_serve.py`. It needs
# the packages of the extra `tutorials` (fastapi, uvicorn, httpx).

# %%
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import httpx
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo
from tutorials.models.mobilenet import MobileNetV2
from tutorials.serving import Batcher, application, served

torch.manual_seed(0)
SIZE = (3, 32, 32)
MOST = 16  # rows of a batch

# %% [markdown]
# ## Where the model is: export and save
#
# `mark_dynamic` gives the first dimension a range. A size of 1 is a program of its own for every
# compiler of tensors (it broadcasts), so the range begins at 2, and the server fills a batch of one
# request up to two rows.

# %%
model = MobileNetV2(10)
for layer in model.modules():
    if isinstance(layer, torch.nn.BatchNorm2d):
        layer.momentum = None
model(torch.randn(32, *SIZE))  # gives the batch norms their statistics, as training would
model.eval()

path = Path(tempfile.mkdtemp()) / "mobilenet.fg"
images = torch.randn(4, *SIZE)
dynamo.mark_dynamic(images, 0, min=2, max=MOST)
with torch.no_grad():
    dynamo.export(model)(images).save(path)

# %% [markdown]
# ## Where it is served: load, and answer requests
#
# `Batcher` (tutorials/serving.py) collects rows and calls the program in one thread, whose kernels
# use all cores and hold no lock of Python's meanwhile. The program is called once before the server
# starts: its kernels are compiled then, or taken from the cache.

# %%
program = dynamo.load(path)
with torch.no_grad():
    program(images)
batcher = Batcher(program, most=MOST)
app = application(batcher, SIZE)

# %% [markdown]
# ## A client under load
#
# 200 requests from 40 clients at once. Each gets the scores of its own image; those who sent
# something else are told what is wanted, and disturb no one.


# %%
async def client(address: str, requests: torch.Tensor, found: list, seconds: list) -> None:
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        for number in requests.tolist():
            started = time.perf_counter()
            answer = await http.post("/scores", content=inputs[number].numpy().tobytes())
            seconds.append(time.perf_counter() - started)
            answer.raise_for_status()
            found[number] = torch.tensor(answer.json()["scores"])
        refused = await http.post("/scores", content=b"no image")
        assert refused.status_code == 422
        assert "12288 bytes of float32 are wanted, not 8" in refused.text


async def load(address: str) -> tuple[list[torch.Tensor], list[float]]:
    found, seconds = [torch.empty(0)] * len(inputs), []
    parts = torch.arange(len(inputs)).chunk(40)
    await asyncio.gather(*(client(address, part, found, seconds) for part in parts))
    return found, seconds


inputs = torch.randn(200, *SIZE)
with served(app) as address:
    started = time.perf_counter()
    found, seconds = asyncio.run(load(address))
    spent = time.perf_counter() - started

with torch.no_grad():
    expected = model(inputs)
assert torch.allclose(torch.stack(found), expected, atol=5e-4)
assert expected.std(0).min() > 0.05
assert sum(rows * count for rows, count in batcher.sizes.items()) == len(inputs)
assert sum(batcher.sizes.values()) < len(inputs), "requests share batches"
median = sorted(seconds)[len(seconds) // 2]
print(f"{len(inputs) / spent:.0f} images a second; {1e3 * median:.0f} ms for half of the requests")
print("rows of a batch: how often", dict(sorted(batcher.sizes.items())))
print("`python -m benchmarks.serving` measures this beside eager and torch.compile")
