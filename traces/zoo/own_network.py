"""What a network is, how it is built and what it reads: networks of one's own, and of Hugging Face's transformers.

Random data for it may be one tensor or several, by position and by keyword.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import operator
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simulator.errors import InputError, MissingExtraError
from simulator.one_line_parser import INPUT, OneLineParser, count, network_input, shape

PREFIX = "hf:"
"""Of the names of Hugging Face's networks."""
LONGEST, LONGEST_TINY, BLOCKS_TINY = 512, 64, 2
"""Tokens of a sample at most; the same, and blocks of each stack, of a tiny network, whose layers keep their width."""
LAYERS = (
    *("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers"),
    *("encoder_layers", "decoder_layers"),
)
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say how a network of one's own is built and what it reads, as `load` takes them."""
    parser.add_argument("--input-shape", type=shape, help="one sample's shape, e.g. 3x224x224 (not for zoo names)")
    text = "one of several inputs, or one by keyword, e.g. input_ids=128:50257; repeatable, by position without NAME"
    parser.add_argument("--input", dest="inputs", metavar=INPUT, type=_input, action="append", default=[], help=text)
    parser.add_argument("--classes", type=count, help="num_classes for the callable (not for zoo names)")
    parser.add_argument("--vocabulary", type=count, help="the input is integers below this (not for zoo names)")
    parser.add_argument("--tiny", action="store_true", help="two blocks and short samples, of hf: networks")


def _input(text: str) -> NetworkInput:
    name, sides, vocabulary = network_input(text)
    return NetworkInput(name=name, shape=sides, vocabulary=vocabulary)


def parts_of_reference(text: str) -> dict[str, Any]:
    """The arguments of `load` that a model with options behind it stands for.

    >>> parts_of_reference("mine:net --input-shape 3x8x8")["input_shape"]
    (3, 8, 8)
    """
    parser = OneLineParser(prog="model")
    parser.add_argument("model")
    add_input_arguments(parser)
    return vars(parser.parse_args(shlex.split(text)))


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
    first = inputs[0] if inputs else NetworkInput(shape=input_shape or (), vocabulary=vocabulary)
    build = partial(_built, model, made, arguments)
    return Network(build=build, input_shape=first.shape, vocabulary=first.vocabulary, inputs=inputs)


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

    def built(self, seed: int) -> nn.Module:
        """The network with the parameters that `seed` draws, alike in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build()

    @property
    def all_inputs(self) -> tuple[NetworkInput, ...]:
        """Every input, also where there is only the one that input_shape describes."""
        return self.inputs or (NetworkInput(shape=self.input_shape, vocabulary=self.vocabulary),)


def huggingface_network(name: str, tiny: bool = False, inputs: tuple[NetworkInput, ...] = ()) -> Network:
    """The network of "hf:" and a kind of model (t5, vit), a file or folder of a configuration, or a name on the hub.

    inputs: None for tokens, or an image, as the configuration has them. Raises InputError, MissingExtraError.
    """
    try:
        import transformers  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError.of(f"model {name!r}", "transformers") from None
    config = _configuration(transformers, name)
    if tiny:
        for field in {each for each in LAYERS if getattr(config, each, None)}:
            setattr(config, field, min(getattr(config, field), BLOCKS_TINY))
    config.use_cache = False
    read = inputs or _inputs(config, LONGEST_TINY if tiny else LONGEST)
    return Network(
        build=lambda: transformers.AutoModel.from_config(config),
        input_shape=read[0].shape,
        vocabulary=read[0].vocabulary,
        inputs=read,
    )


def _configuration(transformers: Any, name: str) -> Any:
    source = name.removeprefix(PREFIX)
    try:
        if Path(source).exists():
            return transformers.AutoConfig.from_pretrained(source)
        if source in transformers.CONFIG_MAPPING:
            return transformers.AutoConfig.for_model(source)
        return transformers.AutoConfig.from_pretrained(source)
    except Exception as error:  # whatever a configuration's own code or the hub says
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"model {name!r}: {reason}; write hf: and a kind such as t5, a config.json, or a name on the hub"
        ) from None


def _inputs(config: Any, longest: int) -> tuple[NetworkInput, ...]:
    if getattr(config, "image_size", None) and not getattr(config, "vocab_size", None):
        sides = config.image_size if isinstance(config.image_size, list | tuple) else (config.image_size,) * 2
        return (NetworkInput(name="pixel_values", shape=(config.num_channels, *sides)),)
    if not getattr(config, "vocab_size", None):
        raise InputError(f"model hf:{config.model_type}: its input is unknown; say it with --input NAME=SHAPE")
    positions = min([longest, *(size for each in POSITIONS if (size := getattr(config, each, None)))])
    names = ["input_ids", *(["decoder_input_ids"] if config.is_encoder_decoder else [])]
    return tuple(NetworkInput(name=each, shape=(positions,), vocabulary=config.vocab_size) for each in names)


@dataclass(frozen=True, slots=True)
class NetworkInputs:
    """The arguments of a forward pass, each of shape (samples, ...); its length is the number of samples."""

    positional: tuple[Tensor, ...] = ()
    keywords: Mapping[str, Tensor] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Tensor]:
        """The tensors, those by position first."""
        yield from self.positional
        yield from self.keywords.values()

    def __len__(self) -> int:
        return len(next(iter(self)))

    def __getitem__(self, samples: slice) -> NetworkInputs:
        """The same inputs for some of the samples."""
        keywords = {name: tensor[samples] for name, tensor in self.keywords.items()}
        return NetworkInputs(tuple(tensor[samples] for tensor in self.positional), keywords)

    def chunk(self, parts: int) -> tuple[NetworkInputs, ...]:
        """The inputs in at most so many parts of equally many samples, the last perhaps of fewer."""
        size = -(-len(self) // parts)
        return tuple(self[first : first + size] for first in range(0, len(self), size))

    def applied(self, model: Callable[..., Any]) -> Any:
        """What `model` makes of them."""
        return model(*self.positional, **self.keywords)


Data = Tensor | NetworkInputs
"""The training data: of a network with one input a tensor, (samples, *input shape)."""


def data_tensors(data: Data) -> list[Tensor]:
    """The tensors of training data, in the order in which a traced network has its placeholders."""
    return [data] if isinstance(data, Tensor) else list(data)


def draw(network: Network, batch_size: int, torch_device: torch.device, dtype: torch.dtype) -> Data:
    """Random data of shape (batch_size, *input shape), as zeros may be faster than real data."""
    drawn = [(each.name, _drawn(each, batch_size, torch_device, dtype)) for each in network.all_inputs]
    if len(drawn) == 1 and not drawn[0][0]:
        return drawn[0][1]
    return NetworkInputs(
        tuple(tensor for name, tensor in drawn if not name), {name: tensor for name, tensor in drawn if name}
    )


def _drawn(each: NetworkInput, batch_size: int, torch_device: torch.device, dtype: torch.dtype) -> Tensor:
    shape = (batch_size, *each.shape)
    if each.vocabulary is not None:
        return torch.randint(each.vocabulary, shape, device=torch_device)
    return torch.randn(shape, device=torch_device, dtype=dtype)
