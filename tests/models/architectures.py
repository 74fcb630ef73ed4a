"""Architectures of transformers with small configurations and random weights, and inputs for them.

A row of a table names the model class, what its configuration has beside the family's, and the
family's inputs and labels. `make(name)` gives the model in eval mode, inputs and labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.models.architecture_rows import (
    ABSENT,
    AUDIO,
    BACKBONE,
    BATCH,
    CAUSAL,
    DECODER,
    ENCODER,
    EXPERTS,
    FORECAST,
    GPT,
    LENGTH,
    MASKED,
    MIXTURES,
    PATCHES,
    PYRAMIDS,
    SEQ2SEQ,
    SEQUENCES,
    TOWERS,
    VISION,
    VOCABULARY,
    WAVES,
    WIDTH,
    Rows,
)

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Architecture:
    """How to make one model: `config` are arguments of the model's configuration class."""

    model: str
    config: dict[str, Any]
    inputs: Callable[[], Inputs]
    labels: Callable[[], Inputs]

    @property
    def trains(self) -> bool:
        """Whether a call with the labels gives a loss."""
        return self.labels is not untrained


def untrained() -> Inputs:
    """Labels of what does not compute a loss from tensors alone."""
    return {}


# -- inputs ---------------------------------------------------------------------------------------
def tokens() -> Inputs:
    return {"input_ids": torch.randint(5, VOCABULARY, (BATCH, LENGTH))}


def masked_tokens() -> Inputs:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[0, -3:] = 0
    return {**tokens(), "attention_mask": mask}


def uncached_tokens() -> Inputs:
    return {**masked_tokens(), "use_cache": False}


def two_sequences() -> Inputs:
    return {
        **masked_tokens(),
        "decoder_input_ids": torch.randint(5, VOCABULARY, (BATCH, 7)),
        "use_cache": False,
    }


def image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32)}


def video() -> Inputs:
    return {"pixel_values": torch.randn(1, 4, 3, 32, 32)}


def wave() -> Inputs:
    return {"input_values": torch.randn(BATCH, 800)}


def image_and_text() -> Inputs:
    return {**masked_tokens(), **image()}


# -- labels ---------------------------------------------------------------------------------------
def token_labels() -> Inputs:
    return {"labels": torch.randint(5, VOCABULARY, (BATCH, LENGTH))}


def decoder_labels() -> Inputs:
    return {"labels": torch.randint(5, VOCABULARY, (BATCH, 7))}


def class_labels() -> Inputs:
    return {"labels": torch.randint(2, (BATCH,))}


def pair_loss() -> Inputs:
    return {"return_loss": True}


def no_labels() -> Inputs:
    return {}


# -- inputs of single architectures ---------------------------------------------------------------
def spectrogram() -> Inputs:
    return {
        "input_features": torch.randn(BATCH, 16, 32),
        "decoder_input_ids": torch.randint(5, VOCABULARY, (BATCH, 7)),
        "use_cache": False,
    }


def frames() -> Inputs:
    return {**spectrogram(), "input_features": torch.randn(BATCH, 32, 16)}


def mel_bins() -> Inputs:
    return {"input_values": torch.randn(BATCH, 32, 16)}


def characters() -> Inputs:
    return {"input_ids": torch.randint(5, VOCABULARY, (BATCH, 32))}


def series() -> Inputs:
    return {"past_values": torch.randn(BATCH, 16, 2)}


def future() -> Inputs:
    return {"future_values": torch.randn(BATCH, 4, 2)}


def timed_series() -> Inputs:
    return {
        "past_values": torch.randn(BATCH, 14),
        "past_time_features": torch.randn(BATCH, 14, 1),
        "past_observed_mask": torch.ones(BATCH, 14),
        "future_values": torch.randn(BATCH, 4),
        "future_time_features": torch.randn(BATCH, 4, 1),
        "use_cache": False,
    }


def trajectory() -> Inputs:
    return {
        "states": torch.randn(BATCH, 5, 6),
        "actions": torch.randn(BATCH, 5, 3),
        "rewards": torch.randn(BATCH, 5),
        "returns_to_go": torch.randn(BATCH, 5, 1),
        "timesteps": torch.arange(5).expand(BATCH, 5),
        "attention_mask": torch.ones(BATCH, 5),
    }


def tubes() -> Inputs:
    return {**video(), "bool_masked_pos": (torch.arange(32) % 2 == 0).unsqueeze(0)}


def big_image() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 64, 64)}


def depth_labels() -> Inputs:
    return {"labels": torch.randint(2, (BATCH, 32, 32))}


OTHERS: dict[str, Architecture] = {
    "audio_spectrogram_transformer": Architecture(
        "ASTForAudioClassification",
        {**VISION, "max_length": 32, "num_mel_bins": 16, "patch_size": 8},
        mel_bins,
        class_labels,
    ),
    "autoformer": Architecture(
        "AutoformerForPrediction",
        {**FORECAST, "label_length": 3, "moving_average": 5},
        timed_series,
        no_labels,
    ),
    "canine": Architecture(
        "CanineForSequenceClassification",
        {**ENCODER, "local_transformer_stride": 8, "num_hash_buckets": 64},
        characters,
        class_labels,
    ),
    "decision_transformer": Architecture(
        "DecisionTransformerModel",
        {
            "state_dim": 6,
            "act_dim": 3,
            "hidden_size": WIDTH,
            "n_layer": 2,
            "n_head": 4,
            "max_ep_len": 16,
        },
        trajectory,
        untrained,
    ),
    "detr": Architecture(
        "DetrForObjectDetection",
        {**SEQ2SEQ, "backbone_config": BACKBONE, "num_queries": 5},
        big_image,
        untrained,
    ),
    "dpt": Architecture(
        "DPTForSemanticSegmentation",
        {
            **VISION,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
        },
        image,
        depth_labels,
    ),
    "git": Architecture(
        "GitForCausalLM",
        {**ENCODER, "vision_config": VISION},
        lambda: {**image_and_text(), "use_cache": False},
        token_labels,
    ),
    "imagegpt": Architecture(
        "ImageGPTForCausalImageModeling", {**ENCODER, **GPT}, uncached_tokens, token_labels
    ),
    "informer": Architecture(
        "InformerForPrediction", {**FORECAST, "distil": False}, timed_series, no_labels
    ),
    "levit": Architecture(
        "LevitForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        big_image,
        class_labels,
    ),
    "mobilevitv2": Architecture(
        "MobileViTV2ForImageClassification",
        {"width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1], "patch_size": 2, "image_size": 64},
        big_image,
        class_labels,
    ),
    "mgp_str": Architecture(
        "MgpstrForSceneTextRecognition",
        {
            **VISION,
            "image_size": [32, 32],
            "patch_size": 8,
            "num_bpe_labels": 20,
            "num_wordpiece_labels": 20,
        },
        image,
        untrained,
    ),
    "patchtsmixer": Architecture(
        "PatchTSMixerForPrediction",
        {
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "num_input_channels": 2,
            "num_layers": 2,
            "prediction_length": 4,
        },
        series,
        future,
    ),
    "patchtst": Architecture(
        "PatchTSTForPrediction",
        {
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "num_input_channels": 2,
            "num_hidden_layers": 2,
            "d_model": 16,
            "ffn_dim": 32,
            "prediction_length": 4,
        },
        series,
        future,
    ),
    "speech_to_text": Architecture(
        "Speech2TextForConditionalGeneration",
        {
            **SEQ2SEQ,
            "conv_channels": 16,
            "input_feat_per_channel": 16,
            "max_source_positions": 64,
            "max_target_positions": 64,
        },
        frames,
        decoder_labels,
    ),
    "time_series_transformer": Architecture(
        "TimeSeriesTransformerForPrediction", FORECAST, timed_series, no_labels
    ),
    "timesformer": Architecture(
        "TimesformerForVideoClassification",
        {**VISION, "num_frames": 4},
        video,
        lambda: {"labels": torch.randint(2, (1,))},
    ),
    "trocr": Architecture(
        "TrOCRForCausalLM",
        {**SEQ2SEQ, "cross_attention_hidden_size": WIDTH},
        uncached_tokens,
        token_labels,
    ),
    "videomae": Architecture(
        "VideoMAEForVideoClassification",
        {**VISION, "num_frames": 4, "tubelet_size": 2},
        video,
        lambda: {"labels": torch.randint(2, (1,))},
    ),
    "videomae_pretraining": Architecture(
        "VideoMAEForPreTraining",
        {
            **VISION,
            "num_frames": 4,
            "tubelet_size": 2,
            "decoder_num_attention_heads": 2,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_intermediate_size": 32,
        },
        tubes,
        no_labels,
    ),
    "vilt": Architecture(
        "ViltForQuestionAnswering",
        {**ENCODER, **VISION},
        image_and_text,
        lambda: {"labels": torch.rand(BATCH, 2)},
    ),
    "vit_mae": Architecture(
        "ViTMAEForPreTraining",
        {
            **VISION,
            "decoder_num_attention_heads": 2,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_intermediate_size": 32,
        },
        image,
        no_labels,
    ),
    "vivit": Architecture(
        "VivitForVideoClassification",
        {**VISION, "num_frames": 4, "tubelet_size": [2, 8, 8]},
        video,
        lambda: {"labels": torch.randint(2, (1,))},
    ),
    "whisper": Architecture(
        "WhisperForConditionalGeneration",
        {**SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 16},
        spectrogram,
        decoder_labels,
    ),
    "yolos": Architecture(
        "YolosForObjectDetection",
        {**VISION, "image_size": [32, 32], "num_detection_tokens": 4},
        image,
        untrained,
    ),
}


def _family(
    rows: Rows, config: dict[str, Any], inputs: Callable[[], Inputs], labels: Callable[[], Inputs]
) -> dict[str, Architecture]:
    return {
        name: Architecture(model, {**config, **more}, inputs, labels)
        for name, (model, more) in rows.items()
    }


ARCHITECTURES: dict[str, Architecture] = {
    **_family(MASKED, ENCODER, masked_tokens, token_labels),
    **_family(CAUSAL, DECODER, uncached_tokens, token_labels),
    **_family(MIXTURES, EXPERTS, uncached_tokens, token_labels),
    **_family(SEQUENCES, SEQ2SEQ, two_sequences, decoder_labels),
    **_family(PATCHES, VISION, image, class_labels),
    **_family(PYRAMIDS, {"image_size": 32}, image, class_labels),
    **_family(WAVES, AUDIO, wave, class_labels),
    **_family(TOWERS, {}, image_and_text, pair_loss),
    **OTHERS,
}


def make(name: str, seed: int = 0) -> tuple[torch.nn.Module, Inputs, Inputs]:
    """The model in eval mode, keyword inputs, and the further ones that make it return a loss; the
    same for the same seed.
    """
    import transformers

    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    config = {k: v for k, v in architecture.config.items() if v is not ABSENT}
    model_class = getattr(transformers, architecture.model)
    model = model_class(model_class.config_class(**config)).eval()
    return model, architecture.inputs(), architecture.labels()
