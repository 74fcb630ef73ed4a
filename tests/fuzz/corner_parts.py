"""What random programs of torch's and Python's corners are made of, besides what training programs
have (training_parts.py): a list of texts for each class of them.

A, B: tensors of rows of four. V: any tensor. K: a number. L: a name to log.
"""

PREAMBLE = """
import gc, io, os, pickle, random, sys, threading, time, types, unittest, warnings
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map
calls = []
def noted(func):
    name = getattr(func, '__name__', 'none')
    if name != '__get__': calls.append(name)
class Sub(torch.Tensor): pass
class Noted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        noted(func)
        return super().__torch_function__(func, types, args, kwargs or {})
class Negated(torch.Tensor):
    scale = 2
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.Tensor.sin: return args[0].as_subclass(torch.Tensor).cos() * cls.scale
        return super().__torch_function__(func, types, args, kwargs or {})
class Two(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b, tag=None):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), storage_offset=a.storage_offset(), dtype=a.dtype,
            device=a.device, requires_grad=a.requires_grad)
    def __init__(self, a, b, tag=None): self.a, self.b, self.tag = a, b, tag
    def __repr__(self): return f'Two({self.tag})'
    def __tensor_flatten__(self): return ['a', 'b'], self.tag
    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride): return Two(inner['a'], inner['b'], tag)
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tags = [t.tag for t in args if isinstance(t, Two)]
        def part(name):
            get = lambda t: getattr(t, name) if isinstance(t, Two) else t
            return func(*tree_map(get, args), **tree_map(get, kwargs or {}))
        first, second = part('a'), part('b')
        if isinstance(first, torch.Tensor): out = Two(first, second, tags[0] if tags else None)
        elif isinstance(first, (list, tuple)): out = type(first)(map(Two, first, second))
        else: out = first
        return return_and_correct_aliasing(func, args, kwargs or {}, out)
class Times(TorchFunctionMode):
    def __init__(self, k=2):
        super().__init__()
        self.k = k
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * self.k if func in (torch.Tensor.sin, torch.sin, torch.ones) else out
class Listed(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        noted(func)
        return func(*args, **(kwargs or {}))
class Counted(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls.append(str(func))
        return func(*args, **(kwargs or {}))
class Changed(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.ops.aten.sin.default else out
class Config:
    def __init__(self, scale=2, **more):
        self.scale, self.items, self.more = scale, [1, 2], more
    def apply(self, t): return t * self.scale
@dataclasses.dataclass
class Point:
    a: object = 1
    b: object = 2
    tags: list = dataclasses.field(default_factory=list)
class Special(Config):
    def __eq__(self, other): return isinstance(other, Special) and self.scale == other.scale
    def __hash__(self): return hash(self.scale)
    def __repr__(self): return f'Special({self.scale})'
    def __format__(self, spec): return f'<{spec}>'
    def __copy__(self): return Special(self.scale + 1)
class Local(threading.local):
    def __init__(self): self.scale = 3
def packed(t): return (t, 'packed')
def unpacked(pair): return pair[0] * 1
mode, times, listed = Times(3), Times(0.5), Listed()
cfg, special, point = Config(2), Special(3), Point(1, 2.5)
local, made = Local(), threading.local()
made.count = 0
t0, p0, arr = T(4), nn.Parameter(T(4) + 2), np.arange(4, dtype=np.float32)
two, sub = Two(T(4), T(4) * 2, 'made'), T(4).as_subclass(Sub)
gen, rng = torch.Generator().manual_seed(3), np.random.default_rng(5)
rs, py = np.random.RandomState(5), random.Random(3)
lazy = nn.Sequential(nn.LazyLinear(4), nn.Tanh())
__cache, table, __pool, refs, items = {}, {}, set(), [], [3, 1, 2]
weak = weakref.WeakKeyDictionary()
torch.nested.as_nested_tensor([T(1, 4)], layout=torch.jagged)  # fills caches of torch's
"""
# Expressions that give tensors, by class.
TENSORS = {
    "subclasses": """
A.as_subclass(Sub); A.as_subclass(Noted) * 2; A.as_subclass(Negated).sin(); Two(A, B)
Two(A, B, 'L').sin(); (Two(A, B) * K).a; Two(A, B).b + A
(two * A) if isinstance(A, Two) else A + two.a; A * sub; sub.sin() + A
torch.Tensor._make_subclass(Sub, A.detach()); torch.Tensor._make_subclass(Sub, A.detach(), True) * 2
Sub(A.detach()); A.as_subclass(Sub).as_subclass(torch.Tensor); (A.as_subclass(Noted) @ net.w).sin()
torch.cat([A.as_subclass(Sub), B]); Two(A, B)[1:]; Two(A, B).t().t(); two.b * A
Two(A @ net.w, B).sum(0) + A; torch.stack([A.as_subclass(Negated), B]).sum(0)
A.as_subclass(Negated) + Negated.scale; Two(A, B).detach(); A.as_subclass(Sub).detach() * p0
Two(nn.Parameter(A.detach()), B).cos(); copy.copy(A.as_subclass(Sub))
torch.nested.as_nested_tensor([A, B], layout=torch.jagged).sin().unbind()[0]
A.to_sparse().to_dense() * 2
torch.nested.nested_tensor_from_jagged(A, torch.tensor([0, 1, len(A)])).cos().values()
""",
    "modes": """
torch.ones(4) * A; A.sin(); torch.sin(B); A.sin() + torch.ones(4); F.relu(A).sin()
torch.zeros(4) + A; torch.tensor([1., 2, 3, 4]) * A; torch.arange(4.0) + A
torch.full((4,), 0.5) * A; A.sum(0, keepdim=True) + B
F.scaled_dot_product_attention(A[None], A[None], B[None])[0] if len(A) == len(B) else A
""",
    "numpy": """
torch.from_numpy(np.sin(A.detach().numpy())); A + torch.as_tensor(arr); A * np.float32(2)
A * np.int64(3); A + float(np.mean(arr)); A + torch.tensor(np.linspace(0, 1, 4, dtype=np.float32))
A * np.prod([1, 2]); A + torch.from_numpy(np.concatenate([arr, arr])[:4]); A * arr.sum()
A + np.linalg.norm(arr); A * arr.max(); A * np.finfo(np.float32).eps
A + torch.from_numpy(arr * K).to(A.dtype); A * len(np.unique(arr))
A + torch.from_numpy(np.full_like(arr, K)); A + torch.from_numpy(np.clip(arr, 0, 2))
A * np.bool_(True); torch.from_numpy(np.where(A.detach().numpy() > 0, A.detach().numpy(), 0))
A * np.asarray(B.detach()).sum(); A + torch.from_numpy(np.arange(4))
A + torch.from_numpy(A.detach().numpy().cumsum(1)); A * np.sqrt(2)
A + torch.from_numpy(np.meshgrid(arr, arr)[0][1]); A * float(arr[-1]); A + arr.tolist()[1]
A * np.pi; torch.as_tensor(np.stack([A.detach().numpy()] * 2)[1]) * B
A + torch.from_numpy(arr[::-1].copy())
A + torch.from_numpy(np.fft.rfft(arr).real.astype(np.float32))[:1]; A.new_tensor(arr) + B
A + arr.argmax()
""",
    "random": """
A * random.random(); A + random.randint(0, 5); A * random.choice([1, 2, 3]); A + py.random()
A + torch.rand(4); A + torch.randn(4, generator=gen); F.dropout(A); A[torch.randperm(len(A))]
A * random.gauss(0, 1); A * np.random.rand(); A + np.random.randint(5)
A + torch.from_numpy(np.random.permutation(4)); A * rs.uniform(0, 1); A + float(rng.normal())
A + torch.from_numpy(rng.random(4)).to(A.dtype); A.detach().clone().uniform_()
A.detach().clone().normal_(generator=gen); torch.rand_like(A) * A; A + random.sample(items, 2)[0]
torch.bernoulli(torch.full((4,), 0.5), generator=gen) * A
A * torch.rand(4, generator=torch.Generator().manual_seed(2)); A + torch.randint(5, (4,))
torch.normal(0.0, 1.0, (4,)) + A; A * rng.integers(5); A + np.random.normal(size=4).sum()
torch.multinomial(torch.ones(4), 4) * A; F.gumbel_softmax(A.detach(), hard=True) * B
A + random.uniform(0, 1) * K
""",
    "copies": """
copy.copy(A); copy.deepcopy(A.detach()); copy.deepcopy(A); copy.deepcopy(net)(A); copy.copy(net)(A)
copy.deepcopy(cfg).apply(A); copy.copy(special).apply(A)
copy.deepcopy([A.detach(), {'a': t0}])[1]['a'] * B; copy.deepcopy(p0) * A
copy.deepcopy(point).b * A; dataclasses.replace(point, a=K).a * A; A * copy.deepcopy(items)[0]
copy.deepcopy(net.inner)(A); pickle.loads(pickle.dumps(special)).apply(A); copy.deepcopy(two).a + A
copy.copy(p0) + A; copy.deepcopy(nn.Linear(4, 4))(A); copy.copy(cfg).scale * A
copy.deepcopy(sub) * A
""",
    "legacy": """
torch.FloatTensor([1, 2, 3, 4]) + A; torch.Tensor([1, 2, 3, 4]) * A; A[torch.LongTensor([0, 1])]
A.new([1., 2, 3, 4]) + A; A.new_tensor([1, 2, 3, 4]) * A; torch.Tensor(4).fill_(2) + A
torch.DoubleTensor(A.tolist()).float(); A.type_as(B); A.type(torch.DoubleTensor).float()
torch.where(torch.BoolTensor([True, False, True, True]), A, B); A.type('torch.FloatTensor')
A + torch.IntTensor([1, 2, 3, 4]); torch.tensor(A.tolist()); A.new(A.shape).zero_() + B
torch.Tensor(A.detach()) * 2; torch.tensor(K) * A; torch.as_tensor(K) + A
torch.FloatTensor(4).zero_() + A; torch.scalar_tensor(2.0) * A
""",
    "parameters": """
nn.Parameter(A.detach()) * B; nn.Parameter(A.detach() * 2, requires_grad=False)
nn.Buffer(A.detach()) + 1; (A * 1).detach_(); (A * 1).detach().requires_grad_() * 2
nn.Parameter(A * 2); lazy(A); nn.LazyLinear(4)(A); nn.LazyBatchNorm1d()(A); nn.Linear(4, 4)(A)
nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(4))(A); p0 * A
torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))(A)
A * torch.nn.Parameter(torch.tensor(2.0)); nn.ParameterList([p0, A.detach()])[1] * A
nn.ParameterDict({'a': p0})['a'] + A; p0.grad + A if p0.grad is not None else A
""",
    "foreach": """
torch._foreach_mul([A, B], torch.tensor(2.0))[0]; torch._foreach_add([A, B], K)[1]
torch._foreach_add([A, B], [1, 2.5])[1]; torch._foreach_norm([A, B])[0] * B
torch._foreach_addcmul([A], [A], [A], torch.tensor([2.0]))[0]; torch._foreach_exp([A * 0.1])[0]
torch._foreach_lerp([A], [A * 2], 0.5)[0]; torch._foreach_sub([A, A], [A * 0.5, p0])[1]
torch._foreach_maximum([A], 0.5)[0]; torch._foreach_div([A, B], torch.tensor(4.0))[1]
torch._foreach_mul([A, t0], torch.tensor(2.0, dtype=torch.float64))[0]
torch._foreach_pow([A.abs()], 2)[0]; torch._foreach_add([A], torch.tensor(1), alpha=2)[0]
torch._foreach_clamp_min([A], 0)[0]
""",
}
# Statements, by class.
STATEMENTS = {
    "modes": """
times.k = K; mode.k += 1; log.append(len(torch.overrides._get_current_function_mode_stack()))
calls.clear(); torch.set_default_dtype(torch.float64); log.append(torch.ones(1).dtype)
log.append(torch.get_default_device())
m = Times(K);m.__enter__();y = A.sin();m.__exit__(None, None, None)
log.append(torch.is_grad_enabled())
log.append(type(torch.overrides._get_current_function_mode()).__name__); Negated.scale = K
two.tag = 'L'; sub.mul_(2); two.mul_(2); two.a.add_(1); log.append(isinstance(A, Sub))
log.append(type(A)); log.append(A.tag if isinstance(A, Two) else 0)
""",
    "numpy": """
arr += 1; arr[0] = K; np.add(arr, 1, out=arr); w = A.detach().numpy();w[0] = 5
torch.from_numpy(arr).mul_(2); log.append(np.issubdtype(arr.dtype, np.floating))
log.append(np.shape(A)); log.append(arr.mean()); log.append(arr.copy())
log.append(np.float64(A.detach().sum()) > 0); log.append(A.detach().numpy())
log.append(np.stack([arr, arr]).shape); log.append(arr.flags.writeable)
log.append(isinstance(K, np.generic)); log.append(type(np.float32(2) * 3).__name__)
log.append(np.array_equal(arr, A.detach()[0].numpy())); __cache['arr'] = arr
log.append(arr is __cache.get('arr')); log.append(np.allclose(arr, t0.numpy())); arr[1:] *= 2
arr.sort(); t0.numpy()[1] = K; arr.fill(2); log.append(arr.sum() > 3); log.append(str(arr))
log.append(f'{arr.mean():.2f}'); log.append(np.iinfo(np.int32).max)
log.append(np.shares_memory(arr, t0.numpy()))
""",
    "random": """
random.seed(3); np.random.seed(3); torch.manual_seed(3); gen.manual_seed(4); random.shuffle(items)
py.seed(2); rs.seed(1); log.append(gen.initial_seed()); log.append(torch.initial_seed())
rng.shuffle(arr); log.append(rng.choice(3)); log.append(random.random())
s = torch.get_rng_state();y = A + torch.rand(4);torch.set_rng_state(s)
s = random.getstate();y = A * random.random();random.setstate(s); log.append(np.random.rand(2))
log.append(torch.rand(2)); log.append(random.getrandbits(8))
torch.random.manual_seed(5);log.append(torch.randn(2))
s = gen.get_state();y = A + torch.rand(4, generator=gen);gen.set_state(s)
s = np.random.get_state();y = A * np.random.rand();np.random.set_state(s)
log.append(random.Random(4).random()); log.append(np.random.default_rng(2).random())
torch.seed;log.append(py.choices([1, 2, 3], k=2)); t0.normal_(generator=gen)
""",
    "copies": """
c = copy.deepcopy(cfg);c.items.append(K);log.append((len(cfg.items), len(c.items)))
cfg.items.append(K); cfg.scale = K; point.a = A; point.tags.append('L')
c = copy.copy(cfg);c.items.append(3);log.append(c.items is cfg.items); cfg.more['t'] = A
special.scale += 1; log.append(copy.deepcopy(special) == special)
log.append(copy.copy(point) == point)
c = copy.deepcopy(net);c.w.data.mul_(2);log.append(c.w.sum() == net.w.sum())
log.append(copy.deepcopy([t0, t0])[0] is t0); c = copy.deepcopy([t0, t0]);log.append(c[0] is c[1])
log.append(dataclasses.asdict(Point(K))); kept.append(copy.copy(A))
kept.append(copy.deepcopy(A.detach())); kept.append(copy.deepcopy(p0)); ema = copy.deepcopy(net)
log.append(vars(copy.copy(cfg)))
""",
    "grads": """
w = A.detach().requires_grad_();(w * w).sum().backward();y = w.grad * 1
w = A.detach().clone().requires_grad_();(w * p0).sum().backward();log.append(w.grad)
log.append(p0.grad); p0.grad = None; p0.grad = torch.ones(4)
known(A).register_hook(lambda g: g * 2) if A.requires_grad else None; p0.requires_grad_(False)
y.retain_grad() if y.requires_grad else None; y = y + p0.grad if p0.grad is not None else y
(p0 * 2).sum().backward(); log.append(A.grad_fn is None)
g, = torch.autograd.grad((p0 * A).sum(), p0);log.append(g); log.append(p0.grad is None)
h = known(A).register_hook(seen('L')) if A.requires_grad else None
p0.grad.zero_() if p0.grad is not None else None; x.data = A.detach(); V.data = B.detach()
V.detach_(); V.requires_grad_(); p0.data = p0.data * 2; p0.data.add_(1)
net.w = nn.Parameter(net.w * 2); net.w = nn.Parameter(net.w.detach().clone())
net.register_parameter('extra', nn.Parameter(B.detach())); net.register_buffer('late', B.detach())
p0 = nn.Parameter(p0.detach() * 2)
torch._foreach_mul_([t0, arr_ := torch.ones(4)], torch.tensor(2.0))
torch._foreach_add_([p0.data], 1); torch._foreach_copy_([t0], [A.detach()[0]])
torch._foreach_zero_([t0]); V.set_(B.detach().clone()); V.data.zero_()
log.append((V.is_leaf, V.requires_grad, V._version)); t0.data = A.detach()[0]
net.extra = nn.Parameter(A.detach()[0])
""",
    "identity": """
log.append(A.data_ptr() == B.data_ptr())
log.append(A.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
log.append(A.untyped_storage().nbytes()); log.append(A.is_set_to(B)); log.append(A.data_ptr() % 4)
log.append(id(A) == id(B)); log.append(A is x); __cache[id(net)] = A; log.append(id(net) in __cache)
log.append(A.storage_offset()); log.append({A: 1}[A]); log.append(A in {A})
log.append(hash(A) == hash(B)); log.append(hash(A) == id(A)); log.append(len({A, B, A}))
__pool.add(A); __pool.discard(A); log.append(len(__pool)); log.append(t0 in __pool); __pool.add(t0)
table[A] = K; table[p0] = K; log.append(table.get(A)); log.append(table.get(p0, 'none'))
log.append(len(table)); log.append(list(table)[-1] is A if table else None)
log.append(hash(special) == hash(3)); log.append(repr(special)); log.append(f'{special:L}')
log.append(str(cfg)); log.append(repr(point)); log.append(f'{K}'); log.append('%s' % (A.shape,))
log.append(repr(net.inner)); log.append(repr(p0)); log.append(f'{A.shape} {A.dtype}')
print(A.detach()); print(A.shape, K, 'L'); log.append(repr(A.detach()[0]))
log.append(str(A.detach().sum() > 0)); log.append(f'{A.detach().sum().item():.2f}')
log.append(repr(cfg.apply)); log.append(repr(block)); log.append(str(type(A)))
log.append(hash((1, 'L', special)) == hash((1, 'L', special)))
log.append(hash(block) == hash(block)); print(f'{K:.2f}'); log.append(A.__repr__() == repr(A))
s = {A, B};y = sum(s); for t in dict.fromkeys([A, B, A]): y = y + t; log.append(sorted([K, 1, 2]))
log.append(A.element_size()); log.append(id(cfg) == id(cfg))
log.append({id(t): 1 for t in (A, B, A)}.get(id(A))); log.append(any(t is A for t in [x, y, z]))
log.append([t is A for t in (x, y, z, v)])
log.append(torch.is_tensor(A)); log.append(format(A.detach().sum(), '.2f'))
""",
    "lifetimes": """
r = weakref.ref(A);log.append(r() is A); refs.append(weakref.ref(A))
log.append([r() is None for r in refs]); log.append(weakref.proxy(cfg).scale)
y = weakref.proxy(special).apply(A); weak[net] = K; log.append(weak.get(net)); log.append(len(weak))
weak[cfg] = A; r = weakref.ref(cfg);log.append(r() is cfg); made.count += 1; log.append(made.count)
local.scale = K; y = y * local.scale; local.memory = A; log.append(hasattr(local, 'memory'))
y = y + getattr(made, 'memory', 1); made.memory = A.detach(); log.append(sorted(vars(made)))
del z;z = x * 2; log.append(weakref.getweakrefcount(special))
weakref.finalize(Config(), log.append, 'L')
t = threading.Thread(target=lambda: log.append(hasattr(made, 'count')));t.start();t.join()
log.append(weakref.ref(A) == weakref.ref(A)); r = weakref.WeakMethod(cfg.apply);y = r()(A)
""",
    "library": """
warnings.warn('L'); warnings.simplefilter('ignore')
t = time.time();y = y * 2;log.append(time.time() >= t); log.append([].__contains__(K))
list.append(kept, A); log.append({1}.isdisjoint([K])); f1 = kept.append;f1(A)
assert A.shape[0] < 3, f'L {A.shape}'; log.append(os.environ.get('NONE', 'L'))
with unittest.TestCase().assertRaises(RuntimeError): A @ torch.ones(3, 3)
log.append(sys.exc_info()[0]); y = operator.methodcaller('sin')(A)
for i in range(50): y = y + (i == 7); n = sum(i for i in range(300));y = y + n % 3; items.sort()
log.append(list(items)); log.append(io.StringIO('L').read())
y = functools.reduce(operator.mul, [A, 2, p0]); raise ValueError(f'L {K}')
if K > 1: raise KeyError('L'); A @ torch.ones(3, 3); A.view(7); getattr(A, 'missing'); A[9]
A + torch.ones(3); torch.cat([A, A[:, :2]]); A.item(); int('L'); {}[K]; A.foo = K
log.append(getattr(A, 'foo', None)); y = torch.func.functional_call(net.inner, {'bias': p0}, (A,))
y = checkpoint(lambda t: t.sin() * 2, A, use_reentrant=False); y = Squared.apply(A) + Exp.apply(B)
log.append(Needed.apply(A.detach(), net.w.detach()).shape); log.append(torch.equal(A, B))
log.append(bool((A > 0).all())); log.append(A.tolist())
log.append(A.detach().sum() == B.detach().sum()); log.append(torch.allclose(A, A))
contextlib.nullcontext(A).__enter__().sum(); log.append(calls[-1:])
""",
}
# Around a statement.
WRAPS = """
with Times(K):; with mode:; with times, mode:; with Listed():; with listed:; with Counted():
with Changed():; with torch.device('cpu'):; with BaseTorchFunctionMode():
with torch._C.DisableTorchFunctionSubclass():
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
with torch.random.fork_rng():; with contextlib.suppress(RuntimeError, ValueError):
with warnings.catch_warnings():; with warnings.catch_warnings(record=True) as caught:
with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):; with torch.no_grad():
with torch.enable_grad():; with contextlib.redirect_stdout(io.StringIO()):; if K > 1:
for turn in range(2):; if isinstance(A, torch.Tensor):; if A.sum() > 0:; with torch.device('meta'):
with torch.autograd.detect_anomaly(check_nan=False):
"""
# Between calls.
CHANGES = """
times.k = 3; mode.k = 4; cfg.scale = 3; cfg.scale = 2.5; cfg.scale = torch.tensor(2.0)
special.scale = 5; point.a = 4; point.b = T(4); local.scale = 4; made.count = 7; made.memory = T(4)
arr = arr * 2; arr = np.arange(4); arr[0] = 9; t0 = T(4) * 3; t0.add_(1); p0 = nn.Parameter(T(4))
p0.grad = None; p0.data = T(4) * 2; p0.requires_grad_(False); two = Two(T(4), T(4) + 1, 'new')
two.tag = 'other'; two.a = T(4) * 5; sub = T(4) * 2; sub = T(4).as_subclass(Noted)
gen.manual_seed(9); gen = torch.Generator(); random.seed(5); np.random.seed(5); torch.manual_seed(5)
rng = np.random.default_rng(8); items = [4, 5, 6]; __cache.clear(); table.clear(); __pool.clear()
refs.clear(); log.append([r() is None for r in refs]); Negated.scale = 3
Config.apply = lambda self, t: t + self.scale
Times.__torch_function__ = BaseTorchFunctionMode.__torch_function__; lazy = nn.LazyLinear(4)
lazy = nn.Sequential(nn.LazyLinear(4)); weak.clear(); cfg = Config(4); cfg = Special(2)
log.append(calls[-3:]); calls.clear(); net = copy.deepcopy(net); cfg = copy.deepcopy(cfg)
point = dataclasses.replace(point, b=3); a = T(3, 4, grad=True); a.grad = None; kept.clear()
result = None; Sub.__repr__ = lambda self: 'sub'; warnings.resetwarnings()
warnings.simplefilter('ignore'); Noted.__torch_function__ = Negated.__torch_function__; Point.a = 7
net.w = nn.Parameter(T(4, 4)); local = Local(); made = threading.local()
"""
ARGUMENTS = """
T(3, 4); T(3, 4); T(3, 4); T(2, 4); T(2, 4); T(5, 4); T(3, 4, grad=True); a; a; T(4, 3).t()
T(3, 4, dtype=torch.float64); T(3, 4).as_subclass(Sub); T(3, 4).as_subclass(Noted)
T(3, 4).as_subclass(Negated); Two(T(3, 4), T(3, 4) + 1, 'x'); Two(T(3, 4), T(3, 4)).requires_grad_()
nn.Parameter(T(3, 4)); a * 1; T(1, 4); T(4).expand(3, 4); T(3, 4).numpy()
np.ones((3, 4), np.float32); t0[None]; T(6, 4)[::2]
"""
NUMBERS = """
1; 1; 1; 2; 2.5; True; np.int64(2); np.int64(3); np.float32(1.5); np.float64(2.5); 0
torch.tensor(2); torch.tensor(1.5); -1; 3; np.bool_(True)
"""
