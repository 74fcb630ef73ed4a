"""A node of a graph: an operation, its arguments, and the users of the result.

Names, opcodes and editing methods are those of torch.fx, so that a backend written for it reads our
nodes unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxgraph import effects
from fxgraph.args import LEAF_TYPES, map_aggregate

if TYPE_CHECKING:
    from fxgraph.graph import Graph

# A callable for call_function, a name for the other opcodes.
Target = Any

OPCODES = frozenset(
    {"placeholder", "get_attr", "call_function", "call_method", "call_module", "output"}
)


def map_arg(arg: Any, fn: Callable[[Node], Any]) -> Any:
    """Rebuild the nest `arg` with `fn` applied to every node in it; other leaves stay."""
    return map_aggregate(arg, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


_PLACE = ("stack_trace", "nn_module_stack", "source_fn_stack")


class Node:
    """A node of the doubly linked list that is a graph.

    op              target                                    args, kwargs
    placeholder     name of the argument                      () or (default,)
    get_attr        dotted name in the owning module          ()
    call_function   callable                                  as called
    call_method     method name                               self first
    call_module     dotted name of the submodule              as called
    output          "output"                                  (the graph's result,)
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPCODES:
            raise ValueError(f"unknown opcode {op!r}; one of {', '.join(sorted(OPCODES))}")
        if op == "call_function":
            if not callable(target):
                raise TypeError(f"a call_function target must be callable, got {target!r}")
        elif not isinstance(target, str):
            raise TypeError(f"the target of {op} must be a str, got {target!r}")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self
        self._next = self
        self._erased = False
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set_arguments(args, kwargs)

    # -- the list ---------------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after this one; after the last comes the list's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first comes the list's root."""
        return self._prev

    def prepend(self, node: Node) -> None:
        """Move `node` to just before this one."""
        if node is self:
            return
        if node.graph is not self.graph:
            raise ValueError(f"{node.name} belongs to another graph than {self.name}")
        node._unlink()
        before = self._prev
        before._next, node._prev = node, before
        node._next, self._prev = self, node

    def append(self, node: Node) -> None:
        """Move `node` to just after this one."""
        self._next.prepend(node)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # -- arguments and users ----------------------------------------------------------------------

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments: nests of nodes and constants. Assigning them updates `users`."""
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._set_arguments(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments, as `args`."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._set_arguments(self._args, value)

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        inputs: dict[Node, None] = {}
        # Copied, so that a list which the caller changes later does not change the graph.
        self._args = tuple([_copy_argument(arg, inputs) for arg in args])
        self._kwargs = {key: _copy_argument(arg, inputs) for key, arg in kwargs.items()}
        self._input_nodes = inputs
        for new in inputs:
            new.users[self] = None

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in args and kwargs, each once, in order of first use."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace positional argument `idx`."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument before `idx`."""
        if not 0 <= idx <= len(self._args):
            raise ValueError(f"insert_arg index must be between 0 and {len(self._args)}")
        self.args = self._args[:idx] + (arg,) + self._args[idx:]

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set keyword argument `key`."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use `new_input` wherever the arguments use `old_input`."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make every user for which `delete_user_cb` holds use `replace_with` instead.

        Returns the users that this node had. With `propagate_meta`, `replace_with` (which must have
        no meta of its own) takes over this node's meta.
        """
        if propagate_meta:
            if replace_with.meta:
                raise ValueError(f"{replace_with.name} already has meta")
            replace_with.meta = dict(self.meta)
        users = list(self.users)
        for user in users:
            if delete_user_cb(user):
                user.replace_input_with(self, replace_with)
        return users

    # -- about the node ---------------------------------------------------------------------------
    def place(self) -> dict[str, Any]:
        """The parts of `meta` that say where in the program the node is from: the user's lines
        ("stack_trace"), modules ("nn_module_stack") and calls ("source_fn_stack").
        """
        return {key: self.meta[key] for key in _PLACE if key in self.meta}

    @property
    def stack_trace(self) -> str | None:
        """The user's stack where this operation was recorded, innermost line last."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than compute its value, so that it must not be dropped."""
        if self.op in ("placeholder", "output"):
            return True
        return effects.of(self).impure(random=impure_random)

    def format_node(self) -> str:
        """The node's line in a graph dump."""
        from fxgraph import printer

        return printer.format_node(self)

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._names.create(candidate)

    def __repr__(self) -> str:
        return self.name


def _copy_argument(arg: Any, inputs: dict[Node, None]) -> Any:
    """A copy of the nest `arg`; nodes found are added to `inputs`."""
    kind = type(arg)
    if kind is Node:
        inputs[arg] = None
        return arg
    if kind in LEAF_TYPES:
        return arg
    if isinstance(arg, tuple):
        items = [_copy_argument(item, inputs) for item in arg]
        return kind(*items) if hasattr(arg, "_fields") else tuple(items)
    if isinstance(arg, list):
        return [_copy_argument(item, inputs) for item in arg]
    if isinstance(arg, dict):
        for key in arg:
            if isinstance(key, Node):
                raise TypeError(f"a node cannot be a dict key in an argument: {key.name}")
        return {key: _copy_argument(value, inputs) for key, value in arg.items()}
    if kind is slice:
        return slice(
            _copy_argument(arg.start, inputs),
            _copy_argument(arg.stop, inputs),
            _copy_argument(arg.step, inputs),
        )
    return arg
