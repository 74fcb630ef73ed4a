"""Coroutines and asynchronous generators, which run eagerly, with what they call compiled."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "coro_send": (
        None,
        """
        async def g(x): return x * 2
        async def h(x):
            a = await g(x)
            b = await g(a)
            return a + b
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "coro_root": (
        0,
        """
        import asyncio
        async def g(x): return x * 2
        async def f(x):
            a = await g(x)
            await asyncio.sleep(0)
            return a + x
        ---
        asyncio.run(run(T(2)))
        asyncio.run(run(T(2)))
        """,
    ),
    "coro_awaitable": (
        None,
        """
        class A:
            def __init__(self, v): self.v = v
            def __await__(self):
                got = yield self.v
                return got * 2
        async def h(x):
            r = await A(x)
            return r + 1
        def f(x):
            c = h(x)
            first = c.send(None)
            try: c.send(first + 5)
            except StopIteration as e: return first, e.value
        ---
        run(T(2))
        """,
    ),
    "coro_async_for": (
        None,
        """
        class It:
            def __init__(self, x, n): self.x, self.n = x, n
            def __aiter__(self): return self
            async def __anext__(self):
                if self.n == 0: raise StopAsyncIteration
                self.n -= 1
                return self.x + self.n
        async def h(x):
            out = []
            async for v in It(x, 3): out.append(v)
            else: out.append('else')
            out.append([v async for v in It(x, 2) if v is not None])
            return out
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        """,
    ),
    "coro_async_with": (
        None,
        """
        class M:
            async def __aenter__(self): log.append('in'); return 2
            async def __aexit__(self, t, v, tb): log.append((t and t.__name__)); return t is ValueError
        async def h(x, n):
            async with M() as k:
                y = x * k
                if n: raise ValueError(1)
                return y
            return x - 1
        def f(x, n):
            c = h(x, n)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2), 0)
        run(T(2), 1)
        """,
    ),
    "async_gen": (
        None,
        """
        async def g(x):
            for i in range(3):
                yield x + i
        async def h(x):
            out = []
            async for v in g(x): out.append(v * 2)
            a = g(x)
            out.append(await a.__anext__())
            out.append(await anext(a))
            out.append(await a.asend(None))
            try: await a.__anext__()
            except StopAsyncIteration: out.append('stop')
            return out
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        """,
    ),
    "async_comp": (
        None,
        """
        async def g(x):
            yield x
            yield x + 1
        async def w(v): return v * 2
        async def h(x):
            a = [v async for v in g(x)]
            b = {i: await w(i) for i in (1, 2)}
            c = [await w(v) for v in a]
            d = [v async for v in (u async for u in g(x))]
            return a, b, c, d
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        """,
    ),
    "coro_gather_root": (
        0,
        """
        import asyncio
        async def g(x, n):
            y = x * n
            await asyncio.sleep(0)
            return y + 1
        async def f(x):
            r = await asyncio.gather(g(x, 1), g(x, 2))
            return sum(r)
        ---
        asyncio.run(run(T(2)))
        asyncio.run(run(T(2)))
        """,
    ),
    "coro_asyncio_run_inside": (
        None,
        """
        import asyncio
        async def g(x):
            await asyncio.sleep(0)
            return x * 2
        def f(x):
            y = x + 1
            return asyncio.run(g(y)) + 1
        ---
        run(T(2))
        """,
    ),
    "types_coroutine": (
        None,
        """
        import types as _t
        @_t.coroutine
        def g(x):
            got = yield x
            return got
        async def h(x): return await g(x)
        def f(x):
            c = h(x)
            a = c.send(None)
            try: c.send(a * 2)
            except StopIteration as e: return a, e.value
        ---
        run(T(2))
        """,
    ),
    "async_contextmanager": (
        None,
        """
        @contextlib.asynccontextmanager
        async def cm(n):
            log.append('in')
            try: yield n * 2
            finally: log.append('out')
        async def h(x):
            async with cm(x) as y: return y + 1
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        """,
    ),
    "root_async_gen": (
        0,
        """
        import asyncio
        async def f(x):
            for i in range(2): yield x * i
        async def drive(a): return [v async for v in a]
        ---
        asyncio.run(drive(run(T(2))))
        """,
    ),
    "coro_await_inside_break": (
        None,
        """
        import dynamo
        async def g(x):
            y = x * 2
            dynamo.graph_break()
            return y + 1
        async def h(x): return await g(x) * 3
        def f(x):
            c = h(x)
            try: c.send(None)
            except StopIteration as e: return e.value
        ---
        run(T(2))
        """,
    ),
    "root_generator_hook": (
        1,
        """
        def helper(x): return x * 2 + 1
        def f(x):
            for i in range(3):
                got = yield helper(x) + i
                if got is not None: log.append(got)
            return 'end'
        ---
        list(run(T(2)))
        g = run(T(2))
        next(g)
        g.send(5)
        g.close()
        list(g)
        """,
    ),
    "root_coroutine_hook": (
        1,
        """
        import asyncio
        def helper(x): return x * 2 + 1
        async def g(x):
            await asyncio.sleep(0)
            return helper(x)
        async def f(x):
            a = await g(x)
            b = await asyncio.gather(g(a), g(x))
            return helper(a), b
        ---
        asyncio.run(run(T(2)))
        """,
    ),
    "root_asyncgen_hook": (
        1,
        """
        import asyncio
        def helper(x): return x * 2 + 1
        async def f(x):
            try:
                for i in range(3):
                    await asyncio.sleep(0)
                    got = yield helper(x)
                    log.append(got)
            finally: log.append('fin')
        async def drive(a):
            out = [await a.asend(None), await a.asend('s')]
            await a.aclose()
            return out
        ---
        asyncio.run(drive(run(T(2))))
        """,
    ),
    "thrown_in_parts": (
        1,
        """
        def f(x):
            def gen():
                try: yield 1
                except ValueError as error: yield str(error)
            g = gen()
            next(g)
            return x + 1, g.throw(ValueError, ValueError('v'), None)
        ---
        run(T(2))
        """,
    ),
    "root_generator_throw": (
        0,
        """
        def f(x):
            try: yield x + 1
            except ValueError as e: yield str(e)
        ---
        g = run(T(2))
        next(g)
        g.throw(ValueError('v'))
        next(g, 'done')
        h = run(T(2))
        next(h)
        h.throw(KeyError('k'))
        run()
        """,
    ),
}
