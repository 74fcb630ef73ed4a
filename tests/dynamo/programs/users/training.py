"""Steps of training, modes, hooks and state dicts."""

from tests.dynamo.differential import SOME

PROGRAMS = {
    "encoder_with_a_mask": (
        2,
        """
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        m = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        causal = nn.Transformer.generate_square_subsequent_mask(3)
        other = causal.T.contiguous()
        def f(x, mask): return m(x, mask=mask)
        ---
        x = T(2, 3, 4, grad=True)
        run(x, causal).sum().backward()
        run(x, other).sum().backward()
        run(x, causal)
        x.grad
    """,
    ),
    "selective_checkpoint": (
        1,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts, CheckpointPolicy as P
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        def policy(ctx, op, *args, **kwargs):
            return P.MUST_SAVE if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else P.PREFER_RECOMPUTE
        def f(x):
            made = functools.partial(contexts, policy)
            return checkpoint(m, x.sin(), use_reentrant=False, context_fn=made).cos()
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        run(x).sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "selective_checkpoint_of_operators": (
        1,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts, CheckpointPolicy as P
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        def made(): return contexts([torch.ops.aten.addmm.default])
        def f(x): return checkpoint(m, x.sin(), use_reentrant=False, context_fn=made).cos()
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        run(x).sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "selective_checkpoint_that_counts": (
        SOME,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts, CheckpointPolicy as P
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        count = [0]
        def policy(ctx, op, *args, **kwargs):
            count[0] += op is torch.ops.aten.addmm.default
            return P.MUST_SAVE if count[0] % 2 else P.PREFER_RECOMPUTE
        def f(x):
            y = x.sin()
            return checkpoint(m, y, use_reentrant=False, context_fn=lambda: contexts(policy)).cos()
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        run(x).sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "selective_checkpoint_that_notes_an_operator": (
        SOME,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts, CheckpointPolicy as P
        m = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 3))
        def policy(ctx, op, *args, **kwargs):
            if op is torch.ops.aten.sigmoid.default: log.append("sigmoid")
            return P.MUST_SAVE
        def f(x):
            y = x.sin()
            return checkpoint(m, y, use_reentrant=False, context_fn=lambda: contexts(policy)).cos()
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        run(x).sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "checkpoint_with_own_contexts": (
        SOME,
        """
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts, CheckpointPolicy as P
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        @contextlib.contextmanager
        def noted(name):
            log.append("in " + name)
            yield
            log.append("out " + name)
        def f(x):
            y = x.sin()
            made = lambda: (noted("forward"), noted("again"))
            return checkpoint(m, y, use_reentrant=False, context_fn=made).cos()
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        run(x).sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "train_eval": (
        4,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x): return m(x)
        ---
        run(T(2, 3))
        m.eval() is m
        run(T(2, 3))
        m[1].train() is m[1]
        run(T(2, 3))
        m.train() is m
        run(T(2, 3))
        m[2].momentum = 0.5
        run(T(2, 3))
    """,
    ),
    "hooks_change": (
        4,
        """
        m = nn.Linear(3, 3)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x): return m(x)
        def hook(mod, i, o):
            log.append('h')
            return o * 2
        def pre(mod, i): return (i[0] + 1,)
        ---
        run(T(2, 3))
        h = m.register_forward_hook(hook)
        run(T(2, 3))
        h2 = m.register_forward_pre_hook(pre)
        run(T(2, 3))
        h.remove()
        run(T(2, 3))
        h2.remove()
        run(T(2, 3))
        h = h2 = None
    """,
    ),
    "global_hooks": (
        2,
        """
        m = nn.Linear(3, 3)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x): return m(x)
        def hook(mod, i, o): return o * 2
        ---
        run(T(2, 3))
        h = nn.modules.module.register_module_forward_hook(hook)
        run(T(2, 3))
        h.remove()
        run(T(2, 3))
        h = None
    """,
    ),
    "training_step_sgd": (
        2,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        def f(x, y):
            opt.zero_grad()
            loss = torch.nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.step()
            return loss.detach()
        ---
        run(T(4, 3), T(4, 2))
        run(T(4, 3), T(4, 2))
        run(T(4, 3), T(4, 2))
        m.weight
        opt = None
    """,
    ),
    "training_step_adam_sched": (
        3,
        """
        __m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in __m.parameters(): p.fill_(0.3)
        p = None
        __opt = torch.optim.Adam(__m.parameters(), lr=0.1)
        __sch = torch.optim.lr_scheduler.StepLR(__opt, 2)
        def f(x, y):
            __opt.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(__m(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(__m.parameters(), 1.0)
            __opt.step()
            __sch.step()
            return loss.detach().round(decimals=4)
        ---
        run(T(4, 3), T(4, 2))
        run(T(4, 3), T(4, 2))
        run(T(4, 3), T(4, 2))
        __m.weight.round(decimals=4)
        __sch.get_last_lr()
    """,
    ),
    "training_step_item": (
        1,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        losses = []
        def f(x, y):
            loss = torch.nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
            return loss.item()
        ---
        run(T(4, 3), T(4, 2))
        run(T(4, 3), T(4, 2))
        opt = None
    """,
    ),
    "epoch_loop": (
        2,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        def f(data):
            total = 0.0
            for i, (x, y) in enumerate(data):
                opt.zero_grad()
                loss = torch.nn.functional.mse_loss(m(x), y)
                loss.backward()
                opt.step()
                total += loss.detach()
                if i % 2 == 0:
                    print(f"batch {i}")
            return total / len(data)
        ---
        data = [(T(4, 3), T(4, 2)) for _ in range(3)]
        run(data)
        run(data)
        data = opt = None
    """,
    ),
    "grad_accumulate": (
        1,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(xs):
            for x in xs:
                (m(x).sum() / len(xs)).backward()
            norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in m.parameters()))
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            return norm
        ---
        run([T(4, 3), T(4, 3)])
        run([T(4, 3), T(4, 3)])
        m.weight
    """,
    ),
    "generator_and_discriminator": (
        SOME,
        """
        G, D = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
        loss = nn.BCELoss()
        def f(x, z):
            D.zero_grad()
            label = torch.full((2,), 1.0)
            real = loss(D(x).view(-1), label); real.backward()
            fake = G(z)
            label.fill_(0)
            out = D(fake.detach()).view(-1); made = loss(out, label); made.backward()
            seen = out.mean().item()
            both = real + made  # of losses that were differentiated before the break
            G.zero_grad()
            label.fill_(1)
            loss(D(fake).view(-1), label).backward()
            return both.item(), seen
        ---
        run(T(2, 3), T(2, 2))
        run(T(2, 3), T(2, 2))
        [p.grad for m in (G, D) for p in m.parameters()]
    """,
    ),
    "ema": (
        2,
        """
        m = nn.Linear(3, 2); e = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
            for p in e.parameters(): p.fill_(0.2)
        p = None
        @torch.no_grad()
        def f(decay):
            for a, b in zip(e.parameters(), m.parameters()):
                a.mul_(decay).add_(b, alpha=1 - decay)
            for a, b in zip(e.buffers(), m.buffers()):
                a.copy_(b)
        ---
        run(0.9)
        run(0.9)
        e.weight
        run(0.99)
        e.weight
    """,
    ),
    "state_dict_inside": (
        1,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x):
            sd = m.state_dict()
            sd = {k: v * 2 for k, v in sd.items()}
            y = torch.func.functional_call(m, sd, (x,))
            return y, list(sd)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "load_state_dict_inside": (
        1,
        """
        m = nn.Linear(3, 2); n = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
            for p in n.parameters(): p.fill_(0.7)
        p = None
        def f(x):
            m.load_state_dict(n.state_dict())
            return m(x)
        ---
        run(T(3))
        run(T(3))
        m.weight
    """,
    ),
    "module_to_inside": (
        2,
        """
        m = nn.Linear(3, 2)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.3)
        p = None
        def f(x):
            m.to(x.device)
            m.train()
            m.requires_grad_(False)
            return m(x)
        ---
        run(T(3))
        run(T(3))
        m.weight.requires_grad
    """,
    ),
}
