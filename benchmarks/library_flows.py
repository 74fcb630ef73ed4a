"""Subjects of libraries of densities, policies, losses, layers and generation
(benchmarks/libraries.py runs them).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.library_subject import Arguments, Subject, Subjects, sequence, tokens


class _Call(nn.Module):
    """A module whose forward is a function of another one."""

    def __init__(self, inner: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, *args: Any) -> Any:
        return self.function(self.inner, *args)


def _rows(*widths: int) -> Arguments:
    return lambda batch: tuple(torch.randn(batch, width) for width in widths)


def zuko() -> Subjects:
    flows = importlib.import_module("zuko.flows")

    def row(name: str, **settings: Any) -> Subject:
        def make() -> Any:
            return _Call(getattr(flows, name)(3, **settings), lambda f, x: -f().log_prob(x))

        return Subject(make, _rows(3))

    def conditional() -> Any:
        flow = flows.NSF(3, 2, transforms=2, hidden_features=(16,))
        return _Call(flow, lambda f, x, c: -f(c).log_prob(x))

    def drawn() -> Any:
        flow = flows.MAF(3, transforms=1, hidden_features=(8,))
        return lambda x: flow().rsample((x.shape[0],))

    layers = {"transforms": 2, "hidden_features": (16,)}
    found = {
        name: row(name, **layers)
        for name in ["NSF", "MAF", "NICE", "RealNVP", "SOSPF", "BPF", "NCSF"]
    }
    found |= {name: row(name, transforms=1) for name in ("GF", "NAF", "UNAF")}
    found["CNF"] = row("CNF", hidden_features=(8,))
    found["NSF conditional"] = Subject(conditional, _rows(3, 2))
    return found | {"rsample": Subject(drawn, _rows(3), False)}


def nflows() -> Subjects:
    kinds = importlib.import_module("nflows.transforms")
    base = importlib.import_module("nflows.flows.base")
    normal = importlib.import_module("nflows.distributions").StandardNormal

    def row(make: Callable[[], list[Any]]) -> Subject:
        def flow() -> Any:
            inner = base.Flow(kinds.CompositeTransform(make()), normal([4]))
            return _Call(inner, lambda f, x: -f.log_prob(x))

        return Subject(flow, _rows(4))

    spline = kinds.MaskedPiecewiseRationalQuadraticAutoregressiveTransform
    return {
        "affine": row(
            lambda: [kinds.ReversePermutation(4), kinds.MaskedAffineAutoregressiveTransform(4, 16)]
        ),
        "spline": row(
            lambda: [kinds.RandomPermutation(4), spline(4, 16, tails="linear", tail_bound=3.0)]
        ),
        "LU": row(lambda: [kinds.LULinear(4), kinds.BatchNorm(4), kinds.ActNorm(4)]),
        "SVD": row(lambda: [kinds.SVDLinear(4, 2), kinds.Sigmoid()]),
    }


def pyro() -> Subjects:
    library = importlib.import_module("pyro")
    densities = importlib.import_module("pyro.distributions")
    layers = importlib.import_module("pyro.nn")
    moves = importlib.import_module("pyro.distributions.transforms")

    def model(x: torch.Tensor) -> Any:
        prior = densities.Normal(torch.zeros(4), 1.0).to_event(1)
        z = library.sample("z", prior)
        with library.plate("data", x.shape[0]):
            return library.sample("x", densities.Normal(z, 1.0).to_event(1), obs=x)

    def inferred() -> Any:
        library.clear_param_store()
        guide = importlib.import_module("pyro.infer.autoguide").AutoNormal(model)
        loss = importlib.import_module("pyro.infer").Trace_ELBO().differentiable_loss
        return lambda x: loss(model, guide, x)

    def traced() -> Any:
        return lambda x: library.poutine.trace(model).get_trace(x).log_prob_sum()

    return {
        "PyroModule": Subject(lambda: layers.PyroModule[nn.Linear](4, 1), _rows(4)),
        "AutoRegressiveNN": Subject(lambda: layers.AutoRegressiveNN(4, [8]), _rows(4)),
        "affine_autoregressive": Subject(lambda: moves.affine_autoregressive(4, [8]), _rows(4)),
        "Spline": Subject(lambda: _Call(moves.Spline(4), lambda f, x: f(x)), _rows(4)),
        "Trace_ELBO": Subject(inferred, _rows(4), False),
        "trace": Subject(traced, _rows(4), False),
    }


def stable_baselines3() -> Subjects:
    spaces = importlib.import_module("gymnasium").spaces
    policies = importlib.import_module("stable_baselines3.common.policies")
    float32, rate = importlib.import_module("numpy").float32, lambda _: 1e-3
    seen, moved = spaces.Box(-1, 1, (4,), float32), spaces.Box(-1, 1, (2,), float32)
    chosen = spaces.Discrete(3)

    def policy(path: str, space: Any) -> Any:
        module, _, name = path.partition(".")
        kind = importlib.import_module(f"stable_baselines3.{module}.policies")
        return getattr(kind, name)(seen, space, rate)

    def judged(space: Any, **settings: Any) -> Callable[[], Any]:
        def make() -> Any:
            inner = policies.ActorCriticPolicy(seen, space, rate, **settings)
            return _Call(inner, lambda p, o, a: p.evaluate_actions(o, a))

        return make

    acted = lambda b: (torch.randn(b, 4), torch.randint(3, (b,)))  # noqa: E731
    return {
        "forward": Subject(lambda: policies.ActorCriticPolicy(seen, chosen, rate), _rows(4)),
        "evaluate": Subject(judged(chosen), acted),
        "evaluate moves": Subject(judged(moved), _rows(4, 2)),
        "evaluate gSDE": Subject(judged(moved, use_sde=True), _rows(4, 2)),
        "SAC": Subject(lambda: policy("sac.SACPolicy", moved), _rows(4)),
        "SAC actor": Subject(
            lambda: _Call(policy("sac.SACPolicy", moved), lambda p, o: p.actor.action_log_prob(o)),
            _rows(4),
        ),
        "TD3": Subject(lambda: policy("td3.TD3Policy", moved), _rows(4)),
    }


def pytorch_metric_learning() -> Subjects:
    losses = importlib.import_module("pytorch_metric_learning.losses")
    miner = importlib.import_module("pytorch_metric_learning.miners").MultiSimilarityMiner
    plain = "Contrastive TripletMargin MultiSimilarity NTXent SupCon Circle LiftedStructure"
    plain += " FastAP TupletMargin Margin Angular IntraPairVariance"
    learned = "ArcFace CosFace ProxyNCA ProxyAnchor SoftTriple NormalizedSoftmax SphereFace"

    def labelled(b: int) -> tuple[Any, ...]:
        return torch.randn(b * 4, 8), torch.arange(b * 4) % (2 * b)

    def row(name: str) -> Subject:
        def make() -> Any:
            loss = getattr(losses, f"{name}Loss")()
            return _Call(nn.Linear(8, 8), lambda m, x, y: loss(m(x), y))

        return Subject(make, labelled)

    def mined() -> Any:
        loss, chosen = losses.TripletMarginLoss(), miner()
        return _Call(nn.Linear(8, 8), lambda m, x, y: loss(m(x), y, chosen(m(x), y)))

    def weighted(name: str) -> Subject:
        kind = getattr(losses, f"{name}Loss")
        return Subject(lambda: kind(num_classes=8, embedding_size=8), labelled)

    found = {name: row(name) for name in plain.split()}
    found |= {name: weighted(name) for name in learned.split()}
    return found | {"mined": Subject(mined, labelled)}


def layers() -> Subjects:
    """Layers of mambapy, ncps, entmax, pytorch-crf and snntorch; absent ones are left out."""
    given: dict[str, tuple[Callable[[Any], Any], Arguments]] = {
        "mambapy.mamba": (
            lambda m: m.Mamba(m.MambaConfig(d_model=16, n_layers=2, d_state=4)),
            sequence(8, 16),
        ),
        "ncps.torch": (lambda m: m.CfC(8, 16), sequence(5, 8)),
        "entmax": (lambda m: _Call(nn.Linear(8, 8), lambda f, x: m.entmax15(f(x))), _rows(8)),
        "torchcrf": (
            lambda m: m.CRF(5, batch_first=True),
            lambda b: (torch.randn(b, 6, 5), torch.randint(5, (b, 6))),
        ),
        "snntorch": (_spiking, _rows(8)),
    }
    found: Subjects = {}
    for name, (make, arguments) in given.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found[name] = Subject(lambda make=make, module=module: make(module), arguments)  # type: ignore[misc]
    if not found:
        raise ImportError("none of the packages")
    return found


def _spiking(library: Any) -> Any:
    first = library.Leaky(beta=0.9, init_hidden=True)
    last = library.Leaky(beta=0.9, init_hidden=True, output=True)
    network = nn.Sequential(nn.Linear(8, 16), first, nn.Linear(16, 4), last)
    reset = importlib.import_module("snntorch.utils").reset

    def run(network: Any, x: torch.Tensor) -> Any:
        reset(network)
        return [network(x) for _ in range(3)]

    return _Call(network, run)


def generation() -> Subjects:
    """transformers' generate() by its settings, five tokens of a small llama."""
    library = importlib.import_module("transformers")
    greedy = {"do_sample": False}
    settings: dict[str, dict[str, Any]] = {
        "greedy": greedy,
        "ends": {**greedy, "eos_token_id": 7},
        "drawn": {"do_sample": True},
        "drawn from the likeliest": {"do_sample": True, "top_p": 0.8, "top_k": 20},
        "beams": {**greedy, "num_beams": 2},
        "static cache": {**greedy, "cache_implementation": "static"},
        "no cache": {**greedy, "use_cache": False},
    }

    def row(more: dict[str, Any]) -> Subject:
        def make() -> Any:
            small = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
            small |= {"num_attention_heads": 2, "intermediate_size": 64}
            model = library.LlamaForCausalLM(library.LlamaConfig(**small)).eval()
            model.generation_config.update(pad_token_id=0, eos_token_id=None)

            def run(ids: torch.Tensor) -> Any:
                mask = torch.ones_like(ids)
                return model.generate(ids, attention_mask=mask, max_new_tokens=5, **more)

            return run

        return Subject(make, tokens(6), False)

    return {name: row(more) for name, more in settings.items()}
