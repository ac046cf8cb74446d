"""Reading what a browser sends: nothing in it may run, read a file or keep the server busy. No Dash here."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dashboard.state.configuration import MOST_MICROBATCHES, MOST_SAMPLES
from simulator import file_gate, files
from simulator.elastic.scenario import Scenario, read_scenario
from simulator.errors import InputError, require
from simulator.file_content import kind_of
from simulator.language_models import card_files
from simulator.language_models.model_card import ModelCard
from simulator.network.catalogue import ClusterFile, read_cluster_file
from simulator.owned_files import temporary_folder
from simulator.plan import Plan
from simulator.workload import Profile
from traces.imports._registry import is_measurement, is_trace
from traces.results.executions import Execution, read_execution
from traces.results.validations import Validation

MOST_UPLOAD_BYTES = 20 * 10**6
MOST_LAYERS = 2000
MOST_BLOCKS = 200
MOST_SCALING_POINTS = 64
_MOST_OF_LAYER = {
    **dict.fromkeys(("forward_s", "backward_s", "update_s"), 1e5),
    **dict.fromkeys(("parameter_bytes", "output_bytes", "saved_bytes"), 1e15),
    "flops": 1e21,
}
MOST_SHARDS = 2_000_000
MOST_OUTCOMES = 2000
MOST_UNPACKED_BYTES = 40 * 10**6
MOST_CLUSTER_DEVICES = 1024
MOST_LINKS = 20_000
MOST_YAML_BYTES = 200_000
MOST_YAML_NODES = 50_000
KINDS = ("profile", "model card", "cluster", "plan", "scenario", "validation")
"""What a page opens of JSON and YAML, by the names of `kind_of`."""
T = TypeVar("T")


def content(url: str) -> bytes:
    """The file inside a browser's data URL. Raises InputError."""
    try:
        return base64.b64decode(url.partition(",")[2], validate=True)
    except ValueError:
        raise InputError("upload: the browser sent no readable file; try again") from None


def profile(text: bytes, filename: str) -> Profile:
    """The profile in `text`. Raises InputError naming the file, the place, the value and the rule."""
    profile = read(text, filename, files.read_profile)
    _at_most("layers", len(profile.layers), MOST_LAYERS)
    _at_most("scaling", max(len(layer.scaling) for layer in profile.layers), MOST_SCALING_POINTS)
    for layer in profile.layers:  # times and sizes that no layer has, and that figures could not hold
        for name, most in _MOST_OF_LAYER.items():
            _at_most(f"layer {layer.name!r}: {name}", getattr(layer, name), most)
    return profile


def kind(text: bytes, filename: str) -> str:
    """What a file is, by what it holds; a measurement is one that `import` reads. Raises InputError."""
    return read(text, filename, _kind)


def _kind(path: Path) -> str:
    if path.suffix == ".npz":
        return "execution"
    if is_trace(path):
        return "trace"
    if path.suffix not in (".json", *files.YAML):
        return "measurement" if is_measurement(path) else "log"
    if path.suffix == ".json" and card_files.is_card(path):
        return "model card"
    kind = kind_of(_content(path))
    if kind not in KINDS:
        what = f"this is a {kind}" if kind else "it is of no known kind"
        raise InputError(f"{path}: {what}; a page opens {', '.join(KINDS)}, traces, logs and runs (.npz)")
    return kind


def card(text: bytes, filename: str) -> ModelCard:
    """The model card in `text`. Raises InputError as `profile` does."""
    card = read(text, filename, card_files.read_card)
    _at_most("layers", card.layers, MOST_BLOCKS)
    return card


def plan(text: bytes, filename: str) -> Plan:
    """The plan in `text`, as Export and `simulate --plan-out` write it. Raises InputError as `profile` does."""
    plan = read(text, filename, files.read_plan)
    _at_most("placements", len(plan.placements), MOST_LAYERS)
    _at_most("shards", sum(len(sharding.devices) for sharding in plan.placements.values()), MOST_SHARDS)
    _at_most("batch_size", plan.batch_size, MOST_SAMPLES)
    _at_most("microbatches", plan.microbatches, MOST_MICROBATCHES)
    devices = max((1 + max(sharding.devices) for sharding in plan.placements.values()), default=0)
    _at_most("devices", devices, MOST_CLUSTER_DEVICES)
    return plan


def _at_most(name: str, value: float, most: float) -> None:
    """Raise InputError for what a page would take too long for, or could not draw."""
    require(value <= most, name, f"{value:,.12g}", f"at most {most:,.12g} here")


def validation(text: bytes, filename: str) -> Validation:
    """The validation in `text`, as `shardscope validate` writes it. Raises InputError as `profile` does."""
    validation = read(text, filename, lambda path: files.read_json(path, Validation))
    _at_most("outcomes", len(validation.outcomes), MOST_OUTCOMES)
    return validation


def execution(text: bytes, filename: str) -> Execution:
    """The execution in `text`, as `shardscope execute` writes it. Raises InputError as `profile` does."""
    return read(text, filename, lambda path: read_execution(path, MOST_UNPACKED_BYTES))


def cluster(text: bytes, filename: str) -> ClusterFile:
    """The cluster in `text` (YAML), with the runtime measured on it. Raises InputError as `profile` does."""
    cluster = read(text, filename, read_cluster_file)
    _at_most("devices", len(cluster.devices), MOST_CLUSTER_DEVICES)
    _at_most("links", len(cluster.links), MOST_LINKS)
    return cluster


def scenario(text: bytes, filename: str) -> Scenario:
    """The scenario in `text` (YAML). Raises InputError as `profile` does."""
    return read(text, filename, read_scenario)


def _content(path: Path) -> Any:
    """What a JSON or YAML file holds. Raises InputError."""
    text, is_yaml = file_gate.read_text(path), path.suffix in files.YAML
    rule = f"YAML has at most {MOST_YAML_BYTES // 1000} kB"
    require(not is_yaml or len(text) <= MOST_YAML_BYTES, "size", f"{len(text) / 1e3:,.0f} kB", rule)
    try:
        return file_gate.yaml_content(text, MOST_YAML_NODES) if is_yaml else file_gate.json_content(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def together(sent: Sequence[tuple[str, bytes]], make: Callable[[Path], T]) -> T:
    """What `make` makes of a folder of files, names and contents; its complaints name the user's files."""
    with temporary_folder() as folder:
        for filename, packed in sent:
            text, name = _unpacked(packed, Path(filename).name.lstrip(".")[-80:] or "upload")
            (Path(folder) / name).write_bytes(text)
        try:
            return make(Path(folder))
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "").replace(folder, "what was opened")) from None


def read(text: bytes, filename: str, make: Callable[[Path], T]) -> T:
    """What `make` makes of a file with this content; YAML is small however often its parts refer to each other."""

    def only(folder: Path) -> T:
        (path,) = folder.iterdir()
        if path.suffix in files.YAML:
            _content(path)
        return make(path)

    return together([(filename, text)], only)


def _unpacked(packed: bytes, filename: str) -> tuple[bytes, str]:
    """What a gzip'ed upload holds, and its name without that ending; any other as it is. Raises InputError."""
    rule = f"an upload has at most {MOST_UPLOAD_BYTES // 10**6} MB"
    require(len(packed) <= MOST_UPLOAD_BYTES, "size", f"{len(packed) / 1e6:.1f} MB", rule)
    if packed[:2] != b"\x1f\x8b":
        return packed, filename
    try:
        text = zlib.decompressobj(wbits=31).decompress(packed, MOST_UNPACKED_BYTES + 1)
    except zlib.error:
        raise InputError(f"{filename}: the gzip file is damaged; copy it again") from None
    if len(text) > MOST_UNPACKED_BYTES:
        rule = f"more than {MOST_UNPACKED_BYTES // 10**6} MB; `shardscope check` reads longer traces"
        raise InputError(f"{filename}: it unpacks to {rule}")
    return text, filename.removesuffix(".gz")
