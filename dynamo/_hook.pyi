"""The frame hook (csrc/eval_frame.c): dispatch to compiled code, and frames for convert."""

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, final

_P = ParamSpec("_P")
_R = TypeVar("_R")

_State = Literal["off", "run", "trace"]
_Policy = Literal["compile", "eager", "error", "force_eager"]
_Guard = Callable[[tuple[Any, ...], dict[str, Any], tuple[CellType, ...]], bool]

@final
class Sentinel: ...

NULL: Final[Sentinel]
SKIP_RECURSIVELY: Final[Sentinel]

@final
class GuardedCode:
    """Compiled code and the guards under which it stands for the original code.

    `code` has the parameters and free variables of the original. `guard_tree` is a
    dynamo._guards.GuardTree, or, slow and for tests, a callable
    (parameters, globals, closure) -> bool. None: the code is for one call, and not kept.
    """

    def __init__(
        self,
        code: CodeType,
        guard_tree: Any | _Guard | None,
        needs_hook: bool = True,
        compile_id: Any = None,
    ) -> None: ...
    @property
    def code(self) -> CodeType: ...
    @property
    def guard_tree(self) -> Any: ...
    @property
    def needs_hook(self) -> bool: ...
    @property
    def compile_id(self) -> Any: ...
    @property
    def hits(self) -> int: ...

@final
class Frame:
    """A call that has not started. Every attribute raises once convert has returned."""

    @property
    def f_code(self) -> CodeType: ...
    @property
    def f_locals_array(self) -> tuple[Any, ...]:
        """Values of co_varnames at function entry; NULL where unbound."""
    @property
    def f_globals(self) -> dict[str, Any]: ...
    @property
    def f_builtins(self) -> dict[str, Any]: ...
    @property
    def closure(self) -> tuple[CellType, ...]: ...
    @property
    def function(self) -> FunctionType: ...
    @property
    def failed_entries(self) -> list[GuardedCode]:
        """All entries of this code under this context, most recently used first; none served."""
    @property
    def context(self) -> Any: ...

_Convert = Callable[[Frame, Any], GuardedCode | Sentinel | None]

@final
class Compiled(Generic[_P, _R]):
    """A callable that runs compiled code in place of the original; all else is the original's."""

    __name__: str
    __qualname__: str
    @property
    def __wrapped__(self) -> Callable[_P, _R]: ...
    @property
    def context(self) -> Any: ...
    @property
    def convert(self) -> _Convert: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., _R]: ...
    def __getattr__(self, name: str) -> Any: ...

@final
class Scoped(Generic[_P, _R]):
    """A callable that runs the original in another state of the hook."""

    __name__: str
    __qualname__: str
    @property
    def __wrapped__(self) -> Callable[_P, _R]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., _R]: ...
    def __getattr__(self, name: str) -> Any: ...

@final
class TailCall:
    """`function(*args)`: the call with which a continuation wants to be continued."""

    def __init__(self, function: Callable[..., Any], /, *args: Any) -> None: ...

@final
class StealingCall:
    """Calls a function, and what it returns as long as that is a TailCall. The caller's stack does
    not keep the arguments: only for CALL of code that we made."""

    def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any: ...

call_stealing_args: Final[StealingCall]
trampoline: Final[StealingCall]
"""call_stealing_args, with the calling frame hidden: f_back and sys._getframe do not find it."""

def compiled(fn: Callable[_P, _R], context: Any, convert: _Convert) -> Compiled[_P, _R]:
    """`fn`, compiled. convert(frame, context) answers a GuardedCode, None (leave this code as it
    is, but not what it calls) or SKIP_RECURSIVELY (nor what it calls). `context` owns the compiled
    code, in its __dict__."""

def disabled(fn: Callable[_P, _R]) -> Scoped[_P, _R]: ...
def with_tracing(fn: Callable[..., _R], /, *args: Any) -> _R: ...
def run_only(fn: Callable[_P, _R]) -> Scoped[_P, _R]: ...
def run_or_error(fn: Callable[_P, _R]) -> Scoped[_P, _R]: ...
def set_state(state: _State, context: Any = None) -> tuple[_State, Any]:
    """This thread's state. Returns the arguments that restore the previous one."""

def get_state() -> tuple[_State, Any]: ...
def installed() -> Literal["none", "hook", "foreign"]: ...
def set_miss_policy(policy: _Policy) -> _Policy: ...
def reset_code(code: CodeType) -> None: ...
def reset_all() -> None: ...
def cache_entries(code: CodeType, context: Any = None) -> list[GuardedCode]: ...
def hide(namespace: dict[str, Any]) -> None:
    """Functions with these globals leave no entries in tracebacks where trampoline calls them:
    they say in Python what C functions do."""

def next_item(iterator: Any) -> tuple[Any, ...]:
    """The next item, or an empty tuple at the end."""

def answered(
    function: FunctionType,
    value: Any,
    callee: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """callee(*args, **kwargs), in which the next call of `function` returns `value` unrun:
    for C callables that keep what a function of the program returns."""

def skip_code(code: CodeType, context: Any, recursive: bool = False) -> None: ...
