"""Texts of tensors, written after the graph."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "text_of_scalar": (
        2,
        """
        def f(x):
            y = x + 1
            s = f"loss {y.sum():.4f} {y.mean():>10.2e} {(y > 0).sum()} {y[0]}"
            y.mul_(3)
            return y * 2, s, format(y.sum(), ".1f"), len(x)
        ---
        run(T(3))
        run(T(3))
        run(T(4))
    """,
    ),
    "text_of_item": (
        4,
        """
        def f(x):
            y = x + 1
            print(f"loss {y.sum().item():.4f} {y.mean().item()} {(y > 0).sum().item():3d}")
            z = y * 2
            print(f"{z[0].item()!r:>10}")
            return z.relu()
        ---
        run(T(3))
        run(T(4))
    """,
    ),
    "text_of_tensors": (
        3,
        """
        def f(x):
            y = x + 1
            print("y:", y, y.long(), y > 0)
            print(repr(y), str(y[:1]), f"{y}")
            y += 1
            print(y.shape, y)
            return y * 2
        ---
        run(T(3))
        run(T(2, 2))
        run(T(2000))
    """,
    ),
    "text_of_gradients": (
        1,
        """
        def f(x):
            y = x * 2
            print(f"{y.sum():.3f}")
            print(x.detach())
            with torch.no_grad():
                print(y * 1)
            return y.sum()
        ---
        a = T(3, grad=True)
        run(a).backward()
        a
        run(a).backward()
        a
    """,
    ),
    "text_used": (
        4,
        """
        def f(x, d):
            y = x + 1
            s = f"{y.sum():.2f}"
            d[s] = y
            if s == "2.00":
                y = y * 5
            return y * 2, s.upper(), len(s), d
        ---
        run(T(3), {})
        run(torch.zeros(2), {})
    """,
    ),
    "text_kept": (
        3,
        """
        class A:
            def __init__(self): self.last = None; self.lines = []
        def f(x, a):
            y = x + 1
            a.last = f"[{y.max():.2f}]"
            a.lines.append(a.last + " end")
            a.lines.append("%s!" % a.last)
            return y * 2
        ---
        a = A()
        run(T(3), a)
        run(T(3) * 2, a)
    """,
    ),
    "text_raised": (
        2,
        """
        def f(x, n):
            y = x + 1
            if y.shape[0] != n:
                raise ValueError(f"bad {y} {y.sum():.3f}")
            return y * 2
        ---
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 4)
    """,
    ),
    "text_caught": (
        2,
        """
        def f(x):
            y = x + 1
            try:
                raise ValueError(f"bad {y.sum():.3f}")
            except ValueError as e:
                s = str(e)
            return y * 2, s
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "text_before_failure": (
        1,
        """
        def f(x, i):
            y = x + 1
            print(f"before {y.sum():.3f}", y)
            z = y[i]
            print("after", z)
            return z
        ---
        run(T(3), torch.tensor([1]))
        run(T(3), torch.tensor([7]))
    """,
    ),
    "text_warned": (
        1,
        """
        import warnings
        def f(x):
            y = x + 1
            warnings.warn(f"value {y.sum():.2f}")
            return y * 2
        ---
        def g():
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                r = run(T(3))
            return r, [str(i.message) for i in w]
        g()
        g()
    """,
    ),
    "text_logged": (
        1,
        """
        import logging, io
        buf = io.StringIO()
        __lg = logging.getLogger("probe.t1"); __h = logging.StreamHandler(buf); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def f(x):
            y = x + 1
            __lg.info(f"loss {y.sum():.3f}")
            __lg.info("loss %s", y.sum())
            return y * 2
        ---
        run(T(3))
        buf.getvalue()
        run(T(3))
        buf.getvalue()
        __lg = 0
    """,
    ),
    "text_bad_spec": (
        3,
        """
        def f(x):
            y = x + 1
            try:
                s = f"{y:.3f}"
            except TypeError as e:
                s = str(e)
            try:
                t = f"{y.sum():d}"
            except ValueError as e:
                t = str(e)
            return y * 2, s, t
        ---
        run(T(3))
    """,
    ),
    "text_in_a_loop": (
        2,
        """
        def f(x, n):
            for i in range(n):
                x = x * 1.5
                print(f"step {i}: {x.norm():.3f} {x.max().item():.2f}")
            return x
        ---
        run(T(3), 2)
        run(T(3), 3)
    """,
    ),
    "text_of_dtypes": (
        1,
        """
        def f(x):
            a = x.to(torch.bfloat16); b = x.to(torch.float64); c = (x > 0); d = x.to(torch.complex64); e = x.to(torch.int8)
            return f"{a.sum()} {b.sum():.3f} {c.any()} {d.sum():.2f} {e.sum():>5} {c.sum():,}", str(a), str(c), x * 2
        ---
        run(T(3))
    """,
    ),
    "text_printoptions": (
        1,
        """
        def f(x):
            print(x + 1)
            return x * 2
        ---
        run(T(3))
        torch.set_printoptions(precision=2)
        run(T(3))
        torch.set_printoptions(profile="default")
    """,
    ),
    "text_of_parameter": (
        1,
        """
        p = nn.Parameter(T(2))
        def f(x):
            print(p)
            print(f"{p.sum():.2f}", p.data)
            return x * p
        ---
        run(T(2)).sum().backward()
        p
    """,
    ),
    "training_prints": (
        3,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        __opt = torch.optim.SGD(m.parameters(), lr=0.1)
        def f(x, y, i):
            loss = torch.nn.functional.mse_loss(m(x), y)
            if i % 2 == 0:
                print(f"step {i} loss {loss.item():.4f} {loss:.3f}")
            loss.backward()
            __opt.step()
            __opt.zero_grad()
            return loss.detach()
        ---
        for i in range(4): run(T(4, 3), T(4, 2), i)
        m.weight
    """,
    ),
    "dict_of_texts": (
        2,
        """
        def f(x, metrics):
            y = x + 1
            metrics[f"shape_{y.shape[0]}"] = y.mean()
            for name, v in metrics.items():
                print(f"{name}: {v:.2f}" if isinstance(v, float) else f"{name}: {v.item():.2f}")
            return y
        ---
        run(T(3), {"a": 0.5})
        run(T(3), {"b": 0.25})
    """,
    ),
    "assert_texts": (
        2,
        """
        def f(x):
            y = x + 1
            assert y.shape[0] == 3, f"shape {y.shape} {y}"
            assert not torch.isnan(y).any(), f"nan in {y}"
            return y * 2
        ---
        run(T(3))
        run(T(3) * float("nan"))
        run(T(4))
    """,
    ),
    "text_of_inference": (
        1,
        """
        def f(x):
            with torch.inference_mode():
                y = x * 2
                print(f"{y.sum():.2f}", y)
            return y.sum() + 1
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "text_of_views": (
        2,
        """
        def f(x):
            v = x[1:]
            s = f"{v}"
            x.add_(1)
            t = f"{v} {v[0]:.1f}"
            w = x.numpy()
            x.mul_(2)
            return s, t, str(v), v
        ---
        run(T(3))
        run(T(4))
    """,
    ),
    "eval_and_exec_texts": (
        3,
        """
        def f(x):
            y = x + 1
            print("%s" % y.shape[0], "%d items" % y.numel(), "{} {}".format(y.shape, y.dtype), "{:>5}".format(y.shape[0]))
            return y, ", ".join(str(d) for d in y.shape), "x".join(map(str, y.shape)), f"{y.shape!r:>20}", f"{y.dtype!s}"
        ---
        run(T(3))
        run(T(2, 3))
        run(T(4, 3))
    """,
    ),
    "text_by_address": (
        1,
        """
        class P:
            pass
        def f(x, p):
            y = x + 1
            t = repr(p), f"<<{p}>>", str(p)[3:-1], "%s|%s" % (p, 2), repr(p).upper().ljust(90), f"{p}"[::-1]
            return y * 2, t, [repr(p), {"k": str(p)}]
        def right(p):
            _, t, l = run(T(3), p)
            return t == (repr(p), f"<<{p}>>", str(p)[3:-1], "%s|%s" % (p, 2), repr(p).upper().ljust(90), f"{p}"[::-1]) and l == [repr(p), {"k": str(p)}]
        ---
        p, q = P(), P()
        right(p), right(q), right(p), right(P())
    """,
    ),
    "text_of_text_of_numbers": (
        2,
        """
        def f(x, n):
            t = f" n={n} of {x.size(0)} "
            u = f"{x.sum():.2f}"
            return x + 1, t.strip().upper(), t[1:4], re.sub("[0-9]+", "#", t), t.replace("n", "m").center(20), u.zfill(8), u.rjust(9)[2:], u[-1:]
        import re
        ---
        run(T(3), 1)
        run(T(4), 2)
        run(T(5) + 2, 3)
        run(T(5) + 2, 4)
    """,
    ),
    "address_printed": (
        1,
        """
        import contextlib, io, logging
        class P: pass
        def f(x, p):
            y = x + 1
            print("has", p, [1], sep="|")
            logging.warning("of %s", p)
            return y * 2
        def right(p):
            out, logged = io.StringIO(), io.StringIO()
            handler = logging.StreamHandler(logged)
            logging.getLogger().handlers[:] = [handler]
            with contextlib.redirect_stdout(out): run(T(3), p)
            return out.getvalue() == f"has|{p}|[1]\\n", logged.getvalue() == f"of {p}\\n"
        ---
        before = list(logging.getLogger().handlers)
        right(P()), right(P())
        logging.getLogger().handlers[:] = before
    """,
    ),
}
