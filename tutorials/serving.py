"""A model behind HTTP: requests that come together are one batch (tutorial_06_serve.py)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Request

Model = Callable[[torch.Tensor], torch.Tensor]


class Batcher:
    """Calls a model with the rows of several requests at once.

    The model runs in a thread of its own. While it does, requests gather; then those that wait,
    `most` of them at a time, are its next batch. The first request of a batch waits `patience`
    seconds for others. A batch of fewer rows than `least` is filled up.
    """

    def __init__(
        self, model: Model, *, least: int = 2, most: int = 32, patience: float = 0.0
    ) -> None:
        self.model = model
        self.least, self.most, self.patience = least, most, patience
        self.sizes: Counter[int] = Counter()  # rows of a batch -> how many there were
        self._waiting: asyncio.Queue[tuple[torch.Tensor, asyncio.Future[torch.Tensor]]]

    async def __call__(self, row: torch.Tensor) -> torch.Tensor:
        """The model's result for one row; raises what the model raises for its batch."""
        answer = asyncio.get_running_loop().create_future()
        await self._waiting.put((row, answer))
        return await answer

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests are answered inside of this."""
        self._waiting = asyncio.Queue()
        with ThreadPoolExecutor(1) as thread:
            task = asyncio.create_task(self._serve(thread))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _serve(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            if self.patience and self._waiting.qsize() + 1 < self.most:
                await asyncio.sleep(self.patience)
            while len(batch) < self.most and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            batch = [(row, answer) for row, answer in batch if not answer.cancelled()]
            if not batch:
                continue
            rows = [row for row, _ in batch]
            try:
                results = await loop.run_in_executor(thread, self._call, rows)
            except Exception as error:
                results = [error] * len(rows)
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.cancelled():  # its client is gone
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _call(self, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        filled = rows + rows[:1] * (self.least - len(rows))
        with torch.no_grad():
            results = self.model(torch.stack(filled))
        self.sizes[len(rows)] += 1
        return list(results[: len(rows)])


def application(batcher: Batcher, size: tuple[int, ...]) -> FastAPI:
    """POST /scores: the bytes of a float32 tensor of this size; answers {"scores": [...]}."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with batcher.running():
            yield

    app = FastAPI(title="scores", lifespan=lifespan)
    expected = 4 * torch.Size(size).numel()

    @app.post("/scores")
    async def scores(request: Request) -> dict[str, list[float]]:
        body = await request.body()
        if len(body) != expected:
            raise HTTPException(422, f"{expected} bytes of float32 are wanted, not {len(body)}")
        row = torch.frombuffer(bytearray(body), dtype=torch.float32).reshape(size)
        return {"scores": (await batcher(row)).tolist()}

    @app.get("/batches")
    async def batches() -> dict[int, int]:
        return dict(batcher.sizes)

    return app


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of a server of this process, which ends with the block."""
    settings = uvicorn.Config(app, port=0, log_level="warning")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            thread.join(0.01)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()
