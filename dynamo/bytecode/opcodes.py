"""The canonical instruction set: one table that gives each op's family and stack effect.

An effect is written `before -- after`, top of stack at the right, as in CPython's own definitions.
`x*n` stands for as many items as a rule over the instruction's argument says (`_COUNTS`). Where a
jump leaves another stack than falling through does, its effect follows after `| jump:`. Capture
registers one handler per op; `normalize` maps every version's native opcodes onto these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

_TABLE = """
locals
  LOAD_FAST                 -- value
  LOAD_FAST_AND_CLEAR       -- value_or_unbound
  STORE_FAST                value_or_unbound --
  DELETE_FAST               --
  LOAD_DEREF                -- value
  STORE_DEREF               value --
  DELETE_DEREF              --
  LOAD_CLOSURE              -- cell
  LOAD_CLASSDEREF           -- value
  LOAD_FROM_DICT_OR_DEREF   mapping -- value
  MAKE_CELL                 --
  COPY_FREE_VARS            --
names
  LOAD_CONST                -- value
  LOAD_NAME                 -- value
  STORE_NAME                value --
  DELETE_NAME               --
  LOAD_GLOBAL               -- value
  STORE_GLOBAL              value --
  DELETE_GLOBAL             --
  LOAD_LOCALS               -- mapping
  LOAD_FROM_DICT_OR_GLOBALS mapping -- value
  LOAD_BUILD_CLASS          -- function
  LOAD_ASSERTION_ERROR      -- class
  SETUP_ANNOTATIONS         --
  IMPORT_NAME               level fromlist -- module
  IMPORT_FROM               module -- module value
attributes
  LOAD_ATTR                 object -- value
  STORE_ATTR                value object --
  DELETE_ATTR               object --
  LOAD_METHOD               object -- callable self_or_null
  LOAD_SUPER_ATTR           super class self -- value
  LOAD_SUPER_METHOD         super class self -- callable self_or_null
items
  BINARY_SUBSCR             container key -- value
  STORE_SUBSCR              value container key --
  DELETE_SUBSCR             container key --
  BINARY_SLICE              container start stop -- value
  STORE_SLICE               value container start stop --
calls
  PUSH_NULL                 -- null
  CALL                      callable self_or_null args*n -- result
  CALL_KW                   callable self_or_null args*n kwnames -- result
  CALL_FUNCTION_EX          callable null args kwargs*kw -- result
  CALL_INTRINSIC_1          value -- result
  CALL_INTRINSIC_2          value value -- result
  MAKE_FUNCTION             extras*flags code -- function
  SET_FUNCTION_ATTRIBUTE    attribute function -- function
operators
  BINARY_OP                 left right -- result
  UNARY_NEGATIVE            value -- result
  UNARY_POSITIVE            value -- result
  UNARY_NOT                 value -- result
  UNARY_INVERT              value -- result
  COMPARE_OP                left right -- result
  IS_OP                     left right -- bool
  CONTAINS_OP               left right -- bool
  TO_BOOL                   value -- bool
build
  BUILD_TUPLE               items*n -- tuple
  BUILD_LIST                items*n -- list
  BUILD_SET                 items*n -- set
  BUILD_MAP                 pairs*2n -- dict
  BUILD_CONST_KEY_MAP       values*n keys -- dict
  BUILD_STRING              parts*n -- str
  BUILD_SLICE               bounds*n -- slice
  LIST_APPEND               list rest*n-1 value -- list rest*n-1
  LIST_EXTEND               list rest*n-1 iterable -- list rest*n-1
  SET_ADD                   set rest*n-1 value -- set rest*n-1
  SET_UPDATE                set rest*n-1 iterable -- set rest*n-1
  MAP_ADD                   dict rest*n-1 key value -- dict rest*n-1
  DICT_UPDATE               dict rest*n-1 mapping -- dict rest*n-1
  DICT_MERGE                dict rest*n-1 mapping -- dict rest*n-1
  LIST_TO_TUPLE             list -- tuple
  UNPACK_SEQUENCE           sequence -- items*n
  UNPACK_EX                 sequence -- items*ex
  CONVERT_VALUE             value -- str
  FORMAT_SIMPLE             value -- str
  FORMAT_WITH_SPEC          value spec -- str
stack
  POP_TOP                   value --
  COPY                      item rest*n-1 -- item rest*n-1 item
  SWAP                      item rest*n-2 top -- top rest*n-2 item
  NOP                       --
  RESUME                    --
jumps
  JUMP                      -- | jump: --
  POP_JUMP_IF_TRUE          condition -- | jump: condition --
  POP_JUMP_IF_FALSE         condition -- | jump: condition --
  POP_JUMP_IF_NONE          value -- | jump: value --
  POP_JUMP_IF_NOT_NONE      value -- | jump: value --
  JUMP_IF_TRUE_OR_POP       condition -- | jump: condition -- condition
  JUMP_IF_FALSE_OR_POP      condition -- | jump: condition -- condition
  RETURN_VALUE              value --
iteration
  GET_ITER                  iterable -- iterator
  FOR_ITER                  iterator -- iterator value | jump: iterator --
  END_FOR                   --
  GET_LEN                   value -- value length
match
  MATCH_MAPPING             subject -- subject bool
  MATCH_SEQUENCE            subject -- subject bool
  MATCH_KEYS                subject keys -- subject keys values_or_none
  MATCH_CLASS               subject class names -- attributes_or_none
exceptions
  PUSH_EXC_INFO             exception -- previous exception
  POP_EXCEPT                previous --
  CHECK_EXC_MATCH           exception class -- exception bool
  CHECK_EG_MATCH            group class -- rest match
  RERAISE                   lasti*n exception --
  RAISE_VARARGS             exception_and_cause*n --
with
  BEFORE_WITH               manager -- exit value
  BEFORE_ASYNC_WITH         manager -- exit awaitable
  WITH_EXCEPT_START         exit lasti previous exception -- exit lasti previous exception result
generators
  RETURN_GENERATOR          -- none
  YIELD_VALUE               value -- sent
  GET_YIELD_FROM_ITER       iterable -- iterator
  SEND                      receiver value -- receiver sent | jump: receiver value -- receiver end
  END_SEND                  receiver result -- result
  CLEANUP_THROW             receiver last exception -- none value
  GET_AWAITABLE             value -- awaitable
  GET_AITER                 value -- iterator
  GET_ANEXT                 iterator -- iterator awaitable
  END_ASYNC_FOR             iterator exception --
"""

# How many items `x*RULE` stands for, from the instruction's argument.
_COUNTS: dict[str, Callable[[int], int]] = {
    "n": lambda arg: arg,
    "n-1": lambda arg: arg - 1,
    "n-2": lambda arg: arg - 2,
    "2n": lambda arg: 2 * arg,
    "ex": lambda arg: (arg & 0xFF) + (arg >> 8) + 1,
    "kw": lambda arg: arg & 1,
    "flags": lambda arg: arg.bit_count(),
}

# Ops after which the next instruction is not reached by falling through.
NO_FALLTHROUGH = frozenset({"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})


@dataclass(frozen=True)
class Opcode:
    """A canonical opcode."""

    name: str
    family: str
    effect: str
    jump_effect: str | None


def _parse(table: str) -> dict[str, Opcode]:
    ops: dict[str, Opcode] = {}
    family = ""
    for line in filter(None, table.splitlines()):
        if not line.startswith(" "):
            family = line
            continue
        name, _, effects = line.strip().partition(" ")
        effect, _, jump = effects.partition("| jump:")
        ops[name] = Opcode(name, family, effect.strip(), jump.strip() or None)
    return ops


CANONICAL: dict[str, Opcode] = _parse(_TABLE)
FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(op.name for op in CANONICAL.values() if op.family == family)
    for family in dict.fromkeys(op.family for op in CANONICAL.values())
}


def _count(side: str, arg: int) -> int:
    total = 0
    for item in side.split():
        _, star, rule = item.partition("*")
        total += _COUNTS[rule](arg) if star else 1
    return total


@functools.cache
def stack_effect(op: str, arg: int, jump: bool = False) -> tuple[int, int]:
    """(items popped, items pushed) by a canonical instruction."""
    entry = CANONICAL[op]
    effect = entry.jump_effect if jump and entry.jump_effect is not None else entry.effect
    before, _, after = effect.partition("--")
    return _count(before, arg), _count(after, arg)
