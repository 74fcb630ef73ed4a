"""A served model: eager, torch.compile and a saved program behind the same server, side by side.

    python -m benchmarks.serving                    # all three
    python -m benchmarks.serving eager loaded       # some
    python -m benchmarks.serving --clients 1 16     # how many ask at once

Each server (tutorials/serving.py: FastAPI, uvicorn, batches of requests that wait) is a process of
its own with an encoder of 4 layers of attention, 256 wide, for 64 vectors. "ready" is the time
until it answers: imports, the model or the file, and what has to be compiled, from caches as they
are. The clients (httpx) are another process on the same machine, whose time is part of the figures;
each sends its next request when it has the answer to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import torch
from tabulate import tabulate
from torch import nn

import dynamo
from tutorials.serving import Batcher, application, served

LENGTH, WIDTH, HEADS, MOST = 64, 256, 4, 16
SIZE = (LENGTH, WIDTH)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Encoder(nn.Module):
    """(N, 64, 256) -> scores (N, 10)"""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer() for _ in range(4)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return Encoder().eval()


def save(path: Path) -> None:
    x = torch.randn(4, *SIZE)
    dynamo.mark_dynamic(x, 0, min=2, max=MOST)
    with torch.no_grad():
        dynamo.export(make_model())(x).save(path)


def torch_compiled(path: Path) -> Any:
    return torch.compile(make_model(), dynamic=True)


KINDS: dict[str, Callable[[Path], Any]] = {
    "eager": lambda path: make_model(),
    "torch.compile": torch_compiled,
    "loaded": dynamo.load,
}


# -- the server's process --------------------------------------------------------------------------
def serve(kind: str, path: Path) -> None:
    """Prints the address when the model is warm, and ends with its standard input."""
    model = KINDS[kind](path)
    with torch.no_grad():
        for rows in (2, 5, MOST):
            model(torch.randn(rows, *SIZE))
    with served(application(Batcher(model, most=MOST), SIZE)) as address:
        print(address, flush=True)
        sys.stdin.read()


# -- the clients' process --------------------------------------------------------------------------
async def ask(address: str, clients: int, seconds: float) -> tuple[list[float], dict[str, int]]:
    """Seconds of each request, and the sizes of batches."""
    spent: list[float] = []
    body = torch.randn(SIZE).numpy().tobytes()

    async def one(http: httpx.AsyncClient, until: float) -> None:
        while (started := time.perf_counter()) < until:
            (await http.post("/scores", content=body)).raise_for_status()
            spent.append(time.perf_counter() - started)

    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        for warm in (0.3, seconds):
            spent.clear()
            until = time.perf_counter() + warm
            await asyncio.gather(*(one(http, until) for _ in range(clients)))
        sizes = (await http.get("/batches")).json()
    return spent, sizes


def measure(kind: str, path: Path, counts: list[int], seconds: float) -> list[list[Any]]:
    command = [sys.executable, "-m", "benchmarks.serving", "--serve", kind, str(path)]
    started = time.perf_counter()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as server:  # type: ignore[call-overload]
        address = server.stdout.readline().strip()
        ready = time.perf_counter() - started
        rows = []
        for clients in counts:
            spent, _ = asyncio.run(ask(address, clients, seconds))
            spent.sort()
            rate = len(spent) / seconds
            middle, late = (1e3 * spent[int(len(spent) * part)] for part in (0.5, 0.95))
            rows.append([kind, f"{ready:.1f}", clients, f"{rate:.0f}", f"{middle:.1f}", late])
        server.stdin.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help=f"of {', '.join(KINDS)}")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "FILE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve[0], Path(chosen.serve[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fg"
        save(path)
        rows = [
            row
            for kind in chosen.kinds or KINDS
            for row in measure(kind, path, chosen.clients, chosen.seconds)
        ]
    headers = ["model", "ready s", "clients", "requests/s", "median ms", "95% ms"]
    print(tabulate(rows, headers=headers, floatfmt=".1f"))


if __name__ == "__main__":
    main()
