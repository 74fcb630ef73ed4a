"""CPython's own tests under the hook (see hooked.py): they end as they do without it.

`python -m tests.cpython test_dict ...` prints the differences of any module,
`make cpython` those of all that stand here.
"""

from __future__ import annotations

import pytest

pytest.importorskip("test.support", reason="CPython's test package is not installed")

from tests.cpython.hooked import compare, full_name

# A few seconds each.
QUICK = [
    "test_abstract_numbers",
    "test_augassign",
    "test_baseexception",
    "test_binop",
    "test_bool",
    "test_contains",
    "test_defaultdict",
    "test_exception_variations",
    "test_generator_stop",
    "test_global",
    "test_keywordonlyarg",
    "test_raise",
    "test_typechecks",
    "test_unpack",
]
SLOW = [
    "test_dynamicclassattribute",
    "test_named_expressions",
    "test_patma",
    "test_positional_only_arg",
    "test_slice",
    "test_subclassinit",
]
# Only `make cpython` runs these.
FULL = [
    "test_abc",
    "test_asyncgen",
    "test_asyncio.test_futures2",
    "test_asyncio.test_locks",
    "test_asyncio.test_queues",
    "test_asyncio.test_timeouts",
    "test_bisect",
    "test_builtin",
    "test_bytes",
    "test_call",
    "test_class",
    "test_collections",
    "test_compare",
    "test_complex",
    "test_contextlib",
    "test_contextlib_async",
    "test_copy",
    "test_coroutines",
    "test_dataclasses",
    "test_decorators",
    "test_deque",
    "test_descr",
    "test_descrtut",
    "test_dict",
    "test_dictcomps",
    "test_dictviews",
    "test_enum",
    "test_enumerate",
    "test_except_star",
    "test_exception_group",
    "test_exception_hierarchy",
    "test_exceptions",
    "test_extcall",
    "test_finalization",
    "test_float",
    "test_format",
    "test_fractions",
    "test_fstring",
    "test_funcattrs",
    "test_functools",
    "test_gc",
    "test_generators",
    "test_genexps",
    "test_grammar",
    "test_hash",
    "test_heapq",
    "test_index",
    "test_int",
    "test_isinstance",
    "test_iter",
    "test_itertools",
    "test_keywordonlyarg",
    "test_list",
    "test_listcomps",
    "test_metaclass",
    "test_numeric_tower",
    "test_opcodes",
    "test_operator",
    "test_ordered_dict",
    "test_pow",
    "test_print",
    "test_property",
    "test_range",
    "test_reprlib",
    "test_richcmp",
    "test_scope",
    "test_set",
    "test_setcomps",
    "test_sort",
    "test_str",  # 3.13; test_unicode before
    "test_string",
    "test_string_literals",
    "test_super",
    "test_threading_local",
    "test_tuple",
    "test_unicode",
    "test_unpack_ex",
    "test_userdict",
    "test_userlist",
    "test_weakref",
    "test_weakset",
    "test_with",
    "test_yield_from",
]

_FRAMES = "compares frame objects: a rewritten frame is followed by its continuations"
_STAND_IN = (
    "looks into a frame of a traceback: that of a callee is a stand-in without its variables"
)
_TRACING = "counts the lines that sys.settrace sees; a traced frame is not captured line by line"
_HASH = "__hash__ of a key clears the dict through a closure while the frame is put together"
_MEMBERS = "members of a set compare by a global that the frame sets: the set is made before that"
_LIFETIME = "an object dies with the frame's rewritten code, not where its last name is bound again"
_BUILTINS = "an iterator that asking for a name of the builtins exhausts; capture asks for it, too"
_SORT = "a list that is changed and changed back while it is sorted is written once, as it became"
_SAME_TEXT = "texts that capture has made become constants of the code: equal ones are one object"
_REUSED = "the address of a tuple that C code fills anew when nobody else holds it"
_COUNTS = "counts references"
_SIZES = "asks for sizes in memory: instances that nobody sees are not made"
_GARBAGE = "counts garbage that cycles hold: instances that nobody sees are not made"
_ALLOCATES = "looks at what the collector has done; compiling allocates and collects, too"
_DEEP = "recurses until C's limit, which frames count in that an evaluation function evaluates"
_ENTRY = "gives a function a C entry that does not run its code, which is what capture reads"
_INSIDE = "replaces what str() and int() call in C; capture computes them before the frame runs"
_STALE = "a fault of CPython's own: a class whose __new__ was deleted does not look for another"
_ORIGIN = "asks where a coroutine was made; captured code makes it where it is first needed"
_TIMES = "compares short times; compiling takes a part of them on a slow or busy machine"
_UNKNOWN_TO_GC = (
    "a class that only _testcapi.without_gc makes, whose finalizer runs again after it has run"
)
# test -> why it ends in another way
EXPLAINED = {
    "test_call.TestPEP590.test_setvectorcall": _ENTRY,  # 3.12
    "test_call.TestPEP590.test_setvectorcall_load_attr_specialization_deopt": _ENTRY,
    "test_call.TestPEP590.test_setvectorcall_load_attr_specialization_skip": _ENTRY,
    "test_call.TestRecursion.test_super_deep": _DEEP,  # 3.12
    "test_coroutines.OriginTrackingTest.test_origin_tracking": _ORIGIN,
    "test_coroutines.OriginTrackingTest.test_origin_tracking_warning": _ORIGIN,  # 3.13
    "test_descr.ClassPropertiesAndMethods.test_restored_object_new": _STALE,
    "test_descr.ClassPropertiesAndMethods.test_slots": _COUNTS,
    "test_descr.SharedKeyTests.test_subclasses": _SIZES,
    "test_functools.TestLRUPy.test_lru_recursion": _DEEP,  # 3.13
    "test_finalization.SimpleFinalizationTest.test_non_gc_resurrect": _UNKNOWN_TO_GC,
    "test_gc.GCCallbackTests.test_collect_garbage": _GARBAGE,
    "test_gc.GCTests.test_collect_generations": _ALLOCATES,
    "test_gc.GCTests.test_frame": _GARBAGE,
    "test_gc.GCTests.test_get_count": _ALLOCATES,
    "test_gc.GCTests.test_get_objects_arguments": _ALLOCATES,
    "test_gc.GCTests.test_resurrection_does_not_block_cleanup_of_other_objects": _GARBAGE,
    "test_gc.GCTogglingTests.test_bug1055820c": _ALLOCATES,
    "test_gc.GCTogglingTests.test_bug1055820d": _ALLOCATES,
    "test_exceptions.ExceptionTests.testSettingException": _FRAMES,
    "test_exceptions.ExceptionTests.test_memory_error_cleanup": _STAND_IN,
    "test_exceptions.NameErrorTests.test_name_error_suggestions": _STAND_IN,
    "test_generators.FinalizationTest.test_refcycle": _COUNTS,
    "test_scope.ScopeTests.testLeaks": _LIFETIME,
    "test_threading_local.PyThreadingLocalTest.test_cycle_collection": _LIFETIME,
    "test_threading_local.ThreadLocalTest.test_cycle_collection": _LIFETIME,
    "test_operator.COperatorTestCase.test_is": _SAME_TEXT,
    "test_operator.COperatorTestCase.test_is_not": _SAME_TEXT,
    "test_operator.PyOperatorTestCase.test_is": _SAME_TEXT,
    "test_operator.PyOperatorTestCase.test_is_not": _SAME_TEXT,
    "test_enumerate.TestReversed.test_bug1229429": _COUNTS,
    "test_enumerate.EnumerateStartTestCase.test_tuple_reuse": _REUSED,
    "test_enumerate.EnumerateTestCase.test_tuple_reuse": _REUSED,
    "test_enumerate.SubclassTestCase.test_tuple_reuse": _REUSED,
    "test_enumerate.TestBig.test_tuple_reuse": _REUSED,
    "test_enumerate.TestLongStart.test_tuple_reuse": _REUSED,
    "test_enumerate.TestStart.test_tuple_reuse": _REUSED,
    "test_itertools.TestBasicOps.test_combinations_tuple_reuse": _REUSED,
    "test_itertools.TestBasicOps.test_combinations_with_replacement_tuple_reuse": _REUSED,
    "test_itertools.TestBasicOps.test_permutations_tuple_reuse": _REUSED,
    "test_itertools.TestBasicOps.test_product_tuple_reuse": _REUSED,
    "test_dict.DictTest.test_oob_indexing_dictiter_iternextitem": _LIFETIME,
    "test_int.IntStrDigitLimitsTests.test_denial_of_service_prevented_int_to_str": _TIMES,
    "test_int.IntStrDigitLimitsTests.test_denial_of_service_prevented_str_to_int": _TIMES,
    "test_int.IntSubclassStrDigitLimitsTests.test_denial_of_service_prevented_int_to_str": _TIMES,
    "test_int.IntSubclassStrDigitLimitsTests.test_denial_of_service_prevented_str_to_int": _TIMES,
    "test_int.PyLongModuleTests.test_pylong_misbehavior_error_path_from_str": _INSIDE,  # 3.12
    "test_int.PyLongModuleTests.test_pylong_misbehavior_error_path_to_str": _INSIDE,
    "test_iter.TestCase.test_reduce_mutating_builtins_iter": _BUILTINS,
    "test_set.TestWeirdBugs.test_8420_set_merge": _MEMBERS,  # 3.13
    "test_sort.TestBugs.test_undetected_mutation": _SORT,
    "test_baseexception.ExceptionClassTests.test_setstate_refcount_no_crash": _HASH,
    "test_raise.TestTracebackType.test_attrs": _FRAMES,
    "test_patma.TestTracing.test_default_capture": _TRACING,
    "test_patma.TestTracing.test_default_wildcard": _TRACING,
    "test_patma.TestTracing.test_no_default": _TRACING,
    "test_patma.TestTracing.test_only_default_capture": _TRACING,
    "test_patma.TestTracing.test_only_default_wildcard": _TRACING,
    "test_patma.TestTracing.test_unreachable_code": _TRACING,
}


def check(module: str) -> None:
    if not full_name(module):
        pytest.skip(f"test.{module} is not installed")
    plain, hooked, rows = compare(module)
    assert not (plain.broken or hooked.broken), plain.broken or hooked.broken
    assert hooked.ran == plain.ran, "other tests ran"
    assert plain.ran, "no tests ran"
    new = [row for row in rows if row.test.removeprefix("test.") not in EXPLAINED]
    text = "\n".join(f"{row.test}: {row.plain} -> {row.hooked}\n{row.text}" for row in new)
    assert not new, f"{len(new)} of {len(plain.ran)} tests differ\n{text}"
    assert not hooked.faults, hooked.faults[0]


@pytest.mark.parametrize("module", QUICK)
def test_module(module):
    check(module)


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW)
def test_slow_module(module):
    check(module)
