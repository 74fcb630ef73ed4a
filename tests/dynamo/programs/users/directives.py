"""Directives of users in all places: compiled and disabled methods, modules and classes, functions
that stay whole, operators with registered effects.
"""

from tests.dynamo.programs import Family

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
        1,
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
    """,
    ),
}
