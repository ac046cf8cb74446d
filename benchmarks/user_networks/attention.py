"""Transformers as people write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from traces.zoo.networks import Network, NetworkInput

WORDS, POSITIONS = 1000, 64


class CausalAttention(nn.Module):
    """Queries, keys and values in one product, split by functions."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(samples, length, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(samples, length, width))  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = CausalAttention(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class TiedDecoder(nn.Module):
    """A GPT: tied head, dictionary with its own loss, keyword arguments, positions made in forward."""

    def __init__(self, width: int, checkpointed: str = "") -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(POSITIONS, width)
        self.blocks, self.norm = nn.ModuleList(DecoderBlock(width) for _ in range(2)), nn.LayerNorm(width)
        self.head, self.checkpointed = nn.Linear(width, WORDS, bias=False), checkpointed
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            run = checkpoint if self.checkpointed else _plainly
            x = run(block, x, use_reentrant=self.checkpointed == "reentrant")
        scores = self.head(self.norm(x))
        if labels is None:
            return {"scores": scores}
        return {"loss": functional.cross_entropy(scores.view(-1, WORDS), labels.view(-1)), "scores": scores}


def _plainly(block: nn.Module, x: Tensor, use_reentrant: bool) -> Any:
    """What `checkpoint` does, without it."""
    return block(x)


class RootNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class GatedBlock(nn.Module):
    """Rotary positions, two keys for four queries, a gated unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width // 2), nn.Linear(width, width // 2)
        self.o, self.norm1, self.norm2 = nn.Linear(width, width), RootNorm(width), RootNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, *, angles: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k, v = (
            part(normed).unflatten(2, (-1, x.shape[2] // 4)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        q, k = rotated(q, angles), rotated(k, angles)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        normed = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))  # type: ignore[no-any-return]


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """(samples, heads, positions, channels), halves of the channels turned by (positions, channels / 2) angles."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), -1)


@dataclass
class Answer:
    loss: Tensor | None
    scores: Tensor


class GatedDecoder(nn.Module):
    """Returns a data class; blocks read keyword arguments."""

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS, bias=False)
        self.blocks, self.norm = nn.ModuleList(GatedBlock(width) for _ in range(2)), RootNorm(width)
        self.register_buffer("rates", 1e4 ** -(torch.arange(0, width // 8) / (width // 8)))

    def forward(self, tokens: Tensor) -> Answer:
        x = self.words(tokens)
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * self.rates
        for block in self.blocks:
            x = block(x, angles=angles)
        return Answer(loss=None, scores=self.head(self.norm(x)))


class MaskedEncoder(nn.Module):
    """nn.TransformerEncoder with a padding mask, pooled over the positions that the mask leaves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder, self.classes = nn.TransformerEncoder(layer, 2), nn.Linear(width, 10)

    def forward(self, tokens: Tensor, kept: Tensor) -> Tensor:
        kept = kept.bool()
        kept[:, 0] = True
        x = self.encoder(self.words(tokens), src_key_padding_mask=~kept)
        weights = kept[..., None] / kept.sum(1)[:, None, None]
        return self.classes((x * weights).sum(1))  # type: ignore[no-any-return]


class Translator(nn.Module):
    """nn.Transformer over two sequences."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.transformer = nn.Transformer(width, 4, 1, 1, 2 * width, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        x = self.transformer(self.words(source), self.words(target), tgt_mask=mask, tgt_is_causal=True)
        return self.classes(x)


class Experts(nn.Module):
    """Each token goes to the two experts that its router prefers; how many each gets depends on the data."""

    def __init__(self, width: int, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)  # (tokens, channels)
        weights, chosen_experts = self.router(flat).softmax(-1).topk(2, dim=-1)
        mixed = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, column = torch.where(chosen_experts == number)
            mixed.index_add_(0, rows, expert(flat[rows]) * weights[rows, column][:, None])
        return mixed.view_as(x)


class MixtureDecoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.attention, self.experts = nn.Embedding(WORDS, width), CausalAttention(width), Experts(width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        x = x + self.attention(x)
        return self.head(self.norm(x + self.experts(x)))  # type: ignore[no-any-return]


class RepeatedBlock(nn.Module):
    """One block, run three times: every parameter has three users."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.block, self.head = nn.Embedding(WORDS, width), DecoderBlock(width), nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for _ in range(3):
            x = self.block(x)
        return self.head(x)  # type: ignore[no-any-return]


def reading(build: Callable[[], nn.Module], **vocabularies: int) -> Network:
    inputs = tuple(NetworkInput(name=name, shape=(POSITIONS,), vocabulary=v) for name, v in vocabularies.items())
    return Network(build=build, input_shape=(POSITIONS,), inputs=inputs)


BUILDERS: dict[str, Callable[[int], Network]] = {
    "decoder_tied_dict": lambda width: reading(lambda: TiedDecoder(width), input_ids=WORDS, labels=WORDS),
    "decoder_checkpointed": lambda width: reading(lambda: TiedDecoder(width, "newer"), input_ids=WORDS, labels=WORDS),
    "decoder_checkpointed_reentrant": lambda width: reading(
        lambda: TiedDecoder(width, "reentrant"), input_ids=WORDS, labels=WORDS
    ),
    "decoder_gated_dataclass": lambda width: reading(lambda: GatedDecoder(width), tokens=WORDS),
    "encoder_masked": lambda width: reading(lambda: MaskedEncoder(width), tokens=WORDS, kept=2),
    "translator_two_inputs": lambda width: reading(lambda: Translator(width), source=WORDS, target=WORDS),
    "mixture_of_experts": lambda width: reading(lambda: MixtureDecoder(width), tokens=WORDS),
    "block_repeated": lambda width: reading(lambda: RepeatedBlock(width), tokens=WORDS),
}
