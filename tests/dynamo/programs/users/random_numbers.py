"""Generators of random numbers of Python, numpy and torch, made inside and passed in."""

PROGRAMS = {
    "random_made_inside": (
        1,
        """
        import random
        def f(x):
            r = random.Random(3)
            y = x + 1
            y = y * r.random() + r.randint(1, 5)
            return y * 2, r.uniform(0, 1)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "random_made_inside_returned": (
        2,
        """
        import random
        def f(x, seed):
            r = random.Random(seed)
            return x * r.random(), r
        ---
        _, r = run(T(3), 4)
        r.random(), r.getstate()[1][:3]
        r = _ = None
        run(T(3), 5)[0]
    """,
    ),
    "random_choice_shuffle": (
        3,
        """
        import random
        def f(x, l):
            y = x + 1
            random.shuffle(l)
            c = random.choice([2, 3, 4])
            s = random.sample(range(10), 3)
            k = random.choices("ab", k=2)
            return y * c, l, s, k
        ---
        run(T(3), [1, 2, 3, 4])
        run(T(3), [1, 2, 3, 4])
    """,
    ),
    "random_passed": (
        1,
        """
        import random
        def f(x, r):
            y = x + 1
            return y * r.random() + r.gauss(0, 1), r.choice([1, 2])
        ---
        r = random.Random(4)
        run(T(3), r)
        run(T(3), r)
        r.random()
        r = None
    """,
    ),
    "random_branch": (
        3,
        """
        import random
        def f(x):
            y = x + 1
            if random.random() < 0.5:
                y = y * 3
            return y * 2
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
    """,
    ),
    "random_seed_state": (
        None,
        """
        import random
        def f(x):
            y = x + 1
            random.seed(5)
            a = random.random()
            s = random.getstate()
            b = random.random()
            random.setstate(s)
            c = random.random()
            return y * 2, a, b == c
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "generator_passed": (
        3,
        """
        def f(x, g):
            y = x + 1
            return y * torch.rand(3, generator=g) + torch.randn(3, generator=g)
        ---
        g = torch.Generator(); _ = g.manual_seed(3); _ = None
        run(T(3), g)
        run(T(3), g)
        g.initial_seed()
        torch.rand(2, generator=g)
        g = None
    """,
    ),
    "generator_made": (
        1,
        """
        def f(x):
            g = torch.Generator()
            g.manual_seed(5)
            y = x + torch.rand(3, generator=g)
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "generator_device": (
        3,
        """
        def f(x):
            g = torch.Generator(device=x.device).manual_seed(5)
            return x + torch.randn(x.shape, generator=g, device=x.device), torch.randint(0, 9, (2,), generator=g), torch.randperm(4, generator=g), torch.bernoulli(torch.full((3,), 0.5), generator=g), torch.multinomial(torch.ones(4), 2, generator=g), torch.normal(0.0, 1.0, (2,), generator=g)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "generator_inplace": (
        4,
        """
        def f(x, g):
            y = torch.empty(3).uniform_(generator=g) + torch.empty(3).normal_(0, 2, generator=g)
            y.exponential_(generator=g)
            return y + x
        ---
        g = torch.Generator(); _ = g.manual_seed(3); _ = None
        run(T(3), g)
        run(T(3), g)
        g = None
    """,
    ),
    "generator_attribute": (
        1,
        """
        class A(nn.Module):
            def __init__(self):
                super().__init__()
                self.g = torch.Generator()
                self.g.manual_seed(0)
            def forward(self, x):
                if self.training:
                    return x * torch.rand(x.shape, generator=self.g)
                return x
        m = A()
        f = m.forward
        ---
        run(T(3))
        run(T(3))
        m.eval() is m
        run(T(3))
        m.train() is m
        run(T(3))
    """,
    ),
    "manual_seed": (
        1,
        """
        def f(x):
            torch.manual_seed(3)
            y = x + torch.rand(3)
            return y * 2
        ---
        run(T(3))
        run(T(3))
        torch.rand(1)
    """,
    ),
    "manual_seed_middle": (
        1,
        """
        def f(x):
            y = x + torch.rand(3)
            torch.manual_seed(3)
            z = y + torch.rand(3)
            return z * 2
        ---
        run(T(3))
        run(T(3))
        torch.rand(1)
    """,
    ),
    "fork_rng": (
        1,
        """
        def f(x):
            y = x + torch.rand(3)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                y = y + torch.rand(3)
            return y + torch.rand(3)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "rng_state_of_training": (
        1,
        """
        def f(x):
            y = torch.nn.functional.dropout(x, 0.5)
            with torch.random.fork_rng():
                torch.manual_seed(3)
                y = y + torch.nn.functional.dropout(x * x, 0.5)
            return (y * torch.nn.functional.dropout(x, 0.5)).sum()
        ---
        x = T(8).requires_grad_()
        torch.autograd.grad(run(x), x)
        torch.autograd.grad(run(x), x)
        torch.rand(1)
        x = None
    """,
    ),
    "rng_state_passed": (
        2,
        """
        def f(x, state):
            y = x + torch.rand(3)
            torch.set_rng_state(state)
            return y * torch.rand(3), torch.get_rng_state()
        ---
        state = torch.Generator().manual_seed(4).get_state()
        y, state = run(T(3), state)
        run(y, state)[0]
        state = state[:9]
        run(y, state)
        torch.rand(1)
        state = torch.zeros(5056, dtype=torch.uint8)
        run(y, state)
        torch.rand(1)
        y = None
    """,
    ),
    "rng_state_of_a_block_that_raises": (
        1,
        """
        def f(x):
            try:
                with torch.random.fork_rng():
                    y = x + torch.rand(3)
                    raise ValueError("no")
            except ValueError:
                return y + torch.rand(3)
        ---
        run(T(3))
        run(T(3))
        torch.rand(1)
    """,
    ),
    "rng_state": (
        1,
        """
        def f(x):
            s = torch.get_rng_state()
            y = x + torch.rand(3)
            torch.set_rng_state(s)
            z = y - torch.rand(3)
            return z * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "initial_seed": (
        1,
        """
        def f(x):
            y = x + 1
            return y * 2, torch.initial_seed() >= 0
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "default_rng": (
        1,
        """
        def f(x):
            r = np.random.default_rng(3)
            y = x + torch.from_numpy(r.random(3)).float()
            return y * 2, r.integers(0, 5)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "default_rng_passed": (
        1,
        """
        def f(x, r):
            y = x + torch.from_numpy(r.standard_normal(3))
            return y * float(r.uniform())
        ---
        r = np.random.default_rng(3)
        run(T(3), r)
        run(T(3), r)
        r.random()
        r = None
    """,
    ),
    "np_random": (
        1,
        """
        np.random.seed(2)
        def f(x):
            y = x + torch.from_numpy(np.random.rand(3))
            z = np.random.randint(0, 5, size=3)
            c = np.random.choice(5, 2)
            np.random.seed(3)
            return y * 2, z, c, np.random.randn(2)
        ---
        run(T(3))
        run(T(3))
        np.random.rand()
    """,
    ),
    "np_random_state": (
        1,
        """
        def f(x):
            r = np.random.RandomState(3)
            return x + torch.from_numpy(r.rand(3)), r.randint(3)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "seed_first": (
        1,
        """
        def f(x, s):
            torch.manual_seed(s)
            y = x + torch.rand(3)
            return y * torch.randn(3)
        ---
        run(T(3), 3)
        torch.rand(1)
        run(T(3), 3)
        run(T(3), 4)
        torch.rand(2)
    """,
    ),
    "seed_after_work": (
        1,
        """
        def f(x):
            y = x * 2
            torch.manual_seed(3)
            g = torch.manual_seed(4)
            z = y + torch.rand(3)
            return z, g is torch.default_generator, nn.functional.dropout(z, 0.5)
        ---
        run(T(3))
        torch.rand(1)
        run(T(3))
    """,
    ),
    "seed_between_draws": (
        1,
        """
        def f(x):
            y = x * torch.rand(3)
            torch.manual_seed(3)
            return y + torch.rand(3)
        ---
        run(T(3))
        torch.rand(1)
        run(T(3))
    """,
    ),
    "seed_and_module": (
        1,
        """
        def f(x):
            torch.manual_seed(1)
            m = nn.Linear(3, 2)
            return m(x) + torch.rand(2)
        ---
        run(T(3))
        torch.rand(1)
        run(T(3))
    """,
    ),
    "rng_passed": (
        1,
        """
        def f(x, r):
            y = x + torch.from_numpy(r.standard_normal(3))
            z = torch.from_numpy(r.integers(0, 5, size=3))
            return y * r.uniform() + z, r.permutation(3), r.random((2, 2)), r.normal(size=2)
        ---
        __r = np.random.default_rng(3)
        run(T(3), __r)
        run(T(3), __r)
        __r.random()
        run(T(3), np.random.default_rng(4))
    """,
    ),
    "rng_made": (
        1,
        """
        def f(x):
            r = np.random.default_rng(3)
            s = np.random.RandomState(4)
            y = x + torch.from_numpy(r.random(3)) + torch.from_numpy(s.rand(3))
            return y * 2, s.randn(2), r.choice(5, 2)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "rng_attribute": (
        2,
        """
        class A:
            def __init__(self): self.r = np.random.default_rng(5)
            def noise(self, x): return x + torch.from_numpy(self.r.normal(0, 1, 3))
        def f(x, __a):
            return __a.noise(x) * 2
        ---
        __a = A()
        run(T(3), __a)
        run(T(3), __a)
        __a.r.random()
        __a.r = np.random.RandomState(1)
        run(T(3), __a)
    """,
    ),
    "rng_escapes": (
        1,
        """
        import numpy as np, random
        def f(x):
            r = np.random.default_rng(3)
            p = random.Random(4)
            y = x * r.uniform() + p.random()
            return y, r.random, r, p
        ---
        __q = run(T(3))
        __q[0], __q[1](), __q[2].random(), __q[3].random()
    """,
    ),
    "choice_numbers": (
        1,
        """
        import random
        def f(x, r):
            k = random.choice([2, 3, 4])
            s = random.choice((0.5, 1.5))
            return x * k + s, random.choice([1, 2.5, 'a']), r.choice([1, 2])
        ---
        __r = random.Random(3)
        run(T(3), __r)
        run(T(3), __r)
        random.random()
    """,
    ),
    "random_state_around": (
        1,
        """
        import random
        def f(x):
            r = random.Random(7)
            a = [r.randint(0, 9) for _ in range(3)]
            return x * a[0] + a[1] - a[2], r.random()
        ---
        run(T(3))
        random.random()
        run(T(3))
    """,
    ),
    "hash_seeded_choice": (
        3,
        """
        import random, numpy as np
        class Aug:
            def __init__(self): self.rng = random.Random(3); self.np = np.random.RandomState(5)
            def __call__(self, x):
                k = self.rng.uniform(0.5, 1.5)
                n = torch.from_numpy(self.np.normal(0, 1, 3)).float()
                x = x * k + n
                if self.rng.random() < 0.5:
                    x = x.flip(0)
                return x
        __aug = Aug()
        def f(x): return __aug(x) * 2
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
    """,
    ),
    "seeds_of_models": (
        2,
        """
        class M(nn.Module):
            def __init__(self): super().__init__(); self.seed = 5
            def forward(self, x):
                torch.manual_seed(self.seed)
                return x + torch.rand(3)
        m = M()
        def f(x):
            torch.manual_seed(7)
            y = torch.rand(3)
            return m(x) if x.ndim > 1 else x + y
        def g(x): return m(x)
        ---
        run(T(3))
        run(T(1, 3))
        torch.rand(2)
    """,
    ),
    "drawn_numbers_that_decide": (
        1,
        """
        def f(x, p):
            if torch.rand(1) >= p: return x * 2
            a = torch.empty(1).uniform_(0.1, 0.9).item()
            for _ in range(3):
                h = int(torch.randint(0, 10, size=(1,)).item())
                if h + torch.empty(1).uniform_(0, 3).item() > 11.5: return x + h
            if torch.randint(2, (1,)).item(): x = x + 1
            return x * a
        ---
        torch.manual_seed(3)
        [run(T(3), 0.7) for _ in range(12)]
        torch.rand(1)
    """,
    ),
    "drawn_order_of_steps": (
        2,
        """
        def f(x):
            for i in torch.randperm(4):
                if i == 0: x = x * float(torch.empty(1).uniform_(0.5, 1.5))
                elif i == 1: x = x + 1
            b = float(torch.empty(1).uniform_(0.5, 1.5)) if torch.rand(1) < 0.5 else None
            return x if b is None else x * b
        ---
        torch.manual_seed(3)
        [run(T(3)) for _ in range(6)]
        torch.rand(1)
    """,
    ),
    "drawn_numbers_that_live_on": (
        1,
        """
        def f(x):
            drawn = torch.rand(2, 2)
            with torch.no_grad(): drawn.mul_(2)
            if drawn.sum() > 2: drawn += 1
            return x * drawn[0, 0], drawn
        ---
        torch.manual_seed(3)
        [run(T(3)) for _ in range(6)]
    """,
    ),
    "drawn_tensors_of_many_numbers": (
        3,
        """
        def f(x):
            drawn = torch.rand(20)
            return x + 1 if drawn.max().item() > 0.9 else [x - 1]
        ---
        torch.manual_seed(3)
        [run(T(3)) for _ in range(4)]
    """,
    ),
    "drawn_numbers_in_a_list": (
        2,
        """
        def draw(a, b): return torch.empty(1).uniform_(a, b).item()
        def f(x):
            pair = torch.rand(2)
            low = float(pair[0])
            drawn = []
            for i in range(3):
                drawn.append(draw(low, 1 + i) if torch.rand(1) < 0.5 else draw(low * pair[1], 2))
            print(len(drawn))
            return x * drawn[0] + drawn[2]
        ---
        torch.manual_seed(3)
        [run(T(3)) for _ in range(6)]
        torch.rand(1)
    """,
    ),
    "draws_of_which_only_the_shape_is_read": (
        1,
        """
        import torch.distributions as D
        def f(x):
            shapes = [D.Dirichlet(x).rsample().shape, D.Beta(2.0, x).rsample().shape]
            shapes += [torch._standard_gamma(x).shape, torch._sample_dirichlet(x).shape]
            return shapes, torch.rand(2)
        ---
        torch.manual_seed(3)
        run(torch.ones(4, 3))
        torch.rand(1)
    """,
    ),
    "recurrent_layers_of_which_only_the_shape_is_read": (
        1,
        """
        lstm, gru = nn.LSTM(3, 3, 2, dropout=0.5), nn.GRU(3, 3, 2, dropout=0.5)
        def f(x): return lstm(x)[0].shape, gru(x)[0].shape, torch.rand(2)
        ---
        torch.manual_seed(3)
        run(torch.ones(4, 2, 3))
        torch.rand(1)
    """,
    ),
}
