"""Up to which sizes what a browser sends is read, under which names, and what published steps come to: by value."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_networks import chain

from dashboard.state import uploads, validations
from dashboard.state.validations import PublishedSet, PublishedStep, _set, published_errors
from simulator import files
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.plan import Plan, Sharding
from simulator.workload import ScalingPoint

PROFILE = replace(
    chain([1.0, 2.0, 3.0]),
    layers=tuple(replace(each, flops=1e9, saved_bytes=4096) for each in chain([1.0, 2.0, 3.0]).layers),
)
PLAN = Plan(
    model="small",
    batch_size=60,
    microbatches=6,
    placements={"a": Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), "b": Sharding(devices=(6,))},
)
CARD = (
    '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, '
    '"intermediate_size": 1024, "vocab_size": 2048, "max_position_embeddings": 1024}'
)


def cluster_text() -> bytes:
    path = Path("cluster.yaml")
    write_cluster(read_cluster("cpu-1g", devices=4), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("limit", "most", "read", "content", "named"),
    [
        ("MOST_LAYERS", 3, uploads.profile, lambda: files.to_json(PROFILE).encode(), "layers is 3"),
        ("MOST_LAYERS", 2, uploads.plan, lambda: files.to_json(PLAN).encode(), "placements is 2"),
        ("MOST_SHARDS", 3, uploads.plan, lambda: files.to_json(PLAN).encode(), "shards is 3"),
        ("MOST_SAMPLES", 60, uploads.plan, lambda: files.to_json(PLAN).encode(), "batch_size is 60"),
        ("MOST_MICROBATCHES", 6, uploads.plan, lambda: files.to_json(PLAN).encode(), "microbatches is 6"),
        ("MOST_CLUSTER_DEVICES", 7, uploads.plan, lambda: files.to_json(PLAN).encode(), "devices is 7"),
        ("MOST_BLOCKS", 4, uploads.card, CARD.encode, "layers is 4"),
        ("MOST_CLUSTER_DEVICES", 4, uploads.cluster, cluster_text, "devices is 4"),
        ("MOST_LINKS", 8, uploads.cluster, cluster_text, "links is 8"),
    ],
)
def test_the_most_is_read_and_one_more_refused(
    limit: str, most: int, read: Any, content: Any, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, name = content(), "mine.yaml" if read is uploads.cluster else "mine.json"
    monkeypatch.setattr(uploads, limit, most)
    assert read(text, name) is not None
    monkeypatch.setattr(uploads, limit, most - 1)
    with pytest.raises(InputError, match=f"{named}: at most {most - 1} here"):
        read(text, name)


@pytest.mark.parametrize(
    ("field", "most"),
    [("forward_s", 1e5), ("backward_s", 1e5), ("parameter_bytes", 10**15), ("saved_bytes", 10**15), ("flops", 1e21)],
)
def test_no_layer_takes_or_holds_more_than_a_figure_could_show(field: str, most: float) -> None:
    layers = (replace(PROFILE.layers[0], **{field: most}), *PROFILE.layers[1:])  # type: ignore[arg-type]
    assert uploads.profile(files.to_json(replace(PROFILE, layers=layers)).encode(), "p.json").layers == layers
    beyond = (replace(PROFILE.layers[0], **{field: most * 2}), *PROFILE.layers[1:])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"layer 'a': {field} is "):
        uploads.profile(files.to_json(replace(PROFILE, layers=beyond)).encode(), "p.json")


def test_the_layer_with_the_most_scaling_points_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = tuple(ScalingPoint(batch_size=batch, forward_s=0.1, backward_s=0.1) for batch in (2, 4))
    text = files.to_json(replace(PROFILE, layers=(replace(PROFILE.layers[0], scaling=points), *PROFILE.layers[1:])))
    monkeypatch.setattr(uploads, "MOST_SCALING_POINTS", 2)
    uploads.profile(text.encode(), "p.json")
    monkeypatch.setattr(uploads, "MOST_SCALING_POINTS", 1)
    with pytest.raises(InputError, match="scaling is 2"):
        uploads.profile(text.encode(), "p.json")


def test_as_many_bytes_as_said_are_read_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_UPLOAD_BYTES", 100), ("MOST_UNPACKED_BYTES", 1000), ("MOST_YAML_BYTES", 50)):
        monkeypatch.setattr(uploads, name, most)
    names = lambda folder: [path.stat().st_size for path in folder.iterdir()]  # noqa: E731
    assert uploads.together([("a", b" " * 100)], names) == [100]
    assert uploads.together([("a.gz", gzip.compress(b" " * 1000))], names) == [1000]
    with pytest.raises(InputError, match=r"size is 0\.0 MB: an upload has at most"):
        uploads.together([("a", b" " * 101)], names)
    with pytest.raises(InputError, match="it unpacks to more than"):
        uploads.together([("a.gz", gzip.compress(b" " * 1001))], names)
    assert uploads._content(_written("mine.yaml", "a: 1\n" + "#" * 45)) == {"a": 1}
    with pytest.raises(InputError, match="YAML has at most"):
        uploads._content(_written("mine.yaml", "a: 1\n" + "#" * 46))
    assert uploads._content(_written("mine.json", f'{{"a": "{"x" * 99}"}}')) == {"a": "x" * 99}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _written(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ("folder/mine.json", "mine.json"),
        (".hidden", "hidden"),
        ("", "upload"),
        ("...", "upload"),
        (f"{'x' * 90}.json", f"{'x' * 75}.json"),
    ],
)
def test_a_file_has_the_end_of_its_name_and_no_folder(sent: str, named: str) -> None:
    assert uploads.together([(sent, b"x")], lambda folder: [path.name for path in folder.iterdir()]) == [named]


def test_a_data_url_holds_a_file_whole_or_not_at_all() -> None:
    written = base64.b64encode(b"a, b").decode()
    assert uploads.content(f"data:text/plain;base64,{written}") == b"a, b"
    for broken in (f"data:text/plain;base64,{written}!", "data:text/plain;base64,abc"):
        with pytest.raises(InputError, match="the browser sent no readable file"):
            uploads.content(broken)


def step(name: str, predicted_s: float, measured_s: float, counted: bool = True) -> PublishedStep:
    return PublishedStep(name=name, predicted_s=predicted_s, measured_s=measured_s, counted=counted)


def test_a_step_that_two_sets_have_counts_once_as_the_first_predicts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (step("a", 1.1, 1.0), step("b", 4.0, 1.0, counted=False), step("c", 0.5, 2.0))
    second = (step("a", 3.0, 1.0), step("a", 3.0, 2.0))
    sets = tuple(
        PublishedSet(title="", steps=1, failed=0, median=0, bias=0, worst=0, rows=rows) for rows in (first, second)
    )
    monkeypatch.setattr(validations, "published_sets", lambda: sets)
    assert sorted(published_errors()) == pytest.approx([0.1, 0.5, 0.75])


def test_steps_that_were_refused_or_not_measured_are_no_rows() -> None:
    figures: dict[str, Any] = {"title": "t", "steps": 3, "failed": 1, "median": 0.1, "bias": -0.1, "worst": 0.2}
    rows = [
        {"name": "a", "predicted_s": 1.0, "measured_s": 2.0, "note": "n", "counted": False, "more": 7},
        {"name": "b", "measured_s": 2.0},
        {"name": "c", "predicted_s": 1.0},
    ]
    made = _set({**figures, "rows": rows, "source": "x"})
    assert made.rows == (PublishedStep(name="a", predicted_s=1.0, measured_s=2.0, note="n", counted=False),)
    assert (made.title, made.steps, made.failed, made.median, made.bias, made.worst) == tuple(figures.values())
