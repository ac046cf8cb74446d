"""A decoder in numbers: what its configuration says, and how many parameters that makes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from simulator.errors import UnknownNameError, require, require_count
from simulator.expert_routing import Routing
from simulator.files import is_path, library, read_yaml

MOST_BLOCKS = 2_000
"""Of a decoder: a block is ten layers of a profile, which has MOST_LAYERS at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A decoder-only transformer of equal blocks.

    kv_heads: heads of keys and values (heads: none are shared). head_width: channels of a head (None: hidden / heads).
    ffn: channels between the matrices of a feed-forward layer, of each expert where there are some. gated: three
    matrices instead of two (SwiGLU). experts: feed-forward layers among which each token takes experts_per_token.
    tied_embeddings: the head uses the embedding's table. norm_vectors: parameters of a norm per channel (1 RMSNorm, 2
    LayerNorm). biases: linear layers of a block add one. positions: learned position vectors (0: rotary). dropout:
    whether some of the embedding's outputs, the attention's scores and the outputs of both halves of a block are set to
    0, whose masks are kept, a byte an element.
    Raises InputError on a count below 1 or heads that do not divide.
    """

    __pydantic_config__ = {"extra": "forbid"}

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    sequence: int
    kv_heads: int | None = None
    head_width: int | None = None
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0
    tied_embeddings: bool = False
    norm_vectors: int = 1
    biases: bool = False
    positions: int = 0
    dropout: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "ffn", "vocabulary", "sequence"):
            require_count(name, getattr(self, name))
        require(self.layers <= MOST_BLOCKS, "layers", self.layers, f"a decoder has at most {MOST_BLOCKS:,} blocks")
        require(self.heads % self.key_heads == 0, "kv_heads", self.key_heads, f"it divides {self.heads} heads")
        rule = f"hidden {self.hidden} is a multiple of it, or head_width is named"
        require(self.head_width is not None or self.hidden % self.heads == 0, "heads", self.heads, rule)
        rule = f"it is from 1 to {self.experts} experts, and 0 without experts"
        known = 1 <= self.experts_per_token <= self.experts if self.experts else self.experts_per_token == 0
        require(known, "experts_per_token", self.experts_per_token, rule)

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Channels of a head."""
        return self.head_width or self.hidden // self.heads

    @property
    def query_channels(self) -> int:
        return self.heads * self.width

    @property
    def key_channels(self) -> int:
        """Channels of the keys; the values have as many."""
        return self.key_heads * self.width

    @property
    def routing(self) -> Routing | None:
        """Of a mixture: all experts get as many tokens."""
        return Routing(experts=self.experts, top_k=self.experts_per_token) if self.experts else None

    @property
    def attention_parameters(self) -> int:
        """Matrices (and biases) of a block's attention."""
        outputs = self.query_channels + 2 * self.key_channels
        matrices = self.hidden * (outputs + self.query_channels)
        return matrices + (outputs + self.hidden if self.biases else 0)

    @property
    def ffn_parameters(self) -> int:
        """Matrices (and biases) of one feed-forward layer, or of one expert."""
        wide = (2 if self.gated else 1) * self.ffn
        return self.hidden * (wide + self.ffn) + (wide + self.hidden if self.biases else 0)

    @property
    def block_parameters(self) -> int:
        """All of a block, norms and router included."""
        experts = self.experts * self.ffn_parameters + self.hidden * self.experts
        feed_forward = experts if self.experts else self.ffn_parameters
        return self.attention_parameters + feed_forward + 2 * self.norm_vectors * self.hidden

    @property
    def embedding_parameters(self) -> int:
        return (self.vocabulary + self.positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """The head's table, also where it is the embedding's."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them; a tied table counts once."""
        head = 0 if self.tied_embeddings else self.head_parameters
        final_norm = self.norm_vectors * self.hidden
        return self.layers * self.block_parameters + self.embedding_parameters + head + final_norm

    def described(self) -> str:
        """Name and size in one line."""
        experts = f", {self.experts_per_token} of {self.experts} experts" if self.experts else ""
        return f"{self.name}, {self.parameters / 1e9:.2f} billion parameters in {self.layers} blocks{experts}"

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of forward and backward for one token, two per multiply-add.

        6 per parameter that a token meets in a matrix (Kaplan et al., arXiv 2001.08361), and attention over the whole
        sequence, 12 layers x sequence x query channels, as MFU is usually counted (Chowdhery et al., arXiv
        2204.02311, appendix B): a causal mask is not subtracted.
        """
        active = self.experts_per_token * self.ffn_parameters + self.hidden * self.experts if self.experts else 0
        per_block = self.attention_parameters + (active or self.ffn_parameters)
        matrices = self.layers * per_block + self.head_parameters
        return 6.0 * matrices + 12.0 * self.layers * self.sequence * self.query_channels


def cards() -> tuple[str, ...]:
    """Names of the cards that ship, sorted."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if ".yaml" in entry.name))


def read_card(source: str | Path) -> ModelCard:
    """The card in a YAML file, or that of a name such as "llama3-8b". Raises UnknownNameError, InputError, OSError."""
    if not is_path(source):
        if str(source) not in cards():
            raise UnknownNameError.of("model card (and no such file)", str(source), cards())
        source = Path(str(_folder() / f"{source}.yaml"))
    return read_yaml(Path(source), ModelCard)


def is_card(source: str | Path) -> bool:
    """Whether `source` is a card and no profile: a YAML file, or the name of a card that ships; profiles are JSON.

    Raises UnknownNameError for a name of neither.
    """
    if is_path(source):
        return Path(source).suffix in (".yaml", ".yml")
    if str(source) not in (*library(), *cards()):
        raise UnknownNameError.of("profile or model card (and no such file)", str(source), (*library(), *cards()))
    return str(source) in cards()


def _folder() -> resources.abc.Traversable:
    return resources.files("simulator.language_models") / "cards"
