"""Skipping unchanged containers is sound: whatever reachable is changed, the guards notice.

Each mutation runs against a tree that has been recorded and replayed; the same tree without
skipping is the reference.
"""

import builtins
import collections
import random
import sys
import types

import pytest
import torch

from dynamo.guards.kinds import GuardSet
from dynamo.guards.sources import (
    AttrSource,
    CellContentsSource,
    DictItemSource,
    DictValueSource,
    GlobalSource,
    InstanceDictSource,
    LocalSource,
    ModuleSource,
    SequenceItemSource,
)

SELF = LocalSource("self", 0)


class Node:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return 0


class Other(Node):
    pass


class Base:
    pass


class Derived(Base):
    flag = 1

    def method(self):
        return 0


class OtherParameter(torch.nn.Parameter):
    pass


def scale(x, k=2, *, bias=3):
    return x


def make_inner():
    captured = 1000

    def inner():
        return captured

    return inner


def guard_all(guards, source, value, depth=0):
    """Guard everything below `value` that the kinds can express."""
    if value is None:
        guards.add(source, "none")
    elif isinstance(value, int | float | str):
        guards.add(source, "constant", value)
    elif isinstance(value, torch.Tensor):
        guards.add(source, "static_tensor", value)
    elif isinstance(value, types.FunctionType):
        guards.add(source, "function_code", value)
        for name in ("__defaults__", "__closure__", "__kwdefaults__"):
            guard_all(guards, AttrSource(source, name), getattr(value, name))
    elif isinstance(value, types.CellType):
        guard_all(guards, CellContentsSource(source), value.cell_contents)
    elif isinstance(value, set):
        guards.add(source, "length", len(value))
    elif isinstance(value, list | tuple):
        guards.add(source, "type", type(value))
        guards.add(source, "length", len(value))
        for i, item in enumerate(value):
            guard_all(guards, SequenceItemSource(source, i), item)
    elif isinstance(value, dict):
        guards.add(source, "type", type(value))
        guards.add(source, "dict_keys", list(value))
        for i, (key, item) in enumerate(value.items()):
            constant = isinstance(key, str | int)
            make = DictItemSource(source, key) if constant else DictValueSource(source, i)
            guard_all(guards, make, item)
    else:
        guards.add(source, "type", type(value))
        guards.add(source, "type_attr", ("method", getattr(type(value), "method", None)))
        guards.add(source, "no_instance_attr", "method")
        guard_all(guards, InstanceDictSource(source), value.__dict__, depth + 1)


def recorded_tree(value):
    guards = GuardSet()
    guard_all(guards, SELF, value)
    tree = guards.build()
    for _ in range(4):
        assert check(tree, value), tree.explain_failure((value,), {}, None, None)
    stats = tree.stats()
    assert stats["replays"] == 3 and stats["recordings"] == 1
    return tree


def check(tree, *values, globals=None):
    arguments = (values, {} if globals is None else globals, vars(builtins), None)
    result = tree.check(*arguments)
    assert (tree.explain_failure(*arguments) == []) == result
    tree.skips_unchanged = False
    assert tree.check(*arguments) == result
    tree.skips_unchanged = True
    return result


def make_graph():
    shared = Node(n=1)
    return Node(
        a=1,
        text="t",
        items=[1000, 2.5, shared],
        pair=(1, [2, (3,)]),
        table={"k": 1, "nested": {"z": None}, 7: shared},
        ordered=collections.OrderedDict(p=1, q=2),
        keyed={shared: 5, Node: 6},
        child=Node(grandchild=Node(value=3.0)),
        derived=Derived(),
        function=scale,
        inner=make_inner(),
    )


def set_closure(root, value):
    root.inner.__closure__[0].cell_contents = value


def replace_dict(node, **changes):
    node.__dict__ = {**node.__dict__, **changes}


# name -> (mutation, does it matter)
MUTATIONS = {
    "setattr": (lambda r: setattr(r, "a", 2), True),
    "equal value": (lambda r: setattr(r, "a", 1), False),
    "equal value, other type": (lambda r: setattr(r, "a", True), True),
    "new attribute": (lambda r: setattr(r, "zz", 1), True),
    "delattr": (lambda r: delattr(r, "text"), True),
    "dict item": (lambda r: r.__dict__.__setitem__("a", 2), True),
    "dict update": (lambda r: r.__dict__.update(a=2), True),
    "dict pop": (lambda r: r.__dict__.pop("a"), True),
    "dict popitem": (lambda r: r.__dict__.popitem(), True),
    "dict clear": (lambda r: r.__dict__.clear(), True),
    "dict setdefault": (lambda r: r.__dict__.setdefault("zz", 1), True),
    "dict ior": (lambda r: r.__dict__.__ior__({"a": 2}), True),
    "dict replaced, equal": (lambda r: replace_dict(r), False),
    "dict replaced": (lambda r: replace_dict(r, a=2), True),
    "child dict replaced": (lambda r: replace_dict(r.child.grandchild, value=4.0), True),
    "class": (lambda r: setattr(r, "__class__", Other), True),
    "child class": (lambda r: setattr(r.child, "__class__", Other), True),
    "grandchild": (lambda r: setattr(r.child.grandchild, "value", -3.0), True),
    "grandchild replaced, equal": (
        lambda r: setattr(r.child, "grandchild", Node(value=3.0)),
        False,
    ),
    "grandchild replaced": (lambda r: setattr(r.child, "grandchild", Node(value=4.0)), True),
    "list item": (lambda r: r.items.__setitem__(0, 1001), True),
    "list item, equal": (lambda r: r.items.__setitem__(0, int("1000")), False),
    "list append": (lambda r: r.items.append(1), True),
    "list pop": (lambda r: r.items.pop(), True),
    "list clear": (lambda r: r.items.clear(), True),
    "list reverse": (lambda r: r.items.reverse(), True),
    "list slice": (lambda r: r.items.__setitem__(slice(0, 2), [2.5, 1000]), True),
    "list replaced, equal": (lambda r: setattr(r, "items", list(r.items)), False),
    "list in tuple": (lambda r: r.pair[1].__setitem__(0, 3), True),
    "tuple in list": (lambda r: r.pair[1].__setitem__(1, (4,)), True),
    "tuple": (lambda r: setattr(r, "pair", (2, r.pair[1])), True),
    "table": (lambda r: r.table.__setitem__("k", 2), True),
    "table order": (lambda r: r.table.__setitem__("k", r.table.pop("k")), True),
    "nested table": (lambda r: r.table["nested"].__setitem__("z", 0), True),
    "shared": (lambda r: setattr(r.items[2], "n", 2), True),
    "ordered item": (lambda r: r.ordered.__setitem__("p", 2), True),
    "ordered order": (lambda r: r.ordered.move_to_end("p"), True),
    "ordered popitem": (lambda r: r.ordered.popitem(), True),
    "keyed value": (lambda r: r.keyed.__setitem__(Node, 7), True),
    "keyed key": (lambda r: r.keyed.__setitem__(Other, r.keyed.pop(Node)), True),
    "shadowed method": (lambda r: setattr(r.derived, "method", None), True),
    "cell": (lambda r: set_closure(r, 1001), True),
    "cell, equal": (lambda r: set_closure(r, int("1000")), False),
    "function replaced": (lambda r: setattr(r, "function", make_inner()), True),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation(name):
    mutate, matters = MUTATIONS[name]
    root = make_graph()
    tree = recorded_tree(root)
    mutate(root)
    assert check(tree, root) is not matters
    assert check(tree, root) is not matters


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_of_another_object_first(name):
    """The tree has seen two roots in turns before one of them changes."""
    mutate, matters = MUTATIONS[name]
    root = make_graph()
    tree = recorded_tree(root)
    other = Node(**vars(root))
    for _ in range(20):
        assert check(tree, other) and check(tree, root)
    mutate(root)
    assert check(tree, root) is not matters


class TestClassesAndFunctions:
    def test_class_attributes(self):
        root = make_graph()
        tree = recorded_tree(root)
        saved = Derived.method
        for change in (lambda: setattr(Derived, "method", len), lambda: delattr(Derived, "method")):
            change()
            try:
                assert not check(tree, root)
            finally:
                Derived.method = saved
            assert check(tree, root)
        Base.unrelated = 1
        assert check(tree, root)
        del Base.unrelated

    def test_base_class_attributes(self):
        class Root:
            pass

        class Leaf(Root):
            pass

        class NewBase:
            def method(self):
                return 1

        value = Leaf()
        tree = recorded_tree(Node(value=value, b=1, c=2))
        holder = Node(value=value, b=1, c=2)
        assert check(tree, holder)
        Root.method = len
        assert not check(tree, holder)
        del Root.method
        assert check(tree, holder)
        Leaf.__bases__ = (NewBase,)
        assert not check(tree, holder)

    def test_function_fields(self):
        root = make_graph()
        root.function = types.FunctionType(
            scale.__code__, globals(), "f", scale.__defaults__, scale.__closure__
        )
        root.function.__kwdefaults__ = {"bias": 3}
        tree = recorded_tree(root)
        for name, value in [
            ("__code__", make_graph.__code__),
            ("__defaults__", (3,)),
            ("__defaults__", None),
            ("__kwdefaults__", {"bias": 4}),
        ]:
            saved = getattr(root.function, name)
            setattr(root.function, name, value)
            assert not check(tree, root), name
            setattr(root.function, name, saved)
            assert check(tree, root), name
        root.function.__kwdefaults__["bias"] = 5
        assert not check(tree, root)

    def test_attributes_by_getattr(self):
        """AttrSource over instances, classes and modules."""
        module = types.ModuleType("some_module")
        module.number, module.holder = 1, Node(flag=True)
        guards = GuardSet()
        for attr in ("number", "text"):
            guards.add(AttrSource(SELF, attr), "constant", {"number": 1, "text": "t"}[attr])
        holder = AttrSource(AttrSource(SELF, "module"), "holder")
        guards.add(AttrSource(holder, "flag"), "constant", True)
        guards.add(AttrSource(AttrSource(SELF, "kind"), "flag"), "constant", 1)
        guards.add(AttrSource(AttrSource(SELF, "kind"), "method"), "id", Derived.method)
        tree = guards.build()

        class Holder(Node):
            number = 1

        root = Holder(text="t", module=module, kind=Derived)
        for _ in range(5):
            assert check(tree, root)
        assert tree.stats()["replays"] >= 4
        for owner, name, value in [
            (root, "number", 2),
            (root, "text", "u"),
            (Holder, "number", 2),
            (Holder, "number", property(lambda self: 2)),
            (Holder, "text", property(lambda self: "u")),
            (Holder, "__getattribute__", lambda self, name: 3),
            (module, "holder", Node(flag=False)),
            (module.holder, "flag", 1),
            (Derived, "flag", 2),
        ]:
            saved = owner.__dict__.get(name, Node)
            setattr(owner, name, value)
            assert not check(tree, root), name
            if saved is Node:
                delattr(owner, name)
            else:
                setattr(owner, name, saved)
            assert check(tree, root), name


class TestHasAttr:
    def make(self):
        guards = GuardSet()
        source = DictItemSource(InstanceDictSource(SELF), "value")
        guards.add(source, "has_attr", ("here", True))
        guards.add(source, "has_attr", ("missing", False))
        guards.add(source, "has_attr", ("method", True))
        return guards.build()

    def test_instances(self):
        class Own(Node):
            pass

        root = Node(value=Own(here=1))
        tree = self.make()
        for _ in range(5):
            assert check(tree, root)
        for owner, name in [(root.value, "missing"), (Own, "missing"), (Node, "missing")]:
            setattr(owner, name, 1)
            assert not check(tree, root)
            delattr(owner, name)
            assert check(tree, root)
        Own.__getattr__ = lambda self, name: 1
        assert not check(tree, root)
        del Own.__getattr__
        assert check(tree, root)
        Own.here = property(lambda self: self.nothing)
        assert not check(tree, root)
        del Own.here
        del root.value.here
        assert not check(tree, root)

    def test_functions_and_modules(self):
        def function():
            pass

        function.here = function.method = 1
        root, tree = Node(value=function), self.make()
        for _ in range(5):
            assert check(tree, root)
        function.missing = 1
        assert not check(tree, root)
        module = types.ModuleType("m")
        module.here = module.method = 1
        root.value = module
        for _ in range(5):
            assert check(tree, root)
        module.__getattr__ = lambda name: 1
        assert not check(tree, root)


class TestSpecializedStores:
    """Quickened STORE_ATTR, STORE_SUBSCR and STORE_GLOBAL are seen like any other store."""

    def test_store_attr(self):
        def store(node, value):
            node.n = value

        for make in (lambda: Node(), lambda: Node(n=0)):
            for _ in range(200):
                node = make()
                store(node, 1)
            node = make()
            node.n, node.m = 10**6, 1
            tree = recorded_tree(node)
            for i in range(100):
                store(node, 10**6 + 1 + i)
                assert not check(tree, node)
                store(node, 10**6)
                assert check(tree, node)

    def test_inline_values(self):
        """Instances whose dict nobody has asked for before."""

        class Point:
            def __init__(self, x):
                self.x = x
                self.y = 1

        def store(point, x):
            point.x = x

        for _ in range(200):
            store(Point(1), 2)
        point = Point(10**6)
        tree = recorded_tree(Node(point=point, a=1, b=2))
        holder = Node(point=point, a=1, b=2)
        assert check(tree, holder)
        store(point, 10**6 + 1)
        assert not check(tree, holder)
        store(point, 10**6)
        assert check(tree, holder)
        del point.y
        assert not check(tree, holder)
        point.y = 1
        assert check(tree, holder)
        point.z = 1
        assert not check(tree, holder)
        del point.z
        del point.x
        point.x = 10**6  # the order is another
        assert not check(tree, holder)

    def test_store_subscr_and_global(self):
        def store(container, key, value):
            container[key] = value

        table, items = {"k": 10**6, "l": 1}, [10**6, 1]
        for _ in range(100):
            store({"k": 1}, "k", 2)
        root = Node(table=table, items=items)
        tree = recorded_tree(root)
        for container, key in ((table, "k"), (items, 0)):
            for i in range(50):
                store(container, key, 10**6 + 1 + i)
                assert not check(tree, root)
                store(container, key, 10**6)
                assert check(tree, root)
        names = {"value": 10**6}
        exec("def store(x):\n    global value\n    value = x", names)
        guards = GuardSet()
        for name in ("value", "store", "__builtins__"):
            guards.add(GlobalSource(name), "type", type(names[name]))
        guards.add(GlobalSource("value"), "constant", 10**6)
        tree = guards.build()
        for i in range(100):
            names["store"](10**6)
            assert check(tree, globals=names)
            names["store"](10**6 + 1 + i)
            assert not check(tree, globals=names)


class TestAddressesUsedAgain:
    """A new object may stand where the recorded one was."""

    @pytest.mark.parametrize("make", [lambda n: [n], lambda n: [[n]], lambda n: ((n, n), [(n,)])])
    def test_constants(self, make):
        numbers = iter(range(10**6, 10**6 + 5000))
        holder = Node(values=make(next(numbers)), pad=1, more=2)
        tree = recorded_tree(holder)
        for _ in range(300):
            holder.values = None
            holder.values = make(next(numbers))
            assert not check(tree, holder)

    def test_list_storage(self):
        guards = GuardSet()
        inner = AttrSource(SELF, "values")
        values = [Node(n=10**6), Node(n=10**6), 10**7, (10**7,)]
        for i, value in enumerate(values):
            guard_all(guards, SequenceItemSource(inner, i), value)
        tree = guards.build()
        holder = Node(values=values)
        del value, values
        for i in range(1, 500):
            assert check(tree, holder)
            which = i % 4
            holder.values[which] = None
            new = [Node(n=10**6 + i), Node(n=10**6 + i), 10**7 + i, (10**7 + i,)]
            holder.values[which] = new[which]
            del new
            assert not check(tree, holder)
            holder.values = [Node(n=10**6), Node(n=10**6), 10**7, (10**7,)]

    def test_roots(self):
        guards = GuardSet()
        guard_all(guards, SELF, ((1, 2), (3, 10**6), [4]))
        tree = guards.build()
        for i in range(500):
            value = ((1, 2), (3, 10**6 + i % 3), [4])
            assert check(tree, value) == (i % 3 == 0)
            del value

    def test_cells(self):
        inner = make_inner()
        holder = Node(inner=inner, a=1, b=2)
        tree = recorded_tree(holder)
        for i in range(300):
            inner.__closure__[0].cell_contents = None
            inner.__closure__[0].cell_contents = 1001 + i
            assert not check(tree, holder)

    def test_dead_modules(self):
        results = []
        tree = recorded_tree(Node(child=Node(n=1), b=1, c=2))
        for i in range(300):
            holder = Node(child=Node(n=1 + i % 2), b=1, c=2)
            results.append(check(tree, holder) == (i % 2 == 0))
            del holder
        assert all(results)


class TestModules:
    def make(self):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(3, 3),
            torch.nn.BatchNorm1d(3),
            torch.nn.Sequential(torch.nn.Linear(3, 2)),
        )

    MUTATIONS = {
        "eval": lambda m: m.eval(),
        "inner eval": lambda m: m[2][0].eval(),
        "data": lambda m: setattr(m[0].weight, "data", torch.zeros(4, 3)),
        "data of other dtype": lambda m: setattr(m[0].weight, "data", torch.zeros(3, 3).double()),
        "requires_grad_": lambda m: m[2][0].bias.requires_grad_(False),
        "resize_": lambda m: m[1].running_mean.resize_(7),
        "strides": lambda m: setattr(m[0].weight, "data", m[0].weight.data.t()),
        "set_": lambda m: m[1].running_mean.set_(torch.zeros(9)),
        "parameter": lambda m: setattr(m[0], "weight", torch.nn.Parameter(torch.zeros(3, 3))),
        "parameter removed": lambda m: delattr(m[0], "bias"),
        "parameter added": lambda m: m[0].register_parameter("p", None),
        "buffer": lambda m: m[1].register_buffer("running_mean", torch.zeros(3)),
        "hook": lambda m: m[2].register_forward_hook(lambda *a: None),
        "pre hook": lambda m: m[2][0].register_forward_pre_hook(lambda *a: None),
        "submodule": lambda m: m.__setitem__(0, torch.nn.Linear(3, 3)),
        "append": lambda m: m[2].append(torch.nn.ReLU()),
        "half": lambda m: m.half(),
        "attribute": lambda m: setattr(m[1], "eps", 1.0),
        "class of parameter": lambda m: setattr(m[0].weight, "__class__", OtherParameter),
    }

    @pytest.mark.parametrize("name", MUTATIONS)
    def test_mutation(self, name):
        model = self.make()
        tree = recorded_tree(model)
        self.MUTATIONS[name](model)
        assert not check(tree, model)

    def test_values_do_not_matter(self):
        model = self.make()
        tree = recorded_tree(model)
        before = tree.stats()["recordings"]
        model(torch.randn(4, 3)).sum().backward()
        with torch.no_grad():
            model[0].weight.add_(1)
        model[0].weight.data = torch.ones(3, 3)
        assert check(tree, model)
        assert tree.stats()["recordings"] == before

    def test_train_and_back(self):
        model = self.make()
        tree = recorded_tree(model)
        for _ in range(20):
            model.eval()
            assert not check(tree, model)
            model.train()
            assert check(tree, model)


class TestFrameRoots:
    def test_globals_and_builtins(self):
        guards = GuardSet()
        names = {"a": 1, "helper": scale, "table": {"k": 1}}
        for name, value in names.items():
            guard_all(guards, GlobalSource(name), value)
        guards.add(GlobalSource("len"), "id", len)
        tree = guards.build()
        for _ in range(4):
            assert check(tree, globals=names)
        assert tree.stats()["replays"] == 3
        names["unrelated"] = 1
        assert check(tree, globals=names)
        names["len"] = sum
        assert not check(tree, globals=names)
        del names["len"]
        assert check(tree, globals=names)
        builtins.len, saved = sum, len
        try:
            assert not check(tree, globals=names)
        finally:
            builtins.len = saved
        assert check(tree, globals=names)
        own = dict(vars(builtins))
        assert tree.check((), names, own, None)
        own["len"] = sum
        assert not tree.check((), names, own, None)
        names["table"]["k"] = 2
        assert not check(tree, globals=names)

    def test_globals_that_change_all_the_time(self):
        names = {"counter": 0, "table": {"k": 1, "l": [1, 2]}, "a": 1, "b": 2}
        guards = GuardSet()
        for name in ("table", "a", "b"):
            guard_all(guards, GlobalSource(name), names[name])
        tree = guards.build()
        for i in range(100):
            names["counter"] = i
            assert check(tree, globals=names)
        # The dict that changes is given up, and what is below it still is skipped.
        assert tree.stats()["recordings"] < 20 and tree.stats()["replays"] > 80
        names["table"]["l"].append(1)
        assert not check(tree, globals=names)
        names["table"]["l"].pop()
        assert check(tree, globals=names)
        names["a"] = 2
        assert not check(tree, globals=names)

    def test_star_arguments(self):
        """A fresh tuple and a fresh dict on each call; what they hold is skipped all the same."""
        model = Node(table={"k": 1}, items=[1, 2, 3])
        guards = GuardSet()
        guard_all(guards, SequenceItemSource(LocalSource("args", 0), 1), model)
        guard_all(guards, DictItemSource(LocalSource("kwargs", 1), "m"), model)
        tree = guards.build()
        for i in range(50):
            assert check(tree, (i, model), {"m": model, "i": i})
        assert tree.stats()["recordings"] < 10 and tree.stats()["replays"] > 80
        model.items[0] = 2
        assert not check(tree, (0, model), {"m": model})
        model.items[0] = 1
        other = Node(table={"k": 1}, items=[1, 2, 4])
        assert not check(tree, (0, model), {"m": other})
        assert not check(tree, (0, other), {"m": model})
        assert check(tree, (0, model), {"m": model})

    def test_sys_modules(self):
        module = types.ModuleType("guarded_module")
        module.settings = {"a": 1, "b": {"c": 2}}
        sys.modules["guarded_module"] = module
        try:
            guards = GuardSet()
            source = AttrSource(ModuleSource("guarded_module"), "settings")
            guard_all(guards, source, module.settings)
            tree = guards.build()
            for _ in range(4):
                assert check(tree)
            assert tree.stats()["replays"] == 3
            other = types.ModuleType("guarded_module")
            other.settings = {"a": 1, "b": {"c": 3}}
            sys.modules["guarded_module"] = other
            assert not check(tree)
            sys.modules["guarded_module"] = module
            assert check(tree)
            module.__dict__["settings"] = {"a": 1}
            assert not check(tree)
        finally:
            del sys.modules["guarded_module"]


def random_value(rng, depth):
    kinds = ["int", "float", "str", "none", "node", "dict", "list", "tuple", "ordered", "function"]
    kind = rng.choice(kinds if depth > 0 else kinds[:4])
    below = range(rng.randint(0, 3))
    if kind == "node":
        cls = rng.choice([Node, Other, Derived])
        node = cls()
        node.__dict__.update({rng.choice("abcd"): random_value(rng, depth - 1) for _ in below})
        return node
    if kind in ("dict", "ordered"):
        make = dict if kind == "dict" else collections.OrderedDict
        keys = [rng.choice(["x", "y", 1, 2, Node]) for _ in below]
        return make((key, random_value(rng, depth - 1)) for key in keys)
    if kind in ("list", "tuple"):
        items = [random_value(rng, depth - 1) for _ in below]
        return items if kind == "list" else tuple(items)
    return {
        "int": lambda: rng.randint(0, 3) * 10**6,
        "float": lambda: float(rng.randint(0, 2)),
        "str": lambda: rng.choice(["p", "q"]) * 2,
        "none": lambda: None,
        "function": make_inner,
    }[kind]()


def all_containers(value, found):
    found.append(value)
    if isinstance(value, dict):
        below = value.values()
    elif isinstance(value, list | tuple):
        below = value
    elif isinstance(value, types.FunctionType):
        below = ()
    else:
        below = getattr(value, "__dict__", {}).values()
    for item in below:
        all_containers(item, found)
    return found


def mutate_randomly(rng, root):
    target = rng.choice(all_containers(root, []))
    new = random_value(rng, 1)
    if isinstance(target, dict) and target:
        key = rng.choice(list(target))
        rng.choice(
            [
                lambda: target.__setitem__(key, new),
                lambda: target.pop(key),
                lambda: target.__setitem__(key, target.pop(key)),
                lambda: target.update(y=new),
            ]
        )()
    elif isinstance(target, list):
        rng.choice(
            [
                lambda: target.append(new),
                lambda: target.clear(),
                lambda: target and target.__setitem__(rng.randrange(len(target)), new),
                lambda: target.reverse(),
                lambda: target and target.pop(),
            ]
        )()
    elif isinstance(target, types.FunctionType):
        cell = target.__closure__[0]
        cell.cell_contents = rng.choice([1000, 10**6, cell.cell_contents])
    elif isinstance(target, Node | Derived):
        rng.choice(
            [
                lambda: setattr(target, rng.choice("abcd"), new),
                lambda: target.__dict__.clear(),
                lambda: setattr(target, "__dict__", dict(target.__dict__)),
                lambda: setattr(target, "__class__", rng.choice([Node, Other])),
                lambda: target.__dict__.pop(rng.choice("abcd"), None),
            ]
        )()


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed):
    """Recorded and walked answers agree over random graphs and random changes."""
    rng = random.Random(seed)
    root = Node(a=random_value(rng, 4), b=random_value(rng, 4), c=random_value(rng, 3))
    guards = GuardSet()
    guard_all(guards, SELF, root)
    tree, reference = guards.build(), guards.build()
    reference.skips_unchanged = False
    answers = collections.Counter()
    for _ in range(60):
        for _ in range(rng.randint(1, 3)):
            answer = tree.check((root,), {}, None, None)
            assert answer == reference.check((root,), {}, None, None)
            answers[answer] += 1
        if not answer:
            root = Node(**root.__dict__)
            guards = GuardSet()
            guard_all(guards, SELF, root)
            tree, reference = guards.build(), guards.build()
            reference.skips_unchanged = False
            tree.check((root,), {}, None, None)
        mutate_randomly(rng, root)
    assert answers[True] and answers[False]
