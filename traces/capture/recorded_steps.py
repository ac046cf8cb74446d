"""Recorded calls as steps: modules are steps, and the functions between two of them are one step together.

Functions wait until a module needs what they make, and then run in their order, those inside one module's call as one
step. So the views, masks and products of an attention are one layer, not twenty of a few microseconds each, whose
timing would cost more than they do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.utils import checkpoint

from simulator.errors import InputError
from traces.capture.checkpointed_call import GENERATOR, REENTRANT, CheckpointedCall
from traces.capture.fx_steps import TracedStep, Trained, trace, with_last_uses
from traces.capture.module_tracer import LayerNames
from traces.capture.recorded_calls import NOTHING_TO_TRAIN, recorded_calls
from traces.zoo.own_network import Data, data_tensors

RECORDED = "layers recorded while the network ran once on example data, whose control flow they follow"
_MAIN = ("scaled_dot_product_attention", "einsum", "bmm", "matmul", "softmax", "cross_entropy")
"""Functions that name the group in which they stand, the first ones before the others."""
_VIEWS = {
    *("view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "expand", "split", "chunk"),
    *("getitem", "flatten", "unflatten", "unbind", "to", "T", "mT", "movedim"),
}


class StepSource:
    """The steps of a network for data of any batch size.

    torch.fx follows its code where it can: one graph for all sizes. Otherwise it runs once on data of each size, and
    what it calls is recorded; `recorded` says which. Raises InputError where it does not run.
    """

    def __init__(self, trained: Trained, data: Data) -> None:
        self._trained = trained
        self._traced = _traced(trained) if isinstance(data, Tensor) else None
        self.recorded = self._traced is None
        if self._traced:
            _check_that_it_runs(trained, data)

    def steps(self, data: Data) -> list[TracedStep]:
        """The steps for data of this batch size, in execution order. Raises InputError, with the line that failed."""
        if self._traced:
            return self._traced
        with _errors_in_one_line(data), torch.random.fork_rng(devices=[]):
            graph = recorded_calls(self._trained, data)
        return _Arrangement(graph).steps()


def _check_that_it_runs(trained: Trained, data: Data) -> None:
    """Raise InputError where the network does not run on `data`, or has nothing to train."""
    with _errors_in_one_line(data), torch.random.fork_rng(devices=[]):
        loss = trained(data)
        if not loss.requires_grad:
            raise InputError(NOTHING_TO_TRAIN)


@contextmanager
def _errors_in_one_line(data: Data) -> Iterator[None]:
    """What the network's own code raises becomes an InputError; running out of memory stays what it is."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in data_tensors(data))
        raise InputError(
            f"model: its forward fails on data of shape {shapes}: {_reason(error)}; say what it reads with "
            "--input-shape and --vocabulary, or with --input NAME=SHAPE:VOCABULARY for each of several"
        ) from None


def _traced(trained: Trained) -> list[TracedStep] | None:
    """The steps by torch.fx; None where it cannot follow, or would pass over what counts.

    It would trace through checkpointing, and functions with a backward pass of their own, as if they were not.
    """
    containers = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
    if any(isinstance(module, containers) for module in trained.modules()):
        return None

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise InputError("model: torch.fx would trace through it")

    refusals: dict[str, Any] = dict.fromkeys((GENERATOR, REENTRANT), refuse)
    try:
        with mock.patch.multiple(checkpoint, **refusals), mock.patch.object(torch.autograd.Function, "apply", refuse):
            return trace(trained)
    except InputError:
        return None


def _reason(error: Exception) -> str:
    """The error in one line, with the last line of the network's own code."""
    trail = error.__traceback__
    line = ""
    while trail is not None:
        file = trail.tb_frame.f_code.co_filename
        if "/torch/" not in file and "/traces/capture/" not in file:
            line = f" ({file.rpartition('/')[2]}, line {trail.tb_lineno})"
        trail = trail.tb_next
    return " ".join((str(error) or type(error).__name__).split()) + line


class _Arrangement:
    """The steps of a recorded graph, in a new graph whose nodes they are."""

    def __init__(self, recorded: fx.Graph) -> None:
        self._recorded, self._graph = recorded, fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}
        self._waiting: dict[fx.Node, None] = {}
        self._steps: list[TracedStep] = []
        self._names = LayerNames()

    def steps(self) -> list[TracedStep]:
        for node in self._recorded.nodes:
            if node.op == "placeholder":
                self._new[node] = self._graph.placeholder(node.name)
            elif node.op == "output":
                self._flush(self._needed(node.all_input_nodes))
            elif "module" in node.meta and not node.meta.get("pick"):
                self._flush(self._needed(node.all_input_nodes))
                self._add_module(node)
            elif node.meta.get("pick") and node.args[0] in self._new:
                self._add_pick(node, node.args)
            else:
                self._waiting[node] = None
                if not node.meta["pure"]:
                    self._flush(list(self._waiting))
        return with_last_uses(self._steps)

    def _needed(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        """The waiting nodes that `nodes` are or depend on, in their order."""
        needed: set[fx.Node] = set()
        open_nodes = [node for node in nodes if node in self._waiting]
        while open_nodes:
            node = open_nodes.pop()
            if node not in needed:
                needed.add(node)
                open_nodes += [read for read in node.all_input_nodes if read in self._waiting]
        return [node for node in self._waiting if node in needed]

    def _flush(self, nodes: Sequence[fx.Node]) -> None:
        """Add waiting functions as steps, one for each run of them inside the same call of a module."""
        run: list[fx.Node] = []
        for node in nodes:
            if run and run[-1].meta["owner"] != node.meta["owner"]:
                self._add_group(run)
                run = []
            run.append(node)
        if run:
            self._add_group(run)

    def _add_module(self, node: fx.Node) -> None:
        module = node.meta["module"]
        checkpointed = isinstance(node.target, CheckpointedCall)
        call: Callable[..., Any] = node.target if checkpointed else module  # type: ignore[assignment]
        parameters = tuple(p for p in module.parameters() if p.requires_grad) if checkpointed else ()
        self._add(node, node.meta["path"], call, node.args, node.kwargs, parameters=parameters)

    def _add_group(self, nodes: list[fx.Node]) -> None:
        for node in nodes:
            del self._waiting[node]
        group = FunctionGroup(nodes)
        functions = [node.meta["function"] for node in nodes if not node.meta.get("pick")]
        path = nodes[0].meta["owner"][0]
        name = ".".join(part for part in (path, _main(functions)) if part)
        if len(nodes) == 1:
            self._add(nodes[0], name, nodes[0].target, nodes[0].args, nodes[0].kwargs)  # type: ignore[arg-type]
            return
        self._add(group.results[0], name, group, tuple(group.reads), {}, functions=tuple(functions))
        if len(group.results) > 1:
            whole = self._new[group.results[0]]
            for number, result in enumerate(group.results):
                self._add_pick(result, (whole, number))

    def _add_pick(self, node: fx.Node, args: Any) -> None:
        self._add(node, f"{self._steps[-1].name}.getitem", operator.getitem, args, {})

    def _add(
        self,
        node: fx.Node,
        name: str,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
        parameters: tuple[nn.Parameter, ...] = (),
        functions: tuple[str, ...] = (),
    ) -> None:
        new_args, new_kwargs = map_aggregate((args, kwargs), lambda item: self._new.get(item, item))  # type: ignore
        self._new[node] = self._graph.create_node("call_function", call, new_args, new_kwargs, name="step")
        name = self._names.unique(name)
        self._steps.append(
            TracedStep(node=self._new[node], name=name, call=call, dies=(), parameters=parameters, functions=functions)
        )


def _main(functions: Sequence[str]) -> str:
    """The function that a group is called after: a known one, else the last that computes, else the last."""
    for name in _MAIN:
        if name in functions:
            return name
    computing = [name for name in functions if name not in _VIEWS]
    return computing[-1] if computing else functions[-1]


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
        return repr(item) if type(item) in (type(None), bool, int, str) else self._constant(item)

    def _read(self, item: Any) -> str:
        if id(item) not in self._names:
            self._names[id(item)] = f"a{len(self._names)}"
            self.reads.append(item)
        return self._names[id(item)]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name
