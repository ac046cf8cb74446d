"""From gradients to new parameters on one rank: sums over devices, and SGD with momentum.

    replicated         a bucket's gradients are all-reduced, and torch's optimizer updates all parameters
    servers            each of K servers adds up the k-th part of a bucket, updates it and sends it back
    ZeRO 1 to 3        each device of a shard group has a slice of a bucket: of the sum, and of what it updates;
                       the slices are gathered after the update or, with ZeRO 3, before the passes that use them;
                       between steps a device has no other
    stashed weights    an update for each mini-batch makes a version of the weights from the one before

A bucket's gradients are one row of shape (elements,), piece after piece.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from simulator import collectives
from simulator.lowering.exchange.shard_regions import split
from simulator.lowering.parameters.buckets import Bucket
from simulator.lowering.parameters.replicas import Replicas
from traces.capture.momentum_sgd import descend, optimizer
from traces.runs.executor.bucket_transfers import BucketTransfer, bucket_transfers, owners_of
from traces.runs.executor.parameter_pieces import ParameterPieces
from traces.runs.executor.rank_shards import Shards
from traces.runs.executor.run_setup import Script
from traces.runs.executor.transport import Swap, all_gather, all_reduce, reduce_scatter


@dataclass(slots=True)
class _State:
    """Values of a row that this device updates, from its element `first` on, with their momentum."""

    first: int
    values: Tensor
    momentum: Tensor


class Updates:
    """The gradient buckets and the optimizer of device `rank`."""

    def __init__(self, script: Script, rank: int, shards: Shards) -> None:
        self._script, self._rank, self._versions = script, rank, shards.versions
        self.transfers = bucket_transfers(script, rank)
        self._pieces = ParameterPieces(script, rank, shards)
        self._rows: dict[tuple[int, int], Tensor] = {}
        self._came: dict[tuple[int, int, int], list[tuple[int, Tensor]]] = defaultdict(list)
        self._totals: dict[tuple[int, int], Tensor] = {}
        self._states: dict[tuple[Replicas, ...], _State] = {}
        served = collectives.load(script.plan.synchronisation.collective).updates_on_server
        own = [piece for piece in script.sharded.replicas if rank in piece.devices]
        self._in_rows = bool(served or script.plan.states.stage or self._versions)
        self._updated = [piece for piece in own if not (self._in_rows and piece.is_summed)]
        tensors = [] if self._in_rows else self._pieces.tensors(self._updated)
        self._optimizer = optimizer(tensors, script.learning_rate, script.momentum)
        for number in range(len(script.sharded.buckets)):
            self._drop(number)

    def begin(self) -> None:
        """Start a step: drop the gradients of the one before."""
        for kept in (self._rows, self._came, self._totals):
            kept.clear()
        for tensor in self._pieces.tensors(self._updated):
            tensor.grad = None

    def all_reduced(self, task: int) -> Tensor:
        """The row of gradients, (elements,), that a bucket's all-reduce sums."""
        return self._row(self.transfers[task])

    def empty_row(self, task: int) -> Tensor:
        """Room for what a message carries, (elements,)."""
        first, last = self._part(self.transfers[task])
        return torch.empty(last - first, dtype=getattr(torch, self._script.dtype))

    def message(self, task: int) -> Tensor:
        """Gradients of this device, a sum of them, or the parameters that a server sends back: (elements,)."""
        transfer = self.transfers[task]
        if transfer.step == "pull":
            return self._states[self._bucket(transfer).pieces].values
        return self._summed(transfer) if transfer.step == "give" else self._row(transfer)[slice(*self._part(transfer))]

    def take_message(self, task: int, row: Tensor) -> None:
        """Keep gradients to be added, a sum, or parameters: (elements,)."""
        transfer = self.transfers[task]
        first, last = self._part(transfer)
        if transfer.step == "pull":
            self._pieces.write(self._bucket(transfer).pieces, row, first)
        elif transfer.step == "give":
            self._total(transfer.bucket, transfer.sum)[first:last] = row
        else:
            self._came[transfer.bucket, transfer.sum, first].append((transfer.source, row))

    def collective(self, task: int, swap: Swap) -> Tensor:
        """Take part in a collective of messages; what this device then has, (elements,)."""
        transfer = self.transfers[task]
        bucket, index, count = self._bucket(transfer), transfer.members.index(self._rank), len(transfer.members)
        if transfer.step == "gather":
            sizes = [last - first for first, last in split(self._pieces.elements(bucket.pieces), count)]
            return torch.cat(all_gather(self._share_of(transfer.bucket).values, sizes, index, swap))  # (elements,)
        if transfer.step == "scatter":
            row = self._row(transfer)
            return reduce_scatter([row[slice(*part)] for part in split(len(row), count)], index, swap)
        key = transfer.bucket, transfer.sum
        row = self._totals[key] if key in self._totals else self._row(transfer)
        return all_reduce(row[slice(*self._share(transfer.bucket))], index, count, swap)

    def take_collective(self, task: int, row: Tensor) -> None:
        """Keep what a collective left here, (elements,): all of a bucket, or this device's slice of its sum."""
        transfer = self.transfers[task]
        if transfer.step == "gather":
            self._pieces.write(self._bucket(transfer).pieces, row)
        elif transfer.step == "all-reduce":
            self._totals[transfer.bucket, transfer.sum] = row
        else:
            self._total(transfer.bucket, transfer.sum)[slice(*self._share(transfer.bucket))] = row

    @torch.no_grad()
    def update(self, task: int) -> None:
        """Run the optimizer: this device's own, or that of one bucket on a server."""
        if task in self.transfers:
            transfer = self.transfers[task]
            self._descend(self._bucket(transfer).pieces, self._part(transfer), self._summed(transfer))
            return
        model, sums = self._script.sharded, range(self._script.sharded.sums_per_step)
        if self._versions:
            self._versions.advance()
            minibatch = model.sum_of(int(self._script.graph.microbatch[task]))
            sums = range(minibatch, minibatch + 1)
        for piece in self._updated:
            if not piece.is_summed:
                self._update_alone(piece, sums)
        for number, bucket in enumerate(self._script.sharded.buckets):
            if self._rank in bucket.devices and (model.plan.states.stage or self._versions or not self._in_rows):
                self._update_summed(number, bucket, sums)
        self._optimizer.step()

    def _update_alone(self, piece: Replicas, sums: range) -> None:
        """Update a piece that no other device has, or leave it to torch's optimizer."""
        elements = self._pieces.elements([piece])
        if not self._in_rows:
            self._pieces.let_own_be_gradients(piece)
        elif elements:
            rows = [self._pieces.gradients([piece], number) for number in sums]
            self._descend((piece,), (0, elements), torch.stack(rows).sum(0))  # (sums, elements) -> (elements,)

    def _update_summed(self, number: int, bucket: Bucket, sums: range) -> None:
        """Update this device's slice of a bucket, or leave all of it to torch's optimizer."""
        if not self._in_rows:
            self._pieces.let_be_gradients(bucket.pieces, self._finished(number, 0))
            return
        share = self._share(number)
        rows = [self._finished(number, summed)[slice(*share)] for summed in sums]
        self._descend(bucket.pieces, share, torch.stack(rows).sum(0))  # (sums, elements) -> (elements,)
        self._drop(number)

    def _descend(self, pieces: tuple[Replicas, ...], part: tuple[int, int], gradient: Tensor) -> None:
        """Update a part of a row of parameters, and write it where this device holds it."""
        state = self._state_of(pieces, part)
        descend([state.values], [gradient], [state.momentum], self._script.learning_rate, self._script.momentum)
        self._pieces.write(pieces, state.values, state.first)

    def _state_of(self, pieces: tuple[Replicas, ...], part: tuple[int, int]) -> _State:
        if pieces not in self._states:
            values = self._pieces.values(pieces)[slice(*part)].clone()
            self._states[pieces] = _State(part[0], values, torch.zeros_like(values))
        return self._states[pieces]

    def _share_of(self, number: int) -> _State:
        return self._state_of(self._script.sharded.buckets[number].pieces, self._share(number))

    def _drop(self, number: int) -> None:
        """Keep this device's slice alone of a bucket that is gathered for passes; the rest is no number until then."""
        bucket, states = self._script.sharded.buckets[number], self._script.plan.states
        if states.stage < 3 or self._rank not in bucket.devices or states.shares(bucket.devices) == 1:
            return
        pieces, own = bucket.pieces, self._share_of(number)
        row = own.values.new_full((self._pieces.elements(pieces),), torch.nan)  # (elements,)
        row[own.first : own.first + len(own.values)] = own.values
        self._pieces.write(pieces, row)

    def _bucket(self, transfer: BucketTransfer) -> Bucket:
        return self._script.sharded.buckets[transfer.bucket]

    def _row(self, transfer: BucketTransfer) -> Tensor:
        """This device's gradients of a bucket, (elements,), made once per sum."""
        key = transfer.bucket, transfer.sum
        if key not in self._rows:
            self._rows[key] = self._pieces.gradients(self._bucket(transfer).pieces, transfer.sum)
        return self._rows[key]

    def _total(self, number: int, summed: int) -> Tensor:
        """The row for a sum, (elements,), filled as its parts come."""
        key = number, summed
        if key not in self._totals:
            elements = self._pieces.elements(self._script.sharded.buckets[number].pieces)
            self._totals[key] = torch.zeros(elements, dtype=getattr(torch, self._script.dtype))
        return self._totals[key]

    def _finished(self, number: int, summed: int) -> Tensor:
        """The row of a sum of which all that this device needs is there; what it adds up itself is put in its place."""
        bucket, total = self._script.sharded.buckets[number], self._total(number, summed)
        if bucket.holders != bucket.devices and self._rank in owners_of(bucket):
            owners = owners_of(bucket)
            part = owners.index(self._rank), len(owners)
            own = BucketTransfer(bucket=number, sum=summed, step="sum", part=part)
            total[slice(*self._part(own))] = self._summed(own)
        kept = self._pieces.gradients_at_home(bucket.pieces, summed)
        return total if kept is None else total + kept

    def _summed(self, transfer: BucketTransfer) -> Tensor:
        """The sum of what came for a part of a bucket and of this device's own gradients, (elements,)."""
        first, last = self._part(transfer)
        came = sorted(self._came[transfer.bucket, transfer.sum, first], key=lambda entry: entry[0])
        rows = [row for _, row in came]
        if self._rank in self._bucket(transfer).holders:
            rows.append(self._row(transfer)[first:last])
        return torch.stack(rows).sum(0)  # (terms, elements) -> (elements,)

    def _part(self, transfer: BucketTransfer) -> tuple[int, int]:
        """The elements that a message carries, or a server serves."""
        index, count = transfer.part
        return split(self._pieces.elements(self._bucket(transfer).pieces), count)[index]

    def _share(self, number: int) -> tuple[int, int]:
        """The elements of a bucket that this device updates."""
        bucket, states = self._script.sharded.buckets[number], self._script.plan.states
        group = next(group for group in states.shard_groups(bucket.devices) if self._rank in group)
        return split(self._pieces.elements(bucket.pieces), len(group))[group.index(self._rank)]
