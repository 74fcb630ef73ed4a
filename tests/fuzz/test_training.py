"""Random training programs: each step leaves what eager leaves.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import itertools
import textwrap

import pytest

from tests.fuzz.training import BACKENDS, Programs, difference, mismatch


def disagreements(seed: int, count: int, backend: str) -> str:
    drawn = itertools.islice(Programs(seed), count)
    told = [(program, mismatch(program, backend)) for program in drawn]
    return "\n".join(f"{program}\n{text}" for program, text in told if text)


@pytest.mark.parametrize("seed", range(2))
def test_programs(seed):
    wrong = disagreements(seed, 12, "aot_eager")
    assert not wrong, wrong


def test_eager():
    wrong = disagreements(100, 12, "eager")
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(101, 5, "inductor")
    assert not wrong, wrong


FOUND = {
    "clipped without gradients": """
        net = nn.Linear(4, 4)
        def f(x):
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
            return net(x)
        ---
        run(T(3, 4))
        run(T(3, 4)).sum().backward()
        run(T(3, 4))
    """,
    "grad mode inside of inference mode": """
        def f(x, n):
            with torch.set_grad_enabled(n > 0):
                x.sin_()
            return x * 2
        ---
        x = T(3, grad=True)
        with torch.inference_mode(): run(x, 1)
        with torch.inference_mode(): run(T(3), 1)
    """,
    "a row of a tensor beside an assignment of data": """
        w = T(4, 4, grad=True)
        mean = torch.zeros(4)
        def f(x):
            y = x * 1
            with torch.no_grad():
                w.data = w.data * 0.5
            mean.copy_(y.detach()[0])
            return y
        ---
        run(T(3, 4, grad=True))
        run(T(5, 4, grad=True)).sum().backward()
    """,
    "a buffer of inference mode": """
        mean = [torch.ones(4)]
        w = T(4, grad=True)
        def f(x):
            mean[0] = mean[0] + x.mean(0)
            return x * w + mean[0]
        ---
        with torch.inference_mode(): run(T(3, 4))
        run(T(3, 4)).sum().backward()
        run(T(5, 4)).sum().backward()
    """,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FOUND)
def test_found(name, backend):
    definitions, _, steps = textwrap.dedent(FOUND[name]).partition("\n---\n")
    told = difference(definitions, steps, backend)
    assert told is None, told
