"""Functions of torch on sequences of unequal lengths, which are symbols: in Python."""

from __future__ import annotations

import torch


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """torch._C._nn.pad_sequence of sequences whose other sizes are equal."""
    longest = 0
    for sequence in sequences:
        longest = torch.sym_max(longest, sequence.size(0))
    rows = []
    for sequence in sequences:
        gap = longest - sequence.size(0)
        ends = (0, gap) if padding_side == "right" else (gap, 0)
        inner = (0, 0) * (sequence.dim() - 1)
        rows.append(torch.constant_pad_nd(sequence, (*inner, *ends), padding_value))
    return torch.stack(rows, 0 if batch_first else 1)


def tensor_split(x, places, dim=0):
    """torch.tensor_split at places that a tensor lists."""
    before = (slice(None),) * (dim % x.dim())
    ends = places.tolist()
    return tuple(
        x[(*before, slice(start, end))] for start, end in zip([0, *ends], [*ends, x.size(dim)])
    )


def pack_padded_sequence(x, lengths, batch_first):
    """torch._pack_padded_sequence: (rows, how many of each step)."""
    x = x.transpose(0, 1) if batch_first else x
    torch._check(
        bool((lengths[1:] <= lengths[:-1]).all()),
        lambda: (
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        ),
    )
    torch._check(
        bool(lengths[-1] > 0),
        lambda: (
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        ),
    )
    longest = lengths[0].item()
    torch._check(longest >= 1)
    torch._check(longest <= x.size(0))
    steps = torch.arange(x.size(0))[:, None] < lengths
    return x[steps.to(x.device)], steps.sum(1)[:longest]


def pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total, batch):
    """torch._pad_packed_sequence of `batch` sequences: (padded, lengths)."""
    steps = batch_sizes.size(0)
    taken = torch.arange(batch) < batch_sizes[:, None]
    places = (batch_sizes.cumsum(0) - batch_sizes)[:, None] + torch.arange(batch)
    lengths = taken.sum(0)
    places = torch.where(taken, places, 0).to(data.device)
    taken = taken.to(data.device).reshape(steps, batch, *[1] * (data.dim() - 1))
    padded = torch.where(taken, data[places], padding_value)
    if total > 0:
        gap = padded.new_full((total - steps, batch, *data.shape[1:]), padding_value)
        padded = torch.cat([padded, gap])
    return padded.transpose(0, 1) if batch_first else padded, lengths
