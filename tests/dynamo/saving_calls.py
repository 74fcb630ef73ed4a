"""Saves a program beside what eager gives for a call of it (see saved_reader.py)."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import dynamo

ROOT = Path(__file__).parent.parent.parent
READER = Path(__file__).parent / "saved_reader.py"


def plain(value: Any) -> Any:
    """Without classes of the tests': what the fresh process can unpickle. Objects become dicts."""
    if isinstance(value, torch.Tensor):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, dict):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if hasattr(value, "items"):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def for_call(value: Any) -> Any:
    """Arguments likewise, where tuples stay tuples."""
    if isinstance(value, tuple):
        return tuple(for_call(item) for item in value)
    if isinstance(value, list):
        return [for_call(item) for item in value]
    if hasattr(value, "items"):
        return {key: for_call(item) for key, item in value.items()}
    return value


def save_call(fn: Any, args: Any, kwargs: Any, path: Path, *, grad: bool = True) -> None:
    """Save fn as the call fn(*args, **kwargs) exports it, and the state that the call leaves."""
    args_of_call, kwargs_of_call = copy.deepcopy((args, kwargs))
    given, named = copy.deepcopy((args, kwargs))
    twin = copy.deepcopy(fn)
    with torch.set_grad_enabled(grad):
        exported = dynamo.export(fn)(*args, **kwargs)
        _restore(fn, twin)
        exported.save(path)
        torch.manual_seed(1)
        result = twin(*given, **named)
    gradients = None
    module = isinstance(twin, torch.nn.Module)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(plain(result)) if _grad(leaf)]
    if tensors and module:
        torch.stack([t.sum() for t in tensors]).sum().backward()
        gradients = {n: p.grad for n, p in twin.named_parameters() if p.grad is not None}
    call = {
        "args": for_call(args_of_call),
        "kwargs": for_call(kwargs_of_call),
        "grad": grad,
        "result": plain(result),
        "after": plain((given, named)),
        "gradients": gradients,
        "state": dict(twin.state_dict()) if module else {},
    }
    torch.save(_detached(call), path.with_suffix(".call"))


def _grad(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _detached(value: Any) -> Any:
    """Results with requires_grad as they have it, as leaves."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_detached(item) for item in value)
    return value


def _restore(fn: Any, twin: Any) -> None:
    """Exporting calls fn once: what that wrote is taken back."""
    if isinstance(fn, torch.nn.Module):
        with torch.no_grad():
            for own, other in zip(
                [*fn.parameters(), *fn.buffers()], [*twin.parameters(), *twin.buffers()]
            ):
                own.copy_(other)


def differences(folder: Path, backend: str, *blocked: str) -> dict[str, str | None]:
    """What a fresh process finds different in each program of the folder."""
    done = subprocess.run(
        [sys.executable, str(READER), str(folder), backend, "tests", *blocked],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])
