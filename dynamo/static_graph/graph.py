"""The static counterpart of dynamo.compile: a class whose build() becomes one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from dynamo import directives
from dynamo.api.compile import default_settings
from dynamo.errors import GraphError
from dynamo.static_graph import step
from dynamo.static_graph.config import GraphConfig
from dynamo.static_graph.printing import graph_text
from dynamo.static_graph.state import GraphState

Parameter = torch.nn.Parameter


class Graph:
    """A static graph of modules, losses and optimizers.

        class Classifier(dynamo.Graph):
            def __init__(self, model, optimizer):
                super().__init__()
                self.model = model
                self.loss = torch.nn.CrossEntropyLoss()
                self.add_optimizer(optimizer)

            def build(self, x, y):
                loss = self.loss(self.model(x), y)
                loss.backward()
                return loss

        loss = Classifier(model, optimizer)(x, y)

    A call runs build(); with optimizers it equals this program, as one graph:

        for optimizer in optimizers: optimizer.zero_grad()
        outputs = build(*args)
        for optimizer in optimizers: optimizer.step()     # after its clip_grad_max_norm, see below
        for optimizer in optimizers: optimizer.zero_grad()
        for lr_sch in schedulers: lr_sch.step()
        return outputs                                    # detached

    Modules are the user's own: parameters and buffers are shared with eager code. A group of
    parameters with the key "clip_grad_max_norm" has the norm of its gradients clipped
    ("clip_grad_norm_type" is the order of the norm, 2.0 by default).

    A graph break raises dynamo.errors.Unsupported with its reason, line and hint.
    Numbers that are read from tensors and sizes that depend on data are captured. The first call
    fixes the inputs: others raise GraphError, or, with dynamic=True, sizes and numbers may vary.
    A graph runs in one thread at a time. Inside of another Graph or a compiled function, the
    build() of a Graph without optimizers and settings is a part of that graph.

    dynamic, backend, mode, options: see dynamo.compile.
    """

    _graph: GraphState

    def __init__(
        self,
        *,
        dynamic: bool = False,
        backend: str | Callable[..., Any] = "inductor",
        mode: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(dynamic, bool):
            raise TypeError(f"dynamic must be True or False, not {dynamic!r}")
        settings = {
            **default_settings(),
            "backend": backend,
            "mode": mode,
            "options": options,
            "fullgraph": True,
            # Numbers such as learning rates vary in any case; sizes are held by the signature.
            "dynamic": dynamic or None,
        }
        self._graph = GraphState(type(self).__name__, settings, dynamic)

    def __getattr__(self, name: str) -> Any:
        """Only reached for attributes that do not exist."""
        if name == "_graph":
            raise GraphError(
                f"{type(self).__name__} is not ready: its __init__ does not call "
                "super().__init__() before anything else"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """The program; subclasses define it. Users call the graph, not this."""
        raise GraphError(f"{type(self).__name__} defines no build(self, ...)")

    build.is_missing = True  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if directives.is_compiling():
            return step.nested(self, args, kwargs)
        return self._graph.run(self, args, kwargs)

    @property
    def name(self) -> str:
        """The class's name and a number."""
        return self._graph.name

    @property
    def config(self) -> GraphConfig:
        """The settings of the graph: mixed precision, accumulation, checkpointing, memory limit."""
        return self._graph.config

    # -- training -------------------------------------------------------------------------------
    def add_optimizer(self, optimizer: torch.optim.Optimizer, lr_sch: Any = None) -> None:
        """Have each call step `optimizer`, then `lr_sch`, a scheduler of its learning rates.

        Raises GraphError for an object that is neither, and for a scheduler of another optimizer.
        That the parameters are the graph's is checked at the first call.
        """
        self._graph.add_optimizer(optimizer, lr_sch)

    def set_grad_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        """As graph.config.set_grad_scaler, also its errors."""
        self.config.set_grad_scaler(scaler)

    # -- modules --------------------------------------------------------------------------------
    def _root(self) -> torch.nn.Module:
        """A module with the contents of this graph's attributes."""
        state = self._graph
        root = torch.nn.Module()
        for name, value in vars(self).items():
            if isinstance(value, torch.nn.Module):
                root._modules[name] = value
            elif isinstance(value, Parameter):
                root._parameters[name] = value
        root.training = state.training
        return root

    def parameters(self) -> Iterator[Parameter]:
        """As torch.nn.Module.parameters."""
        return self._root().parameters()

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """As torch.nn.Module.named_parameters."""
        return self._root().named_parameters(prefix)

    def buffers(self) -> Iterator[torch.Tensor]:
        """As torch.nn.Module.buffers."""
        return self._root().buffers()

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
        """As torch.nn.Module.named_buffers."""
        return self._root().named_buffers(prefix)

    def children(self) -> Iterator[torch.nn.Module]:
        """The modules that the graph holds itself."""
        return self._root().children()

    def named_children(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """The modules that the graph holds itself, with their names."""
        return self._root().named_children()

    def modules(self) -> Iterator[torch.nn.Module]:
        """All modules below this graph."""
        return (module for _, module in self.named_modules())

    def named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """All modules below this graph, with their paths."""
        return ((name, module) for name, module in self._root().named_modules() if name)

    def train(self, mode: bool = True) -> Graph:
        """Module.train for all modules; optimizers are stepped in either mode."""
        self._root().train(mode)
        self._graph.training = mode
        return self

    def eval(self) -> Graph:
        """As train(False)."""
        return self.train(False)

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """Module.to for all modules and parameters. The next call builds the graph anew."""
        root = self._root().to(*args, **kwargs)
        vars(self).update(root._parameters)  # replaced by some settings of torch
        self._graph.forget()
        return self

    # -- state ----------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The modules' tensors by path, as Module.state_dict has them, and the state dicts of
        optimizers ("optimizers.0", ...), their schedulers ("lr_schedulers.0", ...) and the
        "grad_scaler".
        """
        found: dict[str, Any] = self._root().state_dict()
        for key, part in self._graph.parts():
            found[key] = part.state_dict()
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Inverse of state_dict. strict: RuntimeError for missing and unexpected entries; returned
        otherwise, as by Module.load_state_dict. TypeError for an object that is no mapping.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"{self.name}: a state dict is a mapping, not {state_dict!r}")
        parts = dict(self._graph.parts())
        tensors = {key: value for key, value in state_dict.items() if key not in parts}
        missing = [key for key in parts if key not in state_dict]
        if strict and missing:
            raise RuntimeError(f"{self.name}: the state dict has no {', '.join(missing)}")
        result = self._root().load_state_dict(tensors, strict=strict)
        for key, part in parts.items():
            if key in state_dict:
                part.load_state_dict(state_dict[key])
        result.missing_keys.extend(missing)
        return result

    # -- text -----------------------------------------------------------------------------------
    def debug(self, v_level: int = 0, *, ranks: int | list[int] = 0) -> None:
        """Print while the graph is built.

        v_level: 0 phases and their seconds; 1 also modules as they are entered; 2 also operators as
        they are made, with the shapes, dtypes and devices of operands and results; 3 also source
        lines, and what the backend tells: each kernel by name, with what it computes and how many
        operations it fuses, calls of libraries, memory. -1 turns it off.
        ranks: the processes of a distributed program that print; -1 for all.
        """
        self._graph.debug(v_level, ranks)

    def __repr__(self) -> str:
        return graph_text(self, self._graph, self._root())
