"""Whole training scripts train, print and draw random numbers compiled as they do eagerly."""

from __future__ import annotations

import contextlib
import io
import random

import numpy as np
import pytest
import torch

import dynamo
from tests.models.training_scripts import SCRIPTS


def outcome(script, compile, part):
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        learned = script(compile, part)
    return learned, printed.getvalue(), torch.rand(3), random.random(), np.random.rand()


CASES = [*((name, "step") for name in SCRIPTS), ("dcgan", "model"), ("word_lm", "model")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), CASES)
def test_script(name, part):
    dynamo.reset()
    wanted = outcome(SCRIPTS[name], lambda function: function, "")
    found = outcome(
        SCRIPTS[name], lambda function: dynamo.compile(function, backend="aot_eager"), part
    )
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-3, atol=1e-4)
    assert found[1] == wanted[1]
    assert torch.equal(found[2], wanted[2]) and found[3:] == wanted[3:]
