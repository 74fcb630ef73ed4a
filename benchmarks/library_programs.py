"""Subjects of libraries around models: settings, checked signatures, averaged weights, losses of
reinforcement learning (benchmarks/libraries.py runs them).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.library_subject import Subject, Subjects

_SETTINGS: dict[str, Any] = {"width": 32, "scale": 0.5, "activation": "relu", "factors": [1, 2]}


class _Configured(nn.Module):
    """Reads its settings in each call."""

    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.settings = settings
        self.linear = nn.Linear(64, settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        if self.settings.activation == "relu":
            x = x.relu()
        for factor in self.settings.factors:
            x = x * factor + self.settings.scale
        return x


def _rows(width: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda batch: (torch.randn(batch, width),)


def settings() -> Subjects:
    """Modules that read settings of pydantic, attrs and OmegaConf."""
    fields = {name: (type(value), value) for name, value in _SETTINGS.items()}
    model = importlib.import_module("pydantic").create_model("Settings", **fields)
    attrs = importlib.import_module("attr")
    plain = attrs.make_class("Settings", list(_SETTINGS))
    frozen = attrs.make_class("Frozen", list(_SETTINGS), frozen=True, slots=True)
    nest = importlib.import_module("omegaconf").OmegaConf

    def fixed() -> Any:
        found = nest.create(_SETTINGS)
        nest.set_readonly(found, True)
        return found

    def row(make: Callable[[], Any]) -> Subject:
        return Subject(lambda: _Configured(make()), _rows(64))

    return {
        "pydantic": row(model),
        "attrs": row(lambda: plain(**_SETTINGS)),
        "attrs, frozen": row(lambda: frozen(**_SETTINGS)),
        "OmegaConf": row(lambda: nest.create(_SETTINGS)),
        "OmegaConf, read only": row(fixed),
    }


def checked() -> Subjects:
    """Modules whose signatures beartype and jaxtyping check, and products by opt_einsum."""
    beartype = importlib.import_module("beartype").beartype
    jaxtyping = importlib.import_module("jaxtyping")
    contract = importlib.import_module("opt_einsum").contract

    def decorated(decorate: Callable[..., Any], given: Any, returned: Any) -> Subject:
        def forward(self: Any, x: Any) -> Any:
            return self.linear(x)

        forward.__annotations__ = {"x": given, "return": returned}

        def make() -> Any:
            kind = type("Checked", (nn.Module,), {"forward": decorate(forward)})
            module = kind()
            module.linear = nn.Linear(64, 8)
            return module

        return Subject(make, _rows(64))

    class Contracted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(64, 8))
            self.second = nn.Parameter(torch.randn(8, 4))

        def forward(self, x: torch.Tensor) -> Any:
            return contract("bi,ij,jk->bk", x, self.first, self.second)

    given, returned = (jaxtyping.Float[torch.Tensor, f"batch {n}"] for n in (64, 8))
    return {
        "beartype": decorated(beartype, torch.Tensor, torch.Tensor),
        "jaxtyping": decorated(jaxtyping.jaxtyped(typechecker=beartype), given, returned),
        "opt_einsum": Subject(Contracted, _rows(64)),
    }


def averaged() -> Subjects:
    """Steps of training that average weights, or accumulate gradients; results are the weights."""
    timm = importlib.import_module("timm.utils")
    library = importlib.import_module("accelerate")

    def model() -> nn.Sequential:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def row(average: Callable[[nn.Module], Any], update: str) -> Subject:
        def make() -> Any:
            trained = model()
            kept = average(trained)
            optimizer = torch.optim.SGD(trained.parameters(), 0.1, 0.9)

            def step(x: torch.Tensor) -> Any:
                with torch.enable_grad():
                    optimizer.zero_grad()
                    trained(x).square().mean().backward()
                optimizer.step()
                getattr(kept, update)(trained)
                return [p.detach().clone() for p in kept.parameters()]

            return step

        return Subject(make, _rows(64), False)

    def accumulated() -> Any:
        held = library.Accelerator(cpu=True, gradient_accumulation_steps=2)
        parts = model()
        trained, optimizer = held.prepare(parts, torch.optim.SGD(parts.parameters(), 0.1))

        def step(x: torch.Tensor) -> Any:
            with torch.enable_grad(), held.accumulate(trained):
                held.backward(trained(x).square().mean())
                if held.sync_gradients:
                    held.clip_grad_norm_(trained.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            return [p.detach().clone() for p in trained.parameters()]

        return step

    weights = torch.optim.swa_utils
    exponential = weights.get_ema_multi_avg_fn(0.9)
    return {
        "AveragedModel": row(
            lambda m: weights.AveragedModel(m, multi_avg_fn=exponential), "update_parameters"
        ),
        "ModelEmaV2": row(lambda m: timm.ModelEmaV2(m, decay=0.9), "update"),
        "ModelEmaV3": row(lambda m: timm.ModelEmaV3(m, decay=0.9), "update"),
        "accelerate": Subject(accumulated, _rows(64), False),
    }


def torchrl() -> Subjects:
    modules = importlib.import_module("torchrl.modules")
    objectives = importlib.import_module("torchrl.objectives")
    space = importlib.import_module("torchrl.data").OneHot(3)
    nest = importlib.import_module("tensordict").TensorDict

    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            actor = modules.QValueActor(nn.Linear(4, 3), spec=space, action_space="one-hot")
            self.loss = objectives.DQNLoss(actor, action_space="one-hot", delay_value=True)

        def forward(self, seen: torch.Tensor, action: torch.Tensor) -> Any:
            ended = torch.zeros(len(seen), 1, dtype=torch.bool)
            later = {"observation": seen + 1, "reward": seen[:, :1]}
            later |= {"done": ended, "terminated": ended}
            taken = {"observation": seen, "action": action, "next": later}
            return self.loss(nest(taken, [len(seen)]))["loss"]

    def played(batch: int) -> tuple[Any, ...]:
        chosen = torch.randint(3, (batch,))
        return (torch.randn(batch, 4), nn.functional.one_hot(chosen, 3))

    def advantages() -> Any:
        function = objectives.value.functional.vec_generalized_advantage_estimate

        def estimate(reward: torch.Tensor, value: torch.Tensor) -> Any:
            ended = torch.zeros_like(reward, dtype=torch.bool)
            return function(0.9, 0.95, value, value + 1, reward, ended, ended)

        return estimate

    rewards = lambda b: (torch.randn(b, 5, 1), torch.randn(b, 5, 1))  # noqa: E731
    return {
        "DQNLoss": Subject(Learned, played),
        "advantages": Subject(advantages, rewards, False),
    }
