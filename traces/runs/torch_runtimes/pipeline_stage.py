"""A stage of torch's pipelines that is observed: its passes, and the messages before and after them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import pipelining

from simulator.taskgraph import Kind
from traces.runs.torch_runtimes.stage_modules import Part
from traces.runs.torch_runtimes.task_observer import TaskObserver


class Stage(pipelining.PipelineStage):
    """Stage `number` of a network cut into `parts`; homes: the rank of each. group: of the ranks, all by default."""

    def __init__(
        self, parts: Sequence[Part], number: int, homes: Sequence[int], observer: TaskObserver, group: Any = None
    ) -> None:
        super().__init__(parts[number], number, len(parts), torch.device("cpu"), group=group)
        self._observer = observer
        self._takes = parts[number - 1].gives if number else []
        self._gives = parts[number].gives if number + 1 < len(parts) else []
        self._before, self._own, self._after = homes[number - 1], homes[number], homes[(number + 1) % len(homes)]

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._observer.arrived(Kind.ACTIVATION, self._takes, fwd_chunk_id, (self._before, self._own))
        self._observer.begin(Kind.FORWARD, fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self._observer.arrived(Kind.GRADIENT, self._gives, bwd_chunk_id, (self._after, self._own))
        self._observer.begin(Kind.BACKWARD, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._observer.end(time.monotonic())

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self._observer.begin(Kind.WEIGHT, bwd_chunk_id)
        super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._observer.end(time.monotonic())

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        self._observer.posted(Kind.ACTIVATION, self._takes, fwd_chunk_id, (self._before, self._own))
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        self._observer.posted(Kind.GRADIENT, self._gives, bwd_chunk_id, (self._after, self._own))
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super().get_fwd_send_ops(fwd_chunk_id)
        self._observer.posted(Kind.ACTIVATION, self._gives, fwd_chunk_id, (self._own, self._after), _sizes(messages))
        return messages

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super().get_bwd_send_ops(bwd_chunk_id)
        self._observer.posted(Kind.GRADIENT, self._takes, bwd_chunk_id, (self._own, self._before), _sizes(messages))
        return messages


def _sizes(messages: Sequence[dist.P2POp]) -> list[int]:
    return [message.tensor.nbytes for message in messages]
