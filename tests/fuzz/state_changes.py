"""What happens between the calls of random programs with state (tests/fuzz/state.py): changes of a
state, changes of what all states share, and ways to call.

S stands for the expression that reads a state.
"""

from __future__ import annotations

from tests.fuzz.state_values import rows

# Changes in place, of the values of a family.
CHANGES: dict[str, list[str]] = {
    "number": [],
    "text": [],
    "sequence": rows("""
S.append(3) ; S.pop() ; S.insert(0, 4) ; S.reverse() ; S.sort() ; S[0] = 1.0 ; S[0] = True
S[0] = 1 ; S[0] = t0 ; S[-1] = t1 ; S[:] = [2, 1] ; del S[0] ; S.extend([1, 2]) ; S.clear()
S.appendleft(5) ; S.rotate(1) ; S[0] = S[1]
"""),
    "mapping": rows("""
S['a'] = 2 ; S['a'] = 1 ; S['a'] = 1.0 ; S['c'] = 3 ; S.pop('a') ; S['a'] = S.pop('a')
S['b'] = t0 ; S['a'] = S['b'] ; S.move_to_end('a') ; S.clear() ; S.update(b=5, a=4) ; del S['b']
S[1] = 1 ; S[True] = 2 ; S.default_factory = float ; Dict.__missing__ = lambda self, key: 8
"""),
    "set": rows("""
S.add(3) ; S.add(1.0) ; S.discard(1) ; S.clear() ; S.update({7, 8}) ; S.add('a')
"""),
    "tensor": rows("""
S.add_(1) ; S.requires_grad_(True) ; S.requires_grad_(False) ; S.data = T(4) ; S.data = S.data * 2
S.resize_(min(S.numel(), 1)) ; S.grad = T(3) ; S.grad = None ; S.tag = 1 ; S.tag = 1.0 ; S.t_()
S.unsqueeze_(0)
S.register_hook(lambda g: g * 2) ; S._backward_hooks = None ; S.set_(t0)
torch.utils.swap_tensors(S, T(3) + 3) if isinstance(S, torch.Tensor) else None ; S.__class__ = TSub
S.detach_() ; S.zero_()
S.fill_(float('nan')) ; S.as_strided_((3,), (0,))
"""),
    "function": rows("""
double.__code__ = triple.__code__ ; triple.__defaults__ = (4,) ; double.__name__ = 'renamed'
double.__code__ = (lambda v, k=1: v + k).__code__ ; double.__defaults__ = (6,) ; S.__self__.a = 3
S.__closure__[0].cell_contents = 3 ; Base.s = staticmethod(lambda x: x - 1)
Base.m = lambda self, x: x - 5 ; Sized.__call__ = lambda self, x: x * 3
double.__wrapped__ = triple ; S.keywords['k'] = 2
"""),
    "net": rows("""
S.eval() ; S.train() ; S.requires_grad_(False) ; S.requires_grad_(True) ; S.double() ; S.float()
h = S.register_forward_hook(lambda m, i, o: o * 2)
h = S.register_forward_pre_hook(lambda m, i: (i[0] + 1,)) ; h.remove() ; S._forward_hooks.clear()
h = S.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
parametrize.register_parametrization(S, 'weight', Halved())
parametrize.remove_parametrizations(S, 'weight') ; nn.utils.parametrizations.weight_norm(S)
S.forward = lambda x: x * 3 ; del S.forward ; S.append(nn.Tanh()) ; S[0] = nn.Tanh()
S.insert(0, nn.Tanh()) ; del S[0] ; S.pop(-1) ; S[-1] = S[0] ; S.weight = nn.Parameter(T(3, 3))
S.weight = S[0].weight ; S[0].weight = nn.Parameter(T(3, 3))
S.lin.weight = nn.Parameter(T(3, 3)) ; S.lin = nn.Linear(3, 3) ; S.lin = nn.Identity()
S.register_buffer('b', T(3)) ; del S.b ; S.count = torch.ones(()) ; S.calls = 7 ; S.extra = t0
S.extra = None ; S.extra = 2 ; S.bias = None ; S.register_parameter('bias', None)
S.register_parameter('bias', nn.Parameter(T(3))) ; S.__class__ = Halved
type(S).forward = lambda self, x: x - 1 ; Net.scale = 3 ; S.scale = 4
S.load_state_dict({k: v + 1 for k, v in S.state_dict().items()}) ; S.zero_grad()
S.add_module('late', nn.Tanh()) ; S.to(torch.bfloat16) ; S.p = 0.25 ; S.inplace = True
S.apply(lambda m: m.train(False)) ; S._parameters['weight'] = None
S.weight.data = S.weight.data + 1 ; S.weight.requires_grad = False ; S[0].eval()
S[0].register_forward_hook(lambda m, i, o: -o) ; S.eps = 0.1 ; nn.Linear.forward = Net.forward
"""),
    "object": rows("""
S.a = 2 ; S.a = 1 ; S.a = 1.0 ; S.a = t0 ; del S.a ; S.b = 4 ; del S.b ; S.c = 6 ; S.tag = 3
del S.tag ; Base.tag = 2 ; Base.tag = 2.0 ; type(S).tag = 5 ; del type(S).tag
type(S).m = lambda self, x: x * 7 ; S.m = lambda x: x - 3 ; del S.m ; S.__class__ = Dyn
S.__class__ = Sized ; Base.__len__ = lambda self: 4 ; del Base.__len__
Base.__bool__ = lambda self: False ; del Base.__bool__ ; Sized.__eq__ = lambda self, other: True
Sized.__iter__ = lambda self: iter([9]) ; Sized.__getitem__ = lambda self, k: 3
Sized.__call__ = lambda self, x: x * 3 ; Sized.__contains__ = lambda self, k: True
vars(S)['a'] = 3 ; vars(S).clear() ; Base.__getattr__ = lambda self, name: 11
del Base.__getattr__ ; Base.made = classmethod(lambda cls: 9)
Base.s = staticmethod(lambda x: x * 4) ; Box.twice = 8 ; Computed.a = 6 ; Meta.level = 5
Meant.rank = 8 ; Meant.a = 3 ; Base.__hash__ = lambda self: 3
Base.__contains__ = lambda self, k: k == 1 ; type(S).__mul__ = lambda self, other: other * 10
Base.__getattribute__ = lambda self, k: object.__getattribute__(self, k)
Box.__bases__ = (Meant,) if type(Box) is type(Meant) else (type('Y', (Base,), {'tag': 7}),)
Box.__init__ = lambda self, a=1: setattr(self, 'a', a + 1)
"""),
}
# Changes of any value; V a value of the family.
ANYWHERE = rows("""
gc.collect() ; t0.add_(1) ; t0 = T(3) * 2 ; t0 = t1 ; t0 = t1[:] ; t1 = t0 ; t0.requires_grad_()
t0 = nn.Parameter(T(3)) ; t0 = T(3).double() ; torch.manual_seed(3) ; del t0 ; t0 = T(3)
len = lambda o: 5 ; del len ; sum = lambda v, s=0: s ; isinstance = lambda o, c: True
del isinstance ; def gathered(x, *args, **kwargs): return x * 11
def double(v, k=9): return v * k ; math = types.SimpleNamespace(sqrt=abs, prod=math.prod)
Box = Sized ; Base.__eq__ = lambda self, other: True ; warnings.simplefilter('error')
warnings.resetwarnings() ; other.__dict__['late'] = 1
sys.modules['other_state'] = copy.copy(sys.modules['other_state'])
""")
ARGUMENTS = rows("""
T(3) ; T(3) ; T(3) ; T(3, grad=True) ; T(3, grad=True) * 1 ; T(4) ; T(2, 3)
T(3, dtype=torch.float64) ; t0 ; t0[:] ; t1 ; T(3, 3) ; T(6)[::2] ; T(3).as_subclass(TSub)
nn.Parameter(T(3)) ; T(3) + float('nan') ; T(1).expand(3)
""")
# How f is called: ARGS stands for its arguments.
CALLS = rows("""
run(ARGS) ; run(ARGS) ; run(ARGS) ; grads(ARGS) ; threaded(ARGS) ; list(map(run, [ARGS]))
copy.copy(run)(ARGS) ; functools.partial(run)(ARGS) ; contextvars.copy_context().run(run, ARGS)
""")
# The modes under which f is called once.
MODES = rows("""
torch.no_grad() ; torch.inference_mode() ; torch.enable_grad()
torch.autocast('cpu', torch.bfloat16) ; torch.autocast('cpu', enabled=False) ; torch.device('cpu')
torch.autograd.detect_anomaly(check_nan=False) ; patched(torch, 'sin', torch.cos)
patched(torch.Tensor, 'sin', torch.Tensor.cos) ; patched(builtins, 'len', lambda o: 7)
patched(builtins, 'sum', lambda v, s=0: s)
patched(math, 'sqrt', lambda v: 3) ; patched(operator, 'neg', abs)
patched(nn.Linear, 'forward', lambda self, x: x * 5) ; patched(nn.Module, 'training', False)
patched(nn.functional, 'linear', lambda x, w, b=None: x)
patched(nn.ReLU, '__call__', lambda self, x: x + 1) ; patched(nn.functional, 'relu', torch.abs)
warnings.catch_warnings() ; torch.autograd.graph.save_on_cpu()
torch.overrides.BaseTorchFunctionMode() ; torch.autograd.set_grad_enabled(False)
torch.autograd.forward_ad.dual_level() ; torch.autograd.graph.disable_saved_tensors_hooks('none')
""")
# Statements before a call; the harness resets modes after the step.
SETTINGS = rows("""
torch.set_default_dtype(torch.float64) ; torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True) ; torch.set_default_device('cpu')
torch.set_float32_matmul_precision('medium')
h = nn.modules.module.register_module_forward_hook(lambda m, i, o: o + 1) || later.callback(h.remove)
""")
