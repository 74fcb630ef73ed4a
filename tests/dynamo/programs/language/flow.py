"""Graph breaks in nested places, side effects in order, and exceptions."""

import textwrap

from tests.dynamo.programs import Family

# What stands at {B}: each must break the graph, or read or change the world in order.
BREAKS = {
    "print": "print('at', tuple(x.shape))",
    "item": "log.append(x.sum().item())",
    "jump": "x = x + 1 if x.sum() > 0 else x - 1",
    "graph_break": "dynamo_graph_break()",
    "unknown": "log.append(hash(compile('1', 'x', 'eval') is None))",
    "raise_caught": """
        try: raise ValueError('inner', len(log))
        except ValueError as err: log.append(err.args)
""".strip().replace("\n        ", "\n"),
}
PLACES = {
    "for_range": """
        def f(x, n=3):
            for i in range(n):
                x = x * 2
                {B}
                log.append(i)
            return x
    """,
    "for_nested": """
        def f(x, n=3):
            for i in range(n):
                for j, y in enumerate([x, x + i]):
                    x = y + j
                    {B}
                    if j: continue
                    log.append((i, j))
            else:
                log.append('else')
            return x
    """,
    "for_break_else": """
        def f(x, n=3):
            for i in [1, 2, 3]:
                x = x * i
                {B}
                if i == n: break
            else:
                return 'else', x
            return i, x
    """,
    "while_loop": """
        def f(x, n=3):
            while n:
                n -= 1
                x = x + n
                {B}
            return x, n
    """,
    "with_block": """
        @contextlib.contextmanager
        def ctx(name):
            log.append('enter ' + name)
            try:
                yield name
            finally:
                log.append('exit ' + name)
        def f(x, n=3):
            with ctx('a') as a:
                x = x + 1
                {B}
                with ctx('b'):
                    x = x * 2
                    {B}
                    log.append(a)
            return x
    """,
    "with_class": """
        class C:
            def __init__(self, swallow): self.swallow = swallow
            def __enter__(self):
                log.append('in')
                return self
            def __exit__(self, t, v, tb):
                log.append((t and t.__name__, str(v)))
                return self.swallow
        def f(x, n=3):
            with C(True) as c:
                x = x + 1
                {B}
                if n == 3: raise KeyError(n)
                x = x * 5
            log.append('after')
            with C(False):
                x = x + 1
                {B}
                if n == 4: raise KeyError(n)
            return x
    """,
    "no_grad_block": """
        def f(x, n=3):
            y = x.requires_grad
            with torch.no_grad():
                x = x * 2
                {B}
                z = x * 3
                y = (y, z.requires_grad, torch.is_grad_enabled())
            return x * 2, y, torch.is_grad_enabled()
    """,
    "autocast_block": """
        def f(x, n=3):
            with torch.autocast('cpu', dtype=torch.bfloat16):
                y = torch.mm(torch.ones(2, 2), torch.ones(2, 2))
                {B}
                z = torch.mm(y.float(), torch.ones(2, 2))
            return x * 2, y, z, torch.is_autocast_enabled('cpu')
    """,
    "try_body": """
        def f(x, n=3):
            try:
                x = x * 2
                {B}
                if n == 3: raise ValueError(n)
                x = x + 1
            except ValueError as e:
                x = x + e.args[0]
                log.append(repr(e))
            else:
                log.append('else')
            finally:
                log.append('finally')
            return x
    """,
    "except_body": """
        def f(x, n=3):
            try:
                x = x * 2
                [][n]
            except IndexError as e:
                x = x + 1
                {B}
                log.append(str(e))
                if n == 4: raise RuntimeError('second') from e
                if n == 5: raise
            return x
    """,
    "finally_body": """
        def f(x, n=3):
            try:
                x = x * 2
                if n == 4: raise KeyError('k')
                if n == 5: return x
            finally:
                x = x + 1
                {B}
                log.append('finally')
            return x
    """,
    "finally_return": """
        def f(x, n=3):
            for i in range(2):
                try:
                    x = x * 2
                    if n == 4: raise KeyError('k')
                    if n == 5: break
                finally:
                    {B}
                    if n == 4: return x, 'swallowed'
                    if i == 0: continue
            return x, i
    """,
    "inlined_callee": """
        def g(x, k):
            x = x + k
            {B}
            return x * 2
        def f(x, n=3):
            y = x + 1
            z = g(y, n)
            log.append('back')
            return y + z, z
    """,
    "deep_callee": """
        def h(x, *, k):
            x = x + k
            {B}
            return x, k
        def g(x, *args, **kw):
            a, b = h(x * 2, **kw)
            return [a, b, *args]
        def f(x, n=3):
            out = {'r': g(x, n, 'v', k=n)}
            out['x'] = x + 1
            return out
    """,
    "method": """
        class A:
            def __init__(self): self.n = 0
            def m(self, x):
                self.n += 1
                x = x * self.n
                {B}
                self.n += 10
                return x
        a = A()
        def f(x, n=3):
            x = a.m(x) + a.n
            return a.m(x), a.n
    """,
    "constructor": """
        class A:
            def __init__(self, x):
                self.x = x * 2
                {B}
                self.y = self.x + 1
        def f(x, n=3):
            a = A(x)
            a.z = a.y + n
            return a
    """,
    "property_and_operators": """
        class A:
            def __init__(self, x): self.x = x
            @property
            def v(self):
                x = self.x + 1
                {B}
                return x
            def __add__(self, o):
                x = self.x
                {B}
                return A(x + o.x)
            def __getitem__(self, i):
                x = self.x * i
                {B}
                return x
        def f(x, n=3):
            a = A(x) + A(x * 2)
            return a.v + a[n]
    """,
    "generator_consumer": """
        def gen(x, n):
            for i in range(n):
                log.append(('yield', i))
                yield x + i
            log.append('done')
        def f(x, n=3):
            out = []
            for x in gen(x, n):
                out.append(x * 2)
                {B}
            return out
    """,
    "generator_body": """
        def gen(x, n):
            for i in range(n):
                x = x + i
                {B}
                yield x
        def f(x, n=3):
            return [y * 2 for y in gen(x, n)], sum(gen(x, 2))
    """,
    "comprehension": """
        def g(x, i):
            x = x + i
            {B}
            return x
        def f(x, n=3):
            a = [g(x, i) for i in range(n) if i != 1]
            b = {i: g(x, i) for i in range(2)}
            return a, b, tuple(g(y, 1) for y in a)
    """,
    "closure": """
        def f(x, n=3):
            total = 0
            def add(v):
                nonlocal total, x
                total += v
                x = x + v
                {B}
                return x
            for i in range(n): add(i)
            return x, total, add(10), total
    """,
    "arguments": """
        def g(x, i):
            {B}
            log.append(i)
            return x * i
        def f(x, n=3):
            return max(1, 2), (g(x, 1), [g(x, 2), {'k': g(x, 3)}]), f'{n}-{len(log)}', g(x, 4) if n else None
    """,
    "short_circuit": """
        def g(x, v):
            {B}
            log.append(v)
            return v
        def f(x, n=3):
            a = g(x, 0) or g(x, n) and g(x, []) or 'end'
            return x * 2, a, g(x, 1) < g(x, 2) < g(x, 0), not g(x, None)
    """,
    "decorated": """
        def deco(fn):
            @functools.wraps(fn)
            def wrapper(*args, **kw):
                log.append('before')
                r = fn(*args, **kw)
                log.append('after')
                return r
            return wrapper
        @deco
        def g(x, k=2):
            x = x * k
            {B}
            return x
        def f(x, n=3): return g(x) + g(x, k=n)
    """,
    "recursion": """
        def g(x, n):
            if n == 0: return x
            x = x + n
            {B}
            return g(x, n - 1) * 2
        def f(x, n=3): return g(x, n)
    """,
    "module_forward": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))
                self.register_buffer('count', torch.zeros(()))
                self.calls = 0
            def forward(self, x):
                self.calls += 1
                self.count += 1
                x = x * self.w
                {B}
                return x + self.count
        m = nn.Sequential(Block(), Block())
        def f(x, n=3):
            x = m(x)
            return m[0](x)
    """,
    "star_and_unpack": """
        def g(*a, **k):
            x = a[0]
            {B}
            return a, k
        def f(x, n=3):
            (a, *b), kw = g(x, x + 1, n, z=n, y=x)
            p, (q, r) = 1, (x * 2, b)
            return a, b, kw, p, q, r, [*b, *kw], {**kw, 'p': p}
    """,
    "del_and_unbound": """
        def f(x, n=3):
            y = x + 1
            del y
            {B}
            try: y
            except UnboundLocalError as e: log.append(str(e))
            if n == 3: z = 1
            {B}
            return x * z
    """,
    "loop_local_del": """
        def f(x, n=3):
            for i in range(n):
                t = x + i
                {B}
                x = t
                del t
            try: return x, t
            except UnboundLocalError: return x, i
    """,
    "lambda_sorted": """
        def key(x, v):
            {B}
            return -v
        def f(x, n=3): return x * 2, sorted([1, 3, 2], key=lambda v: key(x, v)), list(map(lambda v: key(x, v), [1]))
    """,
    "match": """
        def f(x, n=3):
            match [n, {'k': x}]:
                case [3, {'k': v}] if v is x:
                    y = v + 1
                    {B}
                case [int() as q, {'k': v}]:
                    y = v + q
                    {B}
            return y
    """,
    "global_store": """
        COUNT = 0
        LAST = None
        def g(x):
            global COUNT, LAST
            COUNT += 1
            LAST = x + COUNT
            {B}
            COUNT += 10
            return LAST
        def f(x, n=3): return g(x) + g(x) * COUNT
    """,
    "exception_through_frames": """
        class Err(Exception): pass
        def h(x, n):
            x = x + 1
            {B}
            if n != 1: raise Err('deep', n)
            return x
        def g(x, n):
            try: return h(x * 2, n)
            finally: log.append('g')
        def f(x, n=3):
            try: y = g(x, n)
            except Err as e:
                if n > 3: raise
                y = x - 1
                log.append(e.args)
            return y
    """,
}
STEPS = """
---
run(T(3))
run(T(3))
run(T(3), 4)
run(T(3), 5)
run(T(3, grad=True), 3)
run(T(3) * -1, 1)
run(T(3))
"""


def filled(place: str, statement: str) -> str:
    lines = []
    for line in place.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() == "{B}":
            lines += [indent + part for part in statement.splitlines()]
        else:
            lines.append(line)
    return "\n".join(lines).rstrip()


PROGRAMS = {
    f"{where}-{what}": textwrap.dedent(filled(place, statement)) + STEPS
    for where, place in PLACES.items()
    for what, statement in BREAKS.items()
}
# A backend sees the graphs alone: most kinds of break cut the same ones.
CUT_ALIKE = frozenset(name for name in PROGRAMS if not name.endswith(("-print", "-jump")))
FAMILY = Family(prelude="from dynamo import graph_break as dynamo_graph_break\n", one=CUT_ALIKE)
