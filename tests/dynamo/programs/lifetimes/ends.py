"""When objects end: what finalizers, weak references and closed generators show of it. The garbage
collector is off, so that only counted references end an object.
"""

from tests.dynamo.programs import Family

DEFINITIONS = """
import weakref, gc, dynamo
class O:
    def __init__(self, n=0): self.n = n
class D:
    def __init__(self, n): self.n = n
    def __del__(self): log.append(("end", self.n))
@dynamo.disable
def brk(*args): return args[0] if args else None
@dynamo.disable
def alive(reference): return reference() is not None
@dynamo.disable
def mark(text): log.append(text)
"""
FAMILY = Family(prelude=DEFINITIONS, steps="run(T(2))\nrun(T(2))", collector=False)
PROGRAMS = {
    # -- in captured code ---------------------------------------------------------------------
    "deleted": """
        def f(t):
            o = O()
            w = weakref.ref(o)
            a = w() is o
            t = t + 1
            del o
            return a, w() is None, t
    """,
    "bound_again": """
        def f(t):
            o = O(1)
            w = weakref.ref(o)
            t = t + 1
            o = O(2)
            return w() is None, o.n, t
    """,
    "function_across_breaks": """
        def f(t):
            function = lambda: t
            w = weakref.ref(function)
            brk()
            a = w() is function
            brk()
            return w()() + 1, a
    """,
    "held_by_a_container": """
        def f(t):
            l = [O()]
            d = {"o": O()}
            v, w = weakref.ref(l[0]), weakref.ref(d["o"])
            t = t + 1
            seen = [v() is None, w() is None]
            l.clear()
            seen += [v() is None, w() is None]
            del d["o"]
            return seen, v() is None, w() is None, t
    """,
    "held_by_an_attribute": """
        def f(t):
            o = O()
            o.other = O()
            w = weakref.ref(o.other)
            seen = [w() is None]
            o.other = t + 1
            return seen, w() is None, o.other
    """,
    "held_by_a_closure": """
        def f(t):
            def make():
                o = O(3)
                return weakref.ref(o), lambda: o.n
            w, function = make()
            seen = [w() is None, function()]
            t = t * function()
            function = None
            return seen, w() is None, t
    """,
    "held_by_a_bound_method": """
        class C:
            def m(self): return 2
        def f(t):
            m = C().m
            w = weakref.ref(m.__self__)
            seen = [w() is None]
            t = t * m()
            del m
            return seen, w() is None, t
    """,
    "of_a_callee": """
        def f(t):
            def g():
                o = O()
                return weakref.ref(o), weakref.ref(o)() is o
            w, seen = g()
            return w() is None, seen, t + 1
    """,
    "temporary": """
        def f(t):
            w = weakref.ref(O())
            return w() is None, weakref.ref(O())() is None, t + 1
    """,
    "dead_reference_leaves_the_frame": """
        def f(t):
            o = O()
            w = weakref.ref(o)
            del o
            return w, t + 1
        ---
        [run(T(2))[0]() is None, run(T(2))[0]() is None]
    """,
    "live_reference_leaves_the_frame": """
        def f(t, keep):
            o = O()
            w = weakref.ref(o)
            if keep:
                log.append(o)
            return w, t + 1
        ---
        run(T(2), True)[0]() is log[0]
        run(T(2), False)[0]() is None
    """,
    "dead_references_are_unequal": """
        def f(t):
            a, b = O(), O()
            v, w = weakref.ref(a), weakref.ref(b)
            del a, b
            return v == w, v == v, v != w, t + 1
    """,
    "ring_waits_for_the_collector": """
        def f(t):
            o = O()
            o.me = o
            w = weakref.ref(o)
            t = t + 1
            del o
            seen = w() is None
            gc.collect()
            return seen, w() is None, t
    """,
    "held_by_a_traceback": """
        def f(t):
            def g(out):
                o = O()
                out.append(weakref.ref(o))
                raise ValueError
            out = []
            try:
                g(out)
            except ValueError:
                t = t + 1
                seen = out[0]() is None
            return seen, out[0]() is None, t
    """,
    # -- variables behind a break -------------------------------------------------------------
    "bound_again_behind_a_break": """
        def f(t):
            o = O()
            w = weakref.ref(o)
            brk()
            t = t + 1
            o = None
            return w() is None, alive(w), t
    """,
    "variable_that_nothing_reads": """
        def f(t):
            o = O()
            w = weakref.ref(o)
            t = t + 1
            brk()
            seen = [w() is not None, alive(w)]
            t = t + 1
            o = 3
            return seen, alive(w), t
    """,
    "variable_that_only_the_break_reads": """
        def f(t):
            o = O()
            brk(o)
            w = None
            t = t + 1
            return t
        ---
        run(T(2))
    """,
    "tensor_bound_again": """
        def f(t):
            x = t + 1
            w = weakref.ref(x)
            brk()
            y = x * 2
            seen = [alive(w)]
            x = None
            seen.append(alive(w))
            y = y + 1
            return seen, w() is None, y
    """,
    "tensor_given_to_a_break": """
        def watch(x):
            log.append(weakref.ref(x))
        def f(t):
            x = t + 1
            watch(x)
            brk(x)
            seen = [alive(log[-1])]
            y = t * 3
            x = y
            seen.append(alive(log[-1]))
            log.clear()
            return seen, y
    """,
    "argument_of_a_callee_that_breaks": """
        def f(t):
            def g(o, t):
                t = t + 1
                w = weakref.ref(o)
                brk()
                del o
                return w() is None, t + 1
            return g(O(), t)
    """,
    "local_of_a_callee_that_breaks": """
        def f(t):
            def g(t):
                o = O()
                w = weakref.ref(o)
                brk()
                seen = alive(w)
                return w, seen, t + 1
            w, seen, t = g(t)
            mark("back")
            return seen, alive(w), t * 2
    """,
    # -- finalizers ---------------------------------------------------------------------------
    "finalizer_where_the_variable_goes": """
        def f(t):
            a = D(1)
            t = t + 1
            a = D(2)
            t = t * 2
            mark("made")
            del a
            log.append("deleted")
            t = t + 1
            mark("end")
            return t
    """,
    "finalizer_of_what_others_hold": """
        def f(t):
            a = D(1)
            b = D(2)
            t = t + 1
            mark("x")
            a = b
            log.append("bound")
            b = None
            t = t + 1
            l = [D(3)]
            t = t + 1
            l.clear()
            log.append("cleared")
            mark("z")
            return t
    """,
    "finalizer_in_a_loop": """
        def f(t):
            for i in range(3):
                d = D(i)
                t = t + 1
                log.append(i)
            mark("end")
            return t
    """,
    "finalizer_at_a_callees_end": """
        def f(t):
            def g(d, t):
                t = t + 1
                mark("in")
                t = t + d.n
                d = None
                log.append("dropped")
                return t
            def h(d, t):
                return t + d.n
            t = g(D(7), t)
            mark("between")
            t = h(D(8), t)
            log.append("after")
            return t
    """,
    "finalizer_of_an_argument": """
        def f(items, t):
            d = items.pop()
            t = t + d.n
            mark("popped")
            d = None
            log.append("dropped")
            return t * 2
        ---
        run([D(1)], T(2))
        run([D(2)], T(2))
    """,
    "finalizer_of_a_handlers_local": """
        def f(t):
            d = None
            try:
                brk()
                t = t + 1
                d = D(5)
                raise ValueError
            except ValueError as error:
                t = t + 2
                brk()
            d = None
            log.append("dropped")
            t = t + 1
            return t
    """,
    "finalizer_reads_what_was_done": """
        class L:
            total = 0
            def __del__(self): log.append(L.total)
        def f(t):
            l = L()
            L.total += 1
            t = t + 1
            l = None
            L.total += 1
            return t + L.total
    """,
    "finalizer_resurrects": """
        class R:
            def __del__(self): log.append(self)
        def f(t):
            r = R()
            w = weakref.ref(r)
            t = t + 1
            del r
            n = len(log)
            log.clear()
            return n, w() is None, t
    """,
    "callback": """
        def f(t):
            l = []
            o = O()
            w = weakref.ref(o, lambda r: l.append("gone"))
            t = t + 1
            l.append(1)
            o = None
            l.append(2)
            t = t + 1
            brk()
            return l, t
    """,
    "callback_of_a_method": """
        class C(O):
            def m(self): pass
        def f(t):
            l = []
            t = t + 1
            m = C().m
            w = weakref.ref(m, l.append)
            n = len(l)
            m = None
            return n, len(l), w() is None, t
        ---
        run(T(2))
    """,
    "garbage": """
        def f(t):
            l = []
            l.append(l)
            t = t + 1
            gc.collect()
            del l
            return gc.collect(), t
        ---
        run(T(2))
    """,
    "finalize": """
        def f(t):
            o = O()
            weakref.finalize(o, log.append, "finalized")
            t = t + 1
            log.append(1)
            del o
            log.append(2)
            return t
    """,
    "weak_dictionary": """
        table = weakref.WeakValueDictionary()
        def f(t):
            o = O()
            table["a"] = o
            t = t + 1
            seen = [len(table), "a" in table]
            del o
            return seen, len(table), "a" in table, t
    """,
    "what_has_no_weak_references": """
        def said(make, *args, **named):
            try: return make(*args, **named)
            except TypeError as error: return str(error)
        def f(t):
            t = t + 1
            keyed = said(weakref.WeakKeyDictionary().__getitem__, 13)
            plain, named = said(weakref.ref, []), said(weakref.ref, O, callback=None)
            return keyed, plain, named, said(weakref.ref(O).__init__, 0, 0, 0), t
    """,
    "held_by_what_only_the_frame_holds": """
        def f(t):
            a, b = O(), O()
            l, d = [a], {1: (b, 2)}
            a.end = D(1)
            v, w = weakref.ref(a, log.append), weakref.ref(b, log.append)
            t = t + 1
            brk()
            l.clear()
            n = len(log)
            del a
            m = len(log)
            d = b = None
            log[1:] = [type(entry).__name__ for entry in log[1:]]
            return n, m, len(log), t
    """,
    "dropped_by_what_is_outside": """
        def f(t, l, d, o, n, w):
            t = t + 1
            l.clear()
            log.append("cleared")
            d["a"] = 1
            log.append("set")
            del d["b"]
            log.append("deleted")
            o.x = 1
            log.append("stored")
            n.pop()
            return w() is None, t
        def call():
            o = O()
            o.x = D(4)
            n = [[O()]]
            return run(T(2), [D(1)], {"a": D(2), "b": D(3)}, o, n, weakref.ref(n[0][0]))
        ---
        call()
        call()
    """,
    "id_does_not_hold": """
        @dynamo.disable
        def make(): return D(1)
        def f(t):
            t = t + 1
            d = make()
            ids = [id(d)]
            del d
            log.append("after")
            return t, len(ids)
        ---
        run(T(2))
    """,
    "one_reference_without_a_callback": """
        def f(t):
            o = O()
            v = weakref.ref(o)
            p = weakref.proxy(o)
            w = weakref.ref(o)
            t = t + 1
            brk()
            return v is w, weakref.ref(o) is v, t
        ---
        run(T(2))
    """,
    "references_are_counted": """
        def f(t):
            o = O()
            p = weakref.proxy(o)
            v = weakref.ref(o)
            w = weakref.ref(o)
            t = t + 1
            n = weakref.getweakrefcount(o)
            del p
            return v is w, n, weakref.getweakrefcount(o), t
        ---
        run(T(2))
    """,
    "keys_of_a_weak_dictionary": """
        class K(O):
            def __eq__(self, other): return self.n == other.n
            def __hash__(self): return hash(self.n)
        def f(t):
            t = t + 1
            o = K(3)
            d = weakref.WeakKeyDictionary({o: 1, K(4): 2})
            keys = [K(5), K(6), K(7)]
            for k in keys: d[k] = k.n
            del k
            it = iter(d.keys())
            first = next(it).n
            del keys[-1]
            return d[o], first, len(list(it)), len(d), t
        ---
        run(T(2))
    """,
    "weak_set": """
        def f(t):
            s = weakref.WeakSet()
            o, p = O(1), O(2)
            s.add(o)
            s.add(p)
            t = t + len(s)
            o = None
            return len(s), [x.n for x in s], t
    """,
    # -- what is closed -----------------------------------------------------------------------
    "generator_dropped_behind_a_break": """
        def f(t):
            def g():
                try:
                    yield 1
                    yield 2
                finally:
                    log.append("closed")
            it = g()
            t = t + next(it)
            brk()
            t = t + 1
            it = None
            log.append("after")
            mark("end")
            return t
    """,
    "generator_of_a_loop_that_is_left": """
        def f(t):
            def g():
                try:
                    yield 1
                    yield 2
                finally:
                    log.append("closed")
            for i in g():
                t = t + i
                brk()
                break
            log.append("after")
            return t
    """,
    "file_is_closed": """
        import tempfile, warnings, os
        def f(t, path):
            file = open(path, "w")
            t = t + file.write("text")
            file = None
            return os.path.getsize(path), t
        def call(t):
            with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
                warnings.simplefilter("ignore")
                return run(t, os.path.join(folder, "x"))
        ---
        call(T(2))
        call(T(2))
    """,
    "ends_in_a_callee_that_changed_it": """
        def through(func):
            def called(*args):
                with contextlib.ExitStack():
                    return func(*args)
            return called
        @through
        def end(t):
            d = D(1)
            d.set = 3
            t = t + 1
            d = None
            mark("none")
            return t + 1
        def f(t): return end(t)
    """,
    # -- between the guards and the frame's first instruction -----------------------------------
    "target_ends_when_the_frame_starts": """
        import sys
        def made():
            o = O()
            o.w = T(2)
            return o
        held = [made()]
        r = weakref.ref(held[0])
        def f(t, r):
            t = t + 1
            o = r()
            return t if o is None else (t * o.w, o.w)
        def ends(frame, event, arg):
            if event == "call" and frame.f_code.co_name == "f":
                held.clear()
        def profiled():
            sys.setprofile(ends)
            try: return run(T(2), r)
            finally: sys.setprofile(None)
        ---
        run(T(2), r)
        profiled()
        run(T(2), r)
    """,
    "variables_end_in_their_order": """
        def f(x):
            d = {"k": D(1)}
            a = D(2)
            c = [D(3)]
            brk()
            return x + 1
    """,
    "item_ends_when_the_frame_starts": """
        import sys
        def made():
            o = O()
            o.w = T(2)
            return o
        held = [made()]
        d = weakref.WeakValueDictionary(a=held[0])
        def f(t, d):
            t = t + 1
            o = d.get("a")
            return t if o is None else (t * o.w, o.w)
        def ends(frame, event, arg):
            if event == "call" and frame.f_code.co_name == "f":
                held.clear()
        def profiled():
            sys.setprofile(ends)
            try: return run(T(2), d)
            finally: sys.setprofile(None)
        ---
        run(T(2), d)
        profiled()
        run(T(2), d)
    """,
    "classes_that_nothing_names_any_more": """
        class Base: pass
        @dynamo.disable
        def made():
            class B(Base): pass
            return B
        def f(x):
            B = made()
            y = x + 1
            dynamo.graph_break()
            gc.collect()
            y = y * len(Base.__subclasses__())
            dynamo.graph_break()
            gc.collect()
            return y, len(Base.__subclasses__())
    """,
    "in_a_function_that_may_see_its_variables": """
        def guarded(v):
            try: yield v
            finally: log.append("closed")
        def made(v, n):
            y = v + next(guarded(v))
            log.append("behind")
            return locals() if n == 1 else y
        def f(x, n):
            return made(x, n)
        ---
        run(T(2), 3)
        run(T(2), 2)
        run(T(2), 1)
    """,
    # -- held by what crossed a graph break -----------------------------------------------------
    "held_by_a_list_across_breaks": """
        def f(t):
            seen = []
            brk()
            y = t * 2
            seen.append(y)
            w = weakref.ref(y)
            del y
            first = w() is None
            brk()
            second = w() is None
            return first, second, t
    """,
    "held_by_a_list_that_loses_it": """
        def f(t):
            seen = []
            brk()
            y = t * 2
            seen.append(y)
            w = weakref.ref(y)
            del y
            first = w() is None
            seen.pop()
            return first, w() is None, t + 1
    """,
    "held_by_a_list_in_a_tuple": """
        def f(t):
            outer = ([],)
            brk()
            y = O()
            outer[0].append(y)
            w = weakref.ref(y)
            del y
            first = w() is None
            del outer
            return first, w() is None, t + 1
    """,
    "held_by_an_objects_list": """
        def f(t):
            o = O()
            o.seen = []
            brk()
            y = t * 2
            o.seen.append(y)
            w = weakref.ref(y)
            del y
            first = w() is None
            o.seen = None
            return first, w() is None, t
    """,
}
