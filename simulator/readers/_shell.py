"""A shell script as the words of its commands."""

from __future__ import annotations

import ast
import operator
import re
import shlex

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
             ast.Mod: operator.mod}  # fmt: skip
ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)="
    r"(?:\((.*?)\)|\"([^\"]*)\"|'([^']*)'|((?>\$\(\([^\n]{0,200}?\)\)|\S)*+))[ \t]*(?:#.*)?$",
    re.M | re.S,
)
ARGUMENTS = r"\$(?:[@*]|\{[@*][^}]*\})"
"""What the script itself was started with, which nobody knows here."""


def commands(text: str) -> list[list[str]]:
    """The words of each command, without redirections, variables put in; a line that starts with - goes on.

    Raises ValueError where a quotation does not end.
    """
    lines: list[list[str]] = [[]]
    words = iter(shlex.split(re.sub(r"\n(?!\s*-)", "\n;\n", _expanded(text)), comments=True))
    for word in words:
        if re.fullmatch(r"[|&;]+", word):
            lines.append([])
        elif re.fullmatch(r"\d*&?[<>]+&?", word):
            next(words, None)  # the file
        elif not re.match(r"\d*&?[<>]", word):
            lines[-1].append(word)
    return lines


def _expanded(text: str) -> str:
    """Lines joined, and the values of the script's own variables and arrays put in."""
    text = re.sub(r"\\\r?\n", " ", text)
    text = re.sub(f'"{ARGUMENTS}"|{ARGUMENTS}', "", text)
    values: dict[str, str] = {}

    def put_in(part: str) -> str:
        def value(match: re.Match[str]) -> str:
            name, default = match.group(1) or match.group(3), match.group(2)
            return values.get(name, default or "")

        def calculated(match: re.Match[str]) -> str:
            return _calculated(re.sub(r"[A-Za-z_]\w*", lambda name: values.get(name[0], name[0]), match[1]))

        part = re.sub(r"\$\{([A-Za-z_]\w*)(?:\[@\]|:-([^}]*))?\}|\$([A-Za-z_]\w*)", value, part)
        return re.sub(r"\$\(\((.{0,200}?)\)\)(?!\))", calculated, part)

    lines = []
    position = 0
    for match in ASSIGNMENT.finditer(text):
        lines.append(text[position : match.start()])
        said = next(group for group in match.groups()[1:] if group is not None)
        values[match.group(1)] = put_in(re.sub(r"(?m)#.*$", "", said)).replace("\n", " ")
        position = match.end()
    return put_in("".join([*lines, text[position:]]))


def _calculated(text: str) -> str:
    """Arithmetic of whole numbers; anything else as it stood."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return int(OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if not (isinstance(node, ast.Constant) and isinstance(node.value, int)):
            raise ValueError(text)
        return node.value

    try:
        return str(value(ast.parse(text.strip()[:200], mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return f"$(({text}))"
