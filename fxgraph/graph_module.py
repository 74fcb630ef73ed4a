"""GraphModule: an nn.Module whose forward is the generated code of its graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import types
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fxgraph import printer
from fxgraph.graph import Graph
from fxgraph.node import Node

_counter = itertools.count()


class _Forward:
    """`GraphModule.forward`: the function generated for the instance, bound to it.

    A non-data descriptor, so that `gm.forward = f` overrides it, and so that the module does not
    hold a bound method of itself (a reference cycle).
    """

    def __get__(self, instance: GraphModule | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return types.MethodType(instance._function(), instance)


class GraphModule(nn.Module):
    """Holds a graph, and the parameters, buffers and submodules that its nodes name.

    root: an nn.Module from which those are taken (shared, not copied), or a dict from dotted name
    to value. Raises AttributeError if the graph names something that root has not, TypeError for
    another root or graph.
    """

    forward = _Forward()
    _graph: Graph

    def __init__(
        self, root: nn.Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        if not isinstance(root, nn.Module | Mapping):
            raise TypeError(f"root must be an nn.Module or a dict, not {type(root).__name__}")
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be a fxgraph.Graph, not {type(graph).__name__}")
        self._class_name = class_name
        self.meta: dict[str, Any] = {}
        if isinstance(root, nn.Module):
            self.training = root.training
        self._adopt(root, graph)
        self.graph = graph

    def _adopt(self, root: nn.Module | Mapping[str, Any], graph: Graph) -> None:
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if isinstance(root, nn.Module):
                    value = fetch_attribute(root, node.target)
                else:
                    value = root[node.target]
                assign_attribute(self, node.target, value)

    def with_graph(self, graph: Graph) -> GraphModule:
        """A module of another graph, with the attributes that this one names, and its meta."""
        module = GraphModule(self, graph)
        module.meta.update(self.meta)
        return module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The forward, with hooks of this module alone: those of all modules are for the modules of
        the program, which knows nothing of bodies.
        """
        hooks = self._forward_hooks, self._forward_pre_hooks, self._backward_hooks
        if any(hooks) or self._backward_pre_hooks:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    # -- graph and code ---------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that `forward` runs. Assigning another one recompiles; TypeError for others."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"expected a fxgraph.Graph, got {type(graph).__name__}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module only looks at properties after parameters and submodules; the graph is neither.
        if name == "graph":
            GraphModule.graph.__set__(self, value)  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)

    def recompile(self) -> None:
        """Take edits of the graph into account. The code is generated when it is next needed."""
        self.__dict__["_code"] = None
        self.__dict__["_compiled"] = None

    @property
    def code(self) -> str:
        """The graph as runnable Python."""
        return self._python_code().src

    def _python_code(self) -> printer.PythonCode:
        if self.__dict__["_code"] is None:
            self.__dict__["_code"] = printer.python_code(self._graph)
        return self.__dict__["_code"]

    def _function(self) -> types.FunctionType:
        compiled = self.__dict__["_compiled"]
        if compiled is None:
            code = self._python_code()
            compiled = self.__dict__["_compiled"] = _compile(self, code)
        return compiled

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False, **ignored: Any
    ) -> str:
        """The graph as a class with user source lines and shapes; printed unless told otherwise.

        Further keywords of torch.fx (include_device, colored, ...) are accepted and have no effect.
        """
        text = printer.readable(self._graph, self._class_name)
        if print_output:
            print(text)
        return text

    # -- attributes -------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        """Put `m` at the dotted name `target`, making the modules on the way. Always True."""
        assign_attribute(self, target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the submodule at `target`; False if there is none."""
        prefix, _, name = target.rpartition(".")
        try:
            parent = self.get_submodule(prefix)
        except AttributeError:
            return False
        return parent._modules.pop(name, None) is not None

    def delete_all_unused_submodules(self) -> None:
        """Remove submodules that no node names."""
        used = {n.target for n in self._graph.nodes if n.op in ("call_module", "get_attr")}
        keep = {
            ".".join(name.split(".")[:depth])
            for name in used
            for depth in range(1, name.count(".") + 2)
        }
        for name, _ in list(self.named_modules()):
            below_called = any(name.startswith(target + ".") for target in used)
            if name and name not in keep and not below_called:
                self.delete_submodule(name)

    # -- copying ----------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        return self._copy(lambda value: copy.deepcopy(value, memo))

    def __copy__(self) -> GraphModule:
        return self._copy(lambda value: value)

    def _copy(self, copy_value: Any) -> GraphModule:
        names = [n.target for n in self._graph.nodes if n.op in ("get_attr", "call_module")]
        names += [name for name, _ in self.named_parameters()] + [
            n for n, _ in self.named_buffers()
        ]
        root = {name: copy_value(fetch_attribute(self, name)) for name in dict.fromkeys(names)}
        copied = GraphModule({}, Graph(), self._class_name)
        for name in sorted(root, key=lambda name: name.count(".")):
            assign_attribute(copied, name, root[name])
        copied.graph = copy.deepcopy(self._graph)
        copied.training = self.training
        # Shallow: the fake mode in it must stay the one that the nodes' values belong to.
        copied.meta = dict(self.meta)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a GraphModule cannot be pickled; save its graph by fxgraph.serialize")

    def __str__(self) -> str:
        return f"{super().__repr__()}\n\n{self.code}"


def _compile(owner: GraphModule, code: printer.PythonCode) -> types.FunctionType:
    filename = f"<fxgraph {next(_counter)}>"
    namespace: dict[str, Any] = {"torch": torch, **code.globals}
    exec(compile(code.src, filename, "exec"), namespace)
    # An entry without a time is never checked against the disk, so that tracebacks show our lines.
    linecache.cache[filename] = (len(code.src), None, code.src.splitlines(True), filename)
    weakref.finalize(owner, linecache.cache.pop, filename, None)
    return namespace["forward"]


def fetch_attribute(root: Any, path: str) -> Any:
    """The attribute with this dotted name. Raises AttributeError naming the missing part."""
    found = root
    for part in path.split("."):
        if not hasattr(found, part):
            raise AttributeError(f"{type(root).__name__} has no attribute {path!r} (at {part!r})")
        found = getattr(found, part)
    return found


def assign_attribute(root: nn.Module, path: str, value: Any) -> None:
    """Set the attribute with this dotted name, making modules on the way; a tensor is a buffer."""
    *prefix, name = path.split(".")
    for part in prefix:
        child = getattr(root, part, None)
        if child is None:
            child = nn.Module()
            setattr(root, part, child)
        root = child
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        if name in root.__dict__:
            del root.__dict__[name]
        root.register_buffer(name, value)
    else:
        setattr(root, name, value)


__all__ = ["GraphModule", "Node", "assign_attribute", "fetch_attribute"]
