"""How a runtime is told a grid: a command line with every degree in its place, checked before it is printed; and the
arguments that a runtime takes, by name, at the version that our lines are made for.

Data, checkpoints, learning rate and logging are left to the user.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from simulator import file_gate
from simulator.errors import InputError, require_name
from simulator.language_models.accelerators import accelerator
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import TrainingStack, stack_of_runtime
from simulator.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A version of a runtime, and its arguments as its source code names them."""

    runtime: str
    version: str
    arguments: frozenset[str]


@cache
def pinned(runtime: str) -> Pinned:
    """Of "megatron", "nanotron" or "torchtitan"."""
    text = (resources.files("simulator.exports") / "pinned" / f"{runtime}.json").read_text("utf-8")
    content = file_gate.json_content(text)
    return Pinned(**{**content, "arguments": frozenset(content["arguments"].split())})


LAUNCHED = ("megatron", "nanotron", "torchtitan", "fsdp2")
"""The runtimes that train a card."""
RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "megatron": ("megatron", "torchtitan", "nanotron"), "fsdp": ("fsdp2",), "data": ("fsdp2",),
}  # fmt: skip
"""By the strategy that places a grid, which of them is asked first, and which where that cannot run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a runtime is asked to train."""

    card: ModelCard
    grid: TrainingGrid
    accelerator: str = "h100"
    """A name of `accelerators`."""
    blocks: tuple[int, ...] = ()
    """Of each stage of the pipeline; empty: the runtime's own choice."""
    overlaps: bool = False
    """Whether products exchange their operands in parts and tokens travel once, where the runtime can."""

    @property
    def precision(self) -> Literal["bf16", "fp16"]:
        """bf16, which GPUs before the A100 do not compute in."""
        return "fp16" if self.accelerator.startswith("v100") else "bf16"

    @property
    def torchrun(self) -> str:
        """torchrun with as many processes as devices. Raises InputError where nodes differ."""
        per_node = min(self.grid.devices, self.grid.node_devices)
        if self.grid.devices % per_node:
            raise InputError(
                f"devices is {self.grid.devices}: nodes of {per_node} have as many processes each, which "
                f"{self.grid.nodes} nodes cannot; take a multiple of {per_node}"
            )
        return torchrun(self.grid.nodes, per_node, self.accelerator)


def torchrun(nodes: int, per_node: int, gpu: str | None = None) -> str:
    """The start of a command that runs as many processes on each of so many nodes, or on each of a node's hosts, where
    those of `gpu`, a name of `accelerators`, are several."""
    most = (accelerator(gpu).host_devices if gpu else 0) or per_node
    of_host = max(number for number in range(1, most + 1) if per_node % number == 0)
    hosts = nodes * per_node // of_host
    met = " --rdzv-backend c10d --rdzv-endpoint $HOST:29500" if hosts > 1 else ""
    return f"torchrun --nnodes {hosts} --nproc-per-node {of_host}{met}"


def launch_command(
    runtime: str,
    card: ModelCard,
    grid: TrainingGrid,
    accelerator: str = "h100",
    plan: Plan | None = None,
    *,
    overlaps: bool = False,
) -> str:
    """The command for `runtime`, one of LAUNCHED, and below it what it does otherwise than planned.

    plan: says how many blocks each stage has. overlaps: see `Launch`. Raises UnknownNameError, InputError where it
    cannot run the grid.
    """
    require_name("runtime", runtime, LAUNCHED)
    blocks = stage_blocks(card, plan) if plan else ()
    launch = Launch(card=card, grid=grid, accelerator=accelerator, blocks=blocks, overlaps=overlaps)
    module = importlib.import_module(f"simulator.exports.{runtime}")
    command: str = module.command(launch)
    version = f"# {pinned(runtime).runtime} {pinned(runtime).version}\n" if runtime != "fsdp2" else ""
    return version + command + "".join(f"\n# not as planned: {line}" for line in module.otherwise(launch))


def launched_by(
    card: ModelCard, grid: TrainingGrid, stack: TrainingStack, plan: Plan | None = None, runtime: str | None = None
) -> tuple[str, str]:
    """(runtime, command) of the first runtime for the grid's strategy that can run it, or of `runtime` alone.

    Above the command, where nobody named the stack that predicts the grid, that another would predict this runtime.
    Raises InputError where none can: what the first of them says.
    """
    refusals: list[InputError] = []
    for name in (runtime,) if runtime else RUNTIMES[grid.strategy]:
        try:
            overlaps = stack.runtime.overlaps_products
            command = launch_command(name, card, grid, stack.accelerator, plan, overlaps=overlaps)
        except InputError as error:
            refusals.append(error)
            continue
        if stack.by_default and stack_of_runtime(name, stack.accelerator) not in (None, stack.name):
            command = f"# steps above are by {stack.name}; compare --runtime {name} predicts those of:\n{command}"
        return name, command
    raise refusals[0]


def stage_blocks(card: ModelCard, plan: Plan) -> tuple[int, ...]:
    """Blocks of each stage of the plan of a card."""
    homes = [min(plan.placements[f"blocks.{number}.attention"].devices) for number in range(card.layers)]
    return tuple(homes.count(home) for home in dict.fromkeys(homes))
