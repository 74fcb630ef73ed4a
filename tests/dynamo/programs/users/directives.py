"""Directives of users in all places: compiled and disabled methods, modules and classes, functions
that stay whole, operators with registered effects.
"""

from tests.dynamo.programs import SOME, Family

FAMILY = Family(prelude="import dynamo\n")
PROGRAMS = {
    "compiled_methods": (
        1,
        "",
        """
        class Scale:
            factor = 2
            @dynamo.compile
            def plain(self, x): return x * self.factor
            @classmethod
            @dynamo.compile
            def of_class(cls, x): return x + cls.factor
            @staticmethod
            @dynamo.compile
            def static(x): return x - 1
            @property
            @dynamo.compile
            def known(self): return self.factor + 1
        scale = Scale()
        def f(x):
            method = scale.plain
            x = method(x.sin()) + Scale.plain(scale, x) + scale.of_class(x) + Scale.of_class(x)
            return scale.static(x) * Scale.static(x) + scale.known
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "compiled_methods_of_changed_classes": (
        3,
        "",
        """
        class Scale:
            factor = 2
            @dynamo.compile
            def plain(self, x): return x * self.factor
        scale = Scale()
        def f(x): return scale.plain(x) + 1
        ---
        run(T(3))
        Scale.factor = 5
        run(T(3))
        Scale.plain = lambda self, x: x - self.factor
        run(T(3))
    """,
    ),
    "disabled_methods": (
        2,
        "DISABLED_CALL",
        """
        class Scale:
            factor = 2
            @dynamo.disable
            def plain(self, x): return x * self.factor * (1 + dynamo.is_compiling())
            @classmethod
            @dynamo.disable
            def of_class(cls, x): return x + cls.factor
        scale = Scale()
        def f(x): return scale.of_class(scale.plain(x.sin())).cos()
        ---
        run(T(3))
        Scale.factor = 5
        run(T(3))
    """,
    ),
    "disabled_module": (
        2,
        "DISABLED_CALL",
        """
        import copy, pickle
        class Asked(nn.Linear):
            def forward(self, x): return super().forward(x) * (1 + dynamo.is_compiling())
        model = nn.Sequential(nn.Tanh(), Asked(3, 3), nn.Sigmoid())
        model[1] = dynamo.disable(model[1])
        def f(x): return model(x)
        ---
        run(T(2, 3)).sum().backward()
        list(model.state_dict())
        isinstance(model[1], nn.Linear)
        torch.equal(copy.deepcopy(model)(T(2, 3)), run(T(2, 3)))
    """,
    ),
    "disabled_class_of_modules": (
        2,
        "DISABLED_CALL",
        """
        @dynamo.disable
        class Asked(nn.Linear):
            def forward(self, x): return super().forward(x) * (1 + dynamo.is_compiling())
        layer = Asked(3, 3)
        def f(x): return layer(x.sin()).cos()
        ---
        run(T(2, 3))
        run(T(2, 3))
    """,
    ),
    "whole_functions_of_dicts": (
        2,
        "",
        """
        @dynamo.nonstrict_trace
        def whole(named, k):
            return {"a": named["x"] * k, "b": [named["x"] + 1, {"c": named["x"].sin()}], "x": named["x"]}
        def f(x):
            made = whole({"x": x}, 2)
            made["b"].append(made.pop("a"))
            return made, made["x"] is x
        ---
        run(T(3))
        run(T(3, grad=True))[0]["b"][1]["c"].sum().backward()
    """,
    ),
    "operators_with_effects": (
        2,
        "",
        """
        @torch.library.custom_op("directives::tell", mutates_args=())
        def tell(x: torch.Tensor) -> torch.Tensor:
            print("told", x.tolist())
            return x.clone()
        tell.register_fake(torch.empty_like)
        tell.register_effect(torch.library.EffectType.ORDERED)
        def f(x):
            tell(x + 1)
            y = x * 2
            tell(y)
            return y
        ---
        run(T(2))
        run(T(2))
        run(T(2, grad=True)).sum().backward()
    """,
    ),
    "operators_that_print_among_prints": (
        1,
        "CHANGED_STATE",
        """
        @torch.library.custom_op("directives::say", mutates_args=())
        def say(x: torch.Tensor) -> None: print("said")
        say.register_fake(lambda x: None)
        def f(x):
            print("before")
            say(x)
            print("after")
            return x + 1
        ---
        run(T(2))
    """,
    ),
    "operators_whose_attributes_are_named_like_globals": (
        1,
        "",
        """
        class Counted:
            def __call__(self): self.total = 1
        total = Counted()
        @torch.library.custom_op("directives::kept", mutates_args=())
        def kept(x: torch.Tensor, total: int = 2) -> torch.Tensor: return x * total
        kept.register_fake(lambda x, total=2: torch.empty_like(x))
        def keep(ctx, inputs, output): ctx.total = inputs[1]
        kept.register_autograd(lambda ctx, grad: (grad * ctx.total, None), setup_context=keep)
        def f(x): return kept(x), torch.ops.directives.kept(x), kept(x, total=3)
        ---
        run(T(2, grad=True))[2].sum().backward()
    """,
    ),
    "operators_that_read_attributes_of_modules": (
        SOME,
        "CHANGED_STATE",
        """
        import types
        settings = types.ModuleType("settings")
        settings.factor = 1
        @torch.library.custom_op("directives::set", mutates_args=())
        def scaled(x: torch.Tensor) -> torch.Tensor: return x * settings.factor
        scaled.register_fake(torch.empty_like)
        def f(x):
            a = scaled(x)
            settings.factor += 1
            return a, scaled(x)
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "operators_that_read_what_changes": (
        SOME,
        "CHANGED_STATE",
        """
        import contextvars
        variable = contextvars.ContextVar("variable", default="old")
        class Held: factor = 1
        held, number, table = Held(), 1, {"k": 1}
        def known(): return table
        @torch.library.custom_op("directives::read", mutates_args=())
        def read(x: torch.Tensor) -> torch.Tensor:
            return x * (2 if variable.get() == "new" else 3) + number + known()["k"]
        @read.register_kernel("cpu")
        def on_cpu(x): return x * held.factor + read._init_fn(x)
        read.register_fake(torch.empty_like)
        def f(x):
            global number
            token = variable.set("new")
            a = read(x + 1) * 2
            variable.reset(token)
            number += 1
            b = read(a)
            held.factor += 1
            c = read(b)
            Held.other = 5
            table["k"] += 1
            return a, b, read(c)
        ---
        run(T(2))
        run(T(2))
        del read, on_cpu
    """,
    ),
    "operators_that_read_it_far_away": (
        0,
        "CHANGED_STATE",
        """
        class Box: pass
        class Slotted: __slots__ = ("far",)
        class Table(dict):
            def __getattr__(self, name): return self[name]
        class Scaled:
            def __call__(self, x): return x * table.inner["k"][0]
        box, slotted, table = Box(), Slotted(), Table(inner={"k": [1.0]})
        box.one, slotted.far = Box(), Box()
        box.one.two, slotted.far.end = Box(), 1.0
        box.one.two.factor = 1.0
        scaled = Scaled()
        def past(known): return known.end
        @torch.library.custom_op("directives::read_far", mutates_args=())
        def read(x: torch.Tensor) -> torch.Tensor:
            return scaled(x) * box.one.two.factor + past(slotted.far)
        read.register_fake(torch.empty_like)
        del read
        def f(x, place, new):
            if place == 0: table["inner"]["k"][0] = new
            if place == 1: box.one.two.factor = new
            if place == 2: slotted.far.end = new
            return torch.ops.directives.read_far(x)
        ---
        run(T(2), 0, 3.0)
        run(T(2), 1, 4.0)
        run(T(2), 2, 5.0)
    """,
    ),
    "kernels_that_only_the_dispatcher_knows": (
        2,
        "CHANGED_STATE",
        """
        __library = torch.library.Library("directives_apart", "FRAGMENT")
        if not hasattr(torch.ops.directives_apart, "read"): __library.define("read(Tensor x) -> Tensor")
        factor = {"k": 1.0}
        __library.impl("read", lambda x: x * factor["k"], "CompositeExplicitAutograd")
        __library.impl("read", torch.empty_like, "Meta")
        def f(x, new):
            if new: factor["k"] = new
            return torch.ops.directives_apart.read(x)
        ---
        run(T(2), 3.0)
        run(T(2), None)
    """,
    ),
    "operators_that_read_nothing_of_it": (
        2,
        "",
        """
        table, other = {"k": 1}, {"k": 2}
        @torch.library.custom_op("directives::apart", mutates_args=())
        def apart(x: torch.Tensor) -> torch.Tensor: return x * other["k"]
        apart.register_fake(torch.empty_like)
        del apart
        def f(x):
            table["k"] += 1
            return torch.ops.directives.apart(x) * table["k"]
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "whole_functions_that_read_what_changes": (
        5,
        "CHANGED_STATE",
        """
        held, table = type("Held", (), {"factor": 1})(), {"k": 1}
        @dynamo.allow_in_graph
        def scaled(x): return x * table["k"]
        @dynamo.nonstrict_trace
        def shifted(x): return x + held.factor
        def f(x):
            table["k"] = 3
            x = scaled(x + 1)
            table["k"], held.factor = 5, 7
            return x, shifted(x * 2) * 2
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "functions_of_autograd_that_read_what_changes": (
        3,
        "CHANGED_STATE",
        """
        table = {"k": 1}
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * table["k"]
            @staticmethod
            def backward(ctx, grad): return grad * table["k"]
        def f(x):
            table["k"] = 5
            y = Scale.apply(x * 2)
            table["k"] = 7
            return y.sin()
        ---
        x = T(2, grad=True)
        run(x).sum().backward()
        x.grad
    """,
    ),
    "operators_that_write_what_is_read": (
        SOME,
        """
        log, table, number = [], {"n": 0}, 0
        class Held: k = 0
        held = Held()
        @torch.library.custom_op("directives::write", mutates_args=())
        def written(x: torch.Tensor) -> torch.Tensor:
            global number
            log.append(1)
            table["n"] += 1
            held.k += 1
            number += 1
            return x.clone()
        written.register_fake(torch.empty_like)
        del written
        def total(held): return held.k
        def f(x, way):
            write = torch.ops.directives.write
            if way == 0: return write(x) * len(log)
            if way == 1: return write(x) * table["n"]
            if way == 2: return write(x) + total(held)
            if way == 3: return write(x) * number
            if way == 4: return write(x) + getattr(held, "k")
            if way == 5:
                before = len(log) + held.k * 10 + number * 100
                return write(x) + len(log), before
            for _ in range(2): x = write(x) + held.k
            log.append(7)
            return x
        ---
        [(str(run(T(2), way)), len(log), str(table), held.k, number) for way in range(7)]
        [(str(run(T(2), way)), len(log), str(table), held.k, number) for way in range(7)]
    """,
    ),
    "operators_that_write_in_other_ways": (
        SOME,
        """
        import heapq, sys
        queue, heap, left = collections.deque(), [], {1, 2, 3}
        log = []
        push, outer, words = log.append, (log,), {}
        keys = words.keys()
        class Scale: by = 1
        class Later: pass
        scale, later, count = Scale(), Later(), 0
        later.other = 0
        many = [Later() for _ in range(1500)]
        def queue_(): queue.append(1)
        def heap_(): heapq.heappush(heap, 1)
        def left_(): left.difference_update({len(left)})
        def push_(): push(1)
        def alias_():
            alias = log
            alias += [1]
        def words_(): words[len(words)] = 1
        def scale_(): Scale.by += 1
        def later_(): later.made = getattr(later, "made", 0) + 1
        def set_(): setattr(later, "other", later.other + 1)
        def dict_(): later.__dict__["other"] += 1
        def count_():
            global count
            count += 1
        def many_(): later.other += len(many)
        ways = [queue_, heap_, left_, push_, alias_, words_, scale_, later_, set_, dict_, count_]
        ways.append(many_)
        def make(way):
            @torch.library.custom_op(f"directives::{way.__name__}", mutates_args=())
            def written(x: torch.Tensor) -> torch.Tensor:
                way()
                return x.clone()
            written.register_fake(torch.empty_like)
        for way in ways: make(way)
        names = [way.__name__ for way in ways]
        del way
        reads = [
            lambda: len(queue), lambda: len(heap), lambda: len(left), lambda: f"{outer}",
            lambda: outer == ([1, 1],), lambda: len(keys), lambda: scale.by,
            lambda: getattr(later, "made", 0), lambda: later.other,
            lambda: later.__dict__["other"], lambda: sys.modules[__name__].count,
            lambda: later.other,
        ]
        def f(x, way): return getattr(torch.ops.directives, names[way])(x), reads[way]()
        ---
        [str(run(T(2), way)) for way in range(12) for _ in range(2)]
    """,
    ),
    "operators_that_count_for_nobody": (
        1,
        "",
        """
        log = []
        @torch.library.custom_op("directives::count", mutates_args=())
        def count(x: torch.Tensor) -> torch.Tensor:
            log.append(len(log))
            return x.clone()
        count.register_fake(torch.empty_like)
        def f(x): return count(x + 1).sin() * x.shape[0]
        ---
        run(T(2))
        run(T(2))
        log
    """,
    ),
    "allowed_that_reach_much": (
        1,
        "",
        """
        class Node:
            def __init__(self): self.state = 0
        many, memo = [Node() for _ in range(1500)], {}
        def look(n):
            for node in many[:2]: node.state = n
            memo[n] = n
            return memo
        @dynamo.allow_in_graph
        def known(x, n): return x * len(look(n))
        class Kept:
            state = 2
        kept = Kept()
        def f(x): return known(known(x + 1, 1).sin(), 1) * kept.state
        ---
        run(T(3))
        run(T(3))
        memo
    """,
    ),
    "allowed_that_reach_much_behind_changes": (
        5,
        "CHANGED_STATE",
        """
        many, state = [object() for _ in range(1500)], {"factor": 1}
        def look(): return state["factor"] + len(many)
        @dynamo.allow_in_graph
        def scaled(x): return x * look()
        def f(x):
            state["factor"] += 1
            return scaled(x + 1) * 2
        ---
        run(T(3))
        run(T(3))
        state
    """,
    ),
}
