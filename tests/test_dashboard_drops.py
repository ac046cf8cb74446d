"""What is dropped on a page is read, packed or plain, or called what it is in one line. No browser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from small_networks import branches

from dashboard.frame.upload_field import drop
from dashboard.state import uploads
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
