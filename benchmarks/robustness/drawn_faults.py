"""Faults drawn by rules from the source of what decides numbers: each changes one place of one file.

    operators       + and -, * and /, // and /, `and` and `or`, `not` and - before a value dropped
    comparisons     < and <=, > and >=, == and !=, `is` and `is not`, `in` and `not in`
    constants       a whole number one more, another number twice as much, True and False
    dropped terms   one of two operands, one argument of min or max
    swapped         the first two arguments of a call; min and max

What a message says is left alone: errors, docstrings, annotations; what only guards: assertions, a strict `zip`; and
calls whose arguments may as well be swapped.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeGuard

from benchmarks import ROOT

AREAS: dict[str, str] = {
    "simulator/lowering/costs": "costs typical_scaling scaling sample_work runtime_overheads closed_forms "
    "recomputation mixtures symmetry",
    "simulator/lowering/exchange": "exchange_bytes sharding_cases transformer_cases regions movement messages spatial "
    "collectives experts megatron local_search",
    "simulator/lowering/parameters": "parameter_states sharding_cases tied_parameters collectives closed_forms "
    "one_answer",
    "simulator/lowering/schedules": "schedules pipeline weight_stashing recomputation closed_forms",
    "simulator/lowering/symmetry": "symmetry one_answer parameter_states",
    "simulator/lowering/tasks/rendezvous.py": "rendezvous observed schedules",
    "simulator/lowering": "closed_forms surviving_faults schedules recomputation parameter_states launches "
    "launch_memory experts attention structure weight_stashing sharding_cases laws symmetry "
    "megatron sample_work collectives",
    "simulator/report/memory.py": "memory_levels memory_fit launch_memory surviving_faults recomputation result_laws",
    "simulator/report/interval.py": "interval dashboard_intervals",
    "simulator/engine": "engines_agree surviving_faults network blocking noise launches runtime token_buckets",
    "partitioners/_plan_search.py": "search",
    "partitioners/_search": "local_search strongest layerwise hypergraph_strategy search",
    "partitioners/_judge": "strongest layerwise search local_search",
    "partitioners/_stages": "stage_bounds pipeline block_layout parallel_plans balance megatron partitioners",
    "partitioners/_layerwise": "layerwise layerwise_costs",
    "partitioners/_grids": "grids stack_calibration model_command transformer_cases",
    "traces/capture": "capture_geometry capture capture_recorded clocks capture_suite capture_ranks attention",
    "traces/calibrate": "calibrate to_accuracy collective_times runtime_overheads",
    "dashboard/state": "dashboard_store dashboard_clusters dashboard_cards dashboard_plans dashboard_desk "
    "dashboard_figures dashboard_pages dashboard_configuration dashboard_state dashboard_validation "
    "dashboard_executions dashboard_drops",
}
"""What faults are drawn from, the narrowest first, and the tests of its behaviour beside those that import it."""
DIGESTS = ("golden", "pasted", "architecture", "names", "structure", "readme", "mutations", "screens", "browser")
"""Words in the names of tests that notice any change, or take a browser; none of them counts."""
LEFT_ALONE = frozenset(
    {"isinstance", "issubclass", "getattr", "cast", "field", "print", "Random", "array_equal", "gcd"}
)
_EXCHANGED = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.And: "or", ast.Or: "and",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_TOKEN = re.compile(r"//|<=|>=|==|!=|\bis\s+not\b|\bnot\s+in\b|\bis\b|\bin\b|\band\b|\bor\b|[-+*/<>]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What stands from a byte of a file's source on, and what takes its place; rule: what kind of fault it is."""

    rule: str
    at: int
    sound: str
    faulty: str


def drawn(count: int, seed: int) -> list[tuple[str, Change]]:
    """So many different changes with their files, each as likely as any other."""
    return Random(seed).sample(_every(), count)


@cache
def _every() -> list[tuple[str, Change]]:
    return [(file, change) for file in files() for change in changes((ROOT / file).read_text())]


def files() -> list[str]:
    """The files of AREAS, sorted."""
    paths = {path for area in AREAS for path in ([ROOT / area] if ".py" in area else (ROOT / area).rglob("*.py"))}
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if path.name != "library.py")


def tests_of(file: str) -> tuple[str, ...]:
    """Tests that import a file, fewest other imports first, and then those of its area."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    importing = sorted((count, name) for name, modules, count in _imports() if module in modules)
    area = next(area for area in AREAS if file.startswith(area))
    names = [name for _, name in importing[:6]] + [f"test_{word}.py" for word in AREAS[area].split()]
    kept = [name for name in names if (ROOT / "tests" / name).exists() and not any(word in name for word in DIGESTS)]
    return tuple(dict.fromkeys(kept))


@cache
def _imports() -> list[tuple[str, set[str], int]]:
    """Each test's name, the modules that it imports, and how many."""
    imports = []
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        modules = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        imports.append((path.name, modules, len(modules)))
    return imports


def changes(source: str) -> list[Change]:
    """Every change that the rules allow in a source, in its order."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    made = []
    for node in _walked(ast.parse(source)):
        for rule, (first, last), faulty in _changed(node, source, starts):
            sound = source.encode()[first:last].decode()
            if sound != faulty:
                made.append(Change(rule=rule, at=first, sound=sound, faulty=faulty))
    return made


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that compute something, not what messages are made of."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert) or getattr(node, "arg", "") == "strict":
        return
    yield node
    for name, part in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in part if isinstance(part, list) else [part]:
            if isinstance(child, ast.AST) and not (_is_rule(node) and child is not node.args[0]):
                yield from _walked(child)


def _is_rule(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node is `require(...)`, whose first argument alone decides something."""
    return isinstance(node, ast.Call) and _name(node).startswith("require") and bool(node.args)


Edit = tuple[str, tuple[int, int], str]


def _changed(node: ast.AST, source: str, starts: list[int]) -> Iterator[Edit]:
    """(rule, bytes from and to, new text) of each change of a node itself."""

    def span(part: ast.AST) -> tuple[int, int]:
        p: ast.expr = part  # type: ignore[assignment]
        return starts[p.lineno - 1] + p.col_offset, starts[(p.end_lineno or 1) - 1] + (p.end_col_offset or 0)

    def text(part: ast.AST) -> str:
        first, last = span(part)
        return source.encode()[first:last].decode()

    def between(rule: str, before: ast.AST, after: ast.AST, operator: type) -> Iterator[Edit]:
        first, last = span(before)[1], span(after)[0]
        match = _TOKEN.search(source.encode()[first:last].decode())
        if match and operator in _EXCHANGED:
            yield rule, (first + match.start(), first + match.end()), _EXCHANGED[operator]

    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr):
        yield from between("operator", node.left, node.right, type(node.op))
        for kept in (node.left, node.right):
            yield "dropped term", span(node), f"({text(kept)})"
    elif isinstance(node, ast.BoolOp):
        yield from between("operator", node.values[0], node.values[1], type(node.op))
        for i in range(len(node.values)):
            word = " and " if isinstance(node.op, ast.And) else " or "
            rest = word.join(f"({text(each)})" for j, each in enumerate(node.values) if j != i)
            yield "dropped term", span(node), f"({rest})"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from between("comparison", node.left, node.comparators[0], type(node.ops[0]))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "operator", span(node), f"({text(node.operand)})"
    elif isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes | type(None)):
        yield from (("constant", span(node), new) for new in _constants(node.value))
    elif isinstance(node, ast.Call):
        yield from _calls(node, span, text)


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float) and value != 0:
        yield repr(2 * value)


def _calls(node: ast.Call, span: Any, text: Any) -> Iterator[Edit]:
    name, arguments = _name(node), node.args
    if name in LEFT_ALONE or any(isinstance(each, ast.Starred) for each in arguments):
        return
    if name in ("min", "max", "minimum", "maximum") and len(arguments) > 1:
        other = name.replace("min", "MAX").replace("max", "min").replace("MAX", "max")
        head = text(node.func).removesuffix(name) + other
        yield "swapped", span(node.func), head
        yield from (("dropped term", span(node), f"({text(each)})") for each in arguments)
    elif len(arguments) > 1 and not name.startswith("require"):
        first, second = arguments[:2]
        start, end = span(first)[0], span(second)[1]
        yield "swapped", (start, end), f"{text(second)}, {text(first)}"


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
