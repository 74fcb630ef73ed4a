"""torch.utils.checkpoint: the function is captured as a body, which the graph runs under torch's
own checkpoint, so that backward computes it again; without gradients it is just called.

A policy of selective checkpointing changes no result: it is asked at capture about the operators
that the body runs, so that one with effects breaks the graph, and not while the graph runs; the
partition of the joint graph decides which tensors are kept.

The body that the graph computes again is that of the first run. Where the frame changes before a
backward what the function reads (the variable of a loop in a closure), the checkpoint runs
natively; where other code does, the backward raises (torch/checkpoint_reads.py).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    SelectiveCheckpointContext,
    _CachedTorchDispatchMode,
    _CachingTorchDispatchMode,
    checkpoint,
    noop_context_fn,
)

from dynamo import breaks
from dynamo.bytecode.normalize import normalize
from dynamo.config import config
from dynamo.errors import Unsupported
from dynamo.torch.bodies import (
    Body,
    body_scope,
    opened,
    proxies,
    proxies_of_result,
    record,
    same_fake,
    trace_body,
)
from dynamo.torch.overrides import is_watched
from dynamo.torch.tensor_hooks import native
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.tensors.tensor import TensorValue
from fxgraph.aot.history import memory_of, share_version
from fxgraph.args import leaves
from fxgraph.higher_order import dispatch_keys_kept, transform

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.root import Stop

_NAME = "torch.utils.checkpoint.checkpoint"
_STORES = frozenset(
    f"{verb}_{what}"
    for verb in ("STORE", "DELETE")
    for what in ("ATTR", "SUBSCR", "SLICE", "DEREF", "GLOBAL", "NAME")
)
_SETTINGS = ("preserve_rng_state", "determinism_check", "debug", "early_stop")


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("checkpoint", text))


@handles(checkpoint)
def _checkpoint(tx, function, *args, use_reentrant=None, context_fn=None, **kwargs):
    reentrant = None if use_reentrant is None else use_reentrant.as_constant()
    if not isinstance(reentrant, bool):
        raise _refuse("use_reentrant is not given")
    if is_watched(tx, args):
        raise _refuse("an argument's class, or a mode, sees what checkpoint reads of tensors")
    policy = None
    if context_fn is not None and context_fn.identity() != (True, noop_context_fn):
        if reentrant:
            raise _refuse("use_reentrant=True takes no context_fn")
        policy = _policy(tx, context_fn)
    settings = {name: kwargs.pop(name).as_constant() for name in _SETTINGS if name in kwargs}
    if reentrant and (kwargs or settings.keys() - {"preserve_rng_state"}):
        raise _refuse("use_reentrant=True takes no keyword arguments")
    if reentrant and not any(_needs_grad(arg) for arg in args):
        raise _refuse("no argument requires grad")
    if not torch.is_grad_enabled():
        return function, args, kwargs
    if tx.output.symbols.seen.checkpoints_moved:
        raise _refuse("what the function read was changed before a backward")
    nested, named = _opened(tx, args, kwargs)
    with tx.output.guards.noting() as reads:
        body = _trace(tx, function, nested, named, True)
    fakes = [*body.inputs, *(node.meta["example_value"] for node in body.lifted)]
    if not reentrant and not any(fake.requires_grad for fake in fakes):
        if policy is not None:
            raise _refuse("context_fn is given, and no argument requires grad")
        return function, args, kwargs
    tx.output.checkpoint_reads.append(reads)
    node = body.attach(tx)
    if policy is not None:
        operators = _operators(tx, node.meta["example_value"], fakes)
        _check_policy(tx, policy, operators, settings.get("preserve_rng_state", True))
    module = node.meta["example_value"]
    code = _code(module)
    if reentrant and not _is_unchanged(tx, function, nested, {}, body.lifted, code, False):
        raise _refuse("the function depends on the gradient mode")
    options = {"use_reentrant": reentrant, **settings}
    given = (proxies(nested), proxies(named))
    result = record(tx, transform, (_NAME, node, body.lifted, options, *given))
    noted = tx.output.checkpointed.get(len(tx.output.bodies))
    if noted is not None:
        seen = [
            *(one.fake for one in _tensors((nested, named))),
            *(one.meta["example_value"] for one in body.lifted),
        ]
        read = [x for x in seen if isinstance(x, torch.Tensor) and not x.is_inference()]
        given = function, args, kwargs
        changing = _Read(*given, _tensors((nested, named)), body.lifted, code, read, _refusal(tx))
        changing.note(tx)
        noted.append(changing)
    return result


def _refusal(tx: Interpreter) -> Exception:
    """The refusal where a second run would differ; inside of a body, the call is not captured."""
    reason = breaks.OpError("checkpoint", "what the function reads is changed before a backward")
    if tx.output.bodies:
        return Unsupported(reason)
    return native(tx, tx.breakable_chain()[-1].began, reason)


def _trace(tx: Interpreter, function: Value, args: Any, kwargs: Any, grad_enabled: bool) -> Body:
    """The body. A backward may follow at its end, as far as checkpoints inside are concerned: they
    run again behind a second run of the body.
    """
    checkpointed, depth = tx.output.checkpointed, len(tx.output.bodies) + 1
    checkpointed[depth] = []
    try:
        return trace_body(
            tx, function, args, kwargs, same_fake, grad_enabled, at_end=refuse_changed
        )
    finally:
        del checkpointed[depth]


def _code(module: torch.nn.Module) -> str:
    """The code of a body and of the bodies in it."""
    return "\n".join(str(getattr(one, "code", "")) for one in module.modules())


@dataclass
class _Read:
    """A checkpoint of the graph: the function, and the state of what it reads. given: the tensors
    among the arguments, and in containers that may be changed.
    """

    function: Value
    args: Sequence[Value]
    kwargs: dict[str, Value]
    given: list[TensorValue]
    lifted: tuple[Any, ...]
    code: str
    tensors: list[torch.Tensor]
    refusal: Exception
    epoch: int = 0
    versions: tuple[int, ...] = ()
    apart: dict[int, int] = field(default_factory=dict)  # id of a tensor -> version

    def note(self, tx: Interpreter) -> None:
        self.epoch = tx.output.side_effects.epoch
        self.versions = tuple(one._version for one in self.tensors)
        self.apart = {id(one): one._version for one in self._sharing(tx)}

    def _sharing(self, tx: Interpreter) -> Iterator[torch.Tensor]:
        """The tensors of the graph on memory of what is read: `.data` counts its own writes."""
        memories = {memory_of(one) for one in self.tensors}
        for node in tx.output.graph.nodes:
            for fake in leaves(node.meta.get("example_value")):
                is_counted = isinstance(fake, torch.Tensor) and not fake.is_inference()
                if is_counted and memory_of(fake) in memories:
                    yield fake

    def check(self, tx: Interpreter) -> None:
        if self.versions != tuple(one._version for one in self.tensors):
            raise self.refusal
        for one in self._sharing(tx):
            before = self.apart.get(id(one), 0)
            if one._version != before and not any(share_version(one, t) for t in self.tensors):
                raise self.refusal
        if tx.output.side_effects.epoch == self.epoch:
            return
        args, kwargs = _opened(tx, self.args, self.kwargs)
        given = _tensors((args, kwargs))
        same = len(given) == len(self.given) and all(map(operator.is_, given, self.given))
        if not same or not _is_unchanged(
            tx, self.function, args, kwargs, self.lifted, self.code, True
        ):
            raise self.refusal


def refuse_changed(tx: Interpreter, stop: Stop | None = None) -> None:
    """Break at a checkpoint of which a second run, by a backward from here on, would do something
    else than the first; also where the frame goes on behind `stop`, and stores something there.
    """
    noted = tx.output.checkpointed.get(len(tx.output.bodies), [])
    for one in noted:
        one.check(tx)
    if noted and stop is not None and stop.is_break and any(map(_stores, stop.chain)):
        raise noted[0].refusal
    noted.clear()


def _stores(frame: Interpreter) -> bool:
    """Whether what a frame has still to run, loops included, changes what functions may read."""
    program = normalize(frame.code)
    targets = [i.target.index for i in program[frame.index :] if i.target is not None]
    return any(instr.op in _STORES for instr in program[min([frame.index, *targets]) :])


def _opened(tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> tuple[Any, Any]:
    named = {key: opened(tx, value) for key, value in kwargs.items()}
    return tuple(opened(tx, arg) for arg in args), named


def _tensors(nest: Any) -> list[TensorValue]:
    return [leaf for leaf in pytree.tree_leaves(nest) if isinstance(leaf, TensorValue)]


def _policy(tx: Interpreter, context_fn: Value) -> Value:
    """The policy; breaks unless the contexts are those of selective checkpointing."""
    with body_scope(tx):
        contexts = tx.call_function(context_fn, [], {})
        items = contexts.items(tx) if isinstance(contexts, TupleValue) else []
        kinds = [item.python_type() for item in items]
        if kinds != [_CachingTorchDispatchMode, _CachedTorchDispatchMode]:
            raise _refuse("context_fn makes contexts of its own")
        return items[0].getattr(tx, "policy_fn")


class _Noting(TorchDispatchMode):
    """Notes the operators that run, in the place of selective checkpointing's own mode."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func not in SAC_IGNORED_OPS:
            self.operators.append(func)
        return func(*args, **(kwargs or {}))


def _operators(tx: Interpreter, module: Any, fakes: Sequence[Any]) -> list[Any]:
    """The distinct operators that a body runs on such tensors."""
    noting = _Noting()
    with dispatch_keys_kept(), tx.output.fake_mode:
        copies = [fake.detach().clone().requires_grad_(fake.requires_grad) for fake in fakes]
        try:
            with noting:
                module(*copies)
        except Exception as error:
            raise _refuse("the function's operators are not known") from error
    return list(dict.fromkeys(noting.operators))


def _check_policy(
    tx: Interpreter, policy: Value, operators: Sequence[Any], same_numbers: bool
) -> None:
    """Break if the policy has effects or decides by more than the operator. same_numbers: a second
    run draws the random numbers of the first, so that it does not matter whether they were kept.
    """
    if not same_numbers and any(torch.Tag.nondeterministic_seeded in op.tags for op in operators):
        raise _refuse("a policy may keep random numbers that are not drawn again")
    with body_scope(tx):
        ask = SelectiveCheckpointContext(is_recompute=False)
        context = tx.wrap(ask, tx.output.install("selective_context", ask))
        for operator in operators:
            tx.call_function(policy, [context, tx.wrap(operator)], {})


def _needs_grad(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.requires_grad


def _is_unchanged(
    tx: Interpreter,
    function: Value,
    args: Any,
    kwargs: Any,
    lifted: tuple[Any, ...],
    code: str,
    grad_enabled: bool,
) -> bool:
    """Whether another run does what the first one did: the first of a reentrant checkpoint is
    without gradients. It takes no steps of the capture, which may have ended.
    """
    output = tx.output
    steps, next_event = output.steps, output.next_event
    output.next_event = steps + config.loop_limit
    try:
        other = _trace(tx, function, args, kwargs, grad_enabled)
        leaves = pytree.tree_leaves(opened(tx, other.result))
        if other.lifted != lifted or len(leaves) < 1:
            return False
        outputs = other.graph.local(proxies_of_result(opened(tx, other.result)))
    except Unsupported:
        return False
    finally:
        output.steps, output.next_event = steps, next_event
    return _code(other.graph.finish(outputs)) == code
