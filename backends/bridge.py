"""Runs a backend that was written for torch.compile on our graphs.

    dynamo.compile(model, backend=backends.bridge.bridge("inductor"))   # torch's own inductor under
    our capture

The graph is handed over as a torch.fx.GraphModule with the metadata such a backend reads.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from backends.torch_symbols import call_with_symbols
from fxgraph import GraphModule
from fxgraph.aot import asks_for_gradients
from fxgraph.aot.cuts import has_hook
from fxgraph.torch_fx import to_torch_fx


def bridge(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """Our backend that calls the torch.compile backend `backend` (a callable, or a name that
    torch.compile knows).
    """

    def bridged(
        gm: GraphModule, example_inputs: Sequence[Any], **options: Any
    ) -> Callable[..., Any]:
        if asks_for_gradients(gm) or any(map(has_hook, gm.graph.nodes)):
            return gm.forward  # such backends differentiate a graph from its results to its inputs
        compiler = _lookup(backend) if isinstance(backend, str) else backend
        return call_with_symbols(
            lambda examples: compiler(to_torch_fx(gm), examples, **options), gm, example_inputs
        )

    bridged.__name__ = f"bridge_{backend if isinstance(backend, str) else _name(backend)}"
    return bridged


def _name(backend: Callable[..., Any]) -> str:
    return getattr(backend, "__name__", type(backend).__name__)


def _lookup(name: str) -> Callable[..., Any]:
    # Imported here only: it loads all of torch.compile.
    from torch._dynamo.backends.registry import lookup_backend

    return lookup_backend(name)


def is_of_torch(name: str) -> bool:
    from torch._dynamo.backends.registry import list_backends

    return name in list_backends(exclude_tags=())


class TorchFxBackend:
    """A backend that is given torch.fx's graphs in place of ours, for torch.fx's interpreters,
    transformers and passes, which take no others, and its symbols, for tools that trace again.
    """

    def __init__(self, backend: Callable[..., Any]) -> None:
        self.backend = backend
        self.__name__ = _name(backend)
        with contextlib.suppress(TypeError, ValueError):  # it has none
            self.__signature__ = inspect.signature(backend)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        graph = to_torch_fx(gm)
        for node in graph.graph.nodes:  # one of ours within, called later, may bind none of them
            if node.meta.pop("static", False):
                node.meta["parameter"] = True
        return call_with_symbols(
            lambda examples: self.backend(graph, examples, **options), gm, example_inputs
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)
