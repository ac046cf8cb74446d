"""What is opened on a page is known by what it holds, read, packed or plain, and shown or answered. No browser."""

from __future__ import annotations

import gc
import gzip
import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from conftest import ROOT
from small_networks import branches, chain
from test_nccl import written
from test_ranks import LATE, RANKS, trace

from dashboard.frame.routes import EXPORTS
from dashboard.state import uploads
from dashboard.state.inventory import label
from dashboard.state.opening import opened
from dashboard.state.store import Store
from simulator.errors import InputError
from simulator.files import to_json
from simulator.network.catalogue import read_preset, write_cluster
from traces.results.executions import Execution, write_execution

CONFIG = (
    '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, '
    '"num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 2048, "max_position_embeddings": 1024, '
    '"tie_word_embeddings": false}'
)


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"net": branches(), "chain": chain([3.0, 2.0, 1.0, 2.0])})


def address(store: Store, name: str, content: bytes, path: str = "/") -> tuple[str, dict[str, str]]:
    """The page that shows a file, and what its address says."""
    parts = urlsplit(opened(store, path, f"?{store.default().query()}&base=x", [(name, content)]).address)
    return parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}


def test_a_plan_of_another_model_opens_on_what_its_command_says(store: Store) -> None:
    now = replace(store.default(), profile="chain", strategy="data", devices=2)
    outcome = store.outcome(now)
    own = address(store, "p.json", EXPORTS["plan.json"][2](outcome).encode())[1]  # the page shows "net"
    said = [own[name] for name in ("profile", "cluster", "devices", "strategy")]
    assert said == [outcome.configuration.profile, now.cluster, "2", "data"]
    shown = store.outcome(store.read(urlencode(own))[0]).report
    assert shown is not None and outcome.report is not None and shown.step_s == outcome.report.step_s
    for change in ({"speed": 2.0}, {"inter_bandwidth": 0.5}):  # its machine is another than the preset
        faster = store.outcome(replace(now, **change))  # type: ignore[arg-type]
        own = address(store, "p.json", EXPORTS["plan.json"][2](faster).encode())[1]
        assert label(own["profile"]) == "net"
    assert label(address(store, "p.json", to_json(outcome.plan).encode())[1]["profile"]) == "net"  # without a command


def test_a_file_opens_where_it_is_shown(store: Store, tmp_path: Path) -> None:
    page, own = address(store, "mine.json.gz", gzip.compress(to_json(replace(branches(), model="other")).encode()))
    assert page == "/" and own["profile"].startswith("mine@") and own["base"] == "x"
    assert address(store, "mine.json", to_json(branches()).encode(), "/plans")[0] == "/plans"
    assert address(store, "tiny.json", CONFIG.encode(), "/profiles")[1]["profile"].startswith("tiny@")
    write_cluster(read_preset("cpu-1g").build(3), tmp_path / "three.yaml")
    page, own = address(store, "three.yaml", (tmp_path / "three.yaml").read_bytes())
    assert own["cluster"].startswith("three@") and own["devices"] == "3"
    run = store.outcome(store.default()).run
    assert run is not None
    page, own = address(store, "p.json", to_json(run.plan).encode(), "/sweep")
    assert page == "/" and own["plan"].startswith("p@")
    sent = run.graph.bytes.astype(float)
    write_execution(
        Execution(steps_s=(1.0,), losses=(1.0,), sent_bytes=sent, timeline=run.timeline), tmp_path / "r.npz"
    )
    page, own = address(store, "r.npz", (tmp_path / "r.npz").read_bytes())
    assert page == "/compare" and own["against"].startswith("r@")


def test_a_log_of_nccl_tests_gives_the_shown_cluster_its_curves(store: Store, tmp_path: Path) -> None:
    own = address(store, "measured.log", written(tmp_path / "x.log").read_bytes())[1]
    assert own["cluster"].startswith("measured@") and store.clusters.get(own["cluster"]).collectives


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.json", b'{"layers": [}', "x.json: line 1, column 13: not valid JSON"),
        ("x.json", b'{"modle": "x"}', "x.json: it is of no known kind; a page opens profile, model card"),
        ("x.json", b'{"schema": 1, "layers": [], "batch_size": 1, "modle": "x"}', "did you mean 'model'"),
        ("x.yaml", b"schema: 1\nparameters: {}\n", "x.yaml: this is a sweep"),
        ("x.npz", b"PK", "x.npz: not a numpy archive"),
        (
            "my layers.csv",
            b"name,kind,output_shape,forward_s,backward_s\na,linear,8,1ms,1ms\n",
            "comes from `shardscope import 'my layers.csv' --batch-size SAMPLES --output 'my layers.json'`",
        ),
        ("notes.txt", b"nothing happened", "notes.txt: it says no step's time"),
    ],
)
def test_what_cannot_be_opened_says_why(store: Store, name: str, content: bytes, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(store, "/", "", [(name, content)])
    assert problem in str(caught.value) and "\n" not in str(caught.value) and "/tmp" not in str(caught.value)


def test_a_log_is_answered_beside_the_step_of_the_controls(store: Store) -> None:
    now = store.default()
    step_s = store.outcome(now).report.step_s  # type: ignore[union-attr]
    expected = store.outcome(now).interval
    assert expected is not None
    answer = opened(store, "/", now.query(), [("times.txt", f"{expected.middle_s * 1e3:.6f}ms".encode())])
    assert "a log" in answer.title and "error of the prediction +0.0%" in answer.lines[0]
    assert answer.lines[1].startswith("inside the 90% range")
    lines = "".join(f"iteration {i} | elapsed time per iteration (ms): {3e3 * step_s:.3f} |\n" for i in range(1, 30))
    answer = opened(store, "/", now.query(), [("train.log", lines.encode())])
    assert answer.lines[1].startswith("outside the 90% range") and "x as long" in answer.lines[2]
    assert not answer.address


def test_a_folder_of_ranks_is_answered_as_on_the_command_line(tmp_path: Path) -> None:
    sent = [(f"rank{rank}.json", json.dumps(trace(rank, 2000.0, 1.0, True, False)).encode()) for rank in range(RANKS)]
    answer = opened(Store({"net": branches()}), "/", "", [*sent, ("notes.txt", b"")])
    assert answer.lines[0].startswith(f"{RANKS} ranks, step ") and answer.lines[1].startswith(f"late: rank {LATE}")
    assert any(line.startswith("twice the network: ") for line in answer.lines)
    with pytest.raises(InputError, match=r"^what was opened holds 1 trace of torch\.profiler") as caught:
        opened(Store({"net": branches()}), "/", "", [sent[0], ("notes.txt", b"")])
    assert "/tmp" not in str(caught.value)


def test_a_recorded_step_is_answered_by_cause(store: Store, shared_data: Path) -> None:
    step = shared_data / "kineto" / "resnet50-v100-step.json.gz"
    answer = opened(store, "/", "", [(step.name, step.read_bytes())])
    assert answer.title.startswith("resnet50-v100-step.json.gz: a trace")
    assert answer.lines[0].startswith("recorded ") and answer.lines[2].startswith("farthest off: ")


def test_a_configuration_is_a_card_and_what_is_too_large_is_refused() -> None:
    assert uploads.kind(CONFIG.encode(), "config.json") == "model card"
    assert uploads.kind(to_json(branches()).encode(), "p.json") == "profile"
    store = Store({"net": branches()})
    key = store.put_card(CONFIG.encode(), "tiny.json")
    now, problems = store.read(f"v=1&profile={key}&cluster=dgx-h100&devices=8")
    report = store.outcome(now).report
    assert not problems and store.profile(now).model == "tiny" and report is not None and report.step_s > 0
    with pytest.raises(InputError, match="layers is 400: at most"):
        store.put_card(CONFIG.replace('"num_hidden_layers": 4,', '"num_hidden_layers": 400,').encode(), "deep.json")


@pytest.mark.parametrize(("filename", "name"), [("tiny.json", "tiny"), (f"{'a' * 70}.json", "a" * 60)])
def test_a_card_has_the_name_of_its_file_and_can_be_opened_again(filename: str, name: str) -> None:
    store = Store({"net": branches()})
    key, again = (store.put_card(CONFIG.encode(), filename) for _ in range(2))
    assert key == again and label(key) == name
    assert len(key) - len(name) == len(store.identity("net")) - len("net")  # as many digits as a profile's
    assert store.profile(replace(store.default(), profile=key, cluster="dgx-h100")).model == name


def test_uploaded_cards_stand_in_one_folder_that_goes_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of one name beside each other."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store({"net": branches()})
    shallow = CONFIG.replace('"num_hidden_layers": 4,', '"num_hidden_layers": 2,')
    first, second = (Path(store.cards[store.put_card(text.encode(), "tiny.json")]) for text in (CONFIG, shallow))
    assert first != second and {first.name, second.name} == {"tiny.json"}
    (folder,) = {first.parent.parent, second.parent.parent}
    assert folder.parent == tmp_path and (first.read_text(), second.read_text()) == (CONFIG, shallow)
    del store
    gc.collect()
    assert not folder.exists()


def test_no_more_is_opened_than_the_guide_says() -> None:
    words = " ".join((ROOT / "docs" / "dashboard.md").read_text().split())
    megabytes = [f"{most / 1e6:g} MB" for most in (uploads.MOST_UPLOAD_BYTES, uploads.MOST_UNPACKED_BYTES)]
    assert f"{megabytes[0]} at a time, {megabytes[1]} unpacked, of YAML {uploads.MOST_YAML_BYTES / 1e3:g} kB;" in words
    layers, runs = uploads.MOST_LAYERS, uploads.MOST_OUTCOMES
    assert f"at most {layers:,} layers of {uploads.MOST_SCALING_POINTS} scaling points" in words
    assert (
        f"a model card {uploads.MOST_BLOCKS} blocks, a plan {layers:,} layers of {uploads.MOST_SHARDS:,} shards"
        in words
    )
    devices, links = uploads.MOST_CLUSTER_DEVICES, uploads.MOST_LINKS
    assert f"a cluster {devices:,} devices and {links:,} links, a validation {runs:,} runs." in words


def test_a_packed_profile_is_read() -> None:
    network = branches()
    assert uploads.profile(gzip.compress(to_json(network).encode()), "net.json.gz") == network


def test_a_damaged_or_endless_packed_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the gzip file is damaged"):
        uploads.profile(b"\x1f\x8b" + b"nonsense" * 9, "net.json.gz")
    monkeypatch.setattr(uploads, "MOST_UNPACKED_BYTES", 1000)
    with pytest.raises(InputError, match=r"unpacks to more than .*`shardscope check` reads longer traces"):
        uploads.profile(gzip.compress(b" " * 1001), "trace.json.gz")
