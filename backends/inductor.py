"""backend="inductor": fused C++ and Triton kernels; the default.

The function carries `options` (name -> (default, meaning)) and `modes` (name -> the options it
sets), which dynamo.compile checks; options that torch.compile documents are translated first.
"reduce-overhead" replays device graphs, and is the default on CPUs; "max-autotune" measures all
products, too, and on a GPU the forms of all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backends import aot_eager
from backends.autograd import OpByOp, backend_function, under_autograd, whole_or_split
from backends.registry import register_backend
from fxgraph import GraphModule, faults
from fxgraph.aot import Unfunctionalizable
from inductor.options import Options, describe, translate


@register_backend
@backend_function
def inductor(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """`options`: see dynamo.list_options(). A graph that cannot be made functional, or that works
    with gradients itself, runs op by op; explain shows the reason. So it does after a fault of
    ours that the stages cannot go around.
    """
    import inductor as compiler  # the package, which this function shares its name with

    compiler.Options.of(options)  # raises

    def training(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return compiler.compile_training(gm, example_inputs, options=options)

    def compiled(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        watched = under_autograd(gm, example_inputs, training)
        if watched is not None:
            return watched
        try:
            return compiler.compile_graph(gm, example_inputs, options=options)
        except Unfunctionalizable as error:
            return OpByOp(gm, str(error), autograd=False)

    def whole(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            return compiled(gm, example_inputs)
        except Exception as error:
            return _without_kernels(gm, example_inputs, error)

    try:
        return whole_or_split(gm, example_inputs, whole)
    except Exception as error:
        return _op_by_op(gm, error)


def _without_kernels(
    gm: GraphModule, example_inputs: Sequence[Any], fault: Exception
) -> Callable[..., Any]:
    """After a fault: backend="aot_eager", or if that has one too, the captured graph."""
    faults.insist(fault)
    try:
        whole = aot_eager.compile_whole(gm, example_inputs)
    except Exception as another:
        faults.insist(another)
        return _op_by_op(gm, fault)
    if isinstance(whole, OpByOp):
        return _op_by_op(gm, fault)
    note = faults.tell(fault, "functionalize", 'the graph runs as with backend="aot_eager"')
    whole.compile_report = {"notes": [note], "no_plan": note}  # type: ignore[attr-defined]
    return whole


def _op_by_op(gm: GraphModule, fault: Exception) -> OpByOp:
    faults.insist(fault)
    note = faults.tell(fault, "functionalize", "the captured graph runs as it is")
    whole = OpByOp(gm, "after a fault", autograd=False)
    whole.compile_report["notes"] = [note]
    return whole


def trace(gm: GraphModule, example_inputs: Sequence[Any], *, training: bool) -> Any:
    """The functional graph of `gm`, or with `training` its forward and backward: what saved
    programs hold.
    """
    import inductor as compiler

    return compiler.trace(gm, example_inputs, training=training)


def compile_traced(
    traced: Any,
    example_inputs: Sequence[Any],
    name: Sequence[str],
    about: Callable[[], Any],
) -> Callable[..., Any]:
    """Compile the result of `trace`; only the static inputs are read. name: strings that
    distinguish the graph from any other. about: makes data for `recall_traced`.
    """
    import inductor as compiler

    return compiler.compile_named(traced, example_inputs, name, about)


def recall_traced(
    name: Sequence[str], example_inputs: Sequence[Any]
) -> tuple[Callable[..., Any], Any] | None:
    """The result of compile_traced for the graph of this name, made now or in another process, and
    the result of `about`; or None. Of written inputs the caller checks that they share memory as
    they did.
    """
    import inductor as compiler

    return compiler.recall_named(name, example_inputs)


def run_shipped(
    traced: Any, example_inputs: Sequence[Any], shipped: dict[str, Any]
) -> Callable[..., Any]:
    """As compile_traced, by these libraries of kernels, by digest, where there is no compiler."""
    import inductor as compiler
    from inductor.runtime import shipped as ahead

    ahead.offer(shipped)
    return compiler.compile_traced(traced, example_inputs, options=ahead.OPTIONS)


def missing_compiler() -> str | None:
    """None where there is a C++ compiler, else the missing part."""
    from inductor.runtime import toolchain

    try:
        toolchain.find_compiler()
    except toolchain.NoCompiler as error:
        return str(error)
    return None


def kernels_for(
    traced: Any, example_inputs: Sequence[Any], targets: Sequence[str]
) -> dict[tuple[str, str], bytes]:
    """(target, digest) -> library, of all kernels of what `trace` gave."""
    import inductor as compiler
    from inductor.runtime import shipped as ahead

    with ahead.collected() as sources:
        compiler.compile_traced(traced, example_inputs, options=ahead.OPTIONS)
    return {
        (target, ahead.digest_of(units)): ahead.compile_for(units, target)
        for target in targets
        for units in sources
    }


def save_used() -> tuple[bytes, list[str]] | None:
    """The cache entries that this process made or used, as an archive
    (inductor/runtime/archive.py).
    """
    from inductor.runtime import archive

    return archive.save_used()


def load_archive(data: bytes) -> list[str] | None:
    """Puts such an archive into this machine's cache."""
    from inductor.runtime import archive

    return archive.load_archive(data)


def standalone(
    traced: Any, example_inputs: Sequence[Any], targets: Sequence[str], library: str
) -> Any:
    """The part of `trace`'s result for a runner without Python (inductor/runner/section.py)."""
    from inductor.runner import section

    return section.standalone(traced, example_inputs, targets, library)


def check_targets(targets: Sequence[str]) -> None:
    """Raise ValueError for names that are no instruction set for which kernels are compiled."""
    from inductor.runtime.shipped import TARGETS

    if isinstance(targets, str):
        raise ValueError(f"targets is a list, such as [{targets!r}], not a string")
    unknown = [target for target in targets if target not in TARGETS]
    if unknown:
        raise ValueError(f"no target {unknown[0]!r}; the targets are: {', '.join(TARGETS)}")


def runs_here(target: str) -> bool:
    """Whether this processor has the instructions of a target."""
    from inductor.runtime import shipped as ahead

    return ahead.runs_here(target)


inductor.trace = trace  # type: ignore[attr-defined]
inductor.compile_traced = compile_traced  # type: ignore[attr-defined]
inductor.recall_traced = recall_traced  # type: ignore[attr-defined]
inductor.run_shipped = run_shipped  # type: ignore[attr-defined]
inductor.missing_compiler = missing_compiler  # type: ignore[attr-defined]
inductor.kernels_for = kernels_for  # type: ignore[attr-defined]
inductor.standalone = standalone  # type: ignore[attr-defined]
inductor.check_targets = check_targets  # type: ignore[attr-defined]
inductor.runs_here = runs_here  # type: ignore[attr-defined]
inductor.check_options = Options.of  # type: ignore[attr-defined]
inductor.options = describe()  # type: ignore[attr-defined]
inductor.translate_options = translate  # type: ignore[attr-defined]
inductor.modes = {  # type: ignore[attr-defined]
    "default": {},
    "reduce-overhead": {"device_graphs": 8},
    "max-autotune": {"tuning": "full", "device_graphs": 8},
    "max-autotune-no-cudagraphs": {"tuning": "full"},
}
