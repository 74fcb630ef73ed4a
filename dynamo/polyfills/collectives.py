"""Collectives that write their tensors, as functional operators and copies; each returns None, as
the original does unless it is asynchronous.
"""

from __future__ import annotations

from torch.distributed import _functional_collectives as functional


def all_reduce(tensor, op, group=None):
    functional.all_reduce_inplace(tensor, op, group)


def all_gather(tensor_list, tensor, group=None):
    functional.all_gather_inplace(tensor_list, tensor, group)


def all_gather_into_tensor(output_tensor, input_tensor, group=None):
    functional.all_gather_tensor_inplace(output_tensor, input_tensor, group)


def all_gather_single(output_tensor, input_tensor, group=None):
    functional.all_gather_tensor_inplace(output_tensor, input_tensor, group)


def reduce_scatter_tensor(output, input, op, group=None):
    functional.reduce_scatter_tensor_inplace(output, input, op, group)


def reduce_scatter_single(output, input, op, group=None):
    functional.reduce_scatter_tensor_inplace(output, input, op, group)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    functional.all_to_all_inplace(output, input, output_split_sizes, input_split_sizes, group)
