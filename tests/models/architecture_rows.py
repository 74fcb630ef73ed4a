"""Rows of small configurations of transformers: model class, and what its configuration has beside
the family's (tests/models/architectures.py makes the models).
"""

from __future__ import annotations

from typing import Any

VOCABULARY, LENGTH, BATCH, WIDTH = 120, 12, 2, 32
ABSENT = object()  # a value of the family's configuration that this one does not take

# -- configurations -------------------------------------------------------------------------------
ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {
    **DECODER,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
VISION: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
AUDIO: dict[str, Any] = {
    **ENCODER,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
}

# -- the architectures ----------------------------------------------------------------------------
Rows = dict[str, tuple[str, dict[str, Any]]]
_TWO = (1, 1)
_FOUR = (1, 1, 1, 1)

MASKED: Rows = {
    "albert": ("AlbertForMaskedLM", {"embedding_size": 16}),
    "bert": ("BertForMaskedLM", {}),
    "big_bird": ("BigBirdForMaskedLM", {"attention_type": "original_full"}),
    "camembert": ("CamembertForMaskedLM", {}),
    "convbert": ("ConvBertForMaskedLM", {"embedding_size": 16}),
    "data2vec_text": ("Data2VecTextForMaskedLM", {}),
    "deberta": ("DebertaForMaskedLM", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "distilbert": ("DistilBertForMaskedLM", {"dim": WIDTH, "n_heads": 4, "hidden_dim": 64}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 16}),
    "ernie": ("ErnieForMaskedLM", {}),
    "esm": ("EsmForMaskedLM", {"mask_token_id": 4, "position_embedding_type": "rotary"}),
    "eurobert": ("EuroBertForMaskedLM", {"head_dim": 8, "num_key_value_heads": 2}),
    "flaubert": ("FlaubertWithLMHeadModel", {"emb_dim": WIDTH, "n_layers": 2, "n_heads": 4}),
    "fnet": ("FNetForMaskedLM", {}),
    "funnel": (
        "FunnelForMaskedLM",
        {
            "d_model": WIDTH,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 64,
            "block_sizes": _TWO,
            "num_hidden_layers": ABSENT,
        },
    ),
    "ibert": ("IBertForMaskedLM", {}),
    "layoutlm": ("LayoutLMForMaskedLM", {}),
    "longformer": ("LongformerForMaskedLM", {"attention_window": 4}),
    "luke": ("LukeForMaskedLM", {"entity_vocab_size": 10, "entity_emb_size": 16}),
    "megatron_bert": ("MegatronBertForMaskedLM", {}),
    "mobilebert": (
        "MobileBertForMaskedLM",
        {"embedding_size": 32, "intra_bottleneck_size": 32, "hidden_size": 64},
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    ),
    "mpnet": ("MPNetForMaskedLM", {}),
    "mra": ("MraForMaskedLM", {}),
    "nystromformer": (
        "NystromformerForMaskedLM",
        {"num_landmarks": LENGTH, "segment_means_seq_len": LENGTH},
    ),
    "perceiver": (
        "PerceiverForMaskedLM",
        {
            "num_latents": 8,
            "d_latents": 32,
            "d_model": 32,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
            "qk_channels": 32,
            "v_channels": 32,
            "max_position_embeddings": LENGTH,
        },
    ),
    "reformer": (
        "ReformerForMaskedLM",
        {
            "attention_head_size": 8,
            "attn_layers": ["local", "lsh"],
            "axial_pos_embds": False,
            "feed_forward_size": 64,
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_buckets": 2,
            "hash_seed": 0,
            "hidden_dropout_prob": 0.0,  # its seeds are not those of torch.manual_seed
            "local_attention_probs_dropout_prob": 0.0,
        },
    ),
    "rembert": ("RemBertForMaskedLM", {"input_embedding_size": 16, "output_embedding_size": 16}),
    "roberta": ("RobertaForMaskedLM", {}),
    "roberta_prelayernorm": ("RobertaPreLayerNormForMaskedLM", {}),
    "roc_bert": (
        "RoCBertForMaskedLM",
        {
            "pronunciation_vocab_size": 130,
            "shape_vocab_size": 130,
            "pronunciation_embed_dim": 8,
            "shape_embed_dim": 8,
        },
    ),
    "roformer": ("RoFormerForMaskedLM", {}),
    "squeezebert": ("SqueezeBertForMaskedLM", {"embedding_size": WIDTH}),
    "xlm": ("XLMWithLMHeadModel", {"emb_dim": WIDTH, "n_layers": 2, "n_heads": 4}),
    "xlm_roberta": ("XLMRobertaForMaskedLM", {}),
    "xmod": ("XmodForMaskedLM", {"default_language": "en_XX"}),
    "yoso": ("YosoForMaskedLM", {}),
}

GPT = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
_SSM = {"state_size": 8, "time_step_rank": 4}
CAUSAL: Rows = {
    "arcee": ("ArceeForCausalLM", {}),
    "bamba": (
        "BambaForCausalLM",
        {
            "mamba_n_heads": 8,
            "mamba_d_state": 8,
            "mamba_chunk_size": 8,
            "attn_layer_indices": [1],
        },
    ),
    "biogpt": ("BioGptForCausalLM", {}),
    "bitnet": ("BitNetForCausalLM", {}),
    "bloom": ("BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    "codegen": ("CodeGenForCausalLM", GPT),
    "cohere": ("CohereForCausalLM", {}),
    "cohere2": ("Cohere2ForCausalLM", {"sliding_window": 4}),
    "ctrl": ("CTRLLMHeadModel", {**GPT, "dff": 64}),
    "diffllama": ("DiffLlamaForCausalLM", {}),
    "ernie4_5": ("Ernie4_5ForCausalLM", {}),
    "exaone4": ("Exaone4ForCausalLM", {"sliding_window": 4}),
    "falcon": ("FalconForCausalLM", {"head_dim": ABSENT}),
    "falcon_h1": (
        "FalconH1ForCausalLM",
        {"mamba_n_heads": 8, "mamba_d_ssm": 64, "mamba_d_state": 8, "mamba_chunk_size": 8},
    ),
    "falcon_mamba": ("FalconMambaForCausalLM", _SSM),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {"sliding_window": 4}),
    "gemma3": ("Gemma3ForCausalLM", {"sliding_window": 4}),
    "gemma3n": (
        "Gemma3nForCausalLM",
        {
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
            "laurel_rank": 4,
            "sliding_window": 4,
        },
    ),
    "glm": ("GlmForCausalLM", {}),
    "glm4": ("Glm4ForCausalLM", {}),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "gpt_neox_japanese": ("GPTNeoXJapaneseForCausalLM", {}),
    "gptj": ("GPTJForCausalLM", GPT),
    "granite": ("GraniteForCausalLM", {}),
    "helium": ("HeliumForCausalLM", {}),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", {}),
    "lfm2": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "llama": ("LlamaForCausalLM", {}),
    "mamba": ("MambaForCausalLM", _SSM),
    "mamba2": (
        "Mamba2ForCausalLM",
        {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 8},
    ),
    "mistral": ("MistralForCausalLM", {"sliding_window": 4}),
    "mpt": ("MptForCausalLM", {"d_model": WIDTH, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}),
    "nemotron": ("NemotronForCausalLM", {}),
    "olmo": ("OlmoForCausalLM", {}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "openai_gpt": ("OpenAIGPTLMHeadModel", GPT),
    "opt": ("OPTForCausalLM", {"ffn_dim": 64, "word_embed_proj_dim": 16}),
    "persimmon": ("PersimmonForCausalLM", {}),
    "phi": ("PhiForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        {"lru_width": WIDTH, "attention_window_size": 8, "num_hidden_layers": 3},
    ),
    "rwkv": ("RwkvForCausalLM", {}),
    "seed_oss": ("SeedOssForCausalLM", {}),
    "smollm3": ("SmolLM3ForCausalLM", {}),
    "stablelm": ("StableLmForCausalLM", {}),
    "starcoder2": ("Starcoder2ForCausalLM", {}),
    "xglm": (
        "XGLMForCausalLM",
        {"d_model": WIDTH, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4},
    ),
    "xlnet": (
        "XLNetLMHeadModel",
        {
            "d_model": WIDTH,
            "n_layer": 2,
            "n_head": 4,
            "d_inner": 64,
            "max_position_embeddings": ABSENT,
        },
    ),
    "xlstm": ("xLSTMForCausalLM", {"num_heads": 4, "num_blocks": 2, "chunk_size": 4}),
}

_LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
MIXTURES: Rows = {
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {**_LATENT, "num_key_value_heads": 4, "n_group": 1, "head_dim": ABSENT},
    ),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**_LATENT, "num_key_value_heads": 4}),
    "gpt_oss": ("GptOssForCausalLM", {"sliding_window": 4}),
    "granitemoe": ("GraniteMoeForCausalLM", {}),
    "jetmoe": ("JetMoeForCausalLM", {"kv_channels": 8}),
    "minimax": ("MiniMaxForCausalLM", {"block_size": 8}),
    "mixtral": ("MixtralForCausalLM", {}),
    "olmoe": ("OlmoeForCausalLM", {}),
    "phimoe": ("PhimoeForCausalLM", {}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {"shared_expert_intermediate_size": 32}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {}),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {
            "shared_expert_intermediate_size": 32,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
}

SEQUENCES: Rows = {
    "bart": ("BartForConditionalGeneration", {}),
    "bigbird_pegasus": (
        "BigBirdPegasusForConditionalGeneration",
        {"attention_type": "original_full"},
    ),
    "blenderbot": ("BlenderbotForConditionalGeneration", {}),
    "blenderbot_small": ("BlenderbotSmallForConditionalGeneration", {}),
    "fsmt": (
        "FSMTForConditionalGeneration",
        {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY},
    ),
    "led": (
        "LEDForConditionalGeneration",
        {
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    "longt5": ("LongT5ForConditionalGeneration", {**T5, "local_radius": 4}),
    "m2m_100": ("M2M100ForConditionalGeneration", {}),
    "marian": ("MarianMTModel", {}),
    "mbart": ("MBartForConditionalGeneration", {}),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "mvp": ("MvpForConditionalGeneration", {}),
    "pegasus": ("PegasusForConditionalGeneration", {}),
    "pegasus_x": (
        "PegasusXForConditionalGeneration",
        {"num_global_tokens": 2, "block_size": 4},
    ),
    "plbart": ("PLBartForConditionalGeneration", {}),
    "switch_transformers": (
        "SwitchTransformersForConditionalGeneration",
        {
            **T5,
            "num_decoder_layers": 2,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
        },
    ),
    "t5": ("T5ForConditionalGeneration", T5),
    "umt5": ("UMT5ForConditionalGeneration", T5),
}

_STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": list(_FOUR)}
_WINDOWS = {
    "embed_dim": 8,
    "depths": [1, 2],
    "num_heads": [2, 2],
    "window_size": 4,
    "patch_size": 2,
}
_PYRAMID = {**_STAGES, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}
PATCHES: Rows = {
    "beit": ("BeitForImageClassification", {"use_relative_position_bias": True}),
    "data2vec_vision": ("Data2VecVisionForImageClassification", {}),
    "deit": ("DeiTForImageClassification", {}),
    "dinov2": ("Dinov2ForImageClassification", {"mlp_ratio": 2}),
    "dinov2_with_registers": ("Dinov2WithRegistersForImageClassification", {"mlp_ratio": 2}),
    "ijepa": ("IJepaForImageClassification", {}),
    "vit": ("ViTForImageClassification", {}),
    "vit_msn": ("ViTMSNForImageClassification", {}),
}

PYRAMIDS: Rows = {
    "bit": (
        "BitForImageClassification",
        {**_STAGES, "embedding_size": 8, "num_groups": 2, "layer_type": "preactivation"},
    ),
    "convnext": ("ConvNextForImageClassification", _STAGES),
    "convnextv2": ("ConvNextV2ForImageClassification", _STAGES),
    "cvt": (
        "CvtForImageClassification",
        {"embed_dim": [8, 16, 16], "num_heads": [1, 2, 2], "depth": [1, 2, 4]},
    ),
    "donut_swin": ("DonutSwinForImageClassification", _WINDOWS),
    "efficientnet": (
        "EfficientNetForImageClassification",
        {
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "in_channels": [32, 8, 16],
            "out_channels": [8, 16, 16],
            "kernel_sizes": [3, 3, 5],
            "strides": [1, 2, 2],
            "num_block_repeats": [1, 1, 2],
            "expand_ratios": [1, 6, 6],
            "hidden_dim": 1280,
        },
    ),
    "focalnet": (
        "FocalNetForImageClassification",
        {
            "embed_dim": 8,
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "patch_size": 4,
        },
    ),
    "hiera": (
        "HieraForImageClassification",
        {
            "embed_dim": 8,
            "image_size": [32, 32],
            "patch_size": [7, 7],
            "depths": [1, 1],
            "num_heads": [1, 2],
            "num_query_pool": 1,
            "masked_unit_size": [4, 4],
            "masked_unit_attention": [True, False],
        },
    ),
    "mobilenet_v1": ("MobileNetV1ForImageClassification", {"depth_multiplier": 0.25}),
    "mobilenet_v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.25}),
    "mobilevit": (
        "MobileViTForImageClassification",
        {
            "hidden_sizes": [8, 16, 16],
            "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
            "patch_size": 2,
        },
    ),
    "poolformer": ("PoolFormerForImageClassification", _STAGES),
    "pvt": ("PvtForImageClassification", _PYRAMID),
    "pvt_v2": ("PvtV2ForImageClassification", _PYRAMID),
    "regnet": ("RegNetForImageClassification", {**_STAGES, "groups_width": 8, "embedding_size": 8}),
    "resnet": ("ResNetForImageClassification", {**_STAGES, "embedding_size": 8}),
    "segformer": ("SegformerForImageClassification", _PYRAMID),
    "swiftformer": (
        "SwiftFormerForImageClassification",
        {"depths": list(_FOUR), "embed_dims": [8, 16, 16, 32], "mlp_ratio": 2},
    ),
    "swin": ("SwinForImageClassification", _WINDOWS),
    "swinv2": ("Swinv2ForImageClassification", _WINDOWS),
}

WAVES: Rows = {
    "data2vec_audio": ("Data2VecAudioForSequenceClassification", {"conv_pos_kernel_size": 3}),
    "hubert": ("HubertForSequenceClassification", {}),
    "sew": ("SEWForSequenceClassification", {"squeeze_factor": 2}),
    "unispeech": ("UniSpeechForSequenceClassification", {}),
    "unispeech_sat": ("UniSpeechSatForSequenceClassification", {}),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", {}),
    "wav2vec2_conformer": (
        "Wav2Vec2ConformerForSequenceClassification",
        {"conv_depthwise_kernel_size": 3},
    ),
    "wavlm": ("WavLMForSequenceClassification", {"num_buckets": 8, "max_bucket_distance": 16}),
}

_TOWERS = {
    "text_config": {**ENCODER, "projection_dim": 16},
    "vision_config": {**VISION, "projection_dim": 16},
    "projection_dim": 16,
}
TOWERS: Rows = {
    "align": (
        "AlignModel",
        {
            "text_config": ENCODER,
            "vision_config": PYRAMIDS["efficientnet"][1],
            "projection_dim": 16,
        },
    ),
    "altclip": (
        "AltCLIPModel",
        {**_TOWERS, "text_config": {**ENCODER, "project_dim": 16}},
    ),
    "blip": ("BlipModel", _TOWERS),
    "chinese_clip": ("ChineseCLIPModel", _TOWERS),
    "clip": ("CLIPModel", _TOWERS),
    "siglip": ("SiglipModel", _TOWERS),
}

BACKBONE = {
    "model_type": "resnet",
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "embedding_size": 8,
    "out_features": ["stage2"],
}
FORECAST = {
    "prediction_length": 4,
    "context_length": 7,
    "lags_sequence": [1, 2, 7],
    "num_time_features": 1,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
