"""How often links are measured, with which rests, and what is made of the times: on clocks that the tests tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from simulator.network.topologies import Wire, flat_switch  # noqa: E402
from traces.calibrate import link_probe  # noqa: E402
from traces.calibrate.links import probe_arguments  # noqa: E402
from traces.lab.rank import Rank  # noqa: E402


class Ranks:
    """In place of torch.distributed: a clock, what was called, and how long messages and collectives take."""

    GroupMember = SimpleNamespace(NON_GROUP_MEMBER="none of them")

    def __init__(self, taken_s: list[float]) -> None:
        self.now_s, self.taken_s, self.calls = 0.0, iter(taken_s), list[Any]()

    def perf_counter(self) -> float:
        return self.now_s

    def run(self) -> None:
        self.now_s += next(self.taken_s)

    def barrier(self, group: object = None) -> None:
        self.calls.append("barrier")
        self.now_s += 100.0

    def new_group(self, ranks: object = None) -> object:
        return ("group", tuple(ranks)) if isinstance(ranks, list) else "all"

    def send(self, tensor: Any, to: int, group: object = None) -> None:
        self.calls.append(("send", to, group, int(tensor.sum()) if group is None else len(tensor)))

    def irecv(self, tensor: Any, source: int, group: object = None) -> Any:
        self.calls.append(("irecv", source, group, len(tensor)))
        return SimpleNamespace(wait=self.run)

    def recv(self, tensor: Any, source: int, group: object = None) -> None:
        self.calls.append(("recv", source, group, len(tensor)))
        if group is None:
            self.run()
            tensor[0] = self.now_s < 3.5


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the transfers before each rest took."""
    rested: list[float] = []
    monkeypatch.setattr(link_probe, "_rest", rested.append)
    return rested


def on(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_probe, "dist", ranks)
    monkeypatch.setattr(link_probe, "time", SimpleNamespace(perf_counter=ranks.perf_counter))


@pytest.mark.parametrize(
    ("size_bytes", "rate", "repeats"), [(10_000, 1e6, 10), (10_000, 1.09e6, 10), (1, 1e6, 30), (10**6, 1e6, 3)]
)
def test_sizes_are_repeated_for_a_fifth_of_a_second_there_and_back(size_bytes: int, rate: float, repeats: int) -> None:
    assert link_probe._repeats(size_bytes, rate) == repeats


def test_a_collective_is_timed_but_for_its_first_time_after_rests(
    monkeypatch: pytest.MonkeyPatch, rests: list[float]
) -> None:
    ranks = Ranks([9.0, 0.5, 0.25, 0.5, 7.0])
    on(ranks, monkeypatch)
    wishes: list[bool] = []
    monkeypatch.setattr(link_probe, "_prepared", lambda *_: ranks.run)
    monkeypatch.setattr(link_probe, "_agree", lambda group, unsteady: wishes.append(unsteady) or unsteady)
    monkeypatch.setattr(link_probe, "_unsteady", lambda seconds, repeats: len(seconds) < repeats)
    assert link_probe._collective("all_reduce", "four", 4, 64, 3) == [0.5, 0.25, 0.5]
    assert rests == [0.0, 9.0, 0.5, 0.25] and wishes == [True] * 4 + [False]
    assert link_probe._collective("all_reduce", "none of them", 4, 64, 3) == []


def test_the_first_of_a_pair_times_half_of_there_and_back(monkeypatch: pytest.MonkeyPatch, rests: list[float]) -> None:
    """It says each time whether to go on, posts its receive, rests and sends."""
    ranks = Ranks([8.0, 2.0, 4.0, 7.0])
    on(ranks, monkeypatch)
    monkeypatch.setattr(link_probe, "_unsteady", lambda seconds, repeats: len(seconds) < repeats)
    rank = cast(Rank, SimpleNamespace(number=2))
    assert link_probe._there_and_back(rank, (2, 5), ("there", "back"), 64, 2) == [1.0, 2.0]
    assert rests == [0.0, 4.0, 1.0]
    turn = [("send", 5, None, 1), ("irecv", 5, "back", 64), ("send", 5, "there", 64)]
    assert ranks.calls == ["barrier", *turn * 3, ("send", 5, None, 0)]
    ranks.calls.clear()
    assert link_probe._there_and_back(rank, (0, 1), ("there", "back"), 64, 2) == []
    assert ranks.calls == ["barrier"]


def test_the_second_of_a_pair_answers_as_often_as_the_first_says(
    monkeypatch: pytest.MonkeyPatch, rests: list[float]
) -> None:
    ranks = Ranks([1.0] * 9)
    monkeypatch.setattr(ranks, "barrier", lambda: None)
    on(ranks, monkeypatch)
    rank = cast(Rank, SimpleNamespace(number=5))
    assert link_probe._there_and_back(rank, (2, 5), ("there", "back"), 64, 2) == [] == rests
    turn = [("recv", 2, None, 1), ("recv", 2, "there", 64), ("send", 2, "back", 64)]
    assert ranks.calls == [*turn * 3, ("recv", 2, None, 1)]


def test_core_seconds_of_a_byte_are_what_products_lose_beside_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.15 s at 1000 bytes/s: in 3 s a third of the products is lost, that is 1 s; then less than the 1.5 s with
    which other threads are charged; then nothing. The first time does not count, and of others than two ranks none."""
    done, charged = SimpleNamespace(wait=lambda: None), iter([0.0, 9.0, 1.0, 1.2, 2.0, 3.5, 5.0, 5.0])
    ways: list[tuple[str, int, int]] = []
    ranks = SimpleNamespace(
        barrier=lambda: ways.append(("barrier", 0, 0)),
        isend=lambda tensor, to: ways.append(("isend", to, len(tensor))) or done,
        irecv=lambda tensor, source: ways.append(("irecv", source, len(tensor))) or done,
    )
    beside = [(10.0, 1.0), (1.0, 9.0), (12.0, 1.0), (8.0, 3.0), (12.0, 1.0), (8.0, 3.0), (12.0, 1.0), (13.0, 3.0)]
    monkeypatch.setattr(link_probe, "dist", ranks)
    monkeypatch.setattr(link_probe, "REPEATS", 3)
    monkeypatch.setattr(link_probe, "_others_s", lambda: next(charged))
    for number, way in ((0, ("isend", 1, 150)), (1, ("irecv", 0, 150))):
        charged, products = iter([0.0, 9.0, 1.0, 1.2, 2.0, 3.5, 5.0, 5.0]), iter(beside)
        monkeypatch.setattr(link_probe, "_products", lambda until, products=products: next(products))
        ways.clear()
        lost = link_probe.lost_seconds_per_byte(cast(Rank, SimpleNamespace(number=number)), 1000.0)
        assert lost == pytest.approx([1.0 / 150, 1.5 / 150, 0.0])
        assert ways == [("barrier", 0, 0), way] * 4
    assert link_probe.lost_seconds_per_byte(cast(Rank, SimpleNamespace(number=2)), 1000.0) == []


@pytest.mark.parametrize("number", [1, 3])
def test_every_size_is_measured_as_often_as_the_slowest_pair_allows(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages at their own rate; collectives among the first two and four ranks, of both their ways; all-reduces
    beside compute, of four times their size."""
    tasks: list[str] = []
    rank = cast(Rank, SimpleNamespace(number=number, ranks=4, doing=tasks.append))
    monkeypatch.setattr(link_probe, "dist", Ranks([]))
    monkeypatch.setattr(link_probe, "_messages", lambda rank, pair, sizes, rate: (pair, sizes, rate))
    monkeypatch.setattr(link_probe, "_collective", lambda *asked: asked)
    monkeypatch.setattr(link_probe, "round_waits", lambda rank, repeats: repeats)
    monkeypatch.setattr(link_probe, "lost_seconds_per_byte", lambda rank, rate: rate)
    monkeypatch.setattr(link_probe, "own_cores", lambda: ("host", [3]))
    pairs, sizes, names = [(0, 1), (1, 2)], [1000, 20_000], ["all_reduce", "all_gather"]
    result = link_probe.measure(rank, pairs, [2, 4], names, sizes, [2e6, 5e6])
    assert result["messages"] == [((0, 1), sizes, 2e6), ((1, 2), sizes, 5e6)]
    assert result["collectives"] == {
        name: [
            [
                (name, ("group", tuple(range(count))), count, size, repeats)
                for size, repeats in ((1000, 30), (20_000, 5))
            ]
            if number < count
            else []
            for count in (2, 4)
        ]
        for name in names
    }
    assert result["round_waits_s"] == [3, 3] and result["cores"] == ("host", [3])
    assert result["lost_s_per_byte"] == 2e6
    assert tasks[:2] == ["messages between 0 and 1", "messages between 1 and 2"]
    assert tasks[2:] == [
        *(f"{name} among {count}" for count in (2, 4) for name in names),
        "an all-reduce beside compute",
        "a stream beside compute",
    ]
    assert link_probe.measure(rank, [(0, 1)], [], [], [], [9e9])["lost_s_per_byte"] == 1e9


def test_a_rank_goes_on_while_any_wants_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], object, object]] = []
    ranks = SimpleNamespace(
        ReduceOp=SimpleNamespace(MAX="most"),
        all_reduce=lambda wish, kind, group: asked.append((wish.tolist(), kind, group)),
    )
    monkeypatch.setattr(link_probe, "dist", ranks)
    assert link_probe._agree("four", True) and not link_probe._agree("four", False)
    assert asked == [([1], "most", "four"), ([0], "most", "four")]


def test_computing_for_so_long_ends_once_it_has_lasted_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bool] = []
    for now_s in (5.25, 5.5, 5.75):
        monkeypatch.setattr(link_probe, "time", SimpleNamespace(perf_counter=lambda now_s=now_s: now_s))
        monkeypatch.setattr(link_probe, "_products", lambda done: ends.append(done(5.0)))
        link_probe.compute(0.5)
    assert ends == [False, True, True]


def test_messages_are_measured_from_four_bytes_to_sixteen_mebibytes_by_factors_of_four() -> None:
    """Of the shortest ones fewer, as latency decides."""
    assert probe_arguments(flat_switch(4, Wire(bandwidth_bytes_per_s=1e9)))["sizes"] == [
        4,
        64,
        *(4**k for k in range(5, 13)),
    ]
