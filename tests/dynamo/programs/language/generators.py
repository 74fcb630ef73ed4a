"""Generators: consumed, sent to, closed, alive at a break, dropped."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "gen_basic": (
        1,
        """
        def g(x, n):
            for i in range(n): yield x * i
        def f(x): return sum(g(x, 3)), list(g(x, 2)), [*g(x, 2)], tuple(t + 1 for t in g(x, 2))
        ---
        run(T(2))
        """,
    ),
    "gen_send": (
        1,
        """
        def g(x):
            total = x
            while True:
                got = yield total
                if got is None: return total * 100
                total = total + got
        def f(x):
            it = g(x)
            a = next(it)
            b = it.send(x * 2)
            try: it.send(None)
            except StopIteration as e: c = e.value
            return a, b, c
        ---
        run(T(2))
        """,
    ),
    "gen_throw_close": (
        1,
        """
        def g(x):
            try:
                while True:
                    try: yield x
                    except ValueError as e:
                        log.append(str(e))
                        x = x + 1
            finally:
                log.append('closed')
        def f(x):
            it = g(x)
            a = next(it)
            b = it.throw(ValueError('v'))
            c = it.throw(ValueError, 'w')
            it.close()
            it.close()
            try: next(it)
            except StopIteration: d = 'stopped'
            return a, b, c, d
        ---
        run(T(2))
        """,
    ),
    "gen_throw_uncaught": (
        1,
        """
        def g(x):
            yield x
        def f(x):
            it = g(x)
            y = next(it) + 1
            try: it.throw(KeyError('k'))
            except KeyError as e: return y, repr(e)
        ---
        run(T(2))
        """,
    ),
    "gen_yield_from": (
        1,
        """
        def inner(x):
            got = yield x
            yield got * 2
            return x * 3
        def outer(x):
            r = yield from inner(x)
            yield r
            yield from [x, x + 1]
            return 'end'
        def f(x):
            it = outer(x)
            return next(it), it.send(x + 5), next(it), list(it)
        ---
        run(T(2))
        """,
    ),
    "gen_yield_from_throw": (
        1,
        """
        def inner(x):
            try: yield x
            except ValueError: yield x * 2
        def outer(x):
            yield from inner(x)
            yield x * 3
        def f(x):
            it = outer(x)
            return next(it), it.throw(ValueError()), next(it)
        ---
        run(T(2))
        """,
    ),
    "gen_in_object": (
        1,
        """
        class C:
            def __init__(self, x): self.it = self.gen(x)
            def gen(self, x):
                while True:
                    yield x
                    x = x + 1
            def pull(self): return next(self.it)
        def f(x):
            c = C(x)
            return c.pull(), c.pull(), c.pull()
        ---
        run(T(2))
        """,
    ),
    "gen_islice": (
        1,
        """
        def count(x):
            while True:
                yield x
                x = x + 1
        def f(x):
            return list(itertools.islice(count(x), 3)), [a for a, _ in zip(count(x), range(2))]
        ---
        run(T(2))
        """,
    ),
    "gen_arg": (
        None,
        """
        def f(x, it):
            y = x
            for v in it: y = y + v
            return y
        ---
        run(T(2), (i for i in range(3)))
        run(T(2), iter([1, 2]))
        """,
    ),
    "gen_returned_new": (
        1,
        """
        def f(x):
            y = x * 2
            def g():
                yield y
                yield y + 1
            return g()
        ---
        list(run(T(2)))
        """,
    ),
    "gen_returned_started": (
        1,
        """
        def g(x):
            log.append('start')
            yield x
            log.append('mid')
            got = yield x + 1
            log.append(got)
            yield x + 2
        def f(x):
            it = g(x * 2)
            a = next(it)
            return it, a
        ---
        it, a = run(T(2))
        next(it)
        it.send('sent')
        list(it)
        it.gi_code.co_name, it.__name__, it.__qualname__
        """,
    ),
    "gen_alive_at_break": (
        None,
        """
        import dynamo
        def g(x):
            yield x
            yield x + 1
            yield x + 2
        def f(x):
            it = g(x * 2)
            a = next(it)
            dynamo.graph_break()
            b = next(it)
            return a, b, list(it)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "gen_alive_closure": (
        None,
        """
        import dynamo
        def f(x):
            k = 1
            def g(y):
                nonlocal k
                for i in range(3):
                    k += 1
                    yield y + k
            it = g(x)
            a = next(it)
            dynamo.graph_break()
            return a, list(it), k
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "gen_alive_try": (
        None,
        """
        import dynamo
        def g(x):
            try:
                for i in range(3):
                    yield x + i
            except ValueError as e:
                yield 'caught'
            finally:
                log.append('fin')
        def f(x):
            it = g(x)
            a = next(it)
            dynamo.graph_break()
            b = it.throw(ValueError('x'))
            it.close()
            return a, b
        ---
        run(T(2))
        """,
    ),
    "gen_alive_for": (
        None,
        """
        import dynamo
        def g(x):
            for i in range(3):
                yield x + i
        def f(x):
            total = x
            for t in g(x):
                total = total + t
                dynamo.graph_break()
                total = total * 2
            return total
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "genexpr_alive": (
        None,
        """
        import dynamo
        def f(x):
            it = (x + i for i in range(3))
            a = next(it)
            dynamo.graph_break()
            return a, list(it)
        ---
        run(T(2))
        """,
    ),
    "gen_yield_from_alive": (
        None,
        """
        import dynamo
        def inner(x):
            a = yield x
            b = yield x + 1
            return a, b
        def g(x):
            r = yield from inner(x)
            yield r
        def f(x):
            it = g(x)
            next(it)
            dynamo.graph_break()
            it.send(1)
            return it.send(2), x + 1
        ---
        run(T(2))
        """,
    ),
    "gen_break_inside": (
        None,
        """
        import dynamo
        def g(x):
            yield x * 2
            dynamo.graph_break()
            yield x + 1
        def f(x):
            a, b = g(x)
            return a * b + 1
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "gen_with_inside": (
        1,
        """
        @contextlib.contextmanager
        def cm():
            log.append('in')
            try: yield 3
            finally: log.append('out')
        def g(x):
            with cm() as k, torch.no_grad():
                yield x * k
                yield x + k
        def f(x):
            it = g(x)
            a = next(it)
            b = a * x
            it.close()
            return a, b, torch.is_grad_enabled()
        ---
        run(T(2))
        """,
    ),
    "gen_attrs": (
        None,
        """
        def g(x):
            yield x
        def f(x):
            it = g(x)
            out = [it.gi_frame is None, it.gi_running, it.gi_yieldfrom, it.gi_code.co_name, it.__name__, it.__qualname__]
            next(it)
            for _ in it: pass
            out.append(it.gi_frame)
            return x + 1, out, iter(it) is it, type(it).__name__
        ---
        run(T(2))
        """,
    ),
    "gen_stopiteration": (
        1,
        """
        def g(x):
            yield x
            raise StopIteration(3)
        def f(x):
            it = g(x)
            next(it)
            try: next(it)
            except RuntimeError as e: return x + 1, str(e), repr(e.__cause__)
        ---
        run(T(2))
        """,
    ),
    "gen_next_default": (
        0,
        """
        def g(x):
            yield x
        def f(x):
            it = g(x)
            return next(it, 0), next(it, 7), next(it, 8)
        ---
        run(T(2))
        """,
    ),
    "gen_send_not_started": (
        0,
        """
        def g(x):
            yield x
        def f(x):
            it = g(x)
            try: it.send(3)
            except TypeError as e: a = str(e)
            return a, next(it)
        ---
        run(T(2))
        """,
    ),
    "gen_already_executing": (
        1,
        """
        def f(x):
            def g():
                yield next(me)
            me = g()
            try: next(me)
            except ValueError as e: return x + 1, str(e)
        ---
        run(T(2))
        """,
    ),
    "gen_method_recursive": (
        1,
        """
        class N:
            def __init__(self, v, *kids): self.v, self.kids = v, kids
            def __iter__(self):
                yield self.v
                for k in self.kids: yield from k
        def f(x):
            t = N(x, N(x + 1, N(x + 2)), N(x * 3))
            return sum(t), [v for v in t]
        ---
        run(T(2))
        """,
    ),
    "gen_pipeline": (
        1,
        """
        def src(x):
            for i in range(4): yield x + i
        def flt(it):
            for i, v in enumerate(it):
                if i % 2: yield v
        def acc(it):
            t = 0
            for v in it:
                t = t + v
                yield t
        def f(x): return list(acc(flt(src(x)))), max(len(v) for v in src(x)), any(i for i in (0, 1)), dict((i, v) for i, v in enumerate(src(x)))
        ---
        run(T(2))
        """,
    ),
    "gen_late_binding": (
        1,
        """
        def f(x):
            fs = [lambda y: y + i for i in range(3)]
            gs = [lambda y, i=i: y + i for i in range(3)]
            k = 1
            it = (k + j for j in range(2))
            k = 10
            return [h(x) for h in fs], [h(x) for h in gs], list(it)
        ---
        run(T(2))
        """,
    ),
    "gen_in_zip_at_break": (
        None,
        """
        import dynamo
        def g(x):
            for i in range(4): yield x + i
        def f(x):
            z = zip(g(x), range(4))
            a = next(z)
            dynamo.graph_break()
            return a, list(z)
        ---
        run(T(2))
        """,
    ),
    "gen_stored_outside": (
        1,
        """
        class H: pass
        h = H()
        def g(x):
            yield x
            yield x + 1
        def f(x):
            h.it = g(x)
            return next(h.it) + 1
        ---
        run(T(2))
        list(h.it)
        """,
    ),
    "gen_from_object_outside": (
        None,
        """
        class H: pass
        h = H()
        def g(x):
            yield x
            yield x + 1
        h.it = g(3)
        next(h.it)
        def f(x):
            return next(h.it) + x
        ---
        run(T(2))
        """,
    ),
    "gen_finalized": (
        1,
        """
        def g(x):
            try:
                yield x
                yield x + 1
            finally:
                log.append('fin')
        def f(x):
            for v in g(x): break
            return v * 2
        ---
        run(T(2))
        log
        """,
    ),
    "gen_handled_exc": (
        0,
        """
        import dynamo
        def g(x):
            try: raise ValueError('in')
            except ValueError as e:
                yield x
                yield str(e)
        def f(x):
            it = g(x)
            a = next(it)
            dynamo.graph_break()
            b = next(it)
            return a, b, list(it)
        ---
        run(T(2))
        """,
    ),
    "gen_return_value": (
        1,
        """
        def g(x):
            yield x
            return x * 2
        def f(x):
            def h():
                r = yield from g(x)
                log.append(r)
            list(h())
            it = g(x)
            for _ in it: pass
            try: next(it)
            except StopIteration as e: return e.value, x + 1
        ---
        run(T(2))
        """,
    ),
    "root_generator": (
        1,
        """
        def helper(x): return x * 2 + 1
        def f(x):
            for i in range(3):
                yield helper(x) + i
        ---
        list(run(T(2)))
        list(run(T(2)))
        """,
    ),
    "gen_dropped_order": (
        1,
        """
        def g(x, n):
            try:
                log.append(('start', n))
                yield x
                yield x + 1
            finally:
                log.append(('fin', n))
        def h(x):
            it = g(x, 1)
            y = next(it)
            log.append('in h')
            return y
        def first(it):
            for v in it: return v
        def f(x):
            a = h(x)
            log.append('after h')
            b = first(g(x, 2))
            log.append('after first')
            it = g(x, 3)
            next(it)
            it = None
            log.append('after None')
            it2 = g(x, 4)
            next(it2)
            del it2
            log.append('after del')
            c = next(g(x, 5))
            log.append('after next')
            d = list(zip(g(x, 6), [1]))
            log.append('after zip')
            keep = [g(x, 7)]
            next(keep[0])
            keep.pop()
            log.append('after pop')
            return a + 1, b, c, d
        ---
        run(T(2))
        log
        """,
    ),
    "gen_dropped_in_with": (
        1,
        """
        @contextlib.contextmanager
        def cm(n):
            log.append(('in', n))
            try: yield n
            finally: log.append(('out', n))
        class M(nn.Module):
            def __init__(self): super().__init__(); self.l = nn.Linear(2, 2)
            def forward(self, x):
                with cm('m'): return self.l(x)
        m = M()
        torch.manual_seed(0)
        for p in m.parameters(): p.data.fill_(0.5)
        def f(x):
            c = cm(1)
            c.__enter__()
            with cm(2): y = m(x)
            log.append('x')
            return y * 2
        ---
        run(T(2, 2))
        log
        """,
    ),
    "gen_alive_dead_local": (
        None,
        """
        import dynamo
        def g(x):
            try:
                yield x
                yield x + 1
            finally: log.append('fin')
        def f(x):
            it = g(x)
            y = next(it)
            dynamo.graph_break()
            log.append('after break')
            return y * 2
        ---
        run(T(2))
        log
        """,
    ),
    "gen_cm_broken_then_used": (
        None,
        """
        import dynamo
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            try: yield n * 2
            except ValueError as e: log.append(str(e))
            finally: log.append('out')
        def f(x):
            with cm(x) as y:
                with cm(y) as z:
                    dynamo.graph_break()
                    z = z + 1
                    raise ValueError('v')
            return y
        ---
        run(T(2))
        log
        """,
    ),
    "gen_reconstruct_aliases": (
        None,
        """
        import dynamo
        def g(l, x):
            while True:
                l.append(len(l))
                yield x
        def f(x):
            l = []
            y = x * 2
            it = g(l, y)
            a = next(it)
            keep = [it, it]
            dynamo.graph_break()
            next(keep[0]); next(keep[1])
            return l, keep[0] is it, a is y
        ---
        run(T(2))
        """,
    ),
    "gen_reconstruct_nested": (
        None,
        """
        import dynamo
        def inner(x):
            try:
                r = yield x
                yield r
            finally: log.append('inner fin')
        def outer(x):
            with contextlib.nullcontext(2) as k:
                for i in range(k):
                    y = yield from inner(x + i)
            return 'done'
        def f(x):
            it = outer(x)
            a = next(it)
            b = it.send(5)
            dynamo.graph_break()
            rest = [v for v in it]
            return a, b, rest
        ---
        run(T(2))
        """,
    ),
    "gen_closure_shared": (
        None,
        """
        import dynamo
        def f(x):
            n = 0
            def g():
                nonlocal n
                while n < 5:
                    n += 1
                    yield x + n
            it = g()
            next(it)
            n = 3
            dynamo.graph_break()
            next(it)
            return n, list(it)
        ---
        run(T(2))
        """,
    ),
}
