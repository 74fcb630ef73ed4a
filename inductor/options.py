"""Options of the default backend: `dynamo.compile(fn, options={"fusion": False})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from inductor.runtime.cubin import check_target


def _option(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


TUNING = ("quick", "full", "off")


@dataclass(frozen=True)
class Options:
    """Options of the stages; `describe()` lists names, defaults and meanings."""

    fusion: bool = _option(True, "share loops between operators, not one kernel for each")
    aten_ops: tuple[str, ...] = _option(
        (), 'operators that stay aten calls, such as "aten.gelu"; to bisect a wrong result'
    )
    pack: bool = _option(
        True,
        "keep tensors derived from parameters between calls of inference: batch norm folded into "
        "weights, weights in the library's layout; made again when a parameter changes",
    )
    tuning: str = _option(
        "quick",
        'measuring of which library is fastest for a matrix product: "quick" (at most 50 ms for a '
        'graph, remembered on this machine), "full" (each size as it is, however long), "off"; on '
        'a GPU "full" measures kernels too, and the others choose by a model of the device',
    )
    standalone: bool = _option(
        False,
        "products, convolutions and attention of inference by generated code wherever it has a "
        "form, measured against nothing: for plans that run without torch",
    )
    parallel_compile: bool = _option(
        True, "compile the kernels of a large graph in two translation units at once"
    )

    target: str = _option(
        "",
        'the GPU that Triton kernels are compiled for, by its capability, such as "sm_90"; the one '
        "that the tensors are on, if not given",
    )
    device_graphs: int = _option(
        0,
        "how many device graphs a graph may have, each of one set of sizes, to be replayed in one "
        'launch instead of being run; mode="reduce-overhead" allows 8',
    )
    device_graph_bytes: int = _option(
        0,
        "the most memory that the device graphs of a graph may hold; 0: a quarter of the device's",
    )
    contract: bool = _option(
        False,
        "let kernels on a GPU round a * b + c once; if not, they round as often as eager's kernels",
    )

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Options by name. Raises ValueError for an unknown one, listing all names, and for values
        that an option does not have.
        """
        given = dict(given or {})
        known = names()
        if unknown := sorted(given.keys() - set(known)):
            raise ValueError(
                f"unknown option {', '.join(unknown)}; the options are: {', '.join(known)}"
            )
        if "aten_ops" in given:
            given["aten_ops"] = tuple(given["aten_ops"])
            for name in given["aten_ops"]:
                _check_operator(name)
        if (tuning := given.get("tuning", "quick")) not in TUNING:
            raise ValueError(f"tuning={tuning!r}; one of {', '.join(map(repr, TUNING))}")
        if target := given.get("target", ""):
            check_target(target)
        for name in ("device_graphs", "device_graph_bytes"):
            if given.get(name, 0) < 0:
                raise ValueError(f"{name}={given[name]}; at least 0")
        return cls(**given)


def _check_operator(name: Any) -> None:
    """Raise ValueError for a name of no operator."""
    namespace, _, rest = str(name).partition(".")
    packet, _, overload = rest.partition(".")
    found: Any = getattr(getattr(torch.ops, namespace, None), packet, None)
    known = isinstance(found, torch._ops.OpOverloadPacket)
    if not known or (overload and overload not in found.overloads()):
        raise ValueError(
            f"aten_ops: no operator named {name!r}; names are 'aten.gelu', 'aten.gelu.default'"
        )


# Options that torch.compile documents for its default backend -> ours that mean the same, where
# they are switched on. Those without any choose how its code is made, not its results.
_OF_TORCH_COMPILE: dict[str, dict[str, Any]] = {
    "max_autotune": {"tuning": "full"},
    "triton.cudagraphs": {"device_graphs": 8},
    "epilogue_fusion": {},
    "shape_padding": {},
    "fallback_random": {},
    "trace.enabled": {},
    "trace.graph_diagram": {},
}


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with those of torch.compile under our names."""
    ours = {name: value for name, value in given.items() if name not in _OF_TORCH_COMPILE}
    for name, meaning in _OF_TORCH_COMPILE.items():
        if given.get(name):
            ours = {**meaning, **ours}
    return ours


def names() -> list[str]:
    """Names of all options."""
    return [f.name for f in fields(Options)]


def describe() -> dict[str, tuple[Any, str]]:
    """Option name -> (default, meaning)."""
    return {f.name: (f.default, f.metadata["meaning"]) for f in fields(Options)}
