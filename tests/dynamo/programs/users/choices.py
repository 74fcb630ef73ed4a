"""Numbers between which the graph chooses by the values of tensors (values/tensors/choice.py)."""

from tests.dynamo.programs import Family

FAMILY = Family(
    steps="""
for i in range(6): log.append(run(T(3) + i * 0.4))
for i in range(6): log.append(run(T(2, 3) + i * 0.4))
"""
)
PROGRAMS = {
    "extremes": (2, "", "def f(x): return x * max(0.25, x.mean()), x / min(x.sum(), 2), max(0.5, x.sum())"),
    "extreme_beside_a_number": (2, "", "def f(x): return x.sum() * max(0.25, x.mean())"),
    "extremes_in_order": (2, "", "def f(x): return max(x.sum() * math.nan, 1.0), max(1.0, x.sum() * math.nan)"),
    "of_numbers_read": (2, "", "def f(x): return x * max(0, min(1, x.sum().item())), max([0.5, x.mean().item()])"),
    "nan_or_infinite": (
        2,
        "",
        """
        def f(x):
            n = x.sum().item()
            if math.isnan(n) or math.isinf(n): x = x + 1
            return x * n
        """,
    ),
    "integers_chosen_by_floats": (
        2,
        "",
        """
        def f(x):
            v = x.sum().item()
            bad = 3 if v < 2.5 else 1
            if bad > 2: bad = bad + 2
            else: bad += 1
            again = 0 if bad > 2 else bad
            return x * bad, bad, again, -bad, bad // 2, bad * 2, bad / 2, max(again, 1)
        """,
    ),
    "best_so_far": (
        3,
        """
        s = {"best": math.inf, "n": 0, "total": 0.0}
        def f(x):
            a = x.sum().item()
            s["total"] += a
            if a < s["best"]:
                s["best"], s["n"] = a, 0
            else:
                s["n"] += 1
            return x * 2
        ---
        for i in range(8): log.append((run(T(3) - i % 3), dict(s)))
        """,
    ),
    "two_numbers": (
        2,
        "",
        """
        def f(x):
            if x.sum() > 0:
                r = 1
            else:
                r = 0.5
            return x * (1 - 0.1 * r), r, -r
        """,
    ),
    "number_from_outside": (
        2,
        "",
        """
        def f(x, n=2):
            if x.sum() > 1: n = n + 1
            return x * n
        """,
    ),
    "number_and_tensor": (
        2,
        "",
        """
        def f(x):
            total = x.sum()
            if total > 1:
                r = total / 3
            else:
                r = 1.5
            y = x + r
            y *= r
            return y - 0.5 * r, {"r": r}
        """,
    ),
    "one_of_two_conditions": (
        2,
        "",
        """
        def f(x):
            norm, total = x.norm(), x.sum()
            if total < 0 or norm < 2:
                r = 1
            else:
                r = norm / 2
            return x * (-0.3 * r), r
        """,
    ),
    "one_of_four": (
        2,
        "",
        """
        def f(x):
            if x.sum() > 3: r = 1.0
            elif x.sum() > 2: r = 0.5
            elif x.sum() > 1: r = 1.0
            else: r = 0.5
            return x / r
        """,
    ),
    "expression": (
        2,
        "",
        """
        def f(x):
            norm, total = x.norm(), x.sum()
            r = total / norm if (total > 0 and norm > 0) else 1.0
            return x.add_(x * r), [r]
        """,
    ),
    "predicate_is_written": (
        None,
        """
        def f(x):
            p = x.sum() > 0
            r = 1.0 if p else 0.5
            p.logical_not_()
            return x * r, p
        """,
    ),
    "tensor_is_written": (
        2,
        "",
        """
        def f(x):
            t = x.sum()
            m = max(0.5, t)
            t.add_(1)
            return x * m, m
        """,
    ),
    "narrow": (2, "", "def f(x): return x.bfloat16() * max(0.123456, x.mean()), x.half() / min(1.0, x.norm())"),
    "integers": (None, "def f(x): return x.long() * max(2, x.long().sum()), x * max(2, x.long().sum())"),
    "gradients": (
        1,
        """
        def f(x): return (x * max(0.1, x.sum())).sum()
        ---
        for i in range(4): x = (T(3) + i * 0.4).requires_grad_(); run(x).backward(); log.append(x.grad)
        """,
    ),
    "printed": (None, "def f(x):\n    r = max(0.1, x.sum())\n    print(r)\n    return x * r, f'{r:.2f}'"),
    "asked_for_the_type": (
        None,
        """
        def f(x):
            r = max(0.1, x.sum())
            if isinstance(r, float):
                return x + 1
            return x * r if r > 0.5 else x - r
        """,
    ),
}  # fmt: skip
PROGRAMS |= {
    # A counter or flag that is an input: compiled for each side.
    "counter": (
        4,
        "",
        """
        count = torch.tensor(0)
        def f(x):
            if count % 3 == 0:
                log.append("third")
            count.add_(1)
            return x + 1
        """,
    ),
    "flag": (
        4,
        "",
        """
        flag = torch.tensor(False)
        def f(x):
            if flag:
                log.append("set")
            return x * 2
        ---
        for i in range(4): flag.fill_(i == 2); run(T(3))
        for i in range(4): flag.logical_not_(); run(T(2, 3))
        """,
    ),
    "counter_that_is_written_before": (
        None,
        """
        count = torch.tensor(0)
        def f(x):
            count.add_(1)
            if count % 3 == 0:
                log.append("third")
            return x + count
        """,
    ),
    "averaged_model": (
        2,
        """
        from torch.optim.swa_utils import AveragedModel
        m = nn.Linear(3, 2)
        a = AveragedModel(m)
        def f(): a.update_parameters(m)
        ---
        for i in range(4): m.weight.data.add_(i); run()
        list(a.state_dict().values())
        """,
    ),
    "rounded_numbers": (
        2,
        """
        def f(x, scale):
            n = int(round(math.sqrt(scale)))
            return x[:n] * 2
        ---
        for i in range(8): run(T(9), 9.5 + 4.3 * i)
        """,
    ),
    "drawn_within_a_size": (
        None,
        """
        import random
        def f(x, n):
            i = random.randint(0, n)
            return x[i:i + 3] * 2
        ---
        for n in range(2, 6): run(T(12), n)
        """,
    ),
}  # fmt: skip
