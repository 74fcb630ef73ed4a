"""How the graphs of a loaded program become callable: by a backend, or by kernels of the file."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo.backend_lookup import lookup_backend
from dynamo.errors import ProgramError
from dynamo.saved.container import Container

Run = Callable[..., Any]


@dataclass(frozen=True)
class Compiler:
    """compile(graph, inputs, name, about): makes a graph callable; inputs are the static ones, else
        None. name: strings that tell the graph from any other. about: makes JSON data.
    recall(name, inputs): what compile made of it, perhaps in another process, and that data; None
        if nothing was kept.
    """

    compile: Callable[[Any, Sequence[Any], Sequence[str], Callable[[], Any]], Run]
    recall: Callable[[Sequence[str], Sequence[Any]], tuple[Run, Any] | None]


def compiler_for(container: Container, backend: str, trust_kernels: bool) -> Compiler:
    """The compiler of a file's graphs. Warns where they run operator by operator for want of one.

    Raises ProgramError for a backend that runs no saved programs.
    """
    found: Any = lookup_backend(backend)
    if not hasattr(found, "compile_traced"):
        raise ProgramError(
            f"backend {backend!r} does not run saved programs: choose 'inductor' or 'aot_eager'"
        )
    if not hasattr(found, "missing_compiler"):
        return _keeping_nothing(found.compile_traced)
    missing = found.missing_compiler()
    if missing is None:
        return Compiler(found.compile_traced, found.recall_traced)
    kernels = _kernels(container, found.runs_here)
    if kernels and trust_kernels:
        return _keeping_nothing(functools.partial(found.run_shipped, shipped=kernels))
    _warn(container, missing, bool(kernels))
    return operator_by_operator()


def operator_by_operator() -> Compiler:
    """The one that needs no kernels."""
    return _keeping_nothing(lookup_backend("aot_eager").compile_traced)  # type: ignore[attr-defined]


def _keeping_nothing(run: Callable[[Any, Sequence[Any]], Run]) -> Compiler:
    return Compiler(
        lambda graph, inputs, name, about: run(graph, inputs), lambda name, inputs: None
    )


def _kernels(
    container: Container, runs_here: Callable[[str], bool]
) -> dict[str, Callable[[], bytes]]:
    """Digest -> a reader of the library, for the best target that this processor has."""
    if "plan" in container.names:  # its kernels are the runner's
        return {}
    found: dict[str, Callable[[], bytes]] = {}
    for name in sorted(container.names):  # later targets have more instructions
        kind, _, rest = name.partition("/")
        target, _, digest = rest.partition("/")
        if kind == "kernels" and runs_here(target):
            found[digest] = container.section(name).tobytes
    return found


def _warn(container: Container, missing: str, shipped: bool) -> None:
    ways = (
        "The file has kernels for this processor: load(path, trust_kernels=True) runs them. They "
        "are machine code, so that whoever made the file is to be trusted"
        if shipped
        else "Its file may bring kernels: save(path, targets=[...]) puts them in, and "
        "load(path, trust_kernels=True) runs them"
    )
    warnings.warn(
        f"{container.path} runs operator by operator: {missing} {ways}.",
        stacklevel=4,
    )
