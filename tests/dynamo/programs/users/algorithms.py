"""Loops around tensors: sampling of texts and images, solvers, clustering, graphs, packing, metrics."""

from tests.dynamo.programs import Family

PRELUDE = """
import torch.nn.functional as F
torch.manual_seed(1)
emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
def lm(ids): return head(emb(ids).cumsum(1))
"""
ONE = {"guidance_with_a_callback", "graph_attention", "recurrent_packed"}  # aot_eager rounds
FAMILY = Family(prelude=PRELUDE, one=frozenset(ONE))

PROGRAMS = {
    "beam_search": (
        12,
        """
        @torch.no_grad()
        def f(ids, width, steps):
            beams = [(ids, 0.0, False)]
            for _ in range(steps):
                grown = []
                for seq, score, done in beams:
                    if done:
                        grown.append((seq, score, True))
                        continue
                    logp = F.log_softmax(lm(seq[None])[0, -1], -1)
                    values, tokens = logp.topk(width)
                    for v, t in zip(values.tolist(), tokens.tolist()):
                        grown.append((torch.cat([seq, torch.tensor([t])]), score + v, t == 3))
                beams = sorted(grown, key=lambda b: b[1], reverse=True)[:width]
                if all(b[2] for b in beams):
                    break
            return beams[0][0], beams[0][1]
        ---
        [run(torch.tensor([1, i]), 2, 3) for i in range(3)]
        """,
    ),
    "batched_beams": (
        3,
        """
        @torch.no_grad()
        def f(ids, width, steps):
            scores = torch.zeros(1)
            ids = ids[None]
            for _ in range(steps):
                logp = F.log_softmax(lm(ids)[:, -1], -1) + scores[:, None]
                scores, flat = logp.reshape(-1).topk(width)
                rows, tokens = flat // 11, flat % 11
                ids = torch.cat([ids[rows], tokens[:, None]], 1)
                if (tokens == 3).all():
                    break
            return ids, scores
        ---
        [run(torch.tensor([1, i]), 3, 4) for i in range(4)]
        """,
    ),
    "top_k_and_top_p": (
        6,
        """
        def filtered(logits, k, p):
            if k > 0:
                k = min(k, logits.size(-1))
                logits = logits.masked_fill(logits < logits.topk(k)[0][..., -1:], -math.inf)
            if p < 1.0:
                ordered, order = logits.sort(descending=True)
                drop = ordered.softmax(-1).cumsum(-1) > p
                drop[..., 1:] = drop[..., :-1].clone()
                drop[..., 0] = False
                logits = logits.masked_fill(drop.scatter(-1, order, drop), -math.inf)
            return logits
        @torch.no_grad()
        def f(ids, temperature=1.0, k=0, p=1.0, stop=None):
            for _ in range(4):
                logits = lm(ids)[:, -1]
                if temperature == 0:
                    nxt = logits.argmax(-1, keepdim=True)
                else:
                    nxt = filtered(logits / temperature, k, p).softmax(-1).multinomial(1)
                ids = torch.cat([ids, nxt], 1)
                if stop is not None and nxt.item() in stop:
                    break
            return ids
        ---
        run(torch.tensor([[1, 2]]), 0)
        [run(torch.tensor([[1, i]]), 0.8, 5) for i in range(2)]
        [run(torch.tensor([[1, i]]), 0.7, 5, 0.9) for i in range(2)]
        [run(torch.tensor([[1, i]]), 1.0, 0, 0.8, {3, 4}) for i in range(3)]
        """,
    ),
    "speculative_decoding": (
        7,
        """
        small = nn.Linear(8, 11)
        def draft(ids): return small(emb(ids).cumsum(1))
        @torch.no_grad()
        def f(ids, gamma, length):
            rounds = 0
            while ids.size(1) < length:
                start, guess = ids.size(1), ids
                for _ in range(gamma):
                    guess = torch.cat([guess, draft(guess)[:, -1].argmax(-1, keepdim=True)], 1)
                wanted = lm(guess)[:, start - 1:].argmax(-1)
                n = 0
                while n < gamma and guess[0, start + n] == wanted[0, n]:
                    n += 1
                ids = torch.cat([guess[:, :start + n], wanted[:, n:n + 1]], 1)
                rounds += 1
            return ids, rounds
        ---
        [run(torch.tensor([[1, i]]), 2, 6) for i in range(3)]
        """,
    ),
    "cache_that_grows": (
        3,
        """
        class Cache:
            def __init__(self): self.k = self.v = None
            def update(self, k, v):
                if self.k is None:
                    self.k, self.v = k, v
                else:
                    self.k, self.v = torch.cat([self.k, k], 1), torch.cat([self.v, v], 1)
                return self.k, self.v
            def __len__(self): return 0 if self.k is None else self.k.size(1)
        q, k, v = (nn.Linear(8, 8) for _ in range(3))
        @torch.no_grad()
        def f(ids, cache):
            x = emb(ids) + len(cache) * 0.1
            keys, values = cache.update(k(x), v(x))
            out = F.scaled_dot_product_attention(q(x), keys, values, is_causal=x.size(1) > 1)
            return head(out[:, -1]).argmax(-1, keepdim=True)
        cache = Cache()
        ---
        tok = run(torch.tensor([[1, 2, 3]]), cache)
        for _ in range(5): tok = run(tok, cache)
        [tok, cache.k]
        """,
    ),
    "cache_with_places": (
        3,
        """
        class Static:
            def __init__(self, n): self.k, self.pos = torch.zeros(1, n, 8), 0
        cache = Static(8)
        @torch.no_grad()
        def f(ids):
            x = emb(ids)
            n = x.size(1)
            cache.k[:, cache.pos:cache.pos + n] = x
            cache.pos += n
            if cache.pos >= cache.k.size(1):
                cache.k = torch.cat([cache.k[:, 4:], torch.zeros(1, 4, 8)], 1)
                cache.pos -= 4
            return head(cache.k[:, :cache.pos].mean(1)).argmax(-1, keepdim=True)
        ---
        tok = run(torch.tensor([[1, 2, 3]]))
        for _ in range(7): tok = run(tok)
        [tok, cache.pos]
        """,
    ),
    "k_means": (
        2,
        """
        def f(x, centers, tol, limit):
            for i in range(limit):
                near = torch.cdist(x, centers).argmin(1)
                new = torch.stack([x[near == j].mean(0) if (near == j).any() else centers[j] for j in range(len(centers))])
                shift = (new - centers).norm()
                centers = new
                if shift < tol:
                    break
            return centers, near, i
        ---
        [run(T(8, 2) * s + torch.arange(8)[:, None] % 2 * 5, T(8, 2)[:2] * k, 1e-4, 6) for s, k in ((1.0, 1.0), (0.1, 2.0), (3.0, -9.0))]
        """,
    ),
    "mixture_by_expectation": (
        6,
        """
        def f(x, mu, tol):
            old, steps = -math.inf, 0
            pi, var = torch.full((2,), 0.5), torch.ones(2)
            while True:
                logp = -(x[:, None] - mu) ** 2 / (2 * var) - 0.5 * var.log() + pi.log()
                total = logp.logsumexp(1)
                r = (logp - total[:, None]).exp()
                n = r.sum(0)
                mu = (r * x[:, None]).sum(0) / n
                var = (r * (x[:, None] - mu) ** 2).sum(0) / n + 1e-3
                pi = n / n.sum()
                now = total.mean().item()
                steps += 1
                if now - old < tol or steps >= 6:
                    return mu, var, steps
                old = now
        ---
        [run(T(8) * s, torch.tensor([-1.0, 1.0]), tol) for s, tol in ((1.0, 1e-2), (2.0, 0.3), (0.5, 1e-1))]
        """,
    ),
    "gauss_newton": (
        5,
        """
        def residual(p, t, y): return p[0] * torch.exp(-p[1] * t) - y
        def f(p, t, y, lam):
            cost = residual(p, t, y).pow(2).sum()
            for _ in range(4):
                J = torch.func.jacfwd(residual)(p, t, y)
                r = residual(p, t, y)
                step = torch.linalg.solve(J.T @ J + lam * torch.eye(2), -J.T @ r)
                new = residual(p + step, t, y).pow(2).sum()
                if new < cost:
                    p, cost, lam = p + step, new, lam / 10
                else:
                    lam *= 10
            return p, cost, lam
        ---
        [run(torch.tensor([1.0, s]), torch.arange(5.0) / 4, 2 * torch.exp(-torch.arange(5.0) / 2), 1e-2) for s in (0.3, 3.0, -2.0)]
        """,
    ),
    "conjugate_gradient": (
        2,
        """
        def f(A, b, tol, limit):
            x = torch.zeros_like(b)
            r = b - A @ x
            p, rs, n = r, r @ r, 0
            while rs.sqrt() > tol and n < limit:
                Ap = A @ p
                alpha = rs / (p @ Ap)
                x = x + alpha * p
                r = r - alpha * Ap
                new = r @ r
                p = r + new / rs * p
                rs = new
                n += 1
            return x, n
        ---
        [run(torch.eye(3) * k + 1, T(3), tol, 5) for k, tol in ((2.0, 1e-4), (1.0, 1e-1), (3.0, 99.0))]
        """,
    ),
    "lbfgs_of_torch": (
        4,
        """
        w = nn.Parameter(torch.tensor([2.0, -1.0])); lb = torch.optim.LBFGS([w], lr=0.5, max_iter=3, history_size=2)
        def f(target):
            def closure():
                lb.zero_grad()
                loss = ((w - target) ** 2).sum() + 0.1 * (w ** 4).sum()
                loss.backward()
                return loss
            return lb.step(closure).detach()
        ---
        [run(torch.tensor([0.5, k])) for k in (0.5, 0.5, 1.0)]
        [w]
        """,
    ),
    "line_search": (
        6,
        """
        def loss(w): return (w ** 4).sum() + (w[0] - w[1] ** 2) ** 2
        def f(w, limit):
            for step in range(limit):
                w = w.detach().requires_grad_()
                value = loss(w)
                g, = torch.autograd.grad(value, w)
                if g.norm() < 1e-3:
                    break
                t = 1.0
                with torch.no_grad():
                    while loss(w - t * g) > value - 0.5 * t * g.pow(2).sum() and t > 1e-3:
                        t *= 0.5
                    w = w - t * g
            return w.detach(), step
        ---
        [run(torch.tensor([a, b]), 3) for a, b in ((1.0, 0.5), (0.0, 0.0), (-1.0, 2.0))]
        """,
    ),
    "runge_kutta_adaptive": (
        5,
        """
        def field(t, y): return torch.stack([y[1], -y[0] * (1 + t)])
        def f(y, t_end, tol):
            t, h, n = 0.0, 0.2, 0
            while t < t_end and n < 12:
                h = min(h, t_end - t)
                k1 = field(t, y)
                k2 = field(t + h / 2, y + h / 2 * k1)
                k3 = field(t + h, y - h * k1 + 2 * h * k2)
                low, high = y + h * k2, y + h / 6 * (k1 + 4 * k2 + k3)
                err = (high - low).abs().max().item()
                if err < tol:
                    t, y = t + h, high
                h *= max(0.2, min(5.0, 0.9 * (tol / max(err, 1e-12)) ** 0.33))
                n += 1
            return y, t, n
        ---
        [run(torch.tensor([1.0, k]), 0.5, tol) for k, tol in ((0.0, 1e-2), (1.0, 1e-3), (2.0, 1e-1))]
        """,
    ),
    "ddim": (
        4,
        """
        net = nn.Linear(5, 4)
        alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 10), 0)
        @torch.no_grad()
        def f(x, steps, eta=0.0):
            times = torch.linspace(9, 0, steps).long().tolist()
            for t, prev in zip(times, times[1:] + [-1]):
                a, ap = alphas[t], alphas[prev] if prev >= 0 else torch.tensor(1.0)
                e = net(torch.cat([x, torch.full((len(x), 1), t / 10)], 1))
                x0 = ((x - (1 - a).sqrt() * e) / a.sqrt()).clamp(-1, 1)
                sigma = eta * ((1 - ap) / (1 - a) * (1 - a / ap)).sqrt()
                x = ap.sqrt() * x0 + (1 - ap - sigma ** 2).clamp(min=0).sqrt() * e
                if eta > 0 and prev >= 0:
                    x = x + sigma * torch.randn_like(x)
            return x
        ---
        [run(T(2, 4) * k, n, eta) for k, n, eta in ((1.0, 3, 0.0), (2.0, 3, 0.5), (1.0, 4, 0.5), (0.5, 4, 0.0))]
        """,
    ),
    "dpm_multistep": (
        2,
        """
        class DPM:
            def __init__(self, n):
                self.sigmas = torch.linspace(3.0, 0.0, n + 1)
                self.outputs, self.index, self.lower = [None, None], None, 0
            def step(self, e, t, x):
                if self.index is None:
                    self.index = (self.sigmas == t).nonzero()[0].item()
                self.outputs[0], self.outputs[1] = self.outputs[1], x - t * e
                s, nxt = self.sigmas[self.index], self.sigmas[self.index + 1]
                final = self.index == len(self.sigmas) - 2
                if self.lower < 1 or final:
                    x = nxt / s * x + (1 - nxt / s) * self.outputs[1]
                else:
                    d = self.outputs[1] + 0.5 * (self.outputs[1] - self.outputs[0])
                    x = nxt / s * x + (1 - nxt / s) * d
                self.lower = min(self.lower + 1, 2)
                self.index += 1
                return x
        net = nn.Linear(4, 4)
        @torch.no_grad()
        def f(x, n):
            sched = DPM(n)
            for t in sched.sigmas[:-1]:
                x = sched.step(net(x), t, x)
            return x
        ---
        [run(T(2, 4) * k, n) for k, n in ((1.0, 3), (2.0, 3), (1.0, 4))]
        """,
    ),
    "guidance_with_a_callback": (
        6,
        """
        net = nn.Linear(4, 4)
        seen = []
        def on_step(i, t, state):
            seen.append((i, t, float(state["x"].std())))
            if i == 1 and state["x"].abs().max() > 2:
                state["scale"] = 1.0
            return state
        @torch.no_grad()
        def f(x, scale, callback=None):
            for i, t in enumerate((3, 2, 1)):
                if scale > 1:
                    u, c = net(torch.cat([x, x + 1])).chunk(2)
                    e = u + scale * (c - u)
                else:
                    e = net(x)
                x = x - 0.1 * t * e
                if callback is not None:
                    state = callback(i, t, {"x": x, "scale": scale})
                    x, scale = state.pop("x", x), state.pop("scale", scale)
            return x
        ---
        [run(T(2, 4), s) for s in (1.0, 3.0, 5.0)]
        [run(T(2, 4) * k, 3.0, on_step) for k in (1.0, 9.0)]
        """,
    ),
    "message_passing": (
        2,
        """
        class Conv(nn.Module):
            def __init__(self, a, b, aggr="add"):
                super().__init__()
                self.lin, self.aggr = nn.Linear(a, b), aggr
            def forward(self, x, edges):
                src, dst = edges
                msg = self.lin(x)[src]
                out = torch.zeros(x.size(0), msg.size(1)).index_add_(0, dst, msg)
                if self.aggr == "mean":
                    out = out / torch.bincount(dst, minlength=x.size(0)).clamp(min=1)[:, None]
                elif self.aggr == "max":
                    out = torch.full_like(out, -math.inf).scatter_reduce(0, dst[:, None].expand_as(msg), msg, "amax")
                    out = torch.where(torch.isinf(out), 0.0, out)
                return out
        convs = nn.ModuleList([Conv(3, 4), Conv(4, 4, "mean"), Conv(4, 2, "max")])
        def f(x, edges, batch):
            if edges.numel() and edges.max() >= x.size(0):
                raise IndexError("an edge to no node")
            for c in convs:
                x = F.relu(c(x, edges))
            graphs = int(batch.max()) + 1
            return torch.zeros(graphs, x.size(1)).scatter_add(0, batch[:, None].expand_as(x), x)
        ---
        [run(T(n, 3), torch.tensor(e), torch.arange(n) // 2) for n, e in ((4, [[0, 1, 2], [1, 2, 3]]), (5, [[0, 1, 2, 4], [1, 2, 3, 0]]), (3, [[0, 1], [1, 2]]), (3, [[0, 1], [1, 7]]))]
        """,
    ),
    "graph_attention": (
        2,
        """
        lin, att = nn.Linear(3, 4), nn.Parameter(torch.ones(8) / 8)
        def softmax_by(e, dst, n):
            top = torch.full((n,), -math.inf).scatter_reduce(0, dst, e, "amax")
            w = (e - top[dst]).exp()
            return w / (torch.zeros(n).index_add(0, dst, w)[dst] + 1e-9)
        def f(x, edges):
            loops = torch.arange(x.size(0))
            edges = edges[:, edges[0] != edges[1]]
            src, dst = torch.cat([edges, torch.stack([loops, loops])], 1)
            h = lin(x)
            a = softmax_by(F.leaky_relu(torch.cat([h[src], h[dst]], -1) @ att, 0.2), dst, x.size(0))
            return torch.zeros_like(h).index_add(0, dst, a[:, None] * h[src])
        ---
        [run(T(n, 3), torch.tensor(e)) for n, e in ((4, [[0, 1, 2], [1, 2, 3]]), (5, [[0, 1, 2, 4], [1, 1, 3, 0]]), (3, [[0, 1], [0, 1]]))]
        """,
    ),
    "packing_by_length": (
        3,
        """
        def f(seqs, room):
            bins, free = [], []
            for s in sorted(seqs, key=len, reverse=True):
                for i, left in enumerate(free):
                    if len(s) <= left:
                        bins[i].append(s); free[i] -= len(s)
                        break
                else:
                    bins.append([s]); free.append(room - len(s))
            flat = [torch.cat(b) for b in bins]
            cu = torch.tensor([0] + list(itertools.accumulate(len(b) for b in flat)))
            return torch.cat(flat), cu, max(map(len, flat))
        ---
        [run([torch.arange(n) for n in ns], 6) for ns in ((3, 2, 4), (3, 3, 3), (6, 1, 5, 2))]
        """,
    ),
    "packed_attention": (
        1,
        """
        def f(x, lengths):
            outs = []
            for part in x.split(lengths.tolist()):
                outs.append(F.softmax(part @ part.T, -1) @ part)
            return torch.cat(outs)
        ---
        [run(T(6, 2), torch.tensor(n)) for n in ((2, 4), (3, 3), (1, 5))]
        """,
    ),
    "recurrent_packed": (
        3,
        """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
        gru = nn.GRU(8, 4, batch_first=True)
        def f(seqs):
            lengths = torch.tensor([len(s) for s in seqs])
            padded = pad_sequence(seqs, batch_first=True)
            packed = pack_padded_sequence(emb(padded), lengths, batch_first=True, enforce_sorted=False)
            out, h = gru(packed)
            out, n = pad_packed_sequence(out, batch_first=True)
            return out.sum((1, 2)), h, n
        ---
        [run([torch.arange(n) for n in ns]) for ns in ((3, 2, 4), (3, 3, 1), (5, 2, 4))]
        """,
    ),
    "soft_nms": (
        4,
        """
        def iou(a, b):
            tl, br = torch.maximum(a[:2], b[:, :2]), torch.minimum(a[2:], b[:, 2:])
            inter = (br - tl).clamp(min=0).prod(1)
            area = lambda t: (t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1])
            return inter / (area(a) + area(b) - inter)
        def f(boxes, scores, thresh, sigma=0.5):
            scores, keep = scores.clone(), []
            alive = torch.ones_like(scores, dtype=torch.bool)
            while alive.any():
                i = torch.where(alive, scores, -1.0).argmax()
                if scores[i] < thresh:
                    break
                keep.append(int(i))
                alive[i] = False
                scores = torch.where(alive, scores * torch.exp(-iou(boxes[i], boxes) ** 2 / sigma), scores)
            return keep, scores
        ---
        [run(torch.tensor([[0., 0., 2., 2.], [0., 0., 2., k], [5., 5., 7., 7.]]), torch.tensor([.9, .8, .7]), t) for k, t in ((2.1, 0.3), (9.0, 0.3), (2.0, 0.75))]
        """,
    ),
    "boxes_by_class": (
        4,
        """
        def f(boxes, scores, labels, low):
            keep = scores > low
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
            if boxes.numel() == 0:
                return {"boxes": boxes, "scores": scores, "labels": labels}
            found = []
            for c in labels.unique().tolist():
                rows = (labels == c).nonzero().squeeze(1)
                order = rows[scores[rows].argsort(descending=True)]
                found.append(order[:1])
            found = torch.cat(found)
            return {"boxes": boxes[found], "scores": scores[found], "labels": labels[found]}
        ---
        [run(T(4, 4), torch.tensor([.9, .2, .7, .4]), torch.tensor(c), low) for c, low in (([0, 1, 0, 1], .3), ([2, 2, 2, 2], .1), ([0, 1, 2, 3], .95))]
        """,
    ),
    "confusion_accumulated": (
        2,
        """
        class Confusion:
            def __init__(self, n): self.n, self.mat = n, None
            def update(self, y, pred):
                if self.mat is None:
                    self.mat = torch.zeros(self.n, self.n, dtype=torch.int64)
                with torch.inference_mode():
                    k = (y >= 0) & (y < self.n)
                    self.mat += torch.bincount(self.n * y[k] + pred[k], minlength=self.n ** 2).reshape(self.n, self.n)
            def compute(self):
                h = self.mat.float()
                return h.diag().sum() / h.sum(), h.diag() / (h.sum(1) + h.sum(0) - h.diag())
            def __str__(self):
                acc, iou = self.compute()
                return "{:.1f} {} {:.1f}".format(acc.item() * 100, [f"{i:.1f}" for i in (iou * 100).tolist()], iou.nanmean().item())
        meter = Confusion(3)
        def f(y, pred):
            meter.update(y, pred)
            return str(meter)
        ---
        [run(torch.tensor(y), torch.tensor([0, 1, 2, 1])) for y in ([0, 1, 2, 2], [0, 0, 255, 1], [2, 1, 2, -1])]
        """,
    ),
    "area_under_curve": (
        7,
        """
        scores, labels = [], []
        def auc(s, y):
            order = s.argsort(descending=True)
            y = y[order]
            tps, fps = y.cumsum(0), (1 - y).cumsum(0)
            if tps[-1] == 0 or fps[-1] == 0:
                return float("nan")
            return torch.trapezoid(tps / tps[-1], fps / fps[-1]).item()
        def f(s, y):
            scores.append(s.detach()); labels.append(y)
            return auc(torch.cat(scores), torch.cat(labels))
        ---
        [run(T(4).sin() * k, torch.tensor(y)) for k, y in ((1.0, [0, 0, 0, 0]), (2.0, [1, 0, 1, 0]), (3.0, [1, 1, 0, 0]))]
        """,
    ),
    "meters_of_a_batch": (
        1,
        """
        class AverageMeter:
            def __init__(self, name, fmt=":.2f"): self.name, self.fmt = name, fmt; self.reset()
            def reset(self): self.val = self.avg = self.sum = self.count = 0
            def update(self, val, n=1):
                self.val = val; self.sum += val * n; self.count += n; self.avg = self.sum / self.count
            def __str__(self): return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)
        def accuracy(out, y, topk=(1,)):
            with torch.no_grad():
                _, pred = out.topk(max(topk), 1, True, True)
                correct = pred.t().eq(y.view(1, -1).expand_as(pred.t()))
                return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / y.size(0)) for k in topk]
        top1, top2 = AverageMeter("acc1"), AverageMeter("acc2", ":6.1f")
        def f(out, y, i):
            a, b = accuracy(out, y, (1, 2))
            top1.update(a[0].item(), y.size(0)); top2.update(b[0].item(), y.size(0))
            if i % 2 == 0:
                print(" ".join([f"[{i}]", str(top1), str(top2)]))
            return top1.avg
        ---
        [run(T(4, 3).sin() * (i + 1), torch.tensor([0, 1, 2, i % 3]), i) for i in range(5)]
        """,
    ),
    "viterbi": (
        4,
        """
        def f(emissions, transitions, mask):
            score, back = emissions[0], []
            for t in range(1, emissions.size(0)):
                total = score[:, None] + transitions + emissions[t][None]
                best, idx = total.max(0)
                score = torch.where(mask[t], best, score)
                back.append(idx)
            length = int(mask.sum()) - 1
            tag = score.argmax().item()
            path = [tag]
            for idx in reversed(back[:length]):
                tag = idx[tag].item()
                path.append(tag)
            return path[::-1], score.max()
        ---
        [run(T(4, 3).sin() * k, T(3, 3).cos(), torch.arange(4) < n) for k, n in ((1.0, 4), (2.0, 3), (-1.0, 4), (3.0, 1))]
        """,
    ),
    "ctc_greedy": (
        2,
        """
        chars = "-abc"
        def f(logits):
            best = logits.argmax(-1)
            texts = []
            for row in best:
                row = torch.unique_consecutive(row)
                texts.append("".join(chars[i] for i in row.tolist() if i != 0))
            return texts
        ---
        [run((T(2, 6, 4) * k).sin()) for k in (1.0, 5.0, 9.0)]
        """,
    ),
    "halting_layers": (
        2,
        """
        cell, halt = nn.Linear(4, 4), nn.Linear(4, 1)
        def f(x, limit):
            p, n = torch.zeros(x.size(0)), 0
            out = torch.zeros_like(x)
            while n < limit and (p < 0.9).any():
                x = torch.tanh(cell(x))
                h = torch.sigmoid(halt(x)).squeeze(-1)
                running = p < 0.9
                h = torch.where(running, torch.minimum(h, 1 - p), 0.0)
                out, p, n = out + h[:, None] * x, p + h, n + 1
            return out, n
        ---
        [run(T(2, 4) * k, limit) for k, limit in ((1.0, 4), (3.0, 4), (9.0, 2))]
        """,
    ),
    "quantiser_that_is_initialised": (
        3,
        """
        class VQ(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("initted", torch.tensor(False))
                self.register_buffer("embed", torch.zeros(4, 3))
                self.register_buffer("size", torch.zeros(4))
            def forward(self, x):
                if not self.initted:
                    self.embed.data.copy_(x[:4])
                    self.initted.data.copy_(torch.tensor(True))
                ind = torch.cdist(x, self.embed).argmin(-1)
                if self.training:
                    hot = F.one_hot(ind, 4).float()
                    self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                    dead = self.size < 0.05
                    if dead.any():
                        self.embed.data[dead] = x[:int(dead.sum())]
                q = self.embed[ind]
                return x + (q - x).detach(), ind
        vq = VQ()
        def f(x): return vq(x)
        ---
        [run(T(6, 3).sin() * k) for k in (1.0, 2.0, 3.0)]
        vq.eval()
        [run(T(6, 3)) for _ in range(2)]
        """,
    ),
}
