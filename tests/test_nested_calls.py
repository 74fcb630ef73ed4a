"""Each handler that calls the program's functions below itself on the Python stack has a reason: a
graph break cannot stand in a function that is called so.

What else runs code of the program is a frame of its own: the program's, or that of a polyfill. A
special method is one if the instruction that asks for it ends with the call
(Interpreter.call_at_end), and a handler of a builtin returns the call with which it ends
(values/objects/exceptions.py:call_handler). `python tools/structure.py --calls` prints the
handlers.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import structure

REASONS = {
    "it is the means, of callers that need the result at once": [
        "values/builtins/table.py:polyfill",
        "values/functions/function.py:FunctionValue.call",
        "values/functions/function.py:UserFunctionValue.call",
        "values/builtins/polyfill_calls.py:polyfill_call",
        "values/builtins/polyfill_calls.py:run_polyfill",
        "torch/substitutes.py:inline",
    ],
    # The body is recorded in a graph of its own, once for all its runs, or is asked for an answer
    # and thrown away. A break in it breaks at the operator, which torch runs: the functions are
    # frames of their own then. In no-grad mode checkpoint is a plain call, and no trial.
    "a trial of the body of one operator of the graph, in which nothing can stop": [
        "torch/autograd_function.py:ForwardValue.run",
        "torch/autograd_function.py:RoundTripValue.call",
        "torch/bodies.py:trace_body",
        "torch/checkpoint.py:_check_policy",
        "torch/checkpoint.py:_policy",
    ],
    # torch.cond and its like ask whether they are being compiled: the rest of one of their frames
    # would go on, natively, on the way of compiled calls.
    "torch's function takes another way where nothing is captured: it runs as a whole": [
        "torch/higher_order.py:_cond",
        "torch/higher_order.py:_inlined.handler",
        "torch/higher_order.py:_out_dtype",
    ],
    "functions of torch's or ours, which call none of the program's": [
        "static_graph/hooks.py:BuildHooks.before_backward",
        "torch/backward.py:_differentiate",
        "torch/substitutes.py:fold_gaussian_nll_loss",
    ],
    # Behind the call torch's settings come back, and its result becomes a subclass's.
    "a function of torch's, with overrides turned off meanwhile": [
        "torch/overrides.py:default_override",
    ],
    # F.relu, say, whose torch.relu the program has replaced: found where a node is to be recorded,
    # which many instructions do before their end.
    "a function of torch's that the program has changed from outside": [
        "values/functions/monkey_patches.py:inline_replaced",
    ],
    # Where the program's own instruction asks, or zip, map or starmap do, the step is a polyfill.
    # enumerate, chain, islice and their like have a position that only their own __next__ moves:
    # a break below makes them step natively, and the function is a frame of its own.
    "the item is drawn by an iterator whose position nothing else can move": [
        "values/iterators/iterators.py:FilterIterator.step",
        "values/iterators/itertools_iterators.py:AccumulateIterator.step",
        "values/iterators/itertools_iterators.py:DropwhileIterator.step",
        "values/iterators/itertools_iterators.py:TakewhileIterator.step",
    ],
    # callable_iterator has no __setstate__, as iterators of itertools have: only its own __next__
    # ends it. A break leaves the step to Python, where the function is a frame of its own.
    "nothing but the iterator's own __next__ can end it": [
        "values/iterators/iterators.py:CallIterator.step"
    ],
    # A polyfill computes the keys if `key` or one of the items is of the program's.
    "a built-in key of objects of built-in types": [
        "values/builtins/builtin_types.py:_extreme.choose",
        "values/containers/sorting.py:sort_in_place",
    ],
    # The C function counts the call as a hit or a miss, and decides after the call which entry has
    # to go. A break leaves the whole call to the cache, in which the function is a frame of its own
    # and breaks there. A cache that the captured code makes is not materialised at breaks at all.
    "the cache of C decides after the call what it keeps": [
        "values/functions/caches.py:LruCacheValue._call_of_values",
        "values/functions/caches.py:LruCacheValue._computed",
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
