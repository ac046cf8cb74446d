"""What an importer is told beside the files, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.curve import Curve
from simulator.errors import InputError
from simulator.workload import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Everything that a file may leave unsaid. batch_sizes: one for all files, or one for each.

    model: a name in the zoo or package.module:callable, whose input_shape, classes and vocabulary are as in
    `traces.zoo.networks.load`; for formats that hold the network's structure, the profile's name. force: accept layers
    that do not add up to the step.
    """

    model: str = ""
    batch_sizes: tuple[int, ...] = ()
    input_shape: tuple[int, ...] | None = None
    classes: int | None = None
    vocabulary: int | None = None
    dtype: str | None = None
    device: str = ""
    force: bool = False
    command: str = ""

    def batch_size(self, file: int, files: int) -> int | None:
        """The batch size of one of several files; None where the options do not say it."""
        if len(self.batch_sizes) not in (0, 1, files):
            raise InputError(
                f"batch_size is {self.batch_sizes}: it is one number for all files or one for each of the {files}"
            )
        return self.batch_sizes[file if len(self.batch_sizes) > 1 else 0] if self.batch_sizes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A profile, or None from files of communication alone; curves by collective and devices; lines to print."""

    profile: Profile | None
    collectives: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
