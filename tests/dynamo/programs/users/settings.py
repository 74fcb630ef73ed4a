"""Settings of torch and numpy, read and written."""

from tests.dynamo.differential import SOME

PROGRAMS = {
    "backends_read": (
        2,
        """
        def f(x):
            y = x + 1
            if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
                y = y * 3
            a = torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.is_built(), torch.backends.mps.is_available(), torch.backends.openmp.is_available(), torch.cuda.is_available(), torch.cuda.device_count(), torch.backends.opt_einsum.enabled
            return y * 2, a
        ---
        run(T(3))
        run(T(3))
        if True:  # a step restores what it changes
            torch.backends.cuda.matmul.allow_tf32 = True
            log.append(run(T(3)))
            torch.backends.cuda.matmul.allow_tf32 = False
            log.append(run(T(3)))
    """,
    ),
    "backends_written": (
        1,
        """
        def f(x):
            y = x + 1
            old = torch.backends.cudnn.benchmark
            torch.backends.cudnn.benchmark = True
            a = torch.backends.cudnn.benchmark
            y = y * 3
            torch.backends.cudnn.benchmark = old
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32
            return y * 2, a, torch.backends.cudnn.benchmark
        ---
        run(T(3))
        torch.backends.cudnn.benchmark
        run(T(3))
    """,
    ),
    "cudnn_flags": (
        1,
        """
        def f(x):
            y = x + 1
            with torch.backends.cudnn.flags(enabled=False):
                y = y * 3
                a = torch.backends.cudnn.enabled
            return y * 2, a, torch.backends.cudnn.enabled
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "mkldnn_flags": (
        1,
        """
        def f(x):
            with torch.backends.mkldnn.flags(enabled=False):
                y = x @ x
            return y * 2
        ---
        run(T(3, 3))
        run(T(3, 3))
    """,
    ),
    "matmul_precision": (
        2,
        """
        def f(x):
            p = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            y = x @ x
            q = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(p)
            return y * 2, p, q
        ---
        run(T(3, 3))
        torch.get_float32_matmul_precision()
        run(T(3, 3))
    """,
    ),
    "deterministic": (
        1,
        """
        def f(x):
            a = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True)
            y = x + 1
            b = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
            torch.use_deterministic_algorithms(a)
            return y * 2, a, b
        ---
        run(T(3, 3))
        torch.are_deterministic_algorithms_enabled()
        run(T(3, 3))
    """,
    ),
    "default_dtype": (
        1,
        """
        def f(x):
            d = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            y = torch.ones(3) + x
            torch.set_default_dtype(d)
            return y * torch.ones(3)
        ---
        run(T(3))
        torch.get_default_dtype()
        run(T(3))
    """,
    ),
    "default_device": (
        1,
        """
        def f(x):
            torch.set_default_device("meta")
            y = torch.ones(3)
            torch.set_default_device(None)
            return x * torch.ones(3), y.device, torch.get_default_device()
        ---
        run(T(3))
        torch.get_default_device()
        run(T(3))
    """,
    ),
    "num_threads": (
        1,
        """
        def f(x):
            n = torch.get_num_threads()
            y = x + n
            torch.set_num_threads(n)
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "grad_enabled_set": (
        1,
        """
        def f(x):
            p = torch.is_grad_enabled()
            torch.set_grad_enabled(False)
            y = x * 2
            torch.set_grad_enabled(p)
            return y, x * 3, torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        ---
        run(T(3, grad=True))
        run(T(3, grad=True))
    """,
    ),
    "anomaly": (
        2,
        """
        def f(x):
            with torch.autograd.set_detect_anomaly(True):
                y = x * 2
            return y * 3, torch.is_anomaly_enabled()
        ---
        run(T(3, grad=True))
        run(T(3, grad=True))
    """,
    ),
    "sdp_kernel": (
        1,
        """
        from torch.nn.attention import sdpa_kernel, SDPBackend
        def f(x):
            with sdpa_kernel(SDPBackend.MATH):
                y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return y * 2, torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()
        ---
        run(T(1, 2, 3, 4))
        run(T(1, 2, 3, 4))
    """,
    ),
    "printoptions_in_a_with": (
        1,
        """
        def f(x):
            before = torch._tensor_str.get_printoptions()
            with torch._tensor_str.printoptions(precision=1, sci_mode=False):
                inside = torch._tensor_str.get_printoptions()
                y = x * 2
            return y + 1, before, inside
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "printoptions_of_texts": (
        SOME,
        """
        def f(x):
            y = x * 1.23456
            before = str(y)
            print(y)
            torch.set_printoptions(precision=2)
            inside = f"{y}"
            print(y)
            y = y + 1
            torch._dynamo.graph_break()
            later = repr(y)
            torch.set_printoptions(profile="default")
            print(y)
            return y * 2, before, inside, later
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "comptime": (
        1,
        """
        from torch._dynamo.comptime import comptime as __comptime
        def f(x):
            y = x + 1
            __comptime.print("printed")
            __comptime.print_graph()
            __comptime.print_locals()
            __comptime(lambda context: 1 / 0, lambda: log.append("called"))
            return __comptime.print_value_stack_and_return(y * 2)
        ---
        run(T(3))
        run(T(3))
        log
    """,
    ),
    "printoptions": (
        1,
        """
        def f(x):
            torch.set_printoptions(precision=3)
            y = x * 2
            torch.set_printoptions(profile="default")
            return y + 1
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "np_errstate": (
        1,
        """
        def f(x):
            a = x.numpy()
            with np.errstate(divide="ignore"):
                b = a / 2
            return torch.from_numpy(b) + 1, np.geterr()["divide"]
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "default_dtype_set": (
        1,
        """
        def f(x):
            d = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            y = torch.ones(3) + x
            torch.set_default_dtype(d)
            return y * torch.ones(3), torch.tensor([1.5]), torch.get_default_dtype()
        ---
        run(T(3))
        torch.get_default_dtype()
        run(T(3))
        torch.set_default_dtype(torch.float64)
        run(T(3))
        torch.set_default_dtype(torch.float32)
    """,
    ),
    "default_dtype_left": (
        2,
        """
        def f(x, d):
            torch.set_default_dtype(d)
            return torch.ones(3) + x, torch.arange(3.0), 1.5 * torch.arange(2)
        ---
        run(T(3), torch.float64)
        torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        run(T(3), torch.float64)
        torch.get_default_dtype()
        run(T(3), torch.float32)
        torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
    """,
    ),
    "default_dtype_manager": (
        1,
        """
        @contextlib.contextmanager
        def dtype(d):
            old = torch.get_default_dtype()
            torch.set_default_dtype(d)
            try: yield
            finally: torch.set_default_dtype(old)
        def f(x):
            with dtype(torch.float64):
                y = torch.zeros(2) + 1
                print(y.sum().item())
                z = torch.zeros(2) + y
            return z + torch.zeros(2), x
        ---
        run(T(3))
        torch.get_default_dtype()
        run(T(3))
    """,
    ),
    "default_dtype_training": (
        1,
        """
        m = nn.Linear(3, 3).double()
        def f(x):
            y = x.sin() * 2
            torch.set_default_dtype(torch.float64)
            try:
                z = m(torch.ones(2, 3) * y) + torch.arange(3) / 2 + torch.tensor(1.5)
            finally:
                torch.set_default_dtype(torch.float32)
            return (z * torch.ones(3)).sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        run(x).backward()
    """,
    ),
    "default_dtype_of_quotients": (
        1,
        """
        def f(x):
            torch.set_default_dtype(torch.float64)
            return x + torch.ones(3), torch.arange(3) / 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "default_dtype_raised": (
        1,
        """
        def f(x, n):
            torch.set_default_dtype(torch.float64)
            if n > 2: raise ValueError("no")
            torch.set_default_dtype(torch.float32)
            return x + torch.ones(3)
        ---
        run(T(3), 1)
        run(T(3), 3)
        torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
    """,
    ),
    "cudnn_flags_all": (
        2,
        """
        def f(x):
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True, allow_tf32=True):
                y = x.sin()
                a = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
            return y + 1, a, torch.backends.cudnn.deterministic
        def deterministic(x):
            torch.backends.cudnn.deterministic = True
            return run(x)
        ---
        torch.backends.cudnn.deterministic = False
        run(T(3))
        deterministic(T(3))
        run(T(3))
    """,
    ),
    "threads_as_they_are": (
        1,
        """
        def f(x):
            n = torch.get_num_threads()
            y = x.sin()
            torch.set_num_threads(n)
            return y + 1
        ---
        run(T(3))
        run(T(3))
    """,
    ),
}
