"""The stages of a plan: which layers a device, or a set of replicas, runs between two messages."""

from __future__ import annotations

from itertools import groupby

from simulator.errors import InputError
from simulator.lowering.schedules import load
from simulator.plan import Plan
from simulator.workload import Profile


def stages_of(profile: Profile, plan: Plan) -> list[list[int]]:
    """The layer positions of each stage, in order along the network.

    A stage is all layers with the same set of devices or, in a schedule of several stages per device, a run of them
    in topological order. Raises InputError when the device sets of two stages overlap, or when devices hold unequally
    many, because then no fixed order exists.
    """
    set_of = {id(sharding): sharding.device_set for sharding in plan.distinct_placements}
    sets = [set_of[id(plan.placements[layer.name])] for layer in profile.layers]
    owner: dict[int, tuple[int, ...]] = {}
    first = {devices: layer for layer, devices in reversed([*zip(profile.layers, sets, strict=True)])}
    for devices in dict.fromkeys(sets):
        layer = first[devices]
        for device in devices:
            if owner.setdefault(device, devices) != devices:
                raise InputError(
                    f"schedule {plan.schedule!r} needs stages on separate devices, but device {device} is shared "
                    f"by devices {owner[device]} and {devices} (layer {layer.name!r}); use schedule 'dataflow'"
                )
    if not load(plan.schedule).several_stages:
        stages: dict[tuple[int, ...], list[int]] = {}
        for i, devices in enumerate(sets):
            stages.setdefault(devices, []).append(i)
        return list(stages.values())
    turn = profile.index[plan.turn] if plan.turn else len(sets)
    runs = [[*run] for _, run in groupby(range(len(sets)), key=lambda i: (sets[i], i >= turn))]
    _check_chunks(plan, [sets[run[0]] for run in runs])
    return runs


def _check_chunks(plan: Plan, homes: list[tuple[int, ...]]) -> None:
    """Raise InputError unless the stages go round the devices, each as often as the others, or down and up again."""
    places = list(dict.fromkeys(homes))
    if load(plan.schedule).turns:
        if homes != [*places, *reversed(places)]:
            raise InputError(
                f"schedule {plan.schedule!r} needs two stages on every device, down all devices and up again with the "
                f"layer that `turn` names, but they are on {homes}"
            )
    elif len(homes) % len(places) or homes != places * (len(homes) // len(places)):
        raise InputError(
            f"schedule {plan.schedule!r} needs stages that go round all devices, each as often as the others; "
            f"{len(homes)} stages are on {len(places)} groups of devices, or not in their order"
        )
