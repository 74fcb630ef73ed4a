"""The numbers of optimizers that schedulers change, and what capture calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

LR, MOMENTUM, BETAS = "lr", "momentum", "betas"


@dataclass(frozen=True)
class Column:
    """A number of an optimizer's parameter group; index: in a pair of betas."""

    optimizer: int
    group: int
    key: str
    index: int | None = None

    def read(self, optimizers: Sequence[torch.optim.Optimizer]) -> Any:
        value = optimizers[self.optimizer].param_groups[self.group][self.key]
        return value if self.index is None else value[self.index]

    @property
    def name(self) -> str:
        index = "" if self.index is None else f".{self.index}"
        return f"optimizers.{self.optimizer}.param_groups.{self.group}.{self.key}{index}"

    @property
    def source(self) -> str:
        """How capture names it."""
        index = "" if self.index is None else f"[{self.index}]"
        return (
            f"L['graph'].__dict__['_graph'].__dict__['optimizers'][{self.optimizer}]"
            f".__dict__['param_groups'][{self.group}][{self.key!r}]{index}"
        )


def columns_of(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[Column]:
    """The numbers that schedulers of torch.optim may change."""
    for i, optimizer in enumerate(optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for key in (LR, MOMENTUM):
                if key in group:
                    yield Column(i, g, key)
            for index in range(len(group.get(BETAS, ()))):
                yield Column(i, g, BETAS, index)


def scheduled(optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]) -> list[str]:
    """The sources of the numbers that these schedulers change: learning rates, and momentum where
    they cycle it.
    """
    cycled = {id(one.optimizer): _cycles_momentum(one) for one in schedulers}
    found = []
    for column in columns_of(optimizers):
        cycles = cycled.get(id(optimizers[column.optimizer]))
        first = column.index in (None, 0)  # of betas, the one that is a momentum
        if cycles is not None and (column.key == LR or (cycles and first)):
            found.append(column.source)
    return found


def _cycles_momentum(scheduler: Any) -> bool:
    parts = getattr(scheduler, "_schedulers", ())
    return bool(getattr(scheduler, "cycle_momentum", False)) or any(map(_cycles_momentum, parts))
