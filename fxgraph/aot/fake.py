"""Shape propagation for the tracer: fake tensors, with results remembered (fake_results.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.aot.resizing import resizes_without_rules, whole_resizes
from fxgraph.args import leaves
from fxgraph.fake_results import (
    FakeResults,
    corrected,
    fake_resize,
    key_of,
    make_fake,
    metadata,
    plain_tensor,
)
from fxgraph.size_forms import equal
from fxgraph.symbolic_rules import rules_for
from fxgraph.symbolic_values import hint_of

_FAKE_TYPES = (FakeTensor,)


def symbolic_dispatch(mode: FakeTensorMode) -> AbstractContextManager[Any]:
    """Where sizes are symbols, composite operators that read them as numbers in C++ are run by
    their Python forms.
    """
    return nullcontext() if mode.shape_env is None else _python_forms()


@contextmanager
def _python_forms() -> Iterator[None]:
    with enable_python_dispatcher(), whole_resizes():
        yield


class FakePropagation:
    """Runs operators on fake tensors of one FakeTensorMode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._results: FakeResults = getattr(mode, "results", None) or FakeResults()

    def run(
        self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], view: bool
    ) -> Any:
        """The fake result of `op`. `view`: it is a view of args[0]."""
        key = key_of(op, args, kwargs)
        base = args[0] if view else None
        made = self._results.make(self.mode, key, base)
        if made is not NotImplemented:
            return made
        rule = rules_for(self.mode).get(op)
        if rule is not None and key is not None and not kwargs:
            ruled = rule(*args)
            if ruled is not None:
                self._results.add_metas(key, ruled)
                made = self._results.make(self.mode, key, base)
                if made is not NotImplemented:
                    return made
        fakes = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        given = [fake for fake in fakes if not fake.is_inference()]  # those have no versions
        versions = [tensor._version for tensor in given]
        try:
            if op in resizes_without_rules():
                with self.mode:
                    result: Any = fake_resize(op, *args)
            else:
                result = self.mode.dispatch(op, _FAKE_TYPES, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Unfunctionalizable(f"the result of {op} depends on the data") from error
        except UnsupportedOperatorException as error:
            raise Unfunctionalizable(f"{op} has no rule for fake tensors") from error
        result = corrected(op, args, kwargs, result, self.mode)
        if [tensor._version for tensor in given] != versions:
            # A rule that writes its arguments (batch norm's): to autograd that would be a write of
            # the program.
            torch._C._autograd._unsafe_set_version_counter(tuple(given), tuple(versions))
        if key is not None:
            self._results.add(key, result)
        return result

    def make(self, *meta: Any, base: torch.Tensor | None = None) -> FakeTensor:
        """A fake tensor with this metadata (of `metadata`), in the memory of `base` if given."""
        dtype, size, stride, offset, device = meta
        return make_fake(self.mode, dtype, size, stride, offset, device, base)

    def like(self, tensor: torch.Tensor) -> FakeTensor:
        """A fake tensor with the metadata of `tensor` (real or fake), in its own memory."""
        if not plain_tensor(tensor):
            # Lazy conjugation and negation are bits of the tensor object; copying them needs the
            # real op.
            raise Unfunctionalizable("an input is lazily conjugated or negated")
        return self.make(*metadata(tensor))


def fake_result(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """An operator's result on fake tensors, of which the first argument is one; it requires no
    gradient.
    """
    given = [_detached(arg) for arg in args]
    with torch.no_grad():
        return FakePropagation(args[0].fake_mode).run(op, tuple(given), kwargs, op.is_view)


def _detached(arg: Any) -> Any:
    return arg.detach() if isinstance(arg, FakeTensor) and arg.requires_grad else arg


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The metadata that two tensors must share for one to stand in for the other: dtype, size,
    stride.
    """
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps and overlaps."""
    expected = 1
    dims = zip(tensor.stride(), tensor.shape)
    for stride, size in sorted(dims, key=lambda dim: (hint_of(dim[0]) or 0, hint_of(dim[1]) or 0)):
        if type(size) is int and size == 0:
            return True
        # A stride that fits needs no question whether the size is 1.
        if not equal(stride, expected):
            if holds(size == 1):
                continue
            if not holds(stride == expected):
                return False
        expected *= size
    return True


def holds(condition: bool | torch.SymBool) -> bool:
    """Whether the condition holds; of data, whether in any case."""
    if isinstance(condition, bool):
        return condition
    return condition.node.shape_env.evaluate(condition, False)
