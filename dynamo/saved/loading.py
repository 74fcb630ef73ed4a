"""From the sections of a file to a program that can be called."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from dynamo.errors import ProgramError
from dynamo.saved.compilers import Compiler, compiler_for, operator_by_operator
from dynamo.saved.container import Container
from dynamo.saved.nests import check_nest, maker
from dynamo.saved.saving import read_graphs
from dynamo.saved.schedule import Rates
from dynamo.saved.show import text_of
from dynamo.saved.signature import Signature
from fxgraph import Node
from fxgraph.aot import FunctionalGraph
from fxgraph.aot.runtime import same_sharing
from fxgraph.serialize import SerializeError, argument_from_json
from fxgraph.stored import (
    StoredError,
    assumed,
    env_from_data,
    evaluator,
    foreign_namespaces,
    from_data,
    sharing_of,
    to_data,
)
from fxgraph.stored.tensors import dtype_of, tensor_to_data
from fxgraph.symbolic_values import is_symbol

# The exceptions that reading of contradictory data may end in.
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError,
            ArithmeticError, MemoryError)  # fmt: skip


def load(
    path: str | os.PathLike[str],
    weights: Mapping[str, torch.Tensor] | None = None,
    *,
    backend: str = "inductor",
    trust_kernels: bool = False,
    operators: Sequence[str] = (),
) -> Program:
    """The program that Exported.save wrote into this file; the model's source is not needed.

    weights: parameters and buffers by the names of the state dict (of a Graph: its state dict), of
        a program that was saved without them; used as they are, not copied: a training step
        changes them.
    backend: "inductor" compiles for this machine, now: the graph that a call made now would run (of
        a program that was saved with its backward, the grad mode decides which), the other one when
        first called. Kernels and plans are kept in the cache. "aot_eager" runs operator by
        operator.
    trust_kernels: where there is no C++ compiler, run the kernels of the file that were compiled
        for this processor (`targets` of Exported.save). They are machine code: whoever made the
        file can make it do anything. Without, or where none fits, such machines run operator by
        operator, with one warning.
    operators: namespaces of other libraries (torch.library) whose operators the program may call;
        they are to be imported before.

    No other code is taken from the file. Raises ProgramError for a file that is damaged, cut off,
    of a newer format or no saved program, and for weights that do not fit, TypeError for
    `operators` that are a string.
    """
    if isinstance(operators, str):
        raise TypeError(f"operators is a list of namespaces, such as [{operators!r}]")
    container = Container(path)
    compiler = compiler_for(container, backend, trust_kernels)
    grad = torch.is_grad_enabled()
    # Tensors made in inference mode would be of use nowhere else.
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        return Program(container, weights, compiler, operators)


def read_program(container: Container) -> Any:
    """The JSON of a program."""
    section = container.section("program")
    try:
        data = json.loads(bytes(section))
        if not isinstance(data, dict):
            raise TypeError("no object")
        return data
    except (ValueError, TypeError, RecursionError) as error:
        raise container.fail("damaged: its program is none") from error


class Program:
    """A loaded program: called as the original, with the weights, without the modules.

    name: of the exported function. path: the file. schedule: learning rates by step, of a training
    step with schedulers; else None.
    """

    def __init__(
        self,
        container: Container,
        weights: Mapping[str, torch.Tensor] | None,
        compiler: Compiler,
        operators: Sequence[str] = (),
    ) -> None:
        self.path = container.path
        self._container = container
        self._compiler = compiler
        self._operators = operators
        self.data = data = read_program(container)
        self._graphs: dict[str, Any] = {}  # once they were read
        self._compiled: dict[str, _Compiled] = {}
        self._lock = threading.RLock()  # of reading and compiling
        self._stepping = threading.Lock()  # of a training step
        for name in container.names:
            container.section(name)  # raises for a damaged one
        with self._reading():
            self.name = str(data["name"])
            self._kinds = frozenset(data["graphs"])
            if self._kinds != {"step"} and "inference" not in self._kinds:
                raise StoredError(f"it has the graphs {sorted(self._kinds)}")
            tensors = Tensors(container, data, weights)
            self._tensors = tensors.made
            order = {str(name): number for number, name in enumerate(data["state_names"])}
            named = sorted(tensors.names.items(), key=lambda item: order[item[0]])
            self._names: dict[str, torch.Tensor] = dict(named)
            self._env = env_from_data(data["symbols"])
            self.schedule = tensors.schedule()
            self._signature = Signature(
                data["signature"], data["symbols"], self._env, self.name, self.schedule
            )
            self._inputs = self._readers(data["graph_inputs"])
            self._result = self._results(data["outputs"])
            self._check_default_dtype()
            self._grad_mode = bool(data["grad_mode"])
            self._no_backward = str(data["no_backward"])
            rows = data["signature"]["leaves"]
            wanted = any(row["tensor"]["requires_grad"] for row in rows if "tensor" in row)
            self._compiled_for(self._kind(wanted) or "inference")

    # -- reading ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn any exception while reading into the one error of the file."""
        try:
            yield
        except ProgramError:
            raise
        except (StoredError, SerializeError) as error:
            raise self._container.fail(f"no program: {error}") from error
        except _DAMAGES as error:
            text = f"{type(error).__name__}: {str(error)[:200]}"
            raise self._container.fail(f"damaged: its program is none ({text})") from error

    def graph(self, kind: str) -> Any:
        """A graph, read. All are read and checked at once."""
        with self._lock, self._reading():
            if not self._graphs:
                graphs = read_graphs(self.data, self._tensors, self.name, self._operators)
                self._check_inputs(graphs, self.data["graph_inputs"])
                self._graphs = graphs
        return self._graphs[kind]

    def _readers(self, rows: Any) -> list[tuple[str, Any]]:
        leaves = len(self.data["signature"]["leaves"])
        limits = {"leaf": leaves, "tensor": len(self._tensors)}
        names = {symbol.name for symbol in self._env.symbols} if self._env else set()
        for kind, where in rows:
            known = (
                where in names
                if kind == "symbol"
                else (type(where) is int and 0 <= where < limits[kind])
            )
            if not known:
                raise StoredError(f"a graph's input is {str((kind, where))[:80]}")
        return [(kind, where) for kind, where in rows]

    def _check_inputs(self, graphs: Mapping[str, Any], rows: Any) -> None:
        """The graphs' inputs are what the signature and the tensors say, and so are their numbers
        of results.
        """
        for kind, graph in graphs.items():
            if len(frame_of(graph).structure) != self._result_count:
                raise StoredError(f"the graph {kind} has another number of results")
            module = graph.forward.graph_module if kind == "training" else graph.graph_module
            nodes = module.graph.find_nodes(op="placeholder")
            for node, (place, where) in zip(nodes, rows, strict=True):
                self._check_input(node, place, where)

    def _check_input(self, node: Node, place: str, where: Any) -> None:
        """The placeholder is the symbol, the argument's leaf or the tensor at this place."""
        val = node.meta["val"]
        if place == "symbol":
            if not is_symbol(val) or val.node._expr.name != where:
                raise StoredError(f"input {node.name} is not {where}")
            return
        if is_symbol(val):
            raise StoredError(f"input {node.name} is no tensor")
        if place == "leaf":
            given = self.data["signature"]["leaves"][where].get("tensor", {})
        else:
            given = tensor_to_data(self._tensors[where])
        own = tensor_to_data(val)
        if any(given.get(key) != own[key] for key in own):
            raise StoredError(f"input {node.name} is another than what is given for it")
        if bool(node.meta.get("static")) is not (place == "tensor"):
            raise StoredError(f"input {node.name} is given by no call")

    def _results(self, data: Any) -> Callable[[Any, list[Any], Mapping[str, Any]], Any]:
        rows = data["leaves"]
        check_nest(data["nest"], len(rows))
        names = {symbol.name: symbol for symbol in self._env.symbols} if self._env else {}
        self._result_count = len(data["shapes"])
        limits = {
            "output": self._result_count,
            "item": self._result_count,
            "leaf": len(self.data["signature"]["leaves"]),
            "tensor": len(self._tensors),
        }
        readers = [self._reader(kind, where, limits, names) for kind, where in rows]
        make = maker(data["nest"])
        return lambda outputs, leaves, values: make(
            [read(outputs, leaves, values) for read in readers]
        )

    def _reader(
        self, kind: str, where: Any, limits: Mapping[str, int], names: Mapping[str, Any]
    ) -> Callable[[Any, list[Any], Mapping[str, Any]], Any]:
        """The function that gives a leaf of the result, from the graph's outputs, the call's leaves
        and the values of its symbols.
        """
        if kind == "constant":
            constant = argument_from_json(where, {})
            return lambda outputs, leaves, values: constant
        if kind == "number":
            number = evaluator(to_data(from_data(where, names)))
            return lambda outputs, leaves, values: number(values)
        if type(where) is not int or not 0 <= where < limits[kind]:
            raise StoredError(f"a result is {str((kind, where))[:80]}")
        if kind == "output":
            return lambda outputs, leaves, values: outputs[where]
        if kind == "item":
            return lambda outputs, leaves, values: self._item(outputs[where])
        if kind == "leaf":
            return lambda outputs, leaves, values: leaves[where]
        tensor = self._tensors[where]
        return lambda outputs, leaves, values: tensor

    def _item(self, output: Any) -> Any:
        if not isinstance(output, torch.Tensor) or output.dim():
            raise ProgramError(f"{self.name}: its file takes a number out of what is no number")
        return output.item()

    def _check_default_dtype(self) -> None:
        """Check the default dtype, for which operators ask in each call."""
        saved, found = self.data.get("default_dtype"), str(torch.get_default_dtype())
        if saved is not None and saved != found:
            raise ProgramError(f"{self.name} was saved with the default dtype {saved}, not {found}")

    # -- weights ----------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers that the program uses, by the model's names for them."""
        return {name: tensor.detach() for name, tensor in self._names.items()}

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Parameters, each once."""
        seen: set[int] = set()
        for name, tensor in self._names.items():
            if isinstance(tensor, torch.nn.Parameter) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    # -- calls ------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._check_default_dtype()
        if "step" not in self._kinds:
            return self._call(args, kwargs)
        if not self._stepping.acquire(blocking=False):
            raise ProgramError(
                f"{self.name} is running already, in another thread: a training step changes its "
                "parameters, and is called by one thread at a time"
            )
        try:
            return self._call(args, kwargs)
        finally:
            self._stepping.release()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = self._signature.leaves(args, kwargs)
        if self.schedule is not None:
            self.schedule.begin()
        values = self._signature.symbols(leaves) if self._env is not None else {}
        wanted = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
        compiled = self._compiled_for(self._checked_kind(wanted))
        places: dict[str, Any] = {"leaf": leaves, "symbol": values}
        varying = [places[place][where] for place, where in self._inputs if place in places]
        outputs = compiled(varying, values)
        if self.schedule is not None:
            self.schedule.advance()
        return self._result(outputs, leaves, values)

    def _compiled_for(self, kind: str) -> _Compiled:
        compiled = self._compiled.get(kind)
        if compiled is None:
            with self._lock:
                if kind not in self._compiled:
                    self._compiled[kind] = _Compiled(self, kind)
            compiled = self._compiled[kind]
        return compiled

    def _kind(self, wanted: bool) -> str | None:
        """The graph that serves a call in this grad mode; wanted: whether an argument requires
        grad. None if there is no such graph.
        """
        if "step" in self._kinds:
            return "step"
        if not torch.is_grad_enabled() or not self._grad_mode:
            return "inference"
        if not wanted and not any(t.requires_grad for t in self._tensors):
            return "inference"
        return "training" if "training" in self._kinds else None

    def _checked_kind(self, wanted: bool) -> str:
        """Likewise, for a call; ProgramError in a grad mode that it was not saved for."""
        kind = self._kind(wanted)
        if kind is None:
            raise ProgramError(
                f"{self.name} was saved without its backward ({self._no_backward}), and something "
                "of it requires grad: call it under torch.no_grad()"
            )
        if kind == "step" and not torch.is_grad_enabled():
            raise ProgramError(f"{self.name} is a training step: call it in grad mode")
        return kind

    def __repr__(self) -> str:
        return f"<saved program {self.name} from {self.path}>"

    def __str__(self) -> str:
        return text_of(self._container, self.data)


def frame_of(graph: Any) -> FunctionalGraph:
    """The functional frame of a graph: its outputs and mutations."""
    return getattr(graph, "frame", graph)


class _Compiled:
    """A compiled graph of a program, with a fallback for sizes that the kernels exclude."""

    def __init__(self, program: Program, kind: str) -> None:
        self.program, self.kind = program, kind
        self.inputs = [
            program._tensors[where] if place == "tensor" else None
            for place, where in program._inputs
        ]
        self.guards: list[Callable[[Mapping[str, Any]], Any]] = []
        self.graph: Any = None  # of a recalled one, when it is needed
        self.plain: Any = None
        with torch.set_grad_enabled(kind != "inference"):
            if not self._recall():
                self._compile()
        self.binds_static = getattr(self.run, "binds_static", False)

    def _name(self) -> list[str]:
        """The graph's unique name: hashes of the sections that define the graph."""
        container = self.program._container
        return [self.kind, container.digest("program"), container.digest("constants")]

    def _recall(self) -> bool:
        """Whether a plan was kept for the graph, which need not be read then: it was read, checked
        and compiled before. Operators of other libraries may have changed since.
        """
        data = self.program.data["graphs"][self.kind]
        if self.kind == "training" or foreign_namespaces(data):
            return False
        found = self.program._compiler.recall(self._name(), self.inputs)
        if found is None:
            return False
        self.run, conditions = found
        self.frame = sharing_of(data)
        self.guards = [evaluator(condition) for condition in conditions]
        return True

    def _compile(self) -> None:
        program = self.program
        self.graph = program.graph(self.kind)
        self.frame = frame_of(self.graph)
        try:
            self.run = program._compiler.compile(
                self.graph, self.inputs, self._name(), self._conditions
            )
        except _DAMAGES as error:
            text = f"{type(error).__name__}: {str(error)[:200]}"
            raise ProgramError(f"{program.name}: its graph cannot be compiled ({text})") from error

    def _conditions(self) -> list[Any]:
        """The conditions on sizes that reading and compiling have assumed besides those in the
        file.
        """
        found = assumed(self.frame, self.program.data["symbols"])
        return [to_data(guard.condition) for guard in found]

    def __call__(self, varying: list[Any], values: Mapping[str, Any]) -> Any:
        every = self._every(varying)
        if self.frame.input_mutations and not same_sharing(self.frame, every):
            raise ProgramError(
                f"{self.program.name}: inputs that are written share memory with others, otherwise "
                "than when it was saved"
            )
        with torch._C._DisableAutocast():
            if not self._fits(values):
                return self._on_aten()(*every)
            return self.run(*(varying if self.binds_static else every))

    def _every(self, varying: list[Any]) -> list[Any]:
        given = iter(varying)
        return [next(given) if tensor is None else tensor for tensor in self.inputs]

    def _fits(self, values: Mapping[str, Any]) -> bool:
        """Whether the kernels serve these sizes. A backward that is compiled assumes more."""
        if self.graph is not None and values:
            self.guards += map(evaluator, self._conditions()[len(self.guards) :])
        return all(holds(values) for holds in self.guards)

    def _on_aten(self) -> Any:
        if self.plain is None:
            graph = self.program.graph(self.kind)
            self.plain = operator_by_operator().compile(graph, self.inputs, (), lambda: None)
        return self.plain


class Tensors:
    """The tensors of a program: windows of the mapped file, or the user's."""

    def __init__(
        self, container: Container, data: Any, weights: Mapping[str, torch.Tensor] | None
    ) -> None:
        self.container = container
        self.name = str(data["name"])
        self.weights = _flat(weights) if isinstance(weights, Mapping) else weights
        self._memories: dict[tuple[str, int, int], torch.Tensor] = {}
        self._sections: dict[str, memoryview] = {}
        rows = data["tensors"]
        self._check_weights(rows, set(data["state_names"]))
        self.names: dict[str, torch.Tensor] = {}
        self.made = [self._tensor(row) for row in rows]
        self._schedule = data["schedule"]

    def schedule(self) -> Rates | None:
        """The learning rates that schedulers computed, by step."""
        data = self._schedule
        if data is None:
            return None
        size = [data["steps"], len(data["names"])]
        if any(type(n) is not int or n < 0 for n in size):
            raise StoredError("a schedule of no size")
        row = {"constants": data["table"]}
        table = self._window(row, torch.float64, size, [size[1], 1], torch.device("cpu"))
        return Rates(data, table, self.made, self.name)

    def _check_weights(self, rows: Any, known: set[str]) -> None:
        outside = any(row["names"] and "weights" not in row for row in rows)
        if self.weights is None:
            if outside:
                raise self._refused("it was saved without weights: give them, load(path, weights)")
            return
        if not isinstance(self.weights, Mapping):
            kind = type(self.weights).__name__
            raise self._refused(
                f"weights is a {kind}, not a dict of tensors, as state_dict() gives"
            )
        if not outside:
            raise self._refused("it has its weights in the file: load(path) without weights")
        wanted = [row["names"] for row in rows if row["names"]]
        missing = [names[0] for names in wanted if not any(n in self.weights for n in names)]
        extra = [name for name in self.weights if name not in known]
        texts = [
            f"{title} {', '.join(map(str, names[:5]))}{' and others' if len(names) > 5 else ''}"
            for title, names in (("missing:", missing), ("unknown:", extra))
            if names
        ]
        if texts:
            raise self._refused(f"weights that do not fit; {'; '.join(texts)}")

    def _refused(self, text: str) -> ProgramError:
        return ProgramError(f"{self.container.path} ({self.name}): {text}")

    def _tensor(self, row: Any) -> torch.Tensor:
        names = row["names"]
        dtype = dtype_of(row["dtype"])
        size, stride = row["size"], row["stride"]
        numbers = (*size, *stride)
        if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
            raise StoredError(f"a tensor of size {size} and stride {stride}")
        device = torch.device(row["device"])
        if names and self.weights is not None:
            tensor = self._given(names, dtype, tuple(size), tuple(stride), device)
        else:
            tensor = self._window(row, dtype, size, stride, device)
        requires_grad = bool(row["requires_grad"])
        if row["parameter"] and not isinstance(tensor, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, requires_grad)
        elif tensor.requires_grad is not requires_grad:
            tensor = tensor.detach().requires_grad_(requires_grad)
        for name in names:
            self.names[str(name)] = tensor
        return tensor

    def _given(
        self, names: Any, dtype: torch.dtype, size: Any, stride: Any, device: torch.device
    ) -> torch.Tensor:
        assert self.weights is not None
        name, *others = (name for name in names if name in self.weights)
        tensor = self.weights[name]
        if not isinstance(tensor, torch.Tensor):
            raise self._refused(f"weight {name} is a {type(tensor).__name__}, not a tensor")
        if tuple(tensor.shape) != size:
            raise self._refused(
                f"weight {name} has the shape {tuple(tensor.shape)} instead of {size}"
            )
        if tensor.dtype is not dtype:
            raise self._refused(f"weight {name} is {tensor.dtype} instead of {dtype}")
        if tensor.device != device:
            raise self._refused(f"weight {name} is on {tensor.device} instead of {device}")
        for other in others:
            if not _same_values(tensor, self.weights[other]):
                raise self._refused(f"weights {name} and {other} are one tensor, and differ")
        if tensor.stride() == stride:
            return tensor
        made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        return made.copy_(tensor.detach())

    def _window(
        self, row: Any, dtype: torch.dtype, size: Any, stride: Any, device: torch.device
    ) -> torch.Tensor:
        section = "weights" if "weights" in row else "constants"
        place = row[section]
        start, count, offset = place["start"], place["bytes"], place["offset"]
        if any(type(n) is not int or n < 0 for n in (start, count, offset)):
            raise StoredError(f"a tensor in no place: {place}")
        memory = self._memory(section, start, count, device)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
        if (0 not in size and last * dtype.itemsize > count) or start % dtype.itemsize:
            raise StoredError("a tensor that is larger than its memory")
        typed = torch.empty(0, dtype=dtype, device=device)
        return typed.set_(memory.untyped_storage(), offset + memory.storage_offset(), size, stride)

    def _memory(self, section: str, start: int, count: int, device: torch.device) -> torch.Tensor:
        """A storage of its own for each memory, shared as in the program."""
        key = (section, start, count)
        if key not in self._memories:
            if section not in self._sections:
                self._sections[section] = self.container.section(section)
            view = self._sections[section]
            if start + count > len(view):
                raise StoredError("a tensor beyond the end of its section")
            raw = torch.empty(0, dtype=torch.uint8)
            if count:
                raw = torch.frombuffer(view[start : start + count], dtype=torch.uint8)
            self._memories[key] = raw.to(device)
        return self._memories[key]


def _flat(weights: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict with the tensors of optimizers' by their paths, as a Graph's has them inside:
    {"optimizers.0": {"state": {0: {"exp_avg": ...}}}} -> {"optimizers.0.state.0.exp_avg": ...}
    """
    found: dict[str, Any] = {}
    for name, value in weights.items():
        if isinstance(value, Mapping):
            inside = _flat({f"{name}.{key}": item for key, item in value.items()})
            found |= {key: item for key, item in inside.items() if isinstance(item, torch.Tensor)}
        else:
            found[name] = value
    return found


def _same_values(one: torch.Tensor, other: Any) -> bool:
    if not isinstance(other, torch.Tensor):
        return False
    alike = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
    return alike and torch.allclose(one, other, 0, 0, equal_nan=True)


def show(path: str) -> str:
    """The text of `python -m dynamo show`; ProgramError for a file that is no saved program, or is
    damaged.
    """
    container = Container(path)
    data = read_program(container)
    try:
        return text_of(container, data)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise container.fail("damaged: its program is none") from error
