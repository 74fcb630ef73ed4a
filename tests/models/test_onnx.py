"""Exported.to_onnx: onnxruntime computes from the file what eager computes."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
import torch
from torch import nn

import dynamo
from benchmarks.static_graph import SUBJECTS
from dynamo.errors import Unsupported
from tutorials.models import resnet18


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session, *inputs):
    names = [item.name for item in session.get_inputs()]
    assert len(names) == len(inputs)
    arrays = {name: x.numpy() for name, x in zip(names, inputs)}
    return [torch.from_numpy(numpy.array(found)) for found in session.run(None, arrays)]


MODELS = {
    **{name: (subject.make, next(subject.batches(1))[0]) for name, subject in SUBJECTS.items()},
    "resnet18": (lambda: resnet18(10), torch.randn(2, 3, 32, 32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_model(name, tmp_path):
    make, x = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    exported = dynamo.export(model)(x)
    exported.to_onnx(tmp_path / "model.onnx")
    (found,) = run(session_of(tmp_path / "model.onnx"), x)
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(exported(x), model(x))  # as it was


@torch.no_grad()
def test_names_several_outputs_and_sizes_that_vary(tmp_path):
    def f(x, y):
        return (x @ y).relu(), x.sum(0)

    x, y = torch.randn(5, 3), torch.randn(3, 4)
    dynamo.mark_dynamic(x, 0)
    dynamo.export(f)(x, y).to_onnx(tmp_path / "f.onnx")
    session = session_of(tmp_path / "f.onnx")
    assert [item.name for item in session.get_inputs()] == ["x", "y"]
    for rows in (5, 2, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(run(session, x, y), list(f(x, y)), rtol=1e-5, atol=1e-5)


class Named(nn.Module):
    def forward(self, x, *, batch):
        return x * batch["scale"] + batch["shift"]


@torch.no_grad()
def test_inputs_of_modules_have_the_names_of_their_parameters(tmp_path):
    x, batch = torch.randn(5, 3), {"scale": torch.randn(3), "shift": torch.randn(3)}
    dynamo.export(Named())(x, batch=batch).to_onnx(tmp_path / "f.onnx")
    session = session_of(tmp_path / "f.onnx")
    assert [item.name for item in session.get_inputs()] == ["x", "batch_scale", "batch_shift"]
    torch.testing.assert_close(run(session, x, *batch.values()), [Named()(x, batch=batch)])


@torch.no_grad()
def test_a_size_that_depends_on_data(tmp_path):
    def f(x):
        return x[x > 0] * 2

    dynamo.export(f)(torch.randn(8)).to_onnx(tmp_path / "f.onnx")
    session = session_of(tmp_path / "f.onnx")
    for x in (torch.randn(8), torch.ones(8), -torch.ones(8)):
        torch.testing.assert_close(run(session, x), [f(x)])


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        loss = self.layer(x).sum()
        return torch.autograd.grad(loss, self.layer.weight)[0]


def written(x):
    x.add_(1)
    return x * 2


REFUSED = {
    "random": (nn.Dropout(0.5), "draws random numbers"),
    "statistics": (nn.BatchNorm1d(3), "writes inputs or buffers"),
    "written": (written, "writes inputs or buffers"),
    "gradients": (Step(), "differentiates"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    program, text = REFUSED[name]
    exported = dynamo.export(program)(torch.randn(4, 3))
    with pytest.raises(Unsupported, match=text):
        exported.to_onnx(tmp_path / "file.onnx")
    assert not list(tmp_path.iterdir())
