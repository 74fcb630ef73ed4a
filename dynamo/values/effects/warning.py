"""warnings.warn in captured code: no graph break, and no warning is lost.

The rewritten frame gives the warning at every call, after the graph and in the order of the
program's warnings, as if from the line that warns: the user's filters and the registry of that
module decide what is shown, as in eager. Where the program can see the difference (the warning may
be caught, the filters are changed nearby, or the frame holds a recorder of warnings) the call
breaks the graph instead and runs natively.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, GlobalsSource, ModuleSource
from dynamo.values.base import Value, is_none
from dynamo.values.builder import Lazy, realized
from dynamo.values.builtins.table import handles
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


def give_warning(
    message: Any, category: Any, filename: str, lineno: int, namespace: dict[str, Any]
) -> None:
    """Warn as if from that line of the code whose globals are `namespace`."""
    registry = namespace.setdefault("__warningregistry__", {})
    module = namespace.get("__name__") or "<string>"
    warnings.warn_explicit(message, category, filename, lineno, module, registry)


@handles(warnings.warn)
def _warn(tx, message, category=None, stacklevel=None, source=None, **others):
    """Recorded for the rewritten frame."""
    level = 1 if stacklevel is None else stacklevel.as_constant()
    if others or not isinstance(level, int) or not is_none(source) or _may_be_caught(tx):
        raise Unsupported(breaks.UncapturedCall("warnings.warn"))
    kind = _category(message, category)
    _assume_shown_late(tx, kind)
    frame, above = _frame(tx, level)
    effects = tx.output.side_effects
    made = not message.is_constant()  # an object, which the writes fill
    if frame is None:
        # The frames above are the real ones.
        effects.call_later(warnings.warn, message, kind, above + 1, before_writes=not made)
        return
    if frame.f_globals is tx.output.frame_globals:
        namespace: Any = GlobalsSource()
    else:
        namespace = tx.output.install("globals", frame.f_globals)
    given = (message, kind, frame.code.co_filename, frame.lineno, namespace)
    effects.call_later(give_warning, *given, before_writes=not made)


_ENTER = warnings.catch_warnings.__enter__.__code__
_ADD = warnings._add_filter.__code__  # type: ignore[attr-defined]


@handles(warnings._filters_mutated)  # type: ignore[attr-defined]
def _filters_mutated(tx):
    """Other filters than before. The graph runs before they are set: where they record or raise
    warnings of its operations, it breaks.
    """
    if tx.code is _ENTER and _local(tx, "self").getattr(tx, "_record").truth(tx):
        raise Unsupported(breaks.UncapturedCall("warnings.catch_warnings(record=True)"))
    if tx.code is _ADD and _local(tx, "item").unpack(tx)[0].as_constant() == "error":
        raise Unsupported(breaks.UncapturedCall("warnings.filterwarnings('error')"))
    calls = tx.output.side_effects.calls
    if any(
        call.function in (warnings.warn, give_warning) and not call.before_writes for call in calls
    ):
        raise Unsupported(breaks.UncapturedCall("warnings.catch_warnings"))
    tx.output.side_effects.call_later(warnings._filters_mutated)  # type: ignore[attr-defined]
    return ConstantValue(None)


def _local(tx: Interpreter, name: str) -> Value:
    return realized(tx, tx.locals[name])  # nobody has read those of the outermost frame yet


def _assume_shown_late(tx: Interpreter, category: type) -> None:
    """Break where the warning is an exception, or where the frame may see that it comes late."""
    recorder = _recorder(warnings)
    changed = any(_is_changed(tx, name) for name in ("filters", "showwarning", "_showwarnmsg_impl"))

    def may_come_late(module: Any) -> bool:
        now = _recorder(module)
        if now is _UNKNOWN or (now is None) != (recorder is None):
            return False
        return not any(f[0] == "error" and issubclass(category, f[2]) for f in module.filters)

    if changed or not may_come_late(warnings):
        raise Unsupported(breaks.UncapturedCall("warnings.warn"))
    tx.guard(ModuleSource("warnings"), "predicate", may_come_late)
    if recorder is not None:
        _assume_unwrapped(tx, recorder)


def _is_changed(tx: Interpreter, name: str) -> bool:
    """Whether the frame has changed the module's global, and not restored it."""
    effects, real = tx.output.side_effects, vars(warnings)[name]
    _, before = tx.output.values_by_id.get(id(real), (None, None))
    if before is not None and effects.is_dirty(before):
        return True
    stored = effects.load_global(vars(warnings), name)
    if stored is None or stored is before:
        return False
    known, now = stored.identity() if isinstance(stored, Value) else (False, None)
    return not known or now is not real


_UNKNOWN: Any = type("Unknown", (), {})()
_show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]


def _recorder(module: Any) -> Any:
    """The list that warnings.catch_warnings(record=True) fills; None where warnings are printed."""
    if module.showwarning is not module._showwarning_orig:
        return _UNKNOWN
    impl = module._showwarnmsg_impl
    if impl is _show:
        return None
    of_list = type(getattr(impl, "__self__", None)) is list and impl == impl.__self__.append
    return impl.__self__ if of_list else _UNKNOWN


def _assume_unwrapped(tx: Interpreter, recorder: list[Any]) -> None:
    """Break where the frame has the list, which may be read next; another call's may be another."""
    source = AttrSource(_IMPL, "__self__")
    root = tx
    while root.parent is not None:
        root = root.parent
    lists = [v for v in root.locals.values() if isinstance(v, Lazy) and type(v.obj) is list]
    if id(recorder) in tx.output.values_by_id or any(v.obj is recorder for v in lists):
        raise Unsupported(breaks.UncapturedCall("warnings.warn"))
    seen = [value for obj, value in tx.output.values_by_id.values() if type(obj) is list]
    for other in (*(v.source for v in lists), *(v.source for v in seen)):
        if other is not None:
            tx.output.guards.add(None, "not_aliased", (source, other))


_IMPL = AttrSource(ModuleSource("warnings"), "_showwarnmsg_impl")


def _category(message: Value, category: Value | None) -> type:
    """The class of the warning; a message or category that warnings.warn refuses is left to
    warn.
    """
    if issubclass(message.python_type(), Warning):
        return message.python_type()
    known, kind = (True, UserWarning)
    if category is not None and not is_none(category):
        known, kind = category.identity()
    fits = known and isinstance(kind, type) and issubclass(kind, Warning)
    if not fits or not isinstance(message, ConstantValue) or message.python_type() is not str:
        raise Unsupported(breaks.UncapturedCall("warnings.warn"))
    return kind


def _frame(tx: Interpreter, level: int) -> tuple[Interpreter | None, int]:
    """The captured frame at this stack level, or None and its distance above the outermost one."""
    frame: Interpreter | None = tx
    for passed in range(1, level):
        assert frame is not None
        frame = frame.parent
        if frame is None:
            return None, level - passed
    return frame, 0


def _may_be_caught(tx: Interpreter) -> bool:
    """A filter may turn the warning into an exception, which some `try` around would see."""
    frame: Interpreter | None = tx
    while frame is not None:
        handler = frame.current.handler
        while handler is not None:
            if _catches(frame, handler.target):
                return True
            handler = handler.target.handler
        frame = frame.parent
    return False


def _catches(frame: Interpreter, target: Instruction) -> bool:
    """The handler is an except or finally clause, not the end of a `with` or handler."""
    following = frame.program[target.index + 1][1].op
    return target.op == "PUSH_EXC_INFO" and following != "WITH_EXCEPT_START"
