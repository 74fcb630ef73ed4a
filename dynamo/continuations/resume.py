"""Continuation functions: the rest of a function after a graph break, as a function of its own.

    def f(x, y):                     def f(.stack0, y):      # parameters: the stack, then live
    locals
        a = x * y                        push .stack0
        return g(a) + y       ->         jump to A
    #              ^ break               a = x * y           # the whole body of f, as it was; what
                                         return g(a) + A: y  # cannot be reached is dropped

A continuation is a faithful copy of the function's instructions, lines and exception table, entered
in the middle: loops, `try` and `with` around the break work because their code and their part of
the stack are there. Cells of the function are free variables of the continuation, so they are
shared: make the function with a closure that has, in the order of `co_freevars`, this frame's cells
of these names. (But for cells that nobody shares: these may be its own.) Continuations of
continuations are made from the first function's code, not from the copy.

A frame whose callee breaks goes on in the middle of its call (`make_call_code`): the continuation
pushes the items below the operands, calls the callee's continuation where the call stands (with its
line and its handler), and goes on behind it.

The continuation of a generator (or coroutine) is a generator function whose generator begins in the
middle. A generator that is suspended at the break does not exist as an object: the continuation
makes it from what it is made of, so that capture of the continuation knows what it does
(`Rematerialised`).

At a break inside `try`, the instruction that breaks is executed by the rewritten frame, outside of
the copy. An exception that it raises goes to the user's handler so: surround it with
`Emitter.exception_region`; at the handler (no PUSH_EXC_INFO) call the continuation that starts at
`instr.handler.target`, whose stack is the canonical one cut to `handler.depth`, then lasti if
`handler.push_lasti` (any int), then the exception.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import CodeType

from dynamo.bytecode import Instruction, normalize, real_stack, versions
from dynamo.bytecode.assemble import LABEL, CodeShape, assemble, stack_depths
from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.decode import Native, Positions, Region, decode
from dynamo.bytecode.emit import SUSPENDING, Emitter, frame_prologue
from dynamo.continuations.parts import (
    REMATERIALISED,
    Call,
    Callee,
    Item,
    Pushed,
    Rematerialisations,
    parameters_of,
    rematerialised_parameters,
    rematerialising,
)


class CannotResume(Exception):
    """A continuation cannot start here (the start of a frame; a generator's loop)."""


@dataclass(frozen=True)
class Origin:
    """The origin of a continuation; `code` is None once the function's code is gone."""

    code: CodeType | None
    lineno: int | None


_JUMPS = frozenset(["POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"])
_DROPPED_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | versions.CO_HAS_DOCSTRING
MOST_KINDS = 64  # see has_room
UNBOUND_LOCAL = ".unbound"  # a local that never has a value


class _Template:
    """A function's instructions, kept for its continuations, with a weak reference to the code."""

    def __init__(self, code: CodeType) -> None:
        self.code = weakref.ref(code)
        self.shape = CodeShape.of(code)
        natives = decode(code)
        self.natives, self.place_of = _explicit_super(natives, code)
        self.natives += _unbound_errors(self.natives, code)
        depths, _ = stack_depths(self.natives)
        self.depths = [depths.get(id(native)) for native in self.natives]
        self.kinds: dict[
            int, set[Rematerialisations]
        ] = {}  # place -> the operands that continuations there make
        self.start = next(i for i, native in enumerate(self.natives) if native.op == "RESUME")
        # Weak: a frame that runs a continuation keeps it.
        self.made: weakref.WeakValueDictionary[object, CodeType] = weakref.WeakValueDictionary()

    def copy(self) -> list[Native]:
        """Fresh natives; `offset` is their place in the template."""
        copies = [
            Native(n.op, n.value, n.flags, positions=n.positions, offset=i)
            for i, n in enumerate(self.natives)
        ]
        place = {id(n): copy for n, copy in zip(self.natives, copies)}
        regions: dict[int, Region] = {}
        for native, copy in zip(self.natives, copies):
            if native.target is not None:
                copy.target = place[id(native.target)]
            region = native.handler
            if region is not None:
                if id(region) not in regions:
                    target = place[id(region.target)]
                    regions[id(region)] = Region(target, region.depth, region.push_lasti)
                copy.handler = regions[id(region)]
        return copies


@dataclass(frozen=True)
class Start:
    """Arguments that a continuation was made with. parameters: all names, before others took the
    places of some; stack: on entry, or below the operands of the callee's call.
    """

    parameters: tuple[str, ...]
    stack: tuple[Item, ...]
    local_names: tuple[str, ...]
    made: Rematerialisations
    own_cells: frozenset[str]
    callee: Callee | None = None


@dataclass(frozen=True, slots=True)
class _Continuation:
    """Where a continuation came from, and where its instructions are in the template.

    A continuation in the middle of a call calls at its native instruction `call`; the template's
    own call is at `places[call]`, and goes on at `after_call`.
    """

    template: _Template
    lineno: int | None
    places: list[int]  # by native index; -1: of the continuation's own prologue
    called: bool  # by a continuation, not by the loop that runs what breaks return
    call: int = -1
    after_call: int = -1
    exhausted: int = -1  # of a call that FOR_ITER makes: where the loop's end goes on
    pushed: tuple[Pushed, ...] = (True,)
    arguments: tuple[str, ...] = ()  # the names of the callee's arguments for the user
    held: tuple[str, ...] = ()  # and those of the objects made here
    start: Start | None = None  # None: of a loop


_templates: CodeMap[_Template] = CodeMap()
_continuations: CodeMap[_Continuation] = CodeMap()


def origin(code: CodeType) -> Origin | None:
    """The function that a continuation continues, and where; None for any other code."""
    made = _continuations.get(code)
    return Origin(made.template.code(), made.lineno) if made is not None else None


def users_name(code: CodeType, parameter: str) -> str:
    """The user's name for a parameter of a continuation: a local of the function that it continues
    or of a caller's callee, or the result of a part of an expression.
    """
    if parameter.startswith(".stack"):
        function = origin(code)
        line = "" if function is None else f" of line {function.lineno}"
        return f"intermediate value {parameter.removeprefix('.stack')}{line}"
    made = _continuations.get(code)
    if made is not None and parameter.startswith(REMATERIALISED):
        return made.held[int(parameter.removeprefix(REMATERIALISED))]
    if made is None or not parameter.startswith(".argument"):
        return parameter
    return made.arguments[int(parameter.removeprefix(".argument"))]


def _names_in(callee: Callee) -> tuple[str, ...]:
    names = callee.code.co_varnames[: callee.arguments]
    return tuple([users_name(callee.code, name) for name in names])


def _names_of(made: Rematerialisations) -> tuple[str, ...]:
    return tuple([name for item in made for name in item.names])


def is_called(code: CodeType) -> bool:
    """Whether a continuation is called by a caller's continuation, which wants its result."""
    made = _continuations.get(code)
    return made is not None and made.called


def start_of(code: CodeType) -> tuple[Instruction, Start] | None:
    """The instruction of a function at which a continuation begins, which may be the call of a
    callee's continuation; None: another code, or the continuation of a loop.
    """
    made = _continuations.get(code)
    if made is None or made.start is None:
        return None
    program = normalize(code)
    if made.start.callee is not None:
        return next(instr for instr in program if _is_own_call(made, instr)), made.start
    jump = next(i for i in program if i.op == "JUMP" and made.places[i.native] < 0)
    assert jump.target is not None, "jumps have targets"
    return jump.target, made.start


def pushed_by_call(code: CodeType, instr: Instruction) -> tuple[Pushed, ...] | None:
    """The values that the call in a continuation's prologue leaves on the stack; None: another
    call.
    """
    made = _continuations.get(code)
    return made.pushed if made is not None and _is_own_call(made, instr) else None


def end_of_loop(code: CodeType, instr: Instruction) -> Instruction:
    """Where a loop goes on that ends at `instr`: FOR_ITER, or its call in a continuation."""
    made = _continuations.get(code)
    if made is None or not _is_own_call(made, instr):
        assert instr.target is not None, "jumps have targets"
        return instr.target
    native = made.places.index(made.exhausted)
    return next(found for found in normalize(code) if found.native == native)


def after_call(code: CodeType, instr: Instruction) -> tuple[Instruction, int]:
    """Where a frame goes on behind a call, which may be its own in a continuation, and how many
    NULLs are above what the call leaves on the canonical stack there.
    """
    made = _continuations.get(code)
    if made is None or not _is_own_call(made, instr):
        return normalize(code)[instr.index + 1], 0
    native = made.places.index(made.after_call)
    # An instruction that only pushes a NULL is left out here.
    following = next(found for found in normalize(code) if found.native >= native)
    return following, len(instr.pending_nulls) - len(following.pending_nulls)


def parameter_names(stack: Sequence[Item], local_names: Sequence[str]) -> tuple[str, ...]:
    """A continuation's parameters: VALUE and HANDLING items from the bottom up, then locals."""
    items = (f".stack{i}" for i, item in enumerate(stack) if _has_parameter(item))
    return (*items, *local_names)


def make_resume_code(
    code: CodeType,
    index: int,
    *,
    stack: Sequence[Item],
    local_names: Sequence[str],
    called: bool = False,
    made: Rematerialisations = (),
    own_cells: frozenset[str] = frozenset(),
) -> CodeType:
    """The continuation of `code` (a function or a continuation) at canonical instruction `index`.

    stack: the canonical stack before that instruction, bottom first. local_names: locals (no cells)
    that have a value and may be read later; the others start without one. (A cell's name among them
    is the variable of an inlined comprehension, which uses the slot while the cell is on the
    stack.) Parameters: in the order of `parameter_names`. Equal arguments give the same code object
    as long as somebody keeps it. called: see `is_called`. made: what takes the places of
    parameters; what it is made of comes behind the others. own_cells: those that the continuation
    makes itself, empty.

    Raises CannotResume where the frame has not started; ValueError where stack or
    locals do not fit.
    """
    instr = normalize(code)[index]
    template, place = _locate(code, instr)
    key = (
        *(place, instr.pending_nulls, tuple(stack), tuple(local_names), called),
        *(made, own_cells),
    )
    known = template.made.get(key)
    if known is not None:
        return known
    parameters = parameter_names(stack, local_names)
    names = _parameters_with(made, parameters)
    shape = _shape(template.shape, names, local_names, own_cells)
    real = _real_items(instr, stack)
    _check_depth(template, place, len(real), instr)
    start = rematerialising(made, parameters, instr.lineno)
    entry = [*_entry(shape, real, instr.lineno, start), _jump(instr.lineno)]
    natives = [*entry, *template.copy()]
    entry[-1].target = natives[len(entry) + place]
    resumed, places, _ = _assembled(natives, shape)
    template.made[key] = resumed
    held = _names_of(made)
    begin = Start(parameters, tuple(stack), tuple(local_names), made, own_cells)
    continuation = _Continuation(template, instr.lineno, places, called, held=held, start=begin)
    _continuations.set(resumed, continuation)
    return resumed


def make_loop_code(
    code: CodeType,
    index: int,
    *,
    stack: Sequence[Item],
    local_names: Sequence[str],
    results: Sequence[str],
) -> CodeType:
    """The loop whose FOR_ITER is the canonical instruction `index`, as a function that returns the
    tuple of the locals `results` at its end. Its parameters are those of `make_resume_code`.
    """
    if code.co_flags & SUSPENDING:
        raise CannotResume(f"a loop of {code.co_qualname} may yield")
    instr = normalize(code)[index]
    template, place = _locate(code, instr)
    assert instr.target is not None, "jumps have targets"
    end = _locate(code, instr.target)[1]
    key = ("loop", place, instr.pending_nulls, tuple(stack), tuple(local_names), tuple(results))
    known = template.made.get(key)
    if known is not None:
        return known
    shape = _shape(template.shape, parameter_names(stack, local_names), local_names)
    real = _real_items(instr, stack)
    _check_depth(template, place, len(real), instr)
    entry = [*_entry(shape, real, instr.lineno), _jump(instr.lineno)]
    body = template.copy()
    entry[-1].target = body[place]
    left = _leave_loop(template.depths[end] or 0, results, instr.positions)
    for native in body:
        if native.target is body[end]:
            native.target = left[0]
    made = _assembled([*entry, *body[:end], *left, *body[end:]], shape)[0]
    template.made[key] = made
    return made


def _leave_loop(depth: int, results: Sequence[str], positions: Positions) -> list[Native]:
    """Return the locals; a value on the stack may be NULL, which a local can hold."""
    emit = Emitter()
    emit.set_location(None, positions)
    for _ in range(depth):
        emit.store_fast(".dropped")
    for name in results:
        emit.load_fast(name)
    emit.build_tuple(len(results))
    emit.return_value()
    return emit.natives


def make_call_code(
    code: CodeType,
    index: int,
    *,
    stack: Sequence[Item],
    local_names: Sequence[str],
    callee: Callee,
    called: bool = False,
    made: Rematerialisations = (),
    own_cells: frozenset[str] = frozenset(),
) -> CodeType:
    """The continuation of `code` in the middle of its call at canonical instruction `index`.

    stack: what is below the call's operands. Parameters: those of `parameter_names`, then the
    callee as a function if its code has free variables, its arguments, and what is pushed besides
    its result.
    """
    instr = normalize(code)[index]
    template, place, after, exhausted = _locate_call(code, instr)
    key = (
        *(place, instr.pending_nulls, tuple(stack), tuple(local_names), called),
        *(callee.key, made, own_cells),
    )
    known = template.made.get(key)
    if known is not None:
        return known
    arguments = [f".argument{i}" for i in range(callee.arguments)]
    pushed = parameters_of(callee.pushed)
    function = [".callee"] if callee.code.co_freevars else []
    own = parameter_names(stack, local_names)
    parameters = (*own, *function, *arguments, *pushed)
    names = _parameters_with(made, parameters)
    shape = _shape(template.shape, names, local_names, own_cells)
    real = _real_items(instr, stack, below_call=True)
    _check_depth(template, after, len(real) + len(callee.pushed), instr)
    body = template.copy()
    call = Call(callee, arguments, body[place].handler, instr.positions, len(real))
    start = rematerialising(made, parameters, instr.lineno)
    natives = [*_entry(shape, real, instr.lineno, start), *call.natives, *body]
    for native in call.goes_on:
        native.target = body[after]
    if call.ends_loop is not None:
        call.ends_loop.target = body[exhausted]
    at = next(native for native in call.natives if native.op == "CALL")
    at.offset = place
    resumed, places, kept = _assembled(natives, shape)
    template.made[key] = resumed
    number = next(i for i, native in enumerate(kept) if native is at)
    _continuations.set(
        resumed,
        _Continuation(
            template,
            instr.lineno,
            places,
            called,
            number,
            after,
            exhausted,
            callee.pushed,
            _names_in(callee),
            _names_of(made),
            Start(parameters, tuple(stack), tuple(local_names), made, own_cells, callee),
        ),
    )
    return resumed


def has_room(code: CodeType, index: int, made: Rematerialisations) -> bool:
    """Whether a continuation there may rematerialise `made`: generators that have gone on at one
    place in too many ways are not worth a continuation each.
    """
    if not made:
        return True
    instr = normalize(code)[index]
    found = _continuations.get(code)
    own_call = found is not None and _is_own_call(found, instr)
    template, place = _locate_call(code, instr)[:2] if own_call else _locate(code, instr)
    kinds = template.kinds.setdefault(place, set())
    kinds.add(made)
    return len(kinds) <= MOST_KINDS


def _parameters_with(made: Rematerialisations, parameters: Sequence[str]) -> tuple[str, ...]:
    """The parameters that are not rematerialised, and the parameters of those that are."""
    taken = {place for item in made for place in item.places}
    others = [name for place, name in enumerate(parameters) if place not in taken]
    return (*others, *rematerialised_parameters(made))


def _real_items(
    instr: Instruction, stack: Sequence[Item], below_call: bool = False
) -> list[tuple[Item, str]]:
    """The real stack, each item with its parameter."""
    items = [(item, f".stack{i}") for i, item in enumerate(stack)]
    if below_call and instr.op == "CALL_KW":
        items.append((Item.VALUE, ""))  # the names, which are not on the real stack
    return real_stack(instr, items, lambda item: item[0] is Item.NULL, (Item.NULL, ""))


def _check_depth(template: _Template, place: int, depth: int, instr: Instruction) -> None:
    if template.depths[place] != depth:
        raise ValueError(
            f"stack of {depth} items where {template.depths[place]} belong, before {instr}"
        )


def _assembled(natives: list[Native], shape: CodeShape) -> tuple[CodeType, list[int], list[Native]]:
    """The code, the template's places of its instructions, and those instructions."""
    depths = stack_depths(natives)
    kept = [native for native in natives if id(native) in depths[0] and native.op != LABEL]
    places = [native.offset for native in kept]
    return assemble(natives, shape, depths), places, kept


def _locate(code: CodeType, instr: Instruction) -> tuple[_Template, int]:
    """The template of `code`, and the place in the template that continues at `instr`."""
    made = _continuations.get(code)
    if made is not None and _is_own_call(made, instr):
        raise CannotResume(f"{code.co_qualname} has not started at {instr}")
    if made is not None:
        template, place = made.template, made.places[instr.native]
    else:
        template = _templates.computed(code, lambda: _Template(code))
        place = template.place_of[instr.native]
    if place <= template.start:
        raise CannotResume(f"{code.co_qualname} has not started at {instr}")
    return template, place


def _is_own_call(made: _Continuation, instr: Instruction) -> bool:
    return made.call == instr.native and instr.op == "CALL"


def _locate_call(code: CodeType, instr: Instruction) -> tuple[_Template, int, int, int]:
    """The template of `code`, the place of its call, the place behind it, and that at the end of
    the loop if FOR_ITER makes the call.
    """
    made = _continuations.get(code)
    if made is not None and _is_own_call(made, instr):
        return made.template, made.places[made.call], made.after_call, made.exhausted
    template, place = _locate(code, instr)
    # A conditional jump finds the truth that it asked for on the stack.
    following = instr if instr.op in _JUMPS else normalize(code)[instr.index + 1]
    # NULLs that are pending then are pushed in between.
    nulls = len(following.pending_nulls) - len(instr.pending_nulls)
    exhausted = -1
    if instr.op == "FOR_ITER":
        assert instr.target is not None, "jumps have targets"
        exhausted = _locate(code, instr.target)[1]
    return template, place, _locate(code, following)[1] - nulls, exhausted


def _shape(
    original: CodeShape,
    parameters: tuple[str, ...],
    local_names: Sequence[str],
    own: Collection[str] = (),
) -> CodeShape:
    cells = original.cellvars + original.freevars
    freevars = tuple([name for name in cells if name not in own])
    aside = set(cells).intersection(local_names)
    if aside and not versions.HAS_LOAD_FAST_AND_CLEAR:
        raise ValueError(f"cells are shared, not passed: {sorted(aside)}")
    if len(set(parameters)) < len(parameters):
        raise ValueError(f"parameters clash: {', '.join(parameters)}")
    parameters = tuple(_slot_parameter(n) if n in aside else n for n in parameters)
    return replace(
        original,
        flags=original.flags & ~_DROPPED_FLAGS | (inspect.CO_NESTED if freevars else 0),
        argcount=len(parameters),
        posonlyargcount=0,
        kwonlyargcount=0,
        varnames=parameters,
        cellvars=tuple([name for name in cells if name in own]),
        freevars=freevars,
        docstring=None,
    )


def _entry(
    shape: CodeShape,
    real: Sequence[tuple[Item, str]],
    lineno: int | None,
    rematerialising: Sequence[Native] = (),
) -> list[Native]:
    """The start of a continuation: the real stack as it was.

    Parameters are cleared as they are pushed, so that nothing lives longer than it did.
    """
    emit = Emitter()
    emit.set_location(lineno)
    for item, parameter in real:
        if item is Item.NULL:
            emit.push_null()
        elif item is Item.UNBOUND:
            emit.emit("LOAD_FAST_AND_CLEAR", UNBOUND_LOCAL)
        else:
            emit.load_fast_and_clear(parameter)
        if item is Item.HANDLING:
            emit.push_exc_info()
            emit.pop_top()
    for name in shape.freevars:
        if _slot_parameter(name) in shape.varnames:
            emit.load_fast_and_clear(_slot_parameter(name))
            emit.store_fast(name)
    return [*frame_prologue(shape), *rematerialising, *emit.natives]


def _jump(lineno: int | None) -> Native:
    emit = Emitter()
    emit.set_location(lineno)
    emit.jump(emit.label())
    return emit.natives[-1]


def _explicit_super(natives: list[Native], code: CodeType) -> tuple[list[Native], list[int]]:
    """super() -> super(__class__, self), since it looks for the frame's first argument.

    On 3.12 and later `super().attribute` has both on the stack and a flag that says to use them.
    Returns the new instructions and, by index of the old ones, their places.
    """
    result: list[Native] = []
    place_of: list[int] = []
    can_be_super = "__class__" in code.co_freevars and code.co_argcount > 0
    for i, native in enumerate(natives):
        place_of.append(len(result))
        if can_be_super and native.op == "CALL" and native.value == 0 and _is_super(natives[:i]):
            this = code.co_varnames[0]
            load = "LOAD_DEREF" if this in code.co_cellvars else "LOAD_FAST"
            for op, name in (("LOAD_DEREF", "__class__"), (load, this)):
                result.append(Native(op, name, positions=native.positions, handler=native.handler))
            native.value = 2
        elif native.op == "LOAD_SUPER_ATTR":
            native.flags |= versions.SUPER_TWO_ARGUMENTS
        result.append(native)
    return result, place_of


def _unbound_errors(natives: list[Native], code: CodeType) -> list[Native]:
    """Handlers that raise UnboundLocalError where a cell of the function's own has no value.

    In a continuation it is a free variable, for which Python raises NameError.
    """
    # Not those that a comprehension inlined here puts aside for its own variables.
    aside = {native.value for native in natives if native.op == "LOAD_FAST_AND_CLEAR"}
    own = set(code.co_cellvars) - aside
    handlers: list[Native] = []
    for native in natives:
        if native.op in ("LOAD_DEREF", "DELETE_DEREF") and native.value in own:
            raising = _raise_unbound(native)
            native.handler = Region(raising[0], None, False)
            handlers += raising
    return handlers


def _raise_unbound(native: Native) -> list[Native]:
    text = f"cannot access local variable {native.value!r} where it is not associated with a value"
    emit = Emitter()
    emit.set_location(None, native.positions)
    emit.pop_top()  # the NameError
    emit.load_callable(lambda: emit.load_const(UnboundLocalError))
    emit.load_const(text)
    emit.call(1)
    emit.emit("RAISE_VARARGS", 1)
    for raising in emit.natives:
        raising.handler = native.handler
    return emit.natives


def _is_super(before: list[Native]) -> bool:
    """Whether the instructions before a CALL without arguments end in loading `super`."""
    if before and before[-1].op == "PUSH_NULL":
        before = before[:-1]
    return bool(before) and before[-1].op == "LOAD_GLOBAL" and before[-1].value == "super"


def _slot_parameter(name: str) -> str:
    return f".slot.{name}"


def _has_parameter(item: Item) -> bool:
    return item in (Item.VALUE, Item.HANDLING)
