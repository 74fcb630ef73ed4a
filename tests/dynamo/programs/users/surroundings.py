"""Files, paths, the environment, context variables, questions to the system."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "file_read": (
        None,
        """
        import tempfile, os
        path = os.path.join(tempfile.gettempdir(), "probe_read.txt")
        with open(path, "w") as fh: fh.write("3\\n4")
        def f(x):
            y = x + 1
            with open(path) as fh:
                n = int(fh.readline())
            return y * n
        ---
        run(T(3))
        with open(path, "w") as fh: fh.write("5")
        run(T(3))
        fh = None
    """,
    ),
    "file_write": (
        None,
        """
        import tempfile, os
        path = os.path.join(tempfile.gettempdir(), "probe_write.txt")
        def f(x):
            y = x + 1
            with open(path, "a") as fh:
                fh.write(f"{y.shape[0]}\\n")
            return y * 2
        ---
        if os.path.exists(path): os.remove(path)
        run(T(3))
        run(T(3))
        open(path).read()
    """,
    ),
    "path_ops": (
        None,
        """
        import os, pathlib
        def f(x, p):
            y = x + 1
            q = os.path.join(p, "a.txt")
            n = os.path.basename(q), os.path.splitext(q), os.path.dirname(q), os.path.normpath("a/../b"), os.path.isabs(q), os.path.split(q), os.path.relpath("/a/b", "/a"), os.path.commonprefix(["ab", "ac"]), os.fspath(q)
            return y * 2, n
        ---
        run(T(3), "/x")
        run(T(3), "y")
    """,
    ),
    "path_exists": (
        None,
        """
        import os
        def f(x, p):
            y = x + 1
            if os.path.exists(p):
                y = y * 3
            return y * 2, os.path.isfile(p), os.path.isdir(p)
        ---
        run(T(3), "/nonexistent")
        run(T(3), "/tmp")
        run(T(3), "/nonexistent")
    """,
    ),
    "pathlib": (
        None,
        """
        import pathlib
        def f(x, p):
            y = x + 1
            q = pathlib.Path(p) / "b.txt"
            return y * 2, q.name, q.suffix, str(q.parent), q.stem
        ---
        run(T(3), "/x")
        run(T(3), "y")
    """,
    ),
    "abspath": (
        None,
        """
        import os
        def f(x):
            y = x + 1
            return y * 2, os.path.abspath("q"), os.getcwd(), os.path.expanduser("~")
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "environ": (
        3,
        """
        import os
        os.environ.pop("PROBE_A", None)
        def f(x):
            y = x + 1
            if os.environ.get("PROBE_A", "0") == "1":
                y = y * 3
            if os.getenv("PROBE_A"):
                y = y + 7
            return y * 2, "PROBE_A" in os.environ, int(os.environ.get("PROBE_A", 4))
        ---
        run(T(3))
        os.environ["PROBE_A"] = "1"
        run(T(3))
        os.environ["PROBE_A"] = "0"
        run(T(3))
        del os.environ["PROBE_A"]
        run(T(3))
    """,
    ),
    "environ_write": (
        2,
        """
        import os
        os.environ.pop("PROBE_B", None)
        def f(x):
            y = x + 1
            os.environ["PROBE_B"] = str(y.shape[0])
            a = os.environ["PROBE_B"]
            os.environ.setdefault("PROBE_B", "9")
            return y * 2, a, os.getenv("PROBE_B")
        ---
        run(T(3))
        os.environ["PROBE_B"], os.getenv("PROBE_B")
        run(T(4))
        os.environ.pop("PROBE_B")
    """,
    ),
    "environ_copy": (
        2,
        """
        import os
        os.environ["PROBE_C"] = "4"
        def f(x):
            y = x + 1
            d = dict(os.environ)
            e = os.environ.copy()
            return y * 2, d["PROBE_C"], e["PROBE_C"], [k for k in os.environ if k == "PROBE_C"]
        ---
        run(T(3))
        os.environ["PROBE_C"] = "5"
        run(T(3))
        del os.environ["PROBE_C"]
    """,
    ),
    "contextvar_get": (
        2,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=3)
        def f(x):
            y = x + 1
            return y * CV.get()
        ---
        run(T(3))
        t = CV.set(5); t = None
        run(T(3))
        run(T(3))
    """,
    ),
    "contextvar_set": (
        1,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=3)
        def f(x):
            y = x + 1
            t = CV.set(7)
            y = y * CV.get()
            CV.reset(t)
            return y * CV.get()
        ---
        run(T(3))
        run(T(3))
        CV.get()
    """,
    ),
    "contextvar_manager": (
        1,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=None)
        @contextlib.contextmanager
        def scope(v):
            t = CV.set(v)
            try:
                yield
            finally:
                CV.reset(t)
        def g(x):
            return x * CV.get()
        def f(x):
            y = x + 1
            with scope(4):
                y = g(y)
            return y * 2, CV.get()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "contextvar_set_tensor": (
        2,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=None)
        def f(x):
            y = x + 1
            CV.set(y)
            return y * 2
        ---
        run(T(3))
        CV.get()
        run(T(4))
        CV.get()
    """,
    ),
    "uuid_hash": (
        None,
        """
        import hashlib, uuid
        def f(x, s):
            y = x + 1
            h = hashlib.md5(s.encode()).hexdigest()
            return y * 2, h, int(h, 16) % 7
        ---
        run(T(3), "a")
        run(T(3), "b")
    """,
    ),
    "os_misc": (
        None,
        """
        import os, sys, threading, platform
        def f(x):
            y = x + 1
            return y * 2, os.getpid() > 0, os.cpu_count(), threading.current_thread() is threading.main_thread(), threading.get_ident() > 0, sys.platform, platform.system(), torch.get_num_threads()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "recursion_limit": (
        2,
        """
        import sys, gc
        def f(x):
            y = x + 1
            gc.collect()
            n = sys.getrecursionlimit()
            s = sys.getsizeof(1)
            r = sys.intern("a")
            return y * 2, n, s, r, gc.isenabled()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "empty_cache": (
        1,
        """
        def f(x):
            y = x + 1
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            return y * 2
        ---
        run(T(3))
    """,
    ),
    "questions": (
        None,
        """
        import os, threading, tempfile, pathlib
        path = os.path.join(tempfile.gettempdir(), "probe_q.txt")
        def f(x, p):
            y = x + 1
            if os.path.exists(p):
                y = y * 3
            return y * 2, os.path.isfile(p), os.path.isdir(p), os.getcwd() == "/", os.getpid() > 0, os.cpu_count() > 0, threading.current_thread() is threading.main_thread(), os.path.islink(p)
        ---
        if os.path.exists(path): os.remove(path)
        run(T(3), path)
        __f = open(path, "w")
        run(T(3), path)
        os.remove(path)
        run(T(3), path)
        run(T(3), "/")
    """,
    ),
    "cached_file": (
        None,
        """
        import os, tempfile
        path = os.path.join(tempfile.gettempdir(), "probe_c.txt")
        def load(x):
            if not os.path.exists(path):
                with open(path, "w") as fh:
                    fh.write("2")
                log.append("written")
            return x * 2
        def f(x):
            return load(x + 1) + 1
        ---
        if os.path.exists(path): os.remove(path)
        run(T(3))
        run(T(3))
        os.remove(path)
        run(T(3))
    """,
    ),
    "environ_written": (
        2,
        """
        import os
        os.environ.pop("PROBE_B", None)
        def f(x):
            y = x + 1
            os.environ["PROBE_B"] = str(y.shape[0])
            a = os.environ["PROBE_B"]
            os.environ.setdefault("PROBE_B", "9")
            return y * 2, a, os.getenv("PROBE_B")
        ---
        run(T(3))
        os.environ["PROBE_B"], os.getenv("PROBE_B")
        run(T(4))
        os.popen("echo $PROBE_B").read()
        os.environ.pop("PROBE_B")
    """,
    ),
    "environ_restored": (
        2,
        """
        import os
        @contextlib.contextmanager
        def env(k, v):
            old = os.environ.get(k)
            os.environ[k] = v
            try: yield
            finally:
                if old is None: del os.environ[k]
                else: os.environ[k] = old
        def f(x):
            with env("PROBE_D", "3"):
                y = x * int(os.environ["PROBE_D"])
            return y + 1, "PROBE_D" in os.environ
        ---
        run(T(3))
        os.environ.get("PROBE_D"), os.popen("echo $PROBE_D").read()
        os.environ["PROBE_D"] = "8"
        run(T(3))
        os.environ.pop("PROBE_D")
    """,
    ),
    "contextvar_object": (
        3,
        """
        import contextvars
        class S:
            def __init__(self): self.depth = 0
        CV = contextvars.ContextVar("CV", default=None)
        def f(x):
            s = CV.get()
            if s is None:
                s = S()
                CV.set(s)
            s.depth += 1
            return x * s.depth
        ---
        run(T(3))
        CV.get().depth
        run(T(3))
        CV.get().depth
        t = CV.set(S())
        run(T(3))
        CV.reset(t)
        run(T(3))
        t = None
    """,
    ),
    "contextvar_break_inside": (
        6,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=1)
        @contextlib.contextmanager
        def scope(v):
            t = CV.set(v)
            try:
                yield v
            finally:
                CV.reset(t)
        def f(x):
            y = x * CV.get()
            with scope(2):
                y = y * CV.get()
                if y.sum() > 0: y = y + 5
                with scope(3):
                    y = y * CV.get()
                    print(y.sum().item() > 0)
                    y = y - CV.get()
                y = y * CV.get()
            return y * CV.get()
        ---
        run(T(3))
        CV.get()
        run(T(4))
        CV.get()
    """,
    ),
    "contextvar_raise_inside": (
        2,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=1)
        @contextlib.contextmanager
        def scope(v):
            t = CV.set(v)
            try:
                yield v
            finally:
                CV.reset(t)
        def f(x, n):
            try:
                with scope(2):
                    y = x * CV.get()
                    if n > 2: raise ValueError(n)
            except ValueError:
                y = x - CV.get()
            return y
        ---
        run(T(3), 1)
        run(T(3), 3)
        CV.get()
    """,
    ),
    "contextvar_token": (
        1,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=1)
        CW = contextvars.ContextVar("CW")
        def f(x):
            t = CV.set(5)
            u = CW.set(x)
            try:
                v = CW.get(3)
            except LookupError:
                v = None
            return x * CV.get(), t, u, v is x
        ---
        __r = run(T(3))
        CV.get(), CW.get()
        CV.reset(__r[1]); CW.reset(__r[2])
        CV.get(), CW.get("unset")
        __r = run(T(3))
        CV.get(), CW.get()
        __r[1].old_value, __r[1].var is CV, __r[2].old_value
    """,
    ),
    "contextvar_without_a_value": (
        None,
        """
        import contextvars
        CV = contextvars.ContextVar("CV")
        CW = contextvars.ContextVar("CW", default=3)
        def f(x):
            try:
                CV.get()
            except LookupError as error:
                log.append((error.args[0] is CV, CV.get(7)))
            t = CV.set(5)
            u = CV.set(6)
            w = CW.set(7)
            log.append((t.old_value is contextvars.Token.MISSING, u.old_value, t.var is CV))
            log.append(w.old_value is contextvars.Token.MISSING)
            y = x * CV.get() + CW.get()
            CW.reset(w); CV.reset(u); CV.reset(t)
            return y, CV.get(None), CW.get()
        ---
        run(T(3))
        run(T(3))
        CV.get("unset"), CW.get()
        CW.set(9).old_value is contextvars.Token.MISSING
        CV.set(2).old_value is contextvars.Token.MISSING
        run(T(3))
    """,
    ),
    "contextvar_token_from_outside": (
        2,
        """
        import contextvars
        CW = contextvars.ContextVar("CW", default=3)
        def f(x, t):
            return x * 2, t.var is CW, t.old_value
        ---
        run(T(3), CW.set(1))[1:]
        run(T(3), CW.set(2))[1:]
        run(T(3), CW.set(3))[1:]
    """,
    ),
    "contextvar_in_run": (
        3,
        """
        import contextvars
        CV = contextvars.ContextVar("CV", default=1)
        def f(x):
            y = x * CV.get()
            CV.set(CV.get() + 1)
            return y
        ---
        run(T(3))
        run(T(3))
        __c = contextvars.copy_context()
        __c.run(run, T(3))
        CV.get(), __c[CV]
        __e = contextvars.Context()
        __e.run(run, T(3))
        run(T(3))
        CV.get()
    """,
    ),
    "profiles": (
        1,
        """
        from torch.profiler import ProfilerActivity, profile, record_function
        def f(x):
            with profile(activities=[ProfilerActivity.CPU]) as found:
                with record_function("part"):
                    y = x * 2
            return y, any(event.name == "part" for event in found.events())
        ---
        run(T(3))
    """,
    ),
    "find_spec": (
        2,
        "",
        """
        import importlib.util, importlib.machinery, sys, types
        def f(x):
            if importlib.util.find_spec("no_such_library") is not None: x = x + 1
            found = importlib.util.find_spec("json")
            return x * 2, found is None, found.name, bool(importlib.util.find_spec("another"))
        made = types.ModuleType("no_such_library")
        made.__spec__ = importlib.machinery.ModuleSpec("no_such_library", None)
        ---
        run(T(2))
        run(T(2))
        sys.modules["no_such_library"] = made
        run(T(2))
        del sys.modules["no_such_library"]
        run(T(2))
        made = None
    """,
    ),
    "weak_reference_to_an_enum_member": (
        1,
        "",
        """
        import weakref
        class Kind(enum.Enum): A = 1; B = 2
        seen = weakref.ref(Kind.A)
        class Shared:
            held = {'kind': Kind.A, 'n': 2}
            def __init__(self): self.__dict__ = self.held
        def f(x):
            s = Shared()
            s.k = 3
            del s
            return x * 2 if Shared().kind is Kind.A else x, Shared().k
        ---
        run(T(2))
        run(T(2))
        seen = None
    """,
    ),
}
