"""export(): one whole graph of a function or module, or an error that names the break."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynamo import _hook
from dynamo.api.compile import compile_fresh
from dynamo.api.module import CompiledModule
from dynamo.directives import check_callable
from dynamo.errors import Unsupported
from dynamo.onnx_file import write_onnx
from dynamo.saved.saving import save
from dynamo.saved.schedule import varying
from dynamo.saved.signature import Bound
from dynamo.static_graph import Graph as StaticGraph
from fxgraph import Graph, GraphModule
from fxgraph.graph_module import fetch_attribute


class Number(int):
    """A number that the graph returns, told from others by its identity."""


class RealNumber(float):
    """As Number."""


@dataclass
class Captured:
    """The part of a capture that saving a program needs.

    gm, examples: as the backend gets them. results: of the graph. returned: by the user's
    function. changes: its other effects.
    """

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gm: GraphModule
    examples: list[Any]
    results: Sequence[Any]
    returned: Any
    changes: list[str]
    grad: bool


class Exported:
    """A captured program: `.graph_module`, `.graph`, `.guards`; calling it takes the original's
    arguments.

    Parameters and buffers are attributes of the graph module, named after their path; its
    placeholders are the user's tensors. `.guards` are the conditions, as text, that arguments have
    to meet: a call raises RecompileLimitExceeded otherwise.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        guards: list[str],
        call: Callable[..., Any],
        captured: Captured | None = None,
    ):
        self.graph_module = graph_module
        self.graph = graph_module.graph
        self.guards = guards
        self._call = call
        self._captured = captured

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file, weights inside. Inputs have the names of the parameters (x;
        batch['ids'] is batch_ids), results are output_0, ...

        Raises ImportError without the packages of the extra `onnx`, Unsupported for a graph that
        no ONNX file can hold.
        """
        assert self._captured is not None, "made by export"
        write_onnx(self.graph_module, path, _input_names(self._captured))

    def __str__(self) -> str:
        return self.graph_module.code

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        weights: bool = True,
        training: bool | None = None,
        targets: Sequence[str] = (),
        standalone: bool | str = False,
        steps: int = 10_000,
    ) -> None:
        """Write the program into one file that dynamo.load reads without the model's source.

        weights: with the parameters and buffers, as they are now; or without, to be given at load.
        training: with the backward; by default where the call was made in grad mode and something
            of it requires grad.
        targets: levels of the instruction set ("x86-64-v3", "x86-64-v4") to compile kernels for,
            which dynamo.load(path, trust_kernels=True) uses where there is no compiler.
        standalone: with a plan for the runner without Python (`python -m dynamo runner`), and
            its kernels in place of those for dynamo.load: for `targets`, or x86-64-v3 if there
            are none. ProgramError names the operators for which there is no kernel of ours;
            "libtorch" leaves these to libtorch, which the runner is built with
            (`python -m dynamo runner --libtorch`). The file holds weights twice where kernels read
            them in another layout; with weights=False once, as the runner reads them, and
            dynamo.load is given them.
        steps: of a Graph with schedulers, for how many steps from now on the file has learning
            rates (schedulers are Python objects, which no file holds).

        Raises ProgramError for objects that a file cannot hold, and where the file cannot be
        written; ValueError and TypeError for arguments that have no meaning.
        """
        assert self._captured is not None, "made by export"
        save(
            self._captured,
            path,
            weights=weights,
            training=training,
            targets=targets,
            standalone=standalone,
            steps=steps,
        )


def export(fn: Callable[..., Any]) -> Callable[..., Exported]:
    """export(fn)(*args, **kwargs) -> Exported. fn is called once. Numbers read from tensors
    (`item()`) and sizes that depend on data (`nonzero()`) vary; torch._check tells what may be
    relied on.

    fn may be a dynamo.Graph: its step is exported, with its optimizers, schedulers and GradScaler
    as they are (after a first step, which makes their state).

    Raises TypeError at once for an object that cannot be called; the call raises Unsupported,
    naming the place, where the graph would break.
    """
    check_callable("export", fn)

    @functools.wraps(fn, updated=())
    def inner(*args: Any, **kwargs: Any) -> Exported:
        captured: list[tuple[GraphModule, list[Any]]] = []
        results: list[Any] = []

        def keep(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            captured.append((gm, list(example_inputs)))

            def run(*inputs: Any) -> Any:
                made = gm.forward(*inputs)
                if results:
                    return made
                results[:] = map(_marked, made)  # of the capture's own call
                return tuple(results)

            return run

        if isinstance(fn, StaticGraph):
            compiled, context = fn._graph.exporter(fn, keep, varying(fn._graph))
        else:
            settings: dict[str, Any] = {
                "mode": None,
                "options": None,
                "fullgraph": True,
                "export": True,
            }
            compiled, context = compile_fresh(fn, backend=keep, **settings)
        grad = torch.is_grad_enabled()
        returned = compiled(*args, **kwargs)
        if len(captured) != 1:
            name = getattr(fn, "__qualname__", type(fn).__name__)
            raise Unsupported(f"{name} has no tensor operation to export")
        gm, examples = captured[0]
        guards = [guard for frame in context.records for guard in frame.guards]
        noted = [change for frame in context.records for change in frame.changes]
        changes = [change.text for change in noted if not change.is_none()]
        original: Any = fn
        if isinstance(fn, CompiledModule):
            original = fn._orig_mod
        elif isinstance(fn, _hook.Compiled):
            original = fn.__wrapped__
        about = Captured(original, args, kwargs, gm, examples, results, returned, changes, grad)
        module = _with_parameters(_copied(gm), examples)
        return Exported(module, guards, _hook.run_or_error(compiled), about)

    return inner


def _input_names(captured: Captured) -> dict[str, str]:
    """Of the placeholders that stand for arguments."""
    bound = Bound(captured.fn, captured.args, captured.kwargs)
    paths = {id(leaf): path for leaf, path in zip(bound.leaves, bound.paths)}
    nodes = captured.gm.graph.find_nodes(op="placeholder")
    return {
        node.name: re.sub(r"\W+", "_", paths[id(example)]).strip("_")
        for node, example in zip(nodes, captured.examples, strict=True)
        if isinstance(example, torch.Tensor) and id(example) in paths
    }


def _marked(value: Any) -> Any:
    if type(value) is int:
        return Number(value)
    return RealNumber(value) if type(value) is float else value


def _copied(gm: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    module = GraphModule(gm, graph)
    module.meta.update(gm.meta)
    return module


def _with_parameters(gm: GraphModule, example_inputs: list[Any]) -> GraphModule:
    """Static placeholders become get_attr of parameters that the module holds."""
    root = torch.nn.Module()
    graph = gm.graph
    for node in graph.find_nodes(op="get_attr"):  # bodies of control flow, constants
        setattr(root, str(node.target), fetch_attribute(gm, str(node.target)))
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, tensor in zip(placeholders, example_inputs, strict=True):
        if not node.meta.get("static"):
            continue
        if isinstance(tensor, torch.nn.Parameter):
            root.register_parameter(node.name, tensor)
        else:
            root.register_buffer(node.name, tensor)
        with graph.inserting_before(node):
            attr = graph.get_attr(node.name)
        attr.meta = dict(node.meta)
        node.replace_all_uses_with(attr)
        graph.erase_node(node)
    exported = GraphModule(root, graph)
    exported.meta = dict(gm.meta)
    return exported
