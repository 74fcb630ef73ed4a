"""The registry of backends by name.

A backend is `(gm: fxgraph.GraphModule, example_inputs: list[Tensor], **options) -> callable`. One
that annotates its first parameter as torch.fx.GraphModule, or names torch.fx, is given one. Names
come from three places, in this order: `register_backend` (ours are registered so), the entry-point
group "framegraph_backends", and, through the bridge, backends written for torch.compile: its
entry-point group "torch_dynamo_backends", and all that torch registers. Lists have its debugging
backends alone.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from backends.named_tools import names_tools

Backend = Callable[..., Any]

ENTRY_POINTS = "framegraph_backends"
BRIDGED_ENTRY_POINTS = "torch_dynamo_backends"

# name -> module that registers it when imported; nothing is imported before its backend is asked
# for.
_BUILTIN = {
    "eager": "backends.eager",
    "aot_eager": "backends.aot_eager",
    "inductor": "backends.inductor",
    "print": "backends.debug",
    "print_aot": "backends.debug",
}
# torch's own debugging backends that go through the bridge.
_OF_TORCH = frozenset(
    ["aot_eager_decomp_partition", "pre_dispatch_eager", "eager_debug", "eager_noexcept"]
)
_tags: dict[str, tuple[str, ...]] = dict.fromkeys(
    ["eager", "aot_eager", "print", "print_aot", *_OF_TORCH], ("debug",)
)

# How an annotation names torch.fx.GraphModule, as a class or as text.
_TORCH_FX = frozenset(
    ["torch.fx.graph_module.GraphModule", "torch.fx.GraphModule", "fx.GraphModule"]
)

_registered: dict[str, Backend] = {}


def register_backend(
    backend: Backend | None = None, *, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Register a backend under `name` (its __name__ by default); usable as a decorator. `tags` hide
    it from lists.

    Raises TypeError if it is not callable, if the name is no string or the tags are no sequence of
    strings, and ValueError if the name belongs to another backend.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the name of a backend is a string, not {name!r}")
    _check_tags(tags)
    if backend is None:
        return lambda fn: register_backend(fn, name=name, tags=tags)
    if not callable(backend):
        raise TypeError(
            f"a backend is a callable (gm, example_inputs) -> callable, not {backend!r}"
        )
    key = name or getattr(backend, "__name__", None)
    if not key:
        raise ValueError("a backend without a __name__ needs name=...")
    if _registered.get(key, backend) is not backend:
        raise ValueError(f"a backend named {key!r} is registered already")
    _registered[key] = backend
    if tags:
        _tags[key] = tuple(tags)
    return backend


def _check_tags(tags: Any) -> None:
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise TypeError(f"tags are a sequence of strings, such as ('debug',), not {tags!r}")


def lookup_backend(backend: str | Backend) -> Backend:
    """The backend of this name; a callable is returned as it is.

    Raises UnknownBackend (a ValueError), which lists all names, and TypeError for other objects.
    """
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name or a callable, not {type(backend).__name__}")
    if backend not in _registered:
        _load(backend)
    return _registered[backend]


def caller_of(backend: Backend) -> Backend:
    """A function that calls a backend with our graphs; a torch.fx.GraphModule is given where the
    first parameter is annotated so, or where the backend's code names torch.fx or its compilers.
    """
    if not _asks_for_torch_fx(backend):
        return backend
    from backends.bridge import TorchFxBackend

    return TorchFxBackend(backend)


_OURS = ("backends", "dynamo", "inductor")


def _asks_for_torch_fx(backend: Backend) -> bool:
    module = getattr(backend, "__module__", None)  # None: of a function that exec() made
    if isinstance(module, str) and module.partition(".")[0] in _OURS:
        return False
    annotation = None
    with contextlib.suppress(TypeError, ValueError):  # it has no signature
        parameters = inspect.signature(backend).parameters.values()
        annotation = next((p.annotation for p in parameters), None)
    if isinstance(annotation, type):
        annotation = f"{annotation.__module__}.{annotation.__qualname__}"
    if isinstance(annotation, str) and annotation.strip("'\"") in _TORCH_FX:
        return True
    return names_tools(backend)


def _load(name: str) -> None:
    if name in _BUILTIN:
        importlib.import_module(_BUILTIN[name])
        return
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            register_backend(entry.load(), name=name)
            return
    if name in _OF_TORCH:
        from backends.bridge import bridge

        register_backend(bridge(name), name=name)
        return
    for entry in entry_points(group=BRIDGED_ENTRY_POINTS):
        if entry.name == name:
            from backends.bridge import bridge

            register_backend(bridge(entry.load()), name=name)
            return
    from backends.bridge import bridge, is_of_torch

    if not is_of_torch(name):  # the last question: it loads all of torch.compile
        raise UnknownBackend(name)
    register_backend(bridge(name), name=name)


class UnknownBackend(ValueError):
    """No backend of this name."""

    def __init__(self, name: str) -> None:
        known = list_backends(())
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        super().__init__(f"no backend named {name!r}{hint} The backends are: {', '.join(known)}")


def list_backends(exclude_tags: Sequence[str]) -> list[str]:
    """Names that `dynamo.compile(backend=...)` takes, but for those with one of the tags. Raises
    TypeError for tags that are no sequence of strings.
    """
    _check_tags(exclude_tags)
    names = {*_BUILTIN, *_OF_TORCH, *_registered}
    for group in (ENTRY_POINTS, BRIDGED_ENTRY_POINTS):
        names.update(entry.name for entry in entry_points(group=group))
    return sorted(name for name in names if not {*exclude_tags} & {*_tags.get(name, ())})
