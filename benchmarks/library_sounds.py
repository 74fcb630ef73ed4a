"""Subjects of torchaudio (benchmarks/libraries.py runs them)."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.library_subject import Arguments, Subject, Subjects


def sounds(length: int) -> Arguments:
    return lambda batch: (torch.randn(batch, length) * 0.3,)


def torchaudio() -> Subjects:
    return _models() | _transforms() | _functions()


def _models() -> Subjects:
    models = importlib.import_module("torchaudio.models")

    def framed(frames: int, width: int) -> Arguments:
        return lambda b: (torch.randn(b, frames, width), torch.arange(frames, frames - b, -1))

    def wav2vec() -> Any:
        return models.wav2vec2_model(
            "layer_norm", [(16, 10, 5), (16, 3, 2), (16, 2, 2)], False, 32, 0.1, 16, 4, 2, 2,
            0.1, 64, 0.1, 0.1, False, 0.1, 8,
        )  # fmt: skip

    def transducer() -> Any:
        return models.rnnt.emformer_rnnt_model(
            input_dim=8, encoding_dim=16, time_reduction_stride=2, segment_length=4,
            right_context_length=2, transformer_input_dim=16, transformer_num_heads=2,
            transformer_ffn_dim=32, transformer_num_layers=1, transformer_dropout=0.1,
            transformer_activation="gelu", transformer_left_context_length=4,
            transformer_max_memory_size=0, transformer_weight_init_scale_strategy="depthwise",
            transformer_tanh_on_mem=True, num_symbols=12, symbol_embedding_dim=16,
            num_lstm_layers=1, lstm_hidden_dim=16, lstm_layer_norm=True,
            lstm_layer_norm_epsilon=1e-5, lstm_dropout=0.1,
        )  # fmt: skip

    def transduced(b: int) -> tuple[Any, ...]:
        lengths = torch.full((b,), 12)
        return (torch.randn(b, 12, 8), lengths, torch.randint(12, (b, 5)), torch.full((b,), 5))

    def emformed(b: int) -> tuple[Any, ...]:
        return (torch.randn(b, 10, 16), torch.full((b,), 8))

    rows: dict[str, tuple[Any, Arguments]] = {
        "Conformer": (lambda: models.Conformer(16, 2, 32, 2, 3), framed(12, 16)),
        "Wav2Vec2Model": (wav2vec, sounds(800)),
        "Wav2Vec2Model lengths": (
            wav2vec, lambda b: (*sounds(800)(b), torch.arange(800, 800 - 40 * b, -40)),
        ),
        "Emformer": (lambda: models.Emformer(16, 2, 32, 1, 4, right_context_length=2), emformed),
        "RNNT": (transducer, transduced),
        "ConvTasNet": (
            lambda: models.ConvTasNet(2, 8, 16, 3, 8, 16, 2, 1), lambda b: (torch.randn(b, 1, 400),)
        ),
        "DeepSpeech": (lambda: models.DeepSpeech(8, 16, 5), lambda b: (torch.randn(b, 1, 9, 8),)),
        "Wav2Letter": (
            lambda: models.Wav2Letter(5, "mfcc", 8), lambda b: (torch.randn(b, 8, 64),)
        ),
        "WaveRNN": (
            lambda: models.WaveRNN([2, 2], 4, 4, 1, 8, 8, 5, 8, 8, 8),
            lambda b: (torch.randn(b, 1, 20), torch.randn(b, 1, 8, 9)),
        ),
        "SquimObjective": (
            lambda: models.squim_objective_model(16, 8, 16, 4, 8, 1, "LSTM", 8), sounds(800)
        ),
    }  # fmt: skip
    return {name: Subject(make, arguments) for name, (make, arguments) in rows.items()}


def _transforms() -> Subjects:
    library = importlib.import_module("torchaudio.transforms")

    def spectra(batch: int) -> tuple[Any, ...]:
        return (torch.rand(batch, 33, 20),)

    def complex_spectra(batch: int) -> tuple[Any, ...]:
        return (torch.randn(batch, 33, 20, dtype=torch.complex64),)

    mel = {"n_fft": 64, "n_mels": 8}
    rows: dict[str, tuple[dict[str, Any], Arguments]] = {
        "Spectrogram": ({"n_fft": 64}, sounds(800)),
        "InverseSpectrogram": ({"n_fft": 64}, complex_spectra),
        "GriffinLim": ({"n_fft": 64, "n_iter": 3}, spectra),
        "MelSpectrogram": ({"sample_rate": 8000, **mel}, sounds(800)),
        "MFCC": ({"sample_rate": 8000, "n_mfcc": 6, "melkwargs": mel}, sounds(800)),
        "LFCC": ({"sample_rate": 8000, "n_lfcc": 6, "speckwargs": {"n_fft": 64}}, sounds(800)),
        "MelScale": ({"n_mels": 8, "n_stft": 33}, spectra),
        "InverseMelScale": ({"n_mels": 8, "n_stft": 33}, lambda b: (torch.rand(b, 8, 20),)),
        "AmplitudeToDB": ({"top_db": 80.0}, spectra),
        "Resample": ({"orig_freq": 16000, "new_freq": 8000}, sounds(800)),
        "TimeMasking": ({"time_mask_param": 5}, spectra),
        "FrequencyMasking": (
            {"freq_mask_param": 5, "iid_masks": True},
            lambda b: (torch.rand(b, 1, 33, 20),),
        ),
        "SpecAugment": (
            {"n_time_masks": 2, "time_mask_param": 5, "n_freq_masks": 2, "freq_mask_param": 5},
            spectra,
        ),
        "TimeStretch": ({"fixed_rate": 1.3, "n_freq": 33}, complex_spectra),
        "PitchShift": ({"sample_rate": 8000, "n_steps": 2, "n_fft": 64}, sounds(800)),
        "Fade": ({"fade_in_len": 20, "fade_out_len": 30}, sounds(800)),
        "Vol": ({"gain": 2.0}, sounds(800)),
        "MuLawEncoding": ({}, sounds(800)),
        "MuLawDecoding": ({}, lambda b: (torch.randint(256, (b, 40)),)),
        "ComputeDeltas": ({}, spectra),
        "SlidingWindowCmn": ({"cmn_window": 8}, spectra),
        "SpectralCentroid": ({"sample_rate": 8000, "n_fft": 64}, sounds(800)),
        "Loudness": ({"sample_rate": 8000}, lambda b: (torch.randn(b, 1, 8000),)),
        "Vad": ({"sample_rate": 1600}, lambda b: (torch.randn(b, 800),)),
        "Preemphasis": ({}, sounds(800)),
        "Deemphasis": ({}, sounds(800)),
        "Speed": ({"orig_freq": 800, "factor": 1.25}, sounds(800)),
        "SpeedPerturbation": ({"orig_freq": 800, "factors": [0.8, 1.25]}, sounds(800)),
    }

    def row(name: str, settings: dict[str, Any], arguments: Arguments) -> Subject:
        return Subject(lambda: getattr(library, name)(**settings), arguments, False)

    return {name: row(name, *rest) for name, rest in rows.items()}


def _functions() -> Subjects:
    library = importlib.import_module("torchaudio.functional")

    def filtered(batch: int) -> tuple[Any, ...]:
        return (*sounds(80)(batch), torch.tensor([1.0, 0.3, 0.1]), torch.tensor([0.4, 0.2, 0.1]))

    rows: dict[str, tuple[tuple[Any, ...], Arguments]] = {
        "lfilter": ((), filtered),
        "filtfilt": ((), filtered),
        "biquad": ((0.4, 0.2, 0.1, 1.0, 0.3, 0.1), sounds(80)),
        "lowpass_biquad": ((8000, 1000.0), sounds(80)),
        "equalizer_biquad": ((8000, 1000.0, 2.0), sounds(80)),
        "overdrive": ((), sounds(80)),
        "phaser": ((8000,), sounds(80)),
        "flanger": ((8000,), lambda b: (torch.rand(b, 1, 80),)),
        "dither": ((), sounds(80)),
        "gain": ((2.0,), sounds(80)),
        "contrast": ((), sounds(80)),
        "dcshift": ((0.1,), sounds(80)),
        "fftconvolve": ((), lambda b: (*sounds(80)(b), *sounds(9)(b))),
        "convolve": ((), lambda b: (*sounds(80)(b), *sounds(9)(b))),
        "add_noise": ((), lambda b: (*sounds(80)(b), *sounds(80)(b), torch.rand(b))),
        "detect_pitch_frequency": ((8000,), sounds(1600)),
        "edit_distance": ((), lambda b: ("kitten", "sitting")),
        "melscale_fbanks": ((33, 0.0, 4000.0, 8, 8000), lambda b: ()),
    }  # fmt: skip

    def row(name: str, more: tuple[Any, ...], arguments: Arguments) -> Subject:
        return Subject(lambda: lambda *args: getattr(library, name)(*args, *more), arguments, False)

    return {name: row(name, *rest) for name, rest in rows.items()}
