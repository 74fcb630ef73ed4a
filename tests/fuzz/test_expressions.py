"""Expressions over values from outside do, and raise, what they do eagerly, to the letter."""

import itertools

import pytest

from tests.fuzz.expressions import PLACES, Expressions, costly, mismatch

PARTS = range(4)


@pytest.mark.parametrize("part", PARTS)
def test_expressions(part):
    texts = (text for text in Expressions(part) if not costly(text))
    wrong = [mismatch(text, PLACES[i % 4]) for i, text in enumerate(itertools.islice(texts, 200))]
    assert not any(wrong), "\n".join(text for text in wrong if text)
