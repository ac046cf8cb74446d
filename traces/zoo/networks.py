"""Networks to capture, written with torch.nn alone.

Layers follow the published networks (AlexNet as in arXiv 1404.5997, VGG arXiv 1409.1556, ResNet arXiv 1512.03385
with the stride on the 3x3 convolution, Inception-v3 arXiv 1512.00567 without the auxiliary head). The small
ones (alexnet_small, resnet_small, vgg_small) take 32x32 images and train on a CPU; vgg_digits takes 8x8 grey ones.
The transformers are in traces/zoo/transformers.py.
"""

from __future__ import annotations

import copy
import importlib
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from simulator.errors import InputError, UnknownNameError
from traces.zoo.blocks import Add, convolution, dense, initialised, joined, normalised
from traces.zoo.inception import inception_v3
from traces.zoo.transformers import gpt2_small, vit_b16


def load(
    model: str,
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    vocabulary: int | None = None,
    inputs: Sequence[NetworkInput] = (),
) -> Network:
    """The network of a zoo name or of `package.module:callable`, which also needs an input_shape or inputs.

    The callable returns a module, or is one. `classes` is passed to it as num_classes when given. Raises
    UnknownNameError or InputError.
    """
    if ":" in model:
        return _foreign(model, input_shape, classes, vocabulary, tuple(inputs))
    if model not in ZOO:
        raise UnknownNameError.of("model", model, ZOO)
    if (input_shape, classes, vocabulary, tuple(inputs)) != (None, None, None, ()):
        raise InputError(
            f"model {model!r} fixes its own input: leave out --input-shape, --input, --classes and --vocabulary"
        )
    return ZOO[model]


def _foreign(
    model: str,
    input_shape: tuple[int, ...] | None,
    classes: int | None,
    vocabulary: int | None,
    inputs: tuple[NetworkInput, ...],
) -> Network:
    made = _attribute(model)
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


def alexnet() -> nn.Module:
    """AlexNet in its one-column form."""
    features = nn.Sequential(
        *convolution(3, 64, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *convolution(64, 192, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *convolution(192, 384, 3, 1, 1),
        *convolution(384, 256, 3, 1, 1),
        *convolution(256, 256, 3, 1, 1),
        nn.MaxPool2d(3, 2),
    )
    last = [nn.Dropout(), *dense(256 * 6 * 6, 4096), nn.Dropout(), *dense(4096, 4096), nn.Linear(4096, 1000)]
    return initialised(joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*last)))


def alexnet_small() -> nn.Module:
    """An AlexNet for 32x32 images and 10 classes, without dropout: two 5x5 and two 3x3 convolutions, three dense."""
    features = nn.Sequential(
        *convolution(3, 32, 5, 1, 2),
        nn.MaxPool2d(2, 2),
        *convolution(32, 64, 5, 1, 2),
        nn.MaxPool2d(2, 2),
        *convolution(64, 96, 3, 1, 1),
        *convolution(96, 64, 3, 1, 1),
        nn.MaxPool2d(2, 2),
    )
    last = [*dense(64 * 4 * 4, 512), *dense(512, 512), nn.Linear(512, 10)]
    return initialised(joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*last)))


def vgg13() -> nn.Module:
    """VGG-13 (configuration B), with the pooling to 7x7 that torchvision puts before the dense layers."""
    features = _vgg_features((64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0))
    last = [*dense(512 * 7 * 7, 4096), nn.Dropout(), *dense(4096, 4096), nn.Dropout(), nn.Linear(4096, 1000)]
    parts = {"features": features, "pool": nn.AdaptiveAvgPool2d(7), "flatten": nn.Flatten()}
    return initialised(joined(**parts, classifier=nn.Sequential(*last)))


def vgg16() -> nn.Module:
    """VGG-16 (configuration D)."""
    features = _vgg_features((64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0))
    last = [*dense(512 * 7 * 7, 4096), nn.Dropout(), *dense(4096, 4096), nn.Dropout(), nn.Linear(4096, 1000)]
    return initialised(joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*last)))


def vgg_small() -> nn.Module:
    """A VGG for 32x32 images and 10 classes, with 2.3 million parameters, most of them fully connected."""
    features = _vgg_features((32, 32, 0, 64, 64, 0, 128, 128, 0))
    last = [*dense(128 * 4 * 4, 1000), nn.Linear(1000, 10)]
    return initialised(joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*last)))


def vgg_digits() -> nn.Module:
    """A VGG for 8x8 grey images of digits: four convolutions and two dense layers, which hold two thirds of it."""
    features = _vgg_features((32, 32, 0, 64, 64, 0), channels=1)
    last = [*dense(64 * 2 * 2, 512), nn.Linear(512, 10)]
    return initialised(joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*last)))


def resnet18() -> nn.Module:
    """ResNet-18 for 224x224 images and 1000 classes."""
    return _resnet(_Basic, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    """ResNet-50 for 224x224 images and 1000 classes."""
    return _resnet(_Bottleneck, (3, 4, 6, 3))


def resnet_small() -> nn.Module:
    """A ResNet for 32x32 images and 10 classes: three stages of two basic blocks, 16 to 64 channels."""
    stem = nn.Sequential(*normalised(3, 16, 3, 1, 1))
    return _resnet_on(stem, _Basic, (2, 2, 2), 16, 10)


class _Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(*normalised(inputs, width, 3, stride, 1), *normalised(width, width, 3, 1, 1)[:-1])
        self.shortcut = _shortcut(inputs, width, stride)
        self.add, self.relu = Add(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        main = self.main(x)  # before the shortcut, as torchvision runs it, so that traces of either match
        return self.relu(self.add(main, x if self.shortcut is None else self.shortcut(x)))  # type: ignore[no-any-return]


class _Bottleneck(_Basic):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.main = nn.Sequential(
            *normalised(inputs, width, 1),
            *normalised(width, width, 3, stride, 1),
            *normalised(width, 4 * width, 1)[:-1],
        )
        self.shortcut = _shortcut(inputs, 4 * width, stride)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(*normalised(inputs, outputs, 1, stride)[:-1])


def _resnet(block: type[_Basic], depths: Sequence[int]) -> nn.Module:
    stem = nn.Sequential(*normalised(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1))
    return _resnet_on(stem, block, depths, 64, 1000)


def _resnet_on(stem: nn.Module, block: type[_Basic], depths: Sequence[int], width: int, classes: int) -> nn.Module:
    parts: dict[str, nn.Module] = {"stem": stem}
    channels = width
    for stage, depth in enumerate(depths):
        blocks = []
        for position in range(depth):
            blocks.append(block(channels, width << stage, 2 if stage and not position else 1))
            channels = (width << stage) * block.expansion
        parts[f"stage{stage + 1}"] = nn.Sequential(*blocks)
    head = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "classifier": nn.Linear(channels, classes)}
    return initialised(joined(**parts, **head))


def _vgg_features(widths: Sequence[int], channels: int = 3) -> nn.Sequential:
    """3x3 convolutions of the given widths over input of so many channels; 0 stands for a pooling."""
    modules: list[nn.Module] = []
    for width in widths:
        modules += convolution(channels, width, 3, 1, 1) if width else [nn.MaxPool2d(2, 2)]
        channels = width or channels
    return nn.Sequential(*modules)


ZOO = {
    "alexnet": Network(build=alexnet, input_shape=(3, 224, 224)),
    "alexnet_small": Network(build=alexnet_small, input_shape=(3, 32, 32)),
    "gpt2_small": Network(build=gpt2_small, input_shape=(1024,), vocabulary=50257),
    "inception_v3": Network(build=inception_v3, input_shape=(3, 299, 299)),
    "resnet18": Network(build=resnet18, input_shape=(3, 224, 224)),
    "resnet50": Network(build=resnet50, input_shape=(3, 224, 224)),
    "resnet_small": Network(build=resnet_small, input_shape=(3, 32, 32)),
    "vgg13": Network(build=vgg13, input_shape=(3, 224, 224)),
    "vgg16": Network(build=vgg16, input_shape=(3, 224, 224)),
    "vgg_digits": Network(build=vgg_digits, input_shape=(1, 8, 8)),
    "vgg_small": Network(build=vgg_small, input_shape=(3, 32, 32)),
    "vit_b16": Network(build=vit_b16, input_shape=(3, 224, 224)),
}
