"""Steps of six models through dynamo.Graph: eager's losses, parameters and learning rates."""

from __future__ import annotations

import pytest
import torch

import dynamo
from benchmarks.static_graph import SUBJECTS, Train, eager_step

STEPS = 20


def losses_of(subject, dtype, nudge=None, **options):
    """Losses and tensors after training with a Graph, or eagerly where there are no options. nudge:
    the seed of changes of the first parameters, in the last bit.
    """
    model, optimizer, schedule = subject.world(dtype)
    if nudge is not None:
        generator = torch.Generator().manual_seed(nudge)
        with torch.no_grad():
            for one in model.parameters():
                one.copy_(torch.nextafter(one, one + torch.randn(one.shape, generator=generator)))
    graph = Train(model, optimizer, schedule, **options) if options else None
    losses = []
    for seed, (x, y) in enumerate(subject.batches(STEPS, dtype)):
        torch.manual_seed(seed)
        if graph is not None:
            losses.append(graph(x, y))
        else:
            losses.append(eager_step(model, optimizer, x, y))
            schedule.step()
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    tensors = {**model.state_dict(), **state_of(optimizer)}
    return graph, torch.stack(losses), tensors, rates


def state_of(optimizer):
    found = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, state in found.items() for name, value in state.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_steps(name):
    """In float64, where rounding stays small for any model: all that training leaves. In float32
    the losses, as near to those of float64 as eager's are, also from parameters that are
    another in the last bit: how far a model amplifies rounding is the model's own (RMSprop divides
    by gradients near 0).
    """
    subject = SUBJECTS[name]
    dynamo.reset()
    _, expected, left, rates = losses_of(subject, torch.float64)
    graph, found, ours, our_rates = losses_of(subject, torch.float64, backend="inductor")
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ours, left, rtol=1e-6, atol=1e-6)
    assert rates == our_rates and expected[-5:].mean() < expected[0]
    records = graph._graph.context.records
    assert len(records) <= 3  # without and with state, and rates that vary
    for captured in (captured for record in records for captured in record.graphs):
        assert not [note for note in captured.report["notes"] if "op by op" in note]
        assert not [note for note in captured.report["notes"] if "on aten, operator" in note]
    eagers = [losses_of(subject, torch.float32, nudge)[1] for nudge in (None, 0, 1)]
    rounding = (torch.stack(eagers).double() - expected).abs().amax(0).cummax(0).values
    _, found, *_ = losses_of(subject, torch.float32, backend="inductor")
    errors = (found.double() - expected).abs()
    assert (errors <= 4 * rounding + 1e-6).all(), (errors, rounding)
