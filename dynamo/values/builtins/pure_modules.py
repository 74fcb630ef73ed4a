"""Standard modules whose C functions have Python twins in the module's own source (heapq, bisect):
the twins, loaded beside the modules, to be captured like user code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any


def python_twin(name: str, accelerator: str) -> types.ModuleType:
    """The module `name`, imported as if its C accelerator were missing."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None, name
    twin = types.ModuleType(f"dynamo.values.builtins.pure_modules.{name}")
    twin.__spec__, twin.__loader__ = spec, spec.loader
    saved = sys.modules.get(accelerator)
    sys.modules[accelerator] = None  # type: ignore[assignment]
    try:
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        exec(code, vars(twin))
    finally:
        if saved is None:
            del sys.modules[accelerator]
        else:
            sys.modules[accelerator] = saved
    return sys.modules.setdefault(twin.__name__, twin)


def twins(name: str, accelerator: str) -> dict[Any, Callable[..., Any]]:
    """The C functions of a module, and their twins in Python."""
    module, twin = importlib.import_module(name), python_twin(name, accelerator)
    pairs = ((found, vars(twin).get(key)) for key, found in vars(module).items())
    return {
        found: other
        for found, other in pairs
        if isinstance(found, types.BuiltinFunctionType) and isinstance(other, types.FunctionType)
    }
