"""A pipeline plan as torch.distributed.pipelining."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.errors import InputError
from simulator.exports import script
from simulator.exports.plan_shape import PlanShape
from simulator.plan import Plan

TITLE = "A pipeline by torch.distributed.pipelining."
IMPORTS = (
    "from torch.distributed.pipelining import SplitPoint, pipeline",
    "from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class",
)
SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
}
"""torch's name of each schedule that it has."""
EXPORTED = {**SCHEDULES, "dataflow": "GPipe"}
"""The same, and layers on several devices without a schedule, which run as GPipe."""
BODY = """
def train(options, rank, device):
    model = built().to(device)
    for name in STARTS:  # what a stage receives is a leaf, which autograd does not let layers overwrite
        model.get_submodule(name).inplace = False
    example, named = arguments([each[: BATCH_SIZE // MICROBATCHES].to(device) for each in batch(0)[0]])
    cuts = {name: SplitPoint.BEGINNING for name in STARTS}
    parts = pipeline(model, mb_args=tuple(example), mb_kwargs=named, split_spec=cuts)
    own = [parts.build_stage(number, device) for number, home in enumerate(HOMES) if home == rank]
    kind = get_schedule_class(SCHEDULE)
    several = issubclass(kind, PipelineScheduleMulti)
    schedule = kind(own if several else own[0], n_microbatches=MICROBATCHES, loss_fn=loss_of)
    parameters = {name: p for stage in own for name, p in stage.submod.named_parameters()}
    optimizer = optimizer_of(parameters.values()) if parameters else None
    for step in range(options.steps):
        data, numbers = batch(step)
        start, losses = now(device), []
        if optimizer:
            optimizer.zero_grad()
        first, named = arguments([each.to(device) for each in data]) if HOMES[0] == rank else ((), {})
        last = {"target": numbers.to(device), "losses": losses} if HOMES[-1] == rank else {}
        schedule.step(*first, **named, **last)
        if options.gradients and step == 0:
            torch.save({name: p.grad for name, p in parameters.items()}, f"{options.gradients}.{rank}.pt")
        if optimizer:
            optimizer.step()
        say(step, sum(losses) / MICROBATCHES, start, device)
"""


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError unless every stage has one device, on which it is whole."""
    if len(shape.stages) == 1:
        raise InputError("plan: it has one stage; --to ddp or fsdp2")
    if shape.data * shape.tensor > 1 or any(len(home) > 1 for home in shape.homes):
        raise InputError(f"plan: stages have {len(shape.homes[0])} devices each, and torch's one: --to torchtitan")
    for names in shape.stages[1:]:
        if not any(_is_module(name) for name in names):
            raise InputError(f"plan: the stage of {names[0]!r} has no module where torch could cut; take fewer devices")
    if plan.schedule not in EXPORTED:
        raise InputError(f"plan: schedule {plan.schedule!r} is none of torch's: {', '.join(EXPORTED)}")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    yield from script.limits(plan)
    if plan.schedule == "dataflow":
        yield "the plan has no schedule; torch runs it as GPipe"
    for names in shape.stages[1:]:
        if names[0] != _start(names):
            yield f"a stage begins at module {_start(names)}, not at {names[0]}, which is a function between modules"


def constants(plan: Plan, shape: PlanShape) -> tuple[str, ...]:
    return (
        f"STARTS = {[_start(names) for names in shape.stages[1:]]}  # the first module of every stage but the first",
        f"HOMES = {[home[0] for home in shape.homes]}  # the process of each stage",
        f"SCHEDULE = {EXPORTED[plan.schedule]!r}",
    )


def _start(names: tuple[str, ...]) -> str:
    """The first layer of a stage that is a module of the network's own, going by its name."""
    return next((name for name in names if _is_module(name)), names[0])


def _is_module(name: str) -> bool:
    """Functions between modules are named after themselves; a repeated call has a number behind it."""
    last = name.rpartition(".")[2]
    functions = ("add", "mul", "cat", "view", "reshape", "flatten", "getitem", "relu", "mean", "chunk", "transpose")
    return "#" not in name and name != "loss" and last not in functions
