"""What ends where a frame overwrites, deletes or drops it, in calls after the one that was captured,
and the order in which attributes and globals are left.
"""

from tests.dynamo.programs import ONE, Family

DEFINITIONS = """
import weakref, dynamo
class O:
    def __init__(self, n=0): self.n = n
class D:
    def __init__(self, n): self.n = n
    def __del__(self): log.append(("end", self.n))
"""
FAMILY = Family(backends=ONE, prelude=DEFINITIONS, captured=False, collector=False)
PROGRAMS = {
    "overwritten_attr": """
        class C: pass
        def f(o, t):
            log.append("a"); o.k = t + 1; log.append("b"); return o.k
        ---
        o = C(); o.k = None
        run(o, T(2))
        o.k = D(3)
        run(o, T(2))
        o.k = None
        run(o, T(2))
    """,
    "overwritten_attr_slots": """
        class C: __slots__ = ("k",)
        def f(o, t):
            log.append("a"); o.k = t + 1; log.append("b"); return o.k
        ---
        o = C()
        run(o, T(2))
        o.k = D(3)
        run(o, T(2))
    """,
    "overwritten_attr_weak": """
        class C: pass
        def f(o, t):
            log.append("a"); o.k = t + 1; log.append("b"); return o.k
        ---
        o = C(); o.k = None
        run(o, T(2))
        o.k = O(3); w = weakref.ref(o.k, lambda _: log.append("gone"))
        run(o, T(2))
    """,
    "overwritten_attr_del": """
        class C: pass
        def f(o, t):
            log.append("a")
            if hasattr(o, "k"): del o.k
            log.append("b"); return t + 1
        ---
        o = C(); o.k = None
        run(o, T(2))
        o.k = D(3)
        run(o, T(2))
    """,
    "overwritten_global": """
        g = None
        def f(t):
            global g
            log.append("a"); g = t + 1; log.append("b"); return g
        ---
        run(T(2))
        g = D(3)
        run(T(2))
    """,
    "overwritten_cell": """
        def make():
            c = None
            def put(v):
                nonlocal c
                c = v
            def h(t):
                nonlocal c
                log.append("a"); c = t + 1; log.append("b"); return c
            return put, h
        put, h = make()
        def f(t): return h(t)
        ---
        run(T(2))
        put(D(3))
        run(T(2))
    """,
    "overwritten_list": """
        def f(l, t):
            log.append("a"); l[0] = t + 1; log.append("b"); return l[0]
        ---
        l = [None]
        run(l, T(2))
        l[0] = D(3)
        run(l, T(2))
    """,
    "overwritten_list_clear": """
        def f(l, t):
            log.append("a"); l.clear(); log.append("b"); return t+1
        ---
        l = [None]
        run(l, T(2))
        l.append(D(3))
        run(l, T(2))
    """,
    "overwritten_class": """
        class C: k = None
        def f(t):
            log.append("a"); C.k = t + 1; log.append("b"); return C.k
        ---
        run(T(2))
        C.k = D(3)
        run(T(2))
    """,
    "overwritten_func": """
        def g(): pass
        g.k = None
        def f(t):
            log.append("a"); g.k = t + 1; log.append("b"); return g.k
        ---
        run(T(2))
        g.k = D(3)
        run(T(2))
    """,
    "overwritten_module": """
        class M(nn.Module):
            def __init__(self):
                super().__init__(); self.k = None
            def forward(self, t):
                log.append("a"); self.k = t + 1; log.append("b"); return self.k
        m = M()
        def f(t): return m(t)
        ---
        run(T(2))
        m.k = D(3)
        run(T(2))
    """,
    "overwritten_tensor_attr": """
        def f(x, t):
            log.append("a"); x.k = t + 1; log.append("b"); return x.k
        ---
        x = T(2)
        x.k = None
        run(x, T(2))
        x.k = D(3)
        run(x, T(2))
    """,
    "overwritten_grad": """
        def f(x, t):
            log.append("a"); x.grad = None; log.append("b"); return x + t
        ---
        x = T(2, grad=True)
        run(x, T(2))
        x.grad = T(2)
        w = weakref.ref(x.grad, lambda _: log.append("gone"))
        run(x, T(2))
    """,
    "overwritten_deque": """
        def f(d, t):
            log.append("a"); d.append(t + 1); log.append("b"); return t
        ---
        d = collections.deque([None], 1)
        run(d, T(2))
        d = collections.deque([D(3)], 1)
        run(d, T(2))
    """,
    "overwritten_nested": """
        class C: pass
        def f(o, t):
            log.append("a"); o.k = t + 1; log.append("b"); return o.k
        ---
        o = C(); o.k = None
        run(o, T(2))
        o.k = [D(3)]
        run(o, T(2))
        o.k = {"a": [D(4)]}
        run(o, T(2))
        x = C(); x.y = D(5)
        o.k = x
        del x
        run(o, T(2))
    """,
    "overwritten_nested_dict": """
        def f(o, t):
            log.append("a"); o["k"] = t + 1; log.append("b"); return o["k"]
        ---
        o = {}
        o["k"] = None
        run(o, T(2))
        o["k"] = [D(3)]
        run(o, T(2))
        o["k"] = {"a": [D(4)]}
        run(o, T(2))
        x = O(); x.y = D(5)
        o["k"] = x
        del x
        run(o, T(2))
    """,
    "overwritten_read_then": """
        class C: pass
        def f(o, t):
            k = o.k is None
            log.append("a"); o.k = t + 1; log.append("b"); return o.k, k
        ---
        o = C(); o.k = O(1)
        run(o, T(2))
        o.k = O(3); w = weakref.ref(o.k, lambda _: log.append("gone"))
        run(o, T(2))
    """,
    "order_reset": """
        class C: pass
        def f(o, t):
            del o.a
            o.a = 3
            return t + 1
        ---
        o = C(); o.a = 1; o.b = 2
        run(o, T(2))
        list(vars(o))
        run(o, T(2))
        list(vars(o))
    """,
    "order_reset2": """
        class C: pass
        def f(o, t):
            del o.a
            k1 = list(vars(o))
            o.a = 3
            k2 = list(vars(o))
            o.c = t
            del o.b
            k3 = list(o.__dict__.items())
            o.b = 4
            return t + 1, k1, k2, k3, list(vars(o))
        ---
        o = C(); o.a = 1; o.b = 2
        run(o, T(2))
        list(vars(o))
        run(o, T(2))
        list(vars(o))
    """,
    "order_module": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Parameter(T(2)); self.b = nn.Parameter(T(2)); self.register_buffer("c", T(2)); self.register_buffer("d", T(2))
        m = M()
        def f(t):
            a = m.a
            del m.a
            m.a = a
            c = m.c
            del m.c
            m.c = c
            return t + m.a
        ---
        list(m._parameters), list(m._buffers), list(vars(m))
        run(T(2))
        list(m._parameters), list(m._buffers), list(vars(m))
    """,
    "order_module2": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(2, 2); self.b = nn.Linear(2, 2)
            def forward(self, t): return self.b(self.a(t))
        torch.manual_seed(0)
        m = M()
        def f(t):
            a = m.a
            del m.a
            r = t + 1
            m.a = a
            return r, [n for n, _ in m.named_children()]
        ---
        list(m._modules)
        run(T(2))
        list(m._modules)
    """,
    "order_pop_dict": """
        class C: pass
        def f(o, t):
            v = vars(o).pop("a")
            o.z = v
            o.a = v + 1
            return t + 1
        ---
        o = C(); o.a = 1; o.b = 2
        run(o, T(2))
        list(vars(o))
    """,
    "order_global_order": """
        ga = 1
        gb = 2
        def f(t):
            global ga
            del ga
            ga = 5
            return t + 1
        ---
        run(T(2))
        [k for k in globals() if k in ("ga", "gb")]
    """,
    "changed_and_dropped_callee": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        def callee(l):
            o = l.pop()
            o.n = o.n + 1
            log.append("in")
        def f(l, t):
            log.append("a"); callee(l); log.append("b"); return t + 1
        ---
        l = [H(1), H(2)]
        run(l, T(2))
        run(l, T(2))
    """,
    "changed_and_dropped_callee_dict": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        def callee(d):
            o = d.pop("k")
            o.n += 1
            log.append("in")
        def f(d, t):
            log.append("a"); callee(d); log.append("b"); return t + 1
        ---
        d = {"k": H(1)}
        run(d, T(2))
        d = {"k": H(2)}
        run(d, T(2))
    """,
    "changed_and_dropped_callee_attr": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        class C: pass
        def callee(c):
            o = c.o
            c.o = None
            o.n += 1
            log.append("in")
        def f(d, t):
            log.append("a"); callee(d); log.append("b"); return t + 1
        ---
        c = C(); c.o = H(1)
        run(c, T(2))
        c.o = H(2)
        run(c, T(2))
    """,
    "changed_and_dropped_loop": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        def f(l, t):
            for i in range(2):
                o = l.pop(); o.n = o.n + 1; log.append(i); t = t + 1
            log.append("x")
            return t
        ---
        l = [H(1), H(2), H(5)]
        run(l, T(2))
        l = [H(3), H(4)]
        run(l, T(2))
    """,
    "changed_and_dropped_return": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        def callee(l):
            o = l.pop()
            o.n = o.n + 1
            return o
        def f(l, t):
            log.append("a"); o = callee(l); log.append("b"); n = o.n; o = None; log.append("c"); return t + n
        ---
        l = [H(1), H(2)]
        run(l, T(2))
        run(l, T(2))
    """,
    "changed_and_dropped_holding": """
        class H:
            def __init__(self, n): self.n = n
            def __del__(self): log.append(("end", self.n))
        class N: pass
        def callee(l):
            o = l.pop()
            o.k = 5
            log.append("in")
        def f(l, t):
            log.append("a"); callee(l); log.append("b"); return t + 1
        def mk(n):
            x = N(); x.h = H(n); x.k = 0
            return x
        ---
        l = [mk(1), mk(2)]
        run(l, T(2))
        run(l, T(2))
    """,
    "overwritten_container_held": """
        class C: pass
        def f(o, t):
            log.append("a"); o.k = [t]; log.append("b"); return t + len(o.k)
        ---
        o = C(); d = D(1)
        o.k = [d]
        run(o, T(2))
        o.k = [D(2)]
        run(o, T(2))
        o.k = [O(2)]; w = weakref.ref(o.k[0])
        run(o, T(2))
        w() is None
        run(o, T(2))
    """,
    "overwritten_twice": """
        class C: pass
        def f(o, t):
            o.k = 1; log.append("a"); o.k = t + 1; log.append("b"); del o.k; log.append("c"); o.k = 5
            return t + 1
        ---
        o = C(); o.k = D(1)
        run(o, T(2))
        o.k = None
        run(o, T(2))
        o.k = D(2)
        run(o, T(2))
    """,
    "overwritten_storage": """
        class L(list): pass
        class DD(dict): pass
        def f(l, d, t):
            log.append("a"); l[0] = t; log.append("b"); d["k"] = t; log.append("c"); return t + 1
        ---
        l, d = L([None]), DD(k=None)
        run(l, d, T(2))
        l[0] = D(1); d["k"] = D(2)
        run(l, d, T(2))
    """,
    "overwritten_ordered": """
        def f(d, e, t):
            log.append("a"); d["k"] = t; log.append("b"); e["k"] = t; log.append("c"); return t + 1
        ---
        d, e = collections.OrderedDict(k=None), collections.defaultdict(list, k=None)
        run(d, e, T(2))
        d["k"] = D(1); e["k"] = D(2)
        run(d, e, T(2))
    """,
    "overwritten_slice": """
        def f(l, t):
            log.append("a"); l[1:] = [t]; log.append("b"); del l[0]; log.append("c"); l.extend([1, 2]); l *= 0; log.append("d"); return t + 1
        ---
        l = [1, None, 2]
        run(l, T(2))
        l[:] = [D(0), D(1), D(2)]
        run(l, T(2))
    """,
    "overwritten_module_buffer": """
        class M(nn.Module):
            def __init__(self): super().__init__(); self.register_buffer("b", None)
            def forward(self, t):
                log.append("a"); self.b = t + 1; log.append("b"); return self.b
        m = M()
        def f(t): return m(t)
        ---
        run(T(2))
        w = weakref.ref(m.b, lambda _: log.append("gone"))
        run(T(2))
        run(T(2))
    """,
    "order_vars": """
        class C: pass
        def f(o, t):
            d = o.__dict__
            x = d.pop("a"); d["a"] = x
            o.__dict__.update(z=1)
            y = o.b; del o.b; setattr(o, "b", y)
            delattr(o, "c"); o.c = 1; del o.c
            return t + 1, list(vars(o)), list(o.__dict__.items())
        ---
        o = C(); o.a = 1; o.b = 2; o.c = 3
        run(o, T(2))
        list(vars(o))
        o.c = 9
        run(o, T(2))
        list(vars(o))
    """,
    "order_break": """
        class C: pass
        def f(o, t):
            del o.a
            o.a = t
            dynamo.graph_break()
            del o.b
            dynamo.graph_break()
            o.b = 2
            k = list(vars(o))
            del o.a
            o.d = 1
            o.a = 3
            return t + 1, k, list(vars(o))
        ---
        o = C(); o.a = 1; o.b = 2
        run(o, T(2))
        run(o, T(2))
        list(vars(o))
    """,
}
