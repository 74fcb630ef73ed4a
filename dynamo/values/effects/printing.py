"""print: the text is made while capturing, and shown by the rewritten frame after the graph, in the
order of the program's prints, log records and warnings. Where that could be seen to be late (an
operation that may fail follows, see fxgraph/fallible_operations.py), the graph breaks before that
operation. Values without a text while capturing (tensors), and files other than
sys.stdout and sys.stderr, break.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, ModuleSource
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import handles
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.conversions import text_value
from dynamo.values.scalars.symbolic_text import concatenated

if TYPE_CHECKING:
    pass


def show(text: str, stream: str, flush: bool) -> None:
    """Print text, called by a rewritten frame. stream: its name in sys."""
    print(text, end="", file=getattr(sys, stream), flush=flush)


def is_text_stream(stream: Any) -> bool:
    """A stream of the standard library: nothing that captured code looks into."""
    return stream is None or isinstance(stream, io.TextIOBase)


@handles(print)
def _print(tx, *values, sep=None, end=None, file=None, flush=None):
    name = "stdout" if is_none(file) else _stream(file)
    source = AttrSource(ModuleSource("sys"), name)
    replaced = tx.output.side_effects.load_global(vars(sys), name) is not None
    in_body = tx.output.bodies and not tx.output.side_effects.watches
    if replaced or not is_text_stream(getattr(sys, name)) or in_body:
        raise Unsupported(breaks.UncapturedCall("print"))
    parts = concatenated([text_value(tx, v, str) for v in values], _option(sep, " "))
    text = concatenated([parts, ConstantValue(_option(end, "\n"))])
    if not text.truth(tx):  # may change the stream
        raise Unsupported(breaks.UncapturedCall("print"))
    tx.guard(source, "predicate", is_text_stream)
    flushed = flush is not None and flush.truth(tx)
    tx.output.side_effects.call_later(show, text, name, flushed, before_writes=True)
    tx.output.side_effects.shown = True


def _stream(file: Value) -> str:
    """The name in sys of the stream that `file` was read from."""
    for name in ("stdout", "stderr"):
        if file.source == AttrSource(ModuleSource("sys"), name):
            return name
    raise Unsupported(breaks.UncapturedCall("print to a file"))


def _option(value: Value | None, default: str) -> str:
    if value is None or is_none(value):
        return default
    if value.python_type() is not str:  # Python has words for it
        raise Unsupported(breaks.UncapturedCall("print"))
    return value.as_constant()
