"""Each DYNAMO_LOGS channel of capture prints what it promises."""

from __future__ import annotations

import logging

import pytest
import torch

import dynamo
from dynamo.logs import CHANNELS

# channel -> texts that it shows for the function below, compiled twice
EXPECTED = {
    "graph": ["shown", "mul"],
    "graph_code": ["def forward", "*"],
    "guards": ["L['x']", "L['n']"],
    "plans": ["attempt 1: the first attempt"],
    "breaks": ["UNCAPTURED_CALL", "print", "test_logs.py"],
    "recompiles": ["shown", "L['n']"],
    "bytecode": ["before: ", "after: ", "BINARY_OP", "__compiled_"],
    "times": ["shown", "capture", "total"],
}


def shown(x, n):
    y = x * n
    print(end="")
    return y + 1


def test_every_channel_of_capture_is_expected() -> None:
    ours = {name for name, (logger, _) in CHANNELS.items() if logger.startswith("dynamo.")}
    assert ours == set(EXPECTED)


@pytest.mark.parametrize("channel", EXPECTED)
def test_channel(channel: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = CHANNELS[channel][0]
    with caplog.at_level(logging.DEBUG, logger=logger):
        function = dynamo.compile(shown, backend="eager")
        function(torch.ones(2), 2)
        function(torch.ones(2), 3)
    text = "\n".join(record.getMessage() for record in caplog.records if record.name == logger)
    for part in EXPECTED[channel]:
        assert part in text, text
