"""Networks of attention: a vision transformer (arXiv 2010.11929) and a GPT-2 decoder, with torch.nn alone.

    tokens -> [ norm -> qkv -> attention -> out -> add ; norm -> fc -> gelu -> proj -> add ] x depth -> norm -> head

What of a layer may be split follows from how it is written. Queries, keys and values come from one linear layer in the
order (head, which of the three, channel), so that an eighth of its channels is an eighth of the heads, whole. Attention
then needs all positions, but the channels of its own heads only. Norms and linear layers need all channels, but
their own position only. There is no dropout, as in most training of such networks today.
"""

from __future__ import annotations

from torch import Tensor, nn

from traces.zoo.blocks import Add, Attention, First, Positions, Tokens, joined


def vit_b16() -> nn.Module:
    """ViT-B/16 for images of 224x224 and 1000 classes: 86,567,656 parameters."""
    return vision_transformer(side=224, patch=16, width=768, depth=12, heads=12, classes=1000)


def gpt2_small() -> nn.Module:
    """GPT-2 of 124,439,808 parameters: 12 blocks of 768 channels, 1024 positions, output tied to the embedding."""
    return Decoder(vocabulary=50257, context=1024, width=768, depth=12, heads=12)


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
