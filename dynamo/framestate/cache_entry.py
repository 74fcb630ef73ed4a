"""Cache entries: the guard tree and the new code of a frame, or the frame's own code to be kept."""

from __future__ import annotations

import functools
import logging
import sys
import sysconfig
import time
from typing import TYPE_CHECKING, Any

import torch

from dynamo import _hook
from dynamo.bytecode.cache import when_gone
from dynamo.framestate.modes import asks_overrides, outside_early_stop
from dynamo.framestate.overwrite_guards import guard_overwrites
from dynamo.guards.filters import kept
from dynamo.guards.sources import GlobalsSource
from dynamo.values.tensors.memory_overlap import history_of, may_be_written

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.framestate.rewrite import Rewritten
    from dynamo.interp.output import OutputGraph
    from dynamo.records import FrameRecord

log_guards = logging.getLogger("dynamo.guards")
log_recompiles = logging.getLogger("dynamo.recompiles")

# Folders of installed packages, those of an environment below this one among them.
LIBRARIES = tuple(
    {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    | {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
)


def keep_original(
    frame: Any, context: CompileContext, rewritten: Rewritten, record: FrameRecord, only_now: bool
) -> Any:
    """Guarded skip of a frame without tensor operations: other arguments may lead to some.
    `only_now`: the condition that sets these arguments apart is unknown.

    Library frames below the compiled function are left alone for good: most of them are helpers.
    """
    if context.records and frame.f_code.co_filename.startswith(LIBRARIES):
        return None
    _guard_symbols(rewritten.output, record)
    if rewritten.output.installed:  # guards lead through it
        rewritten.output.publish()
    if only_now:
        rewritten.output.guards.add(GlobalsSource(), "predicate", never)
    _guard_lookups(rewritten.output)
    tree = rewritten.output.guards.build()
    return _hook.GuardedCode(frame.f_code, tree, True, record.compile_id)


def finish(frame: Any, rewritten: Rewritten, record: FrameRecord) -> Any:
    """Build the guard tree, publish the globals of the new code, and make the cache entry."""
    start = time.perf_counter()
    output = rewritten.output
    output.guards.add(None, "globals")
    output.guards.add(GlobalsSource(), "address", id(frame.f_globals))
    if output.has_overrides:
        output.guards.add(GlobalsSource(), "predicate", asks_overrides)
    if is_cut_by_early_stop(output, record):
        output.guards.add(GlobalsSource(), "predicate", outside_early_stop)
    published = output.publish() if output.installed else None
    sources = [*output.not_aliased_sources(), *output.guard_parts()]
    if len(sources) > 1:
        output.guards.add(None, "not_aliased", tuple(sources))
    statics = output.static_ids()
    for source in sources if statics else ():
        output.guards.add(source, "not_among", statics)
    guard_overwrites(output)
    _guard_written(output)
    for group in (*output.side_effects.distinct_sources(), *output.distinct_groups()):
        output.guards.add(None, "not_aliased", group)
    _guard_symbols(output, record)
    _guard_marks(output)
    _guard_lookups(output)
    if output.context.guard_filter is not None:
        output.guards.drop_all_but(kept(output.guards, output.context.guard_filter))
    tree = output.guards.build()
    record.guards = list(tree.describe())
    record.times["guards"] = time.perf_counter() - start
    if log_guards.isEnabledFor(logging.DEBUG):
        log_guards.debug("%s %s\n%s", record.compile_id, record.name, "\n".join(record.guards))
    if published is not None:
        names = list(output.installed)
        when_gone(rewritten.code, functools.partial(_unpublish, published, names))
    return _hook.GuardedCode(rewritten.code, tree, rewritten.needs_hook, record.compile_id)


def is_cut_by_early_stop(output: OutputGraph, record: FrameRecord) -> bool:
    """Whether effects that wait for the graph would be lost if saving its tensors ended the run."""
    waits = bool(record.graphs) and output.side_effects.changes_anything()
    return waits and torch.is_grad_enabled()


def _guard_lookups(output: OutputGraph) -> None:
    """Guard the names of torch, the standard library and builtins that capture looked up."""
    names = output.lookups.payload()
    if names:
        output.guards.add(None, "lookups", names)


def _guard_marks(output: OutputGraph) -> None:
    """Tensors that come later may be marked otherwise (mark_dynamic, mark_static)."""
    for item in output.inputs:
        if not item.static and isinstance(item.example, torch.Tensor):
            answered = output.symbols.answered_marks(item.example, item.source)
            if answered is not None:
                output.guards.add(item.source, "marks", answered)


def _guard_written(output: OutputGraph) -> None:
    """Guard that autograd records writes to those tensors as in capture: not to leaves."""
    for item in output.checks.written():
        before, after = item.history, history_of(item.node.meta["example_value"])
        if before is not None and after is not before:
            output.guard(item.source, "predicate", may_be_written)


def never(_: Any) -> bool:
    """The guard that holds for no call."""
    return False


def _guard_symbols(output: OutputGraph, record: FrameRecord) -> None:
    """Guard the assumptions about symbolic sizes and numbers."""
    if not output.symbols.active:
        return
    output.symbols.check_marks()
    output.guards.add(None, "shapes", output.symbols.guard_payload())
    record.symbols = list(dict.fromkeys(output.symbols.reasons))
    for text in record.symbols:
        log_recompiles.debug("%s %s: %s", record.compile_id, record.name, text)


def _unpublish(published: dict[str, Any], names: list[str]) -> None:
    """Remove the globals that only the new code loads, which is gone."""
    for name in names:
        published.pop(name, None)
