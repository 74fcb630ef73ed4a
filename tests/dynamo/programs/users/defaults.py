"""The default device, deterministic algorithms and numpy's floating-point errors, changed by the program."""

PROGRAMS = {
    "device_changed": (
        1,
        """
        def f(x):
            torch.set_default_device("meta")
            y, z = torch.ones(3), torch.arange(2.0)
            d = torch.get_default_device()
            torch.set_default_device(None)
            return x * torch.ones(3), y.device, z.device, d, torch.get_default_device()
        ---
        run(T(3))
        torch.get_default_device()
        run(T(3))
    """,
    ),
    "device_left": (
        1,
        """
        def f(x):
            torch.set_default_device("meta")
            return x + 1, torch.ones(3).device
        ---
        run(T(3))
        torch.get_default_device(), torch.ones(2).device
        torch.set_default_device(None)
    """,
    ),
    "device_over_a_break": (
        2,
        """
        def f(x):
            torch.set_default_device("meta")
            y = torch.ones(3)
            print(len([]), end="")
            torch._dynamo.graph_break()
            z = x.sum().item(), torch.ones(2).device
            d = torch.get_default_device()
            torch.set_default_device(None)
            return x * torch.ones(3), y.device, z, d
        ---
        run(T(3))
        torch.get_default_device()
        run(T(3))
    """,
    ),
    "device_from_outside": (
        1,
        """
        def f(x):
            torch.set_default_device("cpu")
            return x * torch.ones(3), torch.zeros(2).device
        ---
        run(T(3))
        torch.set_default_device("meta")
        run(torch.ones(3, device="cpu"))
        torch.get_default_device()
        torch.set_default_device(None)
        run(T(3))
        torch.set_default_device(None)
    """,
    ),
    "device_under_a_region": (
        1,
        """
        def f(x):
            with torch.device("meta"):
                a = torch.ones(2).device
                torch.set_default_device("cpu")
                b = torch.ones(2).device
            c = torch.ones(2).device
            torch.set_default_device(None)
            return x + 1, a, b, c, torch.get_default_device()
        ---
        run(T(3))
        torch.get_default_device()
        run(T(3))
    """,
    ),
    "device_of_a_module": (
        1,
        """
        m = nn.Linear(3, 3)
        def f(x):
            torch.set_default_device("cpu")
            try:
                return m(x) + torch.zeros(3)
            finally:
                torch.set_default_device(None)
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        x.grad, m.weight.grad
    """,
    ),
    "device_that_is_none": (
        None,
        """
        def f(x):
            y = x + 1
            torch.set_default_device("nowhere")
            return y
        ---
        run(T(3))
        torch.get_default_device()
    """,
    ),
    "deterministic_changed": (
        1,
        """
        def f(x):
            old = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True, warn_only=True)
            y = x.sin() + 1
            now = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
            torch.use_deterministic_algorithms(old)
            return y * 2, old, now, torch.are_deterministic_algorithms_enabled()
        ---
        run(T(3))
        torch.are_deterministic_algorithms_enabled()
        run(T(3))
    """,
    ),
    "deterministic_left": (
        1,
        """
        def f(x):
            torch.use_deterministic_algorithms(True)
            return x + 1, torch.are_deterministic_algorithms_enabled()
        ---
        run(T(3))
        torch.are_deterministic_algorithms_enabled()
        run(T(3))
        torch.use_deterministic_algorithms(False)
        run(T(3))
        torch.use_deterministic_algorithms(False)
    """,
    ),
    "deterministic_over_a_break": (
        2,
        """
        def f(x):
            torch.use_deterministic_algorithms(True)
            y = x + 1
            torch._dynamo.graph_break()
            a = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(False)
            return y * 2, a
        ---
        run(T(3))
        torch.are_deterministic_algorithms_enabled()
        run(T(3))
    """,
    ),
    "deterministic_raised": (
        None,
        """
        def f(x, n):
            torch.use_deterministic_algorithms(True)
            y = x + 1
            if n > 2: raise ValueError("no")
            torch.use_deterministic_algorithms(False)
            return y
        ---
        run(T(3), 1)
        run(T(3), 3)
        torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
    """,
    ),
    "errors_ignored": (
        1,
        """
        def f(x):
            a = x.numpy() - 1
            with np.errstate(all="ignore"):
                b = np.sqrt(a * a) / 2
                inside = np.geterr()
            return torch.from_numpy(b) + 1, inside, np.geterr()["divide"]
        ---
        run(T(3))
        np.geterr()
        run(T(3))
    """,
    ),
    "errors_over_a_break": (
        2,
        """
        def f(x):
            a = x.numpy() + 3
            with np.errstate(divide="ignore", invalid="ignore"):
                b = a / 2
                torch._dynamo.graph_break()
                c = b * 2
                inside = np.geterr()["divide"]
            return torch.from_numpy(c) + 1, inside, np.geterr()
        ---
        run(T(3))
        np.geterr()
        run(T(3))
    """,
    ),
    "errors_and_exceptions": (
        1,
        """
        def f(x):
            try:
                with np.errstate(all="ignore"):
                    a = x.numpy() / 2
                    raise ValueError("inside")
            except ValueError as error:
                text = str(error)
            return torch.from_numpy(a) * 2, np.geterr()["over"], text
        ---
        run(T(3))
        np.geterr()
    """,
    ),
    "errors_set_and_restored": (
        1,
        """
        def f(x):
            old = np.seterr(all="ignore", under="warn")
            b = x.numpy() / 2
            now = np.geterr()
            np.seterr(**old)
            return torch.from_numpy(b) + 1, old, now
        ---
        run(T(3))
        np.geterr()
        run(T(3))
    """,
    ),
    "errors_left": (
        1,
        """
        def f(x):
            np.seterr(divide="ignore")
            return x + 1, np.geterr()["divide"]
        ---
        run(T(3))
        np.geterr()
        run(T(3))
        old = np.seterr(divide="warn")
        run(T(3))
        old = np.seterr(divide="warn")
    """,
    ),
    "errors_that_raise": (
        None,
        """
        def f(x):
            y = x.sin()
            with np.errstate(divide="raise"):
                b = np.array([1.0, 2.0]) / y.numpy()[:2]
            return torch.from_numpy(b) + 1
        ---
        run(T(3))
        run(torch.zeros(3))
        np.geterr()
    """,
    ),
    "errors_with_a_bad_kind": (
        None,
        """
        def f(x):
            y = x + 1
            with np.errstate(divide="sometimes"):
                return y * 2
        ---
        run(T(3))
        np.geterr()
    """,
    ),
    "errors_in_a_callee": (
        1,
        """
        @contextlib.contextmanager
        def quiet():
            with np.errstate(all="ignore"):
                yield
        def ratio(a, b):
            with quiet():
                return a / b
        def f(x):
            a = x.numpy()
            return torch.from_numpy(ratio(a, a + 5)) * 2
        ---
        run(T(3))
        np.geterr()
    """,
    ),
}
