"""A small interpreter of canonical instructions over real objects.

It says what each canonical op means, so a function run by it must do what CPython does; and it can
stop before any instruction, from where a continuation function must be able to go on.
"""

from __future__ import annotations

import builtins
import operator
import types
from typing import Any

from dynamo.bytecode import Instruction, normalize
from dynamo.continuations.parts import Item
from dynamo.continuations.resume import make_resume_code, parameter_names

NULL = type("Null", (), {"__repr__": lambda self: "NULL"})()
UNBOUND = type("Unbound", (), {"__repr__": lambda self: "UNBOUND"})()
_BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul,
    "/=": operator.itruediv, "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow,
    "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor,
    "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
_COMPARE = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CONVERT = {"str": str, "repr": repr, "ascii": ascii}


class Handling:
    """What PUSH_EXC_INFO saves: the exception that was being handled; and the one that now is."""

    def __init__(self, previous: BaseException | None, current: BaseException) -> None:
        self.previous, self.current = previous, current


class Frame:
    """One call of a function. `run(steps)` executes so many instructions; None: all."""

    def __init__(self, function: types.FunctionType, args: tuple) -> None:
        self.function = function
        self.code = code = function.__code__
        self.globals = function.__globals__
        self.instructions = normalize(code)
        self.stack: list[Any] = []
        self.locals = _bind(function, args)
        self.cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        self.handled: BaseException | None = None
        self.handling: list[Handling] = []
        self.index = 0
        self.done = False
        self.result: Any = None

    def run(self, steps: int | None = None) -> int:
        """Returns how many instructions were executed."""
        count = 0
        while not self.done and count != steps:
            self.step()
            count += 1
        return count

    def step(self) -> None:
        if self.handled is None:
            self._step()
            return
        try:
            raise self.handled  # so that sys.exc_info() is right in what the instruction calls
        except BaseException:
            self._step()

    def _step(self) -> None:
        instr = self.instructions[self.index]
        self.index += 1
        try:
            getattr(self, instr.op)(instr)
        except Exception as error:
            handler = instr.handler
            if handler is None:
                raise
            del self.stack[handler.depth :]
            if handler.push_lasti:
                self.stack.append(0)
            self.stack.append(error)
            self.index = handler.target.index

    def continuation(self) -> tuple[types.FunctionType, list[Any]]:
        """The rest of this call as a function, and the arguments for it."""
        items, args = [], []
        for value in self.stack:
            if value is NULL:
                items.append(Item.NULL)
            elif value is UNBOUND:
                items.append(Item.UNBOUND)
            elif isinstance(value, Handling):
                active = value in self.handling
                items.append(Item.HANDLING if active else Item.VALUE)
                args.append(value.current if active else None)
            else:
                items.append(Item.VALUE)
                args.append(value)
        names = [n for n in self.locals if n not in self.cells and not n.startswith(".")]
        code = make_resume_code(self.code, self.index, stack=items, local_names=names)
        assert code.co_argcount == len(parameter_names(items, names)) == len(args) + len(names)
        closure = tuple(self.cells.get(name, types.CellType()) for name in code.co_freevars)
        args += [self.locals[name] for name in names]
        return types.FunctionType(code, self.globals, closure=closure), args

    # -- helpers --------------------------------------------------------------------------------
    def pop(self) -> Any:
        return self.stack.pop()

    def popn(self, n: int) -> list[Any]:
        values = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return values

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def call(self, callable_: Any, self_or_null: Any, args: list, kwargs: dict) -> None:
        if self_or_null is not NULL:
            args = [self_or_null, *args]
        self.push(callable_(*args, **kwargs))

    def jump(self, instr: Instruction) -> None:
        self.index = instr.target.index

    # -- locals ---------------------------------------------------------------------------------
    def LOAD_FAST(self, instr):
        if instr.argval not in self.locals:
            raise UnboundLocalError(instr.argval)
        self.push(self.locals[instr.argval])

    def LOAD_FAST_AND_CLEAR(self, instr):
        name = instr.argval
        if name in self.cells:
            self.push(self.cells.pop(name))
        else:
            self.push(self.locals.pop(name, UNBOUND))

    def STORE_FAST(self, instr):
        value, name = self.pop(), instr.argval
        if value is UNBOUND:
            self.locals.pop(name, None)
        elif isinstance(value, types.CellType):  # LOAD_FAST_AND_CLEAR put it aside
            self.cells[name] = value
            self.locals.pop(name, None)
        else:
            self.locals[name] = value
            self.cells.pop(name, None)

    def DELETE_FAST(self, instr):
        if instr.argval not in self.locals:
            raise UnboundLocalError(instr.argval)
        del self.locals[instr.argval]

    def MAKE_CELL(self, instr):
        name = instr.argval
        cell = types.CellType(self.locals.pop(name)) if name in self.locals else types.CellType()
        self.cells[name] = cell

    def COPY_FREE_VARS(self, instr): ...

    def LOAD_CLOSURE(self, instr):
        self.push(self.cells[instr.argval])

    def LOAD_DEREF(self, instr):
        try:
            self.push(self.cells[instr.argval].cell_contents)
        except ValueError:
            raise NameError(instr.argval) from None

    def STORE_DEREF(self, instr):
        self.cells[instr.argval].cell_contents = self.pop()

    def DELETE_DEREF(self, instr):
        del self.cells[instr.argval].cell_contents

    # -- names ----------------------------------------------------------------------------------
    def LOAD_CONST(self, instr):
        self.push(instr.argval)

    def LOAD_GLOBAL(self, instr):
        name = instr.argval
        self.push(self.globals[name] if name in self.globals else getattr(builtins, name))

    def LOAD_ASSERTION_ERROR(self, instr):
        self.push(AssertionError)

    def LOAD_BUILD_CLASS(self, instr):
        self.push(builtins.__build_class__)

    def IMPORT_NAME(self, instr):
        level, fromlist = self.popn(2)
        self.push(__import__(instr.argval, self.globals, {}, fromlist, level))

    def IMPORT_FROM(self, instr):
        self.push(getattr(self.stack[-1], instr.argval))

    # -- attributes and items -------------------------------------------------------------------
    def LOAD_ATTR(self, instr):
        self.push(getattr(self.pop(), instr.argval))

    def STORE_ATTR(self, instr):
        value, obj = self.popn(2)
        setattr(obj, instr.argval, value)

    def DELETE_ATTR(self, instr):
        delattr(self.pop(), instr.argval)

    def LOAD_METHOD(self, instr):
        value = getattr(self.pop(), instr.argval)
        if isinstance(value, types.MethodType):
            self.stack += [value.__func__, value.__self__]
        else:
            self.stack += [value, NULL]

    def LOAD_SUPER_ATTR(self, instr):
        super_, class_, this = self.popn(3)
        self.push(getattr(super_(class_, this), instr.argval[0]))

    def LOAD_SUPER_METHOD(self, instr):
        self.LOAD_SUPER_ATTR(instr)
        self.push(NULL)

    def BINARY_SUBSCR(self, instr):
        container, key = self.popn(2)
        self.push(container[key])

    def STORE_SUBSCR(self, instr):
        value, container, key = self.popn(3)
        container[key] = value

    def DELETE_SUBSCR(self, instr):
        container, key = self.popn(2)
        del container[key]

    def BINARY_SLICE(self, instr):
        container, start, stop = self.popn(3)
        self.push(container[start:stop])

    def STORE_SLICE(self, instr):
        value, container, start, stop = self.popn(4)
        container[start:stop] = value

    # -- calls ----------------------------------------------------------------------------------
    def PUSH_NULL(self, instr):
        self.push(NULL)

    def CALL(self, instr):
        args = self.popn(instr.arg)
        callable_, this = self.popn(2)
        if callable_ is super and this is NULL and not args:
            name = self.code.co_varnames[0]
            first = self.cells[name].cell_contents if name in self.cells else self.locals[name]
            args = [self.cells["__class__"].cell_contents, first]
        self.call(callable_, this, args, {})

    def CALL_KW(self, instr):
        names = self.pop()
        assert names == instr.argval
        args = self.popn(instr.arg)
        callable_, this = self.popn(2)
        split = len(args) - len(names)
        self.call(callable_, this, args[:split], dict(zip(names, args[split:])))

    def CALL_FUNCTION_EX(self, instr):
        kwargs = self.pop() if instr.argval else {}
        callable_, null, args = self.popn(3)
        assert null is NULL
        self.call(callable_, null, list(args), dict(kwargs))

    def CALL_INTRINSIC_2(self, instr):
        raise NotImplementedError(instr.argval)

    def MAKE_FUNCTION(self, instr):
        code, flags = self.pop(), instr.argval
        closure = self.pop() if "closure" in flags else None
        annotations = self.pop() if "annotations" in flags else ()
        kwdefaults = self.pop() if "kwdefaults" in flags else None
        defaults = self.pop() if "defaults" in flags else None
        function = types.FunctionType(
            code, self.globals, argdefs=defaults, closure=closure or _dummy_closure(code)
        )
        function.__kwdefaults__ = kwdefaults
        function.__annotations__ = dict(zip(annotations[::2], annotations[1::2]))
        self.push(function)

    def SET_FUNCTION_ATTRIBUTE(self, instr):
        value, function = self.popn(2)
        if instr.argval == "closure":
            new = types.FunctionType(
                function.__code__, self.globals, argdefs=function.__defaults__, closure=value
            )
            new.__kwdefaults__ = function.__kwdefaults__
            new.__annotations__ = function.__annotations__
            function = new
        elif instr.argval == "annotations":
            function.__annotations__ = dict(zip(value[::2], value[1::2]))
        else:
            setattr(function, f"__{instr.argval}__", value)
        self.push(function)

    # -- operators ------------------------------------------------------------------------------
    def BINARY_OP(self, instr):
        self.push(_BINARY[instr.argval](*self.popn(2)))

    def UNARY_NEGATIVE(self, instr):
        self.push(-self.pop())

    def UNARY_POSITIVE(self, instr):
        self.push(+self.pop())

    def UNARY_NOT(self, instr):
        self.push(not self.pop())

    def UNARY_INVERT(self, instr):
        self.push(~self.pop())

    def COMPARE_OP(self, instr):
        self.push(_COMPARE[instr.argval](*self.popn(2)))

    def IS_OP(self, instr):
        left, right = self.popn(2)
        self.push((left is right) != instr.argval)

    def CONTAINS_OP(self, instr):
        left, right = self.popn(2)
        self.push((left in right) != instr.argval)

    def TO_BOOL(self, instr):
        self.push(bool(self.pop()))

    # -- containers -----------------------------------------------------------------------------
    def BUILD_TUPLE(self, instr):
        self.push(tuple(self.popn(instr.arg)))

    def BUILD_LIST(self, instr):
        self.push(self.popn(instr.arg))

    def BUILD_SET(self, instr):
        self.push(set(self.popn(instr.arg)))

    def BUILD_MAP(self, instr):
        flat = self.popn(2 * instr.arg)
        self.push(dict(zip(flat[::2], flat[1::2])))

    def BUILD_CONST_KEY_MAP(self, instr):
        keys = self.pop()
        self.push(dict(zip(keys, self.popn(instr.arg))))

    def BUILD_STRING(self, instr):
        self.push("".join(self.popn(instr.arg)))

    def BUILD_SLICE(self, instr):
        self.push(slice(*self.popn(instr.arg)))

    def LIST_APPEND(self, instr):
        value = self.pop()
        self.stack[-instr.arg].append(value)

    def LIST_EXTEND(self, instr):
        value = self.pop()
        self.stack[-instr.arg].extend(value)

    def SET_ADD(self, instr):
        value = self.pop()
        self.stack[-instr.arg].add(value)

    def SET_UPDATE(self, instr):
        value = self.pop()
        self.stack[-instr.arg].update(value)

    def MAP_ADD(self, instr):
        key, value = self.popn(2)
        self.stack[-instr.arg][key] = value

    def DICT_UPDATE(self, instr):
        value = self.pop()
        self.stack[-instr.arg].update(value)

    DICT_MERGE = DICT_UPDATE

    def LIST_TO_TUPLE(self, instr):
        self.push(tuple(self.pop()))

    def UNPACK_SEQUENCE(self, instr):
        values = list(self.pop())
        if len(values) != instr.arg:
            raise ValueError("unpack")
        self.stack += reversed(values)

    def UNPACK_EX(self, instr):
        values = list(self.pop())
        before, after = instr.arg & 0xFF, instr.arg >> 8
        middle = values[before : len(values) - after]
        self.stack += reversed([*values[:before], middle, *values[len(values) - after :]])

    def CONVERT_VALUE(self, instr):
        self.push(_CONVERT[instr.argval](self.pop()))

    def FORMAT_SIMPLE(self, instr):
        self.push(format(self.pop()))

    def FORMAT_WITH_SPEC(self, instr):
        self.push(format(*self.popn(2)))

    # -- stack ----------------------------------------------------------------------------------
    def POP_TOP(self, instr):
        self.pop()

    def COPY(self, instr):
        self.push(self.stack[-instr.arg])

    def SWAP(self, instr):
        stack, n = self.stack, instr.arg
        stack[-1], stack[-n] = stack[-n], stack[-1]

    def NOP(self, instr): ...

    def RESUME(self, instr): ...

    # -- jumps and iteration --------------------------------------------------------------------
    def JUMP(self, instr):
        self.jump(instr)

    def _pop_jump(self, instr, condition):
        if condition:
            self.jump(instr)

    def POP_JUMP_IF_TRUE(self, instr):
        self._pop_jump(instr, self.pop())

    def POP_JUMP_IF_FALSE(self, instr):
        self._pop_jump(instr, not self.pop())

    def POP_JUMP_IF_NONE(self, instr):
        self._pop_jump(instr, self.pop() is None)

    def POP_JUMP_IF_NOT_NONE(self, instr):
        self._pop_jump(instr, self.pop() is not None)

    def JUMP_IF_TRUE_OR_POP(self, instr):
        if self.stack[-1]:
            self.jump(instr)
        else:
            self.pop()

    def JUMP_IF_FALSE_OR_POP(self, instr):
        if not self.stack[-1]:
            self.jump(instr)
        else:
            self.pop()

    def GET_ITER(self, instr):
        self.push(iter(self.pop()))

    def FOR_ITER(self, instr):
        try:
            self.push(next(self.stack[-1]))
        except StopIteration:
            self.pop()
            self.jump(instr)

    def RETURN_VALUE(self, instr):
        self.result, self.done = self.pop(), True
        assert not self.stack

    # -- match ----------------------------------------------------------------------------------
    def GET_LEN(self, instr):
        self.push(len(self.stack[-1]))

    def MATCH_MAPPING(self, instr):
        self.push(isinstance(self.stack[-1], dict))

    def MATCH_SEQUENCE(self, instr):
        self.push(isinstance(self.stack[-1], (list, tuple)))

    def MATCH_KEYS(self, instr):
        subject, keys = self.stack[-2:]
        found = all(key in subject for key in keys)
        self.push(tuple(subject[key] for key in keys) if found else None)

    def MATCH_CLASS(self, instr):
        subject, class_, names = self.popn(3)
        names = (*class_.__match_args__[: instr.arg], *names)
        found = isinstance(subject, class_)
        self.push(tuple(getattr(subject, name) for name in names) if found else None)

    # -- exceptions -----------------------------------------------------------------------------
    def PUSH_EXC_INFO(self, instr):
        error = self.pop()
        self.handling.append(Handling(self.handled, error))
        self.stack += [self.handling[-1], error]
        self.handled = error

    def POP_EXCEPT(self, instr):
        self.handled = self.pop().previous
        self.handling.pop()

    def CHECK_EXC_MATCH(self, instr):
        self.push(isinstance(self.stack[-2], self.pop()))

    def RERAISE(self, instr):
        raise self.pop()

    def RAISE_VARARGS(self, instr):
        if instr.arg == 0:
            raise self.handled
        values = self.popn(instr.arg)
        error = values[0]() if isinstance(values[0], type) else values[0]
        if instr.arg == 2:
            raise error from values[1]
        raise error

    # -- with -----------------------------------------------------------------------------------
    def BEFORE_WITH(self, instr):
        manager = self.pop()
        self.push(manager.__exit__)
        self.push(manager.__enter__())

    def WITH_EXCEPT_START(self, instr):
        error = self.stack[-1]
        self.push(self.stack[-4](type(error), error, error.__traceback__))


def _dummy_closure(code: types.CodeType) -> tuple | None:
    # 3.13 makes the function first and sets its closure afterwards.
    return tuple(types.CellType() for _ in code.co_freevars) or None


def _bind(function: types.FunctionType, args: tuple) -> dict[str, Any]:
    """Positional arguments and defaults only."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    values = (*args, *defaults[len(defaults) + len(args) - len(names) :])
    assert len(values) == len(names)
    return dict(zip(names, values))
