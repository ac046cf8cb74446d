"""Writes the profiles of real GPUs that come with Shardscope, out of published measurements.

    python -m benchmarks.library.gpu_library [NAME ...] [--output FOLDER]

SHARDSCOPE_DATA says where the measurements are.

Every profile is what a reader makes of the files named here and nothing else: `shardscope import` of the formats that
it knows, `benchmarks.artefacts` of those of single projects. Prints time, size and ratio of each.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import ROOT
from benchmarks.artefacts import aceso, neusight, sailor, triosim
from benchmarks.pages.published import shared_data
from simulator import files
from simulator.workload import Profile
from traces.imports._imported import ImportOptions
from traces.imports._registry import import_files

LIBRARY = ROOT / "traces" / "library"
NOTICES = ROOT / "THIRD_PARTY.md"
PRESETS = ROOT / "simulator" / "network" / "presets"
STACKS = ROOT / "simulator" / "language_models" / "stacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where measurements come from. `folder` is theirs in SHARDSCOPE_DATA, `commit_file` the file that names it."""

    folder: str
    project: str
    address: str
    licence: str
    holder: str
    licence_file: str = "LICENSE"
    commit_file: str = "SOURCE.txt"

    def commit(self) -> str:
        """The commit in the file beside the data; empty where it names none."""
        path = shared_data() / self.folder / self.commit_file
        match = re.search(r"\b[0-9a-f]{7,40}\b", path.read_text(encoding="utf-8")) if path.is_file() else None
        return match.group() if match else ""

    def source(self) -> str:
        """One line: project, address, commit."""
        commit = self.commit()
        return f"{self.project}, {self.address}" + (f", commit {commit}" if commit else "")


HTA = Origin(
    folder="kineto",
    project="Holistic Trace Analysis",
    address="https://github.com/facebookresearch/HolisticTraceAnalysis",
    licence="MIT",
    holder="Meta Platforms, Inc. and affiliates",
    licence_file="LICENSE-hta",
)
TRIOSIM = Origin(
    folder="triosim",
    project="TrioSim",
    address="https://github.com/sarchlab/triosim",
    licence="MIT",
    holder="2023 Yifan Sun",
)
NEUSIGHT = Origin(
    folder="neusight",
    project="NeuSight",
    address="https://github.com/sitar-lab/NeuSight",
    licence="MIT",
    holder="2025 Georgia Institute of Technology and Microsoft Corporation",
)
ACESO = Origin(
    folder="aceso",
    project="Aceso (SuperScaler)",
    address="https://github.com/microsoft/SuperScaler",
    licence="MIT",
    holder="Microsoft Corporation",
)
PIPEDREAM = Origin(
    folder="pipedream",
    project="PipeDream",
    address="https://github.com/msr-fiddle/pipedream",
    licence="MIT",
    holder="2015 - present Microsoft Corporation",
    licence_file="LICENSE.PipeDream.txt",
)
SAILOR = Origin(
    folder="sailor",
    project="Sailor",
    address="https://github.com/eth-easl/sailor",
    licence="MIT",
    holder="2023 - present ETH Zurich",
    commit_file="COMMIT",
)
ORIGINS = (HTA, TRIOSIM, NEUSIGHT, ACESO, PIPEDREAM, SAILOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One profile, and the files that it is made of."""

    origin: Origin
    patterns: tuple[str, ...]
    """Of the files, in the origin's folder."""
    read: Callable[[Sequence[Path]], Profile | None]
    arguments: str = ""
    """What `shardscope import` is told beside the files; empty where it does not know their format."""

    def command(self, name: str) -> str:
        """The command that makes the profile under this name, with the files that it reads."""
        if self.arguments:
            return " ".join(("shardscope import", *self.patterns, self.arguments))
        return f"python -m benchmarks.library.gpu_library {name}  # of {' '.join(self.patterns)}"


def _imported(options: ImportOptions) -> Callable[[Sequence[Path]], Profile | None]:
    return lambda paths: import_files(paths, options).profile


def _kineto(name: str) -> Shipped:
    read = _imported(ImportOptions(model="resnet50", batch_sizes=(32,)))
    return Shipped(origin=HTA, patterns=(name,), read=read, arguments="--model resnet50 --batch-size 32")


def _triosim(model: str) -> Shipped:
    """Convolutions faster than the card's peak in float32 show that they ran in TensorFloat-32, torch's default."""
    return Shipped(
        origin=TRIOSIM,
        patterns=(f"{model}/trace.csv.gz",),
        read=lambda paths: triosim.read(paths[0], model, "NVIDIA H100", "tf32"),
    )


def by_neusight(card: str, model: str, *batches: int) -> Shipped:
    """NeuSight's files of a network on a card at several batch sizes."""
    patterns = tuple(f"{card}/{model}-{batch}.csv.gz" for batch in batches)
    return Shipped(origin=NEUSIGHT, patterns=patterns, read=neusight.read)


def _pipedream(model: str, batch: int) -> Shipped:
    read = _imported(ImportOptions(batch_sizes=(batch,), device="Tesla V100"))
    arguments = f"--batch-size {batch} --device 'Tesla V100'"
    return Shipped(origin=PIPEDREAM, patterns=(f"{model}.txt",), read=read, arguments=arguments)


def by_aceso(model: str) -> Shipped:
    """Aceso's tables of a network."""
    return Shipped(origin=ACESO, patterns=(f"{model}_mbs*_tp*_algo0.csv",), read=aceso.read)


def _sailor(degree: int) -> Shipped:
    device = f"{degree} x NVIDIA GH200" if degree > 1 else "NVIDIA GH200"
    return Shipped(
        origin=SAILOR,
        patterns=("profiles/OPT-350/GH-96/profile.json",),
        read=lambda paths: sailor.read(paths[0], degree, device),
    )


SHIPPED = {
    "alexnet_v100": _pipedream("alexnet", 256),
    "bert_large_mi250": by_neusight("AMD_Instinct_MI250", "bert_large-train-512", 2, 8),
    "bert_large_v100": by_neusight("Tesla_V100-PCIE-32GB", "bert_large-train-512", 2, 8),
    "gpt2_large_h100": by_neusight("NVIDIA_H100_80GB_HBM3", "gpt2_large-train-1024", 1, 4),
    "gpt_1_3b_v100": by_aceso("gpt_1_3B"),
    "opt_350m_4gh200": _sailor(4),
    "opt_350m_gh200": _sailor(1),
    "resnet50_a100": _kineto("resnet50-2xa100-ddp-step.json.gz"),
    "resnet50_h100": _triosim("resnet50"),
    "resnet50_v100": _kineto("resnet50-v100-full.json.gz"),
    "vgg13_h100": _triosim("vgg13"),
    "vgg16_v100": _pipedream("vgg16", 128),
    "wide_resnet_500m_v100": by_aceso("resnet_500M"),
}


def build(name: str) -> Profile:
    """One profile of the library, out of the published files."""
    shipped = SHIPPED[name]
    profile = build_from(shipped)
    return replace(
        profile,
        command=shipped.command(name),
        source=shipped.origin.source(),
        licence=shipped.origin.licence,
        attribution=f"Copyright (c) {shipped.origin.holder}",
    )


def build_from(shipped: Shipped) -> Profile:
    """What is read of the files. Raises FileNotFoundError without them."""
    with _folder(shipped.origin) as folder:
        paths = [path for pattern in shipped.patterns for path in sorted(folder.glob(pattern))]
        profile = shipped.read(paths)
    if profile is None:
        raise ValueError(f"{', '.join(shipped.patterns)}: these files hold no layers")
    return profile


@contextmanager
def _folder(origin: Origin) -> Iterator[Path]:
    """The origin's files; those that come packed are unpacked for the while."""
    folder = shared_data() / origin.folder
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        yield folder
        return
    with tempfile.TemporaryDirectory() as unpacked:
        for archive in archives:
            with tarfile.open(archive) as file:
                file.extractall(unpacked, filter="data")
        yield Path(unpacked)


def notices() -> str:
    """THIRD_PARTY.md: whose measurements the library holds, and their licences."""
    parts = [
        "# Measurements of others\n\nThe profiles named here, in `traces/library/`, were made from published "
        "measurements by `python -m benchmarks.library.gpu_library`. The terms of those measurements:\n"
    ]
    for origin in ORIGINS:
        names = [f"`{name}`" for name, shipped in SHIPPED.items() if shipped.origin is origin]
        licence = (shared_data() / origin.folder / origin.licence_file).read_text(encoding="utf-8")
        text = "\n".join(f"    {line}".rstrip() for line in licence.strip().splitlines())
        parts.append(f"## {origin.project}\n\n{', '.join(names)}\n\nFrom {origin.source()}.\n\n{text}\n")
    parts += [(folder / "NOTICE.md").read_text(encoding="utf-8") for folder in (STACKS, PRESETS)]
    return "\n".join(parts)


def main() -> None:
    """Write the profiles and the notices, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library.gpu_library")
    parser.add_argument("names", metavar="NAME", nargs="*", help="profiles to make (default: every one)")
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="where to (default: into the library)")
    args = parser.parse_args()
    folder, total = args.output or LIBRARY, 0
    for name in args.names or SHIPPED:
        start = time.perf_counter()
        profile = build(name)
        path = folder / f"{name}.json"
        files.write_profile(profile, path)
        size = path.stat().st_size
        total += size
        ratio = f"{profile.layers_to_step:.3f}" if profile.layers_to_step else "-"
        print(
            f"| {name} | {profile.device} | {profile.dtype} | {profile.batch_size} | {len(profile.layers)} | {ratio} "
            f"| {time.perf_counter() - start:.1f} s | {size / 1e3:.1f} kB |"
        )
    files.write_text_atomic(folder / NOTICES.name if args.output else NOTICES, notices())
    print(f"{total / 1e3:.0f} kB in all")


if __name__ == "__main__":
    main()
