"""Programs as text, run eagerly and compiled in worlds of their own, and compared after every step.

A program has two parts, separated by a line of dashes: definitions, among them a function `f`, and
steps. Each step is executed in the namespace of the definitions; where it calls `run`, the eager
world calls `f` and the compiled world calls dynamo.compile(f). After every step the two worlds must
agree: the value or the exception with its traceback, everything reachable from the namespace
(values, types, strides, gradients, and which objects are the same object or share storage), what
was printed, random numbers, and torch's modes.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import enum
import functools
import io
import itertools
import linecache
import marshal
import os
import random
import re
import sys
import textwrap
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._library.custom_ops import CustomOpDef
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _pop_mode, is_traceable_wrapper_subclass
from torch.utils.hooks import RemovableHandle

import dynamo
from dynamo.interp.root import autocast_nesting, change_autocast_nesting, read_modes

# One of them where another Python version runs all programs (tests/conftest.py).
BACKENDS = ("eager", "aot_eager")[: 1 if "TESTS_SPREAD" in os.environ else None]
SOME = "some"  # graphs, at least one
_numbers = itertools.count()
PRELUDE = """
import torch, math, collections, functools, itertools, dataclasses, enum, contextlib, operator
import numpy as np
from torch import nn
log = []
def T(*shape, dtype=torch.float32, grad=False):
    n = math.prod(shape)
    t = (torch.arange(n, dtype=torch.float64) * 0.37 - 1.1).reshape(shape).to(dtype)
    return t.requires_grad_() if grad else t
"""


class World:
    """A namespace with the program's definitions, and `run`."""

    def __init__(
        self, definitions: str, filename: str, backend: str | None, dynamic: bool | None = None
    ) -> None:
        self.filename = filename
        module = sys.modules["differential_program"] = types.ModuleType("differential_program")
        self.namespace: dict[str, Any] = vars(module)
        torch.set_default_device(None)
        torch.set_printoptions(profile="default")
        seed = torch.default_generator.manual_seed  # torch.manual_seed() asks for other devices
        seed(0)  # the definitions of both worlds draw the same numbers
        RemovableHandle.next_id = 0
        exec(_code(PRELUDE, "<prelude>"), self.namespace)
        self.hidden = {*self.namespace, "run", "f"} - {"log"}
        exec(_code(definitions, filename), self.namespace)
        function = self.namespace["f"]
        self.run = function
        if backend is not None:
            self.run = dynamo.compile(function, backend=backend, dynamic=dynamic)
        self.namespace["run"] = self.run
        RemovableHandle.next_id = 0
        seed(7)
        random.seed(7)
        np.random.seed(7)
        self.random = _random_states()

    def step(self, statement: ast.stmt, names: bool = True) -> Any:
        """Execute one step; a picture of what can be seen afterwards. names: also of what the
        namespace holds.
        """
        torch.set_rng_state(self.random[0])
        random.setstate(self.random[1])
        np.random.set_state(self.random[2])
        printed = io.StringIO()
        code, is_value = _compile_step(statement)
        with contextlib.redirect_stdout(printed), _modes_restored() as modes:
            try:
                result = eval(code, self.namespace) if is_value else exec(code, self.namespace)
            except Exception as error:
                result = error
            modes += [*read_modes(), torch.get_default_dtype(), autocast_nesting()]
            modes.append(torch.get_float32_matmul_precision())
            modes.append(torch._C._len_torch_function_stack())
            modes.append(torch._C._len_torch_dispatch_stack())
        self.random = _random_states()
        held = {k: v for k, v in self.namespace.items() if k not in self.hidden} if names else {}
        held = {k: v for k, v in held.items() if not k.startswith(("__", "_framegraph"))}
        picture = Picture(self.filename)
        seen = {
            "result": picture.of(result),
            "printed": printed.getvalue(),
            "names": picture.of(held),
            "modes": modes,
            "random": [float(torch.rand(())), random.random(), np.random.rand()],
        }
        result = picture = held = None  # the traceback of an error holds this frame
        return seen


@functools.lru_cache(maxsize=2)
def _compiled_text(text: str, filename: str) -> bytes:
    return marshal.dumps(compile(text, filename, "exec"))


def _code(text: str, filename: str) -> types.CodeType:
    """The code of a text: objects of its own for each world."""
    code = marshal.loads(_compiled_text(text, filename))
    assert isinstance(code, types.CodeType)
    return code


def _random_states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


@contextlib.contextmanager
def _modes_restored():
    """What a step leaves of torch's modes is observed, and does not reach the next world."""
    modes, nesting = read_modes(), autocast_nesting()
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    function_modes = torch._C._len_torch_function_stack()
    dispatch_modes = torch._C._len_torch_dispatch_stack()
    try:
        yield []
    finally:
        change_autocast_nesting(nesting - autocast_nesting())
        for setter, *args in modes:
            setter(*args)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        while torch._C._len_torch_dispatch_stack() > dispatch_modes:
            _pop_mode()
        left = torch._C._len_torch_function_stack() - function_modes
        popped = [torch._C._pop_torch_function_stack() for _ in range(left)]
        for mode in reversed(popped):
            if isinstance(mode, DeviceContext):  # of torch.set_default_device
                torch._C._push_on_torch_function_stack(mode)


def _compile_step(statement: ast.stmt) -> tuple[types.CodeType, bool]:
    if isinstance(statement, ast.Expr):
        return compile(ast.Expression(statement.value), "<step>", "eval"), True
    return compile(ast.Module([statement], []), "<step>", "exec"), False


class Picture:
    """Objects as nested tuples that two worlds can compare; an object met again is a number."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.known: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.ragged: dict[str, int] = {}
        self.alive: list[Any] = []
        self.looks = dict(_EXACT)
        self.slots: dict[type, list[str]] = {}

    def of(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in _AS_THEY_ARE:
            return obj
        look = self.looks.get(kind) or self._look(kind, obj)
        if look in _BY_VALUE:
            return look(self, obj)
        if id(obj) in self.known:
            return ("again", self.known[id(obj)])
        self.known[id(obj)] = len(self.known)
        self.alive.append(obj)
        return look(self, obj)

    def _look(self, kind: type, obj: Any) -> Look:
        """How objects of a class are seen. A class whose objects name another one, as proxies do,
        is looked up for each.
        """
        look = next(look for kinds, look in _LOOKS if isinstance(obj, kinds))
        look = Picture._mesh if kind.__name__ == "DeviceMesh" else look
        if getattr(obj, "__class__", None) is kind:
            self.looks[kind] = look
        return look

    def _text(self, obj: Any) -> str:
        return self._raggedness(f"{type(obj).__name__} {obj}")

    def _builtin(self, obj: Any) -> str:
        return f"{type(obj).__name__} {getattr(obj, '__qualname__', obj)}"

    def _operator(self, obj: Any) -> str:
        return f"operator {obj}"  # torch keeps caches in them

    def _mesh(self, obj: Any) -> str:
        return f"mesh {obj}"  # which keeps its hash

    def _frozen(self, obj: frozenset[Any]) -> Any:
        """Sets of the class itself: Python, too, merges equal ones."""
        return ("frozenset", sorted(map(repr, map(self.of, obj))), None)

    def _array(self, obj: Any) -> Any:
        known = (str(obj.dtype), obj.shape, obj.flags.writeable)
        return (type(obj).__name__, *known, [repr(v) for v in obj.reshape(-1).tolist()])

    def _scalar(self, obj: np.generic) -> Any:
        return (type(obj).__name__, str(obj.dtype), [repr(obj.item())])

    def _number(self, obj: Any) -> Any:
        """Numbers and texts of subclasses."""
        base = next(one for one in (int, float, complex, str, bytes) if isinstance(obj, one))
        return (type(obj).__name__, base.__repr__(obj), self._attributes(obj))

    def _any_tensor(self, obj: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return (type(obj).__name__, *self._tensor(obj))

    def _generator(self, obj: torch.Generator) -> Any:
        return ("generator", hash(obj.get_state().numpy().tobytes()))

    def _random(self, obj: Any) -> Any:
        if isinstance(obj, np.random.RandomState):
            state = obj.get_state()
            return (type(obj).__name__, hash(state[1].tobytes()), state[2:])
        if isinstance(obj, np.random.Generator):
            return (type(obj).__name__, repr(obj.bit_generator.state))
        return (type(obj).__name__, hash(obj.getstate()))

    def _class(self, obj: type) -> Any:
        if obj.__module__ != "differential_program":
            return f"class {obj.__qualname__}"
        return (f"class {obj.__qualname__}", self._class_items(obj))

    def _method(self, obj: types.MethodType) -> Any:
        return (type(obj).__name__, self.of(obj.__func__), self.of(obj.__self__))

    def _row(self, obj: Any) -> Any:
        return (type(obj).__name__, [self.of(item) for item in obj], self._attributes(obj))

    def _set(self, obj: Any) -> Any:
        return (type(obj).__name__, sorted(map(repr, map(self.of, obj))), self._attributes(obj))

    def _mapping(self, obj: Any) -> Any:
        items = [(self.of(k), self.of(v)) for k, v in obj.items()] if obj else []
        return (type(obj).__name__, items, self._attributes(obj))

    def _other(self, obj: Any) -> Any:
        if isinstance(obj, (range, slice)):
            return repr(obj)
        if isinstance(obj, types.CellType):
            return (type(obj).__name__, self.of(obj.cell_contents))
        return (type(obj).__name__, self._attributes(obj))

    def _class_items(self, cls: type) -> Any:
        skipped = ("__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl")
        skipped += ("__slotnames__",)  # a cache that copyreg keeps in the class
        return [(k, self.of(v)) for k, v in vars(cls).items() if k not in skipped]

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            return (str(tensor.dtype), tensor.requires_grad)
        if is_traceable_wrapper_subclass(tensor):
            return self._wrapper(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            if tensor.layout is not torch.strided:
                return self._sparse(tensor)
            return self._values(tensor)

    def _sparse(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """Flags of a tensor of a sparse layout, and its indices and values."""
        flags = (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad, tensor.is_leaf)
        plain = tensor.detach()
        if plain.layout is torch.sparse_coo:
            parts = [plain.is_coalesced(), plain._indices().tolist(), plain._values().tolist()]
        elif plain.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [t.tolist() for t in (plain.crow_indices(), plain.col_indices())]
            parts.append(plain.values().tolist())
        else:
            parts = plain.to_dense().tolist()
        grad = self.of(tensor.grad) if tensor.is_leaf else None
        return (str(tensor.layout), *flags, self.of(parts), grad)

    def _values(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        plain = tensor.detach()
        storage = plain.untyped_storage().data_ptr() if plain.numel() else 0
        scheme: tuple[Any, ...] = ()
        if plain.is_quantized:
            scheme = (str(plain.qscheme()),)
            if plain.qscheme() is torch.per_tensor_affine:
                scheme += (plain.q_scale(), plain.q_zero_point())
            plain = plain.int_repr()
        number = self.storages.setdefault(storage, len(self.storages)) if storage else None
        values = plain.double() if plain.dtype.is_floating_point else plain
        return (
            str(tensor.dtype),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.requires_grad,
            tensor.is_leaf,
            number,
            [] if plain.is_meta else [repr(v) for v in values.reshape(-1).tolist()],
            self.of(tensor.grad) if tensor.is_leaf else None,
            self.of(_own_attributes(tensor) or None),
            *scheme,
        )

    def _wrapper(self, tensor: Any) -> tuple[Any, ...]:
        """Flags and layout of a wrapper subclass, and its inner tensors."""
        inner, held = tensor.__tensor_flatten__()
        flags = (tensor.requires_grad, tensor.is_leaf)
        layout = (str(tensor.dtype), str(tensor.shape), str(tensor.stride()))
        grad = self.of(tensor.grad) if tensor.is_leaf else None
        parts = [(one, self.of(getattr(tensor, one))) for one in inner]
        texts = [self._raggedness(text) for text in (*layout, repr(held))]
        return (*texts, *flags, parts, grad)

    def _raggedness(self, text: str) -> str:
        """The text with the sizes of jagged tensors, which torch counts, numbered as they come."""
        return re.sub(
            r"\bj\d+\b", lambda m: f"j{self.ragged.setdefault(m[0], len(self.ragged))}", text
        )

    def _function(self, function: types.FunctionType) -> Any:
        if function.__module__ != "differential_program":
            return f"function {function.__qualname__}"
        return (
            f"function {function.__qualname__}",
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [self.of(_contents(cell)) for cell in function.__closure__ or ()],
            self.of(function.__dict__ or None),
        )

    def _attributes(self, obj: Any) -> Any:
        if type(obj) in _BARE:
            return None
        items: list[Any] = []
        if not isinstance(obj, BaseException):
            slots = self.slots.get(type(obj))
            if slots is None:
                slots = self.slots[type(obj)] = _slots(type(obj))
            items = [(s, self.of(getattr(obj, s, "unset"))) for s in slots]
        attributes = getattr(obj, "__dict__", None)
        if isinstance(attributes, dict):
            items += [(k, self.of(v)) for k, v in attributes.items()]
        return items or None

    def _exception(self, error: BaseException) -> Any:
        frames: list[tuple[str, int | None]] = []
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename != self.filename:
                continue
            if frames and frames[-1][0] == frame.name:
                frames.pop()  # a frame and its continuations count as one
            frames.append((frame.name, frame.lineno))
        return (
            type(error).__name__,
            self.of(error.args),
            frames,
            self._attributes(error),
            self.of(error.__cause__),
            self.of(error.__context__),
            error.__suppress_context__,
        )


Look = Callable[[Picture, Any], Any]
_AS_THEY_ARE = frozenset([type(None), bool, int, str, bytes, complex])
_BARE = frozenset([list, tuple, set, dict, collections.deque])  # without attributes
# How an object is seen: the first that fits.
_LOOKS: tuple[tuple[Any, Look], ...] = (
    ((torch.dtype, torch.device, torch.Size, enum.Enum, types.ModuleType), Picture._text),
    ((types.BuiltinFunctionType, types.CodeType), Picture._builtin),
    ((torch._ops.OperatorBase, torch._ops.OpOverloadPacket, CustomOpDef), Picture._operator),
    (torch.Generator, Picture._generator),
    (np.ndarray, Picture._array),
    (np.generic, Picture._scalar),
    ((int, float, complex, str, bytes), Picture._number),
    (torch.Tensor, Picture._any_tensor),
    ((random.Random, np.random.RandomState, np.random.Generator), Picture._random),
    (type, Picture._class),
    (types.FunctionType, Picture._function),
    (types.MethodType, Picture._method),
    ((list, tuple, collections.deque), Picture._row),
    ((set, frozenset), Picture._set),
    ((dict, types.MappingProxyType), Picture._mapping),
    (BaseException, Picture._exception),
    (object, Picture._other),
)
_EXACT: dict[type, Look] = {float: lambda _, obj: repr(obj), frozenset: Picture._frozen}
# Of objects whose identity is nothing to compare.
_BY_VALUE = frozenset(
    [*_EXACT.values(), Picture._text, Picture._builtin, Picture._operator, Picture._scalar]
    + [Picture._mesh, Picture._generator]
)


def _slots(kind: type) -> list[str]:
    found = []
    for cls in kind.__mro__:
        slots = cls.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return [name for name in found if name[:2] != "__"]


def _own_attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes of a tensor, but for marks of torch's nested tensors for torch's compiler."""
    held = getattr(tensor, "__dict__", None) or {}
    return {name: value for name, value in held.items() if not name.startswith("_dynamo_")}


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


def check(
    text: str,
    *,
    graphs: int | list[int] | str | None = SOME,
    breaks: str | None = None,
    backends: tuple[str, ...] = BACKENDS,
    prelude: str = "",
    steps: str = "",
    dynamic: bool | None = None,
) -> list[Any]:
    """Run the program in both worlds and compare.

    graphs: how many all calls together have, or how many the frame has and each of its
    continuations; SOME: at least one; None: any number. breaks: the codes of the graphs' breaks,
    "" for none; None: not compared. prelude: definitions that come first. steps: of a program
    without any. dynamic: of dynamo.compile.

    Returns what was compiled (FrameRecords) with the last backend.
    """
    definitions, _, own_steps = textwrap.dedent(text).partition("\n---\n")
    definitions = prelude + definitions
    filename = f"<differential {next(_numbers)}>"
    linecache.cache[filename] = (
        len(definitions),
        None,
        definitions.splitlines(keepends=True),
        filename,
    )
    statements = ast.parse(own_steps or steps).body
    assert statements, "a program without steps"
    eager = World(definitions, filename, None)
    expected = [eager.step(statement) for statement in statements]
    for backend in backends:
        dynamo.reset()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            world = World(definitions, filename, backend, dynamic)
            for statement, wanted in zip(statements, expected):
                assert_same(wanted, world.step(statement), f"{backend}: {ast.unparse(statement)}")
        faults = [str(w.message) for w in caught if "framegraph" in str(w.message).lower()]
        faults += [str(w.message) for w in caught if "fault" in str(w.message)]
        assert not faults, faults[0]
        records = world.run.context.records
        _assert_captured(records, graphs, breaks)
    return records


def _assert_captured(
    records: list[Any], graphs: int | list[int] | str | None, breaks: str | None
) -> None:
    found: Any = [len(record.graphs) for record in records]
    cuts = [entry for record in records for entry in record.breaks if entry.graph_break]
    codes = sorted({entry.code for entry in cuts})
    if graphs == SOME:
        assert any(found), f"nothing was captured: {codes}"
    elif graphs is not None:
        found = found if isinstance(graphs, list) else sum(found)
        assert found == graphs, f"{found} graphs, {codes}"
    if breaks is not None:
        assert codes == sorted(breaks.split()), f"{found} graphs, {codes}"


def assert_same(expected: Any, actual: Any, where: str) -> None:
    for key, value in expected.items():
        if value != actual[key]:
            path, left, right = _difference(value, actual[key], key)
            raise AssertionError(f"{where}: {path}\n  eager    {left!r}\n  compiled {right!r}")


def _difference(left: Any, right: Any, path: str) -> tuple[str, Any, Any]:
    """The innermost place where two pictures differ."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) == len(right):
            for i, (one, other) in enumerate(zip(left, right)):
                if one != other:
                    return _difference(one, other, f"{path}[{i}]")
    return path, left, right
