"""Dates and times, Decimal and Fraction: what is read of them, what varies, which object is which."""

from tests.dynamo.programs import ONE, Family

_PRELUDE = """
import copy, datetime, decimal
from datetime import date, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
def failed(*calls):
    for call in calls:
        try:
            call()
        except Exception as error:
            yield type(error).__name__, str(error)
"""
FAMILY = Family(backends=ONE, prelude=_PRELUDE)
PROGRAMS = {
    "datetime_methods": (
        1,
        """
        def f(x):
            d = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
            e = d + timedelta(days=1, hours=2)
            log.append((d, e, e - d, d.date(), d.timetz(), d.replace(year=2021), d.isoformat()))
            log.append((d.weekday(), d.strftime("%Y %j"), d.timestamp(), str(d.utcoffset()), d < e))
            log.append((d.tzinfo is timezone.utc, hash(d) == hash(d), str(d), repr(e), f"{d:%H}"))
            log.append((d.isocalendar(), [*d.isocalendar()], d.timetuple().tm_yday, d.isocalendar()[1]))
            log.append((d.astimezone(timezone.utc)))
            log.append((datetime.datetime.strptime("2020", "%Y"), date.fromisoformat("2020-02-03")))
            log.append((max(d, e), sorted([e, d]), d in [d], {d: 1}[d], isinstance(d, date)))
            log.append((datetime.datetime.min, datetime.datetime.combine(d.date(), d.time())))
            log.append(str(timezone(timedelta(hours=2), "X").utcoffset(None)))
            return x * e.day
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "calendar_weeks": (
        1,
        """
        def f(x, d):
            c, e = d.isocalendar(), date(2020, 1, 9).isocalendar()
            log.append((c, {c: type(c).__name__}, e, copy.copy(e), copy.deepcopy(c)))
            return x + 1, c.week
        ---
        run(T(3), date(2020, 1, 2))
        log[0][0].year, log[0][2].week
    """,
    ),
    "timedelta_arithmetic": (
        1,
        """
        def f(x, t):
            s = timedelta(seconds=7)
            log.append((t * 2, 2 * t, t / 2, t // s, t % s, divmod(t, s), -t, abs(-t), bool(t)))
            log.append((t.seconds, str(t), timedelta.max, t.resolution, sum([t, s], timedelta())))
            log.append(list(failed(lambda: t + 1, lambda: t < 3, lambda: s / 0, lambda: s.zzz)))
            return x * t.total_seconds() if t > s else x
        ---
        run(T(3), timedelta(seconds=90))
        run(T(3), timedelta(seconds=90))
    """,
    ),
    "dates_that_fail": (
        1,
        """
        def f(x):
            d = datetime.datetime(2020, 1, 2, tzinfo=timezone.utc)
            naive = datetime.datetime(2020, 1, 2)
            log.append(list(failed(
                lambda: date(2020, 13, 1), lambda: d < naive, lambda: d - naive, lambda: d + 1,
                lambda: d.replace(month=99), lambda: -d, lambda: d[0], lambda: len(d),
                lambda: datetime.datetime.strptime("a", "%Y"), lambda: timedelta("a"))))
            return x + d.day
        ---
        run(T(3))
    """,
    ),
    "one_object_stays_one": (
        1,
        """
        def f(x, d):
            e = d + timedelta(days=1)
            made = [e, e, timedelta(1)]
            return x + 1, d, made, made[0] is made[1], e is d, d is not None
        ---
        __d = date(2020, 1, 1)
        __r = run(T(3), __d)
        __r, __r[1] is __d, __r[2][0] is __r[2][1]
        __d = date(2020, 1, 2)
        __r = run(T(3), __d)
        __r, __r[1] is __d, __r[2][0] is __r[2][1]
    """,
    ),
    "not_looked_at_not_compiled_again": (
        1,
        """
        def f(x, d):
            log.append(d)
            return x + 1, {"at": d, "next": d + timedelta(days=1)}
        ---
        [run(T(3), date(2020, 1, k)) for k in range(1, 6)]
    """,
    ),
    "numbers_read_vary": (
        2,
        """
        def f(x, d):
            e = d + timedelta(days=1)
            return x * d.day + (e - d).total_seconds(), e.month == 1
        ---
        [run(T(3), date(2020, 1, k)) for k in range(1, 12)]
    """,
    ),
    "texts_that_vary": (
        2,
        """
        def f(x, d):
            log.append(d.isoformat())
            log.append(str(d))
            log.append(f"{d:%d.%m.}")
            log.append(d.isoformat().replace("-", "/")[2:])
            return x + 1
        ---
        [run(T(3), date(2020, 1, k)) for k in range(1, 12)]
    """,
    ),
    "two_that_vary": (
        None,
        """
        def f(x, d, e):
            return x * (d - e).days, d > e
        ---
        [run(T(3), date(2020, 1, k), date(2020, 2, k % 3 + 1)) for k in range(1, 12)]
    """,
    ),
    "keys_and_settings": (
        None,
        """
        table = {date(2020, 1, 1): 3, "step": timedelta(1)}
        def f(x, d):
            return x * table[date(2020, 1, 1)] + table["step"].days, d in table
        ---
        run(T(3), date(2020, 1, 1))
        table[date(2020, 1, 1)] = 4
        run(T(3), date(2020, 1, 1))
        table["step"] = timedelta(2)
        run(T(3), date(2020, 1, 3))
    """,
    ),
    "clock_read_first": (
        1,
        """
        def f(x):
            now = datetime.datetime.now(timezone.utc)
            later = now + timedelta(days=1)
            __seen.append((now, later, now.isoformat(), (later - now).total_seconds()))
            return x * 2
        __seen = []
        ---
        run(T(3))
        run(T(3))
        [s[1] - s[0] == timedelta(1) and s[2] == s[0].isoformat() for s in __seen]
        __seen[0][0] < __seen[1][0]
    """,
    ),
    "time_zones_of_the_program": (
        None,
        """
        class Zone(datetime.tzinfo):
            def utcoffset(self, d):
                log.append("asked")
                return timedelta(hours=1)
            def dst(self, d): return None
        zoned = datetime.datetime(2020, 1, 1, tzinfo=Zone())
        def f(x, d):
            return x + 1, d.isoformat(), d.utcoffset(), d.replace(tzinfo=None)
        ---
        run(T(3), zoned)
        run(T(3), datetime.datetime(2020, 1, 1, tzinfo=timezone.utc))
        run(T(3), datetime.datetime(2020, 1, 1))
        run(T(3), zoned)
    """,
    ),
    "decimal_arithmetic": (
        1,
        """
        def f(x):
            d = Decimal("1.10")
            e = d * 3 + Decimal(2)
            log.append((d, e, d / 3, -d, abs(d), d ** 2, d // 1, d % 1, divmod(d, 1), round(d, 1)))
            log.append((round(d), int(d), float(d), str(d), repr(d), f"{d:.3f}", d.as_tuple()))
            log.append((d.quantize(Decimal("0.1"), rounding=decimal.ROUND_UP), d.sqrt(), 3 - d))
            log.append((d == Decimal("1.1"), d < 2, hash(d) == hash(Decimal("1.1")), d.is_nan()))
            log.append((max(d, e), sum([d, e]), Decimal.from_float(0.5), Decimal((0, (1, 2), -1))))
            return x * float(e)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "decimal_context": (
        None,
        """
        def f(x):
            third = Decimal(1) / Decimal(3)
            return x * float(third), third
        def flags(precision):
            context = decimal.getcontext()
            context.prec = precision
            context.clear_flags()
            made = f(T(3))
            return made, context.flags[decimal.Inexact], context.flags[decimal.Clamped]
        ---
        flags(28)
        flags(28)
        flags(2)
        flags(28)
    """,
    ),
    "decimal_traps": (
        None,
        """
        def f(x, d):
            log.extend(failed(lambda: d / 0, lambda: Decimal("x"), lambda: d + 1.5))
            return x + int(d)
        ---
        run(T(3), Decimal(1))
        with decimal.localcontext() as c: c.traps[decimal.DivisionByZero] = False; run(T(3), Decimal(1))
    """,
    ),
    "decimals_and_fractions_vary": (
        2,
        """
        def f(x, d, r):
            return x * float(d * 2) + float(r + Fraction(1, 3)), d * 2 + 1, r ** 2, r.denominator
        ---
        [run(T(3), Decimal(k) / 4, Fraction(2 * k + 1, 4)) for k in range(1, 12)]
    """,
    ),
    "fraction_methods": (
        1,
        """
        def f(x, r):
            s = Fraction(1, 3) + Fraction("0.5")
            log.append((s, s.limit_denominator(3), r + s, r - 1, 2 * r, r / s, r ** 2, -r, abs(r)))
            log.append((round(r), round(r, 1), int(r), float(r), str(r), repr(r), r == 0.75, r < 1))
            log.append((hash(r) == hash(Fraction(3, 4)), bool(r), math.floor(r), divmod(r, s)))
            log.append((r.as_integer_ratio(), Fraction.from_float(0.5), {r: 1}[Fraction(3, 4)]))
            log.append(list(failed(lambda: Fraction(1, 0), lambda: r / 0, lambda: r + "a")))
            return x * float(s) - r.numerator
        ---
        run(T(3), Fraction(3, 4))
        run(T(3), Fraction(3, 4))
    """,
    ),
    "class_methods_of_one_name": (
        1,
        """
        def f(x):
            log.append((date.fromtimestamp(86400), datetime.datetime.fromtimestamp(86400)))
            log.append((date.fromisoformat("2020-01-01"), datetime.time.fromisoformat("04:05")))
            log.append((datetime.datetime.fromordinal(9), date.fromordinal(9)))
            log.append(datetime.datetime.fromtimestamp(3, tz=timezone.utc))
            return x + 1
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "long_chains": (
        None,
        """
        def f(x, d, n):
            e = d
            for i in range(24):
                e = e + timedelta(days=1) if i % 2 else e + (e - d)
                n = (n + n / 3).quantize(Decimal("0.01"))
            return x * e.year, e, n
        ---
        [run(T(3), date(2020, 1, k), Decimal(k)) for k in (1, 2, 3)]
    """,
    ),
    "operations_that_fail_later": (
        None,
        """
        def f(x, a):
            return x * (timedelta(1) / a)
        ---
        run(T(3), timedelta(1))
        run(T(3), timedelta(2))
        run(T(3), timedelta(0))
        run(T(3), 2)
        run(T(3), None)
        run(T(3), timedelta(3))
    """,
    ),
    "copies_in_settings": (
        1,
        """
        import copy
        settings = {"at": date(2020, 1, 1), "rate": Decimal("0.5"), "n": [timedelta(1)]}
        settings["again"] = settings["at"]
        def f(x):
            made, shallow = copy.deepcopy(settings), copy.copy(settings["at"])
            same = [made[k] is settings[k] for k in settings], made["at"] is made["again"]
            return x * float(made["rate"]), made, same, shallow, shallow is settings["at"]
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "attributes_written": (
        2,
        """
        class Run: pass
        state = Run()
        state.at = datetime.datetime(2020, 1, 1)
        def f(x):
            state.at = state.at + timedelta(hours=1)
            state.both = [state.at, state.at]
            return x * state.at.hour, state.both[0] is state.at
        ---
        [run(T(3)) for _ in range(5)]
        state.at, state.both[0] is state.both[1] is state.at
    """,
    ),
    "read_across_a_break": (
        None,
        """
        def days(d, n):
            for i in range(n):
                yield d + timedelta(days=i)
        def f(x, d):
            e = d + timedelta(days=1)
            y = sum(x * one.day for one in days(d, 3))
            print(float(y.sum()))
            return y + e.day, e, e - d, [f"{one:%d}" for one in days(e, 2)]
        ---
        [run(T(3), date(2020, 1, k)) for k in range(1, 5)]
    """,
    ),
    "compared_and_looked_up": (
        None,
        """
        def f(x, a, b):
            found = [{a: 1, b: 2}, len({a, b}), [a, b].index(b), min(a, b), (a, 1) < (b, 2), a == b]
            match a:
                case date(year=year):
                    x = x * year
            return x, found, isinstance(a, datetime.datetime), a in (b,), [a] == [b]
        ---
        [run(T(3), date(2020, 1, k), date(2020, 1, j)) for k, j in ((1, 2), (1, 2), (2, 1), (3, 3))]
    """,
    ),
    "fraction_with_others": (
        None,
        """
        class Half(Fraction): pass
        class Odd:
            def __radd__(self, other): return "r", other
        def f(x, r):
            log.append((r + Odd(), r + Half(1, 2), Half(1, 2) + r, r + 0.5, 2 ** r, r + 1j))
            log.append((Fraction(r) is r, r.__add__("z") is NotImplemented, r == Half(1, 2)))
            log.append(list(failed(lambda: r * x)))
            return x * float(r)
        ---
        [run(T(3), Fraction(k, 4)) for k in (1, 3, 2)]
    """,
    ),
}
