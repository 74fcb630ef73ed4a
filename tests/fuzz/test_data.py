"""Random programs that depend on data: eager and compiled agree in everything that can be seen.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import itertools

import pytest

from tests.fuzz.data import Programs, mismatch


@pytest.mark.parametrize("part", range(4))
def test_programs(part):
    backend = "aot_eager" if part % 2 else "eager"
    texts = itertools.islice(Programs(part), 12)
    wrong = [mismatch(text, backend, bool(i % 2)) for i, text in enumerate(texts)]
    assert not any(wrong), "\n".join(text for text in wrong if text)


@pytest.mark.slow
def test_inductor():
    texts = itertools.islice(Programs(100), 4)
    wrong = [mismatch(text, "inductor", bool(i % 2)) for i, text in enumerate(texts)]
    assert not any(wrong), "\n".join(text for text in wrong if text)


FOUND = {
    "a place that data tells": """
def f(a, b, w, log, big):
    n = int((b > 0).sum())
    return torch.cat([a, b]).narrow(0, n, 4)
""",
    "a loop over what data chooses, in a loop": """
def f(a, b, w, log, big):
    c = a + b
    n = torch.zeros(())
    while (n < 3) & (c.max() > b.min()):
        n = n + 1
        for t in c[a > -1]:
            a = a + t
    return a * 1, c
""",
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", FOUND)
def test_found(name, backend):
    for captured in (False, True):
        assert mismatch(FOUND[name], backend, captured) is None
