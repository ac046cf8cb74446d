"""Every file format that Shardscope reads and writes: JSON profiles and plans, YAML clusters and presets.

Each file carries `"schema": 1` and the fields of one dataclass, under the same names; fields that hold their
default may be left out. Reading is strict: an unknown, missing, repeated or mistyped key is one InputError that
names the file, the place, the value and the rule. Writing goes to a temporary name in the same folder and is
renamed, so that no reader ever sees half a file.

Only the standard library is imported here, so that a machine with torch alone can write the profiles it captures;
pydantic and yaml load when a file is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simulator import file_gate, owned_files, repetition
from simulator.errors import InputError, require_name
from simulator.file_content import SCHEMA as SCHEMA
from simulator.file_content import file_kind, in_si_units, kind_of, validated
from simulator.workload import Profile

if TYPE_CHECKING:
    from simulator.plan import Plan

T = TypeVar("T")
YAML = (".yaml", ".yml")
"""Suffixes of YAML files."""


@dataclasses.dataclass(frozen=True)
class Shipped:
    """Files that come with Shardscope by name: those of a suffix in a folder of a package; what: one, in a refusal."""

    what: str
    package: str
    folder: str
    suffix: str = ".json"

    def names(self) -> tuple[str, ...]:
        """Of all, sorted."""
        folder = resources.files(self.package) / self.folder
        files = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return tuple(sorted(file.removesuffix(self.suffix) for file in files if file.endswith(self.suffix)))

    def file(self, name: str) -> Path:
        """The one called `name`. Raises UnknownNameError."""
        require_name(self.what, name, self.names())
        return Path(str(resources.files(self.package) / self.folder / f"{name}{self.suffix}"))

    def path(self, source: str | Path) -> Path:
        """A file as it stands, or the one of a name. Raises UnknownNameError where it is neither."""
        return Path(source) if is_path(source) else self.file(str(source))


PROFILES = Shipped("profile (and no such file)", "traces", "library")


def read_profile(source: str | Path) -> Profile:
    """The profile in a JSON file, or in the library under a name such as "vgg16".

    Raises InputError when its content breaks a rule, UnknownNameError when there is neither file nor name,
    OSError when the file cannot be read.
    """
    return read_json(PROFILES.path(source), Profile, _unfolded)


def library() -> tuple[str, ...]:
    """Names of the profiles that come with Shardscope, sorted."""
    return PROFILES.names()


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write `profile` as JSON, one layer per line and repeated blocks once."""
    plain = {"schema": SCHEMA, **_plain(profile)}
    write_text_atomic(path, _json({**plain, "layers": repetition.folded(plain["layers"])}))


def read_plan(path: str | Path) -> Plan:
    """The plan in a JSON file. Raises InputError when its content breaks a rule, OSError when unreadable."""
    from simulator.plan import Plan

    return read_json(Path(path), Plan)


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write `plan` as JSON, one layer's sharding per line."""
    write_json(plan, path)


def write_json(value: Any, path: str | Path) -> None:
    """Write a dataclass as JSON, as `read_json` reads it."""
    write_text_atomic(path, to_json(value))


def write_yaml(value: Any, path: str | Path) -> None:
    """Write a dataclass as YAML, as `read_yaml` reads it."""
    import yaml

    plain = {"schema": SCHEMA, **_plain(value)}
    write_text_atomic(path, yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=1000))


def read_yaml(path: Path, kind: type[T]) -> T:
    """The `kind` (a dataclass) that a YAML file holds. Raises InputError or OSError."""
    try:
        content = file_gate.yaml_content(file_gate.read_text(path, file_gate.MOST_YAML_BYTES))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return validated(path, in_si_units(content, kind, path), kind)


def check_writable(path: str | Path, suffixes: Sequence[str] = ()) -> None:
    """Raise InputError where `path` cannot be written, before the long work whose result it is to hold.

    suffixes: of files of its kind; another one is refused, none (as of /dev/null) is not. What killed processes left
    half-written beside it goes.
    """
    target = Path(path).resolve()
    folder = target.parent
    if str(path) == "-":
        return
    if target.is_dir():
        raise InputError(f"output {path}: it is a folder; name a file")
    if suffixes and target.suffix not in ("", *suffixes):
        raise InputError(f"output {path}: its suffix is not that of what is written, {' or '.join(suffixes)}")
    if not os.access(folder, os.W_OK):
        why = "is not there" if not folder.exists() else "cannot be written to"
        raise InputError(f"output {path}: folder {folder} {why}; name another")
    owned_files.remove_unfinished(folder)


def write_text_atomic(path: str | Path, text: str) -> None:
    """Write `text` to `path` whole or not at all; "-" is standard output. Raises OSError.

    Something that exists and is no regular file, such as /dev/null or a pipe, is written to as it stands.
    """
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_bytes_atomic(path, text.encode("utf-8"))


def write_bytes_atomic(path: str | Path, content: bytes) -> None:
    """Write `content` to the file `path` whole or not at all. Raises OSError, with the name of that file."""
    target = Path(path).resolve()
    regular = target.is_file() or not target.exists()
    written = owned_files.unfinished(target) if regular else target
    try:
        written.write_bytes(content)
        if regular:
            written.replace(target)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)  # the user's file, not the temporary one; a full disk names none
        raise
    finally:
        if regular:
            with contextlib.suppress(OSError):
                written.unlink()


def is_path(source: str | Path) -> bool:
    """Whether `source` is a file's path; a bare word that names no file is looked up as a name."""
    suffixes = (".json", *YAML)
    return isinstance(source, Path) or Path(source).is_file() or Path(source).suffix in suffixes or os.sep in source


def _unfolded(content: Any) -> Any:
    """A profile's mapping with its repeated blocks written out."""
    if not isinstance(content, dict) or not isinstance(content.get("layers"), list):
        return content
    return {**content, "layers": repetition.unfolded(content["layers"])}


def read_json(path: Path, kind: type[T], prepare: Callable[[Any], Any] = lambda content: content) -> T:
    """The `kind` (a dataclass) that a JSON file holds, once `prepare` was applied. Raises InputError or OSError."""
    try:
        content = prepare(file_gate.json_content(file_gate.read_text(path)))
    except InputError as error:
        hint = f"; a {file_kind(kind)} file is JSON{', and its name says YAML' if path.suffix in YAML else ''}"
        raise InputError(f"{path}: {error}{hint if 'JSON' in str(error) else ''}") from None
    return validated(path, content, kind)


def kind_of_file(path: Path) -> str:
    """What kind of file of ours, or of those that are taken for ours, it is; empty where that is not known."""
    try:
        text = file_gate.read_text(path)
        return kind_of(file_gate.yaml_content(text) if path.suffix in YAML else file_gate.json_content(text))
    except (InputError, OSError):
        return ""


def _plain(value: Any) -> Any:
    """`value` in dicts, lists and scalars; dataclass fields that hold their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(part) for name, part in _told(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _told(value: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if part != default:
            yield field.name, part


def plain(value: Any) -> dict[str, Any]:
    """A dataclass in dicts, lists and scalars, as its file holds it but for the schema."""
    content: dict[str, Any] = _plain(value)
    return content


def to_json(value: Any) -> str:
    """JSON with one top-level key per line, and one entry per line of those that hold objects."""
    return _json({"schema": SCHEMA, **_plain(value)})


def _json(plain: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_block(part)}" for key, part in plain.items()) + "\n}\n"


def _block(part: Any) -> str:
    entries = list(part.values() if isinstance(part, dict) else part) if isinstance(part, dict | list) else []
    if not entries or not isinstance(entries[0], dict):
        return _line(part)
    if isinstance(part, dict):
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_line(entry)}" for key, entry in part.items()) + "\n}"
    return "[\n" + ",\n".join(f"  {_line(entry)}" for entry in part) + "\n]"


def _line(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, allow_nan=False)
