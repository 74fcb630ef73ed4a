"""Random programs of what is compiled one by one: python -m tests.fuzz.alike [--programs N]
[--seed S] [--backend B].

Several modules, closures, partials, methods or objects of one text over different values are
compiled, each by itself, and may share code (dynamo/api/shared_contexts.py). What they hold changes
between the calls (state_values.py, state_changes.py), goes from one to another, is copied, pickled,
freed and compiled again, with other options. As those of state in all else. A program ends at an
error of fullgraph=True.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import dynamo
from tests.dynamo.differential import World
from tests.fuzz import state
from tests.fuzz.state import State
from tests.fuzz.state_changes import ANYWHERE, ARGUMENTS, CHANGES, MODES
from tests.fuzz.state_holders import PREAMBLE
from tests.fuzz.state_values import VALUES, rows

OWN = """
made, calls = [], []
def f(i, *args):
    return (calls[i] if type(i) is int else i)(*args)
def keep(entries): return [True for _ in entries]
def add(target, **settings):
    made.append(target)
    calls.append(compiled(target, **settings))
def pickled(one):
    try: return pickle.loads(pickle.dumps(one))
    except Exception: return one  # texts of the errors name the object
class Small(nn.Module):
    rank = 1
    def __init__(self, v, n=3):
        super().__init__()
        self.lin = nn.Linear(n, n)
        self.register_buffer('buf', T(n))
        self.v, self.n = v, n
"""


@dataclass(frozen=True)
class Kind:
    """What is compiled. text: defines `make`; its BODY reads the value by `read`. place: the value
    seen from outside, of the one at place I. puts: statements that set it there; written: in BODY.
    """

    text: str
    read: str
    place: str
    puts: list[str]
    written: list[str]
    module: str = ""  # the module of the one at place I


_BODY = "out = []\n    BODY\n    return x, out"
_FORWARD = f"class Made(Small):\n  def forward(self, x, *args):\n    {_BODY}\n"
_CELL = ".__closure__[0].cell_contents"


def _kind(text: str, read: str, place: str, puts: str, written: str = "", module: str = "") -> Kind:
    """A kind; V in `text` for the body, P in `puts` for the place, C for a cell's contents."""
    place, puts = (re.sub(r"\.C\b", _CELL, one) for one in (place, puts))
    own = [re.sub(r"\bP\b", place, put) for put in rows(puts)]
    module = re.sub(r"\.C\b", _CELL, module)
    return Kind(
        text.replace("V", _BODY), read, place, own, rows(written) if written else [], module
    )


_OBJECT = "class Made(Box):\n  tag = 2\n  def __init__(self, v): self.v, self.a = v, 1\n"
KINDS: dict[str, Kind] = {
    "module": _kind(
        _FORWARD + "make = Made",
        "self.v",
        "made[I].v",
        "P = W ; calls[I].v = W ; setattr(made[I], 'v', W) ; made[I].__dict__['v'] = W\n"
        "P = made[J].v ; made[I].__init__(W)",
        "self.v = W",
        "made[I]",
    ),
    "trunk": _kind(
        _FORWARD + "def make(v): return nn.Sequential(nn.ReLU(), Made(v))",
        "self.v",
        "made[I][1].v",
        "P = W ; made[I][1] = Made(W) ; made[I][1] = made[J][1] ; made[I].append(Made(W))",
        "self.v = W",
        "made[I][1]",
    ),
    "method of a module": _kind(
        "class Made(Small):\n  def run(self, x, *args):\n    V\ndef make(v): return Made(v).run",
        "self.v",
        "made[I].__self__.v",
        "P = W ; P = made[J].__self__.v",
        "self.v = W",
        "made[I].__self__",
    ),
    "object": _kind(
        _OBJECT + "  def __call__(self, x, *args):\n    V\nmake = Made",
        "self.v",
        "made[I].v",
        "P = W ; made[I] = Made(W) ; made[I].__dict__ = {'v': W} ; made[I].__dict__.update(v=W)",
        "self.v = W ; self.__dict__['v'] = W",
    ),
    "method": _kind(
        _OBJECT + "  def run(self, x, *args):\n    V\ndef make(v): return Made(v).run",
        "self.v",
        "made[I].__self__.v",
        "P = W ; Made.v = W ; P = made[J].__self__.v",
        "self.v = W",
    ),
    "class method": _kind(
        "class Made(Box):\n  @classmethod\n  def run(cls, x, *args):\n    V\n"
        "def make(v): return type('Some', (Made,), {'v': v, '__module__': __name__}).run",
        "cls.v",
        "made[I].__self__.v",
        "P = W ; Made.v = W",
        "cls.v = W",
    ),
    "closure": _kind(
        "def make(v):\n  def inner(x, *args):\n    nonlocal v\n    V\n  return inner",
        "v",
        "made[I].C",
        "P = W ; made[I].__code__ = made[J].__code__",
        "v = W",
    ),
    "inner closure": _kind(
        "def make(v):\n  def g(x, *args):\n    V\n  return lambda x, *args: g(x * 2, *args)",
        "v",
        "made[I].C.C",
        "P = W ; made[I].C = lambda x, *args: (x + 1, []) ; made[I].C = made[J].C",
    ),
    "closure over a module": _kind(
        _FORWARD + "def make(v):\n  inner = Made(v)\n  return lambda x, *args: inner(x, *args)",
        "self.v",
        "made[I].C.v",
        "P = W ; made[I].C = Made(W) ; made[I].C = made[J].C",
        "self.v = W",
        "made[I].C",
    ),
    "closure over an object": _kind(
        "def make(v):\n  box = Box()\n  box.v = v\n  def inner(x, *args):\n    V\n  return inner",
        "box.v",
        "made[I].C.v",
        "P = W ; made[I].C = Dyn(W)",
        "box.v = W",
    ),
    "closure over a list": _kind(
        "def make(v):\n  held = [v, 1]\n  def inner(x, *args):\n    V\n  return inner",
        "held[0]",
        "made[I].C[0]",
        "P = W ; made[I].C.insert(0, W)",
        "held[0] = W ; held.append(W)",
    ),
    "partial": _kind(
        "def part(v, x, *args):\n    V\ndef make(v): return functools.partial(part, v)",
        "v",
        "made[I].args[0]",
        "made[I].__setstate__((part, (W,), {}, {})) ; part.__code__ = part.__code__.replace()",
        "v = W",
    ),
    "keyword": _kind(
        "def part(x, *args, v):\n    V\ndef make(v): return functools.partial(part, v=v)",
        "v",
        "made[I].keywords['v']",
        "P = W ; made[I].keywords.clear()",
    ),
    "default": _kind(
        "def make(v):\n  def inner(x, v=v):\n    V\n  return inner",
        "v",
        "made[I].__defaults__[0]",
        "made[I].__defaults__ = (W,) ; made[I].__defaults__ = None",
        "v = W",
    ),
    "keyword default": _kind(
        "def make(v):\n  def inner(x, *args, v=v):\n    V\n  return inner",
        "v",
        "made[I].__kwdefaults__['v']",
        "P = W ; made[I].__kwdefaults__ = {'v': W}",
        "v = W",
    ),
    "decorated": _kind(
        "def make(v):\n  @functools.wraps(double)\n  def inner(x, *args):\n    V\n"
        "  @functools.wraps(inner)\n  def outer(x, *args): return inner(x, *args)\n  return outer",
        "v",
        "made[I].__wrapped__.C",
        "P = W",
    ),
}
# Changes of modules; M for the module at I, N for that at J.
MODULES = rows("""
M.lin = N.lin ; M.lin.weight = N.lin.weight ; M.lin.weight.data = N.lin.weight.data ; M.eval()
M.load_state_dict(N.state_dict()) ; M.lin = nn.Linear(3, 3) ; M.requires_grad_(False) ; M.double()
torch.utils.swap_tensors(M.lin.weight, N.lin.weight) ; M.lin.weight.grad = None ; M.train()
h = M.register_forward_hook(lambda m, i, o: (o[0] * 2, o[1])) ; h.remove() ; M.buf = T(3) + 1
M.forward = lambda x: (x - 7, []) ; M.lin.bias = None
M.lin.register_forward_hook(lambda m, i, o: -o)
with torch.no_grad(): M.lin.weight.add_(1) ; M.buf.add_(1) ; M.lin.weight.requires_grad_(False)
M.lin = nn.Identity() ; M.extra = 1 ; M.__class__ = type('Other', (type(M),), {'rank': 2})
M.__dict__.update(N.__dict__) ; M.lin.weight = nn.Parameter(T(3, 3)) ; Small.rank = 3
nn.utils.parametrizations.weight_norm(M.lin) ; M.zero_grad() ; M.n = 4 ; M.buf = N.buf
""")
IN_MODULES = rows("""
x = self.lin(x) ; x = x + self.buf ; self.buf.add_(1) ; self.buf = self.buf + 1 ; x = x * self.n
self.n += 1 ; x = x + self.rank ; out.append(self.training)
x = nn.functional.dropout(x, 0.5, self.training)
x = x @ self.lin.weight ; self.lin.weight.grad = None ; x = self.lin(x).relu() + x
""")
# What happens to the ones that were made.
MADE = rows("""
made[I] = calls[I] = None || gc.collect() ; add(made[I]) ; add(make(W)) ; add(make(W))
add(make(W))
add(copy.deepcopy(made[I])) ; add(copy.copy(made[I])) ; add(pickled(made[I]))
calls[I] = compiled(made[I])
calls[I] = compiled(calls[I]) ; add(made[I], dynamic=True) ; add(made[I], dynamic=False)
add(make(W), dynamic=True) ; add(make(W), recompile_limit=1) ; add(made[I], isolate_recompiles=True)
add(make(W), options={'guard_filter_fn': keep}) ; add(make(W), options={'guard_filter_fn': keep})
add(make(W), fullgraph=True) ; add(make(W), fullgraph=True) ; add(make(W), name='named') ; forget()
calls[I] = copy.deepcopy(calls[I]) ; calls[I] = copy.copy(calls[I]) ; calls[I] = pickled(calls[I])
made[I], made[J] = made[J], made[I] ; calls[I], calls[J] = calls[J], calls[I]
del made[I] || del calls[I] ; add(functools.partial(made[I]))
""")
CALLS = rows("""
run(I, ARGS) ; run(I, ARGS) ; run(I, ARGS) ; grads(I, ARGS) ; grads(I, ARGS) ; threaded(I, ARGS)
[run(i, ARGS) for i in range(len(calls))] ; [run(one, ARGS) for one in calls[::-1]]
run(compiled(made[I]), ARGS) ; run(compiled(make(W)), ARGS) ; run(made[I], ARGS)
[run(compiled(make(v)), ARGS) for v in (W, W)] ; run(compiled(made[I], dynamic=True), ARGS)
""")
SETTINGS = rows("""
dynamo.config.patch(dynamic_sources="L['x']") ; dynamo.config.patch(automatic_dynamic_shapes=False)
dynamo.config.patch(recompile_limit=1) ; dynamo.config.patch(assume_static_by_default=False)
""")


class AlikeWorld(World):
    """A world whose `compiled` compiles, or, of eager, leaves all as it is."""

    def __init__(
        self, definitions: str, filename: str, backend: str | None, dynamic: bool | None = None
    ) -> None:
        self.backend = backend
        super().__init__(definitions, filename, None)
        self.hidden |= {"calls", "compiled", "forget", "dynamo"}
        self.namespace.update(compiled=self._compiled, forget=self._forget, dynamo=dynamo)

    def _compiled(self, target: Any, **settings: Any) -> Any:
        if self.backend is None or target is None:
            return target
        return dynamo.compile(target, backend=self.backend, **settings)

    def _forget(self) -> None:
        if self.backend is not None:
            dynamo.reset()


@dataclass(frozen=True)
class Program(state.Program):
    kind: str = "module"
    world: ClassVar = AlikeWorld
    ends: ClassVar = r"'(Unsupported|RecompileLimit\w*)'"  # of fullgraph=True

    def definitions(self) -> str:
        kind = KINDS[self.kind]
        text = kind.text.replace("BODY", "\n".join(self.body or ["pass"]).replace("\n", "\n    "))
        return "\n".join([PREAMBLE, OWN, *self.setups, text, ""])

    def __str__(self) -> str:
        return super().__str__().replace(OWN, "")


class Programs(state.Programs):
    """Programs, drawn one after the other; each follows from the seed and its number."""

    def _program(self) -> Program:
        name = self.random.choice(list(KINDS))
        kind = self.kind = KINDS[name]
        family = self.random.choice([*VALUES, "number", "tensor", "net", "object"])
        inside = State(0, family, "", kind.read, kind.written or ["x = x + 1"], [])
        self.outside = State(0, family, "", kind.place, kind.puts, [])
        body = [line for _ in range(self.random.randrange(1, 4)) for line in self._part([inside])]
        if kind.module:
            body += [
                self.random.choice(IN_MODULES) for _ in range(self.random.choice([0, 1, 1, 2]))
            ]
        steps = [self._placed("add(make(W))") for _ in range(self.random.choice([1, 2, 2, 3, 4]))]
        for _ in range(self.random.randrange(4, 11)):
            for _ in range(self.random.choice([0, 0, 1, 1, 2])):
                steps.append(self._between())
            steps.append(self._called())
        return Program([], body, steps, [], None, name)

    def _between(self) -> str:
        drawn = self.random.random()
        if drawn < 0.4:
            return self._placed(self.random.choice(MADE))
        if drawn < 0.55 and self.kind.module:
            text = re.sub(r"\bM\b", self.kind.module, self.random.choice(MODULES))
            other = self.kind.module.replace("[I]", "[J]")
            return self._placed(re.sub(r"\bN\b", other, text))
        if drawn < 0.6:
            return self.random.choice(ANYWHERE)
        if drawn < 0.8 and CHANGES[self.outside.family]:
            change = self._filled(self.random.choice(CHANGES[self.outside.family]), self.outside)
            return self._placed(change)
        return self._placed(self.random.choice(self.kind.puts))

    def _called(self) -> str:
        argument = self.random.choice(ARGUMENTS if self._chance(0.4) else ARGUMENTS[:1])
        call = self._placed(self.random.choice(CALLS).replace("ARGS", argument))
        modes = MODES if self._chance(0.1) else SETTINGS if self._chance(0.1) else []
        return f"with {self.random.choice(modes)}:\n    result = {call}" if modes else call

    def _placed(self, text: str) -> str:
        """The text with places for I and J, and values for each W."""
        for name in "IJ":
            place = self.random.choice(["0", "1", "-1", "-2"])
            text = re.sub(rf"\b{name}\b", place, text)
        return re.sub(r"\bW\b", lambda _: self._value(self.outside.family), text)


if __name__ == "__main__":
    sys.exit(state.main(Programs, "alike", __doc__))
