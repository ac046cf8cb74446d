"""Networks of Hugging Face's transformers by configuration, and what is said where that package is absent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from simulator.errors import InputError, MissingExtraError
from traces.capture.command import capture
from traces.zoo.networks import load


def test_without_transformers_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="model 'hf:t5' needs transformers"):
        load("hf:t5")


def test_tiny_is_of_such_networks_alone() -> None:
    with pytest.raises(InputError, match="tiny: counts only for a network such as hf:t5"):
        load("vgg16", tiny=True)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("hf:t5", [("input_ids", (64,)), ("decoder_input_ids", (64,))]),
        ("hf:vit", [("pixel_values", (3, 224, 224))]),
        ("hf:gpt2", [("input_ids", (64,))]),
    ],
)
def test_inputs_follow_the_configuration(name: str, inputs: list[tuple[str, tuple[int, ...]]]) -> None:
    pytest.importorskip("transformers")
    assert [(each.name, each.shape) for each in load(f"{name} --tiny").all_inputs] == inputs


def test_a_configuration_is_captured(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "gpt2", "n_layer": 5, "n_embd": 32, "n_head": 4, "vocab_size": 100}))
    profile = capture(f"hf:{config}", 1, tiny=True, repeats=2, warmup=0, fractions=())
    blocks = {layer.name.split(".")[1] for layer in profile.layers if layer.name.startswith("h.")}
    assert blocks == {"0", "1"} and profile.step_s


def test_an_unknown_configuration_is_named() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InputError, match=r"hf:no_such_kind.*write hf: and a kind such as t5"):
        load("hf:no_such_kind")
