"""One change between two calls: modules, weights, hooks, tensors, and torch's global settings."""

from __future__ import annotations

import copy

import pytest
import torch

import dynamo
from tests.dynamo.mutations import check_pair, pairs_of

PROGRAMS = {
    "a class that torch makes": """
        torch.manual_seed(0)
        m = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        old = nn.Linear.forward
        def f(x): return m(x.view(1, 3))
        ---
        type(m).forward = lambda self, x: old(self, x) * 2  # undo: del type(m).forward
        nn.Linear.forward = lambda self, x: old(self, x) * 2  # undo: nn.Linear.forward = old
    """,
    "the order of children of which one was deleted": """
        n = nn.Sequential(nn.ReLU(), nn.Softmax(-1), nn.Tanh())
        del n[2]
        def f(x): return n(x)
        ---
        n._modules.move_to_end('0')
        n._modules = dict(n._modules); n[0] = nn.Tanh()
        n[0] = nn.Tanh()
    """,
    "derivatives": """
        t = T(3)
        def f(x): return x * 2, torch.func.grad(lambda v: (v * v).sum())(t)
        ---
        exec('with torch.inference_mode(): t = T(3) + 1', globals())
        t = T(3) + 1
    """,
    "modules": """
        torch.manual_seed(0)
        class N(nn.Module):
            scale = 2
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
                self.drop = nn.Dropout(1.0)
                self.norm = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
                self.act = nn.ReLU()
                self.register_buffer('b', torch.ones(3))
                self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Identity()])
                self.table = nn.ModuleDict({'a': nn.Identity()})
                self.flag = True
            def forward(self, x):
                x = self.act(self.lin(x.view(1, 3))) * self.b * self.scale
                for layer in self.layers: x = layer(x)
                if self.flag: x = self.drop(x) + 1
                if not self.training: x = x - 5
                return self.table['a'](x)
        n = N().eval()
        other = nn.Linear(3, 3)
        def f(x): return n(x)
        ---
        n.train()  # undo: n.eval()
        n.drop.train()  # undo: n.drop.eval()
        n.drop.p = 0.5; n.drop.train()
        n.flag = False
        n.scale = 3
        N.scale = 4
        n.lin = other
        n.lin.weight = other.weight
        n.lin.weight.data = other.weight.data
        n.lin.weight.data.zero_()
        n.lin.weight = nn.Parameter(torch.zeros(3, 3))
        n.lin.bias = None
        n.lin.weight.requires_grad_(False)  # same
        n.b = torch.zeros(3)
        n.b.add_(1)
        n.b = n.b.double()
        n.double(); n.b = n.b.float(); n.float(); n.b.mul_(3)
        n.act = nn.Tanh()
        n.act = nn.Sequential(nn.Tanh(), nn.ReLU())
        n.act.inplace = True  # same
        n.layers.append(nn.Tanh())
        n.layers[1] = nn.Tanh()
        del n.layers[0]
        n.layers = nn.ModuleList()
        n.table['a'] = nn.Tanh()
        n.forward = lambda x: x * 7
        n.lin.forward = lambda x: x * 7
        N.forward = lambda self, x: x * 8
        N.forward.__code__ = (lambda self, x: x * 9).__code__
        n.__class__ = type('O', (N,), {'forward': lambda self, x: x * 10})
        N.__call__ = lambda self, x: x * 11
        n.requires_grad_(False)
        n = nn.Identity()
        n._modules['act'] = nn.Tanh()
        n.lin._parameters['weight'] = other.weight
        n._buffers['b'] = torch.zeros(3)
        n.drop = None; n.flag = False
        n.load_state_dict({k: v * 0 for k, v in n.state_dict().items()})
        nn.init.zeros_(n.lin.weight)
        torch.nn.utils.parametrizations.weight_norm(n.lin); n.lin.parametrizations.weight.original0.data.mul_(2)
        n.apply(lambda m: m.train())
    """,
    "hooks": """
        n = nn.Sequential(nn.Identity())
        def hook(m, args, out): return out * 3
        handles = []
        def f(x): return n(x) * 2
        ---
        handles.append(n.register_forward_hook(hook))  # undo: handles[0].remove()
        handles.append(n[0].register_forward_hook(hook))  # undo: handles[0].remove()
        handles.append(n.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))  # undo: handles[0].remove()
        handles.append(n[0].register_forward_hook(lambda m, a, k, o: o * 4, with_kwargs=True))
        handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 5))  # undo: handles[0].remove()
        handles.append(nn.modules.module.register_module_forward_pre_hook(lambda m, a: (a[0] * 6,)))  # undo: handles[0].remove()
    """,
    "hooks that change": """
        n = nn.Identity()
        k = 2
        def hook(m, args, out): return out * k
        handle = n.register_forward_hook(hook)
        def f(x): return n(x)
        ---
        k = 3
        hook.__code__ = (lambda m, a, o: o * 4).__code__
        handle.remove()
        n._forward_hooks[handle.id] = lambda m, a, o: o * 5
        more = n.register_forward_hook(lambda m, a, o: o + 1)
        more = n.register_forward_hook(lambda m, a, o: o + 1, prepend=True)
    """,
    "names that a module does not have": """
        class N(nn.Module):
            def forward(self, x):
                x = x * 2
                if hasattr(self, 'extra'): x = x * self.extra.sum()
                return x, getattr(self, 'extra', None) is None
        n = N()
        n.register_module('child', nn.Identity())
        def f(x): return n(x)
        ---
        n.extra = nn.Parameter(torch.ones(3))  # undo: del n.extra
        n.register_buffer('extra', torch.ones(3))  # undo: del n.extra
        n.extra = nn.Identity(); n.extra.sum = lambda: 4  # undo: del n.extra
        n._parameters['extra'] = nn.Parameter(torch.ones(3))  # undo: del n._parameters['extra']
        n.extra = torch.ones(3)  # undo: del n.extra
        N.extra = torch.ones(3)  # undo: del N.extra
        n.register_parameter('extra', None)  # undo: del n.extra
    """,
    "names that hide a module's": """
        n = nn.Module()
        n.child = nn.Identity()
        n.register_buffer('b', torch.ones(3))
        n.p = nn.Parameter(torch.ones(3))
        def f(x): return n.child(x) + n.b * n.p
        ---
        n.__dict__['child'] = torch.sin  # undo: del n.__dict__['child']
        n.__dict__['b'] = 3  # undo: del n.__dict__['b']
        object.__setattr__(n, 'p', 4)  # undo: del n.__dict__['p']
        n._parameters['b'] = nn.Parameter(torch.zeros(3))  # undo: del n._parameters['b']
        n._buffers['child'] = torch.cos  # undo: del n._buffers['child']
        nn.Module.p = 5  # undo: del nn.Module.p
    """,
    "attributes that a module sets, registered later": """
        class N(nn.Module):
            def forward(self, x):
                self.last = x + 1
                return x * self.last, 'last' in self._buffers, 'last' in vars(self)
        n = N()
        def f(x): return n(x)
        ---
        del n.last; n.register_buffer('last', None)  # undo: del n.last
        n._buffers['last'] = None  # undo: del n._buffers['last']
    """,
    "the list of parameters": """
        n = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        def f(x):
            return (x * len(list(n.parameters())), [k for k, _ in n.named_parameters()], len(n),
                    [k for k, _ in n.named_buffers()], [k for k, _ in n.named_modules()], n.training,
                    'weight' in dict(n[0].named_parameters()), [p.requires_grad for p in n.parameters()])
        ---
        n.append(nn.Linear(2, 2))
        n[0].bias = None
        n[0].register_parameter('extra', nn.Parameter(torch.ones(1)))
        n[0].register_buffer('extra', torch.ones(1))
        n[1] = nn.Identity()
        del n[1]
        n.add_module('named', nn.Identity())
        n.requires_grad_(False)
        n.train(False)
        n[0].weight.requires_grad_(False)
    """,
    "tensors": """
        t = T(3)
        p = nn.Parameter(T(3))
        def f(x): return x * t, x + p, t.shape, t.dtype, t.requires_grad, t.is_contiguous(), t.is_leaf, t.ndim
        ---
        t = T(3) + 1
        t = T(1)
        t = T(2, 3)
        t = T(3).double()
        t = T(6)[::2]
        t = T(3).requires_grad_()
        t.requires_grad_()
        t.add_(1)
        t.data = T(3) * 2
        t.resize_(1)
        t = 5 * torch.ones(3, dtype=torch.int64)
        p.data.zero_()
        p.requires_grad_(False)
        p = T(3)
        t = p
        t.set_(T(3) * 7)
        t = nn.Parameter(t)
    """,
    "views": """
        t = T(3)
        def f(x): return x * t, t._is_view()
        ---
        t = T(6)[:3]
        t = T(3)  # same
    """,
    "attributes of tensors": """
        t = T(3)
        t.k = 1
        def f(x): return x * t.k, hasattr(t, 'z'), getattr(t, 'z', 3)
        ---
        t.k = 2
        t.k = 1.5
        t.z = 4
        t = T(3); t.k = 5
        t.__dict__['k'] = 6
    """,
    "subclasses of tensors": """
        class S(torch.Tensor):
            k = 1
            def m(self): return 2
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return super().__torch_function__(func, types, args, kwargs or {})
        s = T(3).as_subclass(S)
        def f(x): return (s + x).as_subclass(torch.Tensor), s.m(), s.k
        ---
        S.k = 3
        S.m = lambda self: 4
        S.m.__code__ = (lambda self: 5).__code__
        S.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: T(3) if func.__name__ == 'add' else torch._C._disabled_torch_function_impl(func, types, args, kwargs or {}))
        s = T(3) * 2
        s.k = 6
    """,
    "gradients": """
        w = nn.Parameter(T(3))
        def f(x):
            return x * w, w.grad is None, torch.is_grad_enabled()
        ---
        w.grad = torch.ones(3)
        w.grad = None  # same
        torch.set_grad_enabled(False)  # undo: torch.set_grad_enabled(True)
    """,
    "autograd functions": """
        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * k
            @staticmethod
            def backward(ctx, g): return g * 5
        k = 2
        def f(x):
            y = T(3).requires_grad_()
            return F.apply(x), F.apply(y).requires_grad
        ---
        k = 3
        F.forward = staticmethod(lambda ctx, x: x * 4)
        F.forward.__code__ = (lambda ctx, x: x * 6).__code__
    """,
    "optimizers": """
        w = nn.Parameter(torch.ones(3))
        o = torch.optim.SGD([w], lr=0.5)
        def f(x): return x * o.param_groups[0]['lr'], len(o.param_groups), len(o.state)
        ---
        o.param_groups[0]['lr'] = 0.25
        o.add_param_group({'params': [nn.Parameter(torch.ones(1))]})
        o.state[w] = {'step': 1}
    """,
    "modes": """
        was = torch.get_default_dtype()
        def f(x):
            return x @ x, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled('cpu')
        ---
        torch.set_grad_enabled(False)  # undo: torch.set_grad_enabled(True)
        torch.set_autocast_enabled('cpu', True)  # undo: torch.set_autocast_enabled('cpu', False)
    """,
}
# Settings and functions of torch, builtins and constants of C modules.
SETTINGS = {
    "default dtype": """
        def f(x): return torch.ones(2) * 1.5, torch.tensor(1.5), torch.full((2,), 2.5)
        ---
        torch.set_default_dtype(torch.float64)  # undo: torch.set_default_dtype(torch.float32)
    """,
    "default dtype, asked": """
        def f(x): return x * 2, torch.get_default_dtype() is torch.float32
        ---
        torch.set_default_dtype(torch.float64)  # undo: torch.set_default_dtype(torch.float32)
    """,
    "default device": """
        def f(x): return x * 2, torch.ones(2).device.type, torch.utils._device.CURRENT_DEVICE is None
        ---
        torch.set_default_device('cpu')  # undo: torch.set_default_device(None)
    """,
    "deterministic algorithms": """
        def f(x): return x * 2, torch.are_deterministic_algorithms_enabled()
        ---
        torch.use_deterministic_algorithms(True)  # undo: torch.use_deterministic_algorithms(False)
    """,
    "matmul precision": """
        def f(x): return x * 2, torch.get_float32_matmul_precision()
        ---
        torch.set_float32_matmul_precision('high')  # undo: torch.set_float32_matmul_precision('highest')
    """,
    "switches": """
        def f(x):
            return (x * 2, torch.backends.cudnn.enabled, torch.utils.deterministic.fill_uninitialized_memory,
                    torch.backends.cuda.flash_sdp_enabled(), torch.is_warn_always_enabled())
        ---
        torch.backends.cudnn.enabled = False  # undo: torch.backends.cudnn.enabled = True
        torch.utils.deterministic.fill_uninitialized_memory = False  # undo: torch.utils.deterministic.fill_uninitialized_memory = True
        torch.backends.cuda.enable_flash_sdp(False)  # undo: torch.backends.cuda.enable_flash_sdp(True)
        torch.set_warn_always(True)  # undo: torch.set_warn_always(False)
    """,
    "functions of torch": """
        was = torch.sin, nn.functional.gelu, torch.Tensor.relu
        def f(x): return torch.sin(x), nn.functional.gelu(x), x.relu()
        ---
        torch.sin = torch.cos  # undo: torch.sin = was[0]
        nn.functional.gelu = torch.cos  # undo: nn.functional.gelu = was[1]
        torch.Tensor.relu = torch.cos  # undo: torch.Tensor.relu = was[2]
    """,
    "builtins": """
        import builtins
        was = len
        def f(x): return x * len([1, 2])
        ---
        builtins.len = lambda v: 7  # undo: builtins.len = was
    """,
    "functions and constants of C modules": """
        import math as maths
        was = maths.pi, maths.sqrt, copy.copy
        def f(x): return x * maths.pi, maths.sqrt(4), copy.copy([1])
        ---
        maths.pi = 3  # undo: maths.pi = was[0]
        maths.sqrt = lambda v: 7  # undo: maths.sqrt = was[1]
        copy.copy = lambda v: 7  # undo: copy.copy = was[2]
    """,
    "methods of the classes of torch": """
        torch.manual_seed(0)
        was = nn.Linear.forward, nn.Module.__call__
        n = nn.Linear(3, 3)
        def f(x): return n(x)
        ---
        nn.Linear.forward = lambda self, x: x  # undo: nn.Linear.forward = was[0]
        nn.Module.__call__ = lambda self, x: x  # undo: nn.Module.__call__ = was[1]
    """,
}


# What breaks the graph in the first call.
BREAKS = {"views": "TENSOR_METADATA"}


@pairs_of(PROGRAMS | SETTINGS, BREAKS)
def test_torch(pair):
    check_pair(pair)


def asks_leaf(x):
    return x.detach() * 2 if x.is_leaf else x.detach() * 3


def asks_behind_write(x):
    if not x.requires_grad:
        x.add_(torch.ones(2, requires_grad=True))
    return x.detach() * 2 if x.is_leaf else x.detach() * 3


def retains_gradient(x):
    x.retain_grad()
    return x * 2


def copies_deeply(x):
    return copy.deepcopy(x) * 2


def triple_gradient(leaf):
    leaf.grad.mul_(3)


def hooks_accumulated(x):
    x.register_post_accumulate_grad_hook(triple_gradient)
    return x * 2


def asks_which_output(x):
    return x * 2, x.output_nr, x.retains_grad


def retained(x):
    x.retain_grad()
    return x


LEAVES = [asks_leaf, asks_behind_write, retains_gradient, copies_deeply, hooks_accumulated]
HISTORIES = {
    "a leaf": lambda: torch.ones(2, requires_grad=True),
    "without gradient": lambda: torch.ones(2),
    "a result": lambda: torch.ones(2, requires_grad=True) * 1,
    "the second result": lambda: (torch.ones(4, requires_grad=True) * 1).chunk(2)[1],
    "a result that retains": lambda: retained(torch.ones(2, requires_grad=True) * 1),
}


def _outcome(run, x):
    try:
        result = str(run(x))
    except RuntimeError as error:
        result = str(error)
    if x.requires_grad:
        (x * 5).sum().backward()
    return result, x.grad if x.is_leaf or x.retains_grad else None


@pytest.mark.parametrize("first", HISTORIES)
@pytest.mark.parametrize("function", [*LEAVES, asks_which_output], ids=lambda f: f.__name__)
def test_tensors_of_another_history(function, first):
    dynamo.reset()
    compiled = dynamo.compile(function, backend="eager")
    counts = []
    for names in ([first, *HISTORIES], HISTORIES, HISTORIES):
        for name in names:
            made = HISTORIES[name]
            assert str(_outcome(compiled, made())) == str(_outcome(function, made())), name
        counts.append(len(compiled.context.records))
    assert counts[1] == counts[2], "compiled again in each call"
