"""What random programs of Python's objects are made of, besides what those of training and corners
have: descriptors, metaclasses, context managers, generators, caches, finalizers and orders whose
side effects a log tells; scripted functions, custom operators, quantised tensors, prints.

A, B: tensors of rows of four. V: any tensor. K: a number. L: a name to log.
"""

PREAMBLE = """
import abc, contextvars, enum, json, logging, pickle, struct, traceback, typing
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from torch.utils._pytree import tree_flatten, tree_leaves
def said(name, value=None):
    log.append(name)
    return value
class Logged:
    def __init__(self, name): self.name = name
    def __set_name__(self, owner, name): log.append(('named', name))
    def __get__(self, obj, owner=None):
        log.append(('get', self.name))
        return self if obj is None else obj.__dict__.get(self.name, 2)
    def __set__(self, obj, value):
        log.append(('set', self.name))
        obj.__dict__[self.name] = value
    def __delete__(self, obj):
        log.append(('delete', self.name))
        del obj.__dict__[self.name]
class Meta(type):
    made = []
    def __call__(cls, *args, **kwargs):
        log.append(('call', cls.__name__))
        return super().__call__(*args, **kwargs)
    def __instancecheck__(cls, obj): return said('check', super().__instancecheck__(obj))
    def __iter__(cls): return iter((1, 2))
    @property
    def level(cls): return said('level', 3)
    def __getitem__(cls, key): return said(('item', key), 2)
class Watched(metaclass=Meta):
    value = Logged('value')
    count = 0
    def __init__(self, scale=2): self.scale = scale
    def __init_subclass__(cls, **named): log.append(('subclass', cls.__name__, named))
    @property
    def twice(self): return said('twice', self.scale * 2)
    @twice.setter
    def twice(self, value): self.scale = said('set twice', value)
    @functools.cached_property
    def cached(self): return said('cached', self.scale + 1)
    @classmethod
    def made(cls): cls.count += 1; return cls(cls.count)
    def __bool__(self): return said('bool', self.scale > 1)
    def __len__(self): return said('len', 3)
    def __contains__(self, item): return said('contains', item == 1)
    def __eq__(self, other): return said('eq', self is other)
    def __hash__(self): return said('hash', 7)
    def __iter__(self):
        log.append('iter')
        yield self.scale
        yield said('second', 3)
    def __call__(self, t): return said('called', t * self.scale)
    def __mul__(self, other): return said('mul', NotImplemented if other is None else other * 2)
    def __rmul__(self, other): return said('rmul', other * 3)
    def __torch_function__(self, func, types, args=(), kwargs=None): return said('asked', 3)
class Open:
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        return said(('missing', name), 2)
    def __setattr__(self, name, value):
        log.append(('set', name))
        object.__setattr__(self, name, value)
    def __delattr__(self, name): log.append(('delete', name)); object.__delattr__(self, name)
class Every:
    def __getattribute__(self, name):
        if name[:2] != '__': log.append(('read', name))
        return object.__getattribute__(self, name)
class Slots:
    __slots__ = ('a', 'b')
    def __init__(self, a=1): self.a = a
class Swallow:
    def __init__(self, *kinds): self.kinds, self.seen = kinds or (Exception,), []
    def __enter__(self): return said('enter', self)
    def __exit__(self, kind, error, tb):
        log.append(('exit', kind and kind.__name__))
        self.seen.append(kind)
        return kind is not None and issubclass(kind, self.kinds)
class Reraise(Swallow):
    def __exit__(self, kind, error, tb):
        if kind is not None: raise KeyError('changed') from error
@contextlib.contextmanager
def scope(name, swallow=False):
    log.append(('in', name))
    try:
        yield len(log)
    except (RuntimeError, ValueError):
        log.append(('caught', name))
        if not swallow: raise
    finally:
        log.append(('out', name))
class Handler(logging.Handler):
    def emit(self, record): log.append(record.getMessage())
logging.getLogger('fuzz').handlers[:] = [Handler()]
class Gone:
    def __init__(self, name): self.name = name
    def __del__(self): log.append(('gone', self.name))
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
class Flags(enum.Flag):
    X = enum.auto()
    Y = enum.auto()
class Kind(enum.Enum):
    ONE, TWO = 'one', 'two'
    def apply(self, t): return t * (1 if self is Kind.ONE else 2)
class Pair(typing.NamedTuple):
    first: object
    second: object = 2
class Sizes(list):
    def __getitem__(self, i): return said('item', super().__getitem__(i))
    def append(self, v): log.append('append'); super().append(v)
class Table(dict):
    def __missing__(self, key): return said(('no', key), 2)
class Failing(nn.Module):
    def forward(self, x):
        if self.training: raise ValueError('failing')
        return x * 2
@functools.lru_cache(maxsize=2)
def memo(k): return said(('memo', k), k * 2)
@functools.singledispatch
def by_type(v): return said('other', 1)
@by_type.register(int)
def _(v): return said('int', v)
@by_type.register(torch.Tensor)
def _(v): return v.detach().sum()
def counted(n=3):
    total = 0
    try:
        while True:
            sent = yield total
            total += n if sent is None else sent
    finally:
        log.append(('closed', total))
def endless(t):
    while True: yield t * len(log)
def closing(start):
    held = start
    def add(k):
        nonlocal held
        held = held + k
        return held
    return add, lambda: held
def deep(t, k):
    try:
        return deep(t, k - 1) if k else t.view(7)
    except RuntimeError as error:
        log.append(('deep', k))
        raise ValueError(k) from error
def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        log.append(function.__name__)
        return function(*args, **kwargs)
    return wrapper
@decorated
def doubled(t): return t * 2
@torch.jit.script
def scripted(t: torch.Tensor, k: float):
    if t.dim() > 1:
        return t * k
    return t + k
@torch.jit.script_if_tracing
def while_tracing(t): return t + t.size(0)
@torch.no_grad()
def without(t): return t * 2
def raising(module, args): raise ValueError('hook')
watched, opened, every, slots = Watched(), Open(), Every(), Slots()
items_of, counting, add_get = Sizes([1, 2]), counted(), closing(1)
table_of, many, counts = Table(a=1), defaultdict(list, a=[1]), Counter('abca')
chain, ordered, queue = ChainMap({'a': 1}, {'b': 2}), OrderedDict(b=1, a=2), deque([1, 2], maxlen=4)
variable = contextvars.ContextVar('variable', default=2)
iterator, cycled, numbers = iter(range(100)), itertools.cycle([1, 2]), itertools.count(3)
failing, level, kind = Failing(), Level.LOW, Kind.ONE
pair, config, frozen = Pair(1), types.SimpleNamespace(k=2, on=True), frozenset({1, 2})
traced = torch.jit.trace(lambda t: t * 2, T(3, 4))
quantised = torch.quantize_per_tensor(T(4), 0.1, 3, torch.quint8)
observer, faked = torch.ao.quantization.MinMaxObserver(), torch.ao.quantization.FakeQuantize()
flags, seen_keys = Flags.X | Flags.Y, {}
"""
TENSORS = {
    "descriptors": """
A * watched.value; A * watched.twice; A * watched.cached; A * Watched.level; A * Watched[K]
watched(A); A * sum(watched); A * opened.some; A * slots.a; A * Watched.made().scale
A * getattr(opened, 'L'); A * getattr(every, 'K', 3); A * len(watched); A * Watched(K).scale
A * (2 if watched else 3); A * (2 if 1 in watched else 3); A * max(*Watched); watched * A
A * watched.__dict__.get('value', 4); A * operator.attrgetter('value')(watched)
A * (2 if isinstance(watched, Watched) else 3); type('New', (Watched,), {'scale': 3})()(A)
A * vars(watched).get('scale', 1); functools.partial(Watched.__call__, watched)(A)
Watched.__call__(watched, A); A * Watched.count
A * object.__getattribute__(opened, '__dict__').get('k', 2)
""",
    "generators": """
A * next(counting); A * counting.send(K); next(endless(A)); A * next(iterator); A * next(cycled)
A * next(numbers); sum(t for t in (A, B, A))
torch.stack([t for t in [A, A] if said('L', True)]).sum(0)
A * sum(itertools.islice(counted(2), 4)); A * sum(itertools.accumulate([1, 2, 3]))
functools.reduce(operator.add, (t * 2 for t in (A, A))); A * next(iter(watched))
A * sum(map(lambda k: said(k, k), [1, 2])); A * next(filter(lambda k: k > 1, [1, 2, 3]))
A * sum(k * j for k, j in zip(itertools.count(1), [1, 2])); torch.cat([*map(lambda r: r[None], A)])
A * min(itertools.chain([3], counts.values())); A * sum(next(counting) for _ in range(2))
A * add_get[0](1); A * add_get[1]()
torch.cat([t for _, t in itertools.groupby([A, A], id).__next__()[1:2]] or [A])
""",
    "containers": """
A * items_of[0]; A * table_of['L']; A * table_of['a']; A * len(many['L']); A * counts['a']
A * chain['b']; A * list(ordered.values())[0]; A * queue[-1]; A * len(queue); A * pair.second
A * sum(frozen); A * ordered.get('a', 3); A * next(reversed(ordered.values())); A * config.k
A * counts.most_common(1)[0][1]; pair._replace(first=A).first * 2; A * len({**table_of, 'K': 1})
A * dict(zip('ab', (1, 2)))['b']; A * ({'a': 1} | {'a': 2})['a']; A * sorted(counts.items())[0][1]
A * sum(v for k, v in sorted(ordered.items())); A * {1: 2, True: 3}[1]; A * [*queue, *frozen][-1]
tree_leaves({'b': A, 'a': [B]})[0] * 2; A * int.from_bytes(struct.pack('<i', 3), 'little')
A * json.loads(json.dumps({'k': 2}))['k']; A * variable.get(); A * level; A * level.value
kind.apply(A); A * Kind['TWO'].apply(2); A * (2 if Flags.X in flags else 3); A * Level(2)
A * len(Level.__members__); A * by_type(2); A + by_type(A); A * memo(2); A * memo(3); doubled(A)
torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t * 2, {'a': A, 'b': 1})['a']
""",
    "torch": """
scripted(A, 2.0); while_tracing(A); traced(A); without(A) + B
torch.quantize_per_tensor(A.detach().float(), 0.1, 3, torch.quint8).dequantize() + A
torch.fake_quantize_per_tensor_affine(A, 0.1, 0, 0, 255); A.to(torch.bfloat16).float()
A * torch.finfo(torch.float32).eps; A * torch.iinfo(torch.int8).max; A.to(torch.int8).float() + B
torch.empty(0).numel() * A + A; torch.broadcast_tensors(A, B[:1])[1] * A
A.to_sparse().coalesce().values().sum() * A
torch.sparse_coo_tensor([[0], [1]], [2.0], (1, 4)).to_dense() + A
torch.complex(A, A).abs(); torch.view_as_real(A + 0j)[..., 0]; torch.polar(A.abs(), A).real
torch.special.expit(A); torch.linalg.norm(A, dim=1, keepdim=True) * B
torch.fft.rfft(A).real.sum() * A
torch.nn.utils.rnn.pad_sequence([A[0], A[-1][:2]]).sum() * A; F.pad(A, (0, 1))[:, 1:]
torch.bucketize(A.detach(), torch.tensor([0.0, 1.0])) * A; torch.histc(A.detach(), 4) + A
torch.func.jvp(lambda t: t.sin(), (A.detach(),), (A.detach(),))[1]
torch.func.vjp(lambda t: t * 2, A.detach())[0] + B
torch.func.functional_call(net, {'b': p0}, (A,)); torch.vmap(torch.dot)(A, A)[:, None] * A
torch.nn.utils.parameters_to_vector([p0, net.b])[:4] + A; A.nan_to_num(); A.nonzero().sum() * A
F.one_hot(torch.arange(4)).float()[0] + A; torch.searchsorted(torch.arange(4.0), A.detach()) + A
A.unfold(1, 4, 1).squeeze(1); F.embedding(torch.tensor([0]), net.w) + A
A.index_select(0, torch.tensor([0])) + A
torch.autograd.functional.jacobian(lambda t: t * 2, A.detach()[0]).sum() * A
torch.utils.checkpoint.checkpoint_sequential([torch.sin, torch.cos], 2, A, use_reentrant=False)
Two(Two(A, A * 2, 'L'), Two(A, B * 0 if A.shape == B.shape else A)).a.sin()
nn.Parameter(Two(A.detach(), A.detach())).a * 2
torch.nested.nested_tensor([A.detach()[0], A.detach()[0][:2]]).to_padded_tensor(0.0).sum() * A
""",
    "quantised": """
torch.quantize_per_tensor(A.detach().float(), 0.1, 3, torch.qint8).dequantize() * B
torch.quantize_per_channel(A.detach().float(), t0 * 0 + 1, t0 * 0, 1, torch.qint8).dequantize()
quantised.dequantize() + A; quantised.int_repr() * A; A * quantised.q_scale(); observer(A)
A + quantised.q_zero_point(); torch.relu(quantised).dequantize() * A; faked(A); faked(A) * p0
quantised[1:].dequantize().sum() * A; quantised.view(2, 2).dequantize().sum() * A
torch.cat([quantised, quantised]).dequantize()[:4] + A; A * quantised.element_size()
torch.fake_quantize_per_channel_affine(A, torch.full((4,), 0.1), torch.zeros(4), 1, 0, 255)
A * (quantised.qscheme() is torch.per_tensor_affine); quantised.clone().dequantize() * B
torch.quantize_per_tensor(A.detach().float(), torch.tensor(0.5), torch.tensor(1), torch.qint32)
torch.dequantize([quantised, quantised])[1] + A; quantised.reshape(4, 1).dequantize()[0] + A
torch.quantize_per_tensor_dynamic(A.detach().float(), torch.qint8, False).dequantize()
""",
}
STATEMENTS = {
    "quantised": """
log.append(quantised.q_scale()); log.append(quantised.dequantize()); kept.append(quantised)
quantised = torch.quantize_per_tensor(A.detach()[0].float(), 0.5, 1, torch.quint8)
quantised.copy_(T(4) * 2); log.append(quantised.is_quantized); log.append(quantised.dtype)
log.append(str(quantised.qscheme())); log.append(observer.calculate_qparams())
observer.reset_min_max_vals()
log.append(torch.equal(quantised, quantised)); log.append(A.is_quantized); log.append(quantised)
log.append(quantised.int_repr().sum()); y = observer(A);log.append(observer.min_val)
log.append(faked.scale); faked.scale.mul_(2); log.append(quantised.shape)
""",
    "descriptors": """
watched.value = K; watched.twice = K; del watched.value; watched.scale = 3; opened.k = K
del opened.k
slots.b = A; log.append(hasattr(slots, 'b')); every.k = K; log.append(watched == K)
log.append({watched: 1}.get(watched)); log.append(hasattr(opened, '_x')); Watched.count += 1
class Late(Watched, name='L'): scale = 4
class Named: value = Logged('late')
log.append(isinstance(A, Watched)); log.append(watched in [watched]); log.append(bool(watched))
watched.__dict__.pop('cached', None); log.append(watched != 3); setattr(watched, 'L', A)
del watched.scale; log.append(sorted(vars(opened))); log.append(watched.value if watched else 0)
y = y * getattr(watched, 'L', 2); type(watched).count = K; log.append(Watched.__name__)
log.append(type.__call__(Watched).scale); watched.made().value = 3
""",
    "contexts": """
with Swallow(): A.view(7)
with Swallow(KeyError): z = {}['L']
with Swallow(ValueError) as s: raise ValueError('L')
with scope('L', True): A @ torch.ones(3, 3)
with scope('L'): y = A * 2
with Swallow(), Swallow(RuntimeError): deep(A, 2)
with Reraise(): A.view(7)
with Swallow(KeyError), Reraise(): int('L')
with contextlib.ExitStack() as stack:
    stack.enter_context(scope('L'))
    stack.callback(log.append, 'K')
    y = A * 2
with contextlib.ExitStack() as stack: stack.push(lambda *a: said('pushed', True));A.view(7)
with contextlib.closing(counted()) as c: y = A * (next(c) + 1)
for k in range(3):
    with Swallow():
        if k == 1: continue
        if k == 2: break
        y = y * 2
try: deep(A, 1)
except ValueError as error:
    log.append((str(error), type(error.__cause__).__name__, error.__context__))
try: failing(A)
except ValueError: log.append('L')
finally: y = y + 1
try: y = A * 2
except RuntimeError: pass
else: log.append('else')
h = net.inner.register_forward_pre_hook(raising)
try: net.inner(A)
except ValueError as error: log.append(error.args)
h.remove()
raise LookupError('L'); log.append(sys.exc_info()[1]); assert K < 2, 'L'
try:
    raise KeyError('L')
except KeyError as error: kept_error = error
log.append(traceback.format_exception_only(ValueError('L'))[0])
try:
    raise ExceptionGroup('L', [ValueError(1), KeyError(2)])
except* ValueError as group: log.append(len(group.exceptions))
except* KeyError: log.append('key')
token = variable.set(K);y = y * variable.get();variable.reset(token)
variable.set(K); log.append(contextvars.copy_context().run(variable.get))
""",
    "generators": """
log.append(next(counting)); counting.close(); log.append(next(iterator, 'end')); next(cycled)
g = counted(K);next(g);g.send(2);log.append(g.send(3))
g = (t * 2 for t in (A, A));y = next(g)
try: next(iter(()))
except StopIteration: log.append('L')
log.append(list(zip('ab', numbers))); log.append([k for k in watched]); del g
for k in counted(1):
    if k > 2: break
    y = y + k
log.append(next((t for t in [y, z] if t is A), None) is A); add_get[0](K)
def inner():
    got = yield A * 2
    log.append(got)
    yield said('L', A)
g = inner();y = next(g);v = g.send('L')
y = sum((lambda t: (yield t))(A)); log.append(dict(enumerate(itertools.islice(numbers, 2))))
a0, *rest = counted.__defaults__, 1, 2
log.append(list(itertools.takewhile(lambda k: k < 2, iterator)))
""",
    "containers": """
items_of.append(K); table_of['L'] = A; many['L'].append(K); counts.update('ab'); counts['L'] += 1
chain['c'] = K; ordered.move_to_end('b'); ordered['L'] = K; queue.append(K); queue.appendleft(A)
queue.rotate(1); log.append(list(queue)); log.append(list(ordered)); log.append(list(counts))
log.append(list({A: 1, B: 2}.values())); log.append(sorted({'c', 'a', 'b'})); config.k = K
del table_of['a']; log.append('L' in table_of); log.append(dict(many)); memo(K); memo.cache_clear()
log.append(memo.cache_info()); log.append(pair); log.append(pair == (1, 2))
log.append(f'{level!r}')
log.append(f'{kind}'); log.append(Flags.X | Flags.Y is flags); config.on = not config.on
log.append({level: 'L'}.get(1)); log.append(Kind('two') is Kind.TWO); log.append(level < K)
seen_keys[len(seen_keys)] = A; log.append([*seen_keys]); seen_keys.pop(next(iter(seen_keys)), None)
for k, v in list(seen_keys.items()): y = y + k
ordered.popitem(last=False) if ordered else 0; log.append({k: v for k, v in zip(ordered, [1, 2])})
a1, (b1, *c1) = 1, (2, 3, 4);log.append(c1); queue.extend([K, K]); log.append(queue.maxlen)
match pair:
    case Pair(first=1): y = y * 2
    case (a2, b2): y = y * b2
match {'k': A, 'n': 2}:
    case {'n': int(k2), **more}: y = y * k2;log.append(list(more))
log.append(set(counts) - {'a'} == {'b', 'c'})
log.append(len(list(itertools.permutations([1, 2, 3], 2))))
x_, y_ = y_, x_ = 1, 2;log.append((x_, y_)); log.append(sys.getsizeof(()) > 0)
many.default_factory = None
""",
    "lifetimes": """
gone = Gone('L'); gone = None; Gone('L'); kept.append(Gone('L')); kept.pop() if kept else 0
del kept[:]
def held():
    gone = Gone('L')
    return A * 2
y = held(); pairs = [Gone('L')];pairs.append(pairs);del pairs;gc.collect()
try:
    here = Gone('L')
    raise ValueError('L')
except ValueError: here = None
weakref.finalize(watched, log.append, 'L'); r = weakref.ref(watched);log.append(r() is watched)
cycle = Gone('L');cycle.me = cycle;cycle.me = None;del cycle; watched.memory = Gone('L')
for k in range(2): gone = Gone(k)
""",
    "torch": """
print('L', K); print(f'{A.shape}', K, sep='-', end='!')
logging.getLogger('fuzz').warning('L %s', K); print(A.detach()[0])
print(y.detach().sum() > 0)
torch.set_printoptions(precision=3);print(A.detach());torch.set_printoptions()
sys.stdout.write('L'); print(*[1, 2], file=sys.stdout); log.append(str(A.detach()))
log.append(f'{A.detach()[0, 0]:.1f}')
torch.backends.cuda.matmul.allow_tf32 = False; log.append(torch.backends.mkldnn.enabled)
log.append(torch.get_num_threads() > 0); torch.set_float32_matmul_precision('high')
log.append(torch.are_deterministic_algorithms_enabled()); log.append(scripted.name)
torch.use_deterministic_algorithms(True); torch.use_deterministic_algorithms(False)
log.append(torch.is_autocast_enabled('cpu')); log.append(os.path.exists('/nowhere'))
log.append(len(os.environ) > 0)
with torch.autocast('cpu', torch.bfloat16): y = A @ net.w
with torch.random.fork_rng(): y = A * torch.rand(4)
with torch.autograd.profiler.record_function('L'): y = A * 2
with torch.set_grad_enabled(K > 1): y = A * 2
with torch.inference_mode(): v = A * 2
log.append(torch.is_inference(V)); net.inner.weight.grad = None
log.append(net.inner.weight.grad is None)
log.append([n for n, _ in net.named_parameters()]); net.add_module('late', nn.Identity())
net.inner.extra = A
log.append(sum(p.numel() for p in net.parameters()))
net.apply(lambda m: log.append(type(m).__name__))
log.append([type(m).__name__ for m in net.modules()]); net.register_buffer('late', A.detach())
del net.memory; log.append(net.state_dict().keys()); net.requires_grad_(False); net.train(K > 1)
log.append(torch.equal(A, A)); log.append(A.dtype.is_floating_point)
log.append(A.device.type == 'cpu')
log.append((A.size(), A.numel(), A.dim(), A.is_contiguous())); log.append(torch.result_type(A, K))
log.append(torch.can_cast(torch.float, torch.int)); log.append(A.layout is torch.strided)
""",
}
WRAPS = """
with Swallow():; with Swallow(RuntimeError, ValueError):; with scope('L'):; with scope('L', True):
with contextlib.suppress(Exception):; with torch.no_grad():; for turn in range(2):; if K > 1:
if watched:; with Swallow(KeyError), scope('L'):; if A.sum() > 0:
while len(log) % 3 and len(log) < 40 and said('L', True):
with torch.autocast('cpu', torch.bfloat16):
"""
CHANGES = """
quantised = torch.quantize_per_tensor(T(4) * 2, 0.3, 1, torch.quint8)
quantised = torch.quantize_per_tensor(T(4), 0.1, 3, torch.qint8); observer.reset_min_max_vals()
torch.ao.quantization.disable_observer(faked); torch.ao.quantization.disable_fake_quant(faked)
observer = torch.ao.quantization.MovingAverageMinMaxObserver()
watched = Watched(3); watched.scale = 1; watched.scale = 2.5; Watched.count = 0; opened = Open()
slots = Slots(3)
Watched.twice = 4; Watched.cached = 5; Watched.value = 3; Watched.__bool__ = lambda self: False
Watched.__len__ = lambda self: 5; counting = counted(5); iterator = iter([1, 2])
cycled = itertools.cycle([3])
numbers = itertools.count(9); items_of = Sizes([5]); items_of[0] = 4; table_of = Table(L=3)
many.clear()
counts = Counter('zz'); chain = ChainMap({}, {'b': 3}); ordered = OrderedDict(a=2, b=1)
queue = deque([3])
queue.clear(); queue.append(2); level = Level.HIGH; kind = Kind.TWO; flags = Flags.Y
pair = Pair(T(4), 3)
pair = Pair(2, 2.5); config.k = 3; config = types.SimpleNamespace(k=2.5, on=False)
frozen = frozenset({3})
variable.set(4); memo.cache_clear(); failing.eval(); failing.train(); add_get = closing(2.5)
seen_keys.clear()
Swallow.__exit__ = lambda self, *a: said('other', True)
Gone.__del__ = lambda self: log.append('changed')
by_type.register(float)(lambda v: 3); doubled = decorated(lambda t: t * 3); net = copy.deepcopy(net)
net.eval(); net.train(); log.clear(); kept.clear(); result = None; _ = gc.collect() and None
a = T(3, 4, grad=True); p0.grad = None
"""
