"""Networks to capture, written with torch.nn alone.

Layers follow the published networks (AlexNet as in arXiv 1404.5997, VGG arXiv 1409.1556, ResNet arXiv 1512.03385
with the stride on the 3x3 convolution, Inception-v3 arXiv 1512.00567 without the auxiliary head, the vision transformer
arXiv 2010.11929, and GPT-2's decoder). The small ones (alexnet_small, resnet_small, vgg_small) take 32x32 images and
train on a CPU; vgg_digits takes 8x8 grey ones.

    tokens -> [ norm -> qkv -> attention -> out -> add ; norm -> fc -> gelu -> proj -> add ] x depth -> norm -> head

What of a layer of a transformer may be split follows from how it is written. Queries, keys and values come from one
linear layer in the order (head, which of the three, channel), so that an eighth of its channels is an eighth of the
heads, whole. Attention then needs all positions, but the channels of its own heads only. Norms and linear layers need
all channels, but their own position only. There is no dropout, as in most training of such networks today.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from simulator.errors import InputError, require_name
from traces.zoo.blocks import (
    Add,
    Attention,
    First,
    Positions,
    Tokens,
    convolution,
    dense,
    initialised,
    joined,
    normalised,
)
from traces.zoo.inception import inception_v3
from traces.zoo.own_network import PREFIX, huggingface_network, own_network, parts_of_reference
from traces.zoo.own_network import Network as Network
from traces.zoo.own_network import NetworkInput as NetworkInput


def load(
    model: str,
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    vocabulary: int | None = None,
    inputs: Sequence[NetworkInput] = (),
    tiny: bool = False,
) -> Network:
    """The network of a zoo name, of "hf:" and a configuration, or of `package.module:callable`, which also needs an
    input_shape or inputs.

    tiny: few blocks and short samples, of the second alone. The callable returns a module, or is one. `classes` is
    passed to it as num_classes when given. A model may have the options of a capture behind it, which say these. Raises
    UnknownNameError, InputError or MissingExtraError.
    """
    if " " in model:
        return load(**parts_of_reference(model))
    if tiny and not model.startswith(PREFIX):
        raise InputError(f"tiny: counts only for a network such as hf:t5, and the model is {model!r}; leave it out")
    if model.startswith(PREFIX):
        return huggingface_network(model, tiny, tuple(inputs))
    if ":" in model:
        return own_network(model, input_shape, classes, vocabulary, tuple(inputs))
    require_name("model", model, ZOO)
    if (input_shape, classes, vocabulary, tuple(inputs)) != (None, None, None, ()):
        raise InputError(
            f"model {model!r} fixes its own input: leave out --input-shape, --input, --classes and --vocabulary"
        )
    return ZOO[model]


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
    """For 224x224 images and 1000 classes."""
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


def vision_transformer(*, side: int, patch: int, width: int, depth: int, heads: int, classes: int) -> nn.Module:
    """Patches and a class token through `depth` blocks; the class token's position is classified."""
    blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=False) for _ in range(depth)))
    return joined(
        patches=nn.Conv2d(3, width, patch, patch),
        tokens=Tokens(width, (side // patch) ** 2),
        blocks=blocks,
        norm=nn.LayerNorm(width, eps=1e-6),
        first=First(),
        head=nn.Linear(width, classes),
    )


class Decoder(nn.Module):
    """Predicts the next token at every position: (samples, positions) -> (samples, positions, vocabulary)."""

    def __init__(self, *, vocabulary: int, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), Positions(width, context)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.positions(self.embedding(tokens)))))  # type: ignore[no-any-return]


class TransformerBlock(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm and with a residual connection.

    (samples, positions, channels) -> the same shape
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.qkv = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 3 * width)
        self.attention, self.out, self.add1 = Attention(heads, causal), nn.Linear(width, width), Add()
        self.norm2, self.fc = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width)
        self.gelu, self.proj, self.add2 = nn.GELU("none" if not causal else "tanh"), nn.Linear(4 * width, width), Add()

    def forward(self, x: Tensor) -> Tensor:
        x = self.add1(x, self.out(self.attention(self.qkv(self.norm1(x)))))
        return self.add2(x, self.proj(self.gelu(self.fc(self.norm2(x)))))  # type: ignore[no-any-return]


GPT2_SMALL = {"vocabulary": 50257, "context": 1024, "width": 768, "depth": 12, "heads": 12}
VIT_B16 = {"side": 224, "patch": 16, "width": 768, "depth": 12, "heads": 12, "classes": 1000}
ZOO = {
    "alexnet": Network(build=alexnet, input_shape=(3, 224, 224)),
    "alexnet_small": Network(build=alexnet_small, input_shape=(3, 32, 32)),
    "gpt2_small": Network(build=partial(Decoder, **GPT2_SMALL), input_shape=(1024,), vocabulary=50257),
    "inception_v3": Network(build=inception_v3, input_shape=(3, 299, 299)),
    "resnet18": Network(build=partial(_resnet, _Basic, (2, 2, 2, 2)), input_shape=(3, 224, 224)),
    "resnet50": Network(build=partial(_resnet, _Bottleneck, (3, 4, 6, 3)), input_shape=(3, 224, 224)),
    "resnet_small": Network(build=resnet_small, input_shape=(3, 32, 32)),
    "vgg13": Network(build=vgg13, input_shape=(3, 224, 224)),
    "vgg16": Network(build=vgg16, input_shape=(3, 224, 224)),
    "vgg_digits": Network(build=vgg_digits, input_shape=(1, 8, 8)),
    "vgg_small": Network(build=vgg_small, input_shape=(3, 32, 32)),
    "vit_b16": Network(build=partial(vision_transformer, **VIT_B16), input_shape=(3, 224, 224)),
}
