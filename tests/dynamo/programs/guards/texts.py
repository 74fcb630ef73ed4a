"""Texts of objects that give their address, where classes and objects change between calls."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "address_changed_class": (
        None,
        """
        class P: pass
        class Q: pass
        def f(x, p):
            return x + 1, repr(p)
        def right(p):
            return run(T(3), p)[1] == repr(p)
        def renames(name): P.__qualname__ = name
        def says(self): return "mine"
        ---
        p, q = P(), Q()
        right(p), right(q), right(p)
        renames("Other")
        right(p), right(P())
        P.__module__ = "elsewhere"
        right(p)
        P.__str__ = says
        right(p)
        P.__repr__ = says
        right(p)
        run(T(3), p)[1]
        p = q = None
    """,
    ),
    "address_asked": (
        None,
        """
        class P: pass
        def f(x, p, known):
            text = repr(p)
            if text in known: return x + 1, len(text) > 5
            return x - 1, text == repr(p), hash(text) == hash(repr(p)), {text: 1}[repr(p)]
        ---
        p, q = P(), P()
        run(T(3), p, {repr(p)})
        run(T(3), q, {repr(p)})
        run(T(3), q, {repr(q)})
        run(T(3), p, {repr(q)})
        p = q = None
    """,
    ),
    "address_of_a_written_object": (
        None,
        """
        class P: pass
        class Q: pass
        def f(x, p, cls):
            before = repr(p)
            p.k = 3
            p.__class__ = cls
            return x + 1, before, repr(p)
        def right(p, cls):
            was = repr(p)
            return run(T(3), p, cls)[1:] == (was, repr(p))
        ---
        right(P(), Q)
        right(Q(), P)
        p = P()
        right(p, P), right(p, P)
        p = None
    """,
    ),
    "address_of_a_class_renamed_inside": (
        None,
        """
        class P: pass
        def f(x, p, name):
            before = repr(p)
            P.__qualname__ = name
            return x + 1, before, repr(p)
        def right(p, name):
            was = repr(p)
            return run(T(3), p, name)[1:] == (was, repr(p))
        ---
        right(P(), "A")
        right(P(), "B")
        right(P(), "B")
    """,
    ),
    "text_of_text_refused": (
        None,
        """
        def f(x, n, how):
            t = f"n={n} of {x.size(0)}"
            try: return x + 1, how(t)
            except Exception as e: return x - 1, type(e).__name__, str(e)
        import re
        ---
        for how in (lambda t: t.ljust("a"), lambda t: t[::0], lambda t: t[100], lambda t: t.replace("n"), lambda t: re.sub("(n)", "[2]", t), lambda t: re.sub("(", "", t), lambda t: t.center(5, "ab"), lambda t: t.lower(1), lambda t: t[0], lambda t: t["a"], lambda t: t.split("="), lambda t: re.sub("(n)", chr(92) + "2", t), lambda t: re.sub("(n)", chr(92) + "1" + chr(92) + "1", t), lambda t: "-".join([t.upper(), t[2:]]), lambda t: t.strip("n") + "a" if t.strip("n=0123456789 of") else "none"): log.append((run(T(3), 5, how)[1:], run(T(4), 6, how)[1:], run(T(6), 7, how)[1:]))
        how = None
    """,
    ),
}
