"""Special methods between two calls: replaced, deleted, added, and shadowed in a subclass; of a
class, a base class and a metaclass; read by what Python looks them up for.
"""

from __future__ import annotations

from tests.dynamo.mutations import check_pair, pairs_of

# special method -> (parameters, its body, another body, the expression that asks for it).
SPECIAL = {
    "__bool__": ("self", "False", "True", "1 if o else 2"),
    "__len__": ("self", "1", "0", "len(o)"),
    "__len__ for truth": ("self", "0", "1", "not o"),
    "__call__": ("self, *a", "3", "4", "o(1)"),
    "__getitem__": ("self, k", "k + 1", "k + 2", "o[1]"),
    "__contains__": ("self, k", "True", "False", "1 in o"),
    "__iter__": ("self", "iter([1, 2])", "iter([3])", "[*o]"),
    "__iter__ for in": ("self", "iter([1, 2])", "iter([3])", "1 in o"),
    "__reversed__": ("self", "iter([1, 2])", "iter([3])", "list(reversed(o))"),
    "__eq__": ("self, other", "True", "False", "o == 1"),
    "__eq__ reflected": ("self, other", "True", "False", "1 == o"),
    "__ne__": ("self, other", "False", "True", "o != 1"),
    "__eq__ for !=": ("self, other", "True", "False", "o != 1"),
    "__lt__": ("self, other", "True", "False", "o < 1"),
    "__ge__": ("self, other", "True", "False", "o >= 1"),
    "__gt__ reflected": ("self, other", "True", "False", "1 < o"),
    "__hash__": ("self", "1", "2", "hash(o) if hash(o) < 3 else 0"),
    "__add__": ("self, other", "1", "2", "o + 1"),
    "__radd__": ("self, other", "1", "2", "1 + o"),
    "__sub__": ("self, other", "1", "2", "o - 1"),
    "__rmul__": ("self, other", "1", "2", "3 * o"),
    "__matmul__": ("self, other", "1", "2", "o @ 1"),
    "__truediv__": ("self, other", "1", "2", "o / 1"),
    "__rfloordiv__": ("self, other", "1", "2", "1 // o"),
    "__mod__": ("self, other", "1", "2", "o % 1"),
    "__pow__": ("self, other", "1", "2", "o ** 1"),
    "__or__": ("self, other", "1", "2", "o | 1"),
    "__rand__": ("self, other", "1", "2", "1 & o"),
    "__lshift__": ("self, other", "1", "2", "o << 1"),
    "__divmod__": ("self, other", "1", "2", "divmod(o, 1)"),
    "__iadd__": ("self, other", "1", "2", "operator.iadd(o, 1)"),
    "__neg__": ("self", "1", "2", "-o"),
    "__pos__": ("self", "1", "2", "+o"),
    "__invert__": ("self", "1", "2", "~o"),
    "__abs__": ("self", "1", "2", "abs(o)"),
    "__index__": ("self", "1", "2", "[4, 5, 6][o]"),
    "__index__ for range": ("self", "1", "2", "list(range(o))"),
    "__int__": ("self", "1", "2", "int(o)"),
    "__float__": ("self", "1.0", "2.0", "float(o)"),
    "__complex__": ("self", "1j", "2j", "complex(o)"),
    "__round__": ("self, *n", "1", "2", "round(o)"),
    "__trunc__": ("self", "1", "2", "math.trunc(o)"),
    "__floor__": ("self", "1", "2", "math.floor(o)"),
    "__ceil__": ("self", "1", "2", "math.ceil(o)"),
    "__str__": ("self", "'a'", "'b'", "str(o)"),
    "__str__ in a text": ("self", "'a'", "'b'", "f'<{o}>'"),
    "__repr__": ("self", "'a'", "'b'", "repr(o)"),
    "__repr__ for str": ("self", "'a'", "'b'", "str(o)"),
    "__repr__ in a list": ("self", "'a'", "'b'", "f'{[o]}'"),
    "__format__": ("self, spec", "'a' + spec", "'b' + spec", "f'{o:x}'"),
    "__bytes__": ("self", "b'a'", "b'b'", "bytes(o)"),
    "__fspath__": ("self", "'a'", "'b'", "os.fspath(o)"),
    "__length_hint__": ("self", "1", "2", "operator.length_hint(o)"),
    "__dir__": ("self", "['a']", "['b']", "dir(o)"),
    "__getattr__": ("self, name", "1", "2", "o.absent"),
    "__getattr__ for getattr": ("self, name", "1", "2", "getattr(o, 'absent', 3)"),
    "__getattribute__": ("self, name", "7", "8", "o.k"),
    "__getattribute__ for hasattr": (
        "self, name",
        "_raise(AttributeError)",
        "1",
        "hasattr(o, 'k')",
    ),
    "__getattr__ for hasattr": (
        "self, name",
        "1",
        "_raise(AttributeError)",
        "hasattr(o, 'absent')",
    ),
    "__setattr__": ("self, name, v", "log.append(1)", "log.append(2)", "setattr(o, 'k', 5)"),
    "__delattr__": ("self, name", "log.append(1)", "log.append(2)", "delattr(o, 'absent')"),
    "__setitem__": ("self, k, v", "log.append(1)", "log.append(2)", "operator.setitem(o, 1, 5)"),
    "__delitem__": ("self, k", "log.append(1)", "log.append(2)", "operator.delitem(o, 1)"),
    "__enter__": ("self", "1", "2", "entered(o)"),
    "__exit__": ("self, *e", "log.append(1)", "log.append(2)", "entered(o)"),
    "__next__": ("self", "1", "2", "next(o)"),
    "__copy__": ("self", "1", "2", "copy.copy(o)"),
    "__deepcopy__": ("self, memo", "1", "2", "copy.deepcopy(o)"),
    "__reduce_ex__": ("self, p", "(int, ('1',))", "(int, ('2',))", "copy.copy(o)"),
    "__instancecheck__": ("self, other", "True", "False", "isinstance(1, o)"),
    "__subclasscheck__": ("self, other", "True", "False", "issubclass(int, o)"),
    "__sizeof__": ("self", "100", "200", "o.__sizeof__()"),
    "__torch_function__": ("self, f, t, a=(), k=None", "1", "2", "torch.add(o, 1)"),
}
# Looked up on the class itself, not on its type.
OF_CLASSES = {
    "__class_getitem__": ("cls, k", "1", "2", "A[1]"),
    "__new__": ("cls", "1", "2", "A()"),
    "__init__": ("self", "log.append(1)", "log.append(2)", "type(A()).__name__"),
    "__init_subclass__": (
        "cls, **k",
        "log.append(1)",
        "log.append(2)",
        "type('S', (A,), {}).__name__",
    ),
    "__missing__": ("self, k", "1", "2", "o[5]"),
    "__missing__ of a new one": ("self, k", "1", "2", "A()[5]"),
    "__post_init__": ("self", "log.append(1)", "log.append(2)", "D().k"),
}
_HEAD = """
def _raise(error): raise error
def entered(o):
    with o as got: return got
def first({parameters}): return {one}
def second({parameters}): return {other}
def read(o): return {expression}
def f(x): return x * 2, outcome(read, o)
"""
# Who holds the method -> (definitions of A, o and owner, who inherits from the owner).
OWNERS = {
    "class": ("class A{bases}: {body}\no = A()\nowner = A", ""),
    "base": ("class B{bases}: {body}\nclass A(B): pass\no = A()\nowner = B", "A"),
    "metaclass": ("class M(type): {body}\nclass o(metaclass=M): k = 2\nowner = M", ""),
}
BODIES = {
    "__enter__": "\n    def __exit__(self, *e): pass",
    "__exit__": "\n    def __enter__(self): pass",
}
# Not asked of a class by its metaclass: copied as it is, or its own attributes come first.
NOT_OF_METACLASSES = (
    "__copy__",
    "__deepcopy__",
    "__reduce_ex__",
    "__sizeof__",
    "__torch_function__",
)
_DATACLASS = "@dataclasses.dataclass\nclass D(A): k: int = 1\n"


def _programs() -> dict[str, str]:
    programs = {}
    for table, owners in ((SPECIAL, OWNERS), (OF_CLASSES, ("class", "base"))):
        for label, row in table.items():
            for owner in owners:
                if owner == "metaclass" and label in NOT_OF_METACLASSES:
                    continue
                programs |= _programs_of(label, owner, *row)
    return programs


def _programs_of(
    label: str, owner: str, parameters: str, one: str, other: str, expression: str
) -> dict[str, str]:
    name = label.split()[0]
    classes, heir = OWNERS[owner]
    classes = classes.format(
        bases="(dict)" if name == "__missing__" else "", body=BODIES.get(name, "k = 1")
    )
    head = _HEAD.format(parameters=parameters, one=one, other=other, expression=expression)
    tail = _DATACLASS if name == "__post_init__" else ""
    restore = f"setattr(owner, {name!r}, first)"
    wrap = {"__new__": "staticmethod", "__class_getitem__": "classmethod"}
    wrap |= {"__init_subclass__": "classmethod", "__torch_function__": "classmethod"}
    if name in wrap:
        head += f"first = {wrap[name]}(first)\nsecond = {wrap[name]}(second)\n"
    has = [
        f"setattr(owner, {name!r}, second)  # undo: {restore}",
        f"delattr(owner, {name!r})  # undo: {restore}",
    ]
    if heir:
        has.append(f"setattr({heir}, {name!r}, second)  # undo: delattr({heir}, {name!r})")
    has_not = [f"setattr(owner, {name!r}, first)  # undo: delattr(owner, {name!r})"]
    if name == "__post_init__":  # looked up when the class is made, too
        return {
            f"{label} of a {owner}": f"{head}{classes}\n{restore}\n{tail}\n---\n" + "\n".join(has)
        }
    return {
        f"{label} of a {owner}": f"{head}{classes}\n{restore}\n---\n" + "\n".join(has),
        f"no {label} of a {owner}": f"{head}{classes}\n---\n" + "\n".join(has_not),
    }


# What breaks the graph in the first call: code -> special method -> owners.
BREAKS = {
    "NOT_SIZED": {
        "no __len__": "metaclass",
    },
    "UNCAPTURED_CALL": {
        "no __call__": "metaclass",
        "__eq__ for !=": "metaclass",
        "no __divmod__": "class base metaclass",
        "no __int__": "metaclass",
        "no __float__": "metaclass",
        "no __complex__": "metaclass",
        "__bytes__": "class base metaclass",
        "no __bytes__": "class base metaclass",
        "__length_hint__": "class base metaclass",
        "no __length_hint__": "class base metaclass",
        "__dir__": "class base",
        "no __dir__": "class base",
        "no __setitem__": "class base",
        "no __delitem__": "class base",
        "no __enter__": "class base metaclass",
        "no __exit__": "class base metaclass",
        "no __instancecheck__": "class base",
        "no __subclasscheck__": "class base",
        "no __sizeof__": "class base",
    },
    "NOT_ITERABLE": {
        "no __contains__": "metaclass",
        "no __iter__ for in": "metaclass",
    },
    "NOT_CONSTANT": {  # a hash by address is known, but not its order beside 3
        "no __hash__": "class base metaclass",
        "no __index__ for range": "class base metaclass",
        "no __trunc__": "class base",
        "no __floor__": "class base",
        "no __ceil__": "class base",
        "__fspath__": "class base",
        "no __fspath__": "class base",
    },
    "UNKNOWN_OBJECT": {
        "__getattribute__": "metaclass",
        "__getattribute__ for hasattr": "metaclass",
    },
    "ATTRIBUTE_MUTATION": {
        "__setattr__": "metaclass",
        "__delattr__": "metaclass",
        "no __delattr__": "metaclass",
    },
    "ITEM_MUTATION": {
        "__setitem__": "metaclass",
        "no __setitem__": "metaclass",
        "__delitem__": "metaclass",
        "no __delitem__": "metaclass",
    },
    "NOT_GRAPH_ARGUMENT": {
        "no __torch_function__": "class base",
    },
    "CLASS_STATEMENT": {
        "__init_subclass__": "class base",
    },
}


def _breaks() -> dict[str, str]:
    return {
        f"{label} of a {owner}": code
        for code, labels in BREAKS.items()
        for label, owners in labels.items()
        for owner in owners.split()
    }


@pairs_of(_programs(), _breaks())
def test_special_methods(pair):
    check_pair(pair)
