"""Recurrent layers whose steps several threads share: the same bits whatever threads there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
import torch
from fxgraph.aot.recurrent import recurrent_layer, recurrent_layer_backward

LSTM, GRU, TANH = 2, 3, 0
NARROW = torch.bfloat16

def given(kind, hidden, state=None, lengths=None, dtype=torch.float32):
    gates, state = {LSTM: 4, GRU: 3, TANH: 1}[kind] * hidden, state or hidden
    c0 = torch.randn(3, hidden) if kind == LSTM else None
    projection = torch.randn(state, hidden) / 16 if state != hidden else None
    tensors = torch.randn(9, 3, gates), torch.randn(3, state), c0, torch.randn(gates, state) / 16
    tensors = [t if t is None else t.to(dtype) for t in (*tensors, torch.randn(gates), projection)]
    return *tensors, kind, False, True, lengths

torch.manual_seed(0)
lengths = torch.tensor([3, 3, 3, 2, 2, 1, 1, 1, 1])
cases = [given(LSTM, 128), given(LSTM, 128, 40), given(LSTM, 128, None, lengths)]
cases += [given(GRU, 128), given(TANH, 256), given(GRU, 128, dtype=NARROW)]
cases += [given(LSTM, 120, dtype=NARROW), given(LSTM, 128, 40, lengths, NARROW)]
cases += [given(TANH, 250, dtype=NARROW)]

def run():
    found = []
    for _, h0, c0, w_hh, _, w_hr, kind, reverse, save, sizes in cases:
        y, h, c, gates, cells = recurrent_layer(*cases[len(found)])
        tangents = y, h, c if kind == LSTM else None
        kept = h0, c0, w_hh, w_hr, y, gates, cells, *tangents
        found.append([y, h, c, *recurrent_layer_backward(*kept, kind, reverse, True, sizes)])
    return [tensor for tensors in found for tensor in tensors]

def same():
    assert all(map(torch.equal, run(), expected))

torch.set_num_threads(1)
expected = run()
for threads in (2, 3, 7):
    torch.set_num_threads(threads)
    same()
several = [threading.Thread(target=lambda: [same() for _ in range(5)]) for _ in range(3)]
failed = []
threading.excepthook = failed.append
for thread in several:
    thread.start()
for thread in several:
    thread.join()
assert not failed, failed
"""


@pytest.mark.parametrize("limit", [None, "1", "2"], ids=["as_many_as_asked", "one", "two"])
def test_threads_that_share_steps(limit, monkeypatch):
    """A team may get fewer threads than it asks for: nobody waits for those that are absent."""
    if limit is not None:
        monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=240)
