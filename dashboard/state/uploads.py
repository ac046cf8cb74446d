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
MOST_LAYER_S, MOST_LAYER_BYTES = 1e5, 10**15
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
    require(len(profile.layers) <= MOST_LAYERS, "layers", len(profile.layers), f"at most {MOST_LAYERS} here")
    points = max(len(layer.scaling) for layer in profile.layers)
    require(points <= MOST_SCALING_POINTS, "scaling", points, f"at most {MOST_SCALING_POINTS} points a layer here")
    _require_real(profile)
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
    card = read(
        text, filename, lambda path: card_files.read_card(path if path.suffix == ".json" else _plain_yaml(path))
    )
    require(card.layers <= MOST_BLOCKS, "layers", card.layers, f"at most {MOST_BLOCKS} here")
    return card


def plan(text: bytes, filename: str) -> Plan:
    """The plan in `text`, as Export and `simulate --plan-out` write it. Raises InputError as `profile` does."""
    plan = read(text, filename, files.read_plan)
    require(len(plan.placements) <= MOST_LAYERS, "placements", len(plan.placements), f"at most {MOST_LAYERS} here")
    shards = sum(len(sharding.devices) for sharding in plan.placements.values())
    require(shards <= MOST_SHARDS, "shards", f"{shards:,}", f"at most {MOST_SHARDS:,} here")
    require(plan.batch_size <= MOST_SAMPLES, "batch_size", plan.batch_size, f"at most {MOST_SAMPLES:g} here")
    rule = f"at most {MOST_MICROBATCHES:g} here"
    require(plan.microbatches <= MOST_MICROBATCHES, "microbatches", plan.microbatches, rule)
    devices = max((max(sharding.devices) for sharding in plan.placements.values()), default=0)
    require(devices < MOST_CLUSTER_DEVICES, "devices", devices + 1, f"at most {MOST_CLUSTER_DEVICES} here")
    return plan


def _require_real(profile: Profile) -> None:
    """Raise InputError for times and sizes that no layer has, and that figures could not hold."""
    for layer in profile.layers:
        where = f"layer {layer.name!r}: "
        for name in ("forward_s", "backward_s", "update_s"):
            rule = f"a layer takes at most {MOST_LAYER_S:g} s here"
            require(getattr(layer, name) <= MOST_LAYER_S, where + name, getattr(layer, name), rule)
        for name in ("parameter_bytes", "output_bytes", "saved_bytes"):
            size_bytes, rule = getattr(layer, name), f"at most {MOST_LAYER_BYTES:g} bytes here"
            require(size_bytes <= MOST_LAYER_BYTES, where + name, size_bytes, rule)
        require(layer.flops <= 1e21, where + "flops", layer.flops, "at most 1e21 here")


def validation(text: bytes, filename: str) -> Validation:
    """The validation in `text`, as `shardscope validate` writes it. Raises InputError as `profile` does."""
    validation = read(text, filename, lambda path: files.read_json(path, Validation))
    require(
        len(validation.outcomes) <= MOST_OUTCOMES, "outcomes", len(validation.outcomes), f"at most {MOST_OUTCOMES} here"
    )
    return validation


def execution(text: bytes, filename: str) -> Execution:
    """The execution in `text`, as `shardscope execute` writes it. Raises InputError as `profile` does."""
    return read(text, filename, lambda path: read_execution(path, MOST_UNPACKED_BYTES))


def cluster(text: bytes, filename: str) -> ClusterFile:
    """The cluster in `text` (YAML), with the runtime measured on it. Raises InputError as `profile` does."""
    cluster = read(text, filename, lambda path: read_cluster_file(_plain_yaml(path)))
    require(len(cluster.devices) <= MOST_CLUSTER_DEVICES, "devices", len(cluster.devices),
            f"at most {MOST_CLUSTER_DEVICES} here")  # fmt: skip
    require(len(cluster.links) <= MOST_LINKS, "links", len(cluster.links), f"at most {MOST_LINKS} here")
    return cluster


def scenario(text: bytes, filename: str) -> Scenario:
    """The scenario in `text` (YAML). Raises InputError as `profile` does."""
    return read(text, filename, lambda path: read_scenario(_plain_yaml(path)))


def _plain_yaml(path: Path) -> Path:
    """`path`, whose YAML is small however often its parts refer to each other. Raises InputError."""
    _content(path)
    return path


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
            text, name = _unpacked(packed, Path(filename).name.lstrip(".")[:80] or "upload")
            (Path(folder) / name).write_bytes(text)
        try:
            return make(Path(folder))
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "").replace(folder, "what was opened")) from None


def read(text: bytes, filename: str, make: Callable[[Path], T]) -> T:
    """What `make` makes of a file with this content; its complaints name the user's file."""
    shown = Path(filename).name[:80] or "upload"
    rule = f"an upload has at most {MOST_UPLOAD_BYTES // 10**6} MB"
    require(len(text) <= MOST_UPLOAD_BYTES, "size", f"{len(text) / 1e6:.1f} MB", rule)
    text, name = _unpacked(text, shown)
    with temporary_folder() as folder:
        path = Path(folder) / f"upload{Path(name).suffix[:8]}"
        path.write_bytes(text)
        try:
            return make(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), shown)) from None


def _unpacked(packed: bytes, filename: str) -> tuple[bytes, str]:
    """What a gzip'ed upload holds, and its name without that ending; any other as it is. Raises InputError."""
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
