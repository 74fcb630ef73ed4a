"""Random reflection: eager and compiled agree, and capture has no fault. `make fuzz` draws more."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.reflection import batches, costly, differences

PARTS = range(2)
# What may be called at all, and with what: too few arguments, too many, of the wrong kind.
BUILTINS = """
abs all any ascii bin bool bytes callable chr complex delattr dict divmod enumerate filter float
format frozenset getattr hasattr hash hex int isinstance issubclass iter len list map max min next
oct ord pow range repr reversed round set setattr slice sorted staticmethod str sum super tuple type
vars zip property classmethod functools.partial operator.attrgetter operator.itemgetter
operator.methodcaller itertools.chain itertools.islice itertools.repeat collections.deque
collections.OrderedDict collections.defaultdict types.MethodType types.SimpleNamespace torch.Size
functools.reduce math.prod re.sub heapq.heappush copy.copy torch.is_tensor
torch.is_grad_enabled torch.compiler.is_compiling
""".split()
ARGUMENTS = ["", "None", "3, 'a'", "[1], 2, 3", "'a', {}, 1.5, ()", "(), wrong=1"]
NO_FAULT_BEFORE = """
(types.MappingProxyType({'a': 1})).__getattribute__((Plain.__dict__['twice']))
type(((a for a in [1]))).close(((a for a in [1])), (map(str, [1])), 3)
type(((a for a in [1]))).__dict__['throw'](((a for a in [1])))
iter((itertools.chain([1], [2])), small_)
(dict).__dict__['copy']((collections.defaultdict(int, a=1)))
type(MappingT_).__dict__['__instancecheck__']((Slotted), g.mod)
type((None)).__class__((None), unknown=1)
(str).__init__(items["CounterT"], g.match, frozen_, GLOBAL_par)
items["od"].__subclasscheck__(({'a': 1, 'b': 2}))
max((filter(None, [1])), GLOBAL_lock)
GLOBAL_lock + (3)
operator.length_hint((Ruled()))
re.sub('a', len)
re.compile('a').sub(len, 'b', 'x')
torch.bitwise_not(torch.ones(2))
items["si_e"].__reduce_ex__(2)
format((Text('abc')), 'zz')
(types.MappingProxyType)(GLOBAL_Colour)
type.__call__(items["DequeT"], GLOBAL_Watching, g.stk, gen_cls_)
round(lock_, (Meta))
abs(lock_)
print(*lock_)
items["DequeT"]((()), (list[int]))
g.proxy.__ror__(({'a': 1}.values()))
g.proxy.__ror__({'b': 1})
GLOBAL_described.__dir__.__objclass__
(object).__dict__['__reduce_ex__'].__get__(g.x, (list))
(torch.nn.functional.relu).__get__()
g.enumerate.__subclasscheck__()
items["GeneratorT"].__instancecheck__()
type.mro((enum.EnumMeta))
g.TensorT.__dict__['register_post_accumulate_grad_hook']()
types.MethodType((StopIteration(3)), items["point"])
(operator.attrgetter)((math.sin))
staticmethod(items["none"], (dict), items["cm"])
(functools.cached_property)()
items["l"].__or__.__lt__
getattr(items["x"], 'mro')((torch.arange(3)))
(torch.Size)(items["ms"])
super(GLOBAL_Text, (Text)).rstrip((memoryview(b'ab')))
(range(3)).__or__()
GLOBAL_x.__subclasscheck__(items["ve"], (torch.arange(3)))
'{0.__class__}'.format(items["ModuleT"])
type.__getattribute__((Slotted()), '__format__')
object.__getattribute__((types.GeneratorType), '__le__')
object.__getattribute__((str), '__ge__')
super((object), (torch.device('cpu'))).__repr__
object.__new__((Int), unknown=1)
type((collections.Counter)).__new__((collections.Counter), (types.GeneratorType))
(object).__dict__['__new__'](GLOBAL_cycle, GLOBAL_list)
(object).__dict__['__repr__']((Number.ONE))
(object).__dict__['__init__']((itertools.repeat), (complex), unknown=1)
getattr((Frozen), '__init_subclass__')(disp_, (function))
(types.SimpleNamespace).__init__(items["mc"])
getattr(g.seti, '__new__')(items["StopIteration"])
TensorT_(g.disp)
ModuleNNT_(answering_, ('abc'.upper))
operator.length_hint(items["mlist"], g.dev)
operator.attrgetter('rjust.__qualname__')((Text('abc')))
items["r"].__contains__.__getitem__
g.par.__origin__
getattr((remembered), '__type_params__')
enumerate(GLOBAL_frozen, g.plain)
(itertools.islice([1, 2, 3], 2)).__class__((ValueError('a', 1)))
format(g.q, '%')
reversed(GLOBAL_dec)
len(GLOBAL_chain)
(object).__dict__['__init__'].__get__(g.Exception)
operator.methodcaller('__ge__', (Slotted()))(GLOBAL_ABCMetaT)
hasattr(([1, 2].append), '__instancecheck__')
[1].index({2: 3})
object.__ne__(tv_, plain_)
object.__ne__(plain_, plain_)
(collections.deque([1, 2], 3)).remove(items__)
type(1).__dict__['real'].__get__(None, int)
""".strip().splitlines()


def agree(texts: list[str], size: int) -> None:
    remaining = iter(texts)
    while batch := list(itertools.islice(remaining, size)):
        assert not (found := differences(batch)), "\n".join(found)


@pytest.mark.parametrize("part", PARTS)
def test_reflection(part):
    for batch in batches(part, 48, 8):
        assert not (found := differences(batch)), "\n".join(found)


def test_what_was_found():
    agree(NO_FAULT_BEFORE, 8)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_builtins_of_wrong_arguments(arguments):
    texts = [f"{name}({arguments})" for name in BUILTINS]
    agree([text for text in texts if not costly(text)], 16)
