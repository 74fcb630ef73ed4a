"""Cases of Triton's interpreter, in processes of their own: a line of JSON for each, with its name,
its error or None, and what else its run says.

    python -m tests.inductor.interpreting triton_cases [NAME...]

A module of cases has `cases(*names)`, name -> function. Tests ask a server, which has imported what
the modules need: each answer comes from a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Triton reads it where kernels are defined; a fork has no threads of its parent's.
ENVIRONMENT = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def interpreted(module: str, *names: str) -> list[dict[str, Any]]:
    """The lines of a module's cases, from a process of their own."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps([module, *names]) + "\n")
    server.stdin.flush()
    lines = []
    for text in server.stdout:
        lines.append(json.loads(text))
        if "status" in lines[-1]:
            end = lines.pop()
            assert end["status"] == 0, end["stderr"]
            return lines
    raise AssertionError("the server of Triton's interpreter has ended")


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.inductor.interpreting", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        cwd=Path(__file__).parents[2],
    )
    atexit.register(server.communicate)
    return server


def serve() -> None:
    for line in sys.stdin:
        module, *names = json.loads(line)
        with tempfile.TemporaryFile("w+") as errors:
            imported = importlib.import_module(f"tests.inductor.{module}")
            gc.collect()
            gc.freeze()
            if (process := os.fork()) == 0:
                os.dup2(errors.fileno(), 2)
                status = 1
                with contextlib.suppress(SystemExit):
                    status = report_or_tell(imported, names)
                sys.stdout.flush()
                os._exit(status)
            _, status = os.waitpid(process, 0)
            errors.seek(0)
            end = {"status": status, "stderr": errors.read()[-3000:]}
        print(json.dumps(end), flush=True)


def report_or_tell(module: Any, names: list[str]) -> int:
    try:
        report(module.cases(*names))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def allow_loop_bounds() -> None:
    """Triton 3.6 makes the bound of a loop by int() of an array of one item; numpy 2.4 refuses."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor


def patch_language_once() -> None:
    """Triton patches its language for each kernel, and for each call of a function that a kernel
    calls, which finds it patched: a third of the time.
    """
    from triton.runtime import interpreter

    patch, patched = interpreter._patch_lang, set()
    modules = (interpreter.tl, interpreter.tl.core)

    @functools.cache
    def named_by(fn: Any) -> frozenset[Any]:
        return frozenset(m for m in modules if any(m is one for one in fn.__globals__.values()))

    def patch_lang(fn: Any) -> Any:
        seen = named_by(fn)
        if seen and seen <= patched:
            return interpreter._LangPatchScope()
        scope = patch(fn)
        new, restore = seen - patched, scope.restore
        patched.update(new)

        def restored() -> None:
            patched.difference_update(new)
            restore()

        scope.restore = restored
        return scope

    interpreter._patch_lang = patch_lang


def leave_blocks_of_one_shape() -> None:
    """Triton compares the sizes of operands one by one, a sixth of the time; most are equal."""
    from triton.language.semantic import TritonSemantic

    broadcast = TritonSemantic.broadcast_impl_value

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        both = lhs.type.is_block() and rhs.type.is_block()
        if both and list(lhs.type.shape) == list(rhs.type.shape):
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    TritonSemantic.broadcast_impl_value = broadcast_impl_value


def leave_out_checks_of_overflow() -> None:
    """Triton computes whether an addition or product of integers overflows, a quarter of the time,
    and without its debug mode reads none of the answers.
    """
    from triton.runtime.interpreter import interpreter_builder

    options = interpreter_builder.options
    assert not options.debug
    interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)


def keep_types_of_comparisons() -> None:
    """Triton 3.7 gives a comparison of two scalars the type of the scalars where a block is made of
    it, so that `&` of masks is one of floats."""
    import numpy
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_splat(self: Any, kind: Any, given: Any) -> Any:
        made = numpy.full(kind.shape, given.data, dtype=given.data.dtype)
        return TensorHandle(made, given.dtype.scalar)

    InterpreterBuilder.create_splat = create_splat


def forget_signs_of_zeros() -> None:
    """Triton before 3.9 negates by 0 - x, and a constant that is -0.0 is 0.0."""
    from triton.language.semantic import TritonSemantic

    scalar = TritonSemantic.scalar_constant
    TritonSemantic.scalar_constant = lambda self, value, dtype: scalar(self, value or 0, dtype)
    TritonSemantic.minus = lambda self, x: self.sub(scalar(self, 0, x.type.scalar), x, True)


def report(cases: Mapping[str, Callable[[], dict[str, Any] | None]]) -> None:
    allow_loop_bounds()
    patch_language_once()
    leave_out_checks_of_overflow()
    leave_blocks_of_one_shape()
    forget_signs_of_zeros()
    for name, run in cases.items():
        line: dict[str, Any] = {"case": name, "error": None}
        try:
            line |= run() or {}
        except Exception:
            line["error"] = traceback.format_exc()[-3000:]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    os.environ |= ENVIRONMENT
    if sys.argv[1] == "--serve":
        serve()
    else:
        report(importlib.import_module(f"tests.inductor.{sys.argv[1]}").cases(*sys.argv[2:]))
