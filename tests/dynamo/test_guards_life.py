"""Guard trees hold what they compare with weakly, leak nothing, and survive what guards may do."""

import gc
import sys
import threading
import types
import weakref

import torch

from dynamo import _guards
from dynamo.guards.kinds import GuardSet
from dynamo.guards.sources import (
    AttrSource,
    DictItemSource,
    GlobalSource,
    InstanceDictSource,
    LocalSource,
    SequenceItemSource,
)

X, Y = LocalSource("x", 0), LocalSource("y", 1)


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def build(*rows):
    guard_set = GuardSet()
    for source, kind, payload in rows:
        guard_set.add(source, kind, payload)
    return guard_set.build()


def check(tree, *values):
    return tree.check(values, {}, None, None)


class TestDeath:
    def test_an_object_that_dies_makes_the_tree_invalid(self):
        def function():
            pass

        class Class:
            pass

        code = (lambda: 1).__code__
        cases = [
            ("id", Plain()),
            ("id", function),
            ("type", Class),
            ("static_tensor", torch.nn.Parameter(torch.ones(2))),
            ("function_code", types.FunctionType(compile("1", "f", "eval"), {})),
            ("dict_keys", [Plain()]),
            ("type_attr", ("a", Plain())),
        ]
        del function, Class, code
        while cases:
            kind, payload = cases.pop()
            tree = build((X, kind, payload))
            assert tree.is_valid
            del payload
            gc.collect()
            assert not tree.is_valid, kind
            assert not check(tree, 1)
            assert tree.explain_failure((1,), {}, None, None) == [
                "an object that the guards refer to no longer exists"
            ]
            assert "GuardTree (invalid)" in str(tree) and tree.describe()

    def test_objects_are_not_kept_alive(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        rows = [(X, "id", model), (X, "type", type(model))]
        items = DictItemSource(InstanceDictSource(X), "_modules")
        for name, child in model._modules.items():
            parameters = DictItemSource(
                InstanceDictSource(DictItemSource(items, name)), "_parameters"
            )
            for key, parameter in child._parameters.items():
                rows.append((DictItemSource(parameters, key), "static_tensor", parameter))
        tree = build(*rows)
        for _ in range(5):
            assert check(tree, model)
        assert tree.stats()["replays"] == 4
        gone = [weakref.ref(model), weakref.ref(model[0]), weakref.ref(model[1].weight)]
        del model, rows, child, parameter
        gc.collect()
        assert [ref() for ref in gone] == [None, None, None]
        assert not tree.is_valid

    def test_other_objects_are_held(self):
        """What has no weak references is held strongly."""
        tree = build((X, "id", 10**9), (Y, "constant", "text"))
        assert tree.is_valid and not check(tree, 10**9 + 1, "text")

    def test_example_tensors_are_not_held(self):
        x = torch.ones(3)
        tree = build((X, "tensor", x))
        ref = weakref.ref(x)
        del x
        assert ref() is None and tree.is_valid and check(tree, torch.zeros(3))

    def test_tree_in_a_cycle_is_collected(self):
        class Predicate:
            __name__ = "predicate"

            def __call__(self, value):
                return True

        predicate = Predicate()
        predicate.tree = build((X, "predicate", predicate))
        ref = weakref.ref(predicate)
        del predicate
        gc.collect()
        assert ref() is None


def mixed_tree():
    root = Plain(items=[1, 2.5], table={"k": (1, 2)}, t=torch.ones(2), cls=Plain)
    below = InstanceDictSource(X)
    tree = build(
        (None, "globals", None),
        (X, "type", Plain),
        (SequenceItemSource(DictItemSource(below, "items"), 1), "constant", 2.5),
        (DictItemSource(DictItemSource(below, "table"), "k"), "constant", (1, 2)),
        (DictItemSource(below, "t"), "static_tensor", root.t),
        (AttrSource(X, "cls"), "id", Plain),
        (Y, "tensor", torch.ones(3)),
        (X, "has_attr", ("nothing", False)),
        (Y, "predicate", torch.is_tensor),
        (None, "not_aliased", (Y, DictItemSource(below, "t"))),
        (GlobalSource("flag"), "constant", True),
    )
    return tree, root


class TestLeaks:
    def test_checks_leak_no_references(self):
        tree, root = mixed_tree()
        y, bad, names = torch.ones(3), torch.ones(4), {"flag": True, "other": 1}
        watched = [root, root.items, root.table, root.t, y, bad, names, Plain, tree, None]
        passing, failing = ((root, y), names, None, None), ((root, bad), names, None, None)

        def run(n):
            for i in range(n):
                assert tree.check(*passing)
                assert not tree.check(*failing)
                if i % 10 == 0:
                    root.other = i
                    tree.explain_failure(*failing)

        run(200)
        before = [sys.getrefcount(o) for o in watched[:-1]]
        blocks = sys.getallocatedblocks()
        run(10000)
        assert [sys.getrefcount(o) for o in watched[:-1]] == before
        assert sys.getallocatedblocks() - blocks < 200

    def test_trees_leak_no_memory(self):
        def make():
            tree, root = mixed_tree()
            for _ in range(4):
                assert tree.check((root, torch.ones(3)), {"flag": True}, None, None)

        for _ in range(20):
            make()
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(200):
            make()
        gc.collect()
        assert sys.getallocatedblocks() - blocks < 200


class TestReentry:
    def test_a_guard_may_check_the_same_tree(self):
        answers = []

        class Asks:
            @property
            def a(self):
                if len(answers) < 3:
                    answers.append(None)
                    answers[-1] = tree.check((Plain(a=1, b=2), 2), {}, None, None)
                return 1

        tree = build((AttrSource(X, "a"), "constant", 1), (Y, "constant", 2))
        assert check(tree, Asks(), 2)
        assert answers == [True] or all(answers)

    def test_a_guard_may_drop_the_tree_and_the_values(self):
        holder = {}

        class Drops:
            @property
            def a(self):
                holder.clear()
                gc.collect()
                return [1, 2]

        holder["tree"] = build((SequenceItemSource(AttrSource(X, "a"), 1), "constant", 2))
        check_tree = holder["tree"].check
        assert check_tree((Drops(),), {}, None, None)

    def test_a_guard_may_change_what_was_checked(self):
        class Changes:
            @property
            def a(self):
                self.items.clear()
                self.items.extend([object() for _ in range(100)])
                self.__dict__["table"] = {}
                return 1

        items, table = DictItemSource(InstanceDictSource(X), "items"), AttrSource(X, "table")
        tree = build(
            (AttrSource(X, "a"), "constant", 1),
            (SequenceItemSource(items, 0), "constant", 1),
            (SequenceItemSource(items, 1), "constant", 10**6),
            (DictItemSource(table, "k"), "constant", 1),
        )
        for _ in range(20):
            value = Changes()
            value.items, value.table = [1, 10**6], {"k": 1}
            check(tree, value)
            assert not check(tree, value)

    def test_a_guard_may_let_a_compared_object_die(self):
        class Kills:
            @property
            def a(self):
                cell.clear()
                gc.collect()
                return 1

        cell = [Plain()]
        tree = build((X, "id", cell[0]), (AttrSource(Y, "a"), "constant", 1))
        value = cell[0]
        assert check(tree, value, Plain(a=1))
        del value
        assert not check(tree, cell[0], Kills()) or tree.is_valid

    def test_threads(self):
        """8 threads check one tree while a ninth changes what it guards."""
        root = Plain(items=[1, 2], table={"k": 1}, flag=True, child=Plain(n=10**6))

        def slow(value):
            for _ in range(50):
                pass
            return True

        below = InstanceDictSource(X)
        child = InstanceDictSource(DictItemSource(below, "child"))
        tree = build(
            (SequenceItemSource(DictItemSource(below, "items"), 1), "constant", 2),
            (DictItemSource(DictItemSource(below, "table"), "k"), "constant", 1),
            (DictItemSource(below, "flag"), "constant", True),
            (DictItemSource(child, "n"), "constant", 10**6),
            (X, "predicate", slow),
            (DictItemSource(below, "child"), "predicate", slow),
        )
        stop, errors = threading.Event(), []

        def worker():
            try:
                while not stop.is_set():
                    tree.check((root,), {}, None, None)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=worker) for _ in range(8)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for i in range(400):
                root.flag = i % 3 != 0
                root.items = [1, 2] if i % 2 else [i]
                root.child = Plain(n=10**6 + i % 5)
                root.__dict__["table"] = {"k": i % 2}
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
        assert not errors
        root.flag, root.items, root.table = True, [1, 2], {"k": 1}
        root.child = Plain(n=10**6)
        assert check(tree, root)
        root.child.n = 10**6 + 1
        assert not check(tree, root)


def test_capsule():
    assert "dynamo._guards._C_API" in repr(_guards._C_API)
