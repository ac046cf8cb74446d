"""Options without an effect: refused where nothing makes them count, named in one line where this plan does not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from simulator.errors import InputError, UnknownNameError, require

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.plan import Plan
    from simulator.report.metrics import Report
    from simulator.workload import Profile

OF_GRADIENTS = (
    "sync", "bucket", "first_bucket", "no_overlap", "half_precision", "compression", "compression_cost", "broadcast",
    "servers",
)  # fmt: skip
"""What counts only where gradients are summed between devices."""


def typed(args: argparse.Namespace) -> frozenset[str]:
    """The options that stand on the command line, e.g. {"batch_size"}, but for the --timeout before every command."""
    words = [word.partition("=")[0] for word in getattr(args, "argv", ()) if word.startswith("--")]
    return frozenset(word.removeprefix("--").replace("-", "_") for word in words) - {"timeout"}


def spelled(names: Iterable[str]) -> str:
    """Options as they are typed: "--sync, --bucket"."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


def refuse(names: Iterable[str], why: str) -> None:
    """Raise InputError for these options, in the order of their names, if there are any."""
    if unused := sorted(names):
        raise InputError(f"{spelled(unused)}: {why}")


def check_step(args: argparse.Namespace) -> None:
    """Raise InputError for options of the step that cannot count, and for unknown names in those that may not be read.

    Also where names would only be looked up in some combinations.
    """
    from simulator import collectives
    from simulator.lowering.schedules import SCHEDULES

    if args.compression_cost is not None and args.compression is None:
        raise InputError("compression-cost is given, but nothing is compressed: add --compression, e.g. 4")
    if args.sync:
        collectives.load(args.sync)
    if args.schedule and args.schedule not in SCHEDULES:
        raise UnknownNameError.of("schedule", args.schedule, SCHEDULES)


def check_once(args: argparse.Namespace) -> None:
    """Raise InputError where one thing is given two values, of which the last alone would count."""
    for option, value in sorted(vars(args).items()):
        pairs = value if isinstance(value, list) else []
        keys = [pair[0] for pair in pairs if isinstance(pair, tuple) and len(pair) == 2]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise InputError(f"{spelled([option])} {twice}: it is given twice; keep one")


def check_plan_file(args: argparse.Namespace) -> None:
    """Raise InputError for options of a strategy beside a plan, which is made already."""
    of_strategies = typed(args) & {"set", "effort", "recompute"}
    refuse(of_strategies, "a plan from a file is made already; leave it out, or take --strategy")
    if "seed" in typed(args) and not (getattr(args, "jitter", 0.0) or getattr(args, "work_deviation", None)):
        raise InputError("--seed: nothing is drawn without --jitter or --work-deviation; leave it out, or add one")


def check_schedule(args: argparse.Namespace, profile: Profile, plan: Plan) -> None:
    """Raise InputError for a schedule asked of a plan without stages, which has but one order, or one that hides
    exchanges of experts, asked of a plan without them.

    Not where a strategy asked for stages has found one device to be faster: `notes` says that.
    """
    from simulator.lowering.schedules import load
    from simulator.plan_rules import spreads_experts

    if not args.schedule or args.schedule == "dataflow":
        return
    if load(args.schedule).joins_passes:
        rule = "it hides what experts on several devices exchange, and the plan has none; leave it out"
        require(spreads_experts(profile, plan), "schedule", repr(args.schedule), rule)
    elif not _is_judged(plan.strategy) and len({each.device_set for each in plan.distinct_placements}) == 1:
        raise InputError(
            f"schedule is {args.schedule!r}: all layers of this plan are on the same devices; leave it out"
        )


def _is_judged(strategy: str) -> bool:
    """Whether a strategy may leave devices idle because its step is faster without them."""
    import partitioners

    return strategy in partitioners.strategies() and "judged" in partitioners.options(strategy)


def check_strategies(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise InputError for options that none of the strategies takes."""
    import partitioners

    known = {name: partitioners.options(name) for name in names}
    for option, _ in getattr(args, "set", ()):
        if not any(option in options for options in known.values()):
            raise UnknownNameError.of("option of these strategies", option, set().union(*known.values()))
    if args.effort is not None and not any("effort" in options for options in known.values()):
        raise InputError(f"effort is {args.effort}: none of {', '.join(names)} searches; leave --effort out")
    for option in ("microbatches", "schedule") if len(names) > 1 else ("schedule",):
        if getattr(args, option, None) is not None and not any("schedule" in options for options in known.values()):
            raise InputError(f"{option} is {getattr(args, option)}: none of {', '.join(names)} pipelines; leave it out")


def notes(args: argparse.Namespace, reports: Sequence[Report], cluster: Cluster) -> Iterator[str]:
    """One line for options that did not count in any of these steps."""
    unused = [name for name in OF_GRADIENTS if name in typed(args)]
    if unused and reports and not any(report.communication_bytes.synchronisation for report in reports):
        which = "this plan" if len(reports) == 1 else "these plans"
        yield f"{spelled(unused)}: no effect, as no parameter of {which} is on two devices"
    if getattr(args, "plan", None):
        return
    judged = [report for report in reports if _is_judged(report.strategy)]
    workers = range(cluster.workers)
    used = {each.strategy: sum(each.devices[number].compute_s > 0 for number in workers) for each in judged}
    few = [f"{name} computes on {count}" for name, count in used.items() if count < cluster.workers]
    if few:
        yield f"{', '.join(few)} of {cluster.workers} devices, which is faster; --set judged=false takes all"
