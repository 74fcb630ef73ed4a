"""Functions of docstrings' examples, for benchmarks.documented_examples."""

from __future__ import annotations

import ast
import contextlib
import importlib
import linecache
import pkgutil
import re
import types
import warnings
from typing import Any

import numpy as np
import torch

# Nothing of other processes, machines, devices, terminals, nor of what asks for them.
UNSUITABLE = re.compile(
    r"(>>>|\.\.\. ).*(cuda|distributed|multiprocessing|subprocess|xpu|\bmps\b|"
    r"hub\.|https?:|from_pretrained|input\(|exit\(|fork|kill|sleep|pdb|breakpoint|rmtree|os\.remove|unlink|"
    r"num_workers|Thread|onnx|torch\.compile|torch\.export|_dynamo|profile|signal\.|settrace|"
    r"(?<!x)doctest: *\+SKIP)"
)


def listed(patterns: list[str]) -> dict[str, list[str]]:
    """module -> names of its docstrings that no earlier module has; `package.*`: all modules."""
    found: dict[str, list[str]] = {}
    known: set[str] = set()
    names: list[str] = []
    for pattern in patterns:
        names.append(pattern.removesuffix(".*"))
        if pattern.endswith(".*"):
            package = importlib.import_module(names[-1])
            walk = pkgutil.walk_packages(package.__path__, f"{names[-1]}.", onerror=lambda _: None)
            names += [info.name for info in walk if "._" not in info.name]
    for name in dict.fromkeys(names):
        with contextlib.suppress(Exception, SystemExit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for title, doc in documented(importlib.import_module(name)).items():
                if doc not in known and not UNSUITABLE.search(doc):
                    known.add(doc)
                    found.setdefault(name, []).append(title)
    return found


def documented(module: types.ModuleType) -> dict[str, str]:
    """The docstrings with examples of a module, its functions, its classes and their members."""
    found: dict[str, Any] = {module.__name__: module.__doc__}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(module):
            with contextlib.suppress(Exception):
                obj = getattr(module, name)
                if not isinstance(obj, types.ModuleType):
                    found[f"{module.__name__}.{name}"] = obj.__doc__
                for member in dir(obj) if isinstance(obj, type) else ():
                    doc = getattr(getattr(obj, member, None), "__doc__", None)
                    found[f"{module.__name__}.{name}.{member}"] = doc
    return {name: doc for name, doc in found.items() if isinstance(doc, str) and ">>>" in doc}


def statements(doc: str) -> list[ast.stmt]:
    """The statements behind prompts, those alone that parse; lines that go on belong to a block."""
    blocks: list[str] = []
    begun = False
    for line in doc.expandtabs().splitlines():
        line = line.strip()
        text = line[4:] if line[3:4] == " " else line[3:]
        if line.startswith(">>>") and not text.startswith((" ", "else", "elif", "except")):
            blocks.append(text)
        elif line.startswith((">>>", "...")) and begun:
            blocks[-1] += "\n" + text
        begun = line.startswith((">>>", "..."))
    found: list[ast.stmt] = []
    while blocks:
        for count in (1, 2, 3):  # a decorator may stand on a prompt of its own
            with contextlib.suppress(SyntaxError, ValueError):
                found += ast.parse("\n".join(blocks[:count])).body
                blocks = blocks[count:]
                break
        else:
            blocks = blocks[1:]
    return found


def example(doc: str, module: types.ModuleType, filename: str) -> Any:
    """The function of a docstring's examples, which returns their results and its variables."""
    space = {**vars(module), "torch": torch, "np": np, "nn": torch.nn, "F": torch.nn.functional}
    space["__name__"] = "differential_program"  # whose functions and classes a Picture looks into
    body, imports, kept = statements(doc), [], []
    trial, names = dict(space), []
    for node in body:
        code = compile(ast.Module([node], []), "<trial>", "exec")
        try:
            exec(code, trial)
        except (NameError, ImportError, SyntaxError):
            continue
        except Exception:
            text = "try:\n    pass\nexcept Exception as _error:\n    _results.append(_error)"
            caught = ast.parse(text).body[0]
            assert isinstance(caught, ast.Try)
            caught.body = [_recorded(node)]
            kept.append(caught)
            continue
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            exec(code, space)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(node)
        else:
            kept.append(_recorded(node))
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            names += [n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)]
            dels = [n for n in ast.walk(node) if isinstance(getattr(n, "ctx", 0), ast.Del)]
            gone = [n.id for n in dels if isinstance(n, ast.Name)]
            names = [name for name in dict.fromkeys(names) if name in trial and name not in gone]
    last = ast.parse(f"return _results, [{', '.join(names)}]").body
    tree = ast.parse("def example():\n    _results = []")
    tree.body[0].body += [*imports, *kept, *last]  # type: ignore[attr-defined]
    text = ast.unparse(ast.fix_missing_locations(tree))
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), space)
    return space["example"], text, bool(kept)


def _recorded(node: ast.stmt) -> ast.stmt:
    if not isinstance(node, ast.Expr):
        return node
    call = ast.parse("_results.append(None)").body[0]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    call.value.args = [node.value]
    return call
