"""The parts that exported training scripts share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """What a script trains: `package.module:callable`, how many classes it is told, and what it reads.

    inputs: as `network_input` has each.
    """

    name: str
    classes: int | None
    inputs: Sequence[tuple[str, tuple[int, ...], int | None]]


_OPTIMIZERS = {
    0.0: "torch.optim.SGD(parameters, lr=1e-3)",
    1.0: "torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)",
    2.0: "torch.optim.AdamW(parameters, lr=1e-3)",
}
"""By the bytes of state that each keeps per byte of parameters."""

_TEMPLATE = '''"""{title}

    {torchrun} {file_name}

Exported by: {command}
{limits}"""

import argparse
import importlib
import operator
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn import functional
{imports}

MODEL, ARGUMENTS = {model!r}, {arguments!r}
INPUTS = {inputs!r}  # (name, "" by position; shape; what its integers are below, None: real numbers)
RANKS, MICROBATCHES = {ranks}, {microbatches}
BATCH_SIZE = {batch_size}  # samples of a step, all processes together
PREDICTED_S = {predicted_s!r}  # of a step, by shardscope; None: the plan does not say for which cluster
{constants}


def built():
    """The network, the same in every process."""
    module, _, name = MODEL.partition(":")
    torch.manual_seed(0)
    return operator.attrgetter(name)(importlib.import_module(module))(**ARGUMENTS)


def batch(step):
    """The inputs of a step and their classes; put your data here. Every process draws all and takes its own."""
    generator = torch.Generator().manual_seed(step)
    shapes = [((BATCH_SIZE, *sides), vocabulary) for _, sides, vocabulary in INPUTS]
    data = [
        torch.randn(shape, generator=generator) if vocabulary is None else torch.randint(
            vocabulary, shape, generator=generator)
        for shape, vocabulary in shapes
    ]
    return data, torch.rand(BATCH_SIZE, 1, generator=generator)


def arguments(data):
    """The inputs as the network takes them: by position, and by name."""
    named = [(name, each) for (name, _, _), each in zip(INPUTS, data)]
    return [each for name, each in named if not name], {{name: each for name, each in named if name}}


def loss_of(output, numbers):
    """Cross entropy against classes drawn from `numbers`, (samples, 1) in 0 to 1; put your loss here."""
    scores = output.movedim(2 if output.dim() == 3 else 1, -1)
    classes = (numbers.to(scores.device) * scores.shape[-1]).long().expand(len(scores), scores[0, ..., 0].numel())
    return functional.cross_entropy(scores.flatten(0, -2), classes.flatten())


def optimizer_of(parameters):
    return {optimizer}

def now(device):
    """Seconds by the clock, once the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def say(step, share, start, device):
    """Print the loss, of which this process adds `share`, and the seconds since `start` of the slowest process.

    `shardscope check LOG PLAN` reads these lines.
    """
    seconds, loss = torch.tensor([now(device) - start], device=device), torch.tensor([float(share)], device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    dist.all_reduce(loss)
    predicted = "" if PREDICTED_S is None else f", predicted {{1e3 * PREDICTED_S:.3f}} ms"
    if dist.get_rank() == 0:
        took = f"step time {{1e3 * seconds.item():.3f}} ms"
        print(f"step {{step}}: loss {{loss.item():.4f}}, {{took}}{{predicted}}", flush=True)

{body}

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--gradients", help="write the first step's gradients, for comparison, to FILE.RANK.pt")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if dist.get_world_size() != RANKS:
        raise SystemExit(f"this plan has {{RANKS}} devices, a process each: {torchrun}")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    train(options, dist.get_rank(), device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


def limits(plan: Plan) -> Iterator[str]:
    """What no script does as planned."""
    if plan.recomputed:
        yield "activations are kept; the plan recomputes them"
    kept = _state(plan)
    if kept != plan.optimizer_state:
        name = _OPTIMIZERS[kept].partition("(")[0]
        yield f"{name} keeps {kept:g} bytes of state per byte of parameters; the plan {plan.optimizer_state:g}"


def _state(plan: Plan) -> float:
    """The nearest to the plan's that an optimizer here keeps."""
    return min(_OPTIMIZERS, key=lambda kept: abs(kept - plan.optimizer_state))


def script(
    runtime: ModuleType,
    plan: Plan,
    shape: PlanShape,
    model: TrainedModel,
    command: str,
    file_name: str,
    limits: Sequence[str],
    *,
    torchrun: str,
    predicted_s: float | None,
) -> str:
    """A whole script for a runtime of this folder, whose BODY defines `train(options, rank, device)`.

    predicted_s: of a step; None where it is unknown. torchrun: how its command begins, as of `launch`.
    """
    lines = "".join(f"Not as planned: {limit}.\n" for limit in limits)
    return _TEMPLATE.format(
        title=runtime.TITLE,
        command=command,
        file_name=file_name,
        limits=lines,
        model=model.name,
        arguments={} if model.classes is None else {"num_classes": model.classes},
        inputs=model.inputs,
        ranks=shape.devices,
        torchrun=torchrun,
        batch_size=plan.batch_size,
        microbatches=plan.microbatches,
        optimizer=_OPTIMIZERS[_state(plan)],
        imports="\n".join(runtime.IMPORTS),
        predicted_s=predicted_s,
        constants="\n".join(runtime.constants(plan, shape)),
        body=runtime.BODY,
    )
