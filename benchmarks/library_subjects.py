"""Small models of public libraries with random weights (benchmarks/libraries.py runs them).

LIBRARIES names for each library a function of its subjects, which imports it. A subject makes a
module or a function, and its arguments for a batch size.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Arguments = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Subject:
    make: Callable[[], Callable[..., Any]]
    arguments: Arguments
    trains: bool = True  # False: a function, or a module without parameters that get gradients


Subjects = dict[str, Subject]


def images(side: int, channels: int = 3) -> Arguments:
    return lambda batch: (torch.randn(batch, channels, side, side),)


def tokens(length: int, kinds: int = 100) -> Arguments:
    return lambda batch: (torch.randint(kinds, (batch, length)),)


def sequence(length: int, width: int) -> Arguments:
    return lambda batch: (torch.randn(batch, length, width),)


def made(package: str, rows: dict[str, tuple[dict[str, Any], Arguments]]) -> Subjects:
    """Subjects of classes: name in the package, arguments of the class, arguments of a call. What
    stands behind a space in a name tells rows of one class apart.
    """

    def row(name: str, settings: dict[str, Any], arguments: Arguments) -> Subject:
        path, _, last = f"{package}.{name.split()[0]}".rpartition(".")
        return Subject(lambda: getattr(importlib.import_module(path), last)(**settings), arguments)

    importlib.import_module(package)
    return {name: row(name, *row_of) for name, row_of in rows.items()}


# -- images ---------------------------------------------------------------------------------------
_TIMM = """
    test_byobnet test_convnext test_convnext2 test_efficientnet test_efficientnet_evos
    test_mambaout test_coatnet:160 test_maxvit:160 test_nfnet test_resnet test_vit test_vit2
    test_vit_relpos:160 bat_resnext26ts botnet26t_256:256 coat_lite_tiny:224 cs3darknet_focus_s
    davit_tiny:224 dla46_c dpn48b edgenext_xx_small efficientformer_l1:224
    efficientformerv2_s0:224 efficientvim_m1 efficientvit_b0 efficientvit_m0:224
    eva02_tiny_patch14_224:224 fastvit_t8:128 focalnet_tiny_srf:224 gcvit_xxtiny:224
    ghostnet_050 ghostnetv2_100 hardcorenas_a hgnetv2_b0 hrnet_w18_small inception_next_atto
    lcnet_050 levit_128s:224 poolformer_s12 mixer_s32_224:224 gmlp_ti16_224:224
    resmlp_12_224:224 mobilenetv3_small_050 mobilenetv4_conv_small mobilevit_xxs
    mobilevitv2_050 mvitv2_tiny:224 nest_tiny:224 pit_ti_224:224 pvt_v2_b0 regnetx_002
    regnety_002 repghostnet_050 repvit_m0_9 res2net50_26w_4s resnest14d resnetv2_18 rexnet_100
    selecsls42 seresnet18 legacy_seresnet18 shvit_s1:224 skresnet18 starnet_s1
    swiftformer_xs:224 swin_s3_tiny_224:224 swinv2_tiny_window8_256:256 tiny_vit_5m_224:224
    tnt_s_patch16_224:224 twins_svt_small:224 vgg11_bn visformer_tiny:224
    deit_tiny_distilled_patch16_224:224 vit_tiny_r_s16_p8_224:224 volo_d1_224:224 vovnet39a
    xcit_nano_12_p16_224:224 crossvit_tiny_240:240 convit_tiny:224 cait_xxs24_224:224
    densenet121 beit_base_patch16_224:96/2 convmixer_768_32:64 cpubone_nano csatv2:64 cspnext_tiny
    deepseek_vit_412m:56/1 deit3_small_patch16_224:96/2 fasternet_t0 gemma4_vit_167m:96/2
    halonet_h1:256 hiera_tiny_224:224 hieradet_small:224 iformer_t:224 inception_resnet_v2:128
    inception_v3:128 inception_v4:128 lambda_resnet26t:128 lcnetv2_small lowformer_b0
    mobilenetv5_300m_enc:128 naflexvit_base_patch16_gap:64/2 nasnetalarge:128 nextvit_small:64
    pnasnet5large:128 qwen3_vit_88m:64/2 rdnet_tiny:64 samvit_base_patch16_224:96/2
    sequencer2d_s:224 swin_tiny_patch4_window7_224:224 swinv2_cr_tiny_224:224 tresnet_m:64
    vitamin_small_224:224 legacy_xception xception41 mobileone_s0 repvgg_a0 nf_regnet_b0
    caformer_s18:64 convformer_s18:64 dla60_res2net resnetv2_50x1_bit:64 skresnext50_32x4d
    vit_small_plus_patch16_dinov3:64/2 vit_base_patch16_siglip_224:96/2 xcit_tiny_12_p8_224:64
"""


def timm() -> Subjects:
    """A small variant of every family, `name:side of its images/layers`."""
    library = importlib.import_module("timm")

    def row(name: str, side: int, layers: str) -> Subject:
        settings = {"img_size": side, "depth": int(layers)} if layers else {}
        return Subject(lambda: library.create_model(name, num_classes=10, **settings), images(side))

    found: Subjects = {}
    for text in _TIMM.split():
        name, _, size = text.partition(":")
        side, _, layers = size.partition("/")
        found[name] = row(name, int(side or "96"), layers)
    return found


_TORCHVISION = """
    alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3:299
    maxvit_t:224 mnasnet0_5 mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18
    shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t vgg11_bn vit_b_32:224
"""


def torchvision() -> Subjects:
    models = importlib.import_module("torchvision.models")
    ops = importlib.import_module("torchvision.ops")
    found: Subjects = {}
    for text in _TORCHVISION.split():
        name, _, side = text.partition(":")

        def make(name: str = name) -> Any:
            more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
            return models.get_model(name, weights=None, num_classes=10, **more)

        found[name] = Subject(make, images(int(side or "96")))
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):

        def segmenter(name: str = name) -> Any:
            return models.get_model(name, weights=None, weights_backbone=None, num_classes=4)

        found[name] = Subject(segmenter, images(64))
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):

        def video(name: str = name) -> Any:
            return models.get_model(name, weights=None, num_classes=4)

        found[name] = Subject(video, lambda batch: (torch.randn(batch, 3, 4, 32, 32),))
    for name in ("ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fcos_resnet50_fpn"):

        def detector(name: str = name) -> Any:
            size = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 64}
            settings = {"weights": None, "weights_backbone": None, "num_classes": 4, **size}
            return models.get_model(name, **settings)

        found[name] = Subject(detector, lambda batch: ([*torch.rand(batch, 3, 64, 64)],), False)

    def boxes(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch + 6, 4).cumsum(1), torch.rand(batch + 5, 4).cumsum(1))

    for name in ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"):
        found[name] = Subject(lambda name=name: getattr(ops, name), boxes, False)  # type: ignore[misc]
    found["nms"] = Subject(
        lambda: ops.nms, lambda b: (torch.rand(b + 6, 4).cumsum(1), torch.rand(b + 6), 0.3), False
    )
    return found


def transforms() -> Subjects:
    """torchvision's random transforms, which draw numbers from tensors and read them."""
    v2 = importlib.import_module("torchvision.transforms.v2")
    rows: dict[str, tuple[Any, ...]] = {
        "RandomResizedCrop": (8,), "RandomErasing": (0.9,), "RandomPhotometricDistort": (),
        "RandomRotation": (30,), "RandomAffine": (20, (0.1, 0.1), (0.8, 1.2), 5),
        "RandomPerspective": (0.5, 0.9), "ColorJitter": (0.3, 0.3, 0.3, 0.1), "RandomCrop": (12,),
        "RandomHorizontalFlip": (), "RandomGrayscale": (0.5,), "RandomInvert": (),
        "RandomAdjustSharpness": (2,), "GaussianBlur": (3,), "GaussianNoise": (),
        "ScaleJitter": ((16, 16),), "RandomZoomOut": (), "RandomChannelPermutation": (),
        "TenCrop": (8,), "Resize": (12,), "Grayscale": (3,),
    }  # fmt: skip

    def row(name: str, settings: tuple[Any, ...]) -> Subject:
        return Subject(lambda: getattr(v2, name)(*settings), colours, False)

    def colours(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch, 3, 16, 16),)

    return {name: row(name, settings) for name, settings in rows.items()}


def segmentation_models_pytorch() -> Subjects:
    settings = {"encoder_name": "resnet18", "encoder_weights": None, "classes": 2}
    names = (
        "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer"
    )
    return made(
        "segmentation_models_pytorch", {name: (settings, images(64)) for name in names.split()}
    )


def vit_pytorch() -> Subjects:
    vit = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "heads": 2}
    deep = {**vit, "depth": 2, "mlp_dim": 64}
    small: dict[str, Any] = {"num_classes": 5}
    cct = {"img_size": 32, "embedding_dim": 32, "n_conv_layers": 1, "kernel_size": 3, "stride": 2}
    cct |= {"padding": 1, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2.0, **small}
    rows: dict[str, tuple[dict[str, Any], Arguments]] = {
        "ViT": (deep, images(32)),
        "SimpleViT": (deep, images(32)),
        "simple_vit_with_register_tokens.SimpleViT": (deep, images(32)),
        "simple_flash_attn_vit.SimpleViT": (deep, images(32)),
        "vit_for_small_dataset.ViT": (deep, images(32)),
        "deepvit.DeepViT": (deep, images(32)),
        "parallel_vit.ViT": ({**deep, "num_parallel_branches": 2}, images(32)),
        "learnable_memory_vit.ViT": (deep, images(32)),
        "vit_with_patch_merger.ViT": ({**deep, "patch_merge_layer": 1}, images(32)),
        "cait.CaiT": ({**deep, "cls_depth": 1}, images(32)),
        "local_vit.LocalViT": (deep, images(32)),
        "cct.CCT": (cct, images(32)),
        "simple_vit_1d.SimpleViT": (
            {**{k: v for k, v in deep.items() if k != "image_size"}, "seq_len": 32, "channels": 3},
            lambda batch: (torch.randn(batch, 3, 32),),
        ),
    }
    return made("vit_pytorch", rows)


def open_clip() -> Subjects:
    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32}
    text = {"context_length": 12, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}

    def pair(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 3, 32, 32), torch.randint(1, 100, (batch, 12)))

    settings = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text}
    coca = {**settings, "multimodal_cfg": {**text, "mlp_ratio": 2}}
    coca["vision_cfg"] = {**vision, "attentional_pool": True, "attn_pooler_heads": 2}
    coca["text_cfg"] = {**text, "embed_cls": True, "output_tokens": True}
    rows = {"CLIP": (settings, pair), "CustomTextCLIP": (settings, pair), "CoCa": (coca, pair)}
    return made("open_clip", rows)


def monai() -> Subjects:
    volume = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    unet = {**volume, "channels": (4, 8, 16), "strides": (2, 2), "num_res_units": 1}
    dynunet = {
        **volume,
        "kernel_size": [3, 3, 3],
        "strides": [1, 2, 2],
        "upsample_kernel_size": [2, 2],
    }
    feature = {"feature_size": 12}
    rows = {
        "UNet": (unet, images(32, 1)),
        "AttentionUnet": ({k: v for k, v in unet.items() if k != "num_res_units"}, images(32, 1)),
        "BasicUNet": ({**volume, "features": (4, 4, 8, 8, 8, 4)}, images(32, 1)),
        "DynUNet": (dynunet, images(32, 1)),
        "SegResNet": ({**volume, "init_filters": 8}, images(32, 1)),
        "SwinUNETR": ({**volume, **feature, "depths": (1, 1, 1, 1)}, images(64, 1)),
        "DenseNet121": (volume, images(64, 1)),
        "HighResNet": (volume, images(32, 1)),
        "EfficientNetBN": (
            {"model_name": "efficientnet-b0", "pretrained": False, "num_classes": 2},
            images(64),
        ),
    }
    return made("monai.networks.nets", rows)


def kornia() -> Subjects:
    library = importlib.import_module("kornia")

    def rows(functions: str, arguments: Arguments) -> Subjects:
        def find(name: str) -> Any:
            found: Any = library
            for part in name.split("."):
                found = getattr(found, part)
            return found

        return {n: Subject(lambda n=n: find(n), arguments, False) for n in functions.split()}  # type: ignore[misc]

    one = (
        "color.rgb_to_lab color.rgb_to_hsv color.rgb_to_grayscale color.rgb_to_ycbcr filters.sobel"
    )
    one += " filters.laplacian enhance.equalize geometry.transform.hflip filters.spatial_gradient"
    colours = lambda batch: (torch.rand(batch, 3, 16, 16),)  # noqa: E731
    found = rows(one.replace("filters.laplacian", ""), colours)
    found |= rows("filters.median_blur filters.box_blur", lambda b: (*colours(b), (3, 3)))
    found |= rows("filters.gaussian_blur2d", lambda b: (*colours(b), (3, 3), (1.5, 1.5)))
    found |= rows("geometry.transform.rotate", lambda b: (*colours(b), torch.rand(b)))
    found |= rows("losses.ssim_loss", lambda b: (*colours(b), *colours(b), 5))
    found |= rows(
        "geometry.conversions.axis_angle_to_rotation_matrix", lambda b: (torch.rand(b, 3),)
    )
    return found


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


LIBRARIES: dict[str, Callable[[], Subjects]] = {
    function.__name__: function
    for function in (
        timm, torchvision, transforms, segmentation_models_pytorch, vit_pytorch, open_clip, monai,
        kornia, diffusers, x_transformers, lucidrains, peft, torch_geometric, torchmetrics,
        gpytorch, torchdiffeq, torchao, captum, tensordict, e3nn,
    )
}  # fmt: skip
