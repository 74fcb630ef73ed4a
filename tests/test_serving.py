"""tutorials/serving.py under concurrent HTTP requests."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
import torch

import dynamo
from tutorials.serving import Batcher, application, served

SIZE = (8,)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    x = torch.randn(4, 8)
    dynamo.mark_dynamic(x, 0, min=2, max=6)
    path = tmp_path_factory.mktemp("serving") / "m.fg"
    with torch.no_grad():
        dynamo.export(model)(x).save(path)
    return dynamo.load(path, backend="aot_eager"), model


def answers(address, rows, clients=12):
    """What each row is answered, sent by several clients at once."""
    found = [None] * len(rows)

    async def send(numbers):
        async with httpx.AsyncClient(base_url=address, timeout=30) as http:
            for number in numbers:
                body = rows[number].numpy().tobytes()
                found[number] = await http.post("/scores", content=body)

    async def all_of_them():
        await asyncio.gather(*(send(range(k, len(rows), clients)) for k in range(clients)))

    asyncio.run(all_of_them())
    return found


@pytest.mark.parametrize("patience", [0.0, 0.005])
def test_each_gets_its_own_scores(program, patience):
    loaded, model = program
    batcher = Batcher(loaded, most=6, patience=patience)
    rows = torch.randn(60, 8)
    with served(application(batcher, SIZE)) as address:
        found = answers(address, rows)
        assert httpx.get(f"{address}/batches").json() == {
            str(rows): count for rows, count in batcher.sizes.items()
        }
    assert {answer.status_code for answer in found} == {200}
    scores = torch.tensor([answer.json()["scores"] for answer in found])
    with torch.no_grad():
        torch.testing.assert_close(scores, model(rows))
    assert max(batcher.sizes) <= 6
    assert sum(batcher.sizes.values()) < 60  # some were computed together


def test_one_request_is_a_batch(program):
    loaded, model = program
    with served(application(Batcher(loaded, most=6), SIZE)) as address:
        (answer,) = answers(address, torch.ones(1, 8), clients=1)
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(answer.json()["scores"]), model(torch.ones(8)))


def test_a_wrong_size_is_refused_and_the_rest_is_served(program):
    loaded, _ = program
    with served(application(Batcher(loaded, most=6), SIZE)) as address:
        rows = [torch.zeros(8), torch.zeros(7), torch.zeros(0), torch.zeros(8)]
        found = answers(address, rows, clients=4)
    assert [answer.status_code for answer in found] == [200, 422, 422, 200]
    assert "32 bytes of float32 are wanted, not 28" in found[1].text


def test_a_fault_of_the_model_ends_its_batch_alone():
    def faulty(x):
        if x.isnan().any():
            raise ValueError("not a number")
        return x

    with served(application(Batcher(faulty), SIZE)) as address:
        good, bad = torch.ones(1, 8), torch.full((1, 8), float("nan"))
        codes = [answers(address, rows)[0].status_code for rows in (good, bad, good)]
    assert codes == [200, 500, 200]


def test_requests_that_were_given_up_are_not_computed():
    begun, go_on = threading.Event(), threading.Event()
    seen = []

    def slow(x):
        seen.append(x[:, 0].tolist())
        begun.set()
        go_on.wait(20)
        return x

    async def run():
        batcher = Batcher(slow, least=1)
        async with batcher.running():
            first = asyncio.create_task(batcher(torch.tensor([1.0])))
            await asyncio.to_thread(begun.wait, 20)
            given_up = asyncio.create_task(batcher(torch.tensor([2.0])))
            last = asyncio.create_task(batcher(torch.tensor([3.0])))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.sleep(0)
            go_on.set()
            return await asyncio.gather(first, last)

    assert [r.item() for r in asyncio.run(run())] == [1.0, 3.0]
    assert seen == [[1.0], [3.0]]
