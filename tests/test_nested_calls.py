"""Each handler that calls the program's functions below itself on the Python stack has a reason: a
graph break cannot stand in a function that is called so.

What else runs code of the program is a frame of its own: the program's, or that of a polyfill.
`python tools/structure.py --calls` prints the handlers.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import structure

REASONS = {
    "it is the means: a child interpreter, where a caller needs the result at once": [
        "values/builtins.py:polyfill",
        "values/function.py:FunctionValue.call",
        "values/function.py:UserFunctionValue.call",
        "values/polyfill_calls.py:polyfill_call",
        "values/polyfill_calls.py:run_polyfill",
        "torch/substitutes.py:inline",
    ],
    "in tail position, the call is a frame: by tail_call, forwards, or a polyfill": [
        "torch/modules.py:_call",
        "torch/modules.py:call_module",
        "values/builtin_types.py:_extreme.choose",
        "values/classes.py:construct",
        "values/copying.py:_copy",
        "values/descriptors.py:_bind_cached_property",
        "values/dicts.py:DefaultDictValue.missing",
        "values/functional.py:SingleDispatchValue.call",
        "values/iterators.py:FilterIterator.step",
        "values/itertools_iterators.py:AccumulateIterator.step",
        "values/itertools_iterators.py:DropwhileIterator.step",
        "values/itertools_iterators.py:TakewhileIterator.step",
        "values/library.py:_call",
        "values/slots.py:_dispatch",
    ],
    "captured as the body of one operator of the graph, in which nothing can stop": [
        "torch/autograd_function.py:ForwardValue.run",
        "torch/autograd_function.py:RoundTripValue.call",
        "torch/bodies.py:trace_body",
        "torch/checkpoint.py:_check_policy",
        "torch/checkpoint.py:_checkpoint",
        "torch/checkpoint.py:_policy",
        "torch/higher_order.py:_cond",
        "torch/higher_order.py:_inlined.handler",
        "torch/higher_order.py:_out_dtype",
    ],
    "functions of torch's or ours, which call none of the program's": [
        "static_graph/hooks.py:BuildHooks.before_backward",
        "torch/backward.py:_differentiate",
        "torch/optimizers.py:_exactly",
        "torch/settings_calls.py:_errstate",
        "torch/substitutes.py:fold_gaussian_nll_loss",
    ],
    "the result is made a subclass's, with overrides turned off meanwhile": [
        "torch/overrides.py:default_override",
        "torch/tensor_subclass.py:SubclassTensorValue._special",
        "values/monkey_patches.py:call_replacement",
        "values/monkey_patches.py:inline_replaced",
    ],
    # callable_iterator has no __setstate__, as iterators of itertools have: only its own __next__
    # ends it. A break leaves the step to Python, where the function is a frame of its own.
    "nothing but the iterator's own __next__ can end it": ["values/iterators.py:CallIterator.step"],
    # The C function counts the call as a hit or a miss, and decides after the call which entry has
    # to go. A break leaves the whole call to the cache, in which the function is a frame of its own
    # and breaks there. A cache that the captured code makes is not materialised at breaks at all.
    "the cache of C decides after the call what it keeps": [
        "values/caches.py:LruCacheValue._call_of_values",
        "values/caches.py:LruCacheValue._computed",
    ],
    # list.sort of CPython runs meanwhile: programs see the order in which timsort calls __lt__, and
    # versions of Python differ in that order. A sort by `key=` calls the key in a polyfill. A break
    # in __lt__ leaves the sort to Python.
    "the order of comparisons is that of the running CPython": ["values/sorting.py:sort_in_place"],
    "no model and no library has been seen to break there": [
        "values/classes.py:PyModuleValue._by_program",
        "values/instance_checks.py:_abstract_instance",
    ],
}


def test_each_nested_call_has_a_reason():
    explained = sorted(place for places in REASONS.values() for place in places)
    assert structure.nested_calls() == explained


def test_nested_calls_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    (tmp_path / "dynamo").mkdir()
    (tmp_path / "dynamo" / "one.py").write_text(
        "class A:\n    def f(self, tx):\n        return [tx.call_function(a) for a in self.b]\n\n"
        "    def g(self, tx):\n        return tx.finish_call(self)\n\n"
        "def h(tx):\n    def i():\n        tx.inline(1)\n    return i\n"
    )
    assert structure.nested_calls() == ["one.py:A.f", "one.py:h.i"]
