"""What is dropped on a page is read, packed or plain, or called what it is in one line. No browser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from small_networks import branches

from dashboard.frame.upload_field import drop
from dashboard.state import uploads
from dashboard.state.store import Store
from simulator.errors import InputError
from simulator.files import to_json

TRACE = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "aten::mm"}]})


@pytest.mark.parametrize("read", [uploads.profile, uploads.plan])
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_called_one_and_what_reads_it_is_said(read: object, packed: bool) -> None:
    assert callable(read)
    name = "step.json.gz" if packed else "step.json"
    content = gzip.compress(TRACE.encode()) if packed else TRACE.encode()
    with pytest.raises(InputError, match=r"^step\.json.*: this is a trace of a profiler; `shardscope import") as caught:
        read(content, name)
    assert "schema" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_recorded_step_is_called_a_trace(shared_data: Path) -> None:
    step = shared_data / "kineto" / "resnet50-v100-step.json.gz"
    with pytest.raises(InputError, match="this is a trace of a profiler"):
        uploads.profile(step.read_bytes(), step.name)


CONFIG = (
    '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, '
    '"num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 2048, "max_position_embeddings": 1024, '
    '"tie_word_embeddings": false}'
)


def test_a_configuration_is_a_card_and_what_is_too_large_is_refused() -> None:
    assert uploads.is_card(CONFIG.encode(), "config.json") and not uploads.is_card(
        to_json(branches()).encode(), "p.json"
    )
    store = Store({"net": branches()})
    key = store.put_card(CONFIG.encode(), "tiny.json")
    now, problems = store.read(f"v=1&profile={key}&cluster=dgx-h100&devices=8")
    report = store.outcome(now).report
    assert not problems and store.profile(now).model == "tiny" and report is not None and report.step_s > 0
    with pytest.raises(InputError, match="layers is 400: at most"):
        store.put_card(CONFIG.replace('"num_hidden_layers": 4,', '"num_hidden_layers": 400,').encode(), "deep.json")


def test_a_packed_profile_is_read() -> None:
    network = branches()
    assert uploads.profile(gzip.compress(to_json(network).encode()), "net.json.gz") == network


def test_a_damaged_or_endless_packed_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the gzip file is damaged"):
        uploads.profile(b"\x1f\x8b" + b"nonsense" * 9, "net.json.gz")
    monkeypatch.setattr(uploads, "MOST_UNPACKED_BYTES", 1000)
    with pytest.raises(InputError, match=r"unpacks to more than .* if it is a trace, `shardscope import"):
        uploads.profile(gzip.compress(b" " * 1001), "trace.json.gz")


def test_the_browser_passes_on_whatever_is_dropped() -> None:
    field = drop("upload", "a profile", ".json").children
    assert getattr(field, "accept", None) is None and field.max_size == uploads.MOST_UPLOAD_BYTES
