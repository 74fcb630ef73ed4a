"""Objects that the rewritten frame reaches through weak references.

    try:                                     before anything else
        target = table["key"]()
    except Exception:                        a WeakValueDictionary has dropped the item, or
        target = None
    if target is None:                       collected since the guards saw it
        return <the function as it was>(x)
    out = compiled_graph(x, target.weight)

The garbage collector runs at any time, in other threads, too, and the guards hold nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from dynamo.framestate.check_codegen import CheckCodegen
from dynamo.framestate.materialise import Codegen
from dynamo.guards.sources import Source, TargetSource


def hold_targets(
    codegen: Codegen,
    loaded: Iterable[TargetSource],
    inputs: Iterable[Source],
    checking: CheckCodegen,
) -> None:
    """Hold the `loaded` objects, and those on the way to `inputs`, for as long as the frame
    runs.
    """
    found = [target for source in loaded for target in _on_the_way(source)]
    found += [target for source in inputs for target in _on_the_way(source)]
    targets = [target for target in dict.fromkeys(found) if not target.made_by_frame]
    if not targets:
        return
    failed, gone, held = codegen.label(), codegen.label(), codegen.label()
    emit = codegen.emit
    with codegen.exception_region(failed, depth=0):
        for index, target in enumerate(targets):
            local = f"__target_{index}"
            target.load(emit)
            emit.copy(1)
            emit.store_fast(local)
            emit.targets[target] = local
            emit.pop_jump_if_none(gone)
    emit.jump(held)
    emit.place(failed)
    checking.keep_only_exceptions(codegen)
    emit.place(gone)
    checking.run_original(codegen)
    emit.place(held)


def _on_the_way(source: Source) -> list[TargetSource]:
    """The references that are followed to reach `source`, the first of them first."""
    found: list[TargetSource] = []
    step: Source | None = source
    while step is not None:
        if isinstance(step, TargetSource):
            found.append(step)
        step = step.base
    return found[::-1]
