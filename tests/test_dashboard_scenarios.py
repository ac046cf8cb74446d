"""Scenarios in the dashboard: simulated once, drawn, and harmless when somebody else wrote them. No browser."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from small_networks import chain

from dashboard.figures.scenario import throughput
from dashboard.figures.style import LINES
from dashboard.state import scenarios, uploads
from dashboard.state.scenarios import ScenarioResults, shipped_overheads, shipped_scenarios
from dashboard.state.store import Store
from partitioners import make_plan
from simulator.elastic.scenario import Event, Scenario
from simulator.errors import InputError, ShardscopeError, UnknownNameError
from simulator.files import read_profile
from simulator.language_models.training_stack import runtime_of
from simulator.plan import StepSettings
from simulator.run import step_seconds

SCENARIO = Scenario(
    profile="small", cluster="t4-g4dn", devices=4, duration="1h", overheads="overheads-spot.yaml", batch_size=8,
    events=(
        Event(at="10min", event="leave", devices=("node0/gpu3",)),
        Event(at="30min", event="narrow", tier="inter", to=0.5),
    ),
)  # fmt: skip


def simulated(scenario: Scenario = SCENARIO, **changes: Any) -> scenarios.SimulatedScenario:
    store = Store({"small": chain([1.0, 2.0])}, scenarios={"mine": replace(scenario, **changes)})
    return ScenarioResults(store).get("mine")


def test_a_scenario_is_simulated_once_under_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store({"small": chain([1.0, 2.0])}, scenarios={"mine": SCENARIO})
    results = ScenarioResults(store)
    result = results.get("mine")
    assert set(result.accounts) == {"live", "restart"} and results.get("mine") is result
    assert [incident.devices for incident in result.accounts["live"].incidents] == [3, 3]


def test_a_scenario_has_the_runtime_of_simulate() -> None:
    profile = read_profile("vgg16_v100")
    scenario = replace(SCENARIO, cluster="gcp-v100", batch_size=128, events=())
    result = ScenarioResults(Store({"small": profile}, scenarios={"mine": scenario})).get("mine")
    plan = make_plan("data", profile, result.cluster, StepSettings(batch_size=128))
    step_s = step_seconds(profile, result.cluster, plan, runtime_of(profile))
    assert result.accounts["live"].segments[0].samples_per_s == pytest.approx(128 / step_s)


def test_an_idle_scenario_is_drawn() -> None:
    scenario = replace(SCENARIO, cluster="gcp-v100", batch_size=8192, events=())
    result = ScenarioResults(Store({"small": read_profile("vgg16_v100")}, scenarios={"mine": scenario})).get("mine")
    low, high = throughput(result.accounts, "live")["layout"]["yaxis"]["range"]
    assert low < high and "does not fit" in result.accounts["live"].misfits[0]


def test_the_figure_integrates_to_the_samples() -> None:
    result = simulated()
    figure = throughput(result.accounts, "restart", selected=0)
    lines = {trace["name"]: trace["line"]["color"] for trace in figure["data"] if "name" in trace}
    assert lines == dict(zip(result.accounts, LINES, strict=False))  # the same whichever policy is shown
    json.dumps(figure, allow_nan=False)
    selected, other, devices = figure["data"]
    assert (other["name"], selected["name"], selected["fill"]) == ("live", "restart", "tozeroy")
    width_s = 3600 / (len(selected["x"]) - 1)
    assert sum(selected["y"][:-1]) * width_s == pytest.approx(result.accounts["restart"].samples, rel=0.01)
    saved = [row for row in figure["layout"]["meta"]["table"]["rows"] if row[0] == "restart"]
    assert sum(rate for _, _, rate in saved) * 3600 / len(saved) == pytest.approx(
        result.accounts["restart"].samples, rel=0.01
    )
    assert max(devices["y"]) == 4 and devices["y"][-1] == 3
    assert [line["x0"] for line in figure["layout"]["shapes"]] == [10, 30]  # minutes
    assert [line["width"] for line in (shape["line"] for shape in figure["layout"]["shapes"])] == [2, 1]


def test_the_examples_can_be_simulated_here() -> None:
    assert "spot-cluster" in shipped_scenarios() and "overheads-spot.yaml" in shipped_overheads()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"profile": "/etc/passwd"}, "unknown profile"),
        ({"cluster": "/etc/hosts"}, "unknown cluster"),
        ({"cluster": "examples/spot-cluster.yaml"}, "unknown cluster"),
        ({"overheads": "../examples/overheads-spot.yaml"}, "unknown file of overheads"),
        ({"plan": "/etc/passwd"}, "plan is /etc/passwd"),
        ({"strategy": "hypergraph"}, "it searches"),
        ({"strategy": "alchemy"}, "unknown strategy"),
        ({"devices": 10**6}, "devices is 1000000"),
        ({"options": {"microbatches": 10**9}}, "option microbatches"),
        ({"checkpoint_every": "1s", "duration": "30d"}, "checkpoints is 2,592,000"),
        ({"events": (Event(at="1s", event="slow", devices=("node0/gpu0",)),) * 101}, "events is 101"),
    ],
)
def test_a_scenario_opens_no_file_and_stays_small(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ShardscopeError, match=complaint):
        simulated(**changes)


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        ({"devices": 64}, {"devices": 65}),
        ({"devices": None}, {"devices": -1}),
        ({"devices": 1}, {"devices": 0}),
        ({"options": {"microbatches": 1024}}, {"options": {"microbatches": 1025}}),
        ({"options": {"objective": "volume", "imbalance": 5000.5}}, {"options": {"chunks": 5000}}),
        ({"options": {"microbatches": 0}}, {"options": {"microbatches": -1}}),
        ({"checkpoint_every": "2s", "duration": "10000s"}, {"checkpoint_every": "2s", "duration": "10001s"}),
        ({"events": SCENARIO.events[:1] * 100}, {"events": SCENARIO.events[:1] * 101}),
    ],
)
def test_what_stands_at_a_limit_is_taken(taken: dict[str, Any], refused: dict[str, Any]) -> None:
    scenarios.check(replace(SCENARIO, **taken))
    with pytest.raises(InputError):
        scenarios.check(replace(SCENARIO, **refused))


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(UnknownNameError, match="scenario"):
        ScenarioResults(Store({"small": chain([1.0])})).get("gone")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "aliases or repeats"),
        ("a: &a [*a]\n", "nested more than 64 deep"),
        ("a: " + "[" * 100_000, "x.yaml: line 1: brackets are nested more than 256 deep"),
        ("a: " + "[" * 200, "x.yaml: line 1: nested more than 64 deep"),
        ("#" * 300_000, "size is 300 kB"),
        ("schema: 1\nprofil: vgg16\n", "did you mean 'profile'"),
        ("schema: 1\n\tx", "line 2"),
        ("!!python/object/apply:os.system ['true']", "x.yaml"),
    ],
)
def test_hostile_yaml_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        uploads.scenario(text.encode(), "folder/x.yaml")
    assert complaint in str(error.value) and "/tmp" not in str(error.value)
