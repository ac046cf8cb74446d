"""A command line or a file before anybody has said what it means, and what a reader makes of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simulator import file_gate
from simulator.errors import InputError, require
from simulator.language_models.card_files import read_card
from simulator.language_models.device_model import CASTS, SCORES
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.readers._shell import commands

MOST_BYTES = 2**20
"""Of a script or a configuration."""
USUAL = (("false",), ("none",), ("0",), ("0.0",), ("fp32",))
"""What options say that change nothing."""
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""By what runtimes call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """What was started."""

    runtime: str
    """As `--runtime` names it."""
    card: ModelCard
    grid: TrainingGrid
    precision: str = "bf16"
    """Of parameters, or that of products where these are of 8 bits, one of `device_model.CASTS`."""
    gradient_dtype: str = ""
    """In which gradients are added up and summed; empty: as the stack has it."""
    attention: str | None = None
    """Its kernel, as `TrainingStack.with_attention` takes it."""
    overlaps: bool = False
    """Whether products and their operands, and tokens, move as the stack nemo-h100 has it."""
    fused_experts: bool = False
    """See `DeviceModel`."""
    overlaps_sums: bool = True
    """Whether gradients are summed beside the backward pass, not behind it."""
    overlaps_gathers: bool = True
    """Whether what is gathered behind an update may be gathered beside the next step, where the stack does so."""
    unread: tuple[str, ...] = ()
    """What may change a step and is not counted."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own, where it was started by options."""

    def described(self) -> str:
        """In one line."""
        grid = self.grid
        parts = [f"{name} {degree}" for name, degree in grid.degrees.items()]
        details = {
            f"{grid.recomputation} recomputation": grid.recomputation != "none",
            "dropout": self.card.dropout,
            "scores of the attention in memory": self.attention == SCORES,
            f"products in {self.precision}": CASTS.get(self.precision),
            f"gradients in {self.gradient_dtype}": self.gradient_dtype not in ("", DTYPES["fp32"]),
            "gradients summed behind the backward pass": grid.replicas > 1 and not self.overlaps_sums,
        }
        more = "".join(f", {words}" for words, there in details.items() if there)
        return (
            f"{self.runtime}: {self.card.described()}, {' x '.join(parts) or '1 device'}, ZeRO-{grid.zero_stage}, "
            f"micro-batches {grid.microbatch} x {grid.accumulation} of {self.card.sequence} tokens{more}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """options: of the script, without their dashes, with what follows them. content: of a file."""

    name: str
    script: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    nodes: int | None = None
    processes: int | None = None
    """Of each node."""
    devices: int | None = None
    model: str | None = None

    @property
    def world(self) -> int:
        """Devices in all. Raises InputError where nobody says."""
        started = self.nodes * self.processes if self.nodes and self.processes else None
        if self.devices and started and self.devices != started:
            raise InputError(f"devices is {self.devices}: {self.name} starts {self.nodes} x {self.processes} processes")
        if not (self.devices or started):
            raise InputError(f"{self.name}: it does not say on how many devices; add --devices N")
        return self.devices or started or 1

    @property
    def node_devices(self) -> int:
        return self.processes or 8

    def read_card(self, why: str = "") -> ModelCard:
        """The card that was named beside it. Raises InputError where none was, and says why one is needed."""
        if self.model is None:
            ways = "simulate CARD, compare CARD or check --model CARD"
            raise InputError(f"{self.name}: {why or 'it does not say what is trained'}; name a card, as in {ways}")
        return read_card(self.model)


class Options:
    """Options by name; the ones that were asked for are remembered."""

    def __init__(self, options: Mapping[str, tuple[str, ...]], where: str) -> None:
        self._options, self._where, self._read = options, where, set[str]()

    def has(self, *names: str) -> bool:
        """Whether one of them is there, and not false."""
        self._read.update(names)
        return any(name in self._options and self._options[name][:1] != ("false",) for name in names)

    def text(self, *names: str) -> str | None:
        """What follows the first of them that is there."""
        self._read.update(names)
        return next((" ".join(self._options[name]) for name in names if self._options.get(name)), None)

    def named(self, name: str, values: Mapping[str, str]) -> str | None:
        """Of `values`, that of the first word behind it that is one of them; where none is, it is not read."""
        words = re.findall(r"\w+", " ".join(self._options.get(name, ())))
        meant = next((values[word] for word in words if word in values), None)
        self._read.update([name] if meant or not words else ())
        return meant

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number, 1 or more, or from a default below on, which counts where none of the names is there. Raises
        InputError where there is none.

        Less layers than elsewhere may be 0 less.
        """
        text = self.text(*names)
        if text is None and default is not None and not any(name in self._options for name in names):
            return default
        if text is None or not re.fullmatch(r"-?[0-9][0-9_]{0,30}", text):
            raise InputError(f"{self._where}: {names[0]} is {text or 'missing'}: it is a whole number")
        least = 0 if names[0].endswith("less_layers") else min(1, 1 if default is None else default)
        value = int(text.replace("_", ""))
        require(value >= least, f"{self._where}: {names[0]}", value, f"it is at least {least}")
        return value

    def left(self, matters: re.Pattern[str]) -> tuple[str, ...]:
        """Those not read that may change a step, with their values."""
        unread = {name: words for name, words in self._options.items() if name not in self._read}
        meant = {name: words for name, words in unread.items() if words[:1] not in USUAL}
        return tuple(" ".join((name, *meant[name])) for name in sorted(meant) if matters.search(name))


def flat(content: Mapping[str, Any], before: str = "") -> dict[str, tuple[str, ...]]:
    """Of a file, by the path of each name, what is neither null nor an empty list."""
    named: dict[str, tuple[str, ...]] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            named |= flat(value, f"{before}{name}.")
        elif value not in (None, []):
            named[before + name] = (str(value).lower() if isinstance(value, bool) else str(value),)
    return named


def count_in(section: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of a file's section. Raises InputError where there is none and no default."""
    value = section.get(name, default)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is {value!r}: it is a whole number")
    return value


def grid_of(
    source: Source, *, tensor: int = 1, pipeline: int = 1, context: int = 1, batch: int | None = None,
    microbatch: int = 1, accumulation: int | None = None, **fields: Any,
) -> TrainingGrid:  # fmt: skip
    """The grid of so many devices; batch: sequences of a step. Raises InputError where degrees do not divide."""
    counts = {"tensor": tensor, "pipeline": pipeline, "context": context, "micro-batch": microbatch}
    for name, count in counts.items():
        require(count >= 1, f"{source.name}: {name}", count, "it is at least 1")
    group = tensor * pipeline * context
    if source.world % group:
        raise InputError(
            f"{source.name}: {source.world} devices are no multiple of tensor {tensor} x pipeline {pipeline} x "
            f"context {context}"
        )
    data = source.world // group
    if accumulation is None:
        batch = batch or data * microbatch
        if batch % (data * microbatch):
            raise InputError(f"{source.name}: a batch of {batch} is no multiple of {data} replicas x {microbatch}")
        accumulation = batch // (data * microbatch)
    return TrainingGrid(
        data=data, tensor=tensor, pipeline=pipeline, context=context, microbatch=microbatch,
        accumulation=accumulation, node_devices=source.node_devices, **fields,
    )  # fmt: skip


def source_of(launch: str | None, config: str | None, model: str | None, devices: int | None) -> Source:
    """What stands in a command line, a script or a file. Raises InputError, OSError."""
    if launch is not None:
        is_file = os.path.isfile(launch)  # of a line that is too long for a name, too
        text = file_gate.read_text(Path(launch), MOST_BYTES) if is_file else launch
        source = _of_command(text, launch if is_file else "--launch")
    else:
        source = Source(name=str(config), content=_content(Path(str(config))))
    names = ("job.config_file", "job.config-file", "config-file", "deepspeed", "deepspeed_config", "deepspeed-config",
             "yaml-cfg")  # fmt: skip
    named = next((source.options[name] for name in names if source.options.get(name)), None)
    if named and Path(named[0]).is_file():
        source = replace(source, content=_content(Path(named[0])))
    return replace(source, model=model, devices=devices)


def _content(path: Path) -> Mapping[str, Any]:
    """The mapping in a JSON, TOML or YAML file."""
    try:
        text = file_gate.read_text(path, MOST_BYTES)
        if path.suffix == ".toml":
            content = _toml(text)
        else:
            content = (file_gate.json_content if path.suffix == ".json" else file_gate.yaml_content)(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: it holds no configuration, which is a mapping of names to values")
    return content


def _toml(text: str) -> Any:
    import tomllib

    try:
        return file_gate.plain(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"not valid TOML, {error}") from None


def _of_command(text: str, name: str) -> Source:
    """The last command of a script that starts a Python program; what Slurm is told says the devices, too.

    The file of accelerate's own that it names is opened. Raises InputError, OSError.
    """
    try:
        lines = commands(text)
    except ValueError as error:
        raise InputError(f"{name}: not a command line, {error}") from None
    starts = [(line, at) for line, words in enumerate(lines) for at in range(len(words)) if _is_program(words, at)]
    if not starts:
        raise InputError(f"{name}: no Python program is started in it; give the torchrun line")
    last = starts[-1][0]
    at = next(at for line, at in starts if line == last)
    words = lines[last]
    script = words[at + 1] if words[at] == "-m" and at + 1 < len(words) else words[at]
    slurm = " ".join(re.findall(r"(?m)^#SBATCH[ \t]+([^#\n]*)", text)).split()
    before = [*slurm, *(word for line in lines[:last] for word in line), *words[:at]]
    own = Options({key.replace("_", "-"): value for key, value in _options(before).items()}, name)
    least, _, most = (own.text("nnodes") or "").partition(":")
    if most and most != least:
        raise InputError(f"{name}: nnodes is {least}:{most}, a range; say on how many nodes it ran")
    nodes = _number(own, "nnodes", "num-machines", "num-nodes", "nodes", "N")
    starter = re.search(r"\b(torchrun|torch\.distributed|accelerate|deepspeed)\b", " ".join(words[:at]))
    tasks = [] if starter else ["ntasks-per-node"]  # a task of Slurm's starts a starter, which starts several processes
    processes = _number(own, "nproc-per-node", "num-gpus", *tasks, "gpus-per-node", "gres")
    together = _number(own, "num-processes")
    if together and not processes:
        processes = together // (nodes or 1)
    file = own.text("config-file") if starter and starter[1] == "accelerate" else None
    said = own.text("mixed-precision")
    content = {**_content(Path(file)), **({"mixed_precision": said} if said else {})} if file else {}
    return Source(
        name=name, script=script, options=_options(words[at + 1 :]), processes=processes, content=content,
        nodes=nodes or (1 if processes else None),
    )  # fmt: skip


def _is_program(words: Sequence[str], at: int) -> bool:
    """Whether this word, or with -m the next one, is a Python program that starts no other one."""
    named = " ".join(words[at : at + 2]) if words[at] == "-m" else words[at]
    is_one = named.startswith("-m") or (named.endswith(".py") and not named.startswith("-"))
    return is_one and not re.search(r"\btorch[./]distributed\b|^-m (accelerate|deepspeed)\b", named)


def _number(own: Options, *names: str) -> int | None:
    """Of the first of these options that has one: 8 of "8", and of "gpu:8"."""
    matches = (re.match(r"(?:[\w:]*:)?(\d+)(?: |$)", own.text(name) or "") for name in names)
    return next((int(match[1]) for match in matches if match), None)


def _options(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Options without dashes and what follows each of them; "--a=b" is "--a b"."""
    started: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if re.fullmatch(r"[a-z_-]+:[a-z-]+", word):  # a choice of torchtitan's
            started[word] = []
        elif re.match(r"--?[A-Za-z]", word):
            name, _, value = word.lstrip("-").partition("=")
            started[name] = [value] if value else []
        elif name:
            started[name].append(word)
    return {name: tuple(values) for name, values in started.items()}
