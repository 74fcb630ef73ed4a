"""Functions and settings of torch.compile in programs: regions, decorators, modules that it leaves
alone, its configuration.
"""

from tests.dynamo.programs import Family

FAMILY = Family(prelude="import torch._dynamo\n")
PROGRAMS = {
    "region_that_may_break": (
        1,
        "",
        """
        def f(x):
            with torch._dynamo.error_on_graph_break(False):
                y = x + 1
            return y * 2
        ---
        run(T(3))
    """,
    ),
    "function_that_may_break": (
        1,
        "REQUESTED_BREAK",
        """
        @torch._dynamo.error_on_graph_break(False)
        def g(x):
            torch._dynamo.graph_break()
            return x + 1
        def f(x): return g(x) * 2
        ---
        run(T(3))
    """,
    ),
    "decorators_of_settings": (
        1,
        "",
        """
        @torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True)
        def g(x): return x.sum()
        @torch._dynamo.dont_skip_tracing
        def h(x): return x + 1
        def f(x): return h(x) * g(x)
        ---
        run(T(3))
    """,
    ),
    "settings_patched_inside": (
        2,
        """
        def f(x):
            with torch._dynamo.config.patch(capture_scalar_outputs=True):
                y = x + 1
            return y * 2
        ---
        run(T(3))
    """,
    ),
    "step_of_recorded_graphs": (
        1,
        "",
        """
        def f(x):
            torch.compiler.cudagraph_mark_step_begin()
            return x + 1
        ---
        run(T(3))
    """,
    ),
    "modules_left_alone": (
        2,
        "DISABLED_CALL",
        """
        class Inner(nn.Module):
            def forward(self, x):
                log.append(torch.is_grad_enabled())
                return x * 2
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.compiler.disable(Inner())
            def forward(self, x): return self.inner(x + 1) - 1
        __outer = Outer()
        def f(x): return __outer(x)
        ---
        run(T(3))
        log
    """,
    ),
}
