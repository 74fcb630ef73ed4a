"""Clocks, print and texts of tensors."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "clock_leading": (
        1,
        """
        import time
        def f(x):
            t = time.time()
            y = x + 1
            return y * 2, isinstance(t, float)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_measures": (
        3,
        """
        import time
        def f(x):
            t = time.perf_counter()
            y = x + 1
            e = time.perf_counter() - t
            return y * 2, e > 0
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_trailing": (
        1,
        """
        import time
        def f(x):
            y = x + 1
            log.append(time.monotonic() > 0)
            return y
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_middle": (
        3,
        """
        import time
        __times = []
        def f(x):
            y = x + 1
            __times.append(time.time())
            return y * 2
        ---
        run(T(3))
        run(T(3))
        len(__times), __times == sorted(__times)
    """,
    ),
    "clock_datetime": (
        2,
        """
        import datetime
        def f(x):
            y = x + 1
            now = datetime.datetime.now()
            s = now.strftime("%Y")
            return y * 2, len(s), now.year > 2000
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_ns": (
        1,
        """
        import time
        def f(x):
            a = time.time_ns(); b = time.perf_counter_ns(); c = time.monotonic_ns(); d = time.process_time(); e = time.process_time_ns(); g = time.thread_time()
            return x * 2, a > 0, type(b), type(c), type(d), e > 0, g > 0
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_unused": (
        2,
        """
        import time
        def f(x):
            y = x + 1
            time.time()
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_timer_class": (
        3,
        """
        import time
        class Timer:
            def __enter__(self):
                self.t = time.perf_counter()
                return self
            def __exit__(self, *a):
                self.elapsed = time.perf_counter() - self.t
        def f(x):
            with Timer() as t:
                y = x * 2
                y = y + 1
            return y.relu(), t.elapsed >= 0
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "clock_every_n": (
        3,
        """
        import time
        __state = {'last': 0.0}
        def f(x):
            y = x + 1
            if time.time() - __state['last'] > 1e6:
                __state['last'] = time.time()
                log.append('due')
            return y * 2
        ---
        run(T(3))
        run(T(3))
        __state['last'] > 0
    """,
    ),
    "clock_first_then_due": (
        1,
        """
        import time
        __state = {'last': 0.0}
        def f(x):
            now = time.monotonic()
            y = x + 1
            __state['now'] = now
            return y * 2, now + 1 > now
        ---
        run(T(3))
        __state['now'] > 0
        run(T(3))
        __state['now'] > 0
    """,
    ),
    "print_plain": (
        2,
        """
        def f(x):
            y = x + 1
            print("shape", y.shape, y.dtype, f"{y.shape[0]:>5}", y.device, y.requires_grad)
            return y * 2
        ---
        run(T(3))
        run(T(4))
        run(T(5))
    """,
    ),
    "print_tensor": (
        4,
        """
        def f(x):
            y = x + 1
            print("y", y)
            z = y * 2
            print(f"{z.sum():.3f}", z.sum().item())
            return z.relu()
        ---
        run(T(3))
        run(T(4))
    """,
    ),
    "print_tensor_grad": (
        1,
        """
        def f(x):
            y = x * 1
            print(y.mean().item())
            return y * 2
        ---
        a = T(3, grad=True)
        run(a).sum().backward()
        a
    """,
    ),
    "print_stderr": (
        1,
        """
        import sys
        def f(x):
            y = x + 1
            print("note", file=sys.stderr)
            return y * 2
        ---
        run(T(3))
    """,
    ),
    "print_stringio": (
        2,
        """
        import io
        def f(x):
            s = io.StringIO()
            y = x + 1
            print("note", y.shape, file=s)
            s.write("more")
            return y * 2, s.getvalue()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "print_objects": (
        2,
        """
        @dataclasses.dataclass
        class Config:
            a: int
            b: str = 'q'
        class P:
            def __repr__(self): return 'P!'
        class E(enum.Enum):
            A = 1
        def f(x, c):
            y = x + 1
            print(c, P(), [P(), c], {'k': E.A}, E.A, (1, None), x.shape, torch.float32)
            return y * 2
        ---
        run(T(3), Config(1))
        run(T(3), Config(2, 'z'))
    """,
    ),
    "print_loop": (
        3,
        """
        def f(x, n):
            for i in range(n):
                x = x + i
                print(f"step {i}/{n}", end=" ", flush=True)
            print()
            return x
        ---
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
    """,
    ),
    "print_then_raise": (
        0,
        """
        def f(x):
            print("before")
            y = x + 1
            raise ValueError("no")
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "pprint": (
        None,
        """
        import pprint
        def f(x):
            y = x + 1
            pprint.pprint({'a': [1, 2], 'b': y.shape[0]})
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "stdout_write": (
        2,
        """
        import sys
        def f(x):
            y = x + 1
            sys.stdout.write(f"hello {y.shape[0]}\\n")
            sys.stdout.flush()
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "module_str": (
        1,
        """
        m = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        def f(x):
            y = m(x)
            s = str(m)
            return y * 2, s, repr(m[0]), f"{m[1]}"
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "tensor_str": (
        2,
        """
        def f(x):
            y = x + 1
            s = str(y)
            z = y * 2
            return z, s, repr(z), f"{z}", "%s" % z
        ---
        run(T(3))
        run(T(2, 2))
    """,
    ),
    "tensor_format_item": (
        2,
        """
        def f(x):
            y = x + 1
            s = f"{y.sum():.4f} {y.mean().item():.2f}"
            return y * 2, s
        ---
        run(T(3))
        run(T(2, 2))
    """,
    ),
    "tensor_meta_texts": (
        2,
        """
        def f(x):
            y = x + 1
            return y * 2, f"{y.shape} {y.dtype} {y.device} {y.size(0)} {y.numel()} {y.dim()} {y.stride()} {tuple(y.shape)} {y.layout}", str(y.shape), repr(y.dtype), str(y.device), str(y.type()), repr(y.requires_grad)
        ---
        run(T(3))
        run(T(2, 2))
        run(T(4, 2))
    """,
    ),
    "tensor_key_by_text": (
        2,
        """
        def f(x, d):
            y = x + 1
            d[str(tuple(y.shape))] = y
            d[f"{y.dtype}"] = 1
            return y * 2, d
        ---
        d = {}
        run(T(3), d)
        run(T(2, 2), d)
    """,
    ),
    "time_deadline": (
        4,
        """
        import time
        class Budget:
            def __init__(self, s): self.end = time.monotonic() + s
            def left(self): return self.end - time.monotonic()
        def f(x, __b):
            y = x * 2
            if __b.left() < 0:
                return y
            return y + 1
        ---
        __b = Budget(100)
        run(T(3), __b)
        run(T(3), __b)
        __b.end = 0
        run(T(3), __b)
    """,
    ),
    "time_format": (
        None,
        """
        import time, datetime
        def f(x):
            stamp = datetime.date.today().isoformat()
            t = time.strftime("%Y")
            y = x * 2
            return y, len(stamp), len(t)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "elapsed_many_calls": (
        4,
        """
        import time
        __total = [0.0]
        def f(x):
            t = time.perf_counter()
            y = (x * 2).relu()
            __total[0] += time.perf_counter() - t
            return y + 1
        ---
        for i in range(5): run(T(3))
        __total[0] > 0
    """,
    ),
    "print_and_log_in_order": (
        3,
        """
        import logging, sys, io
        __buf = io.StringIO()
        __lg = logging.getLogger("probe.a4"); __h = logging.StreamHandler(__buf); __lg.handlers[:] = [__h]; __lg.propagate = False; __lg.setLevel(logging.DEBUG)
        def f(x):
            with contextlib.redirect_stdout(__buf):
                pass
            y = x + 1
            __lg.info("one")
            print("two")
            __lg.info("three")
            if y.sum() > 100: return y
            __lg.info("four")
            return y * 2
        ---
        run(T(3))
        __buf.getvalue()
        run(T(3) * 1000)
        __buf.getvalue()
    """,
    ),
    "print_before_another_stdout": (
        2,
        """
        import contextlib, io, sys
        text = io.StringIO()
        def f(x):
            print("outside")
            with contextlib.redirect_stdout(text):
                y = x + 1
                torch._dynamo.graph_break()
            return y * 2
        ---
        run(T(3))
        text.getvalue()
    """,
    ),
}
