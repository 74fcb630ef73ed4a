"""Parameters, buffers and children that a frame registers: tables, names, errors, global hooks."""

from tests.dynamo.programs import SOME, Family

_PRELUDE = """
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.p = nn.Parameter(T(3))
        self.register_buffer("q", T(3))
        self.register_buffer("t", T(3), persistent=False)
    def forward(self, x): return self.l(x) * self.p
m = N()
def tables():
    return [list(v) for k, v in vars(m).items() if k in ("_parameters", "_buffers", "_modules")], (
        m._non_persistent_buffers_set, [k for k in vars(m) if k[0] != "_"])
def tried(act, *args):
    try: act(*args)
    except (TypeError, AttributeError, ValueError, KeyError) as e: return type(e), str(e)
modules = nn.modules.module
"""

FAMILY = Family(prelude=_PRELUDE, one=frozenset(["global_hooks"]))

PROGRAMS = {
    "wrong_kinds_for_buffers": (
        1,
        """
        def f(x): return m.l(x), tried(setattr, m, "q", 3), tried(setattr, m, "t", "a")
        ---
        run(T(2, 3))
        tables()
        """,
    ),
    "wrong_kinds_for_parameters": (
        1,
        """
        def f(x): return m.l(x), tried(setattr, m, "p", 3), tried(setattr, m, "l", 3), tried(setattr, m, "p", m.l)
        ---
        run(T(2, 3))
        tables()
        """,
    ),
    "none_for_all": (
        1,
        """
        def f(x):
            y = m.l(x)
            m.p = None; m.q = None; m.l = None
            return y, m.p, m.q, m.l
        ---
        run(T(2, 3))
        tables()
        """,
    ),
    "deleted_buffers": (
        1,
        """
        def f(x):
            y = x * m.t + m.q
            del m.t; del m.q
            return y, tried(delattr, m, "t"), hasattr(m, "q")
        ---
        run(T(2, 3))
        tables()
        m.register_buffer("t", T(3))
        list(m.state_dict())
        """,
    ),
    "parameters_in_place_of_buffers": (
        1,
        """
        def f(x):
            m.t = nn.Parameter(torch.zeros(3))
            m.l = nn.Parameter(torch.ones(3))
            return x * m.t + m.l
        ---
        run(T(2, 3))
        tables()
        """,
    ),
    "modules_in_place_of_buffers": (
        1,
        """
        def f(x):
            m.t = nn.ReLU()
            m.q = nn.Tanh()
            return m.t(x) + m.q(x)
        ---
        run(T(2, 3))
        tables()
        """,
    ),
    "buffer_objects": (
        1,
        """
        def f(x):
            m.a = nn.Buffer(torch.zeros(3))
            m.b = nn.Buffer(torch.ones(3), persistent=False)
            m.t = nn.Buffer(torch.ones(3))
            return x + m.a + m.b + m.t
        ---
        run(T(2, 3))
        tables()
        list(m.state_dict())
        """,
    ),
    "buffers_registered_in_each_call": (
        2,
        """
        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.l, self.size = nn.Linear(3, 3), 0
            def forward(self, x):
                self.register_buffer("cache", x * 2, persistent=False)
                return self.l(x) + self.cache
        c = Cached()
        def f(x): return c(x)
        ---
        x = T(2, 3)
        run(x)
        run(x + 1)
        run(x + 2)
        list(c.state_dict()), c.cache
        """,
    ),
    "computed_buffer_objects": (
        2,
        """
        def f(x):
            scaled = nn.Buffer(x * 2)
            m.a = scaled
            m.b = nn.Buffer(x.sum(0), persistent=False)
            m.b += 1
            return x + m.a + m.b, isinstance(scaled, nn.Buffer), scaled.persistent, type(scaled)
        ---
        run(T(2, 3))
        tables()
        list(m.state_dict())
        run(T(2, 3))
        """,
    ),
    "computed_buffer_objects_that_require_grad": (
        SOME,
        """
        def f(x):
            m.a = nn.Buffer(x * 2)
            return x + m.a, m.a.requires_grad, m.a.is_leaf
        ---
        run(T(2, 3).requires_grad_())
        m.a.persistent
        """,
    ),
    "buffer_objects_from_outside": (
        1,
        """
        kept = nn.Buffer(T(3), persistent=False)
        def f(x):
            m.a = kept
            return x + m.a
        ---
        run(T(2, 3))
        tables()
        m.a is kept
        """,
    ),
    "own_register_buffer": (
        SOME,
        """
        class O(N):
            def register_buffer(self, name, tensor, persistent=True):
                log.append(name)
                super().register_buffer(name, tensor, persistent)
        m = O()
        def f(x):
            m.q = x.sum(0)
            return m.l(x) + m.q
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "global_hooks": (
        3,
        """
        def seen(kind, change=None):
            def hook(module, name, value):
                log.append((kind, type(module).__name__, name))
                return None if change is None or value is None else change(value)
            return hook
        def f(x):
            m.q = x.sum(0)
            m.sub = nn.ReLU()
            made = nn.Linear(3, 3)
            m.made = made
            return m.sub(m.l(x)) + m.q
        ---
        run(T(2, 3))
        h = [modules.register_module_parameter_registration_hook(seen("p")), modules.register_module_buffer_registration_hook(seen("b", lambda t: t * 2)), modules.register_module_module_registration_hook(seen("m"))]
        torch.manual_seed(0)
        run(T(2, 3))
        for one in h: one.remove()
        run(T(2, 3))
        """,
    ),
    "global_hooks_that_change": (
        1,
        """
        def f(x):
            m.act = nn.ReLU()
            m.q = x
            return m.act(x) * m.q
        ---
        h = [modules.register_module_module_registration_hook(lambda mod, name, v: nn.Tanh() if name == "act" else None), modules.register_module_buffer_registration_hook(lambda mod, name, v: v + 1)]
        run(T(2, 3))
        type(m.act)
        for one in h: one.remove()
        """,
    ),
}
