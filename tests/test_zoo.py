"""The networks of the zoo against the published ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from simulator.errors import InputError, UnknownNameError  # noqa: E402
from traces.zoo.networks import ZOO, load  # noqa: E402

# as counted by the published implementations; inception_v3 without its auxiliary head
PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "inception_v3": 23_834_568,
    "vit_b16": 86_567_656,
    "gpt2_small": 124_439_808,
}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    with torch.device("meta"):
        model = load(name).build()
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", ZOO)
def test_every_network_maps_its_input_to_its_classes(name: str) -> None:
    with torch.device("meta"):
        network = load(name)
        shape = (2, *network.input_shape)
        words = network.vocabulary
        output = network.build()(torch.randn(shape) if words is None else torch.randint(words, shape))
    few = name in ("alexnet_small", "resnet_small", "vgg_digits", "vgg_small")
    assert tuple(output.shape) == ((2, 10 if few else 1000) if words is None else (*shape, words))


def test_vgg_small_has_2_3_million_parameters_mostly_fully_connected() -> None:
    model = load("vgg_small").build()
    by_kind = {
        kind: sum(p.numel() for module in model.modules() if isinstance(module, kind) for p in module.parameters())
        for kind in (nn.Conv2d, nn.Linear)
    }
    convolutions = 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128) + 2 * (32 + 64 + 128)
    assert by_kind == {nn.Conv2d: convolutions, nn.Linear: 2049 * 1000 + 1001 * 10}


def test_a_foreign_callable_is_built_with_its_classes() -> None:
    network = load("traces.zoo.networks:alexnet", input_shape=(3, 224, 224))
    assert (network.input_shape, network.vocabulary) == ((3, 224, 224), None)
    with torch.device("meta"):
        assert type(network.build()) is nn.Sequential


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'vgg61', did you mean 'vgg16'\? known: alexnet"):
        load("vgg61")


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        ("vgg16", (3, 32, 32), "fixes its own input"),
        ("traces.zoo.networks:vgg16", None, "say it, e.g. --input-shape 3x224x224"),
        ("traces.zoo.networks:vgg17", (3, 32, 32), "has no attribute 'vgg17'"),
        ("no_such_package:net", (3, 32, 32), "No module named 'no_such_package'"),
        (":net", (3, 32, 32), "write package.module:callable"),
    ],
)
def test_what_cannot_be_loaded_is_refused(model: str, shape: tuple[int, ...] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(model, input_shape=shape)
