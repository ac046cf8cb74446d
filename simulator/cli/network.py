"""Which network does a step need: the best plan over the bandwidth between nodes, and from where more gives little.

    shardscope network llama3-8b --cluster dgx-h100 --devices 64 --output network.html

Plans are searched for on the cluster's own network and, of a model card, on those of a quarter and a thirty-second of
its bandwidth; the best few are simulated at every bandwidth, with those of the same splits that exchange less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.cli import _answers, _effects, _grid_words, _grids, _options, _printing, _results, _tables
from simulator.errors import require
from simulator.language_models.card_files import is_card
from simulator.one_line_parser import option, time
from simulator.sweep.chart import chart, chart_text
from simulator.terminal import say
from simulator.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from partitioners._grids.grid_bounds import GridBounds
    from simulator.cluster import Cluster
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.plan import Plan
    from simulator.runtime import Runtime
    from simulator.studies.bandwidth_need import BandwidthPoint
    from simulator.workload import Profile

FACTORS = tuple(2.0**power for power in range(-5, 3))
"""Of the bandwidth: from that of Ethernet to four times as much."""
SEARCHED = (1.0, 1 / 4, FACTORS[0])
"""Of the bandwidth, where plans are searched for."""
KEPT, TRIED = 3, 16
"""Plans of a search that are simulated at every bandwidth; grids that a search simulates at most."""
BUDGET_S = 20.0
COLUMN = "per_device_bandwidth_bytes_per_s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_inputs(parser)
    parser.set_defaults(objective="step", runtime=None)
    option(parser, "--budget TIME", "time to search for plans (default 20s)", time)
    _results.add_output(parser)
    option(parser, "--json", "print the points as JSON instead")


def run(args: argparse.Namespace) -> None:
    from simulator.run import step_seconds
    from simulator.studies.bandwidth_need import UNLIMITED, BandwidthNeed

    _results.check_outputs(args.output)
    with _printing.progress() as progress:
        of_card = is_card(args.profile)
        profile, cluster, runtime, plans = _of_card(args) if of_card else _of_profile(args, progress)
        if progress:
            progress(f"{len(plans)} plans at {len(FACTORS)} bandwidths")

        def step_s(name: str, network: Cluster) -> float:
            return step_seconds(profile, network, plans[name], runtime)

        need = BandwidthNeed(list(plans), step_s, cluster, _tier(cluster))
        unlimited = need.at(UNLIMITED)
        points = [need.at(factor) for factor in reversed(FACTORS)][::-1]
        enough = need.enough(FACTORS)
    batch = next(iter(plans.values())).batch_size
    rows = [_row(point, batch) for point in points]
    title = f"{profile.model} on {cluster.name}, {cluster.workers} devices, batch {batch}"
    picture = chart(title, {"best plan": rows}, COLUMN, "step_s")
    _results.write_outputs(args.output, rows, picture)
    if args.json:
        limits = {"enough": asdict(enough), "unlimited": asdict(unlimited)}
        _printing.print_json({"points": [asdict(point) for point in points], **limits})
    else:
        _print(profile, title, points, enough, unlimited, rows)
        print(f"\n{chart_text(picture, height=9)}")


def _tier(cluster: Cluster) -> str:
    """The links between nodes. Raises InputError where there are none."""
    from simulator.studies.bandwidth_need import nearest_between_nodes

    tier, rule = nearest_between_nodes(cluster), f"{cluster.name} has no links between nodes then; take more"
    require(tier is not None, "devices", cluster.workers, rule)
    return str(tier)


def _of_card(args: argparse.Namespace) -> tuple[Profile, Cluster, Runtime, Mapping[str, Plan]]:
    """The best grids of a model card, on its own network and on slower ones, whose bounds are those of its own, and
    those of the same splits that exchange less."""
    from partitioners._grids.grid_bounds import GridBounds
    from partitioners._grids.ranking import best_of_splits, ranked_grids
    from simulator.studies.bandwidth_need import scaled

    of, ends_s = _grids.inputs(args), perf_counter() + (args.budget or BUDGET_S)
    cluster, tier = of.cluster, _tier(of.cluster)
    bounds = GridBounds(of.profile, cluster, of.stack)
    plans: dict[str, Plan] = {}
    for factor in SEARCHED:
        network = scaled(cluster, tier, factor)
        tried = list[int]()
        ranking = ranked_grids(
            of.card, of.profile, network, of.stack, of.batch, top=1, bounds=bounds,
            wanted=lambda grid: args.zero in (None, grid.zero_stage),
            show=lambda ranking, tried=tried: tried.append(len(ranking.simulated)),  # type: ignore[misc]
            time_left_s=lambda tried=tried: ends_s - perf_counter() if len(tried) < TRIED else 0.0,  # type: ignore[misc]
        )  # fmt: skip
        splits = list(best_of_splits(ranking.runs))[:KEPT]
        require(len(splits) > 0, "devices", cluster.workers, f"no grid of them fits {of.card.name}; take more")
        for each in (*splits, *ranking.runs[1:KEPT]):
            if _words(each.grid) not in plans:
                plans[_words(each.grid)] = each.plan
                plans.update(_exchanging_less(each.grid, of, bounds))
    return of.profile, cluster, of.stack.runtime, plans


def _exchanging_less(grid: TrainingGrid, of: _grids.GridInputs, bounds: GridBounds) -> Iterator[tuple[str, Plan]]:
    """`grid` with the fewest micro-batches that fit, by what is computed again for it: of replicas that share out
    parameters or gradients each exchanges them."""
    from partitioners._grids.grid_plan import grid_plan
    from simulator.language_models.modelled_profile import MOST_MICROBATCH
    from simulator.language_models.training_grid import RECOMPUTATION
    from simulator.run import step_report

    most_bytes = min(device.memory_bytes or inf for device in of.cluster.devices)
    samples = grid.microbatch * grid.accumulation
    fewer = [n for n in range(1, grid.accumulation) if not samples % n and samples // n <= MOST_MICROBATCH]
    fewer = fewer if grid.pipeline == 1 and grid.zero_stage > 1 else []

    def fitting(recomputation: str, number: int) -> tuple[str, Plan] | None:
        larger = replace(grid, microbatch=samples // number, accumulation=number, recomputation=recomputation)
        if bounds.bound(larger).peak_bytes > most_bytes:
            return None
        plan = grid_plan(larger, of.profile, of.cluster, of.stack)
        fits = step_report(of.profile, of.cluster, plan, runtime=of.stack.runtime).fits
        return (_words(larger), plan) if fits else None

    for kind in RECOMPUTATION:
        for number in fewer:
            made = fitting(kind, number)
            if made is not None:
                yield made
                fewer = [fewest for fewest in fewer if fewest < number]
                break


def _words(grid: TrainingGrid) -> str:
    return f"{' x '.join(_grid_words.split_words(grid))}, {_grid_words.micro_words(grid)}"


def _of_profile(
    args: argparse.Namespace, progress: Callable[[str], None] | None
) -> tuple[Profile, Cluster, Runtime, Mapping[str, Plan]]:
    """The best plans of each strategy for a measured network, on its own network and on slower ones. Raises InputError
    where none fits."""
    from simulator.cli.search import searched
    from simulator.studies.bandwidth_need import scaled

    of_cards = _effects.typed(args) & {"sequence", "stack"}
    _effects.refuse(of_cards, "counts only where PROFILE is a model card; leave it out")
    profile, cluster = _options.read_profile(args), _options.read_cluster(args, args.sync)
    tier = _tier(cluster)
    plans: dict[str, Plan] = {}
    for factor in SEARCHED:
        network = scaled(cluster, tier, factor)
        best = searched(args, (args.budget or BUDGET_S) / len(SEARCHED), progress, network).tally.best
        for name, scored in best.items():
            if scored.plan not in plans.values():
                plans[f"{name}, best at {factor:g}x" if name in plans else name] = scored.plan
    return profile, cluster, _options.read_runtime(args, profile), plans


def _row(point: BandwidthPoint, batch: int) -> dict[str, object]:
    return {
        COLUMN: point.per_device_bytes_per_s,
        "step_s": point.step_s,
        "samples_per_s": batch / point.step_s,
        "of_the_clusters_network": point.factor,
        "plan": point.plan,
    }


def _print(
    profile: Profile,
    title: str,
    points: Sequence[BandwidthPoint],
    enough: BandwidthPoint,
    unlimited: BandwidthPoint,
    rows: Sequence[Mapping[str, object]],
) -> None:
    of = _answers.priced(profile)
    say(*_answer(points, enough, unlimited))
    print()
    say(f"{title}: what collectives between nodes get for each device (busbw of nccl-tests)")
    table = _tables.new_table("bandwidth", "of yours", "step", f"{of.name}/s", "longer", last="best plan")
    for point, row in zip(points, rows, strict=True):
        rate = of.per_sample * float(str(row["samples_per_s"]))
        table.add_row(
            f"{point.per_device_bytes_per_s / 1e9:.3g} GB/s", f"{point.factor:.3g}x", format_time(point.step_s),
            f"{rate:,.{0 if rate >= _answers.MANY else 1}f}", f"{point.step_s / unlimited.step_s - 1:.1%}", point.plan,
        )  # fmt: skip
    _tables.print_table(table, ("longer",))
    say(f"longer: than without limit between nodes, {format_time(unlimited.step_s)}")


def _answer(points: Sequence[BandwidthPoint], enough: BandwidthPoint, unlimited: BandwidthPoint) -> Iterator[str]:
    own = next(point for point in points if point.factor == 1)
    bandwidth, yours = enough.per_device_bytes_per_s, own.per_device_bytes_per_s
    first = "at most " if enough is points[0] else ""
    yield (
        f"enough: {first}{bandwidth / 1e9:.3g} GB/s ({format_bandwidth(bandwidth)}) between nodes for each device; "
        "more shortens the step by less than 5%"
    )
    steps = f"step {format_time(own.step_s)}; without limit {format_time(unlimited.step_s)}"
    yield f"yours: {yours / 1e9:.3g} GB/s, {steps}"
