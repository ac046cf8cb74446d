"""Pipelines that stash weights, for real: the same weights as one process that applies the same delays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_networks import switched
from tiny_networks import UNTIED, profile_of
from torch import Tensor, nn
from training import made, script_of, sharded

from simulator.plan import Plan, Sharding, Synchronisation
from traces.runs.executor.execute import random_batch
from traces.runs.executor.run_setup import Script

FOUR = switched([1.0] * 4)
LEARNING_RATE = 0.3


def staged(stages: list[tuple[int, ...]], minibatches: int, schedule: str, samples: int = 2) -> Plan:
    """Runs of layers on the devices of each stage, split by sample inside it."""
    layers = profile_of(UNTIED, samples * minibatches).layers
    homes = [stages[position * len(stages) // len(layers)] for position in range(len(layers))]
    return Plan(
        model="tiny",
        batch_size=samples * minibatches,
        microbatches=minibatches,
        placements={
            layer.name: Sharding(degrees=(len(devices), 1, 1, 1), devices=devices)
            for layer, devices in zip(layers, homes, strict=True)
        },
        synchronisation=Synchronisation(bucket_bytes=500),
        schedule=schedule,
    )


def tensor_parallel() -> Plan:
    """Two stages of two devices each, tensor parallel inside."""
    plan = made("megatron", UNTIED, FOUR, batch_size=8, tensor=2, pipeline=2, microbatches=4)
    return replace(plan, schedule="pipedream")


PLANS: dict[str, tuple[Plan, int]] = {
    "one stage": (staged([(0,)], 3, "pipedream"), 3),
    "four stages": (staged([(0,), (1,), (2,), (3,)], 6, "pipedream"), 6),
    "three replicas and one": (staged([(0, 1, 2), (3,)], 5, "pipedream", samples=3), 5),
    "fewer mini-batches than stages": (staged([(0,), (1,), (2,), (3,)], 2, "pipedream"), 2),
    "tensor parallel stages": (tensor_parallel(), 4),
    "recomputed": (replace(staged([(0,), (1,)], 4, "pipedream"), recomputed=(("embedding", "positions", "norm1"),)), 4),
    "2bw": (staged([(0,), (1,)], 8, "pipedream-2bw"), 4),
    "2bw, replicas": (staged([(0, 1), (2, 3)], 6, "pipedream-2bw"), 3),
    "2bw, three stages": (staged([(0,), (1,), (2,)], 12, "pipedream-2bw", samples=1), 4),
}


def delayed(script: Script, minibatches: int, steps: int) -> tuple[list[float], dict[str, Tensor]]:
    """Training in one process that takes the gradient of mini-batch b, for a layer of a stage with d versions of its
    weights, at those after update b - d of the step; losses of the steps, and the weights in the end."""
    torch.manual_seed(script.seed)
    model = script.network.build().double()
    newest = {name: value.detach() for name, value in model.named_parameters()}
    momentum = {name: torch.zeros_like(value) for name, value in newest.items()}
    versions = _versions(script, minibatches)
    data, targets = random_batch(script)
    losses = []
    for _ in range(steps):
        history, loss = [newest], 0.0
        for b, (part, wanted) in enumerate(zip(data.chunk(minibatches), targets.chunk(minibatches), strict=True)):
            used = {name: history[max(0, b + 1 - versions[name])][name].clone().requires_grad_() for name in newest}
            scores = torch.func.functional_call(model, used, (part,)).flatten(0, -2)
            share = nn.functional.cross_entropy(scores, wanted.flatten(), reduction="sum") / targets.numel()
            gradients = dict(zip(used, torch.autograd.grad(share, list(used.values())), strict=True))
            momentum = {name: script.momentum * momentum[name] + gradients[name] for name in newest}
            newest = {name: value - script.learning_rate * momentum[name] for name, value in newest.items()}
            history.append(newest)
            loss += float(share.detach())
        losses.append(loss)
    return losses, newest


def _versions(script: Script, minibatches: int) -> dict[str, int]:
    """By parameter, how many versions its stage has: one for each stage from there to the last, or two."""
    placements = script.plan.placements
    stages = list(dict.fromkeys(placements[layer.name].device_set for layer in script.profile.layers))
    double = script.plan.schedule == "pipedream-2bw"
    return {
        f"{name}.{parameter}": 2 if double else len(stages) - stages.index(placements[name].device_set)
        for name, module in script.network.build().named_children()
        for parameter, _ in module.named_parameters()
    }


@pytest.mark.parametrize("name", PLANS)
def test_weights_are_those_of_the_same_delays(name: str) -> None:
    """Two steps, of which the second begins with what the first one left, and with its momentum."""
    plan, minibatches = PLANS[name]
    script = replace(script_of(plan, FOUR, UNTIED), learning_rate=LEARNING_RATE)
    losses, weights, ranks = sharded(script, 2)
    expected_losses, expected = delayed(script, minibatches, 2)
    assert losses == pytest.approx(expected_losses, rel=1e-9)
    for parameter, value in expected.items():
        assert torch.allclose(weights[parameter], value, rtol=1e-9, atol=1e-11), parameter
    graph, sent = script.graph, sum(rank[-1].sent_bytes for rank in ranks)
    messages = [task for task in range(len(graph)) if graph.is_transfer[task] and graph.layer[task] >= 0]
    single = [task for task in messages if len(graph.routes[graph.route[task]].pairs) == 1]
    assert sent[single] == pytest.approx(graph.bytes[single])


def test_stale_weights_train_to_other_parameters() -> None:
    """The same mini-batches one after the other, each with the newest weights, end elsewhere."""
    plan, minibatches = PLANS["four stages"]
    script = replace(script_of(plan, FOUR, UNTIED), learning_rate=LEARNING_RATE)
    _, stale = delayed(script, minibatches, 1)
    _, fresh = delayed(replace(script, plan=PLANS["one stage"][0]), minibatches, 1)
    assert max(float((stale[name] - fresh[name]).abs().max()) for name in stale) > 1e-3
