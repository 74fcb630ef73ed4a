"""Numbers between which the graph chooses by the values of tensors (values/choice.py)."""

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
        None,
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
