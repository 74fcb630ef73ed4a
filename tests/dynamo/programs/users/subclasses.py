"""Subclasses of torch.Tensor: wrappers that flatten, plain ones, jagged ones, distributed ones."""

from tests.dynamo.programs import Family

PRELUDE = """
from torch.utils._pytree import tree_leaves, tree_map_only
class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b, tag="pair"):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device,
            requires_grad=a.requires_grad)
    def __init__(self, a, b, tag="pair"):
        self.a, self.b, self.tag = a, b, tag
    __torch_function__ = torch._C._disabled_torch_function_impl
    def __tensor_flatten__(self):
        return ["a", "b"], self.tag
    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Pair(inner["a"], inner["b"], tag)
    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        from torch.utils._python_dispatch import return_and_correct_aliasing
        kwargs = kwargs or {}
        tag = next(x.tag for x in tree_leaves(args) if isinstance(x, Pair))
        a, b = (
            func(*tree_map_only(Pair, pick, args), **tree_map_only(Pair, pick, kwargs))
            for pick in (lambda x: x.a, lambda x: x.b))
        def together(x, y):
            return Pair(x, y, tag) if isinstance(x, torch.Tensor) else x
        several = isinstance(a, (tuple, list))
        result = type(a)(map(together, a, b)) if several else together(a, b)
        return return_and_correct_aliasing(func, args, kwargs, result)
    def __repr__(self):
        return f"Pair({self.a}, {self.b}, {self.tag})"
class Sub(torch.Tensor):
    def doubled(self):
        return self * 2
class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, data, label):
        made = torch.Tensor._make_subclass(cls, data)
        made.label = label
        return made
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Named):
            result.label = next(x.label for x in tree_leaves(args) if isinstance(x, Named))
        return result
class Units(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(cls) if isinstance(result, torch.Tensor) else result
"""

FAMILY = Family(prelude=PRELUDE)

PROGRAMS = {
    "wrapper": (
        1,
        """
        def f(x, y):
            return (x * 2 + y).sin(), x.tag
        ---
        run(Pair(T(2, 3), T(2, 3) + 1), T(2, 3))
        run(Pair(T(2, 3), T(2, 3) + 1), T(2, 3))
    """,
    ),
    "wrapper_tags": (
        2,
        """
        def f(x):
            return x * 2, x.tag
        ---
        run(Pair(T(3), T(3)))
        run(Pair(T(3), T(3), "other"))
        run(Pair(T(3), T(3)))
    """,
    ),
    "wrapper_sizes": (
        2,
        """
        def f(x):
            return x.exp().sum(0)
        ---
        run(Pair(T(2, 3), T(2, 3)))
        run(Pair(T(3, 3), T(3, 3)))
        run(Pair(T(5, 3), T(5, 3)))
    """,
    ),
    "wrapper_parts": (
        1,
        """
        def f(x):
            return x.a * 2 + x.b, isinstance(x, Pair), type(x).__name__
        ---
        run(Pair(T(3), T(3) + 1))
    """,
    ),
    "wrapper_made": (
        1,
        """
        def f(x, y):
            p = Pair(x, y, "made")
            return p.exp() * p, (p + 1).b
        ---
        run(T(3), T(3) + 1)
    """,
    ),
    "wrapper_in_wrapper": (
        1,
        """
        def f(x):
            return (x @ x).relu()
        ---
        run(Pair(Pair(T(3, 3), T(3, 3)), Pair(T(3, 3), T(3, 3) + 1)))
    """,
    ),
    "wrapper_written": (
        1,
        """
        def f(x, y):
            x.add_(y)
            return x * 2
        p = Pair(T(3), T(3) + 1)
        ---
        run(p, T(3))
        p
    """,
    ),
    "wrapper_trained": (
        1,
        """
        p = Pair(T(2, 3), T(2, 3) + 1).requires_grad_()
        def f(y):
            return (p * y).tanh().sum()
        ---
        run(T(2, 3)).backward()
        p.grad
    """,
    ),
    "wrapper_parameters": (
        1,
        """
        m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        for layer in (m[0], m[2]):
            layer.weight = nn.Parameter(Pair(layer.weight.detach(), layer.weight.detach() * 2))
        def f(x):
            return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3)).sum().backward()
        m[0].weight.grad
    """,
    ),
    "wrapper_in_containers": (
        1,
        """
        def f(d):
            return {name: [one * 2 for one in some] for name, some in d.items()}
        ---
        run({"a": [Pair(T(2), T(2))], "b": [T(2), Pair(T(3), T(3))]})
    """,
    ),
    "wrapper_optimizer": (
        2,
        """
        w = nn.Parameter(Pair(T(3), T(3) + 1))
        o = torch.optim.SGD([w], lr=0.1, momentum=0.9)
        def f(x):
            loss = (w * x).pow(2).sum()
            loss.backward()
            o.step()
            o.zero_grad()
            return loss.detach()
        ---
        run(T(3))
        run(T(3))
        o = None
        w
    """,
    ),
    "plain": (
        1,
        """
        def f(x):
            return x.doubled() + 1, type(x).__name__
        ---
        run(T(3).as_subclass(Sub))
        run(T(3).as_subclass(Sub))
    """,
    ),
    "plain_and_tensors": (
        2,
        """
        def f(x):
            return torch.cat([x, x * 2]), isinstance(x, Sub)
        ---
        run(T(3))
        run(T(3).as_subclass(Sub))
        run(T(3))
    """,
    ),
    "plain_made": (
        1,
        """
        def f(x):
            y = x.as_subclass(Sub)
            return y.doubled(), torch.Tensor._make_subclass(Sub, x).doubled().as_subclass(torch.Tensor)
        ---
        run(T(3))
    """,
    ),
    "inner_written_by_a_branch": (
        None,
        """
        pair = Pair(T(3), T(3) * 2)
        def f(x):
            if x.sum() > 0:
                pair.a.add_(1)
            return x * 2
        ---
        run(T(3))
        run(T(3) + 2)
        pair.a
        run(T(3))
        pair.a, pair.b
    """,
    ),
    "inner_written_by_a_loop": (
        None,
        """
        pair = Pair(T(3), T(3) * 2)
        def f(x):
            turn = x.sum() * 0
            while turn < x.sum():
                pair.b.mul_(2)
                turn = turn + 1
            return x * 2
        ---
        run(T(3) + 2)
        pair.a, pair.b
        run(T(3) + 1)
        pair.a, pair.b
    """,
    ),
    "made_by_torchs_new": (
        2,
        """
        class Kept(torch.Tensor):
            def __init__(self, data, factor=3):
                super().__init__()
                self.factor = factor
            def scaled(self):
                return self * self.factor
        class Noted(torch.Tensor):
            @staticmethod
            def __new__(cls, data, *args, **kwargs):
                return super().__new__(cls, data)
            def __init__(self, data, note):
                self.note = note
        def f(x):
            kept, noted = Kept(x), Noted(x, note="n")
            kept.add_(1)
            return kept.scaled(), kept.factor, noted + 1, noted.note, Sub([1.0, 2.0]), Sub(2, 0)
        ---
        run(T(3))
        run(T(3))
        run(T(3).requires_grad_() * 2)
    """,
    ),
    "refused_by_torchs_new": (
        0,
        """
        class Kept(torch.Tensor):
            def __init__(self, data, factor=3):
                self.factor = factor
        def f(x):
            return Kept(x, 4)
        ---
        run(T(3))
    """,
    ),
    "causal_bias": (
        1,
        """
        from torch.nn.attention.bias import causal_lower_right, causal_upper_left
        def f(q, k):
            upper = causal_upper_left(q.shape[-2], k.shape[-2])
            lower = causal_lower_right(q.shape[-2], q.shape[-2])
            attend = F.scaled_dot_product_attention
            return attend(q, k, k, attn_mask=upper), attend(q, q, q, lower), lower.variant.name
        ---
        run(T(1, 2, 4, 8), T(1, 2, 6, 8))
    """,
    ),
    "plain_parameter": (
        1,
        """
        class Weight(nn.Parameter):
            def scaled(self, by):
                return self * by
        m = nn.Module()
        m.w = Weight(T(3))
        def f(x):
            return (m.w.scaled(2) * x).sum()
        ---
        run(T(3)).backward()
        m.w.grad
    """,
    ),
    "named": (
        1,
        """
        def f(x):
            y = x * 2 + 1
            return y, y.label
        ---
        run(Named(T(3), "a"))
        run(Named(T(3), "a"))
    """,
    ),
    "named_made": (
        1,
        """
        def f(x):
            y = Named(x, "b").sin()
            return y.as_subclass(torch.Tensor), y.label
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "named_anew": (
        2,
        """
        def f(x):
            y = x * 2
            return y, len(y.label)
        ---
        run(Named(T(3), "a"))
        run(Named(T(3), "b"))
        run(Named(T(3), "a"))
    """,
    ),
    "units": (
        1,
        """
        def f(x, y):
            z = torch.where(x > 0, x, y) @ y
            return z, z.shape, type(z).__name__
        ---
        run(T(3, 3).as_subclass(Units), T(3, 3))
        run(T(3, 3).as_subclass(Units), T(3, 3))
    """,
    ),
    "units_trained": (
        1,
        """
        w = T(3, grad=True)
        def f(x):
            return (w.as_subclass(Units) * x).sum().as_subclass(torch.Tensor)
        ---
        run(T(3)).backward()
        w.grad
    """,
    ),
    "units_break": (
        1,
        """
        def f(x):
            y = x * 2
            print(y.sum().item())
            return y + 1
        ---
        run(T(3).as_subclass(Units))
        run(T(3).as_subclass(Units))
    """,
    ),
    "jagged": (
        1,
        """
        def f(x):
            return (x * 2).relu()
        def nested(*sizes):
            return torch.nested.nested_tensor([T(n, 3) for n in sizes], layout=torch.jagged)
        ---
        [t for t in run(nested(2, 3)).unbind()]
        [t for t in run(nested(2, 3)).unbind()]
    """,
    ),
    "jagged_rows": (
        2,
        """
        def f(x):
            return x.sin().values().sum(0)
        def nested(*sizes):
            return torch.nested.nested_tensor([T(n, 3) for n in sizes], layout=torch.jagged)
        ---
        run(nested(2, 3))
        run(nested(4, 1, 2))
        run(nested(1, 2, 3, 4))
    """,
    ),
    "jagged_made": (
        1,
        """
        def f(values, offsets):
            nt = torch.nested.nested_tensor_from_jagged(values, offsets)
            return (nt * 2).values(), nt.to_padded_tensor(0.0, (2, 4, 3))
        ---
        run(T(5, 3), torch.tensor([0, 2, 5]))
        run(T(5, 3), torch.tensor([0, 3, 5]))
    """,
    ),
    "jagged_layer": (
        1,
        """
        m = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4))
        def f(x):
            return m(x).values()
        ---
        run(torch.nested.nested_tensor([T(2, 3), T(3, 3)], layout=torch.jagged)).sum().backward()
        m[0].weight.grad
    """,
    ),
    "distributed": (
        1,
        """
        import os, tempfile
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard
        if not dist.is_initialized():
            dist.init_process_group(
                "gloo", rank=0, world_size=1, store=dist.HashStore())
        mesh = init_device_mesh("cpu", (1,))
        def f(x, y):
            a = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
            b = DTensor.from_local(y, mesh, [Replicate()], run_check=False)
            return (a * b).relu().to_local()
        ---
        run(T(2, 3), T(2, 3))
        run(T(2, 3), T(2, 3))
        mesh = DTensor = Replicate = Shard = dist = None
    """,
    ),
    "int8_weight": (
        1,
        """
        class Scaled(torch.Tensor):
            @staticmethod
            def __new__(cls, values, scales):
                return torch.Tensor._make_wrapper_subclass(
                    cls, values.shape, dtype=scales.dtype, device=values.device)
            def __init__(self, values, scales):
                self.values_, self.scales = values, scales
            def __tensor_flatten__(self):
                return ["values_", "scales"], None
            @staticmethod
            def __tensor_unflatten__(inner, context, size, stride):
                return Scaled(inner["values_"], inner["scales"])
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func is nn.functional.linear:
                    x, w, *bias = args
                    return nn.functional.linear(x, w.values_.to(x.dtype) * w.scales[:, None], *bias)
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            @classmethod
            def __torch_dispatch__(cls, func, types, args, kwargs):
                if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
                    return Scaled(args[0].values_, args[0].scales)
                raise NotImplementedError(str(func))
            def __repr__(self):
                return f"Scaled({self.values_}, {self.scales})"
        m = nn.Linear(3, 4).requires_grad_(False)
        m.weight = nn.Parameter(
            Scaled(torch.arange(12, dtype=torch.int8).reshape(4, 3), T(4)), requires_grad=False)
        def f(x):
            return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
    """,
    ),
}
