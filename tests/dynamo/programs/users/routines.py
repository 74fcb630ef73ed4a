"""Training and evaluation loops, metrics, collators, samplers: routines around a model."""

from tests.dynamo.programs import Family

PRELUDE = """
import torch.nn.functional as F
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def batch(i):
    g = torch.Generator().manual_seed(i)
    return torch.randn(6, 4, generator=g), torch.randint(0, 2, (6,), generator=g)
"""
FAMILY = Family(prelude=PRELUDE)

PROGRAMS = {
    "train_running": (
        2,
        """
        stat = {"loss": 0.0, "correct": 0, "n": 0}
        def f(x, y):
            out = model(x)
            loss = F.cross_entropy(out, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            stat["loss"] += loss.item() * x.size(0)
            stat["correct"] += (out.argmax(1) == y).sum().item()
            stat["n"] += x.size(0)
            return stat["loss"] / stat["n"], stat["correct"] / stat["n"]
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "eval_acc": (
        1,
        """
        def f(batches):
            model.eval()
            correct = total = 0
            with torch.no_grad():
                for x, y in batches:
                    pred = model(x).argmax(dim=1)
                    correct += (pred == y).sum().item()
                    total += y.size(0)
            model.train()
            return 100.0 * correct / total
        ---
        [run([batch(i), batch(i + 1), batch(i + 2)]) for i in range(4)]
    """,
    ),
    "eval_print": (
        1,
        """
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            print(f"loss {loss.item():.4f}")
            return loss
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "print_every": (
        3,
        """
        step = 0
        def f(x, y):
            global step
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            step += 1
            if step % 2 == 0:
                print(f"step {step}: {loss.item():.4f}")
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(6)]
    """,
    ),
    "nan_raise": (
        2,
        """
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            if torch.isnan(loss) or torch.isinf(loss):
                raise ValueError("loss is not finite")
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "nan_any": (
        1,
        """
        def f(x, y):
            out = model(x)
            if torch.isnan(out).any():
                raise RuntimeError("nan")
            return F.cross_entropy(out, y)
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "clip_hand": (
        2,
        """
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward()
            total = 0.0
            for q in model.parameters():
                if q.grad is not None:
                    total += q.grad.norm(2).item() ** 2
            total = total ** 0.5
            if total > 0.5:
                for q in model.parameters():
                    q.grad.mul_(0.5 / (total + 1e-6))
            opt.step()
            return total
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "clip_hand2": (
        2,
        """
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward()
            total = torch.sqrt(sum(q.grad.pow(2).sum() for q in model.parameters()))
            coef = 0.5 / (total + 1e-6)
            if coef < 1:
                for q in model.parameters():
                    q.grad.data.mul_(coef)
            opt.step()
            return total
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "ema": (
        2,
        """
        import copy
        ema = copy.deepcopy(model)
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                for a, b in zip(ema.parameters(), model.parameters()):
                    a.mul_(0.99).add_(b, alpha=0.01)
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]+ [list(ema.parameters())]
    """,
    ),
    "early_stop": (
        6,
        """
        class Stop:
            def __init__(self): self.best, self.bad, self.stop = None, 0, False
            def __call__(self, loss):
                if self.best is None or loss < self.best - 1e-3:
                    self.best, self.bad = loss, 0
                else:
                    self.bad += 1
                    if self.bad >= 2: self.stop = True
        stop = Stop()
        def f(x, y):
            loss = F.cross_entropy(model(x), y).item()
            stop(loss)
            return stop.stop
        ---
        [run(*batch(i)) for i in range(6)]
        [stop.best, stop.bad]
    """,
    ),
    "scaler_hand": (
        7,
        """
        scale = 1024.0; good = 0
        def f(x, y):
            global scale, good
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); (loss * scale).backward()
            finite = True
            for q in model.parameters():
                q.grad.div_(scale)
                if not torch.isfinite(q.grad).all(): finite = False
            if finite:
                opt.step(); good += 1
                if good % 2 == 0: scale *= 2
            else:
                scale /= 2; good = 0
            return loss.item()
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]+ [scale]
    """,
    ),
    "greedy": (
        1,
        """
        torch.manual_seed(1)
        emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
        def lm(ids): return head(emb(ids).cumsum(1))

        @torch.no_grad()
        def f(ids):
            for _ in range(5):
                nxt = lm(ids)[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, nxt], 1)
            return ids
        ---
        [run(torch.tensor([[1, i]])) for i in range(4)]
    """,
    ),
    "greedy_eos": (
        3,
        """
        torch.manual_seed(1)
        emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
        def lm(ids): return head(emb(ids).cumsum(1))

        @torch.no_grad()
        def f(ids):
            for _ in range(5):
                nxt = lm(ids)[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, nxt], 1)
                if nxt.item() == 3:
                    break
            return ids
        ---
        [run(torch.tensor([[1, i]])) for i in range(4)]
    """,
    ),
    "greedy_done": (
        3,
        """
        torch.manual_seed(1)
        emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
        def lm(ids): return head(emb(ids).cumsum(1))

        @torch.no_grad()
        def f(ids):
            done = torch.zeros(ids.size(0), dtype=torch.bool)
            for _ in range(5):
                nxt = lm(ids)[:, -1].argmax(-1)
                nxt = torch.where(done, torch.zeros_like(nxt), nxt)
                done = done | (nxt == 3)
                ids = torch.cat([ids, nxt[:, None]], 1)
                if done.all():
                    break
            return ids
        ---
        [run(torch.tensor([[1, i]])) for i in range(4)]
    """,
    ),
    "gen_list": (
        1,
        """
        torch.manual_seed(1)
        emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
        def lm(ids): return head(emb(ids).cumsum(1))

        @torch.no_grad()
        def f(ids):
            out = []
            for _ in range(4):
                t = lm(ids)[:, -1].argmax(-1)
                out.append(t.item())
                ids = torch.cat([ids, t[:, None]], 1)
            return out
        ---
        [run(torch.tensor([[1, i]])) for i in range(4)]
    """,
    ),
    "gen_while": (
        1,
        """
        torch.manual_seed(1)
        emb = nn.Embedding(11, 8); head = nn.Linear(8, 11)
        def lm(ids): return head(emb(ids).cumsum(1))

        @torch.no_grad()
        def f(ids):
            while ids.size(1) < 6:
                t = lm(ids)[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, t], 1)
            return ids.tolist()
        ---
        [run(torch.tensor([[1, i]])) for i in range(4)]
    """,
    ),
    "collate_pad": (
        2,
        """
        def f(seqs):
            n = max(len(s) for s in seqs)
            out = torch.zeros(len(seqs), n, dtype=torch.long)
            for i, s in enumerate(seqs):
                out[i, :len(s)] = s
            return out, out != 0
        ---
        [run([torch.arange(1, n) for n in ns]) for ns in ((3, 4, 5), (2, 6, 3), (4, 4, 4), (5, 3, 7))]
    """,
    ),
    "extremes_of_sizes": (
        2,
        """
        def f(*seqs):
            sizes = [len(s) for s in seqs]
            least = min(sizes), min(2, *sizes), min((len(s) for s in seqs), default=9)
            most = max(map(len, seqs)), max(sizes, default=0), max(s.size(0) for s in seqs)
            return torch.zeros(most[0]) + seqs[0].sum(), least, most
        ---
        [run(*(torch.ones(n) for n in ns)) for ns in ((3, 4, 5), (2, 6, 3), (9, 7, 8), (5, 3, 7))]
    """,
    ),
    "extremes_of_mixed_items": (
        None,
        """
        def f(x, items):
            n = len(x)
            return x + 1, max(v for v in [n, *items]), min([*items, n]), max((n, True)), min(v for v in (True, n))
        ---
        run(torch.ones(3), [1, 2])
        run(torch.ones(4), [4.0, 2.5])
        run(torch.ones(4), [True, 4])
        run(torch.ones(2), [float("nan"), 7])
        run(torch.ones(2), [2.0, 2])
        run(torch.ones(5), [torch.tensor(7), torch.tensor(2.0)])
        run(torch.ones(5), ["a"])
    """,
    ),
    "metric_f1": (
        1,
        """
        def f(pred, y):
            tp = ((pred == 1) & (y == 1)).sum().item()
            fp = ((pred == 1) & (y == 0)).sum().item()
            fn = ((pred == 0) & (y == 1)).sum().item()
            p = tp / (tp + fp) if tp + fp > 0 else 0.0
            r = tp / (tp + fn) if tp + fn > 0 else 0.0
            return 2 * p * r / (p + r) if p + r > 0 else 0.0
        ---
        [run(torch.tensor(a), torch.tensor([1, 0, 1, 0])) for a in ([1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1])]
    """,
    ),
    "metric_iou": (
        1,
        """
        def f(pred, y):
            ious = []
            for c in range(3):
                inter = ((pred == c) & (y == c)).sum()
                union = ((pred == c) | (y == c)).sum()
                if union == 0:
                    ious.append(float("nan"))
                else:
                    ious.append((inter.float() / union).item())
            return ious
        ---
        [run(torch.tensor(a), torch.tensor([1, 0, 1, 0])) for a in ([1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 2, 1])]
    """,
    ),
    "metric_confusion": (
        1,
        """
        def f(pred, y):
            m = torch.zeros(3, 3, dtype=torch.long)
            for a, b in zip(pred.tolist(), y.tolist()):
                m[a, b] += 1
            return m
        ---
        [run(torch.tensor(a), torch.tensor([1, 0, 1, 0])) for a in ([1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0])]
    """,
    ),
    "metric_unique": (
        2,
        """
        def f(pred, y):
            return [(pred[y == c] == c).float().mean().item() for c in torch.unique(y)]
        ---
        [run(torch.tensor(a), torch.tensor([1, 0, 1, 0])) for a in ([1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0])]
    """,
    ),
    "metric_np": (
        1,
        """
        def f(out, y):
            pred = out.argmax(-1).cpu().numpy()
            return float((pred == y.numpy()).mean())
        ---
        [run(torch.eye(3) + i, torch.tensor([0, i, 2])) for i in range(3)]
    """,
    ),
    "rl_gae": (
        1,
        """
        def f(r, v, d):
            adv = torch.zeros_like(r); last = 0
            for t in reversed(range(r.size(0))):
                nxt = v[t + 1] if t + 1 < v.size(0) else 0.0
                delta = r[t] + 0.99 * nxt * (1 - d[t]) - v[t]
                last = delta + 0.99 * 0.95 * (1 - d[t]) * last
                adv[t] = last
            return adv
        ---
        [run(torch.ones(4) * i, torch.ones(4), torch.tensor([0., 0, 1, 0])) for i in range(3)]
    """,
    ),
    "timestep_item": (
        1,
        """
        torch.manual_seed(2)
        unet = nn.Linear(4, 4); acp = torch.linspace(0.99, 0.1, 10)
        @torch.no_grad()
        def f(x, t):
            k = t.item()
            a = acp[k]; prev = acp[k - 1] if k > 0 else torch.tensor(1.)
            e = unet(x)
            return prev.sqrt() * (x - (1 - a).sqrt() * e) / a.sqrt()
        ---
        [run(torch.ones(2, 4), torch.tensor(i)) for i in (9, 5, 1, 0)]
    """,
    ),
    "log_dict": (
        1,
        """
        hist = []
        def f(x, y):
            out = model(x)
            loss = F.cross_entropy(out, y)
            hist.append({"loss": loss.item(), "acc": (out.argmax(1) == y).float().mean().item(), "max": out.abs().max().item()})
            return loss
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]+ [hist]
    """,
    ),
    "ema_loss": (
        3,
        """
        avg = None
        def f(x, y):
            global avg
            loss = F.cross_entropy(model(x), y)
            avg = loss.item() if avg is None else 0.9 * avg + 0.1 * loss.item()
            return loss / avg
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "grad_norms": (
        2,
        """
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward()
            norms = {n: q.grad.norm().item() for n, q in model.named_parameters()}
            opt.step()
            return norms
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "mask_loss": (
        1,
        """
        def f(out, y):
            m = y != -100
            if not m.any(): return out.sum() * 0
            return F.cross_entropy(out[m], y[m])
        ---
        [run(torch.eye(3) * 2, torch.tensor(a)) for a in ([0, 1, 2], [0, -100, 2], [-100, -100, -100], [1, 1, -100])]
    """,
    ),
    "nms_hand": (
        4,
        """
        def f(boxes, scores):
            keep, order = [], scores.argsort(descending=True)
            while order.numel() > 0:
                i = order[0]; keep.append(i.item())
                d = (boxes[order[1:]] - boxes[i]).abs().sum(-1)
                order = order[1:][d > 1]
            return keep
        ---
        [run(torch.tensor([[0., 0.], [0.1, 0.], [5., 5.], [5., i]]), torch.tensor([.9, .8, .7, .6])) for i in (5., 9., 1.)]
    """,
    ),
    "power_iter": (
        2,
        """
        def f(a):
            v = torch.ones(a.size(0)); old = 0.0
            for i in range(20):
                v = a @ v; n = v.norm(); v = v / n
                if abs(n.item() - old) < 1e-4: break
                old = n.item()
            return v, n
        ---
        [run(torch.tensor([[2., 1.], [1., i]])) for i in (1., 3., 5.)]
    """,
    ),
    "assert_range": (
        1,
        """
        def f(x, y):
            assert y.min() >= 0 and y.max() < x.size(1), f"labels out of range: {y.max().item()}"
            return F.cross_entropy(x, y)
        ---
        [run(torch.eye(3) * i, torch.tensor([0, 1, 2])) for i in range(4)]
    """,
    ),
    "normalize_if": (
        1,
        """
        def f(img):
            if img.max() > 1.0: img = img / 255.0
            if img.min() < 0 or img.max() > 1: raise ValueError("range")
            return (img - 0.5) / 0.5
        ---
        [run(torch.tensor([0., i])) for i in (1., 255., .5, 128.)]
    """,
    ),
    "grad_penalty": (
        2,
        """
        def f(x, y):
            x = x.clone().requires_grad_()
            out = model(x).sum()
            g, = torch.autograd.grad(out, x, create_graph=True)
            gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
            opt.zero_grad(); gp.backward(); opt.step()
            return gp.item()
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
    "tensorboard": (
        2,
        """
        class W:
            def __init__(self): self.rows = []
            def add_scalar(self, tag, v, step): self.rows.append((tag, float(v), step))
        w = W(); n = 0
        def f(x, y):
            global n
            loss = F.cross_entropy(model(x), y)
            w.add_scalar("loss", loss, n); n += 1
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]+ [w.rows]
    """,
    ),
    "tqdm_like": (
        1,
        """
        def f(x, y):
            tot = 0.0; post = []
            for i in range(3):
                loss = F.cross_entropy(model(x + i), y)
                tot += loss.item()
                post.append("%d %.3f" % (i, tot / (i + 1)))
            return post
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
    """,
    ),
}
