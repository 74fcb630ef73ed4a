"""Frames of libraries without tensors: captures of hundreds of them are bounded in time."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import dynamo
from dynamo import directives
from dynamo.api import vain_frames
from dynamo.framestate import cache_entry
from tests.dynamo.capturing import compiled

COUNT = 60
SOURCE = "import dynamo\n\n" + "\n".join(
    f"""
def step{i}(tree, n):
    dynamo.graph_break()
    return [tree, n + {i}]
"""
    for i in range(COUNT)
)
SOURCE += f"""
STEPS = [{", ".join(f"step{i}" for i in range(COUNT))}]


def solve(n):
    tree = []
    for step in STEPS:
        tree = step(tree, n)
    return tree[1]


def scale(x, n):
    dynamo.graph_break()
    return x * n


def scale_in(held, n):
    dynamo.graph_break()
    return held["x"][0] * n
"""


@pytest.fixture(autouse=True)
def unmarked():
    """Marks hold for the process: they are taken back."""
    before = dict(directives.DISALLOWED)
    yield
    directives.DISALLOWED.clear()
    directives.DISALLOWED.update(before)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A module in a folder of installed packages."""
    path = tmp_path / "library.py"
    path.write_text(SOURCE)
    for module in (vain_frames, cache_entry):
        monkeypatch.setattr(module, "LIBRARIES", (str(tmp_path),))
    spec = importlib.util.spec_from_file_location("solving_library", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def captured_steps(captured):
    return {r.name for r in captured.context.records if r.name.startswith("step")}


def make(library):
    """A program whose calls of the library are frames of their own."""
    names = ("solve", "scale", "scale_in")
    solve, scale, scale_in = (dynamo.disallow_in_graph(getattr(library, n)) for n in names)

    def program(x):
        n = solve(3)
        return scale(x, n) + scale_in({"x": [x]}, n)

    return program


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_frames_without_tensors_are_left_alone(library, seconds):
    """Frames that get tensors are captured all the same."""
    program = make(library)
    fast, captured = compiled(program)
    x = torch.arange(3.0)
    with dynamo.config.patch(no_graph_seconds=seconds):
        captured.context.in_vain = 1.0
        assert torch.equal(fast(x), program(x))
        assert torch.equal(fast(x + 1), program(x + 1))
    steps = len(captured_steps(captured))
    assert steps == 0 if seconds == 0 else steps > COUNT // 2
    assert {"scale", "scale_in"} <= {r.name for r in captured.context.records if r.graphs}


def test_captures_in_vain_come_to_an_end(library):
    """The account of time grows with each of them."""
    program = make(library)
    fast, captured = compiled(program)
    x = torch.arange(3.0)
    with dynamo.config.patch(no_graph_seconds=0.005):
        assert torch.equal(fast(x), program(x))
    assert len(captured_steps(captured)) < COUNT


def test_whole_functions_are_captured_as_ever(library):
    """fullgraph=True says what breaks, however long captures took before."""

    @dynamo.compile(backend="eager", fullgraph=True)
    def program(x):
        return library.scale(x, 2)

    with dynamo.config.patch(no_graph_seconds=-1.0), pytest.raises(dynamo.errors.Unsupported):
        program(torch.ones(2))
    assert torch.equal(library.scale(torch.ones(2), 2), torch.full((2,), 2.0))
