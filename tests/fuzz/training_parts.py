"""What random training programs are made of: expressions, views, writes, hooks, steps as text.

A, B: tensors of rows of four. V: any tensor. K: a number. E: an expression. L: a name to log.
"""

PREAMBLE = """
import copy
import dynamo
import weakref
from torch.utils.checkpoint import checkpoint
F = nn.functional
handles, kept = [], []
# Of hooks of tensors: between them, autograd promises no order.
logs = {name: [] for name in ['w', 'new', 'accumulated', *(f'l{i}' for i in range(9))]}
def known(t):
    # torch crashes: register_hook of a view whose base was written, and whose history none asked.
    t.grad_fn is None
    return t
def seen(name):
    def hook(g):
        logs[name].append(g)
    return hook
def scaled(name):
    def hook(g):
        logs[name].append(1)
        return g * 2
    return hook
def refused(g):
    raise ValueError('refused')
def accumulated(p):
    logs['accumulated'].append(p.grad.clone())
def before(module, args):
    log.append(('before', args[0].shape))
def changed(module, args):
    return (args[0] * 2, *args[1:])
def after(module, args, out):
    log.append('after')
def replaced(module, args, out):
    return out * 2 if isinstance(out, torch.Tensor) else None
def backward_seen(module, gin, gout):
    log.append(('backward', gout[0]))
def backward_replaced(module, gin, gout):
    return tuple(g if g is None else g * 2 for g in gin)
def once(module, args, out):
    log.append('once')
    once_handle[0].remove()
once_handle = []
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(-2, 2).exp()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k, name=None):
        ctx.k, ctx.name = k, name
        log.append(('scaled', k))
        return x * k
    @staticmethod
    def backward(ctx, g):
        log.append(('backward', ctx.k, ctx.name))
        return g * ctx.k, None, None
class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(3)
        return x
    @staticmethod
    def backward(ctx, g): return g * 3
class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        return x + sign, sign
    @staticmethod
    def backward(ctx, g, _): return g
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x + y, x * 2
    @staticmethod
    def backward(ctx, g, h):
        log.append((g is None, h is None))
        first = None if g is None else g
        return first if h is None else h * 2 if g is None else g + h * 2, first
class Needed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        log.append(ctx.needs_input_grad)
        return (g @ w.t() if ctx.needs_input_grad[0] else None,
                x.t() @ g if ctx.needs_input_grad[1] else None)
class New(torch.autograd.Function):
    @staticmethod
    def forward(x, k): return x * k
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.k = inputs[1]
    @staticmethod
    def backward(ctx, g): return g * ctx.k, None
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(T(4, 4) * 0.5)
        self.b = nn.Parameter(T(4))
        self.frozen = nn.Parameter(T(4) + 1, requires_grad=False)
        self.register_buffer('mean', torch.zeros(4))
        self.register_buffer('count', torch.zeros((), dtype=torch.int64))
        self.inner = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)
        self.memory = None
        self.calls = 0
def block(x): return (x @ net.w).tanh() + net.b
def dropped(x): return F.dropout(x @ net.w, 0.5)
def total(out):
    if isinstance(out, torch.Tensor):
        return out.double().sum() if out.is_floating_point() else 0
    if isinstance(out, dict): out = out.values()
    if isinstance(out, (list, tuple, type({}.values()))): return sum(map(total, out))
    return 0
"""

STARTS = [
    "y, z, v, out = x * 1, x + 1, x, x",
    "y, z, v, out = x @ net.w, x * net.b, x, x",
    "y, z, v, out = x * net.b, x, x @ net.w, x",
]
EXPRESSIONS = """
A + B; A * K; A @ net.w; A @ net.w.t() + net.b; net.inner(A); A.sin(); A.relu(); A * A; A - B
net.drop(A); F.dropout(A, 0.5, net.training); A.detach(); A.clone(); A * net.b; A + net.frozen
A * V.sum(); A + net.mean; A.data; A.detach() * B; A.view_as(A); A[:]; A.t().t(); A.contiguous()
torch.cat([A[:1], B[1:]]); torch.stack([A, B]).sum(0); torch.stack([A, B]).unbind()[0]; A.flip(0)
A.expand(2, -1, -1)[1]; A.softmax(1); Double.apply(A); Squared.apply(A); Exp.apply(A)
Scaled.apply(A, K); Scaled.apply(A, K, 'L'); Written.apply(A * 1); Both.apply(A, B)[0]
Both.apply(A, B)[1]; Marked.apply(A)[0]; Needed.apply(A, net.w); New.apply(A, K)
checkpoint(block, A, use_reentrant=False); checkpoint(dropped, A, use_reentrant=False)
checkpoint(block, A, use_reentrant=True); A.cumsum(0); torch.where(A > 0, A, B); net.norm(A)
A.masked_fill(B > 0, 0.5); F.linear(A, net.w, net.b); F.layer_norm(A, (4,), net.b)
A.double().float(); A.max(1, keepdim=True).values + B; A.sort(0).values; A + V.mean()
sum(A.unbind(1))[:, None] + B; torch.cat(A.split(2, 1)[::-1], 1); A.detach().requires_grad_()
A.new_zeros(A.shape).copy_(B); torch.zeros_like(A).index_add(0, torch.tensor([0]), B[:1])
A.to(torch.float32); (A if A.requires_grad else B); copy.copy(A); A * net.count; A.reshape(-1, 4)
torch.utils._pytree.tree_map(lambda t: t * 2, [A, B])[1]; (net.memory if net.calls else A) * B
(kept[-1].sum() if kept else 1) * A; torch.func.grad(lambda t: (t * t * B.detach()).sum())(A)
torch.func.vmap(lambda t: t @ net.w)(A); A + (0 if net.w.grad is None else net.w.grad.sum())
torch.addmm(net.b, A, net.w); A.clone().mul_(B); (A * 1).relu_(); A.double().sin().to(A.dtype)
net(A) if n > 1 else A * 3; functools.reduce(operator.add, A.unbind(0))[None] + B; A.T.contiguous().T
torch.einsum('ij,jk->ik', A, net.w); A.unsqueeze(0).expand(2, -1, -1).sum(0); A.where(B > 0, net.b)
"""
VIEWS = """
A[1:]; A.t(); A[:, 0]; A.unbind(1)[1]; A.split(2, 1)[0]; A.diagonal(); A.view(-1); A[None]
A.as_strided((2, 2), (4, 1), 1); A.expand(2, -1, -1); A.narrow(1, 1, 2); A.chunk(2, 1)[1]; A[0]
A.detach(); A.detach()[1:]; A.data; A.data[:, 1:]; A.reshape(-1); A[..., 1::2]; A.view_as(A)
A.squeeze(); A.mT; A.unflatten(1, (2, 2)); A.view(-1)[:4]; A; net.w; net.w[0]; net.w.data; net.b
net.mean; net.w.detach()[1]; net.frozen; A.clone()[1:]; net.b.expand(2, 4); net.inner.weight.t()
net.w.grad; A.grad
"""
WRITES = """
V.mul_(K); V.add_(1); V.zero_(); V.fill_(K); V[0] = K; V[...] = 1; V += K; V *= 2; V.relu_()
V.copy_(V * 2); V[V > 0] = 0.5; V.clamp_(-1, 1); V.add_(A.sum()); V[..., :1] = A.mean(); V.sin_()
V.detach_(); V.requires_grad_(); V.masked_fill_(V > 1, 0); V.data.mul_(2); V.detach().add_(1)
V[-1:] = V[:1]; V.t_() if V.dim() == 2 else 0; V.index_fill_(0, torch.tensor([0]), K); V.neg_()
V.data = V.data * 2; V.data = V.data.clone(); V.set_(V.detach().clone()); V.squeeze_(); V /= 2
V.index_add_(0, torch.tensor([0]), V[:1].detach() * 2); V.random_(3); V.normal_(); V.add_(V); V.sub_(B.sum())
"""
HOOKS = """
known(A).register_hook(seen('L')); known(A).register_hook(scaled('L')); handles.append(known(A).register_hook(seen('L')))
known(V).register_hook(lambda g: g + 1); A.retain_grad(); known(A).register_hook(lambda g: logs['L'].append(g.sum()))
known(A).register_hook(refused); net.w.register_hook(lambda g: None); handles.append(known(A).register_hook(scaled('L')))
net.w.register_hook(scaled('L')); handles.append(net.w.register_hook(seen('L')))
net.b.register_post_accumulate_grad_hook(accumulated); V.retain_grad()
handles.append(net.inner.register_forward_hook(after)); h = known(A).register_hook(seen('L'));h.remove()
A.grad_fn.register_hook(lambda gi, go: logs['L'].append(2)) if A.grad_fn is not None else None
"""
# Of the frame or around it.
TRAINING = """
A.sum().backward(); A.pow(2).sum().backward(retain_graph=True); total(out).backward()
(A.sum() + B.sum()).backward(); A.backward(torch.ones_like(A)); V.sum().backward()
log.append(torch.autograd.grad(A.sum(), [net.w], allow_unused=True, retain_graph=True))
log.append(torch.autograd.grad(A.sum(), B, allow_unused=True))
g, = torch.autograd.grad(A.pow(3).sum(), net.w, create_graph=True, allow_unused=True);(g * g).sum().backward()
g, = torch.autograd.grad(A.sin().sum(), B, create_graph=True, allow_unused=True);z = z + 0 if g is None else z + g
A.mean().backward(inputs=[net.w]); opt.step(); opt.zero_grad(); opt.zero_grad(set_to_none=False)
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
net.w.grad = None; net.w.grad = torch.ones(4, 4); net.w.grad = T(4, 4).t(); net.zero_grad()
torch.autograd.backward([A.sum(), B.sum()]); A.sum().backward(inputs=[net.b]); x.grad = None
net.w.grad.mul_(2) if net.w.grad is not None else None; net.b.grad = net.b.grad
A.sum().backward();opt.step(); opt.step();opt.zero_grad(); A.sum().backward()
"""
STATE = """
net.mean.mul_(0.9).add_(A.detach().mean(0) * 0.1); net.mean = net.mean + A.detach().mean(0)
net.count += 1; net.count.add_(1); net.calls += 1; net.memory = A; net.memory = A.detach()
kept.append(A); kept.append(V); kept[:] = [A]; net.mean.copy_(A.detach()[0]); log.append(A.requires_grad)
log.append((A.is_leaf, V.requires_grad)); log.append(net.training); log.append(A.shape); log.append(V)
log.append(A.data_ptr() == V.data_ptr()); log.append(A._version); log.append(V._is_view())
log.append(V._base is A); log.append(A.grad is None); log.append(A.grad_fn is None); log.append('L')
net.mean.data = A.detach()[0].clone(); net.frozen.add_(1); dynamo.graph_break(); print('L')
log.append(V.stride()); log.append(A.detach().sum().item() > 0); log.append(A.output_nr)
ema.w.mul_(0.9).add_(net.w, alpha=0.1); ema.w.data.lerp_(net.w.data, 0.5)
ema.load_state_dict(net.state_dict()); net.w.data.mul_(0.9); net.w.data.copy_(ema.w.data)
torch._foreach_mul_([p.data for p in net.parameters()], 0.9); net.w.data = net.w.data * 0.5
net.w.data, ema.w.data = ema.w.data, net.w.data; log.append(net.w.grad); net.mean[:] = A.detach()[-1]
handles.pop().remove() if handles else None; x.requires_grad_(False); log.append(net.b.grad is x.grad)
net.w = nn.Parameter(net.w.detach() * 2); net.b.requires_grad_(False); net.b.requires_grad_(True)
"""
WRAPS = """
with torch.no_grad():; with torch.no_grad():; with torch.enable_grad():; if n:; if net.training:
with torch.set_grad_enabled(n > 0):; for turn in range(2):; if A.requires_grad:; if V.sum() > 0:
with torch.inference_mode():
"""
SETUPS = """
net.w.register_hook(seen('w')); handles.append(net.w.register_hook(scaled('w')))
handles.append(net.b.register_post_accumulate_grad_hook(accumulated))
handles.append(net.register_forward_hook(after)); net.register_forward_hook(replaced)
handles.append(net.register_forward_pre_hook(before)); net.inner.register_forward_pre_hook(changed)
handles.append(net.inner.register_full_backward_hook(backward_seen))
net.inner.register_full_backward_hook(backward_replaced); handles.append(net.inner.register_forward_hook(replaced))
once_handle.append(net.inner.register_forward_hook(once)); net.tied = net.w; net.inner.weight = net.w
net.inner.weight.requires_grad_(False); net.drop.p = 0.1; net.eval(); net.inner.eval()
net.w.grad = torch.zeros(4, 4); net.w.data = net.w.data.t(); net.norm.momentum = None
net.register_full_backward_hook(backward_seen); net.w.requires_grad_(False); net.memory = T(3, 4)
"""
OPTIMIZERS = """
torch.optim.SGD(net.parameters(), lr=0.1); torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch.optim.Adam(net.parameters(), lr=0.01); torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
torch.optim.SGD([{'params': [net.w], 'lr': 0.2}, {'params': [net.b]}], lr=0.1, nesterov=True, momentum=0.9)
torch.optim.RMSprop(net.parameters(), lr=0.01); torch.optim.Adagrad(net.parameters(), lr=0.01)
"""
# Between calls.
CHANGES = """
net.eval(); net.train(); net.w.requires_grad_(False); net.w.requires_grad_(True); net.zero_grad()
opt.zero_grad(); opt.zero_grad(set_to_none=False); opt.step(); net.w = nn.Parameter(T(4, 4))
net.b.grad = None; net.w.grad = T(4, 4).t(); net.w.grad = torch.ones(4, 4); net.w.data = net.w.data.t()
net.w.data = net.w.data.clone(); handles.pop().remove(); handles.append(net.register_forward_hook(after))
handles.append(net.inner.register_forward_hook(replaced)); handles.append(net.w.register_hook(seen('new')))
handles.append(net.b.register_post_accumulate_grad_hook(accumulated)); once_handle[:] = [net.inner.register_forward_hook(once)]
handles.append(net.register_full_backward_hook(backward_seen)); result = None; net.mean = torch.ones(4)
net.register_buffer('mean', None); net.memory = T(3, 4); net.inner = nn.Linear(4, 4, bias=False)
net.inner.weight = net.w; net.tied = net.w; net.drop.p = 0.3; net.load_state_dict(ema.state_dict())
net = copy.deepcopy(net); opt.param_groups[0]['lr'] = 0.05; a = T(3, 4, grad=True); a = T(2, 4)
a.grad = None; kept.clear(); torch.manual_seed(3); net.calls = 0; net.frozen.requires_grad_(True)
kept[-1].sum().backward(); kept[-1].add_(1); result.mul_(2); net.w.grad.zero_(); a.data = T(3, 4) * 2
net.double(); net.float(); net.requires_grad_(False); net.requires_grad_(); net.mean.add_(1)
handles.append(net.w.register_hook(refused)); net.b.grad = net.b.grad
total(kept).backward(); total(result).backward(retain_graph=True); a.requires_grad_(); a = a.detach()
"""
ARGUMENTS = """
T(3, 4); T(3, 4); T(2, 4); T(5, 4); T(3, 4, grad=True); a; a; T(4, 3).t(); T(6, 4)[::2]; T(1, 4)
a * 1; T(3, 8)[:, ::2]; T(4).expand(3, 4); T(3, 4) + 1; T(3, 4, dtype=torch.float64); a[:]; a.data
"""
# What is done with results; R: the call.
CALLS = """
result = R; result = R; total(R).backward(); result = R;total(result).backward()
with torch.no_grad(): result = R; with torch.inference_mode(): result = R
loss = total(R);loss.backward(retain_graph=True);loss.backward()
result = R;log.append(torch.autograd.grad(total(result), a, allow_unused=True))
out = R;total(out).backward();opt.step();opt.zero_grad()
a1 = R;a2 = R;(total(a1) + total(a2)).backward()
"""
RETURNS = ["y", "y", "y, z", "y, v", "[y, v.detach()]", "{'y': y, 'v': v}", "y.sum()", "x, y", "z"]
