"""Networks of Hugging Face's transformers, by the name of a configuration, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from simulator.errors import InputError, MissingExtraError
from traces.zoo.own_network import Network, NetworkInput

PREFIX = "hf:"
"""Of the names of such networks."""
LONGEST, LONGEST_TINY, BLOCKS_TINY = 512, 64, 2
"""Tokens of a sample at most; the same, and blocks of each stack, of a tiny network, whose layers keep their width."""
LAYERS = (
    *("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers"),
    *("encoder_layers", "decoder_layers"),
)
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")


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
        build=lambda: _built(transformers, config),
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


def _built(transformers: Any, config: Any) -> nn.Module:
    network: nn.Module = transformers.AutoModel.from_config(config)
    return network
