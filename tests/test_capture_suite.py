"""The suite of one card, whole and small on a CPU; its pipeline against the ordinary step; the page made of it."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conftest import ROOT  # noqa: E402

from benchmarks.device_card import (  # noqa: E402
    cards,
    command,
    gpu_validation,
    predictions,
)
from benchmarks.device_card.cards import CHANNELS, MEMORY, PIPELINE, STEP, Card, Check, stage_names  # noqa: E402
from benchmarks.device_card.command import main  # noqa: E402
from benchmarks.device_card.stream_pipeline import SharedPipeline  # noqa: E402
from benchmarks.device_card.whole_steps import WholeSteps  # noqa: E402
from simulator.files import read_profile, to_json  # noqa: E402
from traces.capture.fx_steps import trace  # noqa: E402
from traces.zoo.networks import load  # noqa: E402

NAME = "vgg_digits-float32"
QUICK = ["--device", "cpu", "--quick", "--models", "vgg_digits", "--dtypes", "tf32,float32"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card")
    assert main(["--output", str(folder), *QUICK]) == 0
    return folder


def card_in(folder: Path) -> Card:
    return cards.read_card(folder / "cards" / f"{NAME}.json")


def test_everything_is_measured_or_says_why_not(made: Path) -> None:
    card = card_in(made)
    assert {check.kind for check in card.checks} == set(gpu_validation.TITLES)
    assert all(check.predicted and check.predicted > 0 for check in card.checks)
    for check in card.checks:
        needs_cuda = check.kind == MEMORY
        assert (check.measured is None) == bool(check.skipped)
        assert needs_cuda == ("needs a CUDA device" in check.skipped)
        assert (check.kind == STEP) == (check.no_graph == "needs a CUDA device")


def test_a_profile_is_captured_as_by_itself(made: Path) -> None:
    profile = read_profile(made / "profiles" / f"{NAME}.json")
    assert (profile.model, profile.dtype, profile.batch_size <= 4) == ("vgg_digits", "float32", True)
    assert profile.notes.endswith("network of Shardscope's zoo")
    assert profile.command.startswith("python -m benchmarks.device_card --output")
    assert not (made / "profiles" / "vgg_digits-tf32.json").exists()
    # as many threads as what is measured against it
    assert profile.device == cards.read_copies(made / "copies.json").device


def test_copies_say_which_directions_need_a_gpu(made: Path) -> None:
    copies = cards.read_copies(made / "copies.json")
    assert [size for size, _ in copies.curves["within the device"]] == [4096, 65536]
    assert set(copies.skipped) == {"host to device", "device to host"}


def test_what_is_there_is_not_made_again(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.json")}
    assert main(["--output", str(made), *QUICK]) == 0
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*.json")} == before


def test_only_what_was_not_measured_is_measured(made: Path, tmp_path: Path) -> None:
    for part in ("profiles", "cards"):
        (tmp_path / part).mkdir()
    (tmp_path / "copies.json").write_text((made / "copies.json").read_text())
    (tmp_path / "profiles" / f"{NAME}.json").write_text((made / "profiles" / f"{NAME}.json").read_text())
    card = card_in(made)
    first, *others = card.checks
    broken_off = replace(card, checks=(replace(first, measured=None), *others))
    (tmp_path / "cards" / f"{NAME}.json").write_text(to_json(broken_off))
    assert main(["--output", str(tmp_path), *QUICK]) == 0
    completed = card_in(tmp_path)
    assert completed.checks[0].measured is not None and completed.checks[0].predicted == first.predicted
    assert completed.checks[1:] == card.checks[1:]


def test_time_that_is_over_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path), *QUICK, "--minutes", "-1"]) == 1
    assert "-1 minutes are over; 3 of 3 left, from copies on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda:99"], "device is cuda:99"),
        (["--device", "cpu", "--models", "vgg61"], "unknown model 'vgg61'"),
        (["--device", "cpu", "--dtypes", "float23"], "unknown dtype 'float23'"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_it_runs_without_the_packages_of_the_simulator(made: Path, tmp_path: Path) -> None:
    """Predictions are then missing, and the page makes the same ones from the profile."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['numpy', 'networkx', 'simpy', 'pydantic', 'yaml']))\n"
        f"from benchmarks.device_card.command import main; sys.exit(main({['--output', str(tmp_path), *QUICK]!r}))"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, cwd=ROOT, capture_output=True)
    card = card_in(tmp_path)
    assert card.unpredicted.endswith("is not installed here")
    assert {check.predicted for check in card.checks} == {None}
    assert any(check.measured for check in card.checks)
    assert "| +" in gpu_validation.page(tmp_path) or "| -" in gpu_validation.page(tmp_path)
    again = predictions.predicted(card_in(made), made / "profiles" / f"{NAME}.json")
    assert again == card_in(made)


def test_torchvision_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    models = types.SimpleNamespace(inception_v3=lambda **options: options)
    fake: Any = types.ModuleType("torchvision")
    fake.models, fake.__version__, fake.__spec__ = models, "0.99", types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    network, source = command.network_of("inception_v3")
    assert source == "torchvision 0.99"
    assert (network.input_shape, network.build()["aux_logits"]) == ((3, 299, 299), False)  # type: ignore[index]
    assert command.network_of("vit_b16")[1] == "Shardscope's zoo"


def test_stages_are_cut_where_the_seconds_halve() -> None:
    layers = [("a", 1.0), ("b", 1.0), ("c", 4.0), ("d", 3.0), ("e", 3.0)]
    assert stage_names(layers, 2) == [["a", "b", "c"], ["d", "e"]]
    assert stage_names(layers, 4) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert stage_names([("a", 9.0), ("b", 0.0), ("c", 0.0)], 3) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_shared_pipeline_trains_as_one_step_in_micro_batches_does(stages: int) -> None:
    """resnet_small: values skip within blocks, and stages cut blocks."""
    trained = []
    for piped in (True, False):
        torch.manual_seed(0)
        whole = WholeSteps(load("resnet_small"), torch.device("cpu"), torch.float32, 4)
        whole.optimizer.param_groups[0]["lr"] = 0.1
        names = [step.name for step in trace(whole.trained)]
        cut = stage_names([(name, 1.0) for name in names], stages)
        step = SharedPipeline(whole, cut, 2).step if piped else lambda whole=whole: whole.step(2)
        torch.manual_seed(1)
        for _ in range(2):
            step()
        trained.append([parameter.detach() for parameter in whole.trained.parameters()])
    for piped_parameter, parameter in zip(*trained, strict=True):
        torch.testing.assert_close(piped_parameter, parameter)


def test_the_page_shows_stored_numbers_and_whether_promises_held(made: Path, tmp_path: Path) -> None:
    """Made-up measurements: predictions exactly right, but for accumulation, 10 % too long."""
    for part in ("profiles", "cards"):
        (tmp_path / part).mkdir()
    (tmp_path / "profiles" / f"{NAME}.json").write_text((made / "profiles" / f"{NAME}.json").read_text())
    (tmp_path / "copies.json").write_text((made / "copies.json").read_text())

    def as_measured(check: Check) -> Check:
        assert check.predicted
        wrong = 1.1 if check.kind == "accumulation" else 1.0
        return replace(check, measured=check.predicted / wrong, spread=0.0, skipped="", graph=check.predicted / 1.25)

    card = replace(card_in(made), checks=tuple(map(as_measured, card_in(made).checks)))
    (tmp_path / "cards" / f"{NAME}.json").write_text(to_json(card))
    text = gpu_validation.page(tmp_path)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert rows["gradient accumulation"].endswith("| 5 | 10.0% | +10.0% | +10.0% | 3% each | **no** |")
    assert rows["peak memory"].endswith("| 0.0% | +0.0% | +0.0% | 10% each | yes |")
    assert rows["sum of layers, CNNs at batch >= 32"].endswith("| not measured |")
    assert "Not measured" not in text and "+25.0%" in text
    assert "needs a CUDA device" in text  # host to device, in the copies
    for title in gpu_validation.TITLES.values():
        assert f"## {title}\n" in text


def test_the_page_lists_what_is_missing(made: Path) -> None:
    text = gpu_validation.page(made)
    memory = sum(check.kind == MEMORY for check in card_in(made).checks)
    assert f"- needs a CUDA device, whose allocator counts: {memory}, such as vgg_digits float32 memory batch 1" in text


def test_a_card_asks_for_what_was_not_captured() -> None:
    layer = {
        "name": "a",
        "forward_s": 1.0,
        "backward_s": 1.0,
        "parameter_bytes": 4,
        "scaling": [{"channel_fraction": 0.5}],
    }
    card = cards.card_of({"model": "m", "device": "d", "batch_size": 32, "layers": [layer]}, "2026-01-01")
    sizes = {kind: [c.batch_size for c in card.checks if c.kind == kind] for kind in (STEP, MEMORY, PIPELINE)}
    assert sizes[STEP] == [32, 6, 12, 24]
    assert sizes[MEMORY] == [1, 2, 4, 6, 8, 12, 16, 24, 32]
    assert sizes[PIPELINE] == [32, 32]
    assert [c.fraction for c in card.checks if c.kind == CHANNELS] == [0.75, 0.375, 0.1875]
    assert json.loads(to_json(card))["checks"][0] == {"kind": "step", "batch_size": 32}
