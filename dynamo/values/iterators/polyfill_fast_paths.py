"""Fast paths of loops in polyfills (polyfills/builtins.py): iterations for items that need no code
of the program's, done as a whole where the loop's FOR_ITER has got the item, in place of the body's
instructions.

The frame stands at its FOR_ITER again then, as behind the jump at the end of the body: a break
stands in such a loop as in any other. For other items the body is captured. Parts of polyfills that
compute on their locals are functions of their own, with handlers here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo.bytecode.cache import CodeMap
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import ListValue, TupleValue
from dynamo.values.containers.dicts import DictValue
from dynamo.values.containers.sets import SetValue
from dynamo.values.containers.sorting import sort_by_keys
from dynamo.values.scalars.constant import ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# (frame, item) -> whether the iteration is done.
FastPath = Callable[["Interpreter", Value], bool]
FAST_PATHS: CodeMap[FastPath] = CodeMap()  # by the code of the polyfill
_ORDERED = (int, float, str)


def _fast_path_of(*functions: Any) -> Callable[[FastPath], FastPath]:
    def register(fast_path: FastPath) -> FastPath:
        for function in functions:
            FAST_PATHS.set(function.__code__, fast_path)
        return fast_path

    return register


@_fast_path_of(
    builtin_polyfills.make_list, builtin_polyfills.make_tuple, builtin_polyfills.unpack_generated
)
def _append(tx: Interpreter, item: Value) -> bool:
    return _append_to(tx, "items", item)


def _append_to(tx: Interpreter, name: str, item: Value) -> bool:
    items = tx.locals[name]
    if type(items) is not ListValue:
        return False
    items.py_append(tx, item)
    return True


@_fast_path_of(builtin_polyfills.extend)
def _extend(tx: Interpreter, item: Value) -> bool:
    return _append_to(tx, "target", item)


@_fast_path_of(builtin_polyfills.unpack)
def _unpack(tx: Interpreter, item: Value) -> bool:
    return _append_below(tx, "count", 0, item)


@_fast_path_of(builtin_polyfills.unpack_rest)
def _unpack_rest(tx: Interpreter, item: Value) -> bool:
    return _append_below(tx, "before", 1, item)  # the last one ends the loop


def _append_below(tx: Interpreter, limit: str, rest: int, item: Value) -> bool:
    items, most = tx.locals["items"], tx.locals[limit]
    if type(items) is not ListValue or type(most) is not ConstantValue:
        return False
    return len(items.contents) + rest < most.value and _append_to(tx, "items", item)


@_fast_path_of(builtin_polyfills.make_set, builtin_polyfills.add_all)
def _add(tx: Interpreter, item: Value) -> bool:
    items = tx.locals["items" if "items" in tx.locals else "target"]
    if type(items) is not SetValue or type(item) is not ConstantValue:
        return False
    items.py_add(tx, item)
    return True


@_fast_path_of(builtin_polyfills.update)
def _put(tx: Interpreter, pair: Value) -> bool:
    items, number = tx.locals["target"], tx.locals["number"]
    if not isinstance(items, DictValue) or type(number) is not ConstantValue:
        return False
    if type(pair) is not TupleValue or pair.size != 2:
        return False
    key = pair.item(tx, 0)
    if type(key) is not ConstantValue:
        return False
    items.setitem(tx, key, pair.item(tx, 1))
    tx.locals["number"] = ConstantValue(number.value + 1)
    return True


@_fast_path_of(builtin_polyfills.any_of)
def _is_false(tx: Interpreter, item: Value) -> bool:
    return type(item) is ConstantValue and not item.value


@_fast_path_of(builtin_polyfills.all_of)
def _is_true(tx: Interpreter, item: Value) -> bool:
    return type(item) is ConstantValue and bool(item.value)


@_fast_path_of(builtin_polyfills.sum_numbers)
def _add_up(tx: Interpreter, item: Value) -> bool:
    only_numbers = tx.locals["only_numbers"]
    if type(only_numbers) is not ConstantValue or not only_numbers.value:
        return False
    if not item.python_type_is(*builtin_polyfills.NUMBERS):
        return False
    return _append_to(tx, "numbers", item)


def _choose(better: Callable[[Any, Any], bool]) -> FastPath:
    def fast_path(tx: Interpreter, item: Value) -> bool:
        best, key = tx.locals["best"], tx.locals["key"]
        plain = type(item) is ConstantValue and type(best) is ConstantValue
        if not plain or type(key) is not ConstantValue or key.value is not None:
            return False
        one, other = item.value, best.value  # type: ignore[attr-defined, union-attr]
        if type(one) not in _ORDERED or type(one) is not type(other):
            return False
        if better(one, other):
            tx.locals["chosen"] = tx.locals["best"] = item
        return True

    return fast_path


_fast_path_of(builtin_polyfills.smallest)(_choose(operator.lt))
_fast_path_of(builtin_polyfills.largest)(_choose(operator.gt))


# -- parts ----------------------------------------------------------------------------------------
@handles(builtin_polyfills.sort_with)
def _sort_with(tx, items, keys, reverse):
    items.restructuring(tx)
    found = items.wrapped()
    try:
        sort_by_keys(tx, found, keys.wrapped(), reverse)
    finally:
        items.contents[:] = found


@handles(builtin_polyfills.around_star)
def _around_star(tx, items, before, after):
    found, first = items.wrapped(), before.as_constant()
    end = len(found) - after.as_constant()
    middle = ListValue(found[first:end])
    track = tx.output.side_effects.track_new
    return track(ListValue([*found[:first], track(middle), *found[end:]]))
