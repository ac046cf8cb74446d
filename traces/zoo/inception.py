"""Inception-v3 (arXiv 1512.00567) without its auxiliary head."""

from __future__ import annotations

from torch import Tensor, nn

from traces.zoo.blocks import Concat, Side, initialised, joined, normalised


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
    return initialised(joined(stem=stem, blocks=blocks, head=head))


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
    return normalised(inputs, outputs, kernel, stride, padding, epsilon=0.001)
