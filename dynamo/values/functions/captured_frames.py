"""sys._getframe: frames of captured code, for warnings in which a program names its caller."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.objects.namespaces import locals_of
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


class CapturedFrame(Value):
    """The frame of an interpreter that has not ended."""

    def __init__(self, frame: Interpreter) -> None:
        super().__init__()
        self.frame = frame

    def python_type(self) -> type:
        return types.FrameType

    def getattr(self, tx: Interpreter, name: str) -> Value:
        frame = self.frame
        if not frame.done and name == "f_code":
            return ConstantValue(frame.code)
        if not frame.done and name == "f_lineno":
            return ConstantValue(frame.lineno)
        if not frame.done and name == "f_globals":
            namespace = TABLE[globals](frame)
            assert namespace is not None, "globals() gives a dict"
            return namespace
        if not frame.done and name == "f_locals":
            return locals_of(tx, frame)
        if not frame.done and name == "f_back":
            return _captured(_caller(frame))
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))


def _caller(frame: Interpreter) -> Interpreter | None:
    """None where real frames, or frames of torch that capture leaves out, may be between."""
    return None if frame.hidden or frame.code.co_name.endswith("forward") else frame.parent


def _captured(frame: Interpreter | None) -> Value:
    if frame is None or frame.hidden:
        raise Unsupported(breaks.UncapturedCall("sys._getframe"))
    if frame.as_value is None:
        frame.as_value = CapturedFrame(frame)
    return frame.as_value


def _above(tx: Interpreter, depth: Value | None) -> Interpreter | None:
    frame: Interpreter | None = tx
    for _ in range(0 if depth is None else depth.as_constant()):
        frame = None if frame is None else _caller(frame)
    return frame


@handles(sys._getframe)
def _frame(tx, depth=None):
    return _captured(_above(tx, depth))


def _frame_module_name(tx, depth=None):
    """sys._getframemodulename: of a captured frame; that of a caller is asked for natively."""
    frame = _above(tx, depth)
    if frame is None:
        raise Unsupported(breaks.UncapturedCall("sys._getframemodulename"))
    source = frame.global_source("__name__")
    return tx.wrap(frame.f_globals.get("__name__"), source)


if hasattr(sys, "_getframemodulename"):
    TABLE[sys._getframemodulename] = _frame_module_name
