"""An actual run in the dashboard: read from an upload, held against the simulation of the same plan. No browser."""

from __future__ import annotations

import io
import random
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_networks import branches

from benchmarks.robustness.mutations import mutated_bytes
from dashboard.app import create_app
from dashboard.figures.span_columns import encode
from dashboard.state import uploads
from dashboard.state.configuration import Configuration
from dashboard.state.measures import shares
from dashboard.state.store import Store
from dashboard.words.comparison import measured
from simulator.engine import simulate
from simulator.engine.noise import Noise
from simulator.errors import InputError, UnknownNameError
from traces.results.executions import Execution, write_execution


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": branches()})


@pytest.fixture(scope="module")
def configuration(store: Store) -> Configuration:
    return replace(store.default(), devices=3, microbatches=4)


@pytest.fixture(scope="module")
def execution(store: Store, configuration: Configuration) -> Execution:
    """The plan's run on a machine whose second device is half as fast as it was profiled."""
    simulated = store.outcome(configuration)
    assert simulated.run is not None and simulated.cluster is not None
    timeline = simulate(Noise(stragglers={1: 2.0}).disturb(simulated.run.graph), simulated.cluster)
    sent = simulated.run.graph.bytes.astype(float)
    return Execution(steps_s=(timeline.step_s,), losses=(1.0,), sent_bytes=sent, timeline=timeline)


def written(execution: Execution, folder: Path) -> bytes:
    write_execution(execution, folder / "run.npz")
    return (folder / "run.npz").read_bytes()


def test_an_upload_is_read_back(execution: Execution, tmp_path: Path) -> None:
    uploaded = uploads.execution(written(execution, tmp_path), "run.npz")
    assert uploaded.steps_s == execution.steps_s and np.array_equal(uploaded.timeline.end_s, execution.timeline.end_s)


def test_the_difference_is_that_of_the_slow_device(
    store: Store, configuration: Configuration, execution: Execution
) -> None:
    key = store.executions.put("run.npz", execution)
    outcome, compared = store.actual(configuration, key)
    predicted = store.outcome(configuration).run
    assert outcome.run is not None and compared is not None and predicted is not None
    assert outcome.run.report.step_s == execution.timeline.step_s > predicted.report.step_s
    slow, was = (run.report.devices[1].compute_s for run in (outcome.run, predicted))
    assert slow == pytest.approx(2 * was)
    rows = {row.name: row.change for row in measured(store.outcome(configuration), outcome)}
    names = [device.name for device in predicted.report.devices]
    assert [rows[f"{name} computes"] for name in names] == ["= 0%", "▲ 100.0%", "= 0%"]
    assert {int(compared.graph.device[difference.task]) for difference in compared.longest(5)} == {1}
    assert outcome.cluster is not None
    assert sum(share.ratio for share in shares(outcome.run, outcome.cluster).total) == pytest.approx(1.0)


def test_its_spans_are_served(store: Store, configuration: Configuration, execution: Execution) -> None:
    key = store.executions.put("run.npz", execution)
    outcome, _ = store.actual(configuration, key)
    assert outcome.run is not None and outcome.cluster is not None
    with create_app(store).server.test_client() as client:
        host = {"Host": "localhost"}
        answer = client.get(f"/spans?{configuration.query()}&actual={key}", headers=host)
        assert answer.data == encode(outcome.run, outcome.cluster)
        answer = client.get(f"/export/report.json?{configuration.query()}&actual={key}", headers=host)
        assert answer.get_json()["step_s"] == outcome.run.report.step_s
        assert client.get(f"/spans?{configuration.query()}&actual=gone@1", headers=host).status_code == 404
        other = replace(configuration, microbatches=2)
        answer = client.get(f"/spans?{other.query()}&actual={key}", headers=host)
        assert answer.status_code == 422 and "choose on Explore" in answer.get_data(as_text=True)


def test_a_run_beside_what_cannot_be_simulated_has_the_reason_alone(
    store: Store, configuration: Configuration, execution: Execution
) -> None:
    key = store.executions.put("run.npz", execution)
    small = replace(configuration, batch_size=1, strategy="data", microbatches=None)
    outcome, compared = store.actual(small, key)
    assert compared is None and outcome.run is None and outcome.reason == store.outcome(small).reason != ""


def test_an_unknown_execution_is_named(store: Store, configuration: Configuration) -> None:
    with pytest.raises(UnknownNameError, match="execution 'gone'"):
        store.actual(configuration, "gone")


def packed(**columns: Any) -> bytes:
    out = io.BytesIO()
    whole = {"schema": 1, "steps_s": [1.0], "losses": [0.5], "sent_bytes": [0.0], "start_s": [0.0], "end_s": [1.0]}
    np.savez(out, **{name: np.array(value) for name, value in (whole | columns).items() if value is not None})
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"PK nothing", "not a numpy archive"),
        (packed(end_s=None), "end_s"),
        (packed(schema=7), "schema is 7"),
        (packed(schema=[1, 1]), "not a timeline"),
        (packed(steps_s=[]), "at least one step"),
        (packed(end_s=[1.0, 2.0]), "one number for each task"),
        (packed(end_s=[np.nan]), "every task ends"),
        (packed(start_s=[2.0]), "not before it starts"),
        (packed(end_s=["x"]), "every task ends"),
    ],
)
def test_a_broken_upload_says_why(text: bytes, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        uploads.execution(text, "folder/run.npz")
    assert complaint in str(error.value) and "/tmp" not in str(error.value)


def claiming(shape: str, kind: str = "<f8", content: bytes = bytes(8)) -> bytes:
    """An archive of one small array whose header says that it is of this shape."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(
            "start_s.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content
        )
    return out.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        claiming("(10_000_000_000,)"),  # 80 GB
        claiming("(2**60,)"),
        claiming(f"({2**60},)"),  # 8 EB
        claiming(f"({2**40}, {2**40})"),
        claiming("(-1,)"),
        claiming("(1"),
        claiming("()" * 5000),
        claiming("(1,)", kind="nonsense"),
        claiming("(1,)", content=b""),
    ],
)
def test_a_header_that_lies_is_refused(archive: bytes) -> None:
    with pytest.raises(InputError, match=r"^run\.npz: "):
        uploads.execution(archive, "run.npz")


def test_an_entry_that_says_it_unpacks_to_80_gb_is_refused() -> None:
    sound = packed()
    entry = sound.index(b"PK\x01\x02")
    for size in (80 * 2**30, 2**63 - 1):
        lying = sound[: entry + 24] + min(size, 2**32 - 2).to_bytes(4, "little") + sound[entry + 28 :]
        with pytest.raises(InputError, match="size unpacked is 4,295 MB"):
            uploads.execution(lying, "run.npz")


def test_damaged_archives_are_refused_or_sound() -> None:
    drawn, refused = random.Random(3), 0
    for _ in range(300):
        try:
            execution = uploads.execution(mutated_bytes(packed(), drawn), "run.npz")
        except InputError as error:
            assert str(error).count("\n") == 0
            refused += 1
        else:
            assert execution.timeline.step_s >= 0
    assert refused > 150


@pytest.mark.parametrize(
    "columns",
    [
        {"steps_s": ["x"]}, {"steps_s": [[1.0]]}, {"steps_s": [np.nan]}, {"steps_s": [-1.0]}, {"steps_s": [1j]},
        {"losses": ["x"]}, {"losses": 3.0}, {"sent_bytes": [-1.0]}, {"sent_bytes": [np.inf]}, {"schema": np.inf},
        {"stolen_share": ["x"]}, {"start_s": [[0.0]]}, {"start_s": [1j]}, {"sent_bytes": ["x"]},
    ],
)  # fmt: skip
def test_columns_of_other_things_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        uploads.execution(packed(**columns), "run.npz")


def test_nothing_pickled_is_loaded() -> None:
    out = io.BytesIO()
    np.savez(out, schema=np.array(1), start_s=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="pickle"):
        uploads.execution(out.getvalue(), "run.npz")


def test_a_small_file_that_unpacks_to_much_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("start_s.npy", bytes(uploads.MOST_UNPACKED_BYTES + 1))
    assert len(out.getvalue()) < 100_000
    with pytest.raises(InputError, match="size unpacked is 40 MB"):
        uploads.execution(out.getvalue(), "run.npz")
