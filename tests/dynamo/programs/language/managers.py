"""`with`: managers of the user's, of contextlib and of torch."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "swallowing_manager": (
        None,
        """
        class Sw:
            def __enter__(self): log.append('in'); return self
            def __exit__(self, t, v, tb):
                log.append((t.__name__ if t else None, str(v)))
                return t is ValueError
        def f(x, n):
            with Sw():
                y = x * 2
                if n == 1: raise ValueError('v')
                if n == 2: raise KeyError('k')
                return y
            return x - 1
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        """,
    ),
    "contextmanager": (
        1,
        """
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            try:
                yield n * 2
            except ValueError as e:
                log.append(repr(e))
            finally:
                log.append('out')
        def f(x, n):
            with cm(x) as y:
                if n == 1: raise ValueError('v')
                if n == 2: raise KeyError('k')
                x = x + y
            return x
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        """,
    ),
    "contextmanager_decorator": (
        1,
        """
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            yield n
            log.append('out')
        @cm(3)
        def g(x): return x * 2
        def f(x): return g(x) + g(x + 1)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "exitstack": (
        1,
        """
        @contextlib.contextmanager
        def cm(n):
            log.append(('in', n))
            yield n
            log.append(('out', n))
        def f(x):
            with contextlib.ExitStack() as st:
                total = x
                for i in range(3):
                    total = total + st.enter_context(cm(i))
                st.callback(log.append, 'cb')
                st.push(lambda *a: log.append('pushed'))
            return total
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "exitstack_swallow": (
        1,
        """
        class Sw:
            def __enter__(self): return self
            def __exit__(self, t, v, tb): log.append(t); return True
        def f(x):
            with contextlib.ExitStack() as st:
                st.enter_context(Sw())
                x = x + 1
                raise ValueError(1)
            return x * 2
        ---
        run(T(2))
        """,
    ),
    "exitstack_pop_all": (
        1,
        """
        def f(x):
            with contextlib.ExitStack() as st:
                st.callback(log.append, 'cb')
                keep = st.pop_all()
            y = x + 1
            keep.close()
            return y
        ---
        run(T(2))
        """,
    ),
    "suppress_etc": (
        1,
        """
        class C:
            def close(self): log.append('closed')
        def f(x):
            with contextlib.suppress(ValueError, KeyError):
                y = x + 1
                raise KeyError(1)
            with contextlib.closing(C()) as c:
                y = y * 2
            with contextlib.nullcontext(3) as n:
                y = y + n
            return y
        ---
        run(T(2))
        """,
    ),
    "redirect_stdout": (
        None,
        """
        import io
        def f(x):
            s = io.StringIO()
            with contextlib.redirect_stdout(s):
                print('hello')
                y = x + 1
            return y, s.getvalue()
        ---
        run(T(2))
        """,
    ),
    "no_grad": (
        1,
        """
        def f(x):
            a = x * 2
            with torch.no_grad():
                b = a * 3
                with torch.enable_grad():
                    c = a * 4
                d = torch.is_grad_enabled()
            with torch.set_grad_enabled(False):
                e = a * 5
            return a, b, c, d, e
        ---
        run(T(2, grad=True))
        run(T(2, grad=True))
        """,
    ),
    "no_grad_decorator": (
        1,
        """
        @torch.no_grad()
        def g(x): return x * 2
        @torch.enable_grad()
        def h(x): return x * 3
        @torch.no_grad
        def i(x): return x * 4
        def f(x):
            with torch.no_grad():
                a = h(x)
            return g(x), a, i(x), x + 1
        ---
        run(T(2, grad=True))
        """,
    ),
    "inference_mode": (
        None,
        """
        def f(x):
            a = x * 2
            with torch.inference_mode():
                b = a * 3
                i = torch.is_inference_mode_enabled()
                with torch.inference_mode(False):
                    c = x * 4
            return a, b, c, i, torch.is_inference_mode_enabled(), b.is_inference(), c.is_inference()
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r[:3]]
        [t.is_inference() for t in run(T(2))[:3]]
        """,
    ),
    "inference_mode_decorator": (
        None,
        """
        @torch.inference_mode()
        def g(x): return x * 2
        @torch.inference_mode
        def h(x): return x * 2
        def f(x):
            y = g(x)
            return y, x + 1, h(x)
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r]
        """,
    ),
    "autocast": (
        1,
        """
        def f(x, w):
            with torch.autocast('cpu', dtype=torch.bfloat16):
                a = x @ w
                with torch.autocast('cpu', enabled=False):
                    b = x @ w
            @torch.autocast('cpu')
            def g(x): return x @ w
            return a, b, g(x), x @ w
        ---
        run(T(2, 2), T(2, 2))
        """,
    ),
    "profiler": (
        1,
        """
        def f(x):
            with torch.profiler.record_function('name'):
                y = x * 2
            with torch.autograd.profiler.record_function('n2') as r:
                y = y + 1
            return y
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "profiler_profile": (
        1,
        """
        def f(x):
            with torch.autograd.profiler.profile(enabled=False) as p:
                y = x * 2
            return y + 1
        ---
        run(T(2))
        """,
    ),
    "fork_rng": (
        1,
        """
        def f(x):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                y = x + torch.rand(2)
            return y + torch.rand(2)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "device_ctx": (
        1,
        """
        def f(x):
            with torch.device('meta'):
                y = torch.ones(2)
            with torch.device('cpu'):
                z = torch.ones(2)
            return x + z, y.device.type
        ---
        run(T(2))
        """,
    ),
    "manager_outside": (
        2,
        """
        class M:
            def __init__(self): self.n = 0
            def __enter__(self): self.n += 1; return self
            def __exit__(self, *a): self.n += 10
        m = M()
        def f(x, mm):
            with m, mm as k:
                y = x * k.n
            return y
        ---
        run(T(2), M())
        run(T(2), m)
        """,
    ),
    "manager_returned": (
        1,
        """
        class M:
            def __enter__(self): log.append('in'); return 2
            def __exit__(self, *a): log.append('out')
        def make(): return M()
        def f(x):
            with make() as k, contextlib.nullcontext(make()) as j:
                with j as l: y = x * k + l
            return y, make()
        ---
        run(T(2))
        """,
    ),
    "contextmanager_returned": (
        1,
        """
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            yield n
            log.append('out')
        def f(x): return cm(3), x + 1
        ---
        r = run(T(2))
        with r[0] as n: log.append(n)
        """,
    ),
    "contextmanager_break_inside": (
        None,
        """
        import dynamo
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            try: yield n * 2
            finally: log.append('out')
        def f(x):
            with cm(x) as y:
                z = x + y
                dynamo.graph_break()
                z = z * 2
            return z + 1
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "contextmanager_break_inside_raise": (
        None,
        """
        import dynamo
        @contextlib.contextmanager
        def cm(n):
            log.append('in')
            try: yield n * 2
            except ValueError: log.append('caught')
            finally: log.append('out')
        def f(x):
            with cm(x) as y:
                z = x + y
                dynamo.graph_break()
                raise ValueError(1)
            return z + 1
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "with_state_break": (
        None,
        """
        import dynamo
        def f(x):
            with torch.no_grad():
                y = x * 2
                dynamo.graph_break()
                z = y + x
            return z * x, y
        ---
        run(T(2, grad=True))
        """,
    ),
    "context_decorator_class": (
        1,
        """
        class D(contextlib.ContextDecorator):
            def __enter__(self): log.append('in'); return self
            def __exit__(self, *a): log.append('out'); return False
        @D()
        def g(x): return x + 1
        def f(x): return g(x) * 2
        ---
        run(T(2))
        """,
    ),
    "exit_raises": (
        2,
        """
        class D:
            def __enter__(self): return self
            def __exit__(self, t, v, tb): raise KeyError('exit')
        def f(x, n):
            try:
                with D():
                    y = x + 1
                    if n: raise ValueError('in')
            except KeyError as e:
                return x * 2, repr(e.__context__)
        ---
        run(T(2), 0)
        run(T(2), 1)
        """,
    ),
    "not_a_manager": (
        0,
        """
        def f(x):
            y = x + 1
            with 3: pass
        ---
        run(T(2))
        """,
    ),
    "saved_tensors_hooks": (
        None,
        """
        def f(x):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
                return x * x
        ---
        a = T(2, grad=True)
        run(a).sum().backward()
        """,
    ),
    "anomaly": (
        None,
        """
        def f(x):
            with torch.autograd.set_detect_anomaly(True):
                return x * x
        ---
        run(T(2))
        """,
    ),
    "default_dtype": (
        None,
        """
        def f(x):
            torch.set_default_dtype(torch.float64)
            y = torch.ones(2)
            torch.set_default_dtype(torch.float32)
            return y, x + 1
        ---
        run(T(2))
        """,
    ),
    "threadlocal": (
        None,
        """
        import threading
        tl = threading.local()
        tl.v = 3
        def f(x):
            y = x + tl.v
            tl.v = 4
            return y * 2
        ---
        run(T(2))
        run(T(2))
        tl.v
        """,
    ),
    "inf_whole": (
        2,
        """
        def f(x):
            with torch.inference_mode():
                y = x * 2
                return y + 1, torch.is_inference_mode_enabled(), torch.is_grad_enabled(), y.requires_grad
        ---
        r = run(T(2, grad=True))
        r[0].is_inference(), torch.is_inference_mode_enabled()
        run(T(2))[0].is_inference()
        """,
    ),
    "inf_decorator": (
        1,
        """
        class M(nn.Module):
            def __init__(self): super().__init__(); self.l = nn.Linear(2, 2)
            @torch.inference_mode()
            def forward(self, x): return self.l(x).relu()
        m = M()
        for p in m.parameters(): p.data.fill_(0.5)
        def f(x): return m(x)
        ---
        r = run(T(2, 2))
        r.is_inference(), r.requires_grad
        run(T(2, 2))
        """,
    ),
    "inf_before": (
        None,
        """
        def f(x):
            a = x * 2
            with torch.inference_mode():
                b = a * 3
            return a, b
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r]
        """,
    ),
    "inf_after": (
        None,
        """
        def f(x):
            with torch.inference_mode():
                b = x * 3
            return x * 2, b
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r]
        """,
    ),
    "inf_break": (
        None,
        """
        import dynamo
        def f(x):
            with torch.inference_mode():
                b = x * 3
                dynamo.graph_break()
                c = b + 1
            return b, c
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r]
        torch.is_inference_mode_enabled()
        """,
    ),
    "inf_exception": (
        1,
        """
        def f(x):
            try:
                with torch.inference_mode():
                    b = x * 3
                    raise ValueError(1)
            except ValueError: pass
            return b, torch.is_inference_mode_enabled()
        ---
        r = run(T(2, grad=True))
        r[0].is_inference()
        """,
    ),
    "inf_twice": (
        1,
        """
        def f(x):
            with torch.inference_mode(): b = x * 3
            with torch.inference_mode(): c = b * 3
            return b, c
        ---
        r = run(T(2))
        [t.is_inference() for t in r]
        """,
    ),
    "inf_nested_grad": (
        1,
        """
        def f(x):
            with torch.inference_mode():
                with torch.no_grad(): b = x * 3
                with torch.enable_grad(): c = x * 2
                with torch.inference_mode(): d = x * 4
            return b, c, d
        ---
        r = run(T(2, grad=True))
        [(t.is_inference(), t.requires_grad) for t in r]
        """,
    ),
    "inf_false": (
        None,
        """
        def f(x):
            with torch.inference_mode(False): b = x * 3
            with torch.inference_mode(mode=True): c = x * 3
            return b, c
        ---
        r = run(T(2, grad=True))
        [t.is_inference() for t in r]
        """,
    ),
    "inf_inplace": (
        1,
        """
        def f(x):
            with torch.inference_mode():
                y = x * 2
                y += 1
                x.add_(5)
            return y
        ---
        a = T(2)
        run(a)
        a
        a.is_inference()
        """,
    ),
    "inf_outer": (
        2,
        """
        def f(x): return x * 2, torch.is_inference_mode_enabled()
        ---
        with torch.inference_mode(): r = run(T(2))
        r[0].is_inference()
        run(T(2))
        """,
    ),
    "inf_view_out": (
        1,
        """
        def f(x):
            with torch.inference_mode():
                return x[0], x.t(), x
        ---
        a = T(2, 2)
        r = run(a)
        [t.is_inference() for t in r]
        """,
    ),
    "inf_is_inference_inside": (
        1,
        """
        def f(x):
            with torch.inference_mode():
                y = x * 2
                return y, y.is_inference(), x.is_inference()
        ---
        run(T(2))
        """,
    ),
    "range_basic": (
        1,
        """
        def f(x):
            with torch.profiler.record_function('name') as r:
                y = x * 2
            @torch.autograd.profiler.record_function('deco')
            def g(x): return x + 1
            return g(y), r.name
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "range_break": (
        None,
        """
        import dynamo
        def f(x):
            with torch.profiler.record_function('name'):
                y = x * 2
                dynamo.graph_break()
                y = y + 1
            return y * 3
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "range_profiled": (
        None,
        """
        def f(x):
            with torch.profiler.record_function('name'):
                return x * 2 + 1
        def profiled(run, x):
            with torch.autograd.profiler.profile() as p: y = run(x)
            return y, [e.name for e in p.function_events if e.name == 'name']
        ---
        run(T(2))
        profiled(run, T(2))
        run(T(2))
        profiled(run, T(2))
        """,
    ),
    "autocast_in_two_frames": (
        None,
        """
        c = torch.autocast("cpu", torch.bfloat16)
        def f(x, n):
            x = x + 1
            if n == 0:
                c.__enter__()
                y = x @ x
                log.append(y.sum().item())
                return y
            y = x @ x
            c.__exit__(None, None, None)
            return y, x @ x
        ---
        (run(T(2, 2), 0), run(T(2, 2), 1))
        (run(T(2, 2), 0), run(T(2, 2), 0), run(T(2, 2) * 3, 1))
        run(T(2, 2) * 2, 0)
        run(T(2, 2), 1)
        """,
    ),
    "range_nested": (
        1,
        """
        class M(nn.Module):
            def forward(self, x):
                with torch.profiler.record_function('a'), torch.profiler.record_function('b'):
                    return x.relu()
        m = M()
        def f(x): return m(x) + 1
        ---
        run(T(2))
        """,
    ),
}
