"""A decoder in numbers: what its configuration says, and how many parameters that makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simulator.errors import MOST_COUNT, require, require_count, require_from_0
from simulator.expert_routing import Routing

MOST_BLOCKS = 2_000
"""Of a decoder: a block is ten layers of a profile, which has MOST_LAYERS at most."""

NEXT_NORMS = 3
"""Of a further token: of what the blocks make, of the token's embedding, and before the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Queries, keys and values made of latents (DeepSeek-V2, arXiv 2405.04434). Channels of a token, or of a head."""

    query_rank: int = 0
    """Channels of the queries' latent; 0: queries are made of the hidden channels."""
    key_rank: int
    """Channels of the latent of keys and values."""
    rotary: int
    """Channels of a head that carry positions; of the keys all heads share them."""
    key_width: int
    """Channels of a head's query and key beside those."""
    value_width: int
    """Channels of a head's value."""

    def __post_init__(self) -> None:
        for name in ("key_rank", "key_width", "value_width"):
            require_count(name, getattr(self, name))
        for name in ("query_rank", "rotary"):
            require_from_0(name, getattr(self, name), MOST_COUNT)

    @property
    def channels(self) -> int:
        """Of the latents of a token."""
        return self.query_rank + self.key_rank + self.rotary


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A decoder-only transformer. Raises InputError on a count below 1 or heads that do not divide."""

    name: str
    layers: int
    """Blocks."""
    hidden: int
    """Channels between blocks."""
    heads: int
    ffn: int
    """Channels between the matrices of a feed-forward layer; of each expert where there are some."""
    vocabulary: int
    sequence: int
    """Tokens that it is trained with."""
    kv_heads: int | None = None
    """Heads of keys and values; none: as many as heads."""
    head_width: int | None = None
    """Channels of a head; none: hidden / heads."""
    gated: bool = True
    """Three matrices of a feed-forward layer instead of two (SwiGLU, GeGLU)."""
    experts: int = 0
    """Feed-forward layers among which each token takes experts_per_token."""
    experts_per_token: int = 0
    expert_groups: int = 1
    """Equal groups of experts, of which a token takes groups_per_token first."""
    groups_per_token: int = 1
    """Of these groups, so many have all experts of a token."""
    shared_ffn: int = 0
    """Channels of a feed-forward layer beside the experts, which every token takes."""
    dense_layers: int = 0
    """The first blocks of a mixture, which have no experts."""
    dense_ffn: int = 0
    """Channels of the feed-forward layer in those."""
    router_bias: bool = False
    """The router has a number for each expert beside its matrix."""
    tied_embeddings: bool = False
    """The head uses the embedding's table."""
    norm_vectors: int = 1
    """Parameters of a norm per channel: 1 RMSNorm, 2 LayerNorm, 0 a norm without."""
    norms: int = 2
    """Of a block: 1 where attention and feed-forward layer read the same, 4 where what they make is normed, too."""
    query_key_norm: Literal["", "head", "all"] = ""
    """Queries and keys are normed, by a vector as wide as a head or as all heads."""
    embedding_norm: bool = False
    """A norm stands behind the embedding (BLOOM)."""
    biases: bool = False
    """Linear layers of a block add one."""
    qkv_biases: bool = False
    """Those of queries, keys and values alone do (Qwen 2)."""
    head_bias: bool = False
    """The head adds one (Phi)."""
    sinks: bool = False
    """Each head has a learned logit beside those of its keys (GPT-OSS)."""
    latent: LatentAttention | None = None
    window: int = 0
    """Tokens that attention looks back; 0: all."""
    whole_every: int = 0
    """With a window, one block of so many attends to all tokens; 0: none."""
    positions: int = 0
    """Learned position vectors; 0: rotary or none."""
    next_tokens: int = 0
    """Further tokens that are predicted, each by the next of the last blocks, which joins the hidden state with that
    token's embedding, and by the head once more: multi-token prediction (DeepSeek-V3, arXiv 2412.19437, 2.2)."""
    dropout: bool = False
    """Some of the embedding's outputs, the attention's scores and the outputs of both halves of a block are set to 0;
    their masks are kept, a byte an element."""
    source: str = ""
    not_counted: tuple[str, ...] = ()
    """What its configuration says beside all this that may change a step."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "ffn", "vocabulary", "sequence"):
            require_count(name, getattr(self, name))
        sizes = ("kv_heads", "head_width", "experts", "shared_ffn", "dense_layers", "dense_ffn", "window", "positions",
                 "next_tokens")  # fmt: skip
        for name in sizes:
            require_from_0(name, getattr(self, name) or 0, MOST_COUNT)
        require(self.layers <= MOST_BLOCKS, "layers", self.layers, f"a decoder has at most {MOST_BLOCKS:,} blocks")
        require(self.heads % self.key_heads == 0, "kv_heads", self.key_heads, f"it divides {self.heads} heads")
        rule = f"hidden {self.hidden} is a multiple of it, or head_width is named"
        require(bool(self.head_width or self.latent) or self.hidden % self.heads == 0, "heads", self.heads, rule)
        rule = f"it is from 1 to {self.experts} experts, and 0 without experts"
        known = 1 <= self.experts_per_token <= self.experts if self.experts else self.experts_per_token == 0
        require(known, "experts_per_token", self.experts_per_token, rule)
        rule = "it is less than the blocks, counts in a mixture alone, and dense_ffn says how wide they are"
        dense = 0 < self.dense_layers < self.layers and self.experts > 0 and self.dense_ffn > 0
        require(dense or not self.dense_layers, "dense_layers", self.dense_layers, rule)
        rule = "it is less than the blocks, the last of which predict them"
        require(self.next_tokens < self.layers, "next_tokens", self.next_tokens, rule)

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Channels of a head's query and key."""
        if self.latent:
            return self.latent.key_width + self.latent.rotary
        return self.head_width or self.hidden // self.heads

    @property
    def query_channels(self) -> int:
        return self.heads * self.width

    @property
    def key_channels(self) -> int:
        return self.key_heads * self.width

    @property
    def value_channels(self) -> int:
        return self.heads * self.latent.value_width if self.latent else self.key_channels

    @property
    def attention_channels(self) -> int:
        """What attention makes of a token: a value for each head."""
        return self.value_channels if self.latent else self.query_channels

    @property
    def attention_share(self) -> float:
        """Of a causal attention over the sequence, what the window leaves, on average over blocks."""
        if not self.window or self.window >= self.sequence:
            return 1.0
        part = self.window / self.sequence
        whole = 1 / self.whole_every if self.whole_every else 0.0
        return whole + (1 - whole) * (2 * part - part**2)

    @property
    def routing(self) -> Routing | None:
        """Of a mixture: all experts get as many tokens."""
        if not self.experts:
            return None
        return Routing(
            experts=self.experts, top_k=self.experts_per_token, groups=self.expert_groups,
            top_groups=self.groups_per_token,
        )  # fmt: skip

    @property
    def dense_block(self) -> ModelCard:
        """The card of the blocks without experts."""
        return replace(
            self, experts=0, experts_per_token=0, shared_ffn=0, dense_layers=0, router_bias=False, ffn=self.dense_ffn
        )

    @property
    def projections(self) -> tuple[tuple[str, int, int, int], ...]:
        """Queries, keys and values: name, channels, and how many parameters are in matrices and in vectors."""
        h, q, k, v, of = self.hidden, self.query_channels, self.key_channels, self.value_channels, self.latent
        if of:
            queries = of.query_rank * (h + q) if of.query_rank else h * q
            keys = h * (of.key_rank + of.rotary) + of.key_rank * self.heads * of.key_width
            return (
                ("q", q, queries, of.query_rank),
                ("k", k, keys, of.key_rank),
                ("v", v, of.key_rank * v, 0),
            )
        bias = self.biases or self.qkv_biases
        vectors = {"": (0, 0), "head": (self.width, self.width), "all": (q, k)}[self.query_key_norm]
        return (
            ("q", q, h * q, q * bias + vectors[0] + self.heads * self.sinks),
            ("k", k, h * k, k * bias + vectors[1]),
            ("v", v, h * v, v * bias),
        )

    @property
    def qkv_matrices(self) -> int:
        return sum(matrices for _, _, matrices, _ in self.projections)

    @property
    def attention_parameters(self) -> int:
        """Matrices and vectors of a block's attention."""
        made = sum(matrices + vectors for _, _, matrices, vectors in self.projections)
        return made + self.attention_channels * self.hidden + self.hidden * self.biases

    def ffn_parameters_of(self, channels: int) -> int:
        """Matrices (and biases) of one feed-forward layer of so many channels."""
        wide = (2 if self.gated else 1) * channels
        return self.hidden * (wide + channels) + (wide + self.hidden) * self.biases

    @property
    def router_parameters(self) -> int:
        return (self.hidden + self.router_bias) * self.experts

    @property
    def feed_forward_parameters(self) -> int:
        """Of a block: one layer, or the experts, the shared one and the router."""
        shared = self.ffn_parameters_of(self.shared_ffn) if self.shared_ffn else 0
        return self.ffn_parameters_of(self.ffn) * (self.experts or 1) + shared + self.router_parameters

    @property
    def block_parameters(self) -> int:
        """All of a block, norms and router included; of a mixture, of one with experts."""
        return self.attention_parameters + self.feed_forward_parameters + self.norms * self.norm_vectors * self.hidden

    @property
    def embedding_parameters(self) -> int:
        norm = self.norm_vectors * self.hidden if self.embedding_norm else 0
        return (self.vocabulary + self.positions) * self.hidden + norm

    @property
    def head_parameters(self) -> int:
        """The head's table, also where it is the embedding's."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them; a tied table counts once."""
        head = (0 if self.tied_embeddings else self.head_parameters) + self.vocabulary * self.head_bias
        blocks = (self.layers - self.dense_layers) * self.block_parameters
        if self.dense_layers:
            blocks += self.dense_layers * self.dense_block.block_parameters
        joins = self.next_tokens * self.hidden * (2 * self.hidden + NEXT_NORMS * self.norm_vectors)
        return blocks + joins + self.embedding_parameters + head + self.norm_vectors * self.hidden

    def described(self) -> str:
        """Name and size in one line."""
        experts = f", {self.experts_per_token} of {self.experts} experts" if self.experts else ""
        return f"{self.name}, {self.parameters / 1e9:.2f} billion parameters in {self.layers} blocks{experts}"

    @property
    def matrices_per_token(self) -> int:
        """Parameters that a token meets in a matrix."""
        attention = self.qkv_matrices + self.attention_channels * self.hidden
        wide = 3 if self.gated else 2
        taken = self.hidden * (wide * ((self.experts_per_token or 1) * self.ffn + self.shared_ffn) + self.experts)
        dense = self.hidden * wide * self.dense_ffn
        blocks = self.layers * attention + (self.layers - self.dense_layers) * taken + self.dense_layers * dense
        joins = self.next_tokens * (2 * self.hidden**2 + self.head_parameters)
        return blocks + joins + self.head_parameters

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of forward and backward for one token, two per multiply-add.

        6 per parameter that a token meets in a matrix (Kaplan et al., arXiv 2001.08361), and attention over the whole
        sequence (or its window), 6 layers x sequence x channels of queries and of values, as MFU is usually counted
        (Chowdhery et al., arXiv 2204.02311, appendix B): a causal mask is not subtracted.
        """
        channels = self.query_channels + self.attention_channels
        attention = 6.0 * self.layers * self.sequence * channels * self.attention_share
        return 6.0 * self.matrices_per_token + attention
