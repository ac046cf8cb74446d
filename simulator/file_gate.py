"""The one gate for the text of files: what does not become plain, bounded data is refused in one line.

What comes out are mappings with text as keys, lists, texts, booleans, None, finite numbers, whole ones of at most 63
bits, at most MOST_DEPTH deep and MOST_ENTRIES in all. Whatever a parser fails of (nesting, digits, aliases, tags) is an
InputError that says where. YAML is read as YAML 1.2 has it: a date, 010, 1:30 and yes are no numbers and no booleans.
Control characters, which a terminal would obey, become visible: "\\x1b[31m" is what a name shows.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any

from simulator.errors import InputError

MOST_BYTES = 512 * 2**20
MOST_YAML_BYTES = 32 * 2**20
MOST_DEPTH = 64
MOST_ENTRIES = 5_000_000
MOST_YAML_NODES = 1_000_000
"""Keys and values before aliases are followed: the parser takes half a kilobyte and some microseconds for each."""
MOST_WHOLE = 2**63 - 1
_BRACKET = re.compile(r"[\[\]{}]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The UTF-8 text of a file. Raises InputError where it is none or too long, OSError where it cannot be read."""
    with path.open("rb") as file:
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise InputError(f"it holds more than {most_bytes >> 20} MiB: such a file has less; is it the right one?")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8 text") from None


def json_content(text: str) -> Any:
    """The plain data in JSON. Raises InputError with line and column."""
    _check_depth(text)
    try:
        content = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        cut = "; the file ends too early" if error.pos >= len(text.rstrip()) else ""
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not valid JSON, {error.msg}{cut}") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON that can be read, {_first_sentence(error)}") from None
    return plain(content)


def yaml_content(text: str, most_nodes: int = MOST_YAML_NODES) -> Any:
    """The plain data in YAML, of at most so many keys and values, aliases followed. Raises InputError with line."""
    import yaml

    _check_depth(text)
    try:
        content = yaml.load(text, Loader=_yaml_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InputError(f"{where}not valid YAML, {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML, {' '.join(str(error).split())}") from None
    except InputError:
        raise
    except Exception as error:  # constructors of tags raise whatever their conversions do
        raise InputError(f"not YAML that can be read, {_first_sentence(error)}") from None
    return plain(content, 2 * most_nodes)


def table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The names of columns of a CSV file, and its rows by them. Raises InputError with path and line, or OSError."""
    try:
        lines = csv.reader(io.StringIO(read_text(path), newline=""), skipinitialspace=True, strict=True)
        cells = [(lines.line_num, [_plain_text(cell, "") for cell in row]) for row in lines if row]
    except (InputError, csv.Error) as error:
        raise InputError(f"{path}: {_first_sentence(error)}") from None
    names = cells[0][1] if cells else []
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"{path}: column {twice[:80]!r} stands twice; keep one")
    for number, row in cells[1:]:
        if len(row) != len(names):
            raise InputError(f"{path}, line {number}: {len(row)} cells: the first line names {len(names)} columns")
    return names, [dict(zip(names, row, strict=True)) for _, row in cells[1:]]


def arrays(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The arrays in a numpy archive (.npz), none of objects. Raises InputError where it is none or has more bytes."""
    with path.open("rb") as file:
        packed = file.read(most_bytes + 1)
    try:
        return _arrays(packed, most_bytes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # zip files and headers of arrays fail in a dozen ways
        raise InputError(f"{path}: not a numpy archive, {_first_sentence(error)}") from None


def _arrays(packed: bytes, most_bytes: int) -> dict[str, Any]:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = archive.infolist()
        unpacked = max(len(packed), sum(member.file_size for member in members))
        if unpacked > most_bytes:
            raise InputError(f"size unpacked is {unpacked / 1e6:,.0f} MB: at most {most_bytes / 1e6:,.0f} MB")
        for member in members:
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                shape, _, kind = np.lib.format.read_array_header_1_0(file)
            if version != (1, 0) or kind.hasobject or kind.itemsize * math.prod(shape) > member.file_size:
                raise InputError(f"{_plain_text(member.filename, '')[:80]} holds pickled objects, or less than it says")
    with np.load(io.BytesIO(packed), allow_pickle=False) as loaded:
        return dict(loaded)


def plain(content: Any, most_entries: int = MOST_ENTRIES) -> Any:
    """`content` with control characters made visible. Raises InputError where it is not plain, bounded data."""
    return _plain(content, "", 0, [most_entries])


def visible(text: str) -> str:
    """`text` with control characters as escapes; line ends and tabs stay."""
    return _CONTROL.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _plain(value: Any, where: str, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise InputError("it has too many entries: aliases or repeats make it larger than any file of ours")
    if depth > MOST_DEPTH:
        raise InputError(f"{where[:80]}: nested more than {MOST_DEPTH} deep, which no file of ours is")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(value, where)
    if isinstance(value, int):
        if abs(value) > MOST_WHOLE:
            raise InputError(f"{where or 'a number'} has {len(hex(value)) * 4} bits: whole numbers have at most 63")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where or 'a number'} is {value}: quantities are finite")
        return value
    if isinstance(value, dict):
        mapping = {
            _key(key, where): _plain(part, f"{where}.{key}" if where else str(key), depth + 1, left)
            for key, part in value.items()
        }
        if len(mapping) < len(value):
            raise InputError(f"{where or 'it'} has a key twice, once as a number; keep one")
        return mapping
    if isinstance(value, list):
        return [_plain(part, f"{where}[{i}]", depth + 1, left) for i, part in enumerate(value)]
    raise InputError(f"{where or 'it'} is a {type(value).__name__}: files hold text, numbers, lists and mappings")


def _plain_text(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where or 'a text'} holds half a character (a lone surrogate); write it whole") from None
    return visible(text)


def _key(key: Any, where: str) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise InputError(f"{where or 'it'} has the key {str(key)[:40]!r}: keys are names or whole numbers")
    return _plain_text(key, where) if isinstance(key, str) else str(key)


def _check_depth(text: str) -> None:
    """Refuse nesting that takes a parser's whole stack, or all the time of a scanner that looks ahead."""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match.group() in "[{" else -1
        if depth > 4 * MOST_DEPTH:
            line = text.count("\n", 0, match.start()) + 1
            raise InputError(f"line {line}: brackets are nested more than {4 * MOST_DEPTH} deep")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise InputError(f"key {key!r} stands twice in one object; keep one")
        mapping[key] = value
    return mapping


def _no_constant(name: str) -> float:
    raise InputError(f"{name} is no number: quantities are finite")


def _first_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()).partition(";")[0]
    return visible(f"{text[:120]}" if text else type(error).__name__)


@functools.cache
def _yaml_loader() -> type[Any]:
    """A safe loader of YAML 1.2's core: its numbers and booleans alone, and no key twice; compiled where it can be."""
    import yaml

    base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}
        nodes = depth = 0

        def descend_resolver(self, parent: Any, index: Any) -> None:
            """Called before each node: nothing here goes by paths, so it counts, before the stack or memory ends."""
            self.nodes, self.depth = self.nodes + 1, self.depth + 1
            if self.depth > MOST_DEPTH + 2 or self.nodes > MOST_YAML_NODES:
                deep = f"nested more than {MOST_DEPTH} deep, which no file of ours is"
                rule = deep if self.depth > MOST_DEPTH else f"more than {MOST_YAML_NODES:,} keys and values"
                raise InputError(f"line {parent.start_mark.line + 1}: {rule}")

        def ascend_resolver(self) -> None:
            self.depth -= 1

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str | int | float):
                    raise yaml.constructor.ConstructorError(None, None, "a key is no name", key_node.start_mark)
                if key in seen:
                    problem = f"key {key!r} stands twice; keep one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    def resolve(tag: str, pattern: str, first: str) -> None:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first))

    resolve("null", r"~|null|Null|NULL|", "~nN")
    Loader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile("$")))
    resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
    # Octal numbers are a surprise (010 is 8 to YAML 1.1), so what begins with 0 and goes on is text.
    resolve("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
    resolve("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
    resolve("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")
    return Loader
