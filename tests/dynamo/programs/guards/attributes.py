"""Attributes that come and go, and that are written under one name and read under another."""

from tests.dynamo.programs import ONE, Family

_OWNERS = """
        import types
        mod = types.ModuleType("attributes_of_a_module")
        def func(x): return x
        class Plain: pass
        plain = Plain()
"""
FAMILY = Family(backends=ONE)
PROGRAMS: dict[str, tuple[int | str | None, str]] = {}
for _name in ("mod", "func", "Plain", "plain"):
    PROGRAMS[f"absent_attribute_of_{_name}"] = (
        "some",
        _OWNERS
        + f"""
        def f(x):
            {_name}.count = getattr({_name}, "count", 0) + 1
            try: {_name}.again += 1
            except AttributeError: {_name}.again = 1
            return x + 1, {_name}.count, {_name}.again, hasattr({_name}, "other")
        ---
        run(T(3))
        run(T(3))
        {_name}.other = 1
        run(T(3))
        mod = func = Plain = plain = 0
    """,
    )
    PROGRAMS[f"stored_attribute_of_{_name}"] = (
        None,
        _OWNERS
        + f"""
        def f(x):
            before = hasattr({_name}, "q")
            {_name}.q = x
            during = hasattr({_name}, "q"), getattr({_name}, "q", None) is x, "q" in vars({_name}), vars({_name}).get("q") is x
            del {_name}.q
            return x + 1, before, during, hasattr({_name}, "q"), getattr({_name}, "q", 5)
        ---
        run(T(3))
        {_name}.q = 1
        run(T(3))
        mod = func = Plain = plain = 0
    """,
    )
for _name in ("mod", "func", "plain"):
    PROGRAMS[f"written_by_the_dict_of_{_name}"] = (
        None,
        _OWNERS
        + f"""
        def f(x):
            vars({_name})["z"] = 4
            y = x * {_name}.z
            {_name}.z = 5
            held = {_name}.__dict__
            held["y"] = x
            {_name}.z = 6
            return y, {_name}.z, held["z"], {_name}.y is x, vars({_name})["z"], hasattr({_name}, "y"), [k for k in held if k in "zy"]
        ---
        run(T(3))
        run(T(3))
        {_name}.z
        del {_name}.y
        run(T(3))
        mod = func = Plain = plain = 0
    """,
    )
PROGRAMS["deleted_global_asked_as_an_attribute"] = (
    None,
    """
        import differential_program as me
        kk = 3
        jj = 4
        def f(x):
            global kk
            y = x * kk
            del kk
            between = hasattr(me, "kk"), getattr(me, "kk", 7)
            kk = x
            me.jj = 5
            return y, between, me.kk is x, jj, hasattr(me, "jj"), hasattr(me, "nope")
        ---
        run(T(3))
        kk = 4
        run(T(3))
        nope = 1
        run(T(3))
        me = 0
    """,
)

# A class that holds a function of C, and whose bases have methods of C: (what f reads, change).
_HELD = {
    "read": ("A.v", "A.v = torch.sin"),
    "called": ("A.v(x)", "A.v = torch.sin"),
    "read of a base": ("D.v(x)", "A.v = torch.sin"),
    "hidden by a subclass": ("D.v(x)", "D.v = torch.sin"),
    "of an instance": ("D().v(x)", "D.v = torch.sin"),
    "asked for by getattr": ("getattr(A, 'v')(x)", "A.v = lambda x: x"),
    "written behind the read": ("A.v, setattr(A, 'v', torch.tan)", "A.v = torch.sin"),
    "of a module": ("net(x)", "Net.act = torch.sin"),
    "a method of torch's": ("A.w(x)", "A.w = torch.Tensor.sin"),
    "a method of lists": ("L.index(L([3, 1]), 1)", "L.index = lambda *_: 7"),
    "a class method of dicts": ("K.fromkeys([1])", "K.fromkeys = list"),
    "a constructor": ("A.__new__(A).tag", "A.__new__ = lambda cls: B()"),
    "of a metaclass": ("E.act(x)", "Meta.act = torch.sin"),
}
for _name, (_read, _change) in _HELD.items():
    PROGRAMS[f"function_of_c_in_a_class_{_name.replace(' ', '_')}"] = (
        None,
        f"""
        class A:
            tag, v, w = 1, torch.cos, torch.Tensor.cos
        class B: tag = 2
        class D(A): pass
        class L(list): pass
        class K(dict): pass
        class Meta(type): act = torch.cos
        class E(metaclass=Meta): pass
        class Net(nn.Module):
            act = torch.cos
            def forward(self, x): return self.act(x)
        net = Net()
        def f(x): return x + 1, {_read}
        ---
        run(T(3))
        run(T(3))
        {_change}
        run(T(3))
    """,
    )
