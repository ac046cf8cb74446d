"""reshard: what moves when a tensor that some devices hold in terms is needed, summed, on others.

One rule serves activations, their gradients and parameter gradients. A piece is a set of elements with the same terms
and the same targets. A term is held by each of its copies; a tensor without a sum has one term.

1. A term that every target holds already is added there and moves nothing.
2. A target takes, of a layer with copies, the first copy in which its own device holds a term of the piece, else that
   of its own number. Targets served alike form a group.
3. Terms of a group on one device are added there. The devices that then hold a partial sum are its holders.
4. The sum belongs to the only holder; else to the devices that are both holders and targets, in equal slices; else to
   the targets, in equal slices.
5. Every slice is summed to its owner, then given to the other targets.

    holders and targets          collective        bytes of a piece of S bytes
    one, the same one            none              0
    one, one other               message           S
    one, many                    broadcast         (targets that are not the holder) S
    many, one of them            reduce-scatter    (g - 1) S
    many, the same               all-reduce        2 (g - 1) S
    in general                   reduce, give      (g + t - 2) S, one S more where they share no device

Copies of one layer and as many of another elsewhere make groups of one holder and one target each. Scattered, each
copy sends one part instead, which its target gives to the others: (t - 1)/t of the bytes stay inside the targets.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a piece: the layer that computes it, and the device and the task of each copy, in their order."""

    layer: Hashable
    devices: tuple[int, ...]
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Who needs a piece: its device, the number of its copy, and its task."""

    device: int
    copy: int
    task: int


@dataclass(frozen=True, slots=True)
class SumGroup:
    """Targets served alike: by device the tasks whose terms it adds up, and by device the tasks that need the sum.

    at_home: by target device, the tasks there whose terms every target holds. owner: the device that adds up the sums,
    where it is another than rule 4 says.
    """

    holders: dict[int, list[int]]
    targets: dict[int, list[int]]
    at_home: dict[int, list[int]]
    owner: int | None = None

    @property
    def owners(self) -> list[int]:
        """The devices that add up the holders' sums, a slice each, ascending."""
        if self.owner is not None:
            return [self.owner]
        if len(self.holders) == 1:
            return list(self.holders)
        return sorted(self.holders.keys() & self.targets.keys()) or sorted(self.targets)


def groups_of(terms: Sequence[Term], targets: Sequence[Target]) -> list[SumGroup]:
    """Rules 1 to 3: the groups of a piece with these terms and targets. Copies of a layer's terms are equally many."""
    needing: dict[int, list[int]] = {}
    copy_of: dict[int, int] = {}
    for target in targets:
        needing.setdefault(target.device, []).append(target.task)
        copy_of.setdefault(target.device, target.copy)
    moving = [term for term in terms if not needing.keys() <= set(term.devices)]
    staying = [term for term in terms if needing.keys() <= set(term.devices)]
    copies = {term.layer: len(term.devices) for term in moving}
    first_copy = _first_copies(moving)
    groups: dict[tuple[int, ...], SumGroup] = {}
    group_of: dict[tuple[int, ...], SumGroup] = {}  # by the copy of each layer that is taken
    for device, tasks in needing.items():
        copy = {layer: first_copy[layer].get(device, copy_of[device] % count) for layer, count in copies.items()}
        taken = tuple(copy.values()) or (device,)
        if taken not in group_of:
            devices = tuple(term.devices[copy[term.layer]] for term in moving) or taken
            if devices not in groups:
                holders: dict[int, list[int]] = {}
                for term in moving:
                    holders.setdefault(term.devices[copy[term.layer]], []).append(term.tasks[copy[term.layer]])
                groups[devices] = SumGroup(holders=holders, targets={}, at_home={})
            group_of[taken] = groups[devices]
        group_of[taken].targets[device] = tasks
        group_of[taken].at_home[device] = [term.tasks[term.devices.index(device)] for term in staying]
    return list(groups.values())


def scattered_groups(groups: Sequence[SumGroup]) -> list[SumGroup]:
    """The groups of equal parts of a piece, one for each copy; none where its `groups` do not join copies elsewhere.

    Each part goes from its copy to the target of that copy, which gives it to the other targets.
    """
    alone = all(len(group.holders) == len(group.targets) == 1 for group in groups)
    devices = {device for group in groups for device in (*group.holders, *group.targets)}
    if len(groups) < 2 or not alone or len(devices) < 2 * len(groups):
        return []
    targets = {device: tasks for group in groups for device, tasks in group.targets.items()}
    at_home = {device: tasks for group in groups for device, tasks in group.at_home.items()}
    return [
        SumGroup(holders=group.holders, targets=targets, at_home=at_home, owner=next(iter(group.targets)))
        for group in groups
    ]


def _first_copies(terms: Sequence[Term]) -> dict[Hashable, dict[int, int]]:
    """By layer and device, the first copy in which the device holds a term."""
    first: dict[Hashable, dict[int, int]] = {}
    for term in terms:
        of_layer = first.setdefault(term.layer, {})
        for copy, device in enumerate(term.devices):
            of_layer[device] = min(copy, of_layer.get(device, copy))
    return first


def slices(elements: float, owners: Sequence[int]) -> list[tuple[int, float]]:
    """(owner, elements of its slice): as equal as integers allow, of an expected number just equal."""
    count = len(owners)
    if count == 1 or not isinstance(elements, int):
        return [(owner, elements / count if count > 1 else elements) for owner in owners]
    return [(owner, elements * (i + 1) // count - elements * i // count) for i, owner in enumerate(owners)]
