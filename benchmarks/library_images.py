"""Subjects of libraries for images (benchmarks/libraries.py runs them)."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.library_subject import Arguments, Subject, Subjects, images, made

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
_SEGMENTERS = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
_DETECTORS = """
    ssdlite320_mobilenet_v3_large retinanet_resnet50_fpn fcos_resnet50_fpn ssd300_vgg16
    fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_resnet50_fpn_v2 maskrcnn_resnet50_fpn
    keypointrcnn_resnet50_fpn
"""


def torchvision() -> Subjects:
    models = importlib.import_module("torchvision.models")
    found: Subjects = {}
    for text in _TORCHVISION.split():
        name, _, side = text.partition(":")

        def make(name: str = name) -> Any:
            more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
            return models.get_model(name, weights=None, num_classes=10, **more)

        found[name] = Subject(make, images(int(side or "96")))
    for name in _SEGMENTERS.split():

        def segmenter(name: str = name) -> Any:
            return models.get_model(name, weights=None, weights_backbone=None, num_classes=4)

        found[name] = Subject(segmenter, images(64))
    for name in ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v2_s", "swin3d_t"):
        frames, side = (16, 224) if name in ("mvit_v2_s", "s3d") else (4, 32)

        def video(name: str = name) -> Any:
            return models.get_model(name, weights=None, num_classes=4)

        found[name] = Subject(
            video,
            lambda batch, frames=frames, side=side: (torch.randn(batch, 3, frames, side, side),),  # type: ignore[misc]
        )
    found["raft_small"] = Subject(
        lambda: models.get_model("raft_small", weights=None),
        lambda batch: (torch.rand(batch, 3, 128, 128), torch.rand(batch, 3, 128, 128), 2),
    )
    return found | _operators()


def detection() -> Subjects:
    """torchvision's detectors, with boxes, masks and keypoints to learn."""
    models = importlib.import_module("torchvision.models")

    def learned(batch: int) -> tuple[Any, ...]:
        targets = []
        for place in range(batch):
            corners = torch.rand(2 + place, 4) * 24
            corners[:, 2:] += corners[:, :2] + 8
            points = torch.cat(
                [corners[:, None, :2].expand(-1, 17, 2), torch.ones(2 + place, 17, 1)], 2
            )
            masks = torch.rand(2 + place, 64, 64) > 0.5
            target = {"boxes": corners, "labels": torch.ones(2 + place, dtype=torch.int64)}
            targets.append({**target, "masks": masks.to(torch.uint8), "keypoints": points})
        return ([*torch.rand(batch, 3, 64, 64)], targets)

    def row(name: str) -> Subject:
        def make() -> Any:
            size = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 64}
            classes = 2 if name.startswith("keypoint") else 4
            settings = {"weights": None, "weights_backbone": None, "num_classes": classes}
            return models.get_model(name, **settings, **size)

        return Subject(make, learned)

    return {name: row(name) for name in _DETECTORS.split()}


def _operators() -> Subjects:
    ops = importlib.import_module("torchvision.ops")

    def boxes(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch + 6, 4).cumsum(1), torch.rand(batch + 5, 4).cumsum(1))

    def one(batch: int) -> tuple[Any, ...]:
        return boxes(batch)[:1]

    def scored(batch: int) -> tuple[Any, ...]:
        return (*one(batch), torch.rand(batch + 6))

    def regions(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch, 4, 16, 16), [*(torch.rand(batch, 3, 4) * 4).cumsum(2)], (2, 2))

    def pooled(batch: int) -> tuple[Any, ...]:
        levels = {"0": torch.rand(batch, 4, 16, 16), "1": torch.rand(batch, 4, 8, 8)}
        return (levels, [*(torch.rand(batch, 3, 4) * 8).cumsum(2)], [(32, 32)] * batch)

    def sampled(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch, 4, 8, 8), torch.rand(batch, 18, 6, 6), torch.rand(5, 4, 3, 3))

    rows: dict[str, Arguments] = {
        **dict.fromkeys(("box_iou", "generalized_box_iou", "distance_box_iou"), boxes),
        **dict.fromkeys(("complete_box_iou",), boxes),
        **dict.fromkeys(
            ("generalized_box_iou_loss", "complete_box_iou_loss"), lambda b: one(b) * 2
        ),
        "box_area": one,
        "nms": lambda batch: (*scored(batch), 0.3),
        "batched_nms": lambda batch: (*scored(batch), torch.randint(3, (batch + 6,)), 0.3),
        "remove_small_boxes": lambda batch: (*one(batch), 0.5),
        "clip_boxes_to_image": lambda batch: (*one(batch), (1, 2)),
        "box_convert": lambda batch: (*one(batch), "xyxy", "cxcywh"),
        "masks_to_boxes": lambda batch: (torch.rand(batch, 8, 8) > 0.5,),
        **dict.fromkeys(("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"), regions),
        "deform_conv2d": sampled,
        "sigmoid_focal_loss": lambda batch: (torch.randn(batch, 4), torch.rand(batch, 4)),
        "stochastic_depth": lambda batch: (torch.randn(batch, 4), 0.5, "row"),
        "drop_block2d": lambda batch: (torch.randn(batch, 4, 8, 8), 0.3, 3),
    }
    found = {n: Subject(lambda n=n: getattr(ops, n), row, False) for n, row in rows.items()}  # type: ignore[misc]
    classes: dict[str, tuple[tuple[Any, ...], Arguments]] = {
        "MultiScaleRoIAlign": ((["0", "1"], 3, 2), pooled),
        "DeformConv2d": ((4, 5, 3), lambda batch: sampled(batch)[:2]),
        "FeaturePyramidNetwork": (([4, 4], 8), lambda batch: pooled(batch)[:1]),
        "SqueezeExcitation": ((4, 2), images(8, 4)),
        "FrozenBatchNorm2d": ((4,), images(8, 4)),
        "Conv2dNormActivation": ((4, 8), images(8, 4)),
    }

    def row_of(name: str, settings: tuple[Any, ...], arguments: Arguments) -> Subject:
        return Subject(
            lambda: getattr(ops, name)(*settings),
            arguments,
            name != "FrozenBatchNorm2d" and name != "MultiScaleRoIAlign",
        )

    return found | {name: row_of(name, *row) for name, row in classes.items()}


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
    sides = {"PAN": 128}
    rows = {name: (settings, images(sides.get(name, 64))) for name in names.split()}
    return made("segmentation_models_pytorch", rows)


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
