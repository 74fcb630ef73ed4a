"""sys._getframe: frames of captured code, for warnings in which a program names its caller."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.bytecode.versions import ONE_LOCALS_DICT
from dynamo.errors import Unsupported
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.containers.containers import ListValue
from dynamo.values.containers.dicts import DictValue, pairs_of
from dynamo.values.objects.builtin_object import BuiltinObject
from dynamo.values.objects.namespaces import locals_of
from dynamo.values.recipes import Recipe
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
            snapshot = locals_of(tx, frame)
            return snapshot if ONE_LOCALS_DICT else FrameLocalsValue(frame)
        if not frame.done and name == "f_back":
            return _captured(_caller(frame))
        raise Unsupported(breaks.AttributeAccess(self.describe(), name))

    def recipe(self) -> Recipe:
        if "f_locals" in self.frame.code.co_names:
            raise _kept(self.frame)
        raise Unsupported(breaks.CannotReconstruct(self.describe()))

    def children(self) -> Sequence[Value]:
        return ()


def _kept(frame: Interpreter) -> Unsupported:
    """The refusal where the program keeps what shows a frame's variables: behind a break they are
    those of another frame.
    """
    return Unsupported(breaks.ReadsLocals(frame.code.co_name))


def _locals_type() -> type:
    return type(sys._getframe().f_locals)


class FrameLocalsValue(BuiltinObject):
    """f_locals from Python 3.13 on: a mapping whose items are the frame's variables themselves."""

    def __init__(self, frame: Interpreter) -> None:
        super().__init__()
        self.frame = frame

    def python_type(self) -> type:
        return _locals_type()

    def snapshot(self, tx: Interpreter) -> DictValue:
        if self.frame.done:
            raise Unsupported(breaks.ItemAccess(self.describe()))
        return locals_of(tx, self.frame)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        return self.snapshot(tx).getitem(tx, key)

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        frame, name = self.frame, key.as_constant()
        if name in frame.cells:
            frame.cells[name].store(tx, value)
        elif name in frame.code.co_varnames and not frame.done:
            frame.locals[name] = value
        else:  # no variable of the function
            raise Unsupported(breaks.ItemMutation(self.describe()))

    def compare(self, tx: Interpreter, op: str, other: Value) -> Value | None:
        if not isinstance(other, FrameLocalsValue):
            return None
        return ConstantValue((self.frame is other.frame) is (op == "=="))

    def contains(self, tx: Interpreter, item: Value) -> Value:
        return self.snapshot(tx).contains(tx, item)

    def length(self, tx: Interpreter) -> int:
        return self.snapshot(tx).length(tx)

    def iterate(self, tx: Interpreter) -> Value:
        return self.py_keys(tx).iterate(tx)

    def py_get(self, tx, key, default=None):
        return self.snapshot(tx).py_get(tx, key, default)

    def py_copy(self, tx):
        return self.snapshot(tx)

    def py_update(self, tx, other):
        for key, value in pairs_of(tx, other, False):
            self.setitem(tx, key, value)

    def recipe(self) -> Recipe:
        raise _kept(self.frame)

    def children(self) -> Sequence[Value]:
        return ()

    def py_keys(self, tx):
        return _listed(tx, self.snapshot(tx).py_keys(tx))

    def py_values(self, tx):
        return _listed(tx, self.snapshot(tx).py_values(tx))

    def py_items(self, tx):
        return _listed(tx, self.snapshot(tx).py_items(tx))


def _listed(tx: Interpreter, view: Value) -> Value:
    return tx.output.side_effects.track_new(ListValue(view.unpack(tx)))


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
