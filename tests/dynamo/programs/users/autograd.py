"""Functions of autograd with their own backward, checkpoints and transforms."""

from tests.dynamo.differential import SOME

PROGRAMS = {
    "function_of_a_tensor_with_inference_data": (
        None,
        """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
            @staticmethod
            def backward(ctx, g): return g * 2
        def f(x):
            y = x * 3
            with torch.inference_mode():
                y.data = y.data.clone()
            return Double.apply(y)
        ---
        x = T(3, grad=True)
        run(x).sum().backward()
        x.grad
    """,
    ),
    "function_setup_context": (
        2,
        """
        class Mul(torch.autograd.Function):
            @staticmethod
            def forward(a, b): return a * b
            @staticmethod
            def setup_context(ctx, inputs, output):
                a, b = inputs
                ctx.save_for_backward(a, b)
            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                ga = g * b if ctx.needs_input_grad[0] else None
                gb = g * a * 2 if ctx.needs_input_grad[1] else None
                return ga, gb
        def f(a, b): return Mul.apply(a.sin(), b).sum() * 2
        ---
        a, b = T(3, grad=True), T(3, grad=True)
        run(a, b).backward()
        run(a, T(3)).backward()
    """,
    ),
    # The lambda breaks the graph at apply; the notes of forward are written in its own frame.
    "function_given_new_lambda": (
        SOME,
        "NOT_GRAPH_ARGUMENT",
        """
        class Kernel(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, s, function, k):
                ctx.set_materialize_grads(False)
                first, second = function(x / s), (x > 0.5).double()
                ctx.save_for_backward(x, s, first)
                ctx.mark_non_differentiable(second)
                ctx.function = function
                return first, second, sorted(vars(ctx)), len(ctx.needs_input_grad)
            @staticmethod
            def backward(ctx, g, none, names, count):
                assert none is names is count is None
                x, s, first = ctx.saved_tensors
                return g * x * first, ctx.function(g * s), None, None
        class Halve(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, function):
                ctx.mark_dirty(x.div_(function()))
                return x
            @staticmethod
            def backward(ctx, g): return g / 2, None
        def f(x, s, k):
            first, second, *rest = Kernel.apply(x, s, lambda a: a.sin() * k, k)
            return first, second, rest, Halve.apply(x * s, lambda: 2)
        ---
        x, s = T(3, grad=True), T(3, grad=True)
        for k in (2.0, 3.0, 2.0):
            first, second, rest, half = run(x, s, k)
            (first.sum() + half.sum()).backward()
            assert second.grad_fn is None and rest == [["function"], 4], rest
        first, second, rest, half = run(x.detach(), s, 2.0)
        first.sum().backward()
    """,
    ),
    "function_given_new_object": (
        SOME,
        "NOT_GRAPH_ARGUMENT",
        """
        class Shift:
            def __init__(self, by): self.by = by
            def __call__(self, x): return x + self.by
        class Shifted(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, shift):
                ctx.shift = shift
                ctx.save_for_backward(x)
                shift.by = shift.by * 2
                return shift(x)
            @staticmethod
            def backward(ctx, g): return g * ctx.saved_tensors[0] * ctx.shift.by, None
        def f(x, by):
            shift = Shift(by)
            return Shifted.apply(x, shift), shift.by
        ---
        x = T(3, grad=True)
        for by in (2.0, 3.0):
            run(x, by)[0].sum().backward()
    """,
    ),
    "function_backward_writes_gradients": (
        2,
        """
        class Second(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone(), x.clone()
            @staticmethod
            def backward(ctx, first, second): return first.copy_(second)
        class Part(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
            @staticmethod
            def backward(ctx, g):
                g.view(-1)[0] = 7
                return g * 2
        def f(x, both):
            return (*Second.apply(x), Part.apply(x)) if both else (Part.apply(x),)
        ---
        x = T(3, grad=True)
        gradients = [torch.full((3,), 5.0), torch.full((3,), 6.0), torch.full((3,), 8.0)]
        torch.autograd.backward(run(x, True), gradients)
        torch.autograd.backward(run(x, False), gradients[:1])
    """,
    ),
    "function_backward_writes_gradients_by_other_names": (
        2,
        """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
        class Data(Double):
            @staticmethod
            def backward(ctx, g):
                g.data.mul_(2)
                return g * 1
        class Each(Double):
            @staticmethod
            def backward(ctx, g):
                torch._foreach_mul_([g], 2)
                return g * 1
        def f(x, function): return function.apply(x)
        ---
        x = T(3, grad=True)
        gradients = [torch.full((3,), 5.0), torch.full((3,), 6.0)]
        run(x, Data).backward(gradients[0])
        run(x, Each).backward(gradients[1])
    """,
    ),
    "function_mark_dirty": (
        1,
        """
        class Inc(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x.add_(1)
                ctx.mark_dirty(x)
                return x
            @staticmethod
            def backward(ctx, g): return g * 3
        def f(x):
            y = x * 2
            z = Inc.apply(y)
            return (z * z).sum(), y
        ---
        x = T(3, grad=True)
        run(x)[0].backward()
        x.grad
    """,
    ),
    "function_nondiff": (
        1,
        """
        class Split(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                v, i = x.sort()
                ctx.mark_non_differentiable(i)
                ctx.save_for_backward(i)
                return v, i
            @staticmethod
            def backward(ctx, gv, gi):
                i, = ctx.saved_tensors
                return torch.zeros_like(gv).scatter(0, i, gv)
        def f(x):
            v, i = Split.apply(x)
            return (v * torch.arange(3.)).sum(), i, i.requires_grad
        ---
        x = T(3, grad=True)
        run(x)[0].backward()
        x.grad
    """,
    ),
    "function_save_out": (
        1,
        """
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                r = x.exp()
                ctx.save_for_backward(r)
                ctx.k = 3
                return r
            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, g):
                r, = ctx.saved_tensors
                return g * r * ctx.k
        def f(x): return Exp.apply(x * 2).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "function_materialize": (
        1,
        """
        class Two(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x * 2, x * 3
            @staticmethod
            def backward(ctx, a, b):
                log.append((a is None, b is None))
                return (a if a is not None else 0) + (b * 5 if b is not None else 0)
        def f(x):
            a, b = Two.apply(x)
            return a.sum(), b.sum()
        ---
        x = T(3, grad=True)
        run(x)[0].backward()
        x.grad
        run(x)[1].backward()
        x.grad
    """,
    ),
    "function_kwargs_none": (
        2,
        """
        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale, flag=True, names=None):
                ctx.scale = scale
                ctx.flag = flag
                return x * scale
            @staticmethod
            def backward(ctx, g):
                return g * ctx.scale * (2 if ctx.flag else 1), None, None, None
        def f(x, s): return F.apply(x, s, False, ["a"]).sum() + F.apply(x, s).sum()
        ---
        x = T(3, grad=True)
        run(x, 2.0).backward()
        run(x, 3.0).backward()
        x.grad
    """,
    ),
    "function_vmap": (
        2,
        """
        class Sq(torch.autograd.Function):
            generate_vmap_rule = True
            @staticmethod
            def forward(x): return x ** 2
            @staticmethod
            def setup_context(ctx, inputs, output): ctx.save_for_backward(inputs[0])
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * 2 * x
        def f(x): return torch.func.vmap(torch.func.grad(lambda t: Sq.apply(t).sum()))(x)
        ---
        run(T(3, 2))
        run(T(4, 2))
    """,
    ),
    "function_vmap_static": (
        1,
        """
        class Sq(torch.autograd.Function):
            @staticmethod
            def forward(x): return x ** 2
            @staticmethod
            def setup_context(ctx, inputs, output): ctx.save_for_backward(inputs[0])
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * 2 * x
            @staticmethod
            def vmap(info, in_dims, x):
                return Sq.apply(x) + 1, in_dims[0]
        def f(x): return torch.func.vmap(Sq.apply)(x)
        ---
        run(T(3, 2))
    """,
    ),
    "function_rules_with_effects": (
        None,
        """
        class Sq(torch.autograd.Function):
            @staticmethod
            def forward(x): return x ** 2
            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_forward(inputs[0]); ctx.save_for_backward(inputs[0])
            @staticmethod
            def backward(ctx, g): return g * 2 * ctx.saved_tensors[0]
            @staticmethod
            def jvp(ctx, t):
                log.append("jvp")
                return 2 * ctx.saved_tensors[0] * t
            @staticmethod
            def vmap(info, in_dims, x):
                log.append(("vmap", in_dims, info.batch_size))
                return Sq.apply(x), in_dims[0]
        def mapped(x): return torch.func.vmap(Sq.apply)(x)
        def tangent(x): return torch.func.jvp(lambda t: Sq.apply(t) * 2, (x,), (torch.ones_like(x),))
        def f(g, x): return g(x), x * 2
        ---
        run(mapped, T(3, 2))
        run(mapped, T(3, 2))
        run(tangent, T(3))
        run(tangent, T(3))
        run(mapped, T(3, 2, grad=True))
        run(tangent, T(3, grad=True))
        run(tangent, T(3, grad=True))
    """,
    ),
    "function_jvp": (
        1,
        """
        class Sq(torch.autograd.Function):
            @staticmethod
            def forward(x): return x ** 2
            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_forward(inputs[0]); ctx.save_for_backward(inputs[0])
            @staticmethod
            def backward(ctx, g): return g * 2 * ctx.saved_tensors[0]
            @staticmethod
            def jvp(ctx, t): return 2 * ctx.saved_tensors[0] * t
        def f(x): return torch.func.jvp(lambda t: Sq.apply(t), (x,), (torch.ones_like(x),))
        ---
        run(T(3))
    """,
    ),
    "function_double": (
        1,
        """
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x ** 3
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return 3 * x * x * g
        def f(x):
            y = Cube.apply(x).sum()
            g, = torch.autograd.grad(y, x, create_graph=True)
            return (g * g).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "function_ste": (
        1,
        """
        class Ste(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, lo, hi):
                ctx.save_for_backward(x)
                ctx.lo, ctx.hi = lo, hi
                return x.clamp(lo, hi).round()
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                m = (x >= ctx.lo) & (x <= ctx.hi)
                return g * m, None, None
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.q = Ste.apply
                self.w = nn.Parameter(T(3, 3))
            def forward(self, x): return x @ self.q(self.w, -1, 1)
        m = M()
        def f(x): return m(x).sum()
        ---
        run(T(2, 3)).backward()
        m.w.grad
    """,
    ),
    "checkpoint": (
        1,
        """
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts, CheckpointPolicy
        l = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
        def f(x):
            y = checkpoint(l, x, use_reentrant=False)
            z = checkpoint_sequential(l, 2, y, use_reentrant=False)
            return z.sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "checkpoint_reentrant": (
        1,
        """
        from torch.utils.checkpoint import checkpoint
        l = nn.Linear(3, 3)
        def f(x):
            return checkpoint(l, x, use_reentrant=True).sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "checkpoint_selective": (
        1,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, CheckpointPolicy
        l = nn.Linear(3, 3)
        def policy(ctx, op, *a, **k):
            return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default or op is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE
        def f(x):
            return checkpoint(lambda t: l(t).sin().cos(), x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy)).sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "checkpoint_dropout": (
        1,
        """
        from torch.utils.checkpoint import checkpoint
        l = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        def f(x, flag):
            def body(a, *, k): return l(a) * k
            return checkpoint(body, x, k=2.0, use_reentrant=False, preserve_rng_state=flag).sum()
        ---
        x = T(2, 3, grad=True)
        run(x, True).backward()
        x.grad
    """,
    ),
    "transforms_nested": (
        1,
        """
        from torch.func import grad, vmap, jacrev, jacfwd, hessian, vjp, jvp, functional_call, stack_module_state, linearize
        m = nn.Linear(3, 3)
        def f(x):
            p = dict(m.named_parameters())
            def loss(p, x): return functional_call(m, p, (x,)).pow(2).sum()
            per = vmap(grad(loss), in_dims=(None, 0))(p, x)
            h = hessian(lambda t: (t ** 3).sum())(x[0])
            j = jacfwd(jacrev(lambda t: t.sin()))(x[0])
            o, pull = vjp(lambda t: t.cos() * 2, x)
            return per, h, j, pull(torch.ones_like(o))
        ---
        run(T(2, 3))
    """,
    ),
    "function_dict_state": (
        3,
        """
        class Q(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, cfg):
                s = x.abs().max() / cfg['levels']
                q = (x / s).round()
                ctx.save_for_backward(x, s)
                ctx.cfg = cfg
                return q * s, s
            @staticmethod
            def backward(ctx, g, gs):
                x, s = ctx.saved_tensors
                return g * (x.abs() < ctx.cfg['clip']), None
        cfg = dict(levels=7, clip=1.0)
        def f(x):
            y, s = Q.apply(x, cfg)
            return y.sum() + s
        ---
        x = T(5, grad=True)
        run(x).backward()
        x.grad
        cfg['levels'] = 3
        run(x).backward()
        x.grad
        cfg = dict(levels=2, clip=0.3)
        run(x).backward()
        x.grad
        y = run(x)
        cfg['clip'] = 0.1
        y.backward()
        x.grad
    """,
    ),
    "function_obj_state": (
        2,
        """
        class Cfg:
            def __init__(self): self.k = 2.0; self.bound = torch.tensor(0.5)
        class Q(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, cfg, fn):
                ctx.save_for_backward(x); ctx.cfg = cfg
                return fn(x) * cfg.k + cfg.bound
            @staticmethod
            def backward(ctx, g): return g * ctx.cfg.k, None, None
        c = Cfg()
        def f(x): return Q.apply(x * 1, c, torch.sin).sum() * 2
        ---
        x = T(5, grad=True)
        run(x).backward()
        x.grad
        c.bound.add_(1)
        run(x)
        c.k = 4.0
        run(x).backward()
        x.grad
    """,
    ),
    "function_fn_checkpointlike": (
        1,
        """
        class Ck(torch.autograd.Function):
            @staticmethod
            def forward(ctx, fn, n, x):
                ctx.fn = fn; ctx.save_for_backward(x)
                with torch.no_grad(): return fn(x)
            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                x = x.detach().requires_grad_()
                with torch.enable_grad(): y = ctx.fn(x)
                torch.autograd.backward(y, g)
                return None, None, x.grad
        m = nn.Linear(3, 3)
        def f(x): return Ck.apply(m, 3, x).sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad
        m.weight.grad
    """,
    ),
    "function_mem_tensor": (
        1,
        """
        class Mem:
            def __init__(self): self.buf = torch.zeros(3)
        class Q(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, mem): return x + mem.buf
            @staticmethod
            def backward(ctx, g): return g * 2, None
        mem = Mem()
        def f(x):
            mem.buf.add_(x.detach())
            y = Q.apply(x, mem).sum()
            mem.buf.mul_(2)
            return y, Q.apply(x, mem)
        ---
        x = T(3, grad=True)
        run(x)[0].backward()
        x.grad
        run(x)
        mem.buf
    """,
    ),
    "function_global_tensor_written": (
        1,
        """
        W = T(3)
        class Q(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * W
            @staticmethod
            def backward(ctx, g): return g * 2
        def f(x):
            W.add_(1)
            y = Q.apply(x * 1).sum()
            W.mul_(2)
            return y + Q.apply(x).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad
        run(x)
    """,
    ),
    "function_self_backward": (
        1,
        """
        class Neg(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return -x
            @staticmethod
            def backward(ctx, g): return Neg.apply(g)
        def f(x): return Neg.apply(x * 2).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad
    """,
    ),
    "functional_call_tied": (
        2,
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__(); self.a = nn.Linear(3, 3, bias=False); self.b = nn.Linear(3, 3, bias=False); self.b.weight = self.a.weight
            def forward(self, x): return self.b(self.a(x) + 1)
        m = M()
        def f(x, w):
            tied = torch.func.functional_call(m, {'a.weight': w}, (x,)), torch.func.functional_call(m, {'b.weight': w}, (x,))
            same = torch.func.functional_call(m, {'a.weight': w, 'b.weight': w}, (x,))
            loose = torch.func.functional_call(m, {'a.weight': w}, (x,), tie_weights=False)
            return tied, same, loose, torch.func.grad(lambda v: torch.func.functional_call(m, {'b.weight': v}, (x,)).sum())(w)
        ---
        run(T(2, 3), T(3, 3))
        m.b.weight = nn.Parameter(T(3, 3) * 2)
        run(T(2, 3), T(3, 3))
    """,
    ),
    "vmap_index_of_examples": (
        1,
        """
        def f(x, i): return torch.vmap(lambda a, j: -a.log_softmax(0)[j])(x, i)
        ---
        run(T(4, 3), torch.tensor([0, 2, 1, -1]))
        run(T(4, 3), torch.tensor([0, 2, 1, -3]))
    """,
    ),
    "vmap_index_keys": (
        1,
        """
        def f(x, i): return torch.vmap(lambda a, j: (a[:, j], a[1, j], a[j, :], a[j, 1:], a[j, None], a[..., j]))(x, i)
        ---
        run(T(4, 3, 3), torch.tensor([0, 2, 1, -1]))
    """,
    ),
    "vmap_index_keys_of_new_dims": (
        1,
        """
        def f(x, i): return torch.vmap(lambda a, j: (a[None, :, j], a[..., None, j], a[j, ..., 0], a[j, ::2]))(x, i)
        ---
        run(T(4, 3, 3), torch.tensor([0, 2, 1, -1]))
    """,
    ),
    "vmap_index_out_of_range": (
        1,
        """
        def f(x, i): return torch.vmap(lambda a, j: a[j])(x, i)
        ---
        run(T(4, 3), torch.tensor([0, 2, 1, 7]))
    """,
    ),
    "vmap_index_inside_grad": (
        0,
        """
        def loss(w, x, y):
            o = (x @ w).log_softmax(-1)
            return -o[y]
        def f(w, x, y): return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)
        ---
        run(T(3, 5), T(4, 3), torch.tensor([0, 2, 1, -1]))
    """,
    ),
    "function_without_gradients_finds_parameters": (
        3,
        """
        lin = nn.Linear(3, 3)
        class Apply(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                log.append((ctx.needs_input_grad, torch.is_grad_enabled()))
                return lin(x), lin(x).requires_grad
            @staticmethod
            def backward(ctx, g, _): return g
        def f(x):
            y, inside = Apply.apply(x)
            return y, inside, y.requires_grad
        def without(x):
            with torch.no_grad(): return run(x)
        ---
        run(T(2, 3))
        without(T(2, 3))
        without(T(2, 3, grad=True))
    """,
    ),
    "function_without_gradients_returns_an_argument": (
        3,
        """
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x
            @staticmethod
            def backward(ctx, g): return g
        class Written(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.mark_dirty(x)
                return x.add_(1), x * 2
            @staticmethod
            def backward(ctx, g, _): return g
        def f(x):
            y = Same.apply(x)
            with torch.no_grad():
                z, w = Written.apply(x)
            return y, y is x, z, z.requires_grad, w
        def without(x):
            with torch.no_grad(): return run(x), x
        ---
        run(T(3))
        without(T(3))
        without(T(3, grad=True))
    """,
    ),
    "dual_numbers": (
        [1],
        """
        import torch.autograd.forward_ad as fwd
        m = nn.Sequential(nn.Linear(3, 3), nn.GELU())
        def f(x, t):
            o = torch.zeros_like(x)
            with fwd.dual_level():
                d = fwd.make_dual(x, t)
                y = m(d * 2).sin()
                o.copy_(d * d)
                return fwd.unpack_dual(y), fwd.unpack_dual(o).tangent, fwd.unpack_dual(x * 2), o
        def after(x, t):
            r = run(x, t)
            m.zero_grad()
            r[0].tangent.pow(2).sum().backward()
            return r, [p.grad for p in m.parameters()], fwd._current_level, fwd.unpack_dual(r[3])
        ---
        after(T(2, 3), T(2, 3) + 1)
        after(T(2, 3) - 2, T(2, 3) * 2)
    """,
    ),
    "dual_numbers_over_a_break": (
        SOME,
        """
        import torch.autograd.forward_ad as fwd
        def f(x, t):
            y = x.sin()
            with fwd.dual_level():
                d = fwd.make_dual(y, t) * y
                torch._dynamo.graph_break()
                print(end="")
                r = fwd.unpack_dual(d * 2)
            return r.tangent + y, fwd._current_level
        def inside(x, t):
            with fwd.dual_level():
                return fwd.unpack_dual(run(fwd.make_dual(x, t), t)[0]).tangent
        ---
        run(T(3), T(3))
        run(T(3), T(3) + 1)
        inside(T(3), T(3))
    """,
    ),
    "dual_numbers_and_exceptions": (
        None,
        """
        import torch.autograd.forward_ad as fwd
        def f(x, t):
            with fwd.dual_level():
                y = fwd.make_dual(x, t)
                return fwd.unpack_dual(torch.linalg.cholesky(y)).tangent
        def tried(x):
            try: r = run(x, x)
            except Exception as e: r = type(e).__name__
            fwd.exit_dual_level(level=fwd.enter_dual_level())
            return r, fwd._current_level
        ---
        tried(torch.eye(3))
        tried(-torch.eye(3))
        tried(torch.eye(3).int())
        tried(torch.eye(3) * 2)
    """,
    ),
}
