"""HuggingFace's families, built from a configuration without any download. Without `transformers` there are none."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from torch import nn

from traces.zoo.networks import Network, NetworkInput

WORDS, POSITIONS = 1000, 64
INSTALLED = importlib.util.find_spec("transformers") is not None


def made(model: str, configuration: str, **settings: Any) -> Callable[[], nn.Module]:
    """A builder of a model of `transformers`; it fills its parameters at random."""

    def build() -> nn.Module:
        library = importlib.import_module("transformers")
        library.logging.set_verbosity_error()
        built: nn.Module = getattr(library, model)(getattr(library, configuration)(**settings))
        return built

    return build


def tokens(*names: str) -> tuple[NetworkInput, ...]:
    """Integer inputs by keyword; a mask holds 0 and 1."""
    return tuple(
        NetworkInput(name=name, shape=(POSITIONS,), vocabulary=2 if "mask" in name else WORDS) for name in names
    )


def reading(build: Callable[[], nn.Module], *names: str) -> Network:
    inputs = tokens(*names)
    return Network(build=build, input_shape=inputs[0].shape, vocabulary=WORDS, inputs=inputs)


def gpt2(width: int) -> Network:
    """Its linear layers hold their weights transposed; the head is tied."""
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": width, "n_positions": POSITIONS, "vocab_size": WORDS}
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return reading(
        made("GPT2LMHeadModel", "GPT2Config", bos_token_id=0, eos_token_id=0, **sizes, **drops), "input_ids", "labels"
    )


def gpt2_checkpointed(width: int) -> Network:
    """Every block checkpoints its own forward."""
    plain = gpt2(width)

    def build() -> nn.Module:
        model: Any = plain.build()
        model.gradient_checkpointing_enable()
        return model  # type: ignore[no-any-return]

    return Network(build=build, input_shape=plain.input_shape, inputs=plain.inputs)


def llama(width: int) -> Network:
    """Rotary positions, grouped keys and values, gated units."""
    build = made("LlamaForCausalLM", "LlamaConfig", **_gated(width))
    return reading(build, "input_ids", "labels")


def mixtral(width: int) -> Network:
    """A router sends every token to two of four experts."""
    build = made("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **_gated(width))
    return reading(build, "input_ids", "labels")


def _gated(width: int) -> dict[str, int]:
    return {
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": WORDS},
        **{"hidden_size": width, "intermediate_size": 2 * width, "max_position_embeddings": POSITIONS},
    }


def bert(width: int) -> Network:
    """Masked, tied to its embedding, with segments and positions."""
    drops = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    build = made("BertForMaskedLM", "BertConfig", vocab_size=WORDS, **_plain(width), **drops)
    return reading(build, "input_ids", "attention_mask", "labels")


def vit(width: int) -> Network:
    """Images; the loss is the project's."""
    drops = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    build = made("ViTForImageClassification", "ViTConfig", image_size=32, patch_size=8, **_plain(width), **drops)
    return Network(build=build, input_shape=(3, 32, 32))


def _plain(width: int) -> dict[str, int]:
    return {
        **{"num_hidden_layers": 2, "num_attention_heads": 4},
        **{"hidden_size": width, "intermediate_size": 2 * width},
    }


def t5(width: int) -> Network:
    """An encoder and a decoder on one embedding; labels become the decoder's input."""
    sizes = {"num_layers": 2, "num_heads": 4, "d_model": width, "d_kv": width // 4, "d_ff": 2 * width}
    build = made(
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=WORDS,
        decoder_start_token_id=0,
        dropout_rate=0.0,
        **sizes,
    )
    return reading(build, "input_ids", "labels")


_ALL: tuple[Callable[[int], Network], ...] = (gpt2, gpt2_checkpointed, llama, mixtral, bert, vit, t5)
BUILDERS = {f"hf_{builder.__name__}": builder for builder in _ALL} if INSTALLED else {}
