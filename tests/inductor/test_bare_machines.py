"""Machines that lack something: oneDNN, wide vectors, threads, a compiler. Slower, the same values.

A child's environment takes it away: torch's own kernels choose by ATEN_CPU_CAPABILITY, generated
ones by what the compiler may use. Torch's wheels have OpenMP; without it, a team has one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, torch, dynamo
from torch import nn
import torch.nn.functional as F

torch.backends.mkldnn.enabled = "NO_ONEDNN" not in os.environ
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.middle, self.one = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.each = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.lstm, self.gru = nn.LSTM(16, 20, batch_first=True), nn.GRU(20, 16, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = F.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        y = F.silu(self.middle(y) + y)
        y = F.gelu(self.one(self.each(y))).flatten(2).transpose(1, 2)
        q, k, v = (part.view(2, -1, 2, 8).transpose(1, 2) for part in self.qkv(y).chunk(3, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = F.layer_norm(y + self.out(z.transpose(1, 2).flatten(2)), (16,))
        y = self.gru(self.lstm(y)[0])[0]
        return self.head(y).softmax(-1).cumsum(1)

net, x = Net().eval(), torch.randn(2, 3, 12, 12)
compiled = dynamo.compile(net)
with torch.no_grad():
    for given in (x, x * 0, torch.full_like(x, torch.nan)):
        pair = compiled(given), net(given)
        torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-4, equal_nan=True)
found = []
for call in (net.train(), compiled):
    net.zero_grad()
    net.norm.reset_running_stats()
    call(x).square().mean().backward()
    found.append([p.grad for p in net.parameters()] + [net.norm.running_var.clone()])
torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
"""
NO_VECTORS = {"ATEN_CPU_CAPABILITY": "default", "CXX": "g++ -mno-avx"}
NO_THREADS = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}
MACHINES = {
    "no AVX-512": {"ATEN_CPU_CAPABILITY": "avx2", "CXX": "g++ -mno-avx512f"},
    "no AVX, one thread": {**NO_VECTORS, **NO_THREADS},
    "no oneDNN": {"NO_ONEDNN": "1"},
    "no compiler": {"CXX": "no-such-compiler"},
    "nothing": {**NO_VECTORS, **NO_THREADS, "NO_ONEDNN": "1", "CXX": "no-such-compiler"},
}


@pytest.mark.parametrize("name", MACHINES)
def test_machines(name, tmp_path):
    environment = {**os.environ, "DYNAMO_CACHE_DIR": str(tmp_path), **MACHINES[name]}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lacks = MACHINES[name].get("CXX", "") == "no-such-compiler"
    assert done.stderr.count("Warning:") == lacks, done.stderr
    assert not lacks or "no-such-compiler" in done.stderr
