"""Whole training scripts, as people write them, on small models and random data.

A script is a function of (compile, part): it compiles the model (part "model") or its step and
loop ("step"), trains, prints as it goes, and returns what it has learned.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SCRIPTS: dict[str, Callable[..., Any]] = {}


def script(function: Callable[..., Any]) -> Callable[..., Any]:
    SCRIPTS[function.__name__] = function
    return function


@script
def mnist(compile, part):

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1 = nn.Conv2d(1, 8, 3, 1)
            self.c2 = nn.Conv2d(8, 8, 3, 1)
            self.d1 = nn.Dropout(0.25)
            self.d2 = nn.Dropout(0.5)
            self.f1 = nn.Linear(8 * 25, 16)
            self.f2 = nn.Linear(16, 10)

        def forward(self, x):
            x = F.relu(self.c1(x))
            x = F.relu(self.c2(x))
            x = F.max_pool2d(x, 2)
            x = self.d1(x)
            x = torch.flatten(x, 1)
            x = F.relu(self.f1(x))
            x = self.d2(x)
            return F.log_softmax(self.f2(x), dim=1)

    model = Net()
    opt = torch.optim.Adadelta(model.parameters(), lr=1.0)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.7)
    ds = TensorDataset(torch.randn(22, 1, 14, 14), torch.randint(10, (22,)))
    loader = DataLoader(ds, batch_size=8, shuffle=True)
    m = compile(model) if part == "model" else model

    def step(data, target):
        opt.zero_grad()
        out = m(data)
        loss = F.nll_loss(out, target)
        loss.backward()
        opt.step()
        return loss

    if part == "step":
        step = compile(step)

    def train(epoch):
        m.train()
        for i, (d, t) in enumerate(loader):
            loss = step(d, t)
            if i % 2 == 0:
                print(
                    f"Train {epoch} [{i * len(d)}/{len(loader.dataset)} "
                    f"({100.0 * i / len(loader):.0f}%)] Loss {loss.item():.4f}"
                )

    def test():
        m.eval()
        total = 0
        correct = 0
        with torch.no_grad():
            for d, t in loader:
                out = m(d)
                total += F.nll_loss(out, t, reduction="sum").item()
                pred = out.argmax(dim=1, keepdim=True)
                correct += pred.eq(t.view_as(pred)).sum().item()
        print(f"avg {total / len(loader.dataset):.4f} acc {correct}")

    if part == "step":
        train = compile(train)
        test = compile(test)
    for e in range(2):
        train(e)
        test()
        sched.step()
    return (list(model.parameters()), opt.state_dict()["state"])


@script
def vae(compile, part):

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(64, 32)
            self.fc21 = nn.Linear(32, 4)
            self.fc22 = nn.Linear(32, 4)
            self.fc3 = nn.Linear(4, 32)
            self.fc4 = nn.Linear(32, 64)

        def encode(self, x):
            h = F.relu(self.fc1(x))
            return (self.fc21(h), self.fc22(h))

        def reparameterize(self, mu, lv):
            std = torch.exp(0.5 * lv)
            eps = torch.randn_like(std)
            return mu + eps * std

        def decode(self, z):
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, lv = self.encode(x.view(-1, 64))
            z = self.reparameterize(mu, lv)
            return (self.decode(z), mu, lv)

    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 0.001)
    m = compile(model) if part == "model" else model

    def lossf(r, x, mu, lv):
        return F.binary_cross_entropy(r, x.view(-1, 64), reduction="sum") - 0.5 * torch.sum(
            1 + lv - mu.pow(2) - lv.exp()
        )

    def step(x):
        opt.zero_grad()
        r, mu, lv = m(x)
        l = lossf(r, x, mu, lv)
        l.backward()
        opt.step()
        return l.item()

    if part == "step":
        step = compile(step)
    xs = [torch.rand(n, 8, 8) for n in (6, 6, 3)]

    def train():
        total = 0
        for i, x in enumerate(xs):
            total += step(x)
            print(i, round(total / (i + 1), 2))
        return total

    if part == "step":
        train = compile(train)
    for e in range(2):
        train()
    with torch.no_grad():
        s = model.decode(torch.randn(3, 4))
    return (list(model.parameters()), s)


@script
def dcgan(compile, part):
    G = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    D = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )

    def init(m):
        n = m.__class__.__name__
        if n.find("Conv") != -1:
            nn.init.normal_(m.weight, 0.0, 0.02)
        elif n.find("BatchNorm") != -1:
            nn.init.normal_(m.weight, 1.0, 0.02)
            nn.init.zeros_(m.bias)

    G.apply(init)
    D.apply(init)
    crit = nn.BCELoss()
    oD = torch.optim.Adam(D.parameters(), 0.0002, betas=(0.5, 0.999))
    oG = torch.optim.Adam(G.parameters(), 0.0002, betas=(0.5, 0.999))
    g = compile(G) if part == "model" else G
    d = compile(D) if part == "model" else D

    def step(real):
        d.zero_grad()
        bs = real.size(0)
        label = torch.full((bs,), 1, dtype=real.dtype, device=real.device)
        out = d(real).view(-1)
        eR = crit(out, label)
        eR.backward()
        Dx = out.mean().item()
        noise = torch.randn(bs, 8, 1, 1)
        fake = g(noise)
        label.fill_(0)
        out = d(fake.detach()).view(-1)
        eF = crit(out, label)
        eF.backward()
        z1 = out.mean().item()
        eD = eR + eF
        oD.step()
        g.zero_grad()
        label.fill_(1)
        out = d(fake).view(-1)
        eG = crit(out, label)
        eG.backward()
        z2 = out.mean().item()
        oG.step()
        print(
            "Loss_D: %.4f Loss_G: %.4f D(x): %.4f D(G(z)): %.4f / %.4f"
            % (eD.item(), eG.item(), Dx, z1, z2)
        )

    if part == "step":
        step = compile(step)

    def train():
        for i in range(3):
            step(torch.rand(4, 3, 8, 8))

    if part == "step":
        train = compile(train)
    train()
    return (list(G.parameters()), list(D.parameters()), list(G.buffers()))


@script
def word_lm(compile, part):

    class RNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.2)
            self.enc = nn.Embedding(20, 8)
            self.rnn = nn.LSTM(8, 8, 2, dropout=0.2)
            self.dec = nn.Linear(8, 20)
            self.dec.weight = self.enc.weight

        def forward(self, x, h):
            e = self.drop(self.enc(x))
            o, h = self.rnn(e, h)
            o = self.drop(o)
            return (F.log_softmax(self.dec(o).view(-1, 20), dim=1), h)

        def init_hidden(self, b):
            w = next(self.parameters())
            return (w.new_zeros(2, b, 8), w.new_zeros(2, b, 8))

    model = RNN()
    crit = nn.NLLLoss()
    data = torch.randint(20, (23, 4))
    m = compile(model) if part == "model" else model

    def repack(h):
        return h.detach() if isinstance(h, torch.Tensor) else tuple((repack(v) for v in h))

    def get_batch(i, bptt=5):
        n = min(bptt, len(data) - 1 - i)
        return (data[i : i + n], data[i + 1 : i + 1 + n].view(-1))

    lr = 5.0

    def train():
        m.train()
        total = 0.0
        h = model.init_hidden(4)
        for b, i in enumerate(range(0, data.size(0) - 1, 5)):
            x, y = get_batch(i)
            m.zero_grad()
            h = repack(h)
            o, h = m(x, h)
            l = crit(o, y)
            l.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 0.25)
            for p in m.parameters():
                p.data.add_(p.grad, alpha=-lr)
            total += l.item()
            if b % 2 == 0 and b > 0:
                print(f"{b} {total / 2:5.2f} ppl {math.exp(total / 2):8.2f}")
                total = 0

    def evaluate():
        m.eval()
        total = 0.0
        h = model.init_hidden(4)
        with torch.no_grad():
            for i in range(0, data.size(0) - 1, 5):
                x, y = get_batch(i)
                o, h = m(x, h)
                h = repack(h)
                total += len(x) * crit(o, y).item()
        return total / (len(data) - 1)

    if part == "step":
        train = compile(train)
        evaluate = compile(evaluate)
    r = []
    for e in range(2):
        train()
        r.append(evaluate())
        lr /= 4 if e else 1
    return (list(model.parameters()), r)


@script
def actor_critic(compile, part):
    from collections import namedtuple

    from torch.distributions import Categorical

    SA = namedtuple("SavedAction", ["log_prob", "value"])

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a1 = nn.Linear(4, 16)
            self.ah = nn.Linear(16, 2)
            self.vh = nn.Linear(16, 1)
            self.saved = []
            self.rewards = []

        def forward(self, x):
            x = F.relu(self.a1(x))
            return (F.softmax(self.ah(x), dim=-1), self.vh(x))

    model = Policy()
    opt = torch.optim.Adam(model.parameters(), lr=0.03)
    eps = np.finfo(np.float32).eps.item()
    m = compile(model) if part == "model" else model

    def select(state):
        state = torch.from_numpy(state).float()
        probs, v = m(state)
        d = Categorical(probs)
        a = d.sample()
        model.saved.append(SA(d.log_prob(a), v))
        return a.item()

    def finish():
        R = 0
        pl = []
        vl = []
        ret = []
        for r in model.rewards[::-1]:
            R = r + 0.99 * R
            ret.insert(0, R)
        ret = torch.tensor(ret)
        ret = (ret - ret.mean()) / (ret.std() + eps)
        for (lp, v), R in zip(model.saved, ret):
            adv = R - v.item()
            pl.append(-lp * adv)
            vl.append(F.smooth_l1_loss(v, torch.tensor([R])))
        opt.zero_grad()
        l = torch.stack(pl).sum() + torch.stack(vl).sum()
        l.backward()
        opt.step()
        del model.rewards[:]
        del model.saved[:]
        return l.item()

    if part == "step":
        select = compile(select)
        finish = compile(finish)
    rs = np.random.RandomState(0)
    out = []
    for ep in range(3):
        st = rs.randn(4)
        for t in range(5):
            a = select(st)
            st = rs.randn(4) * (1 + a)
            model.rewards.append(float(a) - 0.3)
        out.append(finish())
    return (list(model.parameters()), out)


@script
def style(compile, part):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
    )
    for p in net.parameters():
        p.requires_grad_(False)

    def gram(y):
        b, c, h, w = y.size()
        f = y.view(b, c, w * h)
        return f.bmm(f.transpose(1, 2)) / (c * h * w)

    class Content(nn.Module):
        def __init__(self, t):
            super().__init__()
            self.t = t.detach()

        def forward(self, x):
            self.loss = F.mse_loss(x, self.t)
            return x

    class Style(nn.Module):
        def __init__(self, t):
            super().__init__()
            self.t = gram(t).detach()

        def forward(self, x):
            self.loss = F.mse_loss(gram(x), self.t)
            return x

    c = torch.rand(1, 3, 8, 8)
    st = torch.rand(1, 3, 8, 8)
    img = c.clone().requires_grad_(True)
    seq = nn.Sequential()
    cl = []
    sl = []
    for i, l in enumerate(net):
        if isinstance(l, nn.ReLU):
            l = nn.ReLU(inplace=False)
        seq.add_module(f"l{i}", l)
        if i == 3:
            k = Content(seq(c))
            seq.add_module("c", k)
            cl.append(k)
        if isinstance(l, nn.Conv2d):
            k = Style(seq(st))
            seq.add_module(f"s{i}", k)
            sl.append(k)
    opt = torch.optim.LBFGS([img])
    run = [0]
    m = compile(seq) if part == "model" else seq

    def closure():
        with torch.no_grad():
            img.clamp_(0, 1)
        opt.zero_grad()
        m(img)
        ss = 0
        cs = 0
        for x in sl:
            ss += x.loss
        for x in cl:
            cs += x.loss
        ss *= 1000.0
        l = ss + cs
        l.backward()
        run[0] += 1
        if run[0] % 5 == 0:
            print(f"run {run} {ss.item():.3f} {cs.item():.3f}")
        return ss + cs

    if part == "step":
        closure = compile(closure)
    for _ in range(2):
        opt.step(closure)
    with torch.no_grad():
        img.clamp_(0, 1)
    return (run, img)


@script
def maml(compile, part):
    from torch.func import functional_call

    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.Adam(net.parameters(), 0.01)

    def inner(params, x, y, steps=2):
        for _ in range(steps):
            l = F.mse_loss(functional_call(net, params, (x,)), y)
            g = torch.autograd.grad(l, list(params.values()), create_graph=True)
            params = {k: p - 0.1 * gi for (k, p), gi in zip(params.items(), g)}
        return params

    def step(tasks):
        opt.zero_grad()
        tot = 0
        for xs, ys, xq, yq in tasks:
            f = inner(dict(net.named_parameters()), xs, ys)
            tot = tot + F.mse_loss(functional_call(net, f, (xq,)), yq)
        tot.backward()
        opt.step()
        return tot.item()

    if part == "model":
        inner = compile(inner)
    else:
        step = compile(step)
    return (
        [step([tuple((torch.randn(4, 1) for _ in range(4))) for _ in range(2)]) for _ in range(3)],
        list(net.parameters()),
    )


@script
def ddpm(compile, part):

    class U(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Embedding(10, 8)
            self.a = nn.Conv2d(1, 8, 3, padding=1)
            self.b = nn.Conv2d(8, 8, 3, padding=1, stride=2)
            self.c = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.g = nn.GroupNorm(2, 8)
            self.o = nn.Conv2d(16, 1, 1)

        def forward(self, x, t):
            h = F.silu(self.a(x))
            e = self.t(t)[:, :, None, None]
            z = self.c(F.silu(self.g(self.b(h) + e)))
            return self.o(torch.cat([h, z], 1))

    net = U()
    betas = torch.linspace(0.0001, 0.02, 10)
    al = 1 - betas
    ab = torch.cumprod(al, 0)
    opt = torch.optim.AdamW(net.parameters(), 0.001)
    ema = copy.deepcopy(net).eval().requires_grad_(False)
    m = compile(net) if part == "model" else net

    def step(x):
        t = torch.randint(0, 10, (x.shape[0],))
        n = torch.randn_like(x)
        xt = ab[t].sqrt()[:, None, None, None] * x + (1 - ab[t]).sqrt()[:, None, None, None] * n
        l = F.mse_loss(m(xt, t), n)
        opt.zero_grad(set_to_none=True)
        l.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        with torch.no_grad():
            for a, b in zip(ema.parameters(), net.parameters()):
                a.lerp_(b, 0.1)
        return l.item()

    @torch.no_grad()
    def sample(n):
        x = torch.randn(n, 1, 8, 8)
        for i in reversed(range(10)):
            t = torch.full((n,), i, dtype=torch.long)
            e = ema(x, t)
            x = (x - betas[i] / (1 - ab[i]).sqrt() * e) / al[i].sqrt()
            if i > 0:
                x = x + betas[i].sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)

    if part != "model":
        step = compile(step)
        sample = compile(sample)
    return ([step(torch.randn(k, 1, 8, 8)) for k in (4, 4, 2)], sample(2), sample(3))


@script
def ppo(compile, part):
    from torch.distributions import Normal

    ac = nn.ModuleDict(
        dict(
            mu=nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)),
            v=nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)),
        )
    )
    ls = nn.Parameter(torch.zeros(2))
    opt = torch.optim.Adam([*ac.parameters(), ls], 0.003, eps=1e-05)

    def act(o):
        d = Normal(ac["mu"](o), ls.exp())
        a = d.sample()
        return (a, d.log_prob(a).sum(-1), ac["v"](o).squeeze(-1))

    def gae(r, v, d, last):
        adv = torch.zeros_like(r)
        g = 0
        for t in reversed(range(r.shape[0])):
            nv = last if t == r.shape[0] - 1 else v[t + 1]
            nt = 1.0 - d[t]
            delta = r[t] + 0.99 * nv * nt - v[t]
            g = delta + 0.99 * 0.95 * nt * g
            adv[t] = g
        return (adv, adv + v)

    def update(o, a, lp, adv, ret, clip=0.2):
        d = Normal(ac["mu"](o), ls.exp())
        nlp = d.log_prob(a).sum(-1)
        ent = d.entropy().sum(-1)
        v = ac["v"](o).squeeze(-1)
        ratio = (nlp - lp).exp()
        with torch.no_grad():
            kl = (ratio - 1 - (nlp - lp)).mean()
            cf = ((ratio - 1).abs() > clip).float().mean().item()
        adv = (adv - adv.mean()) / (adv.std() + 1e-08)
        pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
        vl = 0.5 * ((v - ret) ** 2).mean()
        l = pg - 0.01 * ent.mean() + 0.5 * vl
        opt.zero_grad()
        l.backward()
        nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
        opt.step()
        return (l.item(), kl.item(), cf)

    if part != "none":
        act = compile(act)
        update = compile(update)
        gae = compile(gae)
    res = []
    for ep in range(2):
        obs = torch.randn(12, 3)
        with torch.no_grad():
            a, lp, v = act(obs)
        r = torch.randn(12)
        dn = (torch.rand(12) < 0.2).float()
        adv, ret = gae(r, v, dn, torch.tensor(0.5))
        idx = np.arange(12)
        np.random.shuffle(idx)
        for s in range(0, 12, 5):
            mb = torch.as_tensor(idx[s : s + 5])
            res.append(update(obs[mb], a[mb], lp[mb], adv[mb], ret[mb]))
    return (res, list(ac.parameters()), ls)


@script
def simclr_moco(compile, part):
    q = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    k = copy.deepcopy(q)
    for p in k.parameters():
        p.requires_grad = False
    queue = F.normalize(torch.randn(4, 12), dim=0)
    ptr = torch.zeros(1, dtype=torch.long)
    opt = torch.optim.SGD(q.parameters(), 0.1, momentum=0.9, weight_decay=0.0001)
    m = compile(q) if part == "model" else q

    def step(a, b):
        qq = F.normalize(m(a), dim=1)
        with torch.no_grad():
            for pq, pk in zip(q.parameters(), k.parameters()):
                pk.data = pk.data * 0.9 + pq.data * 0.1
            sh = torch.randperm(b.shape[0])
            un = torch.argsort(sh)
            kk = F.normalize(k(b[sh]), dim=1)[un]
        pos = torch.einsum("nc,nc->n", [qq, kk]).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", [qq, queue.clone().detach()])
        lg = torch.cat([pos, neg], dim=1) / 0.07
        lb = torch.zeros(lg.shape[0], dtype=torch.long)
        with torch.no_grad():
            p = int(ptr)
            queue[:, p : p + b.shape[0]] = kk.T
            ptr[0] = (p + b.shape[0]) % 12
        l = F.cross_entropy(lg, lb)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    if part != "model":
        step = compile(step)
    return (
        [step(torch.randn(4, 6), torch.randn(4, 6)) for _ in range(4)],
        queue,
        ptr,
        list(q.parameters()),
        list(k.parameters()),
        list(k.buffers()),
    )


@script
def seq2seq_attn(compile, part):
    V = 12

    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 8, padding_idx=0)
            self.g = nn.GRU(8, 8, batch_first=True, bidirectional=True)

        def forward(self, x, ln):
            p = nn.utils.rnn.pack_padded_sequence(
                self.e(x), ln, batch_first=True, enforce_sorted=False
            )
            o, h = self.g(p)
            o, _ = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
            return (o, h.sum(0))

    class Dec(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, 8)
            self.a = nn.Linear(24, 1)
            self.g = nn.GRUCell(24, 8)
            self.o = nn.Linear(8, V)

        def step(self, y, h, eo, mask):
            a = (
                self.a(torch.cat([eo, h[:, None].expand(-1, eo.size(1), -1)], -1))
                .squeeze(-1)
                .masked_fill(mask, -1000000000.0)
                .softmax(-1)
            )
            c = torch.bmm(a[:, None], eo).squeeze(1)
            h = self.g(torch.cat([self.e(y), c], -1), h)
            return (self.o(h), h)

        def forward(self, eo, h, mask, tgt=None, n=4, tf=0.5):
            y = torch.ones(eo.size(0), dtype=torch.long)
            outs = []
            for t in range(n if tgt is None else tgt.size(1)):
                lg, h = self.step(y, h, eo, mask)
                outs.append(lg)
                y = tgt[:, t] if tgt is not None and random.random() < tf else lg.argmax(-1)
                if tgt is None and (y == 2).all():
                    break
            return torch.stack(outs, 1)

    E, D = (Enc(), Dec())
    opt = torch.optim.Adam([*E.parameters(), *D.parameters()], 0.01)
    e, d = (compile(E), compile(D)) if part == "model" else (E, D)

    def step(x, ln, t):
        eo, h = e(x, ln)
        mask = torch.arange(eo.size(1))[None] >= ln[:, None]
        lg = d(eo, h, mask, t)
        l = F.cross_entropy(lg.flatten(0, 1), t.flatten(), ignore_index=0)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    if part != "model":
        step = compile(step)
    out = [
        step(torch.randint(1, V, (3, 5)), torch.tensor(l), torch.randint(1, V, (3, 4)))
        for l in ([5, 3, 2], [2, 5, 4], [5, 5, 1])
    ]
    with torch.no_grad():
        eo, h = e(torch.randint(1, V, (2, 4)), torch.tensor([4, 2]))
        g = d(eo, h, torch.arange(eo.size(1))[None] >= torch.tensor([4, 2])[:, None])
    return (out, g)
