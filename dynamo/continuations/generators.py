"""Generators and coroutines that capture has started, made again: a function that is entered in the
middle.

    def g(n):                        def g(.stack0, n):      # items of the stack, then locals
        for i in range(n):               push .stack0
            yield i           ->         yield None          # as far as next(g(...)) comes
    #         ^ suspended                jump behind the yield, with the sent value on the stack
                                         for i in range(n):  # the whole body of g, as it was
                                             yield i

The first `yield` stands in the same `try` and `with` blocks, and is followed by the same RESUME, as
the one that it stands for: throw(), close() and gi_yieldfrom find what they look for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from dynamo.bytecode import normalize
from dynamo.bytecode.decode import Native
from dynamo.continuations.parts import Item
from dynamo.continuations.resume import (
    _assembled,
    _check_depth,
    _Continuation,
    _continuations,
    _entry,
    _jump,
    _locate,
    _real_items,
    _shape,
    parameter_names,
)


def make_generator_code(
    code: CodeType, index: int, *, stack: Sequence[Item], local_names: Sequence[str]
) -> CodeType:
    """`code`, a generator's, suspended at its YIELD_VALUE at canonical instruction `index`.

    stack: the items below the yielded value. Parameters and the other arguments are those of
    resume.make_resume_code. values/iterators/generator.py starts it.
    """
    program = normalize(code)
    after = program[index + 1]
    template, place = _locate(code, after)
    at_yield = _locate(code, program[index])[1]
    key = ("generator", place, tuple(stack), tuple(local_names))
    known = template.made.get(key)
    if known is not None:
        return known
    shape = _shape(template.shape, parameter_names(stack, local_names), local_names)
    real = _real_items(after, stack)
    _check_depth(template, place, len(real) + 1, after)
    body = template.copy()
    jump = _jump(after.lineno)
    jump.target = body[place + 1]
    entry = [*_entry(shape, real, after.lineno), *_yield(body, at_yield), jump]
    made, places, _ = _assembled([*entry, *body], shape)
    template.made[key] = made
    _continuations.set(made, _Continuation(template, after.lineno, places, False))
    return made


def _yield(body: list[Native], at: int) -> list[Native]:
    """yield None, in the place of the yield at `at`: suspended here again, a
    generator goes on behind that.
    """
    natives = [Native("LOAD_CONST", None)]
    natives += [
        Native(n.op, n.value, n.flags, handler=n.handler, offset=n.offset)
        for n in body[at : at + 2]
    ]
    for native in natives:
        native.positions = body[at].positions
    return natives
