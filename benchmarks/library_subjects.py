"""Small models of public libraries with random weights (benchmarks/libraries.py runs them).

LIBRARIES names for each library a function of its subjects, which imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.library_flows import (
    generation,
    layers,
    nflows,
    pyro,
    pytorch_metric_learning,
    stable_baselines3,
    zuko,
)
from benchmarks.library_images import (
    detection,
    kornia,
    monai,
    open_clip,
    segmentation_models_pytorch,
    timm,
    torchvision,
    transforms,
    vit_pytorch,
)
from benchmarks.library_programs import averaged, checked, settings, torchrl
from benchmarks.library_sounds import torchaudio
from benchmarks.library_subject import Arguments, Subject, Subjects, images, made, sequence, tokens


# -- diffusion ------------------------------------------------------------------------------------
def diffusers() -> Subjects:
    blocks = {"block_out_channels": (16, 32), "norm_num_groups": 8}
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    image = {"sample_size": 16, "in_channels": 4, "out_channels": 4, "layers_per_block": 1}
    unet = {**blocks, **image, "down_block_types": down, "up_block_types": up}
    unet |= {"cross_attention_dim": 16, "attention_head_dim": 8}
    plain = {**blocks, **image, "down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
    plain |= {"up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8}
    vae = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    dit = {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2}

    def noisy(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 4, 16, 16), 10)

    def conditioned(batch: int) -> tuple[Any, ...]:
        return (*noisy(batch), torch.randn(batch, 6, 16))

    def steps(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 4, 16, 16), torch.full((batch,), 5))

    rows = {
        "UNet2DModel": (plain, noisy),
        "UNet2DConditionModel": (unet, conditioned),
        "AutoencoderKL": ({**blocks, **vae, "sample_size": 16}, images(16)),
        "VQModel": ({**blocks, **vae, "sample_size": 16, "num_vq_embeddings": 16}, images(16)),
        "DiTTransformer2DModel": (
            {
                **dit,
                "sample_size": 16,
                "patch_size": 2,
                "norm_num_groups": 2,
                "num_embeds_ada_norm": 10,
            },
            lambda b: (*steps(b), torch.zeros(b, dtype=torch.int64)),
        ),
    }
    found = made("diffusers", rows)  # type: ignore[arg-type]
    names = (
        "DDIM DDPM PNDM LMSDiscrete EulerDiscrete EulerAncestralDiscrete HeunDiscrete KDPM2Discrete"
    )
    names += " DPMSolverMultistep DPMSolverSinglestep DEISMultistep UniPCMultistep SASolver LCM"
    for name in names.split():
        found[f"{name}Scheduler"] = Subject(
            lambda name=name: _denoising(f"{name}Scheduler"),  # type: ignore[misc]
            lambda batch: (torch.randn(batch, 4, 8, 8),),
            False,
        )
    return found


def _denoising(name: str) -> Callable[..., Any]:
    """Three steps of a scheduler with a linear model."""
    scheduler = getattr(importlib.import_module("diffusers"), name)

    def denoise(sample: torch.Tensor) -> torch.Tensor:
        schedule = scheduler(num_train_timesteps=100)
        schedule.set_timesteps(5)
        for t in schedule.timesteps[:3]:
            noise = schedule.scale_model_input(sample, t) * 0.5
            sample = schedule.step(noise, t, sample).prev_sample
        return sample

    return denoise


# -- sequences ------------------------------------------------------------------------------------
def x_transformers() -> Subjects:
    library = importlib.import_module("x_transformers")
    features = """
        rotary_pos_emb alibi_pos_bias rel_pos_bias use_rmsnorm ff_glu ff_swish attn_qk_norm
        sandwich_norm macaron shift_tokens gate_residual attn_flash use_scalenorm ff_relu_squared
        attn_gate_values residual_attn
    """
    values: dict[str, Any] = {"attn_num_mem_kv": 2, "attn_kv_heads": 1, "attn_sparse_topk": 3}
    values |= {"num_memory_tokens": 2, "attn_dropout": 0.1}

    def row(**more: Any) -> Subject:
        wrapper = {k: v for k, v in more.items() if k == "num_memory_tokens"}
        layers = {k: v for k, v in more.items() if k not in wrapper}

        def make() -> Any:
            decoder = library.Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, **layers)
            settings = {"num_tokens": 100, "max_seq_len": 32, "attn_layers": decoder}
            return library.TransformerWrapper(**settings, **wrapper)

        return Subject(make, tokens(16))

    found = {name: row(**{name: True}) for name in features.split()}
    return {
        "plain": row(),
        **found,
        **{name: row(**{name: value}) for name, value in values.items()},
    }


def lucidrains() -> Subjects:
    """Packages of single architectures; those that are absent are left out."""
    performer = {"num_tokens": 100, "dim": 32, "depth": 1, "heads": 2, "dim_head": 16}
    vq = {"dim": 32, "codebook_size": 16}
    conformer = {"dim": 32, "dim_head": 16, "heads": 2, "conv_kernel_size": 5}
    perceiver = {"num_freq_bands": 4, "depth": 1, "max_freq": 10.0, "num_latents": 8}
    perceiver |= {"latent_dim": 32, "num_classes": 4, "latent_heads": 2, "latent_dim_head": 16}
    packages: dict[str, dict[str, tuple[dict[str, Any], Arguments]]] = {
        "performer_pytorch": {"PerformerLM": ({**performer, "max_seq_len": 32}, tokens(32))},
        "reformer_pytorch": {
            "ReformerLM": ({**performer, "max_seq_len": 32, "bucket_size": 8}, tokens(32))
        },
        "denoising_diffusion_pytorch": {
            "Unet": (
                {"dim": 16, "dim_mults": (1, 2), "flash_attn": False},
                lambda b: (torch.randn(b, 3, 16, 16), torch.arange(b)),
            )
        },
        "vector_quantize_pytorch": {
            "VectorQuantize": (vq, sequence(6, 32)),
            "ResidualVQ": ({**vq, "num_quantizers": 2}, sequence(6, 32)),
            "FSQ": ({"levels": [8, 5, 5]}, sequence(6, 3)),
            "LFQ": ({"dim": 4, "codebook_size": 16}, sequence(6, 4)),
        },
        "conformer": {"ConformerBlock": (conformer, sequence(12, 32))},
        "perceiver_pytorch": {"Perceiver": (perceiver, lambda b: (torch.randn(b, 8, 8, 3),))},
        "local_attention": {
            "LocalTransformer": (
                {**performer, "max_seq_len": 32, "local_attn_window_size": 8, "causal": True},
                tokens(32),
            )
        },
    }
    found: Subjects = {}
    for package, rows in packages.items():
        try:
            found |= {f"{package}.{name}": row for name, row in made(package, rows).items()}
        except ImportError:
            continue
    if not found:
        raise ImportError("none of the packages")
    return found


def peft() -> Subjects:
    library = importlib.import_module("peft")
    transformers = importlib.import_module("transformers")
    names = (
        "LoraConfig IA3Config VeraConfig LoHaConfig LoKrConfig AdaLoraConfig OFTConfig BOFTConfig"
    )
    names += " FourierFTConfig HRAConfig LNTuningConfig PrefixTuningConfig PromptTuningConfig"

    def row(name: str) -> Subject:
        def make() -> Any:
            small = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
            small |= {"num_attention_heads": 2, "intermediate_size": 64, "use_cache": False}
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small))
            more: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}
            if name == "IA3Config":
                more["feedforward_modules"] = []
            elif name in ("PrefixTuningConfig", "PromptTuningConfig"):
                more = {"num_virtual_tokens": 3}
            elif name == "LNTuningConfig":
                more = {"target_modules": ["input_layernorm"]}
            elif name == "AdaLoraConfig":
                more["total_step"] = 10
            elif name == "OFTConfig":
                more |= {"oft_block_size": 8, "r": 0}
            elif name == "FourierFTConfig":
                more["n_frequency"] = 16
            elif name in ("BOFTConfig", "HRAConfig"):
                more |= {"boft_block_size": 4} if name == "BOFTConfig" else {"r": 4}
            return library.get_peft_model(
                model, getattr(library, name)(task_type="CAUSAL_LM", **more)
            )

        return Subject(make, tokens(8))

    return {name.removesuffix("Config"): row(name) for name in names.split()}


# -- graphs, metrics, distributions ---------------------------------------------------------------
def torch_geometric() -> Subjects:
    layers = importlib.import_module("torch_geometric.nn")
    plain = "GCNConv SAGEConv GATConv GATv2Conv GraphConv TransformerConv TAGConv ARMAConv SGConv"
    plain += " LEConv FeaStConv GENConv ClusterGCNConv SuperGATConv MFConv ResGatedGraphConv EGConv"
    more = {"ChebConv": {"K": 3}, "EGConv": {"num_heads": 2, "num_bases": 2}}

    def graph(batch: int) -> tuple[Any, ...]:
        nodes = 8 + batch
        return (torch.randn(nodes, 8), torch.randint(nodes, (2, 20 + batch)))

    def row(name: str) -> Subject:
        return Subject(lambda: getattr(layers, name)(8, 16, **more.get(name, {})), graph)

    found = {name: row(name) for name in [*plain.split(), "ChebConv"]}
    for name in ("GCN", "GraphSAGE", "GIN", "GAT", "PNA"):
        settings = {"in_channels": 8, "hidden_channels": 16, "num_layers": 2, "out_channels": 4}
        if name == "PNA":
            settings |= {
                "aggregators": ["mean", "max"],
                "scalers": ["identity"],
                "deg": torch.ones(5),
            }  # type: ignore[dict-item]
        found[name] = Subject(
            lambda name=name, settings=settings: getattr(layers, name)(**settings),
            graph,  # type: ignore[misc]
        )
    return found


def torchmetrics() -> Subjects:
    functional = importlib.import_module("torchmetrics.functional")

    def classes(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch + 6, 4), torch.randint(4, (batch + 6,)), "multiclass")

    def values(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch + 6), torch.randn(batch + 6))

    counted = (
        "accuracy f1_score precision recall auroc average_precision confusion_matrix cohen_kappa"
    )
    measured = "mean_squared_error r2_score pearson_corrcoef explained_variance spearman_corrcoef"

    def row(name: str, more: dict[str, Any], arguments: Arguments) -> Subject:
        function = getattr(functional, name)
        return Subject(lambda: lambda *args: function(*args, **more), arguments, False)

    found = {name: row(name, {"num_classes": 4}, classes) for name in counted.split()}
    return found | {name: row(name, {}, values) for name in measured.split()}


def gpytorch() -> Subjects:
    kernels = importlib.import_module("gpytorch.kernels")

    def row(name: str) -> Subject:
        def make() -> Any:
            kernel = kernels.ScaleKernel(getattr(kernels, name)())
            return lambda x: kernel(x).to_dense()

        return Subject(make, lambda batch: (torch.randn(batch + 4, 3),), False)

    names = (
        "RBFKernel MaternKernel LinearKernel PeriodicKernel RQKernel CosineKernel PolynomialKernel"
    )
    return {n: row(n) for n in names.replace("PolynomialKernel", "").split()}


def torchdiffeq() -> Subjects:
    library = importlib.import_module("torchdiffeq")

    def row(method: str) -> Subject:
        def make() -> Any:
            field = torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)
            )
            times = torch.linspace(0.0, 1.0, 4)
            return lambda x: library.odeint(lambda t, y: field(y), x, times, method=method)

        return Subject(make, lambda batch: (torch.randn(batch, 4),), False)

    return {method: row(method) for method in ("euler", "midpoint", "rk4", "dopri5")}


# -- wrappers around models -----------------------------------------------------------------------
def perceptron() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))


def rows_of(width: int) -> Arguments:
    return lambda batch: (torch.randn(batch, width),)


def torchao() -> Subjects:
    library = importlib.import_module("torchao.quantization")
    aware = importlib.import_module("torchao.quantization.qat")
    groups = {"weight_dtype": torch.int4, "granularity": library.PerGroup(32)}
    settings: dict[str, dict[str, Any]] = {
        "Int8WeightOnlyConfig": {},
        "Int8DynamicActivationInt8WeightConfig": {},
        "Float8WeightOnlyConfig": {},
        "IntxWeightOnlyConfig": groups,
    }

    def row(config: Callable[[], Any], trains: bool) -> Subject:
        def make() -> Any:
            model = perceptron()
            library.quantize_(model, config())
            return model

        return Subject(make, rows_of(64), trains)

    def training() -> Any:
        weight = aware.IntxFakeQuantizeConfig(torch.int4, group_size=32)
        return aware.QATConfig(weight_config=weight, step="prepare")

    found = {
        name: row(lambda name=name, more=more: getattr(library, name)(**more), False)  # type: ignore[misc]
        for name, more in settings.items()
    }
    return {**found, "QATConfig": row(training, True)}


def captum() -> Subjects:
    library = importlib.import_module("captum.attr")

    def row(name: str, given: dict[str, Any]) -> Subject:
        def make() -> Any:
            method = getattr(library, name)(perceptron())
            return lambda x: method.attribute(x, target=1, **given)

        return Subject(make, rows_of(64), False)

    names = "Saliency InputXGradient Deconvolution GuidedBackprop FeatureAblation DeepLift"
    found = {name: row(name, {}) for name in names.split()}
    return {**found, "IntegratedGradients": row("IntegratedGradients", {"n_steps": 5})}


def tensordict() -> Subjects:
    nest = importlib.import_module("tensordict").TensorDict
    parts = importlib.import_module("tensordict.nn")

    def chain() -> Any:
        first = parts.TensorDictModule(perceptron(), ["x"], ["y"])
        module = parts.TensorDictSequential(first)

        class Chain(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = module

            def forward(self, x: torch.Tensor) -> Any:
                return self.module(nest({"x": x}, [x.shape[0]]))["y"]

        return Chain()

    def drawn() -> Any:
        normal = torch.distributions.Normal
        keys = {"in_keys": ["loc", "scale"], "out_keys": ["a"], "distribution_class": normal}
        module = parts.ProbabilisticTensorDictModule(**keys)
        return lambda x: module(nest({"loc": x, "scale": x.exp()}, [x.shape[0]]))["a"]

    def replaced() -> Any:
        model = perceptron()
        held = nest.from_module(model)

        def call(x: torch.Tensor) -> Any:
            with held.data.apply(lambda p: p * 0.5).to_module(model):
                return model(x)

        return call

    return {
        "TensorDictModule": Subject(chain, rows_of(64)),
        "ProbabilisticTensorDictModule": Subject(drawn, rows_of(64), False),
        "to_module": Subject(replaced, rows_of(64), False),
    }


def e3nn() -> Subjects:
    o3 = importlib.import_module("e3nn.o3")
    harmonics = {"irreps_out": [0, 1, 2], "normalize": True}
    first = o3.Irreps("4x0e+2x1o")
    return {
        "Linear": Subject(lambda: o3.Linear(first, first), lambda b: (torch.randn(b, 10),)),
        "SphericalHarmonics": Subject(
            lambda: o3.SphericalHarmonics(**harmonics), lambda b: (torch.randn(b, 3),), False
        ),
        "FullyConnectedTensorProduct": Subject(
            lambda: o3.FullyConnectedTensorProduct(first, first, first),
            lambda b: (torch.randn(b, 10), torch.randn(b, 10)),
        ),
    }


def esm() -> Subjects:
    library = importlib.import_module("esm.model.esm2")

    def make() -> Any:
        return library.ESM2(num_layers=2, embed_dim=32, attention_heads=2)

    return {"ESM2": Subject(make, lambda batch: (torch.randint(4, 24, (batch, 12)),))}


def rotary() -> Subjects:
    """Rotary embeddings, and einops as functions and layers."""
    library = importlib.import_module("rotary_embedding_torch")
    layers = importlib.import_module("einops.layers.torch")
    einops = importlib.import_module("einops")

    def embedded(method: str, **settings: Any) -> Subject:
        def make() -> Any:
            embedding = library.RotaryEmbedding(16, **settings)

            def rotate(q: torch.Tensor, k: torch.Tensor) -> Any:
                if method == "rotate_queries_and_keys":
                    return embedding.rotate_queries_and_keys(q, k)
                if method == "rotate_queries_with_cached_keys":
                    return embedding.rotate_queries_with_cached_keys(q[:, :, :3], k)
                return getattr(embedding, method)(q)

            return rotate

        return Subject(make, lambda b: (torch.randn(b, 2, 8, 16), torch.randn(b, 2, 8, 16)), False)

    def attention(x: torch.Tensor) -> torch.Tensor:
        q, k, v = einops.rearrange(x, "b n (three h d) -> three b h n d", three=3, h=2)
        weights = einops.einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        out, shapes = einops.pack([weights @ v, v], "b h * d")
        out, _ = einops.unpack(out, shapes, "b h * d")
        return einops.reduce(out, "b h n d -> b n (h d)", "mean") + einops.repeat(
            x.mean((1, 2)), "b -> b n d", n=out.shape[2], d=2 * out.shape[3]
        )

    def layered() -> Any:
        return torch.nn.Sequential(
            layers.Rearrange("b n (h d) -> b h n d", h=3),
            layers.EinMix("b h n d -> b h n e", weight_shape="h d e", h=3, d=8, e=4),
            layers.Reduce("b h n d -> b n d", "max"),
        )

    return {
        "plain": embedded("rotate_queries_or_keys"),
        "uncached": embedded("rotate_queries_or_keys", cache_if_possible=False),
        "learned": embedded("rotate_queries_or_keys", learned_freq=True),
        "cached keys": embedded("rotate_queries_with_cached_keys"),
        "xpos": embedded("rotate_queries_and_keys", use_xpos=True),
        "einops": Subject(lambda: attention, sequence(6, 24), False),
        "einops layers": Subject(layered, sequence(6, 24)),
    }


def timm_optimizers() -> Subjects:
    """A step each of timm's optimizers; results are the parameters."""
    library = importlib.import_module("timm.optim")
    skipped = ("adahessian", "lbfgs")

    def row(name: str) -> Subject:
        def make() -> Any:
            model = perceptron()
            optimizer = library.create_optimizer_v2(model, name, lr=1e-2, momentum=0.9)

            def step(x: torch.Tensor) -> Any:
                with torch.enable_grad():
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                optimizer.step()
                return [p.detach().clone() for p in model.parameters()]

            return step

        return Subject(make, rows_of(64), False)

    names = [n for n in library.list_optimizers() if not n.startswith(("bnb", "fused", "apex"))]
    return {name: row(name) for name in names if name not in skipped}


def metrics() -> Subjects:
    """torchmetrics' classes: what a call returns, and what they have gathered in all calls."""
    library = importlib.import_module("torchmetrics")

    def classes(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch + 6, 4).softmax(1), torch.randint(4, (batch + 6,)))

    def values(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch + 6), torch.randn(batch + 6))

    def row(names: str, settings: dict[str, Any], arguments: Arguments) -> Subject:
        def make() -> Any:
            made = [getattr(library, name)(**settings) for name in names.split("+")]
            metric = library.MetricCollection(made) if len(made) > 1 else made[0]
            return lambda *args: (metric(*args), metric.compute())

        return Subject(make, arguments, False)

    counted = "Accuracy F1Score AUROC ConfusionMatrix CohenKappa Accuracy+F1Score"
    measured = "MeanSquaredError R2Score PearsonCorrCoef SpearmanCorrCoef MeanAbsoluteError"
    several = {"task": "multiclass", "num_classes": 4}
    found = {name: row(name, several, classes) for name in counted.split()}
    found |= {name: row(name, {}, values) for name in measured.split()}
    return found | {"MeanMetric": row("MeanMetric", {}, lambda b: values(b)[:1])}


def lightning() -> Subjects:
    library = importlib.import_module("lightning")

    def module() -> Any:
        class Small(library.LightningModule):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.save_hyperparameters()
                self.model = perceptron()

            def forward(self, x: torch.Tensor) -> Any:
                return self.model(x)

            def training_step(self, batch: torch.Tensor, index: int) -> Any:
                loss = self(batch).square().mean()
                self.log("loss", loss)
                return loss

        return Small()

    def stepped() -> Any:
        small = module()
        return lambda x: small.training_step(x, 0)

    def fabric() -> Any:
        small = module()
        held = library.Fabric(accelerator="cpu", devices=1)
        model, optimizer = held.setup(small, torch.optim.AdamW(small.parameters()))

        def step(x: torch.Tensor) -> Any:
            with torch.enable_grad():
                optimizer.zero_grad()
                loss = model(x).square().mean()
                held.backward(loss)
            optimizer.step()
            return loss, [p.detach().clone() for p in small.parameters()]

        return step

    return {
        "forward": Subject(module, rows_of(64)),
        "training_step": Subject(stepped, rows_of(64), False),
        "Fabric": Subject(fabric, rows_of(64), False),
    }


LIBRARIES: dict[str, Callable[[], Subjects]] = {
    function.__name__: function
    for function in (
        timm, torchvision, detection, transforms, segmentation_models_pytorch, vit_pytorch,
        open_clip, monai, kornia, diffusers, x_transformers, lucidrains, peft, torch_geometric,
        torchmetrics, gpytorch, torchdiffeq, torchao, captum, tensordict, e3nn, torchaudio, esm,
        rotary, timm_optimizers, metrics, lightning, settings, checked, averaged, torchrl,
        zuko, nflows, pyro, stable_baselines3, pytorch_metric_learning, layers, generation,
    )
}  # fmt: skip
