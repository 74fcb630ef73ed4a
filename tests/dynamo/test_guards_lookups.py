"""The guard of names in modules and classes: one comparison until one of them changes."""

import collections
import functools
import gc
import sys
import types
import weakref

import pytest
import torch

import dynamo
from dynamo.guards.classes import ClassAssumptions, is_special, is_trusted_class
from dynamo.guards.kinds import GuardSet


def build(*rows):
    guards = GuardSet()
    guards.add(None, "lookups", rows)
    return guards.build()


def holds(tree):
    """Asked three times: what was verified once is only compared afterwards."""
    found = [tree.check((), {}) for _ in range(3)]
    assert found == [found[0]] * 3
    assert (tree.explain_failure((), {}) == []) == found[0]
    return found[0]


def why(tree):
    (text,) = tree.explain_failure((), {})
    return text


class Base:
    pass


class Derived(Base):
    pass


@pytest.fixture
def module():
    made = types.ModuleType("a_module")
    made.name, made.other = Base, Derived
    return made


class TestDicts:
    def test_passes_while_the_name_leads_to_the_object(self, module):
        tree = build((vars(module), "name", Base))
        assert holds(tree)
        module.name = Derived
        assert not holds(tree) and "a_module.name was" in why(tree)
        module.name = Base
        assert holds(tree)

    def test_other_names_do_not_matter(self, module):
        tree = build((vars(module), "name", Base))
        for number in range(5):
            module.other = number
            module.__dict__[f"new_{number}"] = number
            assert holds(tree)
        del module.other
        assert holds(tree)

    def test_a_name_that_is_deleted_comes_back(self, module):
        tree = build((vars(module), "name", Base))
        del module.name
        assert not holds(tree) and "is not there" in why(tree)
        module.name = Base
        assert holds(tree)

    def test_a_name_that_is_not_there_appears(self, module):
        tree = build((vars(module), "absent"))
        assert holds(tree)
        module.absent = None
        assert not holds(tree) and "was not there, is None" in why(tree)
        del module.absent
        assert holds(tree)

    @pytest.mark.parametrize("how", ["clear", "update", "pop", "setdefault", "ior"])
    def test_every_way_to_change_a_dict(self, module, how):
        tree = build((vars(module), "name", Base), (vars(module), "absent"))
        assert holds(tree)
        changes = {
            "clear": lambda d: d.clear(),
            "update": lambda d: d.update(name=1),
            "pop": lambda d: d.pop("name"),
            "setdefault": lambda d: d.setdefault("absent", 1),
            "ior": lambda d: d.__ior__({"name": 1}),
        }
        changes[how](vars(module))
        assert not holds(tree)

    def test_a_name_that_is_no_interned_string(self, module):
        tree = build((vars(module), "name", Base))
        assert holds(tree)
        vars(module)["".join(["na", "me"])] = Derived
        assert not holds(tree)

    def test_before_the_first_check(self, module):
        tree = build((vars(module), "name", Base))
        module.name = Derived
        assert not holds(tree)

    def test_several_trees_over_one_dict(self, module):
        trees = [build((vars(module), "name", Base)) for _ in range(3)]
        assert all(map(holds, trees))
        del trees[0]
        gc.collect()
        module.name = Derived
        assert not any(map(holds, trees))
        module.name = Base
        assert all(map(holds, trees))

    def test_a_dict_that_dies(self):
        module = types.ModuleType("short_lived")
        module.name = Base
        tree = build((vars(module), "name", Base))
        assert holds(tree)
        del module
        gc.collect()
        for _ in range(50):  # perhaps at the same address
            made = types.ModuleType("another")
            made.name = Base
            assert holds(build((vars(made), "name", Base)))
        del tree
        gc.collect()


class TestClasses:
    def teardown_method(self):
        for cls in (Base, Derived):
            for name in ("method", "other"):
                if name in vars(cls):
                    delattr(cls, name)

    def test_passes_while_the_class_holds_the_object(self):
        Base.method = found = lambda self: 1
        tree = build((Base, "method", found))
        assert holds(tree)
        Base.method = lambda self: 2
        assert not holds(tree) and "Base.method was" in why(tree)
        Base.method = found
        assert holds(tree)

    def test_a_base_changes(self):
        tree = build((Derived, "method"))
        assert holds(tree)
        Base.method = 1
        assert not holds(tree)
        del Base.method
        assert holds(tree)

    def test_a_class_earlier_in_the_order_gets_the_name(self):
        Base.method = found = lambda self: 1
        tree = build((Derived, "method", found))
        assert holds(tree)
        Derived.method = lambda self: 2
        assert not holds(tree)
        del Derived.method
        assert holds(tree)

    def test_bases_are_exchanged(self):
        class Other:
            method = None

        class Mine(Base):
            pass

        tree = build((Mine, "method"))
        assert holds(tree)
        Mine.__bases__ = (Other,)
        assert not holds(tree)

    def test_changed_twice_between_two_checks(self):
        tree = build((Base, "method"))
        assert holds(tree)
        Base.method = 1
        Base.method = 2
        assert not holds(tree)
        del Base.method
        Base.other = 1
        assert holds(tree)

    def test_changed_more_often_than_there_are_versions(self):
        tree = build((Base, "method"))
        for number in range(1200):
            Base.other = number
            assert tree.check((), {})
        Base.method = 1
        assert not holds(tree)

    def test_a_class_that_dies_invalidates_the_tree(self):
        cls = type("Short", (), {})
        tree = build((cls, "method"))
        assert holds(tree)
        del cls
        gc.collect()
        assert not tree.is_valid and not tree.check((), {})
        assert "Short" in tree.describe()[0]


def test_what_is_found_is_held_weakly():
    module = types.ModuleType("a_module")
    module.name = function = lambda: None
    tree = build((vars(module), "name", function))
    assert holds(tree)
    gone = weakref.ref(function)
    del function, module.name
    gc.collect()
    assert gone() is None and not tree.is_valid


def test_only_dicts_and_classes_hold_names():
    with pytest.raises(TypeError, match="dicts and classes"):
        build(([], "name", 1))
    with pytest.raises(TypeError):
        build((vars(sys), 3, 1))


def test_keys_that_compare_themselves(recwarn):
    class Key:
        def __init__(self, module):
            self.module = module

        def __hash__(self):
            return hash("name")

        def __eq__(self, other):
            self.module.seen = True  # changes the dict that is being read
            return False

    module = types.ModuleType("a_module")
    vars(module)[Key(module)] = 1
    module.name = Base
    tree = build((vars(module), "name", Base))
    assert holds(tree)
    module.name = Derived
    assert not holds(tree)


def test_a_comparison_of_keys_in_a_class_raises():
    raises = False

    class Key(str):
        def __hash__(self):
            return hash("__add__")

        def __eq__(self, other):
            if raises:
                raise ValueError
            return False

    class A:
        locals()[Key()] = 1

        def __add__(self, other):
            return 1

    guards = GuardSet()
    guards.assume_class(A)
    tree = guards.build()
    assert tree.check((), {})
    A.changed = raises = True
    assert not tree.check((), {})
    assert "ValueError" in why(tree)


def test_special_methods_are_what_the_guard_of_a_class_covers():
    class A:
        def __add__(self, other):
            return 1

        def plain(self):
            return 1

    guards = GuardSet()
    guards.assume_class(A)
    tree = guards.build()
    A.plain, A.__doc__, A.more = None, "another", 1
    assert tree.check((), {})
    del A.__add__
    assert not tree.check((), {})
    A.__add__ = lambda self, other: 2
    assert not tree.check((), {})


@pytest.mark.parametrize("name", ["__add__", "__x__", "__call__"])
def test_names_of_special_methods(name):
    assert is_special(name)
    assert not any(map(is_special, [name[1:], name[:-1], "____", "__doc__", "add", 3, None]))


def test_classes_that_no_guard_is_for():
    """Those of torch and the standard library, by the package and not by how its name begins."""
    alike = type("Alike", (), {"__module__": "torchlike.nn"})
    made = type("Made", (torch.nn.Module,), {"__module__": "torch.nn.utils.parametrize"})
    assert is_trusted_class(torch.nn.Linear) and is_trusted_class(collections.OrderedDict)
    assert not any(map(is_trusted_class, [alike, made, Base]))
    assert ClassAssumptions(torch.nn.Linear).payload() is None
    assert ClassAssumptions(Derived).payload() is not None


def test_functions_that_say_they_are_torch_s():
    @functools.wraps(torch.nn.functional.relu)
    def scaled(x, by=2, *, shift=1):
        return x * by + shift

    class Holder:
        method = staticmethod(scaled)

    def f(x):
        return scaled(x), Holder.method(x), Holder().method(x)

    compiled, x = dynamo.compile(f, backend="eager"), torch.ones(2)
    assert_equal = torch.testing.assert_close
    assert_equal(compiled(x), f(x))
    scaled.__defaults__ = (5,)
    assert_equal(compiled(x), f(x))
    scaled.__kwdefaults__ = {"shift": 10}
    assert_equal(compiled(x), f(x))
    scaled.__code__ = (lambda x, by=2, *, shift=1: x * 100).__code__
    assert_equal(compiled(x), f(x))
