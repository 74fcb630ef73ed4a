"""Kinds of callables, what changes between calls, and the standard library in passing."""

from tests.dynamo.differential import SOME
from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "version_of_intermediates": (
        2,
        """
        def f(x):
            y = x * 2
            first = y._version
            y.mul_(2)
            y[0] = 3
            view = y[1:]
            view.add_(1)
            same = y.detach()._version == y._version == view._version
            return y + y._version, first, view._version, same, torch.zeros(2)._version
        ---
        run(T(3))
        run(T(3, grad=True))
    """,
    ),
    "version_of_inputs": (
        SOME,
        """
        def f(x, w):
            before = x._version
            x.add_(1)
            after = x._version
            x.mul_(2)
            return x + w, before, after, x._version - before, w._version
        ---
        x, w = T(3), T(3)
        run(x, w)
        run(x, w), x._version
        x.add_(1)
        run(x, w), x._version
    """,
    ),
    "version_decides": (
        SOME,
        """
        cache = {}
        def f(x):
            if cache.get("version") != x._version:
                cache["version"] = x._version
                cache["value"] = x.sin()
                log.append("computed")
            return cache["value"] + 1
        ---
        x = T(3)
        run(x)
        run(x)
        x.add_(1)
        run(x)
        run(x)
        x.add_(1)
        run(x)
    """,
    ),
    "version_of_shared_memory": (
        SOME,
        """
        def f(x, y):
            x.add_(1)
            return x._version, y._version, x[1:]._version, x.detach()._version
        ---
        x = T(3)
        run(x, x[1:])
        run(x, x)
        run(x, x.data)
        run(x, x.detach())
    """,
    ),
    "decorated_kinds": (
        3,
        """
        class A:
            k = 2
            def plain(self, x): return x * self.k
            @classmethod
            def cm(cls, x): return x * cls.k + 1
            @staticmethod
            def sm(x): return x + 2
            @property
            def pr(self): return self.k + 1
            def __call__(self, x): return x - self.k
        def f(x, a):
            return a.plain(x), a.cm(x), a.sm(x), x * a.pr, a(x), A.cm(x), A.sm(x)
        ---
        a = A()
        run(T(3), a)
        a.k = 5
        run(T(3), a)
        A.k = 7
        run(T(3), a)
    """,
    ),
    "partial": (
        2,
        """
        def g(x, k, s=1): return x * k + s
        f = functools.partial(g, k=3)
        ---
        run(T(3))
        run(T(3), s=4)
    """,
    ),
    "callable_object": (
        2,
        """
        class A:
            def __init__(self, k): self.k = k
            def __call__(self, x):
                self.k += 1
                return x * self.k
        f = A(2)
        ---
        run(T(3))
        run(T(3))
        f.k
        f.k = 10
        run(T(3))
        f = None
    """,
    ),
    "generator_function": (
        0,
        """
        def f(x):
            for i in range(3):
                x = x + i
                yield x * 2
        ---
        list(run(T(3)))
        g = run(T(3)); next(g); next(g)
        g.close(); g = None
    """,
    ),
    "async_function": (
        0,
        """
        import asyncio
        async def inner(x):
            return x * 2
        async def f(x):
            y = await inner(x + 1)
            return y + 1
        ---
        asyncio.run(run(T(3)))
        asyncio.run(run(T(3)))
    """,
    ),
    "async_with_sleep": (
        0,
        """
        import asyncio
        async def f(x):
            y = x + 1
            await asyncio.sleep(0)
            return y * 2
        ---
        asyncio.run(run(T(3)))
        asyncio.run(run(T(4)))
    """,
    ),
    "async_gather": (
        0,
        """
        import asyncio
        async def one(x, k):
            await asyncio.sleep(0)
            return x * k
        async def f(x):
            a, b = await asyncio.gather(one(x, 2), one(x, 3))
            return a + b
        ---
        asyncio.run(run(T(3)))
    """,
    ),
    "defaults_changed": (
        3,
        """
        def g(x, k=2, *, s=1): return x * k + s
        def f(x): return g(x) + 1
        ---
        run(T(3))
        g.__defaults__ = (5,)
        run(T(3))
        g.__kwdefaults__ = {'s': 9}
        run(T(3))
        g.__kwdefaults__['s'] = 10
        run(T(3))
    """,
    ),
    "keyword_defaults_written_inside": (
        SOME,
        """
        def g(x, *, s=1): return x * s
        def f(x, s):
            y = g(x)
            g.__kwdefaults__['s'] = s
            return y + g(x)
        ---
        run(T(3), 3)
        run(T(3), 5)
        g.__kwdefaults__
    """,
    ),
    "texts_beside_sets": (
        1,
        """
        class Text(str): pass
        text = Text('a')
        def f(x):
            try:
                if text <= {1, 2}: x = x * 4
            except TypeError as error:
                return x + 1, str(error), text == {1}, text != frozenset('a')
        ---
        run(T(3))
    """,
    ),
    "bools_for_alpha": (
        SOME,
        """
        def f(x, alpha):
            y = x * 2
            for function in (torch.add, torch.sub, torch.Tensor.add_):
                try:
                    y = function(y, x, alpha=alpha)
                except RuntimeError as error:
                    y = y + len(str(error))
            return y
        ---
        run(T(3), True)
        run(T(3), 2)
        run(T(3), False)
    """,
    ),
    "class_assign": (
        2,
        """
        class A:
            def m(self, x): return x + 1
        class B:
            def m(self, x): return x + 2
        def f(x, a): return a.m(x) * 2
        ---
        a = A()
        run(T(3), a)
        a.__class__ = B
        run(T(3), a)
    """,
    ),
    "monkey_patch": (
        3,
        """
        class A:
            def m(self, x): return x + 1
        a = A()
        def f(x): return a.m(x) * 2
        ---
        run(T(3))
        a.m = lambda x: x + 5
        run(T(3))
        del a.m
        run(T(3))
        A.m = lambda self, x: x + 7
        run(T(3))
    """,
    ),
    "module_attr": (
        3,
        """
        import math, types
        cfg = types.ModuleType("cfg"); cfg.k = 2
        def f(x): return x * cfg.k
        ---
        run(T(3))
        cfg.k = 3
        run(T(3))
        cfg.k = T(3)
        run(T(3))
        cfg = None
    """,
    ),
    "grad_mode_change": (
        3,
        """
        def f(x): return x * 2 + 1
        ---
        a = T(3, grad=True)
        run(a)
        with torch.no_grad(): r = run(a)
        r
        with torch.inference_mode(): r = run(T(3))
        r.is_inference()
        r = None
        run(a).sum().backward()
        a
    """,
    ),
    "autocast_change": (
        2,
        """
        m = nn.Linear(3, 3)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x): return m(x)
        ---
        run(T(2, 3))
        with torch.autocast("cpu", dtype=torch.bfloat16): r = run(T(2, 3))
        r
        run(T(2, 3))
    """,
    ),
    "dtype_default_change": (
        1,
        """
        def f(x): return torch.ones(3) * x
        ---
        run(T(3))
        torch.set_default_dtype(torch.float64)
        run(T(3))
        torch.set_default_dtype(torch.float32)
        run(T(3))
    """,
    ),
    "device_default_change": (
        1,
        """
        def f(x): return x * 2, torch.ones(3)
        ---
        run(T(3))
        torch.set_default_device("meta")
        r = run(torch.ones(3, device="cpu"))
        r[1].device
        torch.set_default_device(None)
        run(T(3))
        r = None
    """,
    ),
    "closure_change": (
        3,
        """
        def make():
            k = 2
            def g(x): return x * k
            def s(v):
                nonlocal k
                k = v
            return g, s
        g, s = make()
        def f(x): return g(x) + 1
        ---
        run(T(3))
        s(5)
        run(T(3))
        s(T(3))
        run(T(3))
        g = s = None
    """,
    ),
    "dict_list_state": (
        6,
        """
        cfg = {'a': 1, 'l': [1, 2], 'n': {'z': None}}
        def f(x):
            y = x * cfg['a'] + sum(cfg['l'])
            if cfg['n']['z'] is not None: y = y * cfg['n']['z']
            return y
        ---
        run(T(3))
        cfg['a'] = 2
        run(T(3))
        cfg['l'].append(5)
        run(T(3))
        cfg['n']['z'] = 3
        run(T(3))
        cfg['n'] = {'z': 2.5}
        run(T(3))
        cfg['l'][:] = [0]
        run(T(3))
    """,
    ),
    "object_made_modules": (
        5,
        """
        class Cfg:
            def __init__(self, **kw): self.__dict__.update(kw)
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.cfg = cfg
                self.calls = 0
                self.cache = {}
            def forward(self, x):
                self.calls += 1
                key = (x.shape, x.dtype)
                if key not in self.cache:
                    self.cache[key] = torch.arange(x.shape[-1]) * self.cfg.k
                return x + self.cache[key]
        m = Net(Cfg(k=2))
        f = m.forward
        ---
        run(T(3))
        run(T(3))
        run(T(4))
        m.cfg.k = 5
        run(T(4))
        run(T(5))
        m.calls, len(m.cache)
    """,
    ),
    "event_counter": (
        3,
        """
        import collections
        counts = collections.Counter()
        dd = collections.defaultdict(list)
        def f(x, name):
            counts[name] += 1
            dd[name].append(x.shape)
            return x * counts[name]
        ---
        run(T(3), 'a')
        run(T(3), 'a')
        run(T(3), 'b')
        counts, dict(dd)
    """,
    ),
    "global_flag": (
        3,
        """
        DEBUG = False
        STEP = 0
        def f(x):
            global STEP
            STEP += 1
            if DEBUG:
                x = x * 0
            return x + STEP
        ---
        run(T(3))
        run(T(3))
        DEBUG = True
        run(T(3))
        DEBUG = False
        run(T(3))
        STEP
    """,
    ),
    "property_setter": (
        2,
        """
        class A:
            def __init__(self): self._v = 1
            @property
            def v(self): return self._v
            @v.setter
            def v(self, n):
                log.append(n)
                self._v = n
        def f(x, a):
            a.v = a.v + 1
            return x * a.v
        ---
        a = A()
        run(T(3), a)
        run(T(3), a)
        a._v = 9
        run(T(3), a)
        a._v
    """,
    ),
    "lock_and_thread": (
        2,
        """
        import threading
        lock = threading.Lock()
        n = 0
        def f(x):
            global n
            with lock:
                n += 1
                y = x * n
            return y + 1
        ---
        run(T(3))
        run(T(3))
        lock = None
    """,
    ),
    "exit_stack": (
        None,
        """
        import contextlib
        @contextlib.contextmanager
        def tag(name):
            log.append('in ' + name)
            try: yield name
            finally: log.append('out ' + name)
        def f(x):
            with contextlib.ExitStack() as st:
                names = [st.enter_context(tag(n)) for n in 'ab']
                st.callback(log.append, 'cb')
                y = x + len(names)
            with contextlib.suppress(KeyError):
                {}['k']
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "redirect_stdout": (
        None,
        """
        import io
        def f(x):
            s = io.StringIO()
            with contextlib.redirect_stdout(s):
                print("inside", x.shape)
                y = x + 1
            return y * 2, s.getvalue()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "profiler": (
        1,
        """
        def f(x):
            with torch.profiler.record_function("part"):
                y = x + 1
            with torch.autograd.profiler.record_function("q"):
                y = y * 3
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "nvtx_like": (
        1,
        """
        def f(x):
            torch._assert(x.dim() == 1, "dim")
            torch._check(x.shape[0] > 0)
            y = x + 1
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "eval_exec": (
        0,
        """
        def f(x):
            y = x + 1
            n = eval("1 + 2")
            return y * n
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "ast_literal": (
        2,
        """
        import ast, json
        def f(x, s):
            y = x + 1
            return y * ast.literal_eval(s), json.loads(s)
        ---
        run(T(3), "2")
        run(T(3), "3")
    """,
    ),
    "import_inside": (
        1,
        """
        def f(x):
            import math as mm
            from collections import OrderedDict as OD
            import torch.nn.functional as F
            d = OD(a=1)
            return F.relu(x) * mm.sqrt(4), d
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "inspect_things": (
        None,
        """
        import inspect
        def g(a, b=1): return a
        def f(x):
            y = x + 1
            s = inspect.signature(g)
            return y * 2, list(s.parameters), inspect.isfunction(g), inspect.isclass(int), callable(g), inspect.ismethod(g), g.__code__.co_argcount, inspect.getfullargspec(g).args
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "type_hints": (
        None,
        """
        import typing
        def g(a: int, b: 'torch.Tensor') -> float: return a
        def f(x):
            y = x + 1
            return y * 2, typing.get_type_hints(g), g.__annotations__['a'], typing.get_origin(list[int]), typing.get_args(dict[str, int])
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "traceback_text": (
        None,
        """
        import traceback, sys
        def f(x):
            y = x + 1
            try:
                raise ValueError('q')
            except ValueError:
                s = traceback.format_exc()
            return y * 2, s.splitlines()[-1]
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "sys_frames": (
        None,
        """
        import sys, inspect
        def where(): return sys._getframe(1).f_code.co_name
        def f(x):
            y = x + 1
            n = where()
            return y * 2, n, inspect.currentframe().f_code.co_name
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "copy_things": (
        2,
        """
        import copy
        @dataclasses.dataclass
        class C:
            a: int
            l: list
        def f(x, c):
            d = copy.deepcopy(c); e = copy.copy(c)
            d.l.append(1)
            r = dataclasses.replace(c, a=9)
            return x * d.a, d, e, r, dataclasses.asdict(c), e.l is c.l
        ---
        run(T(3), C(2, [1]))
        run(T(3), C(3, [1]))
    """,
    ),
    "pickle_inside": (
        2,
        """
        import pickle
        def f(x):
            y = x + 1
            s = pickle.loads(pickle.dumps({'a': 1}))
            return y * s['a']
        ---
        run(T(3))
    """,
    ),
    "queue_deque": (
        1,
        """
        import collections, heapq, bisect, queue
        def f(x):
            q = collections.deque(maxlen=2)
            q.append(x); q.append(x + 1); q.append(x + 2)
            h = []
            heapq.heappush(h, 3); heapq.heappush(h, 1)
            b = [1, 3]
            bisect.insort(b, 2)
            return sum(q), heapq.heappop(h), b
        ---
        run(T(3))
    """,
    ),
    "tqdm_like": (
        2,
        """
        class Bar:
            def __init__(self, it): self.it = it; self.n = 0
            def __iter__(self):
                for v in self.it:
                    yield v
                    self.n += 1
                    print(f"{self.n}/{len(self.it)}", end="\\r")
        def f(x, xs):
            b = Bar(xs)
            for v in b:
                x = x + v
            return x, b.n
        ---
        run(T(3), [1, 2])
        run(T(3), [1, 2, 3])
    """,
    ),
    "views_of_ordered_dicts_compared": (
        1,
        """
        held = collections.OrderedDict(a=1)
        def f(x):
            held["b"] = 2
            new, plain = collections.OrderedDict(a=1, b=2), {"a": 1, "b": 2}
            sides = held.keys(), new.keys(), plain.keys(), {"a", "b"}, held.items(), new.items(), plain.items()
            found = [(a == b, a != b, a <= b, a > b) for a in sides for b in sides]
            del held["b"]
            return x + 1, found
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "copies_by_copyreg": (
        4,
        """
        import copy, copyreg
        class Pool:
            def __init__(self, w): self.w = w; self.made = 0
        def again(pool, k=2):
            pool.made += 1
            return Pool, (pool.w * k,)
        copyreg.pickle(Pool, again)
        p = Pool(T(2))
        def f(x):
            a, (b, c) = copy.copy(p), copy.deepcopy([p, p])
            return a.w + x, b.w, b is c, a.made
        ---
        run(T(2))
        run(T(2))
        p.made
        copyreg.pickle(Pool, lambda pool: "p")
        run(T(2))
        del copyreg.dispatch_table[Pool]
        run(T(2))
    """,
    ),
}
