"""What models of libraries do beside tensor operations."""

PROGRAMS = {
    "lock_around_lazy_state": (
        2,
        """
        import threading
        lock, state = threading.Lock(), {}
        def f(x):
            if 'scale' not in state:
                with lock:
                    if 'scale' not in state:
                        state['scale'] = x.shape[0]
            return x * state['scale']
        ---
        run(T(3))
        run(T(3))
        lock.locked()
        state
        """,
    ),
    "lock_that_is_entered_twice": (
        1,
        """
        import threading
        lock, seen = threading.RLock(), []
        def g(x):
            with lock:
                seen.append('g')
                return x + 1
        def f(x):
            with lock:
                seen.append('f')
                y = g(x * 2)
            lock.acquire()
            lock.release()
            return y
        ---
        run(T(3))
        seen
        lock.acquire(blocking=False), lock.release()
        """,
    ),
    "lock_held_across_a_break": (
        2,
        """
        import threading, dynamo
        lock, seen = threading.Lock(), []
        def f(x, fail):
            with lock:
                seen.append(lock.locked())
                x = x + 1
                dynamo.graph_break()
                seen.append(lock.locked())
                y = x * 2
                if fail:
                    raise ValueError('inside')
            return y + 1
        ---
        run(T(3), False)
        lock.locked()
        seen
        run(T(3), True)
        lock.locked()
        seen
        """,
    ),
    "lock_and_an_exception": (
        1,
        """
        import threading
        lock = threading.Lock()
        def f(x):
            try:
                with lock:
                    x = x + 1
                    raise KeyError('k')
            except KeyError:
                return x * 2
        ---
        run(T(3))
        lock.locked()
        """,
    ),
    "gradients_of_what_the_frame_makes": (
        5,
        """
        def f(x, n):
            y = x[:, None] * 2
            if n == 0:
                y.requires_grad_()
            if n == 1:
                y.requires_grad = True
            if n == 2:
                y = torch.zeros_like(x).requires_grad_()
            if n == 3:
                y.requires_grad_(False)
            return y, (y * 3).requires_grad, y.is_leaf
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3, grad=True), 3)
        """,
    ),
    "numpy_of_python_numbers": (
        6,
        """
        def f(x, n):
            scale = -(np.log(float(n)) / (x.shape[0] - 1))
            y = x * scale + np.hypot(3.0, n)
            changed = np.log((1.0, n))
            changed += 1
            return y, changed, scale, type(scale), np.floor(2.5), np.divmod(7, n)
        ---
        run(T(3), 10)
        run(T(3), 10)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
        """,
    ),
    "gradient_of_an_argument": (
        2,  # of a tensor that requires no gradient, and of one that does
        """
        def f(x):
            x.requires_grad_()
            return (x * 2).sum()
        a = T(3)
        ---
        run(a)
        a.requires_grad
        run(a)
        """,
    ),
}
