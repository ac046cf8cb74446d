"""Repeated blocks in profile files: stored once, written out the same, refused when they are not blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator import files
from simulator.errors import InputError
from simulator.repetition import folded, unfolded
from simulator.workload import Layer, Profile


def chain(blocks: int, width: int = 8) -> list[dict[str, Any]]:
    """An embedding, blocks of a norm and a sum around it, and a head."""
    layers: list[dict[str, Any]] = [{"name": "embedding"}]
    for number in range(blocks):
        before = layers[-1]["name"]
        layers.append({"name": f"h.{number}.norm", "inputs": [before], "width": width})
        layers.append({"name": f"h.{number}.add", "inputs": [f"h.{number}.norm", before], "width": width})
    return [*layers, {"name": "head", "inputs": [layers[-1]["name"]]}]


def test_a_chain_of_equal_blocks_is_stored_once() -> None:
    embedding, block, head = folded(chain(5))
    assert (embedding["name"], head["inputs"]) == ("embedding", ["h.4.add"])
    assert (block["repeat"], block["input"], block["output"]) == (5, "embedding", "h.*.add")
    assert [layer["inputs"] for layer in block["layers"]] == [["<"], ["h.*.norm", "<"]]


@pytest.mark.parametrize("blocks", [0, 1, 2, 3, 24])
def test_folding_and_unfolding_give_the_same_layers(blocks: int) -> None:
    assert unfolded(folded(chain(blocks))) == chain(blocks)


def test_blocks_that_differ_stay_apart() -> None:
    layers = chain(4)
    layers[3]["width"] = 9
    entries = folded(layers)
    assert unfolded(entries) == layers
    assert [entry.get("repeat") for entry in entries] == [None, None, None, None, None, 2, None]
    assert entries[5]["first"] == 2


def test_a_profile_with_blocks_is_read_as_it_was_written(tmp_path: Path) -> None:
    layers = tuple(
        Layer(
            name=plain["name"],
            kind="linear",
            inputs=tuple(plain.get("inputs", ())),
            output_shape=(8, 1, 1),
            forward_s=1e-3,
            backward_s=2e-3,
            output_bytes=32,
        )
        for plain in chain(12)
    )
    profile = Profile(model="m", device="d", batch_size=4, layers=layers)
    files.write_profile(profile, tmp_path / "p.json")
    assert files.read_profile(tmp_path / "p.json") == profile
    assert len((tmp_path / "p.json").read_text().splitlines()) < 12


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"repeat": 0, "layers": [{"name": "a"}]}, "repeat is 0"),
        ({"repeat": "3", "layers": [{"name": "a"}]}, "repeat is '3'"),
        ({"repeat": 3, "layers": []}, "at least one layer"),
        ({"repeat": 3, "layers": [{"name": "*"}], "outputs": "x"}, "unknown key 'outputs'"),
        ({"repeat": 999_999, "layers": [{"name": "*.a"}]}, "repeat from 1 to 20,000"),
        ({"repeat": 19_999, "layers": [{"name": "*.a"}, {"name": "*.b"}]}, "more than 20,000 layers"),
    ],
)
def test_a_block_that_is_none_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        unfolded([entry])
