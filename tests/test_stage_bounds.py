"""Bounds of cuts into stages, and their memory: as their definitions say, one cut, layer and link at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import ceil, floor, log, prod

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_inputs import clusters, profiles, synchronisations
from test_closed_forms import chain, star

from partitioners._judge.judge import Judge
from partitioners._stages.contiguous import StageCut, Stages
from partitioners._stages.judged_stages import _STAGES, _with_assumed_links, judged_stages, stage_cuts
from partitioners._stages.stage_bounds import chains, messages_seconds, step_bounds_s
from partitioners._stages.stage_costs import Costs, measured_costs
from partitioners._stages.stage_layout import stage_layout
from partitioners._stages.stage_memory import cuts_within, least_peak_bytes
from simulator import collectives
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.exchange.shard_regions import reads
from simulator.lowering.schedules import SCHEDULES
from simulator.network.transfers import paths
from simulator.parameter_states import REPLICATED, ParameterStates
from simulator.plan import StepSettings, Synchronisation
from simulator.run import run
from simulator.workload import Profile

Case = tuple[Profile, Cluster, StepSettings, str, list[StageCut]]
EXACT, TINY = 1e-9, 1e-15
IN_FLIGHT: dict[str, Callable[[int, int], int]] = {
    "gpipe": lambda after, count: count,
    "sequential": lambda after, count: 1,
    **dict.fromkeys(("1f1b", "pipedream", "pipedream-2bw"), min),
}
"""Micro-batches that a stage has begun and not finished, by how many stages there are from it on and micro-batches."""
CURVE = Curve(points=((1.0, 1e-3), (1e6, 2.0)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two chunks may go round the groups; a link may carry a curve, and passes may take next to nothing."""
    profile, cluster = (
        draw(profiles(min_layers=3, max_layers=7)),
        draw(clusters(min_workers=2, max_workers=6, max_servers=1)),
    )
    if draw(st.booleans()):
        quick = (
            replace(x, forward_s=x.forward_s / 1e3, backward_s=x.backward_s / 1e3, scaling=()) for x in profile.layers
        )
        profile = replace(profile, layers=tuple(quick))
    if cluster.links and draw(st.integers(0, 3)) == 0:
        curved = draw(st.sampled_from(cluster.links))
        links = tuple(replace(link, curve=CURVE if link is curved else None) for link in cluster.links)
        cluster = replace(cluster, links=links)
    step = StepSettings(
        batch_size=28,
        synchronisation=draw(st.just(Synchronisation()) | synchronisations(cluster, every_collective=True)),
        optimizer_state=draw(st.sampled_from((0.0, 2.0))),
        states=draw(st.sampled_from((REPLICATED, REPLICATED, ParameterStates(stage=1)))),
        recompute=draw(st.sampled_from(("", "", "stages"))),
    )
    schedule = draw(st.sampled_from((*sorted(SCHEDULES), "1f1b", "1f1b", "gpipe", "sequential")))
    return profile, cluster, step, schedule, draw(st.lists(cuts(profile, cluster, schedule), min_size=1, max_size=4))


@st.composite
def cuts(draw: st.DrawFn, profile: Profile, cluster: Cluster, schedule: str) -> StageCut:
    layers, replicas = len(profile.layers), draw(st.integers(1, min(3, cluster.workers)))
    groups = draw(st.integers(1, min(layers, cluster.workers // replicas)))
    count = 2 * groups if SCHEDULES[schedule].several_stages and 2 * groups <= layers else groups
    starts = (0, *sorted(draw(st.permutations(range(1, layers)))[: count - 1]))
    stages = Stages(starts=starts, replicas=(replicas,) * count, pace_s=0.0)
    return StageCut(stages=stages, microbatches=draw(st.sampled_from((1, 2, 4))), groups=groups)


@settings(max_examples=laws.examples(150, 800))
@given(cases())
def test_bounds_are_their_definition(case: Case) -> None:
    profile, cluster, step, schedule, drawn = case
    bounds_s, contended_s = step_bounds_s(profile, cluster, step, schedule, drawn)
    layout = stage_layout(profile, cluster, step, schedule, drawn)
    messages_s = messages_seconds(layout, paths(layout.routes, cluster))
    by_layer_s = (*chains(layout, *messages_s), *messages_s)
    for number, cut in enumerate(drawn):
        alone = [shard_seconds(profile, layer, samples_of(step, cut)) for layer in profile.layers]
        paths_s = path_seconds(profile, cluster, step, cut, alone)
        for several_s, expected_s in zip(by_layer_s, paths_s, strict=True):
            assert several_s[:, number].tolist() == pytest.approx(expected_s, rel=EXACT, abs=TINY)
        of_devices_s = max(device_bounds_s(profile, cluster, step, schedule, cut, alone, *paths_s[:3]))
        of_links_s = link_s(profile, cluster, step, cut)
        assert bounds_s[number] == pytest.approx(max(of_devices_s, of_links_s), rel=EXACT)
        assert contended_s[number] == pytest.approx(of_devices_s + of_links_s, rel=EXACT)


def samples_of(step: StepSettings, cut: StageCut) -> int:
    return step.batch_size // cut.microbatches // cut.replicas


def groups_of(profile: Profile, cut: StageCut) -> list[int]:
    """The number of each layer's group."""
    return [(sum(start <= i for start in cut.stages.starts) - 1) % cut.groups for i in range(len(profile.layers))]


def device_bounds_s(
    profile: Profile, cluster: Cluster, step: StepSettings, schedule: str, cut: StageCut,
    alone: list[tuple[float, float]], heads_s: list[float], tails_s: list[float], spans_s: list[float],
) -> Iterator[float]:  # fmt: skip
    """Of each group: head, passes, and tail or synchronisation and update; head, spans that follow each other, tail."""
    known, group, count = SCHEDULES[schedule], groups_of(profile, cut), cut.microbatches
    for number in range(cut.groups):
        own = [i for i, its in enumerate(group) if its == number]
        members = range(cut.replicas * number, cut.replicas * (number + 1))
        slowest = min(cluster.speeds[device] for device in members)
        busy_s = count * sum(sum(alone[i]) for i in own) / slowest
        if known.stashes_weights or known.splits_backward:
            yield busy_s
            continue
        head_s, tail_s = min(heads_s[i] for i in own), min(tails_s[i] for i in own)
        update_s = 0.0
        if is_bounded(step):
            last_s = sum(alone[i][1] for i in own) / slowest
            update_s = sum(profile.layers[i].update_s for i in own) / slowest
            update_s = max(update_s, ring_s(profile, cluster, step, own, members) - last_s)
        yield head_s + busy_s + max(tail_s, update_s)
        if schedule in IN_FLIGHT:
            rounds = ceil(count / IN_FLIGHT[schedule](cut.groups - number, count))
            yield head_s + rounds * max(spans_s[i] for i in own) + tail_s


def is_bounded(step: StepSettings) -> bool:
    return step.states == REPLICATED and not collectives.load(step.synchronisation.collective).updates_on_server


def path_seconds(
    profile: Profile, cluster: Cluster, step: StepSettings, cut: StageCut, alone: list[tuple[float, float]]
) -> tuple[list[float], ...]:
    """Head, tail and span of every layer, each on the fastest device of its group; the messages there and back."""
    size, first = cut.replicas, [cut.replicas * number for number in groups_of(profile, cut)]
    fastest = [max(cluster.speeds[device : device + size]) for device in first]
    passes = [(forward / speed, backward / speed) for (forward, backward), speed in zip(alone, fastest, strict=True)]

    def message_s(a: int, b: int) -> float:
        """Between layers a and b, from the first to the first of their devices or from the last to the last."""
        pairs = [(first[a] + k, first[b] + k) for k in (0, size - 1)]
        curved = [any(cluster.links[link].curve for link in cluster.route(*pair)) for pair in pairs]
        sent = read_bytes(profile, min(a, b), max(a, b)) * samples_of(step, cut)
        return min(0.0 if curve else cluster.transfer_s(*pair, sent) for pair, curve in zip(pairs, curved, strict=True))

    edges = [(source, reader) for source, readers in enumerate(profile.consumers) for reader in readers]
    there, back = [message_s(*edge) for edge in edges], [message_s(*edge[::-1]) for edge in edges]
    heads, tails, spans = [0.0] * len(first), [0.0] * len(first), [sum(both) for both in passes]
    for (a, b), there_s, back_s in zip(edges, there, back, strict=True):
        heads[b] = max(heads[b], heads[a] + passes[a][0] + there_s)
        tails[b] = max(tails[b], tails[a] + passes[a][1] + back_s)
    for (a, b), there_s, back_s in reversed([*zip(edges, there, back, strict=True)]):
        spans[a] = max(spans[a], sum(passes[a]) + there_s + spans[b] + back_s)
    return heads, tails, spans, there, back


def ring_s(profile: Profile, cluster: Cluster, step: StepSettings, own: list[int], members: range) -> float:
    """The closed form of a ring over the members, alone on its links."""
    size, settings = len(members), step.synchronisation
    gradient_bytes = settings.sent_bytes(sum(profile.layers[i].parameter_bytes for i in own), profile.dtype)
    if size == 1 or not gradient_bytes or settings.collective != "ring" or not cluster.is_formula:
        return 0.0
    pairs = [(device, members[(k + 1) % size]) for k, device in enumerate(members)]
    slowest = min(cluster.bandwidth_bytes_per_s(*pair) for pair in pairs)
    return 2 * (size - 1) * (gradient_bytes / size / slowest + max(cluster.latency_s(*pair) for pair in pairs))


def read_bytes(profile: Profile, source: int, reader: int) -> float:
    """Of a sample: what one layer makes from the first to the last row that another reads."""
    producer, layer = profile.layers[source], profile.layers[reader]
    read = reads(profile, layer, producer, [[(0, extent)] for extent in (1, *layer.output_shape)])
    share = prod(last - first for ((first, last),) in read[1:]) / prod(producer.output_shape)
    return producer.output_bytes / profile.batch_size * share


def link_s(profile: Profile, cluster: Cluster, step: StepSettings, cut: StageCut) -> float:
    """Seconds of the busiest link without a curve: a tensor crosses once to each group that reads it, and back."""
    carried: dict[int, float] = defaultdict(float)
    group, size = groups_of(profile, cut), cut.replicas
    for source, readers in enumerate(profile.consumers):
        for target in {group[reader] for reader in readers} - {group[source]}:
            read = [read_bytes(profile, source, reader) for reader in readers if group[reader] == target]
            sent = max(read) * step.batch_size / size
            for k in range(size):
                ends = size * group[source] + k, size * target + k
                for link in (*cluster.route(*ends), *cluster.route(*ends[::-1])):
                    carried[link] += sent
    straight = [link for link in carried if cluster.links[link].curve is None]
    return max((carried[link] / cluster.links[link].bandwidth_bytes_per_s for link in straight), default=0.0)


@settings(max_examples=laws.examples(20, 400))
@given(cases())
def test_a_stage_keeps_its_states_and_what_is_in_flight(case: Case) -> None:
    profile, _, step, schedule, drawn = case
    needed = least_peak_bytes(profile, step, schedule, drawn)
    for number, cut in enumerate(drawn):
        stages = len(cut.stages.starts)
        ends = [*cut.stages.starts, len(profile.layers)]
        of_stages = []
        for stage in range(stages):
            own = profile.layers[ends[stage] : ends[stage + 1]]
            flying = IN_FLIGHT[schedule](stages - stage, cut.microbatches) if schedule in IN_FLIGHT else 1
            held = sum(layer.parameter_bytes for layer in own) * (2 + step.optimizer_state)
            saved = sum(layer.saved_bytes for layer in own) / profile.batch_size * samples_of(step, cut) * flying
            of_stages.append(held * (step.states == REPLICATED) + saved * (not step.recompute))
        assert needed[number] == pytest.approx(max(of_stages), rel=EXACT)


@settings(max_examples=laws.examples(30, 200))
@given(
    profiles(min_layers=3), clusters(min_workers=3), st.sampled_from(("gpipe", "1f1b")), st.integers(1, 2), st.data()
)
def test_cuts_within_memory_have_the_best_pace_of_those_that_fit(
    profile: Profile, cluster: Cluster, schedule: str, count: int, data: st.DataObject
) -> None:
    """The first of them, and the limit is a power of 1.03 below the memory; the others need less and less."""
    step, layers = StepSettings(batch_size=8), len(profile.layers)
    costs = measured_costs(profile, cluster, 4, 2)
    every = [
        StageCut(stages=Stages(starts=(0, *starts), replicas=(1,) * count, pace_s=0.0), microbatches=2, groups=count)
        for starts in combinations(range(1, layers), count - 1)
    ]
    needed = least_peak_bytes(profile, step, schedule, every).tolist()
    memory_bytes = data.draw(st.sampled_from(needed)) + 1.0
    limit = 1.03 ** floor(log(memory_bytes, 1.03))
    paces = [pace_s(costs, cut) for cut, its in zip(every, needed, strict=True) if its <= limit]
    within = list(
        cuts_within(
            memory_bytes,
            profile,
            step,
            schedule,
            [costs],
            np.arange(layers + 1),
            count=count,
            replicas=1,
            microbatches=2,
        )
    )
    assert bool(within) == bool(paces and max(needed)) or not all(needed)
    if within:
        assert within[0].pace_s == pytest.approx(min(paces), rel=EXACT)
        cuts = [replace(every[0], stages=stages) for stages in within]
        its_needed = least_peak_bytes(profile, step, schedule, cuts).tolist()
        assert len(within) <= 3 and its_needed[0] <= limit and its_needed == sorted(its_needed, reverse=True)
        assert len({*its_needed}) == len(its_needed)


def pace_s(costs: Costs, cut: StageCut) -> float:
    ends = [*cut.stages.starts, costs.stage_s(0, 1).shape[0] - 1]
    stages_s = [float(costs.stage_s(stage, 1)[ends[stage], ends[stage + 1]]) for stage in range(cut.groups)]
    return max(*stages_s, *(float(costs.transfer_s(1)[stage, ends[stage]]) for stage in range(1, cut.groups)), 0.0)


def test_numbers_of_stages_replicas_and_micro_batches_that_are_tried() -> None:
    """Two of each doubling; powers of two that leave two stages; divisors of the batch up to four for each stage."""
    profile, step = chain(130, batch=96), StepSettings(batch_size=96)
    tried: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for cut in stage_cuts(profile, star(20), step, "gpipe", replicated=True):
        tried[cut.replicas][cut.groups].add(cut.microbatches)
    counts = (1, 2, 3, 4, 6, 8, 12, 16)
    assert {replicas: [*of] for replicas, of in tried.items()} == {
        replicas: [count for count in counts if count * replicas <= 20 and (count > 1 or replicas == 1)]
        for replicas in (1, 2, 4, 8)
    }
    for replicas, of in tried.items():
        for count, numbers in of.items():
            limits = [2**k for k in range(8) if 2**k <= 4 * count]
            assert numbers == {
                max(m for m in range(1, most + 1) if 96 % m == 0 and 96 // m >= replicas) for most in limits
            }
    alone = stage_cuts(profile, star(20), step, "gpipe", replicated=False, pipelined=False)
    assert {(cut.replicas, cut.microbatches) for cut in alone} == {(1, 1)}
    of_three = stage_cuts(profile, star(4), replace(step, microbatches=3), "gpipe", replicated=True)
    assert {cut.microbatches for cut in of_three} == {3}
    rounds = stage_cuts(profile, star(4), step, "interleaved", replicated=False, chunks=2)
    assert {(cut.groups, len(cut.stages.starts)) for cut in rounds} == {(1, 2), (2, 4), (3, 6), (4, 8)}


def test_cuts_are_made_for_links_of_eight_tenths_of_a_gigabit_to_a_terabit() -> None:
    """Two bandwidths of each decade, on whatever links there are; without links for none."""
    assumed = [{link.bandwidth_bytes_per_s for link in each.links} for each in _with_assumed_links(star(3))]
    assert [bandwidth for (bandwidth,) in assumed] == pytest.approx(
        [1e8, 1e8 * 10**0.5, 1e9, 1e9 * 10**0.5, 1e10, 1e10 * 10**0.5, 1e11]
    )
    alone = replace(star(1), links=())
    assert list(_with_assumed_links(alone)) == [alone]


def test_stages_are_tried_twice_of_each_doubling() -> None:
    assert sorted({2**k for k in range(8)} | {3 * 2**k for k in range(6)}) == [*_STAGES]
    cuts = stage_cuts(chain(9), star(9), StepSettings(batch_size=16), "gpipe", replicated=False)
    assert {cut.groups for cut in cuts} == {1, 2, 3, 4, 6, 8}


def test_cuts_of_a_deep_network_are_where_the_least_crosses_within_equal_parts_of_its_time() -> None:
    """Of 4 x 96 equal layers every fourth has a narrow output, behind which alone a cut may be."""
    wide = chain(4 * 96, batch=32)
    layers = (replace(x, output_bytes=x.output_bytes // (4 if i % 4 == 1 else 1)) for i, x in enumerate(wide.layers))
    profile = replace(wide, layers=tuple(layers))
    cuts = stage_cuts(profile, star(8), StepSettings(batch_size=32), "gpipe", replicated=False)
    starts = {start for cut in cuts for start in cut.stages.starts} - {0}
    assert starts and all(start % 4 == 2 for start in starts)
    shallow = replace(profile, layers=profile.layers[:96])
    cuts = stage_cuts(shallow, star(5), StepSettings(batch_size=32), "gpipe", replicated=False)
    assert any(start % 4 != 2 for cut in cuts for start in cut.stages.starts[1:])


@settings(max_examples=laws.examples(8, 100))
@given(profiles(min_layers=2), clusters(min_workers=2), st.sampled_from(("gpipe", "1f1b")), st.booleans(), st.data())
def test_the_stages_that_are_kept_are_the_fastest_of_those_that_fit(
    profile: Profile, cluster: Cluster, schedule: str, replicated: bool, data: st.DataObject
) -> None:
    """Each cut simulated: none is faster by more than what a bound leaves, and one that fits comes first."""
    step = StepSettings(batch_size=8)
    cuts = stage_cuts(profile, cluster, step, schedule, replicated=replicated)
    plans = [step.plan(profile, cut.partition(profile, schedule)) for cut in cuts]
    free = [run(profile, cluster, plan).report for plan in plans]
    share = data.draw(st.sampled_from((0.5, 1.0, 2.0)))
    sized = cluster.with_memory(int(share * data.draw(st.sampled_from(free)).peak_memory_bytes) + 1)
    reports = [run(profile, sized, plan).report for plan in plans]
    judge = Judge(profile=profile, cluster=sized)
    kept = judged_stages(judge, step, schedule, cuts, (), "pipeline")
    report = run(profile, sized, step.plan(profile, kept)).report
    fitting = [each for each in reports if each.fits]
    assert report.fits == bool(fitting)
    if fitting:
        assert report.step_s * (1 - 0.004) <= min(each.step_s for each in fitting) * (1 + EXACT)
    with pytest.raises(InputError, match="has no cut"):
        judged_stages(Judge(profile=profile, cluster=sized), step, schedule, (), (), "pipeline")
