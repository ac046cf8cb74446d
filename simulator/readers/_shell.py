"""A shell script as the words of its commands."""

from __future__ import annotations

import ast
import operator
import re
import shlex

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
             ast.Mod: operator.mod}  # fmt: skip
COMPARISONS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne, "-eq": operator.eq, "-ne": operator.ne,
               "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt, "-le": operator.le}  # fmt: skip
STATEMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)(?P<more>\+?)="
    r"(?:\((?P<array>(?>\"[^\"]*\"|'[^']*'|\$\(\([^\n]*?\)\)|\$\([^()\n]*\)|[^()\"'])*+)\)|\"(?P<quoted>[^\"]*)\""
    r"|'(?P<plain>[^']*)'|(?P<word>(?>\$\(\([^\n]{0,200}?\)\)|\S)*+))[ \t]*$"
    r"|^[ \t]*(?P<choice>if|elif)\b(?P<condition>[^\n]*)\n\s*then$|^(?P<end>else|fi)$",
    re.M,
)
"""A variable or an array that is set or added to; where a choice begins, goes on or ends."""
LONGEST_TEST = 500
"""Characters of a condition; of a longer one nobody knows."""
ARGUMENTS = r"\$(?:[@*]|\{[@*][^}]*\})"
"""What the script itself was started with, which nobody knows here."""


def commands(text: str) -> list[list[str]]:
    """The words of each command, without redirections, variables put in; a line that starts with - goes on.

    Raises ValueError where a quotation does not end.
    """
    lines: list[list[str]] = [[]]
    full = re.sub(r"\n\s*\n", "\n", _expanded(text))  # without empty lines, over which the next search would go again
    words = iter(shlex.split(re.sub(r"\n(?!\s*-)", "\n;\n", full), comments=True))
    for word in words:
        if re.fullmatch(r"[|&;]+", word):
            lines.append([])
        elif re.fullmatch(r"\d*&?[<>]+&?", word):
            next(words, None)  # the file
        elif not re.match(r"\d*&?[<>]", word):
            lines[-1] += word.split() if re.match(r"--[\w-]+\s", word) else [word]  # an array's "--option value"
    return lines


def _expanded(text: str) -> str:
    """Lines joined, the values of the script's own variables and arrays put in, and of choices what is chosen.

    Both ways stay where nobody knows; variables of others are empty.
    """
    text = re.sub(r"\\\n", " ", "\n".join(map(_uncommented, text.replace("\r", "").split("\n"))))
    text = re.sub(r"(?:;|\n)[ \t]*(then|else|fi)\b[ \t]*;?", r"\n\1\n", re.sub(r";[ \t]*elif\b", "\nelif", text))
    text = re.sub(r"(?m)^([ \t]*[A-Za-z_]\w*=[^\s;()\"']*);|;[ \t]*(?=(?:export[ \t]+)?[A-Za-z_]\w*=)", r"\1\n", text)
    text = re.sub(f'"{ARGUMENTS}"|{ARGUMENTS}', "", text)
    values: dict[str, str] = {}

    def put_in(part: str) -> str:
        def value(match: re.Match[str]) -> str:
            name, default = match.group(1) or match.group(2) or match.group(4), match.group(3)
            return values.get(name, default or "")

        def calculated(match: re.Match[str]) -> str:
            return _calculated(re.sub(r"[A-Za-z_]\w*", lambda name: values.get(name[0], name[0]), match[1]))

        part = re.sub(r'"\$\{(\w+)\[@\]\}"|\$\{(\w+)(?:\[@\]|:?[-=]([^}]*))?\}|\$([A-Za-z_]\w*)', value, part)
        return re.sub(r"\$\(\((.{0,200}?)\)\)(?!\))", calculated, part)

    lines, position = [], 0
    choices = [(True, True)]  # whether what stands here runs, and whether what comes otherwise cannot
    for match in [*STATEMENT.finditer(text), None]:
        runs = choices[-1][0]
        lines.append(text[position : match.start() if match else None] if runs else "")
        if match is None:
            break
        position = match.end()
        if match["choice"] == "if" or (match["choice"] and len(choices) > 1):
            over = match["choice"] == "elif" and choices.pop()[1]
            holds = not over and _holds(put_in(match["condition"]))
            choices.append((choices[-1][0] and holds is not False, over or holds is True))
        elif match["end"] and len(choices) > 1:
            over = choices.pop()[1]
            choices += [(choices[-1][0] and not over, True)] * (match["end"] == "else")
        elif match["name"] and runs:
            said = next(match[name] for name in ("array", "quoted", "plain", "word") if match[name] is not None)
            before = values.get(match["name"], "") + " " * (match["array"] is not None) if match["more"] else ""
            values[match["name"]] = before + put_in(said).replace("\n", " ")
    return put_in("".join(lines))


def _uncommented(line: str) -> str:
    quote = ""
    for at, letter in enumerate(line):
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        elif letter == "#" and not (quote or line[:at][-1:].strip()):
            return line[:at]
    return line


def _holds(condition: str) -> bool | None:
    """Whether a test of words, numbers or emptiness does; None: nobody knows."""
    if len(condition) > LONGEST_TEST:
        return None
    try:
        words = [word for word in shlex.split(condition) if word not in ("[", "]", "[[", "]]")]
    except ValueError:
        return None
    for joint, ends in (("||", True), ("&&", False)):
        if joint in words:
            at = words.index(joint)
            parts = [_holds(shlex.join(part)) for part in (words[:at], words[at + 1 :])]
            return ends if ends in parts else None if None in parts else not ends
    if any(letter in word for word in words for letter in "$*?`"):
        return None
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return bool(words[1]) == (words[0] == "-n")
    if len(words) != 3 or words[1] not in COMPARISONS:
        return None
    own, other = words[::2]
    if words[1].startswith("-"):
        numbers = [int(word) for word in (own, other) if re.fullmatch(r"-?\d{1,18}", word)]
        return bool(COMPARISONS[words[1]](*numbers)) if len(numbers) == 2 else None
    return bool(COMPARISONS[words[1]](own, other))


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
