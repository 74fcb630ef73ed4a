"""The values of random programs with state (tests/fuzz/state.py), by families, and what a program
does with a value of a family: S stands for the expression that reads it.
"""

from __future__ import annotations


def rows(text: str) -> list[str]:
    """The rows of a text: a line's end or ` ; ` ends one, ` || ` stands for a line's end in it."""
    found = [row for line in text.strip().splitlines() for row in line.split(" ; ")]
    return [row.strip(" ").replace(" || ", "\n") for row in found]


# family -> values that take each other's place
VALUES: dict[str, list[str]] = {
    "number": rows("""
0 ; 1 ; 2 ; 3 ; -1 ; True ; False ; 1.0 ; 2.0 ; 0.5 ; -0.0 ; 0.0 ; float('nan') ; float('inf')
np.float32(2) ; np.float64(2) ; np.int64(2) ; np.bool_(True) ; 2**70 ; Int(2) ; Float(2) ; E.A
E.B ; None ; 1j ; torch.tensor(2.0) ; torch.tensor(2) ; Lies(2)
"""),
    "text": rows("""
'sin' ; 'cos' ; 'relu' ; 'abs' ; Str('sin') ; ''.join(['s', 'in']) ; sys.intern('si' + 'n')
b'sin' ; None ; 'nothing' ; ''
"""),
    "sequence": rows("""
[1, 2] ; [2, 1] ; [1, 2, 3] ; [] ; [1.0, 2] ; [True, 2] ; (1, 2) ; List([1, 2]) ; Tuple((1, 2))
deque([1, 2]) ; deque([1, 2], maxlen=2) ; range(1, 3) ; NT(1, 2) ; torch.Size([1, 2])
np.array([1, 2]) ; [T(3), T(3)] ; [t0, t0] ; [t0, t0[:]] ; [t0, t1] ; array.array('i', [1, 2])
UserList([1, 2]) ; torch.tensor([1, 2]) ; [2**70, 1] ; [None, 1] ; [-0.0, 0.0]
"""),
    "mapping": rows("""
{'a': 1, 'b': 2} ; {'b': 2, 'a': 1} ; {'a': 1.0, 'b': 2} ; {'a': True, 'b': 2} ; {'a': 1} ; {}
{1: 1, 'b': 2} ; {True: 1, 'b': 2} ; {1.0: 1, 'b': 2} ; {'a': T(3), 'b': t0} ; {'a': t0, 'b': t0}
OrderedDict(a=1, b=2) ; defaultdict(int, a=1, b=2) ; Counter(a=1, b=2) ; UserDict(a=1, b=2)
ChainMap({'a': 1}, {'b': 2}) ; types.MappingProxyType({'a': 1, 'b': 2}) ; Dict(a=1, b=2)
{Str('a'): 1, 'b': 2} ; {'a': None, 'b': 2} ; {Lies(1): 1, 'b': 2} ; {(1, 2): 1, 'b': 3}
{E.A: 1, 'b': 2} ; nn.ParameterDict({'a': T(3), 'b': T(3)})
"""),
    "set": rows("""
{1, 2} ; {2, 1} ; {1, 2, 3} ; set() ; frozenset({1, 2}) ; Set({1, 2}) ; {1.0, 2} ; {True, 2}
{'a', 1} ; {1: 0, 2: 0}.keys() ; {E.A, 2} ; {t0}
"""),
    "tensor": rows("""
T(3) ; T(3) + 1 ; T(3, dtype=torch.float64) ; T(3, dtype=torch.int64) ; T(3) > 0 ; T(1) ; T()
T(2, 3) ; T(3, 2).t() ; T(3, 3).t() ; T(3, grad=True) ; T(3, grad=True) * 2 ; nn.Parameter(T(3))
nn.Parameter(T(3), requires_grad=False) ; T(3).as_subclass(TSub) ; T(6)[::2] ; T(4)[1:]
T(1).expand(3) ; t0 ; t0[:] ; t0.view(3) ; t0.detach() ; t1 ; T(3, dtype=torch.complex64)
torch.zeros(3) ; torch.empty(3, device='meta') ; T(3).half() ; None ; 2.0 ; np.arange(3.0)
nn.Buffer(T(3))
"""),
    "function": rows("""
torch.sin ; torch.cos ; operator.neg ; lambda v: v + 1 ; lambda v: v - 1 ; double ; triple
functools.partial(torch.add, 1) ; functools.partial(double, k=5) ; Box(2).m ; Sized(2) ; Base.s
nn.ReLU() ; Halved() ; nn.functional.relu ; shifted(1) ; shifted(2) ; shifted(t0) ; shifted(True)
abs ; decorated(double) ; decorated(torch.sin) ; torch.Tensor.sin ; operator.methodcaller('cos')
TSub.cos ; None
"""),
    "net": rows("""
nn.Linear(3, 3) ; nn.Linear(3, 3, bias=False) ; nn.ReLU()
nn.Sequential(nn.Linear(3, 3), nn.ReLU()) ; nn.Sequential(nn.ReLU(), nn.Linear(3, 3))
nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)) ; nn.Sequential() ; Net()
nn.Sequential(Net(), Counting()) ; Counting() ; Halved() ; nn.Dropout(0.5) ; nn.LayerNorm(3)
nn.BatchNorm1d(3, affine=False) ; nn.Identity() ; nn.Sequential(*[nn.Tanh()] * 2)
"""),
    "object": rows("""
Box() ; Box(2) ; Box(1.0) ; Box(True) ; Box(t0) ; Slots(1) ; Dyn(1) ; Sized(1) ; Sized(2)
Computed(2) ; Pt(1, 2) ; Pt(1.0, 2) ; Frozen(1) ; NT(1, 2) ; Lies(1)
types.SimpleNamespace(a=1, b=2) ; E.A ; Box ; Meant ; Meant() ; None ; other ; nn.Module()
"""),
}
# family -> statements of a function that compute with a state; ` || ` begins a line
USES: dict[str, list[str]] = {
    "number": rows("""
x = x * S ; x = x + S ; x = x ** S ; if S: ||     x = x.sin() ; if S == 2: ||     x = x + 1
if S is None: ||     x = -x ; if S is True: ||     x = x.cos()
if isinstance(S, int): ||     x = x * 2 ; if type(S) is float: ||     x = x - 1
for i in range(S): ||     x = x + i ||     if i > 8: break ; x = x[:S]
match S: ||     case 1: x = x + 1 ||     case float(): x = x + 2 ||     case None: x = x + 3 ||     case _: x = x + 4
x = torch.full_like(x, S) ; x = x.clamp(min=S) ; x = gathered(x, S, k=S)
k = 0 || while k < S and k < 9: ||     x, k = x + k, k + 1 ; x = {1: x, 2: x.sin()}.get(S, x.cos())
x = [x, x.sin(), x.cos()][S] ; x = torch.cat([x] * S) ; x = x.unsqueeze(S - 1)
x = torch.add(x, x, alpha=S) ; if S < 2: ||     x = x * 3 ; x = x * math.sqrt(S)
x = x + torch.tensor(S) ; x = x + torch.arange(S).sum() ; if not S: ||     x = x.abs()
if S in (1, 2.5): ||     x = x.exp() ; x = x * (S + 1) ; x = x / S ; x = torch.pow(S, x)
x = x // S ; x = x.roll(S)
"""),
    "text": rows("""
x = getattr(torch, S)(x) ; x = x * len(S) ; if S == 'sin': ||     x = x + 1
if S in ('cos', 'abs'): ||     x = x + 2 ; if S: ||     x = x * 2
x = {'sin': x + 1, 'cos': x + 2}[S] ; x = getattr(x, S, x.exp)()
match S: ||     case 'sin': x = x.sin() ||     case str(): x = x.cos() ||     case _: x = -x
if hasattr(torch, S): ||     x = x - 1 ; if S is not None: ||     x = x + 4
for c in S: ||     x = x + ord(c) ; if S.startswith('s'): ||     x = x * 5
"""),
    "sequence": rows("""
for v in S: ||     x = x + v ; a, b = S || x = x * a + b ; x = x * sum(S) ; x = x + S[0]
x = x * len(S) ; if S: ||     x = x.sin() ; if 2 in S: ||     x = x + 1
a, *b = S || x = x + a * len(b) ; x = x + S[-1] ; for a, b in zip(S, S[1:]): ||     x = x * a + b
x = sum(v * x for v in S) ; x = x + max(S) ; x = gathered(x, *S) ; if S == [1, 2]: ||     x = x * 3
match S: ||     case [1, b]: x = x + b ||     case [a, *r]: x = x * len(r) ||     case _: x = -x
for i, v in enumerate(S): ||     x = x * (i + v) ; for v in reversed(S): ||     x = x * 2 + v
for i in range(len(S)): ||     x = x + S[i] ; x = torch.stack([x * v for v in S]).sum(0)
x = functools.reduce(operator.add, S, x) ; if isinstance(S, (list, tuple)): ||     x = x + 6
x = x + torch.tensor(S).sum() ; if S[0] is S[1]: ||     x = x.exp() ; S.append(1) || x = x + len(S)
S[0] = 9 ; x = x + S.pop() ; S += [3] ; S.sort() ; S.extend(S)
it = iter(S) || x = x + next(it, 4) ; if all(S): ||     x = x + 2
if any(v == 1 for v in S): ||     x = x * 4
"""),
    "mapping": rows("""
for k, v in S.items(): ||     x = x * v + len(str(k)) ; x = x + S['a'] ; x = x + S.get('a', 3)
x = x + S.get('c', 3) ; if 'a' in S: ||     x = x.sin() ; if S: ||     x = x * 2 ; x = x * len(S)
x = gathered(x, **S) ; for k in S: ||     x = x + len(str(k)) ; x = x + sum(S.values())
match S: ||     case {'a': 1, **r}: x = x + len(r) ||     case {'b': b}: x = x * b ||     case _: x = -x
x = x + next(iter(S.values())) ; for k in sorted(S): ||     x = x + S[k]
if S == {'a': 1, 'b': 2}: ||     x = x + 5 ; if 1 in S: ||     x = x.cos()
S['n'] = 1 || x = x + len(S) ; S['a'] += 1 ; x = x + S.pop('b') ; x = x + S.setdefault('c', 4)
S.update(d=1) ; del S['a'] ; if S['a'] is S['b']: ||     x = x.exp()
x = functools.reduce(lambda p, k: p * 2 + S[k], S, x)
try: ||     x = x * S['c'] || except KeyError: ||     x = x - 1 ; k, v = S.popitem() || x = x * v
x = x + (S | {'a': 4})['a'] ; if list(S) == ['a', 'b']: ||     x = x + 8
"""),
    "set": rows("""
x = x * len(S) ; if 2 in S: ||     x = x.sin() ; if S: ||     x = x + 1
for v in S: ||     x = x + v ; x = x * sum(S) ; if S == {1, 2}: ||     x = x + 2
if S <= {1, 2, 3}: ||     x = x * 4 ; x = x + len(S & {1}) ; S.add(5) || x = x + len(S)
S.discard(1) ; x = gathered(x, *sorted(S)) ; if t0 in S: ||     x = x.cos()
x = x + max(S, default=3) ; if isinstance(S, set): ||     x = -x
"""),
    "tensor": rows("""
x = x * S ; x = x + S ; x = torch.where(S > 0, x, -x) ; if S is x: ||     x = x.sin()
if S is t0: ||     x = x + 1 ; x = x + S.shape[0] ; if S.requires_grad: ||     x = x * 2
if S.dtype == torch.float64: ||     x = x * 3 ; if S.is_contiguous(): ||     x = x + 2 ; S.add_(1)
S.mul_(x.detach().sum()) ; x = x + S.sum() ; S.copy_(x.detach()) ; y = S.view(-1) || y.add_(1)
if S.grad is not None: ||     x = x + S.grad ; if isinstance(S, nn.Parameter): ||     x = x.cos()
torch.add(x.detach(), 1, out=S) ; S[0] = 5.0 ; x.mul_(S)
if type(S) is torch.Tensor: ||     x = x.abs() ; x.mul_(2) || x = x + S ; t0.add_(1) || x = x + S
x = x @ S ; x = torch.cat([x, S]) ; for v in S: ||     x = x + v ; if S is None: ||     x = -x
S.data = S.data + 1 ; S.requires_grad_() || x = x * S ; x = S ; x = S[:] ; x = x + S.detach()
with torch.no_grad(): ||     S.sub_(1) ; if S.device.type == 'meta': ||     x = x + 1
x = x.to(S.dtype) ; if S.is_leaf: ||     x = x * 1.5 ; x = x + S.stride(0) + S.storage_offset()
if hasattr(S, 'tag'): ||     x = x + S.tag ; x = x + len(S) ; S.tag = 3
if S._base is t0: ||     x = x.exp() ; x = x + S.numel()
x = x + S.grad if S.grad is not None else x
"""),
    "function": rows("""
x = S(x) ; if S is torch.sin: ||     x = x + 1 ; if S == double: ||     x = x + 2
if callable(S): ||     x = x * 2 ; x = sum(map(S, [x, x + 1]))
x = x + len(getattr(S, '__name__', 'none'))
if isinstance(S, types.FunctionType): ||     x = x + 3
if isinstance(S, nn.Module): ||     x = x + 4 ; x = S(x, **{}) ; x = functools.partial(S, x)()
x = double(S(x)) + triple(x) ; x = max([x, x + 1], key=lambda v: S(v).sum().item())
x = x + len(inspect.signature(S).parameters) ; if S: ||     x = x.abs()
try: ||     x = S(x) || except TypeError as e: ||     x = x + len(e.args)
if S in (double, triple, torch.cos): ||     x = x - 1
"""),
    "net": rows("""
x = S(x) ; x = S.forward(x) ; for p in S.parameters(): ||     x = x + p.sum()
for k, m in S.named_modules(): ||     x = x + len(k) ; if S.training: ||     x = x * 2
if isinstance(S, nn.Linear): ||     x = x + 1 ; x = x + len(list(S.children()))
x = x * len(S.state_dict()) ; if hasattr(S, 'bias'): ||     x = x + 2 ; for m in S: ||     x = m(x)
x = x + getattr(S, 'scale', 3) ; if getattr(S, 'bias', None) is not None: ||     x = x + S.bias
for k, b in S.named_buffers(): ||     x = x + b + len(k)
if isinstance(S[0], nn.ReLU): ||     x = x.relu() ; x = x + S.weight.sum()
if any(p.requires_grad for p in S.parameters()): ||     x = x * 1.5
x = nn.functional.linear(x, S.weight, S.bias) ; x = x + sum(p.numel() for p in S.parameters())
if '0.weight' in dict(S.named_parameters()): ||     x = x + 7
x = torch.utils.checkpoint.checkpoint(S, x, use_reentrant=False) ; x = x + len(S._forward_hooks)
x = torch.func.functional_call(S, {}, (x,)) ; if 'forward' in vars(S): ||     x = x - 1
x = x + len(vars(S)) ; if S._modules: ||     x = x + 3
"""),
    "object": rows("""
x = x * S.a ; x = x + getattr(S, 'b', 3) ; if hasattr(S, 'c'): ||     x = x + S.c
if S == Box(1): ||     x = x + 1 ; if S: ||     x = x * 2 ; x = x + len(S) ; x = S.m(x)
if isinstance(S, Box): ||     x = x.sin() ; for v in S: ||     x = x + v
match S: ||     case Box(a=1): x = x + 1 ||     case Pt(a=a): x = x * a ||     case NT(a, b): x = x + b ||     case _: x = -x
x = S(x) ; x = x + S[0] ; x = x * S ; if S is None: ||     x = x.cos() ; if 1 in S: ||     x = x + 2
x = x + S.tag ; x = x * S.twice ; x = x + len(vars(S)) ; if type(S) is Sized: ||     x = x + 4
x = S.s(x) ; x = x * S.made() ; x = gathered(x, **vars(S)) ; S.a += 1 ; S.c = 5 || x = x + S.c
if S in [Box, Meant, other]: ||     x = x + 6 ; x = x + {Sized(1): 2, Sized(2): 4}.get(S, 5)
a, b = S || x = x * a + b ; x = x + S.level ; if issubclass(type(S), Base): ||     x = x * 1.5
setattr(S, 'd', 2) ; x = Base.m(S, x) ; x = x + S.b ; x = type(S).m(S, x)
if 'a' in vars(S): ||     x = x - 2 ; x = x * operator.attrgetter('a')(S) ; x = x + S._a
if '__len__' in dir(type(S)): ||     x = x + 3
"""),
}
# Expressions whose values f returns; of any family, then those of one.
READS: dict[str, list[str]] = {
    "": rows("""
S ; [S] ; type(S).__name__ ; bool(S) ; S == 1 ; S is None ; S in (1, None, 2.0)
isinstance(S, (int, str, list)) ; (S,) == (1,) ; callable(S) ; [S, S][0] is S ; f"{type(S)}"
getattr(S, 'a', 'missing') ; hasattr(S, '__len__') ; copy.copy(S) ; len(S)
"""),
    "number": rows("""
f"{S}" ; repr(S) ; {1: 'a', 2.5: 'b'}.get(S) ; [10, 20, 30][S] ; hash(S) == hash(1) ; max(S, 1)
sorted([3, S, 1]) ; divmod(S + 5, 3) ; math.copysign(1, S) ; -S ; int(S) ; S < 2 < 5 ; S * 2.5
S is E.A ; S == S ; {S: 1, 1: 2} ; {S, 1, 2} ; S // 2 ; S % 3 ; str(S)[:2] ; 'ab' * S ; round(S)
float(S)
"""),
    "text": rows("""
f"{S}!" ; S + 'x' ; S[0] ; S.upper() ; {S: 1} ; sorted(S) ; S * 2 ; S > 'b'
hash(S) == hash('sin') ; '%s' % S
"""),
    "sequence": rows("""
sorted(S) ; list(S) ; tuple(S) ; S.index(2) ; S.count(1) ; S == [1, 2] ; [*S] ; S[1:] ; S + S
S * 2 ; [v for v in S if v] ; dict(enumerate(S)) ; str(S) ; S < [1, 3] ; min(S) ; set(S) ; S[::-1]
copy.deepcopy(S)
"""),
    "mapping": rows("""
list(S) ; list(S.items()) ; sorted(S) ; S.get('a') ; dict(S) ; {**S} ; str(S) ; len(S)
S.keys() == {'a', 'b'} ; [*S.values()] ; S == {'a': 1, 'b': 2} ; S.copy()
{k: v for k, v in S.items()} ; list(reversed(S)) ; list(zip(S, S.values()))
"""),
    "set": rows("""
sorted(S) ; S | {9} ; S == {1, 2} ; len(S) ; S.copy() ; list(S) ; 1 in S ; True in S
"""),
    "tensor": rows("""
S.shape ; S.dtype ; S.stride() ; S.is_leaf ; S.data_ptr() == x.data_ptr() ; S[:2] ; S.t()
S.detach() ; S.requires_grad ; S is x ; S._version ; S.grad ; S.is_contiguous() ; type(S)
S.device ; S.view(-1) ; S.untyped_storage().data_ptr() == t0.untyped_storage().data_ptr()
vars(S)
"""),
    "function": rows("""
S.__name__ ; S is double ; S == Box(2).m ; getattr(S, '__defaults__', 0)
getattr(S, '__self__', None) is None ; getattr(S, '__wrapped__', None) is double ; S(2)
"""),
    "net": rows("""
S.training ; [k for k, _ in S.named_parameters()] ; [type(m).__name__ for m in S.modules()]
list(S.state_dict()) ; repr(S) ; getattr(S, 'weight', None) is None ; getattr(S, 'calls', 0)
getattr(S, 'count', 0) ; len(S._forward_pre_hooks)
"""),
    "object": rows("""
S.a ; S.tag ; vars(S) ; sorted(vars(S)) ; S == Box(1) ; S == S ; type(S).__mro__[1].__name__
getattr(S, 'm', None) == getattr(S, 'm', 1) ; S.made() ; isinstance(S, Sized)
dataclasses.astuple(S) ; S.b ; S.__class__.__name__
"""),
}
