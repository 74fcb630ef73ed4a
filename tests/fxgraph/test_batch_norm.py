"""Batch norms of the libraries of GPUs, as functional graphs: traced for tensors of the CPU, where
eager has no kernel, they compute what the CPU's batch norm does, with gradients.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import dynamo

NORMS = {"cudnn": torch.cudnn_batch_norm, "miopen": torch.miopen_batch_norm}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("library", NORMS)
def test_as_eager(library, training, backend):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, 5)
    norm = torch.nn.BatchNorm2d(4)
    norm.weight.data.uniform_(0.5, 2)

    def by_library(x, norm):
        args = x, norm.weight, norm.bias, norm.running_mean, norm.running_var
        return NORMS[library](*args, training, 0.3, 1e-5)[0] * 2

    def by_name(x, norm):
        stats = norm.running_mean, norm.running_var
        return F.batch_norm(x, *stats, norm.weight, norm.bias, training, 0.3, 1e-5) * 2

    found = []
    run = dynamo.compile(by_library, backend=backend, fullgraph=True)
    for call in (run, by_name):
        own, leaf = copy.deepcopy(norm), x.clone().requires_grad_()
        result = call(leaf, own)
        gradients = torch.autograd.grad(result.square().sum(), (leaf, own.weight, own.bias))
        found.append([result, gradients, own.running_mean, own.running_var])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
