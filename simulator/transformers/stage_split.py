"""Which blocks stand on which pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simulator.errors import require
from simulator.transformers.model_card import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBlocks:
    """What one stage holds: so many blocks, and perhaps the embedding (the first) or norm, head and loss (the last)."""

    blocks: int
    embedding: bool = False
    head: bool = False

    def expert_parameters(self, card: ModelCard, tensor: int = 1, expert: int = 1) -> float:
        """Parameters of experts that a device of this stage holds."""
        return self.blocks * card.experts * card.ffn_parameters / (tensor * expert)

    def parameters(self, card: ModelCard, tensor: int = 1, expert: int = 1) -> float:
        """Parameters that a device of this stage holds, its share of tensor and expert parallelism.

        A tied table stands on the first and on the last stage, once where those are one.
        """
        tables = card.embedding_parameters if self.embedding else 0
        if self.head and not (self.embedding and card.tied_embeddings):
            tables += card.head_parameters
        norms = 2 * card.norm_vectors * card.hidden * self.blocks + (
            card.norm_vectors * card.hidden if self.head else 0
        )
        experts = self.expert_parameters(card)
        matrices = self.blocks * (card.block_parameters - 2 * card.norm_vectors * card.hidden) + tables - experts
        return matrices / tensor + norms + experts / (tensor * expert)

    def largest(self, card: ModelCard, tensor: int = 1, expert: int = 1) -> float:
        """Parameters on a device of the largest of its blocks and tables."""
        tables = [card.embedding_parameters * self.embedding, card.head_parameters * self.head]
        block = StageBlocks(blocks=min(self.blocks, 1)).parameters(card, tensor, expert)
        return max(block, *(table / tensor for table in tables))


@lru_cache(maxsize=256)
def stages_by_parameters(card: ModelCard, stages: int) -> tuple[StageBlocks, ...]:
    """Blocks go to a stage until it and those before hold their share of the parameters of blocks and head.

    The head has its weight in the shares and stands on the last stage. This is how nanotron (Hugging Face) splits, as
    far as the times of its published runs show.
    """
    require(stages >= 1, "stages", stages, "it is at least 1")
    total = card.layers * card.block_parameters + card.head_parameters
    counts, stage = [0] * stages, 0
    for block in range(1, card.layers + 1):
        counts[stage] += 1
        # whole numbers, so that no rounding decides whether a stage has met its share
        if stage < stages - 1 and block * card.block_parameters * stages >= total * (stage + 1):
            stage += 1
    return _with_ends(counts)


@lru_cache(maxsize=256)
def equal_stages(card: ModelCard, stages: int) -> tuple[StageBlocks, ...]:
    """As equally many blocks on every stage as integers allow, the first ones having more."""
    require(stages >= 1, "stages", stages, "it is at least 1")
    less, rest = divmod(card.layers, stages)
    return _with_ends([less + (stage < rest) for stage in range(stages)])


def _with_ends(counts: list[int]) -> tuple[StageBlocks, ...]:
    last = len(counts) - 1
    return tuple(
        StageBlocks(blocks=count, embedding=stage == 0, head=stage == last) for stage, count in enumerate(counts)
    )
