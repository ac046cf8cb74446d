"""Reads the timeline of a whole job as ByteDance's StragglerAnalysis publishes it: every worker's operations.

    [{"name": "forward-compute", "pid": 0, "tid": 0, "ts": 48943.5, "dur": 63458.9, "ph": "X",
      "args": {"step": 23, "model_chunk": 0, "mb_id": 0, "seq_id": 0}}, ...]

pid is the data-parallel rank; the thread's name says the pipeline rank ("PP rank 0, ..."). Times are in microseconds on
one clock. A job becomes a profile, one layer per pipeline stage and one sample per micro-batch of a replica, and a
plan, 1F1B with its replicas and the work of the median step's samples, whose task graph has the recorded operations as
tasks; so a recorded step is a Timeline of that graph. The file holds no sizes: parameters and outputs of a stage stand
as one element each.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.artefacts._job_operations import BACKWARD, FORWARD, Operation, steps_of
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.taskgraph import Kind
from simulator.workload import Layer, Profile
from traces.results.executions import ObservedTask, nearest_to_median

AFTER_BACKWARD = ("layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter")
OPTIMIZER = ("optimizer-clip-main-grad", "optimizer")
_BYTES = 4


@dataclass(frozen=True)
class RecordedJob:
    """Operations by step; times in seconds since the first operation of their step."""

    steps: Mapping[int, Sequence[Operation]]
    file: str

    @cached_property
    def operations(self) -> list[Operation]:
        """Those of all steps."""
        return [each for step in self.steps.values() for each in step]

    @cached_property
    def replicas(self) -> int:
        return 1 + max(each.replica for each in self.operations)

    @cached_property
    def stages(self) -> int:
        return 1 + max(each.stage for each in self.operations)

    @cached_property
    def microbatches(self) -> int:
        return 1 + max(each.number for each in self.operations if each.name == FORWARD)

    @cached_property
    def profile(self) -> Profile:
        """Medians over steps, replicas and micro-batches, one layer per stage; how far the work of samples varies."""
        return Profile(
            model=Path(self.file).name.partition(".")[0],
            device="unknown GPU",
            batch_size=1,
            work_deviation=_rounded(statistics.pstdev(work for step in self.steps for work in self.work(step))),
            notes="imported from a recorded job: a layer is a pipeline stage, a sample is a micro-batch; the recording "
            "has no sizes, parameters and outputs stand as one element each",
            layers=tuple(self._layer(stage) for stage in range(self.stages)),
        )

    @cached_property
    def plan(self) -> Plan:
        """1F1B over the stages, each on its replicas; one bucket of gradients per stage after the backward passes."""
        return Plan(
            model=self.profile.model,
            batch_size=self.microbatches * self.replicas,
            placements={
                stage_name(stage): Sharding(
                    degrees=(self.replicas, 1, 1, 1),
                    devices=tuple(self.device(replica, stage) for replica in range(self.replicas)),
                )
                for stage in range(self.stages)
            },
            microbatches=self.microbatches,
            schedule="1f1b",
            synchronisation=Synchronisation(bucket_bytes=_BYTES, overlap=False),
            work=self.work(list(self.steps)[nearest_to_median(list(map(self.step_s, self.steps)))]),
            strategy="recorded",
        )

    def work(self, step: int) -> tuple[float, ...]:
        """How many times the median of all samples each of a step's took: micro-batch after micro-batch, by replica."""
        seconds: dict[tuple[int, int], float] = defaultdict(float)
        for each in self.steps[step]:
            if each.name in (FORWARD, BACKWARD):
                seconds[each.number, each.replica] += each.duration_s
        whole_s = sum(self._median_s(stage, name) for stage in range(self.stages) for name in (FORWARD, BACKWARD))
        return tuple(_rounded(seconds[sample] / whole_s) for sample in sorted(seconds))

    def device(self, replica: int, stage: int) -> int:
        return stage * self.replicas + replica

    def step_s(self, step: int) -> float:
        """From the first operation of any worker to the end of the last."""
        return max(each.end_s for each in self.steps[step])

    def observed(self, step: int) -> list[list[ObservedTask]]:
        """By device, what its worker recorded of the plan's tasks, as `traces.results.executions` reads it."""
        ranks: list[list[ObservedTask]] = [[] for _ in range(self.replicas * self.stages)]
        for device, tasks in _by_worker(self.steps[step]).items():
            ranks[self.device(*device)] = list(self._tasks(*device, tasks))
        return ranks

    def _tasks(self, replica: int, stage: int, operations: Mapping[str, Sequence[Operation]]) -> Iterator[ObservedTask]:
        here, kinds = self.device(replica, stage), {FORWARD: Kind.FORWARD, BACKWARD: Kind.BACKWARD}
        for name, kind in kinds.items():
            for each in operations.get(name, ()):
                yield _observed(kind, stage_name(stage), each.number, here, here, each, each)
        for name, there in (("forward-send", stage + 1), ("forward-recv", stage - 1)):
            for each in operations.get(name, ()):
                ends = (here, self.device(replica, there))
                source, target = ends if name == "forward-send" else ends[::-1]
                yield _observed(Kind.ACTIVATION, stage_name(min(stage, there)), each.number, source, target, each, each)
        for name, there in (("backward-send", stage - 1), ("backward-recv", stage + 1)):
            for each in operations.get(name, ()):
                ends = (here, self.device(replica, there))
                source, target = ends if name == "backward-send" else ends[::-1]
                yield _observed(Kind.GRADIENT, stage_name(min(stage, there)), each.number, source, target, each, each)
        reduced = [each for name in AFTER_BACKWARD for each in operations.get(name, ())]
        if reduced and self.replicas > 1:
            yield _observed(Kind.SYNCHRONISATION, "", self.stages - 1 - stage, -1, -1, reduced[0], reduced[-1])
        update = [each for name in OPTIMIZER for each in operations.get(name, ())]
        if update:
            yield _observed(Kind.UPDATE, "", -1, here, here, update[0], update[-1])

    def _median_s(self, stage: int, name: str) -> float:
        """Seconds of a stage's operations of a name, 0 where it has none."""
        return self._medians_s.get((stage, name), 0.0)

    @cached_property
    def _medians_s(self) -> dict[tuple[int, str], float]:
        seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        for each in self.operations:
            seconds[each.stage, each.name].append(each.duration_s)
        return {key: statistics.median(durations) for key, durations in seconds.items()}

    def _layer(self, stage: int) -> Layer:
        return Layer(
            name=stage_name(stage),
            kind="stage",
            inputs=(stage_name(stage - 1),) if stage else (),
            output_shape=(1, 1, 1),
            forward_s=_rounded(self._median_s(stage, FORWARD)),
            backward_s=_rounded(self._median_s(stage, BACKWARD)),
            update_s=_rounded(sum(self._median_s(stage, name) for name in OPTIMIZER)),
            parameter_bytes=_BYTES,
            output_bytes=_BYTES,
        )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def stage_name(stage: int) -> str:
    return f"stage{stage}"


def read_job(path: Path) -> RecordedJob:
    """A job from its timeline (.json or .json.gz). Raises InputError naming file and rule, OSError when unreadable."""
    return RecordedJob(steps_of(path), path.name)


def _by_worker(step: Sequence[Operation]) -> dict[tuple[int, int], dict[str, list[Operation]]]:
    """By replica and stage, the operations by name, in order of their starts."""
    workers: dict[tuple[int, int], dict[str, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for each in step:
        workers[each.replica, each.stage][each.name].append(each)
    return workers


def _observed(
    kind: Kind, layer: str, microbatch: int, source: int, target: int, first: Operation, last: Operation
) -> ObservedTask:
    return ObservedTask(int(kind), layer, microbatch, source, target, first.start_s, last.end_s)
