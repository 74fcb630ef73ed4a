"""Instance dicts that are more than one object's: shared state, dicts that are their own attributes."""

PROGRAMS = {
    "shared_made": (
        2,
        """
        class B:
            shared = {}
            def __init__(self):
                self.__dict__ = self.shared
                if not self.ready:
                    self.n = 1
                    self.on = True
            @property
            def ready(self): return self.shared != {}
        def f(x):
            b = B()
            y = x * b.n
            b.n += 1
            return (y + 1 if b.on else y), B().n, b.__dict__ is B.shared, sorted(vars(b))
        ---
        run(T(2))
        run(T(2))
        B.shared
    """,
    ),
    "shared_held": (
        2,
        """
        class B:
            shared = {'a': 1}
            def __init__(self): self.__dict__ = self.shared
        o, p = B(), B()
        def f(x):
            o.a += 1
            p.a += 1
            B().new = x
            del o.new
            p.b = 3
            return x * o.a, p.a, B().b, hasattr(o, 'new')
        ---
        run(T(2))
        run(T(2))
        B.shared
        o.a, p.b
    """,
    ),
    "shared_returned": (
        1,
        """
        class B:
            shared = {'a': 1}
            def __init__(self): self.__dict__ = self.shared
        def f(x):
            b = B()
            b.t = x + 1
            return b, x * 2
        ---
        r = run(T(2))
        r[0].t
        r[0].__dict__ is B.shared
    """,
    ),
    "itself": (
        2,
        """
        class A(dict):
            def __init__(self, *a, **k):
                super().__init__(*a, **k)
                self.__dict__ = self
        c = A(x=2, y=3)
        def f(x):
            d = A(u=x, v=2)
            d.w = d['v'] + 1
            d['z'] = 5
            c.x += 1
            c['y'] += c.x
            c.n = 4
            return d, d.u * d.w + d.z, c.y, sorted(c), len(d)
        ---
        r = run(T(2))
        r[0].__dict__ is r[0]
        r = run(T(2))
        c
    """,
    ),
    "given_by_the_frame": (
        1,
        """
        class N:
            def __init__(self, **k): self.__dict__ = k
        def f(x):
            n = N(a=1, b=x)
            n.c = n.a + 1
            m = N()
            m.__dict__ = n.__dict__
            m.a = 4
            return n.b * n.c, n, m, n.a
        ---
        r = run(T(2))
        r[1].__dict__ is r[2].__dict__, r[2].c
    """,
    ),
    "shared_over_a_break": (
        2,
        """
        class B:
            shared = {'a': 1}
            def __init__(self): self.__dict__ = self.shared
        def f(x):
            b = B()
            b.a += 1
            y = x * b.a
            print(y.sum().item())
            b.a += 1
            c = B()
            c.k = y
            return b.k + c.a
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "given_as_a_dict": (
        2,
        """
        class A: pass
        o = A()
        o.a = 1
        d = o.__dict__
        def f(x):
            o.a += 1
            d['b'] = 2
            o.c = d['a']
            d['a'] += o.b
            return x * o.a, dict(d), list(d), len(d)
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "shared_by_two_of_which_one_changes": (
        1,
        """
        class A:
            def __init__(self, state): self.__dict__ = state
        o, p = A(s := {'a': T(2), 'b': 1}), A(s)
        def f(x):
            o.a = x
            del o.b
            p.c = x * 2
            return p.a + o.c, hasattr(p, 'b'), vars(o) is vars(p), sorted(vars(p))
        ---
        run(T(2))
        sorted(s), o.a is p.a
    """,
    ),
    "slots_beside": (
        1,
        """
        class A:
            __slots__ = ('k', '__dict__')
            shared = {'n': 2}
            def __init__(self, k):
                self.k = k
                self.__dict__ = self.shared
        def f(x):
            a, b = A(1), A(2)
            a.k += 5
            a.m = x
            return b.m * a.k + b.k, b.n, a
        ---
        run(T(2))[2].k
        A.shared
    """,
    ),
    "attributes_before": """
        class A:
            shared = {'n': 2}
            def __init__(self):
                self.gone = 1
                self.__dict__ = self.shared
        def f(x):
            a = A()
            return x * a.n, hasattr(a, 'gone')
        ---
        run(T(2))
    """,
}
