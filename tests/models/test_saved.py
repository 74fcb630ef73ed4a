"""Models saved, and loaded by a process that cannot import what they are made of."""

from __future__ import annotations

import pytest
import torch

import dynamo
from tests.dynamo import runner
from tests.dynamo.saving_calls import differences, plain, save_call
from tests.models import architectures, zoo

pytestmark = pytest.mark.slow
BLOCKED = ("transformers", "tutorials", "huggingface_hub", "tokenizers")
ARCHITECTURES = (
    *("albert", "bart", "bert", "bigbird", "bloom", "blip", "clip", "codegen", "convnext", "cvt"),
    *("deit", "distilbert", "electra", "falcon", "gemma", "gpt_neox", "layoutlm", "mpnet"),
    *(
        "opt",
        "qwen2",
        "pegasus",
        "phi",
        "poolformer",
        "regnet",
        "resnet",
        "roberta",
        "segformer",
        "swin",
    ),
    *("segformer", "t5", "vit", "whisper", "xlnet"),
)


class Recurrent(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(torch.nn, kind)(8, 16, num_layers=2, bidirectional=True)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0])


def recurrent(kind: str):
    torch.manual_seed(0)
    return Recurrent(kind).eval(), {"x": torch.randn(5, 2, 8)}


MODELS = {
    **{name: lambda name=name: zoo.make(name) for name in zoo.ZOO},
    **{kind: lambda kind=kind: recurrent(kind) for kind in ("LSTM", "GRU", "RNN")},
    **{
        f"{name} of transformers": lambda name=name: architectures.make(name)[:2]
        for name in ARCHITECTURES
        if name in architectures.ARCHITECTURES
    },
}
NAMES = sorted(MODELS)


def saved(folder, names, grad):
    for name in names:
        model, inputs = MODELS[name]()
        save_call(model, (), inputs, folder / f"{name}.fg", grad=grad)
        dynamo.reset()


@pytest.mark.parametrize("part", range(4))
def test_inference(tmp_path, part):
    names = NAMES[part::4]
    saved(tmp_path, names, grad=False)
    assert differences(tmp_path, "aot_eager", *BLOCKED) == dict.fromkeys(names)


def test_gradients(tmp_path):
    names = ["resnet18", "bert", "gpt2", "vit", "LSTM", "mobilenet_v2"]
    saved(tmp_path, names, grad=True)
    assert differences(tmp_path, "aot_eager", *BLOCKED) == dict.fromkeys(names)


def test_kernels(tmp_path):
    names = ["resnet18", "bert", "gpt2", "LSTM"]
    saved(tmp_path, names, grad=False)
    assert differences(tmp_path, "inductor", *BLOCKED) == dict.fromkeys(names)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return runner.Library(runner.build(tmp_path_factory.mktemp("r") / "runner.so", *runner.LIBRARY))


# Kernels are compiled for these alone: others of their family need the same operators.
WITHOUT_PYTHON = (
    *zoo.ZOO,
    *("LSTM", "GRU"),
    *(f"{name} of transformers" for name in ("bart", "bigbird", "cvt", "segformer", "swin", "t5")),
)


@runner.needs
@pytest.mark.parametrize("part", range(2))
def test_without_python(library, tmp_path, part):
    for name in WITHOUT_PYTHON[part::2]:
        model, inputs = MODELS[name]()
        with torch.no_grad():
            dynamo.export(model)(**inputs).save(tmp_path / "m.fg", standalone=True)
            expected = [t for t in torch.utils._pytree.tree_leaves(plain(model(**inputs)))]
        dynamo.reset()
        with library.load(tmp_path / "m.fg") as program:
            found = program(*(inputs[name] for name in program.inputs))
        tensors = [t for t in expected if isinstance(t, torch.Tensor)]
        for one, other in zip(found, tensors, strict=True):
            assert one.stride() == other.stride(), name
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=name)


def test_there_are_thirty():
    assert len(NAMES) >= 30
