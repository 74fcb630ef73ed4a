"""From an exported program to the sections of a file.

program     JSON: signature, symbols, graphs, results, places of tensors
constants   tensors of the program's own, one after the other
weights     parameters and buffers, likewise; absent with weights=False
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo.backend_lookup import lookup_backend
from dynamo.errors import ProgramError
from dynamo.guards.sources import TensorSizeSource, TensorStrideSource
from dynamo.saved import container
from dynamo.saved.memory import Memory
from dynamo.saved.nests import nest_of
from dynamo.saved.plan_section import runner_sections
from dynamo.saved.schedule import Schedule
from dynamo.saved.signature import CONSTANTS, Bound
from dynamo.static_graph import Graph as StaticGraph
from dynamo.version import __version__
from fxgraph import Graph, GraphModule, Node
from fxgraph.aot import (
    FunctionalGraph,
    UndifferentiableHere,
    Unfunctionalizable,
    asks_for_gradients,
    needs_autograd,
)
from fxgraph.aot.number_outputs import numbers_as_tensors, returns_numbers
from fxgraph.args import leaves
from fxgraph.passes.both_sides import Kept, with_both_sides
from fxgraph.serialize import SerializeError, argument_to_json
from fxgraph.stored import (
    GraphReader,
    GraphWriter,
    StoredError,
    env_from_data,
    env_to_data,
    foreign_namespaces,
    to_data,
)
from fxgraph.stored.tensors import tensor_to_data
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbolic

if TYPE_CHECKING:
    from dynamo.saved.export import Captured


def save(
    captured: Captured,
    path: str | os.PathLike[str],
    *,
    weights: bool,
    training: bool | None,
    targets: Sequence[str],
    standalone: bool | str,
    steps: int,
) -> None:
    """Write `captured` to `path`."""
    if training is not None and not isinstance(training, bool):
        raise TypeError(f"training is True, False or None, not {training!r}")
    if type(steps) is not int or steps < 1:
        raise ValueError(f"steps is a positive number of steps, not {steps!r}")
    if standalone not in (False, True, "libtorch"):
        raise ValueError(f'standalone is True, False or "libtorch", not {standalone!r}')
    lookup_backend("inductor").check_targets(targets)  # type: ignore[attr-defined]
    saving = Saving(captured, weights, steps)
    runner: dict[str, Any] = {}
    try:
        data = saving.program(training)
        text = json.dumps(data, allow_nan=False).encode()
        if standalone:
            library = standalone if isinstance(standalone, str) else ""
            runner = runner_sections(saving, json.loads(text), targets, library)
    except (StoredError, SerializeError) as error:
        raise ProgramError(f"{saving.name} cannot be saved: {error}") from error
    sections: dict[str, Any] = {"program": [text], "constants": saving.constants.chunks}
    if weights:
        sections["weights"] = saving.weights.chunks
    if targets and not standalone:
        sections.update(saving.kernels(json.loads(text), targets))
    sections.update(runner)
    container.write(path, sections)


class Saving:
    """Writes a program as data."""

    def __init__(self, captured: Captured, with_weights: bool, steps: int) -> None:
        self.captured = captured
        self.with_weights = with_weights
        fn = captured.fn
        self.name = getattr(fn, "__qualname__", None) or type(fn).__name__
        self.constants, self.weights = Memory(), Memory()
        self.tensors: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []
        self.names, self.known = _state_names(fn)
        self.writer = GraphWriter(self.tensor)
        self.no_backward = "save(training=False)"  # why there is none, if there is none
        if captured.changes:
            raise ProgramError(
                f"{self.name} cannot be saved: beside computing tensors it "
                f"{'; it '.join(captured.changes)}. (What a first call sets up, a second one finds "
                "done: call it once before it is exported)"
            )
        state = fn._graph if isinstance(fn, StaticGraph) else None
        scheduled = state is not None and bool(state.schedulers)
        self.schedule = Schedule(state, steps, self.fail) if scheduled else None
        try:
            self.bound = Bound(fn, captured.args, captured.kwargs)
        except RecursionError:
            raise ProgramError(f"{self.name} cannot be saved: an argument holds itself") from None

    def fail(self, text: str) -> ProgramError:
        return ProgramError(f"{self.name} cannot be saved: {text}")

    # -- tensors ----------------------------------------------------------------------------------
    def tensor(self, tensor: torch.Tensor, fallback: str | None = None) -> int:
        """The number of a tensor that the program holds. `fallback`: its name if no module has
        one for it.
        """
        key = id(tensor)
        if key in self._numbers:
            return self._numbers[key]
        if tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
            raise self.fail(f"a {type(tensor).__name__} of layout {tensor.layout} in it")
        names = self.names.get(key, [])
        row: dict[str, Any] = {
            "names": names,
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "requires_grad": tensor.requires_grad,
            **tensor_to_data(tensor),
        }
        if fallback and not names:
            row["label"] = fallback
        if not names:
            row["constants"] = self.constants.place(tensor)
        elif self.with_weights:
            row["weights"] = self.weights.place(tensor)
        self._alive.append(tensor)
        self.tensors.append(row)
        self._numbers[key] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def held(self, number: int) -> torch.Tensor:
        """The tensor of a number."""
        return self._alive[number]

    # -- the program ------------------------------------------------------------------------------
    def program(self, training: bool | None) -> dict[str, Any]:
        captured, bound = self.captured, self.bound
        env = _env_of(captured.gm)
        if env is not None:
            env.locate = lambda: (None, "")  # capture, which knows the line, has ended
        gm, outputs = self._outputs()
        inputs = self._graph_inputs(gm)
        graphs = self._graphs(gm, training)
        schedule = self.schedule
        data = {
            "framegraph": __version__,
            "torch": torch.__version__,
            "name": self.name,
            "symbols": env_to_data(env),
            "signature": {
                "parameters": bound.parameters(),
                "nest": bound.nest,
                "leaves": self._leaves(),
                "reads": self._reads(env),
            },
            "graph_inputs": inputs,
            "graphs": graphs,
            "outputs": outputs,
            "tensors": self.tensors,
            "state_names": self.known,
            "grad_mode": captured.grad,
            "default_dtype": str(torch.get_default_dtype()),
            "no_backward": self.no_backward,
            "schedule": schedule.data(self.constants.place, self.tensor) if schedule else None,
        }
        self._verify(data)
        return data

    def _leaves(self) -> list[dict[str, Any]]:
        by_id: dict[int, int] = {}
        fakes = {
            id(example): node.meta["val"]
            for node, example in zip(_placeholders(self.captured.gm), self.captured.examples)
        }
        rows = []
        for number, (value, path) in enumerate(zip(self.bound.leaves, self.bound.paths)):
            row: dict[str, Any] = {"path": path}
            symbol = self._symbol_of.get(number)
            if isinstance(value, torch.Tensor):
                first = by_id.setdefault(id(value), number)
                if first != number:
                    row["same_as"] = first
                else:
                    fake = fakes.get(id(value), value)
                    grad = value.requires_grad
                    row["tensor"] = {**tensor_to_data(fake), "requires_grad": grad}
            elif symbol is not None:
                row["symbol"] = symbol
            elif isinstance(value, CONSTANTS):
                row["constant"] = argument_to_json(value)
            else:
                raise self.fail(f"input {path} is a {type(value).__name__}")
            rows.append(row)
        return rows

    def _reads(self, env: Any) -> dict[str, Any]:
        """Where each symbol's value is found in a call."""
        found = {}
        for symbol, info in env.symbols.items() if env is not None else ():
            if info.hint is not None:
                found[symbol.name] = self._read(info)
        return found

    def _read(self, info: Any) -> list[Any]:
        source = info.source
        if self.schedule is not None and source.name in self.schedule.numbers:
            return ["schedule", self.schedule.numbers[source.name]]
        kinds = {TensorSizeSource: "size", TensorStrideSource: "stride"}
        kind = kinds.get(type(source))
        leaf = self.bound.names.get(source.origin.name if kind else source.name)
        if leaf is None:
            return ["fixed", info.hint]  # of the program's contents
        return [kind, leaf, source.dim] if kind else ["number", leaf]

    @property
    def _symbol_of(self) -> dict[int, str]:
        env = _env_of(self.captured.gm)
        reads = self._reads(env)
        return {where[1]: name for name, where in reads.items() if where[0] == "number"}

    def _graph_inputs(self, gm: GraphModule) -> list[list[Any]]:
        by_id = {
            id(value): number
            for number, value in reversed(list(enumerate(self.bound.leaves)))
            if isinstance(value, torch.Tensor)
        }
        found: list[list[Any]] = []
        for node, example in zip(_placeholders(gm), self.captured.examples, strict=True):
            if not isinstance(example, torch.Tensor):
                found.append(["symbol", node.meta["val"].node._expr.name])
            elif id(example) in by_id and not node.meta.get("static"):
                found.append(["leaf", by_id[id(example)]])
            else:
                node.meta["static"] = True
                found.append(["tensor", self.tensor(example, node.meta.get("source"))])
        return found

    # -- graphs -----------------------------------------------------------------------------------
    def _graphs(self, gm: GraphModule, training: bool | None) -> dict[str, Any]:
        examples = self.captured.examples
        reason = asks_for_gradients(gm)
        if reason:
            raise self.fail(f"{reason}, which autograd has to watch")
        chosen = self._without_branches(gm)
        if chosen is not gm:
            self.no_backward = "a branch on data, whose gradients are those of the side that ran"
            if training or any(node.target is torch.autograd.grad for node in gm.graph.nodes):
                raise self.fail(f"it has {self.no_backward}: {_BOTH_SIDES}")
            gm, training = chosen, False
        trace = lookup_backend("inductor").trace  # type: ignore[attr-defined]
        with torch.set_grad_enabled(self.captured.grad):
            differentiated = needs_autograd(gm, examples) is not None
            if training and not differentiated:
                raise self.fail("nothing of it requires grad, or it was exported without grad mode")
            found: dict[str, Any] = {}
            try:
                if differentiated and training is not False:
                    found = self._with_backward(
                        lambda: trace(gm, examples, training=True), training
                    )
                if "step" not in found:
                    found["inference"] = self.writer.functional(trace(gm, examples, training=False))
            except (Unfunctionalizable, UndifferentiableHere) as error:
                raise self.fail(str(error)) from error
        return found

    def _without_branches(self, gm: GraphModule) -> GraphModule:
        try:
            return with_both_sides(gm)
        except Kept as error:
            raise self.fail(f"{error}: {_BOTH_SIDES}") from error

    def _with_backward(self, trace: Any, required: bool | None) -> dict[str, Any]:
        """The graph with its backward; an obstacle is reported when a backward is requested."""
        try:
            traced = trace()
            if isinstance(traced, FunctionalGraph):
                return {"step": self.writer.functional(traced)}
        except (Unfunctionalizable, UndifferentiableHere) as error:
            if required:
                raise
            self.no_backward = str(error)
            return {}
        return {"training": self.writer.training(traced)}

    def _outputs(self) -> tuple[GraphModule, dict[str, Any]]:
        """The graph with its own results (tensors, and numbers that depend on data), and the
        program's result in terms of these.
        """
        captured = self.captured
        node = captured.gm.graph.output_node()
        returned = node.args[0]
        vals = [one.meta["val"] if isinstance(one, Node) else one for one in returned]
        kept = [
            i
            for i, val in enumerate(vals)
            if isinstance(captured.results[i], torch.Tensor) or depends_on_data(val)
        ]
        place = {i: n for n, i in enumerate(kept)}
        graph = Graph()
        made: dict[Any, Any] = {}
        graph.graph_copy(captured.gm.graph, made)
        graph.output(tuple(made[returned[i]] for i in kept))
        graph.eliminate_dead_code()
        gm = GraphModule(captured.gm, graph)
        gm.meta.update(captured.gm.meta)
        if numbers := returns_numbers(gm):
            with_tensors = numbers_as_tensors(gm, numbers)
            if with_tensors is None:
                raise self.fail("a result is a condition that depends on data")
            gm = with_tensors
        rows: list[list[Any]] = []

        def leaf(value: Any, path: str) -> int:
            row = self._returned(value, path, returned, place)
            is_number = row[0] == "output" and row[1] in numbers
            rows.append(["item", row[1]] if is_number else row)
            return len(rows) - 1

        nest = nest_of(captured.returned, leaf, "the result")
        results = gm.graph.output_node().args[0]
        shapes = [tensor_to_data(one.meta["val"]) for one in results]
        return gm, {"nest": nest, "leaves": rows, "shapes": shapes}

    def _returned(self, value: Any, path: str, nodes: Sequence[Any], place: Any) -> list[Any]:
        for i, result in enumerate(self.captured.results):
            if result is value and i in place:
                return ["output", place[i]]
            if result is value:
                val = nodes[i].meta["val"] if hasattr(nodes[i], "meta") else nodes[i]
                data = to_data(expr_of(val)) if is_symbolic(val) else argument_to_json(val)
                return ["number", data]
        if isinstance(value, torch.Tensor):
            for number, leaf in enumerate(self.bound.leaves):
                if leaf is value:
                    return ["leaf", number]
            return ["tensor", self.tensor(value, path)]
        if isinstance(value, CONSTANTS):
            return ["constant", argument_to_json(value)]
        raise self.fail(f"{path} is a {type(value).__name__}: neither a tensor nor a number")

    # -- kernels ----------------------------------------------------------------------------------
    def kernels(self, data: Any, targets: Sequence[str]) -> dict[str, list[bytes]]:
        """The sections of libraries, compiled from the program as its reader has it."""
        graphs, inputs = self.read_back(data)
        make = lookup_backend("inductor").kernels_for  # type: ignore[attr-defined]
        found: dict[str, list[bytes]] = {}
        for graph in graphs.values():
            for (target, digest), library in make(graph, inputs, targets).items():
                found[kernel_section(target, digest)] = [library]
        return found

    def read_back(self, data: Any) -> tuple[dict[str, Any], list[Any]]:
        """The graphs as a reader has them, and their static inputs (None: an input of calls)."""
        inputs = [
            self._alive[where] if kind == "tensor" else None for kind, where in data["graph_inputs"]
        ]
        return self._reading(data), inputs

    # -- check ------------------------------------------------------------------------------------
    def _verify(self, data: dict[str, Any]) -> None:
        """Raise where reading would give another graph."""
        self._reading(json.loads(json.dumps(data, allow_nan=False)))

    def _reading(self, data: Any) -> dict[str, Any]:
        foreign = set().union(*map(foreign_namespaces, data["graphs"].values()))
        return read_graphs(data, self._alive, self.name, foreign)


def kernel_section(target: str, digest: str) -> str:
    """The name of the section that holds a library."""
    return f"kernels/{target}/{digest}"


def read_graphs(
    data: Any, tensors: Sequence[torch.Tensor], name: str, foreign: Collection[str]
) -> dict[str, Any]:
    """The graphs of a program's data. foreign: namespaces of other libraries' operators that they
    may call.

    Each has a ShapeEnv of its own: the checks of one are unknown to the others.
    """
    graphs: dict[str, Any] = {}
    for kind, graph in data["graphs"].items():
        reader = GraphReader(env_from_data(data["symbols"]), tensors, foreign)
        read = reader.training if kind == "training" else reader.functional
        if kind not in ("training", "inference", "step"):
            raise StoredError(f"no kind of graph {kind[:40]!r}")
        graphs[kind] = read(graph, name)
    if not graphs:
        raise StoredError("no graph")
    return graphs


_BOTH_SIDES = "compute both sides and choose with torch.where"
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _state_names(fn: Any) -> tuple[dict[int, list[str]], list[str]]:
    """id of a parameter or buffer -> its names in the state dict; and all names there, in order."""
    module = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    if isinstance(fn, StaticGraph):
        module = fn._root()
    if not isinstance(module, torch.nn.Module):
        return {}, []
    found: dict[int, list[str]] = {}
    known: list[str] = []
    absent = {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules(remove_duplicate=False)
        for name in part._non_persistent_buffers_set
    }
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
        *(_optimizer_state(fn) if isinstance(fn, StaticGraph) else ()),
    ):
        if name not in absent:
            found.setdefault(id(tensor), []).append(name)
            known.append(name)
    return found, known


def _optimizer_state(graph: StaticGraph) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of the optimizers' state, named as in the state dict, and of the scaler's."""
    for i, optimizer in enumerate(graph._graph.optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizers.{i}.state.{number}.{key}", value
    scaler = graph.config.grad_scaler
    for key in ("_scale", "_growth_tracker"):
        if isinstance(tensor := getattr(scaler, key, None), torch.Tensor):
            yield f"grad_scaler.{key}", tensor


def _placeholders(gm: GraphModule) -> list[Any]:
    return gm.graph.find_nodes(op="placeholder")


def _env_of(gm: GraphModule) -> Any:
    return getattr(gm.meta.get("fake_mode"), "shape_env", None)


__all__ = ["Saving", "leaves", "read_graphs", "save"]
