"""Several recorded functions as one: it is called with what they read and returns what others read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx, nn


class FunctionGroup:
    """Runs functions in their order, as compiled Python, so that nothing stands between them.

    reads: what it is called with, nodes outside the group and parameters. results: its nodes that others read; it
    returns their values, as a tuple where there are several.
    """

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        inside = {node: f"v{number}" for number, node in enumerate(nodes)}
        self.reads: list[Any] = []
        self._names: dict[int, str] = {}
        self._inside, self._scope = inside, {}  # type: tuple[dict[fx.Node, str], dict[str, Any]]
        self.results = [node for node in nodes if any(user not in inside for user in node.users)] or [nodes[-1]]
        lines = [f"    {name} = {self._written(node)}" for node, name in inside.items()]
        returned = ", ".join(inside[node] for node in self.results)
        source = f"def group({', '.join(self._names.values())}):\n" + "\n".join(lines) + f"\n    return {returned}\n"
        exec(compile(source, "<recorded functions>", "exec"), self._scope)
        self._run = self._scope["group"]
        self.__name__ = "group"

    def __call__(self, *values: Any) -> Any:
        return self._run(*values)

    def _written(self, node: fx.Node) -> str:
        arguments = [self._text(item) for item in node.args]
        arguments += [f"{name}={self._text(item)}" for name, item in node.kwargs.items()]
        return f"{self._constant(node.target)}({', '.join(arguments)})"

    def _text(self, item: Any) -> str:
        """An argument as Python source: a name, or a container of names."""
        if isinstance(item, fx.Node) and item in self._inside:
            return self._inside[item]
        if isinstance(item, fx.Node | nn.Parameter):
            return self._read(item)
        if isinstance(item, slice):
            return f"slice({self._text(item.start)}, {self._text(item.stop)}, {self._text(item.step)})"
        if isinstance(item, tuple):
            return "(" + "".join(f"{self._text(part)}, " for part in item) + ")"
        if isinstance(item, list):
            return "[" + ", ".join(map(self._text, item)) + "]"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{self._text(key)}: {self._text(part)}" for key, part in item.items()) + "}"
        if item is None or (isinstance(item, bool | int | str) and not isinstance(item, Tensor)):
            return repr(item) if type(item) in (type(None), bool, int, str) else self._constant(item)
        return self._constant(item)

    def _read(self, item: Any) -> str:
        if id(item) not in self._names:
            self._names[id(item)] = f"a{len(self._names)}"
            self.reads.append(item)
        return self._names[id(item)]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name
