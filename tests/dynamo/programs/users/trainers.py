"""Parts of training loops: schedules, weights kept or changed between steps, losses, hooks, agents."""

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
# Programs whose results differ by aot_eager's rounding, and one whose hooks the engine calls in
# the order of the graph's outputs.
ONE = {"rate_finder", "actor_critic_episode", "gradients_of_several_tasks_projected"}
ONE |= {"plateau_scheduler", "gradients_watched_by_hooks"}
FAMILY = Family(prelude=PRELUDE, one=frozenset(ONE))

PROGRAMS = {
    "rate_finder": (
        2,
        """
        @dataclasses.dataclass
        class Finder:
            lr: float = 1e-3
            best: float = math.inf
            beta: float = 0.9
            average: float = 0.0
            history: list = dataclasses.field(default_factory=list)
            def record(self, loss, step):
                self.average = self.beta * self.average + (1 - self.beta) * loss
                smooth = self.average / (1 - self.beta ** (step + 1))
                self.history.append((self.lr, smooth))
                diverged = smooth > 4 * self.best
                self.best = min(self.best, smooth)
                return diverged
        finder = Finder()
        def f(x, y, step):
            for group in opt.param_groups:
                group["lr"] = finder.lr
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            stop = finder.record(loss.item(), step)
            finder.lr *= 2.0
            return stop
        ---
        [run(*batch(i), i) for i in range(6)]
        [list(model.parameters())]
        """,
    ),
    "stopping_with_weights_restored": (
        4,
        """
        class EarlyStopping:
            def __init__(self, patience=2):
                self.patience, self.best, self.bad, self.state = patience, None, 0, None
            def step(self, value, net):
                if self.best is None or value < self.best:
                    self.best, self.bad = value, 0
                    self.state = {k: v.clone() for k, v in net.state_dict().items()}
                    return False
                self.bad += 1
                if self.bad > self.patience:
                    net.load_state_dict(self.state)
                    return True
                return False
        stopper = EarlyStopping(1)
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                held = F.cross_entropy(model(-x), y)
            return stopper.step(held.item(), model)
        ---
        [run(*batch(i)) for i in range(6)]
        [list(model.parameters()), stopper.best, stopper.bad]
        """,
    ),
    "accumulation_with_a_scaler": (
        3,
        """
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        def f(x, y, i):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y) / 2
            scaler.scale(loss).backward()
            if (i + 1) % 2 == 0:
                scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=True)
            return loss.detach()
        ---
        [run(*batch(i), i) for i in range(6)]
        [list(model.parameters()), scaler.get_scale()]
        """,
    ),
    "average_of_weights_with_warmup": (
        2,
        """
        class EMA:
            def __init__(self, net, decay=0.99):
                self.decay, self.updates = decay, 0
                self.shadow = {n: p.detach().clone() for n, p in net.named_parameters()}
                self.backup = {}
            @torch.no_grad()
            def update(self, net):
                self.updates += 1
                d = min(self.decay, (1 + self.updates) / (10 + self.updates))
                for n, p in net.named_parameters():
                    self.shadow[n].lerp_(p, 1 - d)
            def swap(self, net):
                for n, p in net.named_parameters():
                    self.backup[n] = p.data
                    p.data = self.shadow[n]
            def restore(self, net):
                for n, p in net.named_parameters():
                    p.data = self.backup.pop(n)
        ema = EMA(model)
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            ema.update(model)
            ema.swap(model)
            try:
                with torch.no_grad():
                    value = model(x).argmax(-1)
            finally:
                ema.restore(model)
            return value
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters()), ema.shadow]
        """,
    ),
    "mixup": (
        4,
        """
        def mixup(x, y, alpha):
            lam = np.random.beta(alpha, alpha) if alpha > 0 else 1.0
            order = torch.randperm(x.size(0))
            return lam * x + (1 - lam) * x[order], y, y[order], lam
        def f(x, y, alpha):
            x, a, b, lam = mixup(x, y, alpha)
            out = model(x)
            loss = lam * F.cross_entropy(out, a) + (1 - lam) * F.cross_entropy(out, b)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach()
        ---
        [run(*batch(i), 0.4 if i % 3 else 0.0) for i in range(5)]
        [list(model.parameters())]
        """,
    ),
    "cutmix": (
        3,
        """
        def box(size, lam):
            h, w = size[-2:]
            cut = math.sqrt(1.0 - lam)
            ch, cw = int(h * cut), int(w * cut)
            cy, cx = np.random.randint(h), np.random.randint(w)
            top, bottom = max(cy - ch // 2, 0), min(cy + ch // 2, h)
            left, right = max(cx - cw // 2, 0), min(cx + cw // 2, w)
            return top, bottom, left, right
        def f(x, lam):
            t, b, l, r = box(x.shape, lam)
            x = x.clone()
            x[:, :, t:b, l:r] = x.flip(0)[:, :, t:b, l:r]
            return x, 1 - (b - t) * (r - l) / (x.size(-1) * x.size(-2))
        ---
        [run(T(2, 1, 8, 8), lam) for lam in (0.3, 0.8, 0.5, 0.95)]
        """,
    ),
    "focal_loss": (
        4,
        """
        class Focal(nn.Module):
            def __init__(self, gamma=2.0, alpha=None, reduction="mean"):
                super().__init__()
                self.gamma, self.alpha, self.reduction = gamma, alpha, reduction
            def forward(self, logits, target):
                ce = F.cross_entropy(logits, target, reduction="none")
                pt = torch.exp(-ce)
                loss = (1 - pt) ** self.gamma * ce
                if self.alpha is not None:
                    loss = self.alpha[target] * loss
                if self.reduction == "mean":
                    return loss.mean()
                elif self.reduction == "sum":
                    return loss.sum()
                return loss
        focal = Focal()
        def f(x, y):
            loss = focal(model(x), y)
            opt.zero_grad(); loss.sum().backward(); opt.step()
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(2)]
        focal.alpha = torch.tensor([0.25, 0.75])
        [run(*batch(i)) for i in range(2)]
        focal.reduction = "none"
        [run(*batch(i)) for i in range(2)]
        [list(model.parameters())]
        """,
    ),
    "dice_over_present_classes": (
        4,
        """
        def f(logits, y, smooth=1.0):
            probs = logits.softmax(1)
            scores = []
            for c in range(logits.size(1)):
                target = (y == c).float()
                if target.sum() == 0:
                    continue
                inter = (probs[:, c] * target).sum()
                scores.append((2 * inter + smooth) / (probs[:, c].sum() + target.sum() + smooth))
            return 1 - torch.stack(scores).mean()
        ---
        [run(T(2, 3, 4) * k, torch.tensor(y)) for k, y in enumerate(([[0, 1, 2, 0], [0, 0, 1, 1]], [[0, 0, 0, 0], [1, 1, 1, 1]], [[2, 2, 2, 2], [2, 2, 2, 2]]))]
        """,
    ),
    "contrastive_pairs_if_any": (
        1,
        """
        def f(z, y, margin):
            d = torch.cdist(z, z)
            same = y[:, None] == y[None]
            same = same & ~torch.eye(len(y), dtype=torch.bool)
            loss = z.new_zeros(())
            if same.any():
                loss = loss + d[same].pow(2).mean()
            other = F.relu(margin - d[y[:, None] != y[None]])
            if len(other) > 0:
                loss = loss + other.pow(2).mean()
            return loss
        ---
        [run(T(4, 2) * 2, torch.tensor(y), 3.0) for y in ([0, 0, 1, 1], [0, 1, 2, 3], [1, 1, 1, 1], [0, 1, 0, 2])]
        """,
    ),
    "hard_triplets": (
        2,
        """
        @dataclasses.dataclass
        class Result:
            loss: torch.Tensor
            active: int
        def f(a, p, n, margin):
            gap = (a - p).pow(2).sum(-1) - (a - n).pow(2).sum(-1) + margin
            hard = gap > 0
            active = int(hard.sum())
            if active == 0:
                return Result(gap.sum() * 0.0, 0)
            return Result(gap[hard].sum() / active, active)
        ---
        [run(T(4, 2), T(4, 2) + 1, T(4, 2) * k, m) for k, m in ((1.0, 1.0), (3.0, 0.1), (-9.0, -99.0), (1.0, -0.5))]
        """,
    ),
    "replay_buffer": (
        4,
        """
        import random
        Transition = collections.namedtuple("Transition", "state action reward next_state done")
        class Replay:
            def __init__(self, capacity): self.memory = collections.deque(maxlen=capacity)
            def push(self, *parts): self.memory.append(Transition(*parts))
            def sample(self, n): return random.sample(self.memory, n)
            def __len__(self): return len(self.memory)
        replay = Replay(4)
        def f(s, a, r, s2, done):
            replay.push(s, a, r, s2, done)
            if len(replay) < 3:
                return None
            rows = Transition(*zip(*replay.sample(3)))
            state, after = torch.stack(rows.state), torch.stack(rows.next_state)
            action = torch.tensor(rows.action).unsqueeze(1)
            q = model(state).gather(1, action).squeeze(1)
            with torch.no_grad():
                goal = torch.tensor(rows.reward) + 0.9 * model(after).max(1)[0] * (1 - torch.tensor(rows.done).float())
            loss = F.smooth_l1_loss(q, goal)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.item()
        ---
        [run(T(4) * i, i % 2, float(i), T(4) * (i + 1), i % 3 == 0) for i in range(7)]
        [list(model.parameters()), len(replay)]
        """,
    ),
    "epsilon_greedy": (
        2,
        """
        import random
        steps_done = 0
        def f(state):
            global steps_done
            eps = 0.05 + (0.9 - 0.05) * math.exp(-1.0 * steps_done / 3)
            steps_done += 1
            if random.random() > eps:
                with torch.no_grad():
                    return model(state).max(1)[1].view(1, 1)
            return torch.tensor([[random.randrange(2)]], dtype=torch.long)
        ---
        [run(T(1, 4) * i) for i in range(8)]
        """,
    ),
    "ppo_update": (
        3,
        """
        def f(states, actions, old, adv, clip, target_kl):
            losses = []
            for epoch in range(4):
                dist = torch.distributions.Categorical(logits=model(states))
                new = dist.log_prob(actions)
                ratio = (new - old).exp()
                loss = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean() - 0.01 * dist.entropy().mean()
                kl = (old - new).mean().item()
                if kl > 1.5 * target_kl:
                    break
                opt.zero_grad(); loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                opt.step()
                losses.append(loss.item())
            return losses, epoch
        ---
        [run(T(6, 4) * i, torch.arange(6) % 2, torch.full((6,), -0.7), T(6) - T(6).mean(), 0.2, kl) for i, kl in ((1, 1.0), (0.5, 0.001), (2, 0.02))]
        [list(model.parameters())]
        """,
    ),
    "actor_critic_episode": (
        2,
        """
        policy, value = nn.Linear(4, 2), nn.Linear(4, 1)
        optim = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=0.01)
        @dataclasses.dataclass
        class Episode:
            log_probs: list = dataclasses.field(default_factory=list)
            values: list = dataclasses.field(default_factory=list)
            rewards: list = dataclasses.field(default_factory=list)
        def f(state, goal):
            ep = Episode()
            for t in range(3):
                probs = F.softmax(policy(state), dim=-1)
                action = probs.argmax().item()
                ep.log_probs.append(probs[action].log())
                ep.values.append(value(state).squeeze())
                state = state + (0.5 if action == 1 else -0.5)
                ep.rewards.append(-abs(state.sum().item() - goal))
            returns, R = [], 0
            for r in ep.rewards[::-1]:
                R = r + 0.9 * R
                returns.insert(0, R)
            returns = torch.tensor(returns)
            returns = (returns - returns.mean()) / (returns.std() + 1e-5)
            loss = sum(-lp * (R - v.item()) + F.smooth_l1_loss(v, R) for lp, v, R in zip(ep.log_probs, ep.values, returns))
            optim.zero_grad(); loss.backward(); optim.step()
            return loss.detach(), sum(ep.rewards)
        ---
        [run(T(4) * i, 3.0) for i in range(3)]
        [list(policy.parameters())]
        """,
    ),
    "freeze_in_the_middle": (
        4,
        """
        def f(x, y, epoch):
            if epoch == 2:
                for p in model[0].parameters():
                    p.requires_grad_(False)
                    p.grad = None
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach(), sum(p.numel() for p in model.parameters() if p.requires_grad)
        ---
        [run(*batch(i), i) for i in range(4)]
        [list(model.parameters())]
        """,
    ),
    "critic_with_weights_clipped": (
        2,
        """
        critic = nn.Linear(4, 1); copt = torch.optim.RMSprop(critic.parameters(), lr=0.05)
        class WeightClipper:
            def __init__(self, bound): self.bound = bound
            def __call__(self, module):
                if hasattr(module, "weight"):
                    module.weight.data = module.weight.data.clamp(-self.bound, self.bound)
        clipper = WeightClipper(0.1)
        def f(real, fake):
            copt.zero_grad()
            loss = critic(fake).mean() - critic(real).mean()
            loss.backward()
            copt.step()
            critic.apply(clipper)
            return loss.detach(), critic.weight.abs().max()
        ---
        [run(T(3, 4) * i, T(3, 4) + 1) for i in range(4)]
        [list(critic.parameters())]
        """,
    ),
    "spectral_norm": (
        3,
        """
        from torch.nn.utils.parametrizations import spectral_norm
        layer = spectral_norm(nn.Linear(4, 3)); sopt = torch.optim.SGD(layer.parameters(), lr=0.1)
        def f(x):
            loss = layer(x).pow(2).mean()
            sopt.zero_grad(); loss.backward(); sopt.step()
            return loss.detach()
        ---
        [run(T(2, 4) * i) for i in range(3)]
        layer.eval()
        [run(T(2, 4) * i) for i in range(2)]
        [list(layer.parameters()), list(layer.buffers())]
        """,
    ),
    "lora_merged_and_apart": (
        2,
        """
        class LoRA(nn.Module):
            def __init__(self, base, r=2):
                super().__init__()
                self.base, self.merged, self.scale = base, False, 0.5
                base.weight.requires_grad_(False)
                self.A = nn.Parameter(torch.randn(r, base.in_features) * 0.1)
                self.B = nn.Parameter(torch.zeros(base.out_features, r))
            def merge(self):
                if not self.merged:
                    self.base.weight.data += (self.B @ self.A) * self.scale
                    self.merged = True
            def unmerge(self):
                if self.merged:
                    self.base.weight.data -= (self.B @ self.A) * self.scale
                    self.merged = False
            def train(self, mode=True):
                super().train(mode)
                if mode: self.unmerge()
                else: self.merge()
                return self
            def forward(self, x):
                out = self.base(x)
                if not self.merged:
                    out = out + (x @ self.A.T @ self.B.T) * self.scale
                return out
        lora = LoRA(nn.Linear(4, 3)); lopt = torch.optim.SGD([lora.A, lora.B], lr=0.5)
        def f(x):
            lora.train()
            loss = lora(x).pow(2).mean()
            lopt.zero_grad(); loss.backward(); lopt.step()
            lora.eval()
            with torch.no_grad():
                return lora(x)
        ---
        [run(T(2, 4) + i) for i in range(4)]
        [list(lora.parameters()), lora.merged]
        """,
    ),
    "surgery_between_calls": (
        6,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
                self.head = nn.Linear(4, 2)
            def forward(self, x):
                return self.head(self.body(x))
        net = Net()
        def f(x):
            return net(x)
        ---
        run(T(2, 4))
        net.head = nn.Linear(4, 3)
        run(T(2, 4))
        net.body.append(nn.Tanh())
        run(T(2, 4))
        net.body[1] = nn.GELU()
        run(T(2, 4))
        net.head = nn.Identity()
        run(T(2, 4))
        del net.body[0]
        run(T(2, 4))
        """,
    ),
    "hooks_that_log_statistics": (
        3,
        """
        stats = collections.defaultdict(list)
        def watch(name):
            def hook(module, args, out):
                stats[name].append({"mean": out.mean().item(), "std": out.std().item(), "dead": (out == 0).float().mean().item()})
            return hook
        handles = [m.register_forward_hook(watch(n)) for n, m in model.named_modules() if n]
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(3)]
        [h.remove() for h in handles]
        [run(*batch(i)) for i in range(2)]
        [stats]
        """,
    ),
    "gradients_watched_by_hooks": (
        3,
        """
        norms = {}
        def keep(name):
            def hook(grad):
                norms.setdefault(name, []).append(grad.norm().item())
                return grad.clamp(-0.1, 0.1)
            return hook
        for n, p in model.named_parameters():
            p.register_hook(keep(n))
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach()
        ---
        [run(*batch(i)) for i in range(4)]
        [list(model.parameters()), norms]
        """,
    ),
    "checkpoints_saved_and_loaded": (
        10,
        """
        import io, os
        saved, best = {}, float("inf")
        def f(x, y, epoch):
            global best
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            if loss.item() < best:
                best = loss.item()
                file = io.BytesIO()
                torch.save({"model": model.state_dict(), "epoch": epoch, "opt": opt.state_dict()}, file)
                saved["best"] = file.getvalue()
            return loss.detach()
        def load():
            held = torch.load(io.BytesIO(saved.pop("best")))
            model.load_state_dict(held["model"]); opt.load_state_dict(held["opt"])
            return held["epoch"]
        ---
        [run(*batch(i), i) for i in range(3)]
        load()
        [run(*batch(i), i) for i in range(2)]
        saved.clear()
        [list(model.parameters())]
        """,
    ),
    "curriculum_by_epoch": (
        6,
        """
        class Stage(enum.Enum):
            WARM = "warm"
            MAIN = "main"
            COOL = "cool"
        def stage(epoch):
            if epoch < 2: return Stage.WARM
            return Stage.MAIN if epoch < 5 else Stage.COOL
        def f(x, y, epoch):
            now = stage(epoch)
            if now is Stage.WARM:
                opt.param_groups[0]["lr"] = 0.1 * (epoch + 1) / 2
            elif now is Stage.COOL:
                opt.param_groups[0]["lr"] *= 0.5
            keep = min(x.size(0), 2 + epoch)
            hard = 0.1 * epoch
            loss = F.cross_entropy(model(x[:keep]), y[:keep], label_smoothing=min(hard, 0.3))
            opt.zero_grad(); loss.backward(); opt.step()
            return loss.detach(), now
        ---
        [run(*batch(i), i) for i in range(7)]
        [list(model.parameters())]
        """,
    ),
    "config_objects": (
        5,
        """
        from types import SimpleNamespace
        from typing import TypedDict
        class Options(TypedDict, total=False):
            dropout: float
            residual: bool
        class Act(enum.Enum):
            RELU = "relu"
            GELU = "gelu"
        @dataclasses.dataclass(frozen=True)
        class Config:
            act: Act = Act.RELU
            scale: float = 2.0
            options: Options = dataclasses.field(default_factory=lambda: Options(dropout=0.0, residual=True))
        cfg, args = Config(), SimpleNamespace(debug=False, steps=2, name="a")
        def f(x, cfg):
            for _ in range(args.steps):
                h = getattr(F, cfg.act.value)(x) * cfg.scale
                if cfg.options.get("dropout", 0) > 0:
                    h = F.dropout(h, cfg.options["dropout"])
                x = x + h if cfg.options["residual"] else h
                if args.debug:
                    print(args.name, tuple(x.shape))
            return x
        ---
        run(T(3), cfg)
        run(T(3), dataclasses.replace(cfg, act=Act.GELU))
        args.steps = 3
        run(T(3), cfg)
        args.debug = True
        run(T(3), cfg)
        run(T(3), Config(options=Options(residual=False)))
        """,
    ),
    "timers_and_seeds": (
        7,
        """
        import random, time
        @contextlib.contextmanager
        def seeded(seed):
            state = torch.get_rng_state(), random.getstate(), np.random.get_state()
            torch.manual_seed(seed); random.seed(seed); np.random.seed(seed)
            try:
                yield
            finally:
                torch.set_rng_state(state[0]); random.setstate(state[1]); np.random.set_state(state[2])
        class Timer:
            def __init__(self): self.calls, self.total = 0, 0.0
            def __enter__(self):
                self.start = time.perf_counter()
                return self
            def __exit__(self, *exc):
                self.total += time.perf_counter() - self.start
                self.calls += 1
                return False
        timer = Timer()
        def f(x, seed):
            with timer:
                with seeded(seed):
                    noise = torch.randn(x.shape) * random.random() + np.random.rand()
                y = model(x + noise)
            return y, torch.rand(2), timer.calls
        ---
        [(run(batch(i)[0], i % 2), timer.__dict__.update(total=0.0, start=0.0)) for i in range(4)]
        """,
    ),
    "batches_from_a_generator": (
        4,
        """
        def minibatches(x, y, size, drop_last=False):
            order = torch.arange(len(x)).flip(0)
            for i in range(0, len(x), size):
                rows = order[i:i + size]
                if drop_last and len(rows) < size:
                    return
                yield x[rows], y[rows]
        def f(x, y, size, drop_last):
            seen, losses = 0, []
            for step, (a, b) in enumerate(minibatches(x, y, size, drop_last)):
                loss = F.cross_entropy(model(a), b)
                opt.zero_grad(); loss.backward(); opt.step()
                losses.append(loss.item() * len(a)); seen += len(a)
            return sum(losses) / seen
        ---
        [run(*batch(i), size, last) for i, (size, last) in enumerate([(2, False), (4, False), (4, True), (3, True)])]
        [list(model.parameters())]
        """,
    ),
    "exceptions_that_end_a_step": (
        4,
        """
        class SkipBatch(Exception):
            def __init__(self, why): super().__init__(why); self.why = why
        class StopTraining(Exception): pass
        skipped = []
        def step(x, y, limit):
            if x.size(0) < 2:
                raise SkipBatch("small")
            loss = F.cross_entropy(model(x), y)
            if not torch.isfinite(loss):
                raise SkipBatch("loss")
            opt.zero_grad(); loss.backward(); opt.step()
            if loss.item() < limit:
                raise StopTraining
            return loss.detach()
        def f(batches, limit):
            losses = []
            try:
                for x, y in batches:
                    try:
                        losses.append(step(x, y, limit))
                    except SkipBatch as skip:
                        skipped.append(skip.why)
            except StopTraining:
                return "stopped", losses
            return "ended", losses
        ---
        run([batch(0), batch(1)], 0.0)
        run([batch(0), tuple(t[:1] for t in batch(1)), batch(2)], 0.0)
        run([(batch(0)[0] * math.inf, batch(0)[1]), batch(1)], 0.0)
        run([batch(0), batch(1)], 9.0)
        [skipped, list(model.parameters())]
        """,
    ),
    "norm_penalties_by_name": (
        2,
        """
        def f(x, y, decay):
            loss = F.cross_entropy(model(x), y)
            reg = 0.0
            for name, p in model.named_parameters():
                if "bias" in name or p.ndim < 2:
                    continue
                reg = reg + p.pow(2).sum()
            if decay:
                loss = loss + decay * reg
            opt.zero_grad(); loss.backward(); opt.step()
            return float(loss), float(reg)
        ---
        [run(*batch(i), d) for i, d in enumerate((0.0, 0.01, 0.02, 0.02))]
        [list(model.parameters())]
        """,
    ),
    "plateau_scheduler": (
        3,
        """
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
        def f(x, y):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            sched.step(loss)
            return opt.param_groups[0]["lr"], sched.num_bad_epochs
        ---
        [run(*batch(i)) for i in range(5)]
        [list(model.parameters())]
        """,
    ),
    "gradients_of_several_tasks_projected": (
        1,
        """
        def f(x, y):
            out = model(x)
            losses = [F.cross_entropy(out, y), out.pow(2).mean()]
            grads = [torch.autograd.grad(l, list(model.parameters()), retain_graph=True) for l in losses]
            flat = [torch.cat([g.reshape(-1) for g in gs]) for gs in grads]
            dot = flat[0] @ flat[1]
            if dot < 0:
                flat[0] = flat[0] - dot / flat[1].pow(2).sum() * flat[1]
            total, at = flat[0] + flat[1], 0
            for p in model.parameters():
                p.grad = total[at:at + p.numel()].view_as(p).clone()
                at += p.numel()
            opt.step()
            return dot
        ---
        [run(*batch(i)) for i in range(4)]
        [list(model.parameters())]
        """,
    ),
}
