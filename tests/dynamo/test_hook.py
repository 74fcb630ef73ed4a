"""The frame hook: dispatch, states, cache entries."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import types
import weakref

import pytest

from dynamo import _hook
from tests.dynamo.hook_support import (
    Context,
    Converter,
    always,
    compiled,
    replace_const,
    type_guard,
)

BOTH = pytest.mark.parametrize("needs_hook", [False, True])


@pytest.fixture(autouse=True)
def clean_state():
    yield
    assert _hook.get_state() == ("off", None)
    assert _hook.installed() == "none"
    assert _hook.set_miss_policy("compile") == "compile"
    _hook.reset_all()


def add(x, y=1, *rest, k=10, **others):
    return x + y + sum(rest) + k + sum(others.values()) + 1000


@BOTH
def test_first_call_compiles_and_later_calls_reuse(needs_hook):
    def f(x):
        return x + 1000

    convert = Converter(needs_hook=needs_hook)
    g = compiled(f, convert)
    assert [g(1), g(2), g(3)] == [2001, 2002, 2003]
    assert convert.names == ["f"]
    assert f(1) == 1001
    (entry,) = _hook.cache_entries(f.__code__)
    assert entry.hits == 3 and entry.compile_id == "0/1" and entry.needs_hook is needs_hook


@BOTH
@pytest.mark.parametrize("extra_stack", [0, 5, 100_000])
@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((1,), {}),
        ((1, 2), {}),
        ((1, 2, 3, 4), {}),
        ((1,), {"y": 5}),
        ((), {"x": 1, "k": 4}),
        ((1, 2, 3), {"k": 4, "z": 9, "w": 1}),
    ],
)
def test_every_way_to_pass_arguments(args, kwargs, needs_hook, extra_stack):
    g = compiled(add, needs_hook=needs_hook, extra_stack=extra_stack)
    for _ in range(3):
        assert g(*args, **kwargs) == add(*args, **kwargs) + 1000


def test_guards_see_parameters_in_frame_order():
    seen = []

    def guard(values, globals_, closure):
        seen.append(values)
        return True

    g = compiled(add, Converter(guard=lambda frame: guard))
    g(0)
    g(1)
    g(1, 2, 3, z=4)
    g(k=7, x=1)
    assert seen == [(1, 1, 10, (), {}), (1, 2, 10, (3,), {"z": 4}), (1, 1, 7, (), {})]


def test_wrong_arguments_raise_as_in_eager():
    g = compiled(add)
    g(1)
    for args, kwargs in [((), {}), ((1,), {"x": 2}), ((1, 2), {"y": 3})]:
        with pytest.raises(TypeError) as expected:
            add(*args, **kwargs)
        with pytest.raises(TypeError) as raised:
            g(*args, **kwargs)
        assert str(raised.value) == str(expected.value)

    def f(x, /, y):
        return x + y + 1000

    g = compiled(f)
    assert g(1, y=2) == 2003
    for args, kwargs in [((1, 2, 3), {}), ((), {"x": 1, "y": 2}), ((1, 2), {"q": 2}), ((1,), {})]:
        with pytest.raises(TypeError) as expected:
            f(*args, **kwargs)
        with pytest.raises(TypeError) as raised:
            g(*args, **kwargs)
        assert str(raised.value) == str(expected.value)
    assert g(1, 2) == 2003


def test_changed_defaults_are_seen():
    def f(x=1, *, k=2):
        return x + k + 1000

    g = compiled(f)
    assert g() == 2003
    assert g() == 2003
    f.__defaults__ = (10,)
    f.__kwdefaults__ = {"k": 20}
    assert g() == 2030
    assert g() == 2030


def test_changed_code_is_seen():
    def f(x):
        return x + 1000

    def other(x):
        return x * 1000

    g = compiled(f)
    assert g(1) == 2001
    f.__code__ = other.__code__
    assert g(2) == 4000
    assert g(3) == 6000


@BOTH
def test_guard_failures_recompile_and_hits_move_to_the_front(needs_hook):
    def f(x):
        return x * 1000

    convert = Converter(type_guard, needs_hook)
    g = compiled(f, convert)
    assert g(1) == 2000 and g(1.0) == 2000.0 and g("a") == "a" * 2000
    assert convert.failed == [0, 1, 2]
    entries = _hook.cache_entries(f.__code__)
    assert [e.compile_id for e in entries] == ["0/3", "0/2", "0/1"]
    g(1)
    assert [e.compile_id for e in _hook.cache_entries(f.__code__)] == ["0/1", "0/3", "0/2"]
    assert len(convert.names) == 3


@BOTH
def test_nested_calls_are_compiled_only_with_the_hook(needs_hook):
    def inner(x):
        return x + 1000

    def outer(x):
        return inner(x) + 1000

    g = compiled(outer, Converter(needs_hook=needs_hook))
    expected = 4001 if needs_hook else 3001
    assert [g(1), g(1), g(1)] == [expected] * 3


def test_skip_leaves_nested_calls_hooked():
    def inner(x):
        return x + 1000

    def outer(x):
        return inner(x)

    convert = Converter()
    g = compiled(outer, convert)
    assert [g(1), g(2)] == [2001, 2002]
    assert convert.names == ["outer", "inner"]


def test_skip_recursively_leaves_nested_calls_alone():
    def inner(x):
        return x + 1000

    def outer(x):
        return inner(x)

    names = []

    def convert(frame, context):
        names.append(frame.f_code.co_name)
        return _hook.SKIP_RECURSIVELY

    g = compiled(outer, convert)
    assert [g(1), g(2)] == [1001, 1002]
    assert names == ["outer"]


def test_skip_code():
    def f(x):
        return x + 1000

    context = Context()
    convert = Converter()
    _hook.skip_code(f.__code__, context)
    g = compiled(f, convert, context)
    assert g(1) == 1001 and convert.names == []
    _hook.reset_code(f.__code__)
    assert g(1) == 2001


def test_skip_after_entries_keeps_using_the_entries():
    def f(x):
        return x * 1000

    def convert(frame, context):
        if frame.failed_entries:
            return None
        return _hook.GuardedCode(
            replace_const(frame.f_code, 1000, 2000), type_guard(frame), False, None
        )

    g = compiled(f, convert)
    assert [g(1), g("a"), g(1), g("b")] == [2000, "a" * 1000, 2000, "b" * 1000]


def test_contexts_do_not_share_entries():
    def f(x):
        return x + 1000

    first, second = Converter(), Converter()
    a, b = compiled(f, first), compiled(f, second)
    assert a(1) == b(1) == 2001
    assert first.names == second.names == ["f"]
    assert len(_hook.cache_entries(f.__code__)) == 2
    assert len(_hook.cache_entries(f.__code__, a.context)) == 1


def test_one_context_serves_several_functions():
    def f(x):
        return x + 1000

    context = Context()
    convert = Converter()
    a, b = compiled(f, convert, context), compiled(f, convert, context)
    assert a(1) == b(1) == 2001
    assert convert.names == ["f"]


def test_entries_go_with_their_context():
    def f(x):
        return x + 1000

    g = compiled(f)
    g(1)
    entry = weakref.ref(_hook.cache_entries(f.__code__)[0])
    del g
    assert entry() is None
    assert _hook.cache_entries(f.__code__) == []


def test_entries_go_with_their_code():
    context = Context()
    namespace = {}
    exec("def f(x): return x + 1000", namespace)
    g = compiled(namespace["f"], context=context)
    assert g(1) == 2001
    entry = weakref.ref(_hook.cache_entries(namespace["f"].__code__, context)[0])
    del g
    namespace.clear()
    gc.collect()
    assert entry() is None


def test_context_in_a_cycle_with_its_entries_is_collected():
    def f(x):
        return x + 1000

    context = Context()
    gone = weakref.ref(context)

    def convert(frame, ctx):
        def guard(*args, ctx=ctx):
            return True

        return _hook.GuardedCode(replace_const(frame.f_code, 1000, 2000), guard, False, None)

    g = compiled(f, convert, context)
    assert g(1) == 2001
    del context, g, convert
    gc.collect()
    assert gone() is None


def test_contexts_without_attributes():
    def f(x):
        return x + 1000

    g = _hook.compiled(f, "plain", Converter())
    assert g(1) == 2001
    assert len(_hook.cache_entries(f.__code__, "plain")) == 1


def test_copied_context_starts_empty():
    def f(x):
        return x + 1000

    context = Context()
    compiled(f, context=context)(1)
    for other in (copy.copy(context), copy.deepcopy(context)):
        assert _hook.cache_entries(f.__code__, other) == []
        assert compiled(f, context=other)(1) == 2001
    assert len(_hook.cache_entries(f.__code__, context)) == 1


def test_reset():
    def f(x):
        return x + 1000

    convert = Converter()
    g = compiled(f, convert)
    g(1)
    _hook.reset_all()
    assert _hook.cache_entries(f.__code__) == []
    g(1)
    _hook.reset_code(f.__code__)
    g(1)
    assert len(convert.names) == 3


def test_frame_view():
    cell = 5

    def f(a, b=2, *args, k, **kw):
        local = a + cell
        return local

    views = []

    def convert(frame, context):
        views.append(frame)
        assert frame.f_code is f.__code__
        assert frame.function is f
        assert frame.f_globals is globals()
        assert frame.f_builtins["len"] is len
        assert [c.cell_contents for c in frame.closure] == [5]
        assert frame.f_locals_array == (1, 2, 3, (4,), {"z": 6}, _hook.NULL)[0:2] + (
            3,
            (4,),
            {"z": 6},
            _hook.NULL,
        )
        assert frame.failed_entries == []
        assert isinstance(frame.context, Context)
        return None

    g = compiled(f, convert)
    assert g(1, 2, 4, k=3, z=6) == 6
    with pytest.raises(RuntimeError, match="no longer valid"):
        views[0].f_code
    assert repr(_hook.NULL) == "NULL"


def test_closures_and_cells():
    def make(n):
        def f(x):
            def inner():
                return x + n

            return inner() + 1000

        return f

    convert = Converter()
    context = Context()
    for n in (1, 2, 3):
        g = compiled(make(n), convert, context)
        assert g(10) == g(10) == 2010 + n
    assert convert.names == ["f"]


def test_closure_cells_are_not_kept_alive_by_nested_functions():
    class Big:
        pass

    def outer():
        big = Big()
        alive.append(weakref.ref(big))

        def inner():
            return (big, 1000)[1]

        return inner()

    alive = []
    g = compiled(outer)
    for _ in range(3):
        assert g() == 2000
    assert [ref() for ref in alive] == [None] * 3


@BOTH
def test_methods_bind(needs_hook):
    class A:
        def __init__(self):
            self.n = 1

        def f(self, x):
            return self.n + x + 1000

    A.g = compiled(A.f, needs_hook=needs_hook)
    a = A()
    assert a.g(1) == a.g(x=1) == A.g(a, 1) == 2002
    assert isinstance(a.g, types.MethodType)
    bound = compiled(a.f, needs_hook=needs_hook)
    for _ in range(3):
        assert bound(1) == bound(x=1) == 2002
    many = compiled(a.f)
    with pytest.raises(TypeError):
        many(*range(30))


def test_callables_that_are_not_functions():
    class Callable:
        def __call__(self, x):
            return x + 1000

    def f(x, y):
        return x + y + 1000

    assert compiled(Callable())(1) == 2001
    partial = compiled(functools.partial(f, 1))
    assert [partial(2), partial(2)] == [2003, 2003]
    assert compiled(len)([1]) == 1
    with pytest.raises(TypeError):
        compiled(3)
    holder = type("Holder", (), {"c": compiled(Callable())})()
    assert holder.c(1) == 2001


def test_identity_of_the_wrapper():
    def f(x: int, *, k: str = "a") -> float:
        """Doc."""

    f.attribute = 3
    for g in (compiled(f), _hook.disabled(f), _hook.run_only(f)):
        assert g.__name__ == "f" and g.__qualname__ == f.__qualname__ and g.__doc__ == "Doc."
        assert g.__module__ == __name__ and g.__wrapped__ is f and g.__code__ is f.__code__
        assert inspect.signature(g) == inspect.signature(f)
        assert g.__annotations__ == f.__annotations__ and g.__kwdefaults__ == {"k": "a"}
        assert g.attribute == 3
        g.own = 4
        assert g.own == 4 and not hasattr(f, "own")
        with pytest.raises(AttributeError):
            g.missing
        assert copy.deepcopy(g) is g and copy.copy(g) is g
        assert weakref.ref(g)() is g
        assert "f at" in repr(g)
    assert compiled(functools.partial(f, 1))(k="b") is None


def test_guarded_code_checks_its_arguments():
    code = add.__code__
    with pytest.raises(TypeError):
        _hook.GuardedCode("code", always)
    with pytest.raises(TypeError, match="guard_tree"):
        _hook.GuardedCode(code, 3)
    assert _hook.GuardedCode(code, always).needs_hook is True


@pytest.mark.parametrize(
    "other",
    [
        lambda y: y,
        lambda x, y: x,
        lambda *x: x,
        lambda **x: x,
        lambda *, x: x,
        (lambda x: (lambda z: lambda x: z)(1))(1),
    ],
)
def test_new_code_must_fit(other):
    def f(x):
        return x

    g = compiled(f, lambda frame, ctx: _hook.GuardedCode(other.__code__, always))
    with pytest.raises(ValueError, match="parameters|free variables"):
        g(1)
    assert _hook.cache_entries(f.__code__) == []


def test_convert_must_answer_properly():
    def f(x):
        return x

    with pytest.raises(TypeError, match="convert must return"):
        compiled(f, lambda frame, ctx: 3)(1)


def test_same_code_as_the_original():
    def f(x):
        return x + 1000

    for needs_hook in (False, True):
        g = compiled(f, lambda frame, ctx: _hook.GuardedCode(frame.f_code, always, needs_hook))
        assert [g(1), g(2)] == [1001, 1002]


def test_new_code_with_more_and_with_fewer_locals():
    def f(x):
        return x

    def more(x):
        a, b, c, d = x, x + 1, x + 2, x + 3
        e = [i for i in (a, b, c, d)]
        return sum(e)

    def fewer(x):
        return x * 2

    g = compiled(f, lambda frame, ctx: _hook.GuardedCode(more.__code__, always, False))
    assert [g(1), g(1)] == [10, 10]
    g = compiled(more, lambda frame, ctx: _hook.GuardedCode(fewer.__code__, always, True))
    assert [g(1), g(1)] == [2, 2]


# states


def test_disabled():
    def inner(x):
        return x + 1000

    off = _hook.disabled(inner)

    def outer(x):
        return inner(x) + off(x)

    assert compiled(outer)(1) == 2001 + 1001
    again = _hook.disabled(compiled(inner))
    assert again(1) == 2001


def test_run_only():
    def f(x):
        return x * 1000

    def g(x):
        return f(x)

    convert = Converter(type_guard)
    c = compiled(f, convert)
    run = _hook.run_only(c)
    assert run(1) == 1000 and convert.names == []
    assert c(1) == 2000
    assert run(1) == 2000 and run("a") == "a" * 1000
    assert convert.names == ["f"]
    assert _hook.run_only(g)(1) == 2000


def test_run_only_uses_the_entries_of_every_context():
    def f(x):
        return x * 1000

    a, b = compiled(f, guard=type_guard), compiled(f, guard=type_guard)
    assert a(1) == 2000 and b("a") == "a" * 2000
    run = _hook.run_only(lambda x: f(x))
    assert run(1) == 2000 and run("a") == "a" * 2000 and run(1.0) == 1000.0


def test_compiled_code_may_call_compiled_callables():
    """As a backend's code may: with the hook out, compiled callables still serve, and compile."""

    def inner(x):
        return helper(x) + 1000

    def helper(x):
        return x + 1000

    def outer(x):
        return other(x) + helper(x) + 1000

    other = compiled(inner, needs_hook=True)
    g = compiled(outer)
    for _ in range(3):
        assert g(1) == 4001 + 1001 + 2000
    assert compiled(lambda x: g(x))(1) == 4001 + 1001 + 2000


def test_run_or_error():
    def f(x):
        return x * 1000

    c = compiled(f, guard=type_guard)
    strict = _hook.run_or_error(c)
    with pytest.raises(RuntimeError, match="has not been compiled"):
        strict(1)
    c(1)
    assert strict(1) == 2000
    with pytest.raises(RuntimeError, match="no compiled version"):
        strict("a")
    assert c("a") == "a" * 2000


def test_miss_policies():
    def f(x):
        return x * 1000

    convert = Converter(type_guard)
    c = compiled(f, convert)
    c(1)
    assert _hook.set_miss_policy("eager") == "compile"
    assert c(1) == 2000 and c("a") == "a" * 1000
    assert _hook.set_miss_policy("error") == "eager"
    assert c(1) == 2000
    with pytest.raises(RuntimeError, match="test_hook.py:"):
        c("a")
    assert _hook.set_miss_policy("force_eager") == "error"
    assert c(1) == 1000
    with pytest.raises(ValueError):
        _hook.set_miss_policy("other")
    assert _hook.set_miss_policy("compile") == "force_eager"
    assert convert.names == ["f"]


def test_set_state():
    def f(x):
        return x + 1000

    context = Context()
    compiled(f, context=context)
    with pytest.raises(ValueError):
        _hook.set_state("trace")
    with pytest.raises(ValueError):
        _hook.set_state("other")
    before = _hook.set_state("trace", context)
    try:
        assert f(1) == 2001
        assert _hook.get_state() == ("trace", context)
        inside = _hook.set_state("off")
        assert f(1) == 1001
        _hook.set_state(*inside)
        assert f(1) == 2001
    finally:
        _hook.set_state(*before)
    assert before == ("off", None) and f(1) == 1001


def test_convert_runs_with_the_hook_off():
    def helper(x):
        return x + 1000

    seen = []

    def f(x):
        return x + 1000

    def convert(frame, context):
        seen.append((_hook.get_state()[0], helper(1), other(1)))
        return Converter()(frame, context)

    other = compiled(helper)
    assert compiled(f, convert)(1) == 2001
    assert seen == [("off", 1001, 1001)]
