"""What random programs of a model's surroundings are made of, besides what those of training,
corners and objects have: wrapper classes with optional parts, jagged, sparse and distributed
tensors, rounded numpy, clocks, files, texts, methods as values, local classes, operators of
objects; and the positions where statements stand.

A, B: tensors of rows of four. V: any tensor. K: a number. L: a name to log. Statements of several
lines stand between empty lines, behind the block of those of one line.
"""

PREAMBLE = """
import asyncio, bisect, collections, datetime, decimal, heapq, inspect, pprint, re, statistics
import tempfile, textwrap
import torch.distributed as dist
from tests.fuzz.surrounding_operators import Factor, Tally, doubled as twofold
from tests.fuzz.surrounding_operators import factored, raised, tallied
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nested import as_nested_tensor, nested_tensor_from_jagged
if not dist.is_initialized():
    dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())
__mesh__ = dist.device_mesh.init_device_mesh('cpu', (1,))
class Packed(torch.Tensor):
    @staticmethod
    def __new__(cls, packed, scale, shift=None):
        return torch.Tensor._make_wrapper_subclass(
            cls, packed.shape, dtype=scale.dtype, device=packed.device)
    def __init__(self, packed, scale, shift=None):
        self.packed, self.scale, self.shift = packed, scale, shift
    def __repr__(self): return f'Packed({tuple(self.shape)})'
    def __tensor_flatten__(self):
        return [n for n in ('packed', 'scale', 'shift') if getattr(self, n) is not None], None
    @staticmethod
    def __tensor_unflatten__(inner, held, size, stride):
        return Packed(inner['packed'], inner['scale'], inner.get('shift'))
    def wide(self):
        out = self.packed.to(self.scale.dtype) * self.scale
        return out if self.shift is None else out + self.shift
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear and isinstance(args[1], Packed):
            return F.linear(args[0], args[1].wide(), *args[2:], **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass(): return func(*args, **(kwargs or {}))
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        one = args[0]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            shift = None if one.shift is None else func(one.shift)
            out = Packed(func(one.packed), func(one.scale), shift)
            return return_and_correct_aliasing(func, args, kwargs or {}, out)
        wide = lambda t: t.wide() if isinstance(t, Packed) else t
        return func(*tree_map(wide, args), **tree_map(wide, kwargs or {}))
def packed_of(t, shifted=False):
    with torch.no_grad():
        scale = t.abs().amax(1, keepdim=True) / 127
        return Packed((t / scale).round().to(torch.int8), scale, t[:, :1] if shifted else None)
def jagged(*lengths, grad=False):
    parts = [T(n, 4) * (k + 1) for k, n in enumerate(lengths)]
    out = as_nested_tensor(parts, layout=torch.jagged).detach()
    return out.requires_grad_() if grad else out
def spread(t, place=None): return distribute_tensor(t.detach(), __mesh__, [place or Replicate()])
class Refused(Exception):
    def __init__(self, held): super().__init__('refused'); self.held = held
class Settings(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__
@dataclasses.dataclass(frozen=True, order=True)
class Fixed:
    a: int = 1
    b: float = dataclasses.field(default=2.0, compare=False)
    def scaled(self, t): return t * self.a + self.b
@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    a: object = 1
    start: dataclasses.InitVar[int] = 2
    total: int = dataclasses.field(init=False, default=0)
    def __post_init__(self, start): self.total = self.a + start
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, t): ...
class Square(Shape):
    def area(self, t): return t * t
class Generic_(typing.Generic[typing.TypeVar('E')]):
    def __init__(self, v): self.v = v
@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self, t): ...
class Word(str, enum.Enum):
    UP, DOWN = 'up', 'down'
class Case(unittest.TestCase):
    def same(self, one, other): self.assertTrue(torch.equal(one, other), 'not equal')
    def runTest(self): pass
class Pipe(nn.Module):
    def __init__(self, *stages):
        super().__init__()
        self.stages, self.seen = nn.ModuleList(stages), {}
    def forward(self, x, *, skip=None, **named):
        for k, stage in enumerate(self.stages):
            if k == skip: continue
            x = stage(x)
            self.seen[k] = x.shape
        return x * named.get('scale', 1)
def drive(coroutine):
    try:
        while True: coroutine.send(None)
    except StopIteration as stop: return stop.value
async def later(t, k=1):
    await asyncio.sleep(0)
    log.append('later')
    return t * k
def gather(*args, k=1, **named): return functools.reduce(operator.add, args) * k + len(named)
@dynamo.disable
def disabled(t): return t * 2
@torch.inference_mode()
def inferred(t): return t * 2
def write_notes(text):
    with open(__notes__, 'a') as file: file.write(text)
def read_notes():
    with open(__notes__) as file: return file.read()
__notes__ = os.path.join(tempfile.gettempdir(), f'framegraph_fuzz_{os.getpid()}')
open(__notes__, 'w').close()
os.environ['FRAMEGRAPH_FUZZ'] = '2'
__logger__ = logging.getLogger('fuzz')
__logger__.setLevel(logging.WARNING)
__logger__.propagate, __logger__.disabled = False, False
tally, factor, settings, fixed = Tally(3), Factor(2.0), Settings(k=2, on=True), Fixed(2)
slotted, square, case, word = Slotted(a=2), Square(), Case(), Word.UP
packed, rag, pipe = packed_of(T(4, 4)), jagged(2, 1), Pipe(nn.Linear(4, 4), nn.Tanh())
coo, csr = T(4, 4).relu().to_sparse(), T(4, 4).relu().to_sparse_csr()
dtensor, heap, ints = spread(T(4)), [1, 3, 2], np.arange(6).reshape(2, 3)
"""
TENSORS = {
    "wrappers": """
A + packed.wide()[0]; F.linear(A, packed); F.linear(A, packed, net.b); A * packed[0]; A @ packed
F.linear(A, packed_of(net.w)); F.linear(A, packed_of(net.w, True)); packed * A[:1]
packed_of(A, True).wide(); packed_of(A).scale * A; A + packed.detach().wide()[1]; packed_of(A)
Two(Two(A, B), Two(B, A)).b.a; Two(A, A)[:, 1:].a.sum() + A; Two(*Two(A, B).unbind(1)[:2]).a[0] + A
torch.where(Two(A > 0, A > 1), A, B) if not isinstance(A, Two) else A; Two(A, B).reshape(-1).a[:4]
torch.cat([Two(A, B), Two(B, A)]).a; (Two(A, A) * p0).sum() * A; F.linear(Two(A, B), net.w).b
Two(A, B).to(torch.float64).a.float(); Two(A, B) @ Two(net.w, net.w); Two(A, B).clone().mul_(K)
two.as_subclass(Sub) + A; two * two.a + A[0]; torch.stack(list(Two(A, A).unbind(0))).a
packed.clone().shift if packed.clone().shift is not None else A; net.inner(Two(A, B)).a
nn.Parameter(packed, requires_grad=False).wide()[2] * A; F.dropout(Two(A, A), 0.5, False).a
""",
    "jagged": """
(rag * K).values().sum(0) + A; rag.sin().unbind()[0].sum(0) * A; (rag @ net.w).values().mean() + A
net.inner(rag).values()[:1] * A; F.layer_norm(rag, (4,)).values().sum(0) + A
rag.sum(1)[0] + A; rag.mean(-1).values().sum() * A; (rag + rag).offsets()[1] * A
nested_tensor_from_jagged(A, torch.tensor([0, 1, len(A)])).sum(1)[1] + A
as_nested_tensor([A, B], layout=torch.jagged).cos().values()[: len(A)]; rag.size(0) * A
as_nested_tensor([A, B], layout=torch.jagged).sum(1); rag.to_padded_tensor(0.0).sum(1)[0] * A
F.softmax(rag, -1).values().sum() * A; torch.cat([t.sum(0, keepdim=True) for t in rag.unbind()])
rag.clone().values() * A[:1]; rag.detach().relu().sum() * A
torch.zeros_like(rag).values().sum() + A
F.relu(nested_tensor_from_jagged(A, rag.offsets())) if len(A) == 3 else A; rag.transpose(1, 2)
(rag * rag).values(); rag.to(torch.float64).values().float()[0] * A; rag * 2; -rag; rag
rag.values().t().contiguous().sum() * A; len(rag.unbind()) * A; rag._max_seqlen * A
""",
    "sparse": """
torch.sparse.mm(coo, A.t()).t(); coo.to_dense() @ A.t(); (coo * 2).coalesce().values().sum() * A
A @ coo.to_dense(); torch.sparse.mm(csr, A.t()).t(); csr.values().sum() * A; (csr @ A.t()).t()
coo.indices()[0].sum() * A; A.relu().to_sparse().coalesce().values().sum() + A
coo.t().to_dense()[0]
torch.sparse_coo_tensor(coo.indices(), coo.values() * K, (4, 4)).to_dense()[1] * A
torch.sparse_csr_tensor(csr.crow_indices(), csr.col_indices(), csr.values() * 2).to_dense()[2] * A
torch.sparse.sum(coo) * A; torch.sparse.sum(coo, 0).to_dense() + A; coo._nnz() * A; (coo + coo)
A.to_sparse_csr().to_dense() if A.dim() == 2 else A; coo.is_sparse * A; csr.layout is not None and A
torch.sparse.softmax(coo, 1).to_dense()[0] + A; coo.sin().to_dense()[0] * A; A.sparse_mask(coo)
A.to_sparse(1).to_dense(); coo.to(torch.float64).to_dense()[0].float() + A; coo.abs(); A.to_sparse()
""",
    "distributed": """
dtensor.to_local() * A; (dtensor * K).to_local() + A; dtensor.full_tensor() * A
(spread(A) @ spread(net.w)).to_local(); spread(A, Shard(0)).redistribute(__mesh__, [Replicate()])
(spread(A) * spread(B)).to_local() if A.shape == B.shape else A; dtensor.sum().full_tensor() * A
DTensor.from_local(A, __mesh__, [Replicate()]).to_local(); dtensor.placements[0].is_replicate() * A
DTensor.from_local(A, __mesh__, [Shard(0)]).sin().to_local(); dtensor.device_mesh.size() * A
F.relu(spread(A)).to_local() + A; dtensor * dtensor; dtensor.detach().clone().to_local() + A
""",
    "numbers": """
A * np.mean([1.0, 2.5]); A + np.std(arr); A + np.var(arr, ddof=1); A * np.median(arr)
A + torch.from_numpy(np.dot(ints, ints.T).astype(np.float32)).sum(); A * np.percentile(arr, 50)
A + torch.from_numpy(np.outer(arr, arr).astype(np.float32))[0]; A * np.einsum('i,i->', arr, arr)
A + torch.from_numpy(np.tile(arr, 2)[:4]); A + torch.from_numpy(np.repeat(arr, 2)[:4])
A + torch.from_numpy(np.roll(arr, 1))
A + torch.from_numpy(np.diff(arr, prepend=0).astype(np.float32))
A + torch.from_numpy(np.interp(arr, [0, 1], [0, 2])).to(A.dtype); A * np.interp(0.3, [0, 1], [0, K])
A + torch.from_numpy(np.convolve(arr, arr, 'same').astype(np.float32)); A * np.trapezoid(arr)
A + torch.from_numpy(np.pad(arr, 1)[1:-1]); A + torch.from_numpy(np.hstack([arr[:2], arr[2:]]))
A + torch.from_numpy(np.vstack([arr, arr])[1]); A + torch.from_numpy(np.argsort(-arr).copy())
A + torch.from_numpy(np.round(arr, 1)); A * np.hypot(3, K); A * np.arctan2(arr, 2.0).sum()
A + torch.from_numpy(np.exp(arr * 0.1)); A + torch.from_numpy(np.log1p(np.abs(arr)))
A + torch.from_numpy(np.nan_to_num(arr)); A * np.power(2.0, K); A * np.mod(arr, 2).sum()
A + torch.from_numpy(np.add.accumulate(arr)); A * np.add.reduce(arr); A * np.multiply.outer(2, 3)
A + torch.from_numpy(ints.astype(np.float32)).sum(); A + float(ints[0, K if K == 1 else 0])
A + torch.from_numpy(arr[np.array([0, 1, 2, 3])]); A + torch.from_numpy(arr[arr > -9])
A * np.linalg.norm(A.detach().numpy())
A + torch.from_numpy(np.linalg.inv(np.eye(4) * 2)[0]).float()
A * np.linalg.det(np.eye(2) * K); A + torch.from_numpy(np.fft.fft(arr).imag.astype(np.float32))
A * np.complex64(1 + 2j).real; A + torch.from_numpy(np.linspace(0, K, 4, dtype=np.float32))
A + torch.from_numpy(np.logspace(0, 1, 4).astype(np.float32)); A * np.float64(np.pi).item()
A + torch.from_numpy(np.geomspace(1, 8, 4).astype(np.float32)); A + torch.from_numpy(np.eye(4)[1])
A + torch.from_numpy(np.tri(4, dtype=np.float32)[2]); A * np.histogram(arr, 2)[0].sum()
A + torch.from_numpy(np.random.standard_normal(4)).to(A.dtype); A * np.random.choice([1, 2])
A + torch.from_numpy(rng.permutation(4)); A * rng.standard_normal(); A * random.triangular(0, 1)
A * random.expovariate(1); A * random.choices([1, 2], weights=[1, 3])[0]; A * np.random.poisson(2)
A * statistics.mean([1, K]); A * statistics.pstdev([1.0, 2.5]); A * math.fsum([0.1, K])
A * math.prod([2, K]); A * float(decimal.Decimal('1.5')); A + np.searchsorted(arr, 1.0)
A * (np.float32(K) ** 2); A * np.int32(7) // 2; A + np.asarray(K); A * np.array(2.5)
A * int(np.ceil(2.1)); A * np.count_nonzero(arr); A + np.ptp(arr); A * np.divmod(7, 2)[1]
A + torch.from_numpy(np.broadcast_to(np.float32(2), (4,)).copy()); A * np.all(arr >= 0)
A + torch.from_numpy(np.apply_along_axis(np.sum, 0, ints)).sum(); A + np.vectorize(abs)(arr).sum()
A + torch.from_numpy(np.squeeze(arr[None]))
A + torch.from_numpy(np.moveaxis(ints, 0, 1).copy()).sum()
""",
    "values": """
str.upper('a') and A; (lambda f1: f1())(A.sin); torch.Tensor.add(A, B)
functools.partial(A.add, K)()
getattr(A, 'mul')(K); type(A).sin(A); operator.itemgetter(0)([A, B]); A * [1, 2].__len__()
A * (3).__add__(2); A * {}.setdefault('L', K); A * max(map(float.__abs__, [1.0, -2.0]))
next(map(torch.Tensor.cos, [A])); A * 'aba'.count('a'); A * dict.get({'a': K}, 'a', 1)
A * list.pop([1, 2]); A * tuple.index((1, 2), 2); A * set.__contains__({1}, 1); A.__add__(B)
A.__getitem__(slice(0, 1)); A * int.__mul__(2, 3); A.__matmul__(net.w); A * float.fromhex('0x1p1')
functools.reduce(torch.Tensor.mul, [A, B]); A * len('{}-{}'.format(K, 'L')); A * type(K)(2)
operator.attrgetter('mT')(A).mT; operator.matmul(A, net.w); cfg.apply.__func__(cfg, A)
nn.Linear.forward(net.inner, A); nn.Module.__call__(net.inner, A); type(cfg).apply(special, A)
A * bisect.bisect([1, 2, 3], 2); A * heapq.nsmallest(1, heap)[0]; A * sorted(heap)[-1]
A * len(re.findall('a', 'banana')); A * int(re.match(r'(\\d+)', '12x').group(1))
gather(A, B, k=K); gather(*[A, B], *(A,), **{'L': 1}); torch.add(*(A, B), **{'alpha': 2})
gather(*(t for t in (A, B))); A * len(inspect.signature(gather).parameters)
A * settings.k; A * settings['k']; fixed.scaled(A); A * slotted.total; square.area(A)
A * dataclasses.replace(fixed, a=3).a; A * len(dataclasses.fields(fixed)); A * (Fixed(1) < fixed)
A * Generic_[int](K).v; A * isinstance(square, HasArea); A * (2 if word == 'up' else 3)
A * len(word.value); A * Slotted(a=K).total; pipe(A); pipe(A, skip=0); pipe(A, scale=K)
drive(later(A, K)); asyncio.run(later(A)); disabled(A) + B; inferred(A) + A.detach()
[t := A * 2, t + 1][1]; A * sum((w := k) for k in (1, 2))
A * (lambda *a, **k: len(a) + len(k))(1, L=2)
tallied(A.detach(), tally) + B; factored(A.detach(), factor) + B; factored(A.detach(), Factor(3.0))
twofold(A); twofold(A) * twofold(B); tallied(A.detach(), Tally(2))
torch.ops.framegraph_fuzz.doubled(A)
A * float(os.environ['FRAMEGRAPH_FUZZ']); A * len(os.environ.get('FRAMEGRAPH_FUZZ', ''))
A * len(read_notes())
A * datetime.timedelta(seconds=3).seconds; A * (time.monotonic() > 0)
A * len(textwrap.dedent(' a'))
torch.load(io.BytesIO(pickle.dumps(1)), weights_only=False) if False else A * 1; A * tally.number
A * __cache.setdefault(tuple(A.shape), len(__cache) + 1); A * (time.perf_counter_ns() >= 0)
""",
}
STATEMENTS = {
    "wrappers": """
net.inner.weight = nn.Parameter(packed, requires_grad=False)
net.w = nn.Parameter(Two(net.w.detach(), net.w.detach() * 2))
packed.scale.mul_(2); packed.shift = torch.ones(4, 1); packed = packed_of(T(4, 4) + K, K == 2)
two.b = A.detach()[0]
log.append(packed.shift is None); log.append(type(packed * 2))
log.append(two.__tensor_flatten__()[0])
log.append(isinstance(A, Packed)); kept.append(Two(A.detach(), B.detach()))
kept.append(packed_of(A.detach()))
log.append(packed); log.append(torch.utils._python_dispatch.is_traceable_wrapper_subclass(A))
two.add_(K)
net.inner.weight.data = packed_of(T(4, 4)).wide(); log.append(type(net.inner.weight).__name__)
log.append(repr(packed)); log.append(two.shape == A.shape); packed.packed.zero_()
log.append(two.sum())

w = Two(A.detach(), B.detach()).requires_grad_()
(w * w).sum().backward()
log.append(w.grad)

for t in Two(A, B).unbind(0): y = y + t.a

with Counted(): y = Two(A, B).sin().a

m = Counted()
m.__enter__()
y = A.cos()
m.__exit__(None, None, None)

class Late(Two):
    def total(self): return self.a.sum() + self.b.sum()
y = A * Late(A, B).total()
""",
    "jagged": """
log.append(rag.shape[0]); log.append(rag.offsets()); log.append([t.shape for t in rag.unbind()])
log.append(rag.dim())
rag = rag * 2; rag.mul_(2); rag = jagged(1, 2, 3); rag = jagged(K if K == 2 else 1, 2)
kept.append(rag.sin())
log.append(rag.is_nested); log.append(rag.layout is torch.jagged); log.append(A.is_nested)
log.append(rag.values()._version)
rag.values().add_(1); log.append(rag.shape == (rag * 2).shape); log.append(rag.size(-1))
kept.append(rag.unbind())
log.append(rag.shape[1] == rag.shape[1]); log.append(rag.requires_grad); net.b.sum().backward()
log.append(type(rag).__name__)

w = rag.detach().requires_grad_()
(w.sin() * w).values().sum().backward()
log.append(w.grad)

for k, t in enumerate(rag.unbind()): y = y + t.sum() * k

q = (rag @ net.w.detach()).unflatten(-1, (2, 2)).transpose(1, 2)
y = y + F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2).values().sum()
""",
    "sparse": """
log.append(coo.coalesce().values()); log.append(csr.shape); log.append(coo.is_coalesced())
coo = (coo * 2).coalesce()
kept.append(coo); kept.append(A.detach().to_sparse()); log.append(coo.layout is torch.sparse_coo)
log.append(A.is_sparse)
log.append(coo.dtype); csr.values().mul_(2); coo.mul_(K); log.append(coo.sparse_dim())
log.append(csr)
csr = T(4, 4).relu().to_sparse_csr(); log.append(torch.equal(coo.to_dense(), coo.to_dense()))

w = coo.detach().clone().requires_grad_()
(torch.sparse.mm(w, net.w.detach())).sum().backward()
log.append(w.grad.coalesce().values())
""",
    "defaults": """
torch.set_default_device('meta');w = torch.ones(4);torch.set_default_device(None);log.append(w)
torch.set_default_device('cpu');y = A + torch.ones(4);torch.set_default_device(None)
torch.set_grad_enabled(False);y = A * 2;torch.set_grad_enabled(True); torch.set_grad_enabled(K > 1)
torch.backends.cudnn.benchmark = True;log.append(torch.backends.cudnn.benchmark)
torch.backends.mkldnn.enabled; log.append(torch.backends.mkldnn.is_available())
log.append(torch.backends.opt_einsum.enabled)
torch.autograd.set_detect_anomaly(False); log.append(torch.is_anomaly_enabled())
torch.set_default_tensor_type(torch.FloatTensor)
log.append(torch.backends.cuda.flash_sdp_enabled()); log.append(torch.tensor(K).dtype)
log.append(torch.empty(1).device.type)
log.append(torch.get_default_device().type)

with torch.device('meta'):
    w = nn.Linear(4, 4)
log.append(w.weight.is_meta)

with torch.device('cpu'), torch.no_grad(): y = A + torch.arange(4)

with torch.backends.mkldnn.flags(enabled=False): y = A @ net.w

with torch.backends.cudnn.flags(enabled=False): y = net.inner(A)

with torch.utils._device.DeviceContext('cpu'): y = A * torch.full((4,), 2.0)

with torch.device('cpu'):
    w = torch.zeros(4)
    y = A + w

class Twice(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        log.append('L')
        return func(*args, **(kwargs or {}))
with Twice(): y = torch.ones(4) + 1

m = Times(K)
with m:
    y = A.sin()
    with m: z = B.sin()

torch.set_default_dtype(torch.float64)
w = torch.ones(4)
torch.set_default_dtype(torch.float32)
log.append(w.dtype)

d = torch.get_default_dtype()
torch.set_default_dtype(torch.bfloat16)
log.append(torch.tensor(1.5))
torch.set_default_dtype(d)
""",
    "clocks": """
t1 = time.perf_counter();y = A * 2;log.append(time.perf_counter() - t1 >= 0); time.sleep(0)
log.append(time.time_ns() > 0)
log.append(datetime.datetime.now().year > 2000); log.append(time.strftime('%Y', time.gmtime(0)))
log.append(time.process_time() >= 0)
print(f'{time.time() * 0:.0f}', 'L')
t1 = time.time();y = A @ net.w;print('took', time.time() - t1 >= 0)
write_notes('L'); log.append(read_notes()); write_notes(f'{A.shape}'); write_notes(str(K))
y = A * len(read_notes())
os.environ['FRAMEGRAPH_FUZZ'] = '3'; os.environ['FRAMEGRAPH_FUZZ'] = str(float(K))
log.append(os.environ['FRAMEGRAPH_FUZZ'])
log.append(os.getenv('FRAMEGRAPH_FUZZ')); log.append(os.path.basename(os.path.join('a', 'L')))
log.append(os.path.getsize(__notes__))
log.append(os.path.exists(__notes__)); write_notes(f'{A.detach().sum().item():.2f}')
log.append(len(sys.argv) > 0)

buffer = io.BytesIO()
torch.save(A.detach(), buffer)
buffer.seek(0)
y = torch.load(buffer) * 2

with open(__notes__) as file:
    for line in file: log.append(line)

for k in range(30000): n = (n * 3 + k) % 7

k = 0
while k < 20000: k += 2
y = y + k * 1e-4
""",
    "texts": """
print(A.detach().sum()); print('L', A.detach()[0], K, sep=',')
print(f'{A.detach().mean():.3f} {K}'); print(A.shape, A.dtype)
print(A.requires_grad, end=';'); print(A.detach().sum().item() > 0); print({'k': K, 'L': A.shape})
print([A.detach()[0]])
print(A); log.append(str(A)); log.append(f'{A.detach()!r:.20}')
log.append('%s|%d' % (A.detach()[0], 3))
__logger__.error('%s %s', A.shape, K); __logger__.info('L'); __logger__.debug('%s', A.detach())
__logger__.warning('L %s', A.detach().sum())
__logger__.setLevel(logging.DEBUG); __logger__.setLevel(logging.ERROR)
log.append(__logger__.isEnabledFor(logging.INFO))
__logger__.warning('%.3f', A.detach().sum()); __logger__.log(logging.ERROR, 'L')
__logger__.warning({'k': K}); logging.getLogger('fuzz').error(repr(A.shape))
pprint.pprint({'k': K, 'a': [1, 2]}); log.append(pprint.pformat((1, 'L')))
sys.stdout.write(f'L{K}\\n'); print(net.inner)
print(y.detach() > 0, z.dtype); log.append(str(net.w.detach()))
log.append('{:.2f}'.format(A.detach().sum()))
log.append(format(A.detach().max(), '.1f')); log.append(f'{A.detach().sum():>10.2f}|')
log.append(repr([A.detach()[0], K]))
log.append(str({'a': A.detach()[0]})); log.append(','.join(str(k) for k in A.shape))
log.append(str(torch.Size([1, 2])))
warnings.warn(f'{A.shape}'); log.append(textwrap.indent('L', '  '))
log.append(re.sub('a', 'L', 'banana')); print()
log.append(str(np.float32(K))); log.append(repr(np.asarray(K)))
log.append(str(A.detach().numpy()[0])); print(arr, arr.dtype)
log.append(hash('L') == hash('L')); log.append(repr(pair)); log.append(str(settings))
log.append(repr(fixed)); log.append(repr(word))
log.append(f'{word}'); log.append(repr(cfg.apply).split(' at ')[0]); log.append(gather.__name__)
log.append(str(Level.LOW)); log.append(A.__format__('') == str(A))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    warnings.warn('L')
    y = A * 2
    warnings.warn(f'{A.dtype}', DeprecationWarning)
log.append([str(w.message) for w in caught])

try:
    __logger__.critical('L')
    A.view(7)
except RuntimeError as error:
    __logger__.error('failed: %s', error)

with contextlib.redirect_stdout(io.StringIO()) as out_:
    print('L', A.detach()[0])
log.append(out_.getvalue())
""",
    "cases": """
case.assertEqual(K, 2); case.assertTrue(A.sum() > 0); case.same(A, A)
case.assertIsInstance(A, torch.Tensor); case.assertIn(1, [1])
case.same(A, B); case.assertAlmostEqual(1.0, 1.0 + 1e-9); case.assertEqual(A.shape, B.shape)
torch.testing.assert_close(A, A)
case.assertIsNone(A.grad); case.assertRaises(ValueError, int, 'L'); case.assertGreater(K, 1)
case.fail('L'); case.skipTest('L')

with case.assertRaises(RuntimeError) as raised_: A.view(7)
log.append(type(raised_.exception).__name__)

with case.assertRaisesRegex(ValueError, 'invalid'): int('L')

with case.assertWarns(UserWarning): warnings.warn('L')

with case.assertLogs('fuzz', 'ERROR') as logged:
    __logger__.error('L %s', K)
    y = A * 2
log.append(logged.output)

with case.subTest(k=K): y = A * 2

try: case.assertEqual(K, 7)
except AssertionError as error: log.append(str(error))
""",
    "functions": """
f1 = A.sin;y = f1(); f1 = torch.Tensor.mul;y = f1(A, K)
f1, f2 = kept.append, kept.__len__;f1(A);log.append(f2())
f1 = {1, 2}.isdisjoint;log.append(f1([K]))
f1 = 'L'.join;log.append(f1('ab')); list.extend(items, [K]); dict.update(table_of, c=K)
set.add(__pool, K); log.append(list.__len__(items)); f1 = items.sort;f1()
log.append(list(map(str.upper, 'ab'))); log.append(sorted(items, key=int.__neg__))
log.append(operator.contains(items, K)); f1 = items.__getitem__;log.append(f1(0))
heapq.heappush(heap, 4); log.append(heapq.heappop(heap)); bisect.insort(heap, 2); settings.k = K
settings['L'] = A; slotted.a = A; object.__setattr__(fixed, 'a', 3)
fixed.a = 2; log.append(fixed == Fixed(2)); log.append(hash(fixed) == hash(Fixed(2)))
log.append(dataclasses.asdict(fixed)); log.append(Word('up') is word); log.append(slotted)
log.append(dataclasses.astuple(fixed)); log.append(isinstance(cfg, HasArea)); Shape()
log.append(issubclass(Square, Shape)); tally.number += 1; factor = Factor(float(K))
log.append(tally.number)
raised(t0, K); raised(A.detach()[0], 1.0); y = A.clone();raised(y.detach(), K); tallied(t0, tally)
log.append(factored(t0, factor)); pipe.seen.clear(); log.append(pipe.seen)
pipe.stages.append(nn.ReLU()); pipe.stages[0] = nn.Linear(4, 4)
log.append([type(m).__name__ for m in pipe.stages]); del pipe.stages[-1]; dynamo.graph_break()
z = disabled(A)
thread = threading.Thread(target=kept.append, args=(K,));thread.start();thread.join()
log.append(threading.current_thread().name); log.append(inspect.isfunction(gather)); made.count = K
a0, *b0, c0 = [A, B, 1, 2];y = a0 * c0 * len(b0); y, z = z, y; y = z = A * 2; (y, *_), n = (A, B), 1
y += K; y = y if n else z; x1 = y2 = A;y = x1 is y2 and y2 * 2
log.append([*{'a': 1}, *(1, 2)]); log.append({**{'a': K}, 'b': 2})
log.append({k: v for k, v in zip('ab', (1, K))})
log.append([k for k in range(5) if k % 2 for _ in 'ab'])

def g1(t, *more, k=K, **named):
    log.append((len(more), sorted(named)))
    return t * k
y = g1(A, B, L=1)
z = g1(*[A], k=2)

def g2(t):
    try:
        return t * 2
    finally:
        log.append('L')
y = g2(A)

def g3(t):
    for k in range(3):
        try:
            if k == K: raise ValueError(k)
            t = t + 1
        except ValueError as error:
            log.append(error.args)
            continue
        finally:
            t = t * 2
    return t
y = g3(A)

def g4(t):
    while True:
        try:
            t = t + 1
            if t.sum() > 3: return t
            break
        finally:
            log.append('L')
    return t - 1
z = g4(A)

try: raise Refused(A * 2)
except Refused as error:
    y = error.held
    error.add_note('L')
    log.append(error.__notes__)

try:
    try: {}['L']
    except KeyError as error: raise Refused(A) from None
except Refused as error:
    log.append((error.__cause__, error.__suppress_context__))
    y = error.held + 1

try:
    try: A.view(7)
    finally: y = A * 2
except RuntimeError as error: log.append(str(error))

class Layer(nn.Module):
    scale = K
    def __init__(self, w):
        super().__init__()
        self.w = w
    def forward(self, t): return t * self.w * self.scale
y = Layer(p0)(A)

class Other(Config):
    def apply(self, t): return super().apply(t) + 1
    @property
    def twice(self): return self.scale * 2
    @staticmethod
    def one(): return 1
y = Other(K).apply(A) * Other(2).twice + Other.one()

class Counts_:
    total = 0
    table = {k: k * 2 for k in range(3)}
    def __init__(self): type(self).total += 1
    def __call__(self, t): return t * self.total * self.table[1]
y = Counts_()(Counts_()(A))

Made_ = dataclasses.make_dataclass('Made_', [('a', object), ('b', int, 2)])
y = Made_(A).a * Made_(A).b

Near = collections.namedtuple('Near', 'a b', defaults=[2])
y = Near(A).a * Near(A).b

Sort = enum.Enum('Sort', 'ONE TWO')
y = A * Sort.TWO.value

match [A, K]:
    case [torch.Tensor() as t, int(k)] if k > 1: y = t * k
    case [t, float() | bool() as k]: y = t + k
    case [t, _]: y = t

match settings:
    case {'k': 2, **rest}: y = y * len(rest)
    case {'k': k}: log.append(k)

match fixed:
    case Fixed(1): y = y + 1
    case Fixed(a=a1, b=b1): y = y * a1 + b1

if (t := A * 2).sum() > 0: y = t
else: z = t

while (n := n - 1) > 0: y = y + n

for k, (a1, b1) in enumerate(zip((A, B), (1, K))): y = y + a1.sum() * b1 * k
else: log.append('L')

for k in range(4):
    if k == 1: continue
    if k == 3: break
    y = y * 2
else: log.append('L')

total_ = 0
def add(k):
    nonlocal total_
    total_ = total_ + k
    return total_
add(K)
y = A * add(2)

with contextlib.ExitStack() as stack:
    for k in range(2): stack.enter_context(scope(f'L{k}'))
    y = A * 2

async def both(t):
    one = await later(t)
    async with contextlib.AsyncExitStack(): two_ = await later(t, 2)
    return one + two_
y = drive(both(A))

async def numbers_(n):
    for k in range(n):
        await asyncio.sleep(0)
        yield k
async def summed(t): return sum([t * k async for k in numbers_(3)])
y = asyncio.run(summed(A))

def guarded_():
    try:
        yield A * 2
        yield A * 3
    except GeneratorExit:
        log.append('L')
        raise
    finally: log.append('end')
g = guarded_()
y = next(g)
g.close()

def outer_():
    got = yield from (t for t in (A, A * 2))
    log.append(got)
    return 'L'
y = sum(outer_())
""",
}
# Where statements stand: S, others.
POSITIONS = """
for turn in range(2):
    S

for turn, part in enumerate([A, B]):
    S
    if turn: break

try:
    S
finally:
    S

try:
    S
    raise ValueError('L')
except ValueError as error:
    S
    log.append(str(error))

try:
    S
except (RuntimeError, TypeError):
    log.append('refused')
else:
    S

if A.sum() > 0:
    S
else:
    S

if n > 1:
    S

left = 2
while (left := left - 1) > 0:
    S

with scope('L'):
    S

with Swallow(RuntimeError, ValueError), torch.no_grad():
    S

def inner(x, y, z, v, n):
    GLOBAL
    S
    return y, z
y, z = inner(x, y, z, v, n)

def inner(x, y, z, v, n):
    GLOBAL
    if n > 1: return z, y
    S
    with torch.enable_grad():
        S
    return y, z
y, z = inner(x, y, z, v, n)

def inner(x, y, *rest, n=1, **named):
    GLOBAL
    z, v = rest
    S
    return y
y = inner(*(x, y), *[z, v], **{'n': n, 'L': 1})

def outer(x, y, z, v):
    def inner(n):
        GLOBAL
        nonlocal y, z, v
        S
    inner(n)
    inner(2)
    return y, z
y, z = outer(x, y, z, v)

def steps(x, y, z, v, n):
    GLOBAL
    S
    yield y
    S
    yield z
for y in steps(x, y, z, v, n): log.append('L')

def around(x, y, z, v, n):
    GLOBAL
    S
    try: yield y
    finally:
        S
with contextlib.contextmanager(around)(x, y, z, v, n) as y:
    S

class Held:
    def __init__(self, y): self.y = y
    def __call__(self, x, z, v, n):
        GLOBAL
        y = self.y
        S
        self.y = y
        return y
y = Held(y)(x, z, v, n)

class Block(nn.Module):
    def forward(self, x, y, z, v, n):
        GLOBAL
        S
        return y, z
y, z = Block()(x, y, z, v, n)

async def inner(x, y, z, v, n):
    GLOBAL
    await asyncio.sleep(0)
    S
    return y
y = drive(inner(x, y, z, v, n))

def inner(x, y, z, v, n):
    GLOBAL
    S
    return y
y = contextvars.copy_context().run(inner, x, y, z, v, n)

def inner(x, y, z, v, n):
    GLOBAL
    S
    return y
y = torch.no_grad()(inner)(x, y, z, v, n)

match n:
    case 1:
        S
    case float() | bool():
        S
    case _:
        S

for turn in range(3):
    try:
        if turn == 1: continue
        S
    finally:
        log.append(turn)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    S
log.append([str(w.message) for w in caught if str(w.message) in ('L', 'l1', 'l2')])
"""
# Between calls.
CHANGES = """
packed = packed_of(T(4, 4) * 2); packed.shift = None; packed.shift = T(4, 1)
packed.scale = packed.scale * 2; rag = jagged(3, 1)
rag = jagged(1, 1, 1); rag = jagged(2, 2, grad=True); coo = (T(4, 4) - 1).relu().to_sparse()
csr = T(4, 4).to_sparse_csr()
dtensor = spread(T(4) * 3); dtensor = spread(T(4), Shard(0)); ints = ints + 1
ints = ints.astype(np.float64); tally.number = 9
tally = Tally(1); factor = Factor(5.0); factor.number = 4.0; settings.k = 3
settings = Settings(k=2.5); fixed = Fixed(3); slotted.total = 5
word = Word.DOWN; Word.UP; os.environ['FRAMEGRAPH_FUZZ'] = '5'; write_notes('between')
__logger__.setLevel(logging.DEBUG)
__logger__.setLevel(logging.WARNING); __logger__.disabled = True; __logger__.disabled = False
heap = [5]; pipe.eval(); pipe.stages = pipe.stages[:1]
Square.area = lambda self, t: t + 1; Pipe.forward = lambda self, x, **named: x * 3
net.inner.weight = nn.Parameter(packed, requires_grad=False)
net.w = nn.Parameter(Two(T(4, 4), T(4, 4) * 2)); net.inner = nn.Linear(4, 4)
gather.__kwdefaults__['k'] = 3; torch.set_grad_enabled(True)
Fixed.scaled = lambda self, t: t - self.a; Config.apply = lambda self, t: t * 3; kept.clear()
result = None; arr = np.linspace(0, 1, 4)
Packed.wide = lambda self: self.packed.float() + 1; variable.set(5); random.seed(2)
np.random.seed(2); torch.manual_seed(2); log.clear()
"""
ARGUMENTS = """
jagged(2, 1); jagged(2, 1); jagged(1, 2, 3); jagged(3, grad=True); T(3, 4).relu().to_sparse()
T(3, 4).to_sparse_csr()
Two(Two(T(3, 4), T(3, 4) * 2), Two(T(3, 4), T(3, 4) + 1), 'x'); packed_of(T(3, 4) + 1)
packed_of(T(3, 4) + 1, True)
spread(T(3, 4)); spread(T(3, 4), Shard(0)); Two(T(3, 4), T(3, 4), 'x'); T(3, 4).as_subclass(Sub)
nn.Parameter(Two(T(3, 4), T(3, 4)))
"""
