"""Networks to capture, written with torch.nn alone; joins are modules, so every layer has a name.

Layers follow the published networks (AlexNet as in arXiv 1404.5997, VGG arXiv 1409.1556, ResNet arXiv 1512.03385
with the stride on the 3x3 convolution, Inception-v3 arXiv 1512.00567 without the auxiliary head). `vgg_small` and
`resnet_small` take 32x32 images and train on a CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulator.errors import InputError, UnknownNameError

Side = int | tuple[int, int]


def load(
    model: str,
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    vocabulary: int | None = None,
) -> Network:
    """The network of a zoo name or of `package.module:callable`, which also needs an input_shape.

    `classes` is passed to a foreign callable as num_classes when given. Raises UnknownNameError or InputError.
    """
    if ":" in model:
        return _foreign(model, input_shape, classes, vocabulary)
    if model not in ZOO:
        raise UnknownNameError.of("model", model, ZOO)
    if (input_shape, classes, vocabulary) != (None, None, None):
        raise InputError(f"model {model!r} fixes its own input: leave out --input-shape, --classes and --vocabulary")
    return ZOO[model]


def _foreign(model: str, input_shape: tuple[int, ...] | None, classes: int | None, vocabulary: int | None) -> Network:
    place, _, attribute = model.partition(":")
    try:
        made = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"model {model!r}: {error}; write package.module:callable of an installed package") from None
    if input_shape is None:
        raise InputError(f"model {model!r}: its input is unknown; say it, e.g. --input-shape 3x224x224")
    arguments = {} if classes is None else {"num_classes": classes}
    return Network(build=lambda: made(**arguments), input_shape=input_shape, vocabulary=vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How to build a network, and what it reads.

    input_shape is that of one sample; with a vocabulary the input is integers below it, otherwise real numbers.
    """

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    vocabulary: int | None = None


class Add(nn.Module):
    """The sum of its inputs: the join of a residual block."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Concat(nn.Module):
    """Its inputs joined along channels."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, 1)


def alexnet() -> nn.Module:
    """AlexNet in its one-column form."""
    features = nn.Sequential(
        *_convolution(3, 64, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *_convolution(64, 192, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *_convolution(192, 384, 3, 1, 1),
        *_convolution(384, 256, 3, 1, 1),
        *_convolution(256, 256, 3, 1, 1),
        nn.MaxPool2d(3, 2),
    )
    dense = [nn.Dropout(), *_dense(256 * 6 * 6, 4096), nn.Dropout(), *_dense(4096, 4096), nn.Linear(4096, 1000)]
    return _initialised(_joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*dense)))


def vgg16() -> nn.Module:
    """VGG-16 (configuration D)."""
    features = _vgg_features((64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0))
    dense = [*_dense(512 * 7 * 7, 4096), nn.Dropout(), *_dense(4096, 4096), nn.Dropout(), nn.Linear(4096, 1000)]
    return _initialised(_joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*dense)))


def vgg_small() -> nn.Module:
    """A VGG for 32x32 images and 10 classes, with 2.4 million parameters, four fifths of them fully connected."""
    features = _vgg_features((32, 32, 0, 64, 64, 0, 128, 128, 0))
    dense = [*_dense(128 * 4 * 4, 1000), nn.Linear(1000, 10)]
    return _initialised(_joined(features=features, flatten=nn.Flatten(), classifier=nn.Sequential(*dense)))


def resnet18() -> nn.Module:
    return _resnet(_Basic, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    return _resnet(_Bottleneck, (3, 4, 6, 3))


def resnet_small() -> nn.Module:
    """A ResNet for 32x32 images and 10 classes: three stages of two basic blocks, 16 to 64 channels."""
    stem = nn.Sequential(*_normalised(3, 16, 3, 1, 1))
    return _resnet_on(stem, _Basic, (2, 2, 2), 16, 10)


class _Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(*_normalised(inputs, width, 3, stride, 1), *_normalised(width, width, 3, 1, 1)[:-1])
        self.shortcut = _shortcut(inputs, width, stride)
        self.add, self.relu = Add(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.add(self.main(x), kept))  # type: ignore[no-any-return]


class _Bottleneck(_Basic):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.main = nn.Sequential(
            *_normalised(inputs, width, 1),
            *_normalised(width, width, 3, stride, 1),
            *_normalised(width, 4 * width, 1)[:-1],
        )
        self.shortcut = _shortcut(inputs, 4 * width, stride)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(*_normalised(inputs, outputs, 1, stride)[:-1])


def _resnet(block: type[_Basic], depths: Sequence[int]) -> nn.Module:
    stem = nn.Sequential(*_normalised(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1))
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
    return _initialised(_joined(**parts, **head))


def inception_v3() -> nn.Module:
    """Inception-v3's main branch, for 299x299 images."""
    stem = nn.Sequential(
        *_unit(3, 32, 3, 2),
        *_unit(32, 32, 3),
        *_unit(32, 64, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        *_unit(64, 80, 1),
        *_unit(80, 192, 3),
        nn.MaxPool2d(3, 2),
    )
    blocks = nn.Sequential(
        *(_inception_a(inputs, pooled) for inputs, pooled in ((192, 32), (256, 64), (288, 64))),
        _inception_b(288),
        *(_inception_c(width) for width in (128, 160, 160, 192)),
        _inception_d(768),
        *(_inception_e(inputs) for inputs in (1280, 2048)),
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 1000))
    return _initialised(_joined(stem=stem, blocks=blocks, head=head))


class _Branches(nn.Module):
    """Branches over one input, joined along channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(branches)
        self.join = Concat()

    def forward(self, x: Tensor) -> Tensor:
        return self.join(*(branch(x) for branch in self.branches.values()))  # type: ignore[no-any-return]


def _inception_a(inputs: int, pooled: int) -> nn.Module:
    return _Branches(
        one=nn.Sequential(*_unit(inputs, 64, 1)),
        five=nn.Sequential(*_unit(inputs, 48, 1), *_unit(48, 64, 5, 1, 2)),
        stacked=nn.Sequential(*_unit(inputs, 64, 1), *_unit(64, 96, 3, 1, 1), *_unit(96, 96, 3, 1, 1)),
        pool=_pooled(inputs, pooled),
    )


def _inception_b(inputs: int) -> nn.Module:
    return _Branches(
        three=nn.Sequential(*_unit(inputs, 384, 3, 2)),
        stacked=nn.Sequential(*_unit(inputs, 64, 1), *_unit(64, 96, 3, 1, 1), *_unit(96, 96, 3, 2)),
        pool=nn.MaxPool2d(3, 2),
    )


def _inception_c(width: int) -> nn.Module:
    across, down = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    seven = [*_chain((768, width), ((1, 1), (0, 0))), *_chain((width, width), across), *_chain((width, 192), down)]
    stacked = [
        *_chain((768, width), ((1, 1), (0, 0))),
        *_chain((width, width), down, across, down),
        *_chain((width, 192), across),
    ]
    return _Branches(
        one=nn.Sequential(*_unit(768, 192, 1)),
        seven=nn.Sequential(*seven),
        stacked=nn.Sequential(*stacked),
        pool=_pooled(768, 192),
    )


def _inception_d(inputs: int) -> nn.Module:
    seven = [*_unit(inputs, 192, 1), *_chain((192, 192), ((1, 7), (0, 3)), ((7, 1), (3, 0))), *_unit(192, 192, 3, 2)]
    return _Branches(
        three=nn.Sequential(*_unit(inputs, 192, 1), *_unit(192, 320, 3, 2)),
        seven=nn.Sequential(*seven),
        pool=nn.MaxPool2d(3, 2),
    )


def _inception_e(inputs: int) -> nn.Module:
    def fork() -> nn.Module:
        flat, tall = ((1, 3), (0, 1)), ((3, 1), (1, 0))
        parts = {name: nn.Sequential(*_chain((384, 384), side)) for name, side in (("flat", flat), ("tall", tall))}
        return _Branches(**parts)

    return _Branches(
        one=nn.Sequential(*_unit(inputs, 320, 1)),
        three=nn.Sequential(*_unit(inputs, 384, 1), fork()),
        stacked=nn.Sequential(*_unit(inputs, 448, 1), *_unit(448, 384, 3, 1, 1), fork()),
        pool=_pooled(inputs, 192),
    )


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), *_unit(inputs, outputs, 1))


def _chain(channels: tuple[int, int], *sides: tuple[tuple[int, int], tuple[int, int]]) -> list[nn.Module]:
    """Units of the given (kernel, padding) one after another, all with these (input, output) channels."""
    return [module for kernel, padding in sides for module in _unit(*channels, kernel, 1, padding)]


def _unit(inputs: int, outputs: int, kernel: Side, stride: int = 1, padding: Side = 0) -> list[nn.Module]:
    return _normalised(inputs, outputs, kernel, stride, padding, epsilon=0.001)


def _normalised(
    inputs: int, outputs: int, kernel: Side, stride: int = 1, padding: Side = 0, epsilon: float = 1e-5
) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(outputs, eps=epsilon), nn.ReLU(inplace=True)]


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]


def _vgg_features(widths: Sequence[int]) -> nn.Sequential:
    """3x3 convolutions of the given widths; 0 stands for a pooling."""
    modules: list[nn.Module] = []
    channels = 3
    for width in widths:
        modules += _convolution(channels, width, 3, 1, 1) if width else [nn.MaxPool2d(2, 2)]
        channels = width or channels
    return nn.Sequential(*modules)


def _joined(**parts: nn.Module) -> nn.Sequential:
    """A chain whose parts keep their names."""
    chain = nn.Sequential()
    for name, part in parts.items():
        chain.add_module(name, part)
    return chain


def _initialised(model: nn.Module) -> nn.Module:
    """`model` with He initialisation of its convolutions, so that activations neither vanish nor blow up."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


ZOO = {
    "alexnet": Network(build=alexnet, input_shape=(3, 224, 224)),
    "inception_v3": Network(build=inception_v3, input_shape=(3, 299, 299)),
    "resnet18": Network(build=resnet18, input_shape=(3, 224, 224)),
    "resnet50": Network(build=resnet50, input_shape=(3, 224, 224)),
    "resnet_small": Network(build=resnet_small, input_shape=(3, 32, 32)),
    "vgg16": Network(build=vgg16, input_shape=(3, 224, 224)),
    "vgg_small": Network(build=vgg_small, input_shape=(3, 32, 32)),
}
