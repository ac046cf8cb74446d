"""Simulated results, byte for byte: digests of plans, graphs, timelines, reports and studies, kept in golden.json.

A refactoring changes none of them. Where a defect is mended on purpose, write the file anew and name the cases and the
reason in the commit:

    python tests/test_golden.py --write        (with pymetis and mtkahypar installed)

The last bits of exp and log may depend on the processor. `ARITHMETIC` is a digest of such a calculation; on a machine
where it differs from the file's, numbers of tasks and steps are compared to 1e-9, and digests are not.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import GoldenCase, simulated
from golden_list import CASES
from golden_studies import STUDIES
from golden_values import (
    chain_values,
    graph_values,
    plan_values,
    report_values,
    timeline_values,
    trace_values,
    usage_values,
    volume_values,
)

import partitioners
from simulator import collectives
from simulator.lowering.schedules import SCHEDULES

PATH = Path(__file__).with_name("golden.json")


def digest(value: Any) -> str:
    """sha256, shortened to 16 digits, of plain values and arrays as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_plain).encode()).hexdigest()[:16]


def _plain(array: np.ndarray[Any, Any]) -> Any:
    """The shape of an array and the sha256 of its bytes as little-endian 64-bit numbers."""
    data = array.astype("<f8" if array.dtype.kind == "f" else "<i8").tobytes()
    return [array.shape, hashlib.sha256(data).hexdigest()]


def arithmetic() -> str:
    """A digest of what this machine makes of exp, log, a dot product and a drawn number."""
    x = np.linspace(0.1, 7.0, 1001)
    drawn = np.random.default_rng(1).lognormal(-0.1, 0.4, 1001)
    return digest([float(x @ drawn), digest(np.exp(x)), digest(np.log(x)), digest(np.log1p(x)), digest(drawn)])


ARITHMETIC = arithmetic()


def recorded_case(case: GoldenCase) -> dict[str, Any]:
    """What golden.json keeps of a case."""
    done = simulated(case)
    return {
        "tasks": len(done.graph),
        "step_s": repr(done.timeline.step_s),
        "plan": digest(plan_values(done.plan)),
        "graph": digest(graph_values(done.graph)),
        "timeline": digest(timeline_values(done.timeline)),
        "report": digest(report_values(done.report)),
        "volume": digest(volume_values(done)),
        "usage": digest(usage_values(done)),
        "critical path": digest(chain_values(done)),
        "Chrome trace": digest(trace_values(done)),
    }


def recorded_study(name: str) -> dict[str, Any]:
    """What golden.json keeps of a study."""
    number, values = STUDIES[name]()
    return {"step_s": repr(number), "values": digest(values)}


def check(name: str, golden: dict[str, Any], now: dict[str, Any], same_arithmetic: bool) -> None:
    """Fail with the name of the case, what differs, and the step before and after."""
    before_s, after_s = float(golden["step_s"]), float(now["step_s"])
    if same_arithmetic:
        differing = [key for key in golden if golden[key] != now[key]]
    else:
        close = after_s == pytest.approx(before_s, rel=1e-9)
        differing = [] if close and golden.get("tasks") == now.get("tasks") else ["tasks or step_s"]
    tasks = f", tasks {golden['tasks']} -> {now['tasks']}" if "tasks" in golden else ""
    if differing:
        pytest.fail(f"{name}: {', '.join(differing)} changed; step {before_s!r} -> {after_s!r} s{tasks}", pytrace=False)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step_is_as_recorded(case: GoldenCase, golden: dict[str, Any]) -> None:
    if case.needs:
        pytest.importorskip(case.needs, reason=f"{case.needs} is not installed")
    check(case.name, golden["cases"][case.name], recorded_case(case), golden["arithmetic"] == ARITHMETIC)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_as_recorded(name: str, golden: dict[str, Any]) -> None:
    check(name, golden["studies"][name], recorded_study(name), golden["arithmetic"] == ARITHMETIC)


def test_the_file_names_these_cases(golden: dict[str, Any]) -> None:
    """And every strategy, schedule and collective is among them."""
    assert list(golden["cases"]) == [case.name for case in CASES] and list(golden["studies"]) == list(STUDIES)
    assert {case.plan["strategy"] for case in CASES} >= set(partitioners.strategies())
    assert {case.plan.get("schedule", "dataflow") for case in CASES} == set(SCHEDULES)
    assert {case.plan.get("sync", {}).get("collective", "ring") for case in CASES} == set(collectives.names())


def test_the_smallest_change_is_noticed() -> None:
    """One unit in the last place of one number, one element of another order, one name."""
    values = {"a": np.array([1.0, 2.0]), "b": [["x", 0.1]]}
    others: list[Any] = [
        {**values, "a": np.array([1.0, np.nextafter(2.0, 3.0)])},
        {**values, "a": np.array([2.0, 1.0])},
        {**values, "b": [["y", 0.1]]},
        {**values, "b": [["x", float(np.nextafter(0.1, 1.0))]]},
    ]
    assert len({digest(other) for other in [values, *others]}) == 5
    assert digest({"b": values["b"], "a": np.array([1.0, 2.0])}) == digest(values)


def write() -> None:
    """Record all cases and studies in golden.json, and say how long each takes."""
    record: dict[str, Any] = {"arithmetic": ARITHMETIC, "cases": {}, "studies": {}}
    for case in CASES:
        start_s = time.perf_counter()
        record["cases"][case.name] = recorded_case(case)
        print(f"{time.perf_counter() - start_s:6.2f} s  {case.name}: {record['cases'][case.name]['tasks']} tasks")
    for name in STUDIES:
        start_s = time.perf_counter()
        record["studies"][name] = recorded_study(name)
        print(f"{time.perf_counter() - start_s:6.2f} s  {name}")
    PATH.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_golden.py --write")
    write()
