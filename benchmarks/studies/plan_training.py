"""Train a plan for real until an accuracy: every rank a process, real data, parameters copied on the way.

ranks    step, step, copy the parameters, step, ...           copying is not timed
here     join what the ranks hold into one network, take its accuracy on held-out samples
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor, from_numpy, nn

from benchmarks.studies.whole_parameters import whole_parameters
from simulator.cluster import Cluster
from simulator.convergence.curves import Trial
from simulator.owned_files import temporary_folder
from simulator.plan import Plan
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile
from traces.convergence import datasets
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.runs.executor.execute import all_reduce_groups, read_script, write_inputs
from traces.runs.executor.run_setup import Script
from traces.runs.executor.shard_operators import Slot
from traces.runs.executor.transport import Gloo
from traces.runs.executor.worker import Worker
from traces.zoo import networks

Slots = Mapping[Slot, Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTraining:
    """One real training under a plan.

    steps_s: seconds of each step, from the common start of all ranks to the end of its last task. wall_s: seconds of
    all steps with what ranks wait for each other between them. points: (samples trained on, accuracy from 0 to 1).
    """

    steps_s: tuple[float, ...]
    wall_s: float
    points: tuple[tuple[int, float], ...]


def train_plan(
    profile: Profile,
    cluster: Cluster,
    plan: Plan,
    *,
    runtime: Runtime = IDEAL,
    dataset: str,
    like: Trial,
    updates: int,
    every: int,
    lab: Lab | None = None,
    cores: Sequence[Sequence[int]] = (),
    timeout_s: float = 300.0,
) -> PlanTraining:
    """Train `updates` steps with the seed, learning rate and momentum of `like`, a trial in one process.

    Accuracy is taken every `every` steps. The samples come in the order in which the trial had them. lab and cores: as
    for `execute`. Raises as that does.
    """
    with temporary_folder() as name:
        folder = Path(name)
        write_inputs(folder, profile, cluster, plan, runtime)
        arguments = {
            "folder": name, "model": profile.model, "dataset": dataset, "seed": like.seed,
            "learning_rate": like.learning_rate, "momentum": like.momentum, "updates": updates, "every": every,
        }  # fmt: skip
        count = len(cluster.devices)
        results = launch(
            "benchmarks.studies.plan_training:run_rank",
            count,
            lab=lab,
            arguments=arguments,
            timeout_s=timeout_s,
            cores=cores,
        )
        ranks = [_read(folder / f"{rank}.npz") for rank in range(count)]
    script = Script(profile=profile, cluster=cluster, plan=plan, network=networks.load(profile.model), seed=like.seed)
    held, model = datasets.load(dataset), script.network.build()
    points = []
    for looked in range(updates // every):
        accuracy = held.accuracy(_joined(script, model, [rank.get(looked, {}) for rank in ranks]))
        points.append(((looked + 1) * every * plan.batch_size, accuracy))
    steps = zip(*(rank["steps_s"] for rank in results), strict=True)
    return PlanTraining(
        steps_s=tuple(max(step) for step in steps),
        wall_s=max(rank["wall_s"] for rank in results),
        points=tuple(points),
    )


def run_rank(
    rank: Rank,
    folder: str,
    model: str,
    dataset: str,
    seed: int,
    learning_rate: float,
    momentum: float,
    updates: int,
    every: int,
) -> dict[str, object]:
    """What each process of `train_plan` does; it stores the parameters that it held in `folder`.

    Returns {"steps_s": seconds of each step, "wall_s": of all with their common starts}.
    """
    network = networks.load(model)
    script = read_script(Path(folder), network, seed=seed, learning_rate=learning_rate, momentum=momentum)
    rank.doing("building its shards")
    worker = Worker(script, rank.number, Gloo(all_reduce_groups(script)), rank.doing)
    batches = datasets.load(dataset).batches(script.plan.batch_size, seed)
    steps_s, looked, wall_s = [], dict[str, np.ndarray](), 0.0
    for update in range(1, updates + 1):
        samples, classes = next(batches)
        began = time.monotonic()
        step = worker.step(samples, classes)
        wall_s += time.monotonic() - began
        steps_s.append(float(np.nanmax(step.end_s)))
        if update % every == 0:
            looked |= _named(worker.shards.parameters, update // every - 1)
    worker.close()
    np.savez(Path(folder) / f"{rank.number}.npz", **looked)  # type: ignore[arg-type]
    return {"steps_s": steps_s, "wall_s": wall_s}


def _named(parameters: Slots, looked: int) -> dict[str, np.ndarray]:
    """Copies of what a rank holds, as "look/layer/channel slot/reduce slot/name"."""
    return {
        f"{looked}/{layer}/{slot}/{reduce_slot}/{name}": tensor.detach().numpy().copy()
        for (layer, slot, reduce_slot), held in parameters.items()
        for name, tensor in held.items()
    }


def _read(path: Path) -> dict[int, dict[Slot, dict[str, Tensor]]]:
    """What a rank held, look by look."""
    looks: dict[int, dict[Slot, dict[str, Tensor]]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for key, array in archive.items():
            *numbers, name = key.split("/")
            looked, layer, slot, reduce_slot = map(int, numbers)
            held = looks.setdefault(looked, {}).setdefault((layer, slot, reduce_slot), {})
            held[name] = from_numpy(array)
    return looks


def _joined(script: Script, model: nn.Module, ranks: Sequence[Slots]) -> nn.Module:
    """`model` with the parameters that the ranks hold."""
    model.load_state_dict(whole_parameters(script, ranks))
    return model
