"""Logging and warnings."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "logging_handler": (
        2,
        """
        import logging
        class H(logging.Handler):
            def emit(self, r):
                log.append((r.levelname, r.getMessage(), r.funcName, r.name))
        __lg = logging.getLogger("probe.h1"); __lg.handlers[:] = [H()]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def f(x):
            y = x + 1
            __lg.info("shape %s dim %d", tuple(y.shape), y.dim())
            __lg.debug("hidden %s", y.shape)
            __lg.warning(f"w {y.shape[0]}")
            return y * 2
        ---
        run(T(3))
        run(T(3))
        __lg.setLevel(logging.ERROR)
        run(T(3))
        __lg.setLevel(logging.DEBUG)
        run(T(3))
        __lg.setLevel(logging.INFO)
        __lg = 0
    """,
    ),
    "logging_stream": (
        2,
        """
        import logging, io
        buf = io.StringIO()
        __lg = logging.getLogger("probe.h2"); __h = logging.StreamHandler(buf); __h.setFormatter(logging.Formatter("%(levelname)s %(name)s %(funcName)s:%(lineno)d %(message)s")); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def helper(x):
            __lg.error("in helper")
            return x + 1
        def f(x):
            y = helper(x)
            __lg.info("shape %s dim %d", tuple(y.shape), y.dim())
            __lg.debug("hidden %s", y.shape)
            __lg.warning(f"w {y.shape[0]}")
            __lg.log(logging.INFO, "at level")
            return y * 2
        ---
        run(T(3))
        buf.getvalue()
        run(T(3))
        buf.getvalue()
        __lg.setLevel(logging.ERROR)
        run(T(3))
        buf.getvalue()
        __lg = 0
    """,
    ),
    "logging_exception": (
        2,
        """
        import logging, io
        buf = io.StringIO()
        __lg = logging.getLogger("probe.h3"); __h = logging.StreamHandler(buf); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def f(x):
            y = x + 1
            try:
                {}['k']
            except KeyError:
                __lg.exception("failed")
                y = y + 2
            return y * 2
        ---
        run(T(3))
        buf.getvalue()
        __lg = 0
    """,
    ),
    "logging_tensor": (
        1,
        """
        import logging, io
        buf = io.StringIO()
        __lg = logging.getLogger("probe.h4"); __h = logging.StreamHandler(buf); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def f(x):
            y = x + 1
            __lg.info("loss %s", y.sum())
            __lg.info("loss %.3f", y.sum().item())
            return y * 2
        ---
        run(T(3))
        buf.getvalue()
        run(T(3))
        buf.getvalue()
        __lg = 0
    """,
    ),
    "logging_once": (
        2,
        """
        import logging, io, functools
        buf = io.StringIO()
        __lg = logging.getLogger("probe.h5"); __h = logging.StreamHandler(buf); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        @functools.lru_cache(None)
        def warn_once(text):
            __lg.warning(text)
        def f(x):
            y = x + 1
            warn_once("careful")
            return y * 2
        ---
        run(T(3))
        buf.getvalue()
        run(T(3))
        buf.getvalue()
        warn_once.cache_clear()
        __lg = 0
    """,
    ),
    "logger_warning_once_attr": (
        2,
        """
        import logging, io
        buf = io.StringIO()
        __lg = logging.getLogger("probe.h6"); __h = logging.StreamHandler(buf); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        def warn(text): __lg.warning(text)
        class A(nn.Module):
            warned = False
            def forward(self, x):
                if not self.warned:
                    warn("once")
                    self.warned = True
                return x * 2 + 1
        m = A()
        f = m.forward
        ---
        run(T(3))
        buf.getvalue()
        run(T(3))
        buf.getvalue()
        __lg = 0
    """,
    ),
    "warn_basic": (
        1,
        """
        import warnings
        def f(x):
            y = x + 1
            warnings.warn("careful")
            warnings.warn("old", DeprecationWarning, stacklevel=2)
            return y * 2
        ---
        def g():
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                r = run(T(3))
            return r, [(str(i.message), i.category, i.lineno) for i in w]
        g()
        g()
    """,
    ),
    "warn_catch_inside": (
        None,
        """
        import warnings
        def f(x):
            y = x + 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.warn("careful")
                y = y * 3
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warn_filters_around_operations": (
        2,  # one for each list of filters
        """
        import warnings
        def f(x):
            y = x + 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("ignore", message="care.*", category=UserWarning)
                y = y * 3
            with warnings.catch_warnings():
                warnings.resetwarnings()
                y = y.sin()
            return y * 2
        ---
        def g():
            before = list(warnings.filters)
            run(T(3))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="other.*")
                run(T(3))
                more = len(warnings.filters) - len(before)
            return run(T(3)), more, warnings.filters == before
        g()
        g()
    """,
    ),
    "warn_recorded_of_operations": (
        2,
        """
        import warnings
        def f(x):
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                y = torch.nn.functional.softmax(x + 1)
            return y * 2, len(w)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warn_record_inside": (
        None,
        """
        import warnings
        def f(x):
            y = x + 1
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                warnings.warn("careful %d" % y.shape[0])
                y = y * 3
            return y * 2, len(w), str(w[0].message), w[0].category
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warn_filter_inside": (
        None,
        """
        import warnings
        def f(x):
            y = x + 1
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="care.*")
                warnings.warn("careful")
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warn_error_inside": (
        None,
        """
        import warnings
        def f(x):
            y = x + 1
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    warnings.warn("careful")
                except UserWarning as e:
                    y = y + 5
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warn_format_fstring": (
        3,
        """
        import warnings
        def f(x):
            y = x + 1
            if y.shape[0] != 4:
                warnings.warn(f"unexpected {y.shape}", UserWarning)
            return y * 2
        ---
        run(T(3))
        run(T(4))
        run(T(5))
    """,
    ),
    "logger_adapter": (
        None,
        """
        import logging, io
        __buf = io.StringIO()
        __lg = logging.getLogger("probe.a1"); __h = logging.StreamHandler(__buf); __h.setFormatter(logging.Formatter("{levelname}:{message}:{funcName}", style="{")); __lg.handlers[:] = [__h]; __lg.setLevel(logging.INFO); __lg.propagate = False
        __ad = logging.LoggerAdapter(__lg, {"k": 1})
        def helper(x):
            __lg.warning("helper %d %s", x.shape[0], "q", stacklevel=2)
            return x + 1
        def f(x):
            __ad.info("adapter %s", x.shape)
            y = helper(x)
            __lg.info("percent %%")
            __lg.info("dict %(a)s", {"a": 1})
            __lg.info(y.shape)
            __lg.error("extra", extra={"z": 1})
            return y * 2
        ---
        run(T(3))
        __buf.getvalue()
        run(T(3))
        __buf.getvalue()
        __h.setFormatter(logging.Formatter("%(message)s"))
        run(T(3))
        __buf.getvalue()
        __h.addFilter(lambda r: "percent" in r.getMessage()); __n = None
        run(T(3))
        __buf.getvalue()
    """,
    ),
    "logger_raises_level": (
        1,
        """
        import logging, io
        __buf = io.StringIO()
        __lg = logging.getLogger("probe.a2"); __h = logging.StreamHandler(__buf); __lg.handlers[:] = [__h]; __lg.propagate = False
        def f(x):
            old = __lg.level
            __lg.setLevel(logging.ERROR)
            __lg.info("quiet")
            __lg.error("loud")
            __lg.setLevel(old)
            return x + 1
        ---
        __lg.setLevel(logging.INFO)
        run(T(3))
        __buf.getvalue()
        run(T(3))
        __buf.getvalue()
    """,
    ),
    "logger_handler_level": (
        1,
        """
        import logging, io
        __buf = io.StringIO()
        __lg = logging.getLogger("probe.a3"); __h = logging.StreamHandler(__buf); __h.setLevel(logging.ERROR); __lg.handlers[:] = [__h]; __lg.propagate = False; __lg.setLevel(logging.DEBUG)
        def f(x):
            __lg.info("quiet")
            __lg.error("loud")
            return x + 1
        ---
        run(T(3))
        __buf.getvalue()
        __h.setLevel(logging.DEBUG)
        run(T(3))
        __buf.getvalue()
    """,
    ),
    "log_then_raise": (
        1,
        """
        import logging, io
        __buf = io.StringIO()
        __lg = logging.getLogger("probe.a5"); __h = logging.StreamHandler(__buf); __lg.handlers[:] = [__h]; __lg.propagate = False; __lg.setLevel(logging.DEBUG)
        def f(x, n):
            y = x + 1
            __lg.info("before %d", n)
            if n > 3:
                __lg.error("too many: %d", n)
                raise ValueError(n)
            return y * 2
        ---
        run(T(3), 1)
        run(T(3), 4)
        run(T(3), 5)
        __buf.getvalue()
    """,
    ),
    "warning_before_other_filters": (
        2,
        """
        import warnings
        def f(x):
            warnings.warn("before")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = x + 1
                torch._dynamo.graph_break()
            return y * 2
        def watched(x):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                y = run(x)
            return y, [str(one.message) for one in found]
        ---
        watched(T(3))
        watched(T(3))
    """,
    ),
    "record_before_another_level": (
        2,
        """
        import logging, sys
        __logger = logging.getLogger("levels")
        __handler = logging.StreamHandler(sys.stdout)
        __logger.handlers, __logger.propagate = [__handler], False
        __logger.setLevel("INFO")
        def f(x):
            __logger.info("before")
            __handler.setLevel("ERROR")
            y = x + 1
            torch._dynamo.graph_break()
            __handler.setLevel("INFO")
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "record_under_another_level_of_the_parent": (
        1,
        """
        import logging, sys
        __parent, __logger = logging.getLogger("above"), logging.getLogger("above.it")
        __handler = logging.StreamHandler(sys.stdout)
        __parent.handlers, __parent.propagate = [__handler], False
        __parent.setLevel("INFO")
        def f(x):
            __parent.setLevel("ERROR")
            __logger.info("hidden")
            __parent.setLevel("INFO")
            __handler.setLevel("ERROR")
            __logger.info("hidden")
            __handler.setLevel("INFO")
            __logger.info("seen")
            return x + 1
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "warning_object_before_other_filters": (
        2,
        """
        import warnings
        class Coded(UserWarning):
            def __init__(self, code):
                super().__init__(code)
                self.code = code
            def __str__(self):
                return f"code {self.code}"
        def f(x):
            warnings.warn(Coded(3))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                y = x + 1
                torch._dynamo.graph_break()
            return y * 2
        def watched(x):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                y = run(x)
            return y, [str(one.message) for one in found]
        ---
        watched(T(3))
        watched(T(3))
    """,
    ),
}
