"""Networks of one's own, by `package.module:callable`, and what a network is: how it is built and what it reads."""

from __future__ import annotations

import copy
import importlib
import operator
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from simulator.errors import InputError


def reference(model: str, input_shape: tuple[int, ...] | None, vocabulary: int | None) -> str:
    """A network of one's own and its input in one text, which `load` reads in another process.

    >>> reference("mine:net", (3, 8, 8), None), reference("vgg16", None, None)
    ('mine:net 3x8x8', 'vgg16')
    """
    shape = [] if input_shape is None else ["x".join(map(str, input_shape))]
    return " ".join([model, *shape, *([] if vocabulary is None else [str(vocabulary)])])


def parts_of_reference(text: str) -> tuple[str, tuple[int, ...], int | None]:
    """Model, input shape and vocabulary of what `reference` wrote."""
    model, shape, *vocabulary = text.split()
    return model, tuple(map(int, shape.split("x"))), int(vocabulary[0]) if vocabulary else None


def own_network(
    model: str,
    input_shape: tuple[int, ...] | None,
    classes: int | None,
    vocabulary: int | None,
    inputs: tuple[NetworkInput, ...],
) -> Network:
    """The network of `package.module:callable`; see `traces.zoo.networks.load`.

    A Network by that name fixes its own input.
    """
    made = _attribute(model)
    if isinstance(made, Network):
        return made
    if not isinstance(made, nn.Module) and not callable(made):
        raise InputError(f"model {model!r}: it is {type(made).__name__}, neither a torch.nn.Module nor a callable")
    if isinstance(made, nn.Module) and classes is not None:
        raise InputError(f"model {model!r}: it is built already; leave out --classes")
    if input_shape is None and not inputs:
        raise InputError(
            f"model {model!r}: its input is unknown; say it, e.g. --input-shape 3x224x224, or --input NAME=SHAPE"
        )
    if inputs and (input_shape is not None or vocabulary is not None):
        raise InputError("inputs: --input says all of the input; leave out --input-shape and --vocabulary")
    arguments = {} if classes is None else {"num_classes": classes}
    if inputs:
        first = inputs[0]
        return Network(
            build=lambda: _built(model, made, arguments),
            input_shape=first.shape,
            vocabulary=first.vocabulary,
            inputs=inputs,
        )
    shape = input_shape if input_shape is not None else ()
    return Network(build=lambda: _built(model, made, arguments), input_shape=shape, vocabulary=vocabulary)


def _attribute(model: str) -> Any:
    """What `package.module:name` stands for; the working directory is searched too. Raises InputError."""
    module, _, attribute = model.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # whatever the module's own code raises
        raise InputError(
            f"model {model!r}: {_reason(error)}; write package.module:callable, of an installed package or a file here"
        ) from None


def _built(model: str, made: Any, arguments: Mapping[str, Any]) -> nn.Module:
    """A network of its own at every call. Raises InputError where there is none."""
    if isinstance(made, nn.Module):
        return copy.deepcopy(made)
    try:
        built = made(**arguments)
    except Exception as error:  # whatever the constructor's own code raises
        called = ", ".join(f"{name}={value}" for name, value in arguments.items())
        raise InputError(
            f"model {model!r}: calling it with ({called}) failed: {_reason(error)}; name a callable that needs no more"
        ) from None
    if not isinstance(built, nn.Module):
        raise InputError(f"model {model!r}: it returned {type(built).__name__}, not a torch.nn.Module")
    return built


def _reason(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInput:
    """One argument of a network's forward: of one sample, `shape`; integers below `vocabulary` where it has one.

    name: of the keyword; empty where it is passed by position.
    """

    name: str = ""
    shape: tuple[int, ...]
    vocabulary: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How to build a network, and what it reads.

    input_shape: of one sample, (channels, height, width) or (positions,). With a vocabulary the input is integers below
    it, otherwise real numbers. inputs: where there are several, or one that is passed by keyword, all of them.
    """

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    vocabulary: int | None = None
    inputs: tuple[NetworkInput, ...] = ()

    @property
    def all_inputs(self) -> tuple[NetworkInput, ...]:
        """Every input, also where there is only the one that input_shape describes."""
        return self.inputs or (NetworkInput(shape=self.input_shape, vocabulary=self.vocabulary),)
