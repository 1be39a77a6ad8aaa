"""How many prompts and cells of a patching sweep fit into a number of bytes.

Estimates from above, in numbers of the model's floats, of what is in memory at once; tests hold them against what is
really allocated.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON
from mnemoscope.interventions.patching.measuring import MAX_BYTES, Question
from mnemoscope.interventions.recordings import Place

CACHE_BYTES = 16 * 2**20
"""Of one chunk on a CPU: larger ones gain nothing, smaller ones lose time between operations (measured)."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What memory depends on."""

    cfg: Any
    n_pos: int
    n_read: int

    @staticmethod
    def of(question: Question) -> "Sizes":
        """Of a model on some prompts."""
        return Sizes(cfg=question.model.cfg, n_pos=question.n_pos, n_read=len(question.read))

    @property
    def float_bytes(self) -> int:
        """Of one number."""
        return torch.empty((), dtype=self.cfg.dtype).element_size()

    @property
    def _heads(self) -> int:
        return self.cfg.n_heads * self.cfg.d_head

    @property
    def _d_mlp(self) -> int:
        return 0 if self.cfg.attn_only else self.cfg.d_mlp

    def _read(self) -> int:
        """Logits at the positions that are read, and what metrics make of them (the divergence needs most)."""
        return self.n_read * (8 * self.cfg.d_vocab_out + 40)

    def weights(self) -> int:
        """Bytes of what does not grow with prompts: copies of weights, and the check of the metrics."""
        return self.float_bytes * (
            self.cfg.d_model * (self.cfg.d_vocab_out + 4 * self._heads) + 300 * self.cfg.d_vocab_out
        )

    def copies(self) -> int:
        """Bytes of attention weights that are laid out anew."""
        return self.float_bytes * self.cfg.n_layers * self.cfg.d_model * 3 * self._heads

    def traced_weights(self) -> int:
        """Bytes of the weights of blocks, which TransformerLens lays out anew in a pass that is differentiated."""
        mlp = (3 if getattr(self.cfg, "gated_mlp", False) else 2) * self._d_mlp
        return self.float_bytes * self.cfg.n_layers * self.cfg.d_model * (4 * self._heads + mlp)

    def continued(self, start: int) -> int:
        """Bytes of one cell on one prompt, continued from position `start`."""
        n, d = self.n_pos - start, self.cfg.d_model
        attention = n * (2 * d + 5 * self._heads + 2 * self.cfg.n_heads * self.n_pos) + 2 * self.n_pos * self._heads
        mlp = n * (2 * d + (3 if getattr(self.cfg, "gated_mlp", False) else 2) * self._d_mlp)
        logits = self.n_read * 2 * d + self._read()
        return self.float_bytes * (2 * n * d + max(attention, mlp, logits))

    def edge(self, start: int) -> int:
        """Bytes of one edge on one prompt that changes something from position `start` on."""
        n, d = self.n_pos - start, self.cfg.d_model
        kept = n * (2 * d + self._heads)
        attention = n * (6 * self._heads + 2 * self.cfg.n_heads * self.n_pos) + 4 * self.n_pos * self._heads
        return self.float_bytes * kept + max(self.float_bytes * attention, self.continued(start))

    def hooked(self, *, everywhere: bool = True) -> int:
        """Bytes of one prompt in a forward pass of the model itself that unembeds everywhere, or where it is read."""
        d = self.cfg.d_model
        attention = 6 * self._heads + 6 * self.cfg.n_heads * self.n_pos
        mlp = 6 * self._d_mlp
        logits = 2 * self.n_pos * self.cfg.d_vocab_out * everywhere + self._read()
        return self.float_bytes * max(self.n_pos * (6 * d + max(attention, mlp)), self.n_pos * 2 * d + logits)

    def recorded(self, places: Collection[Place]) -> int:
        """Bytes of one prompt's records of two runs, with the keys and values laid out anew."""
        numbers = sum(self._numbers(kind) for kind, _ in places)
        past = 2 * self.cfg.n_layers * self._heads
        read = self.n_read * (2 * self.cfg.d_vocab_out + 40)
        return self.float_bytes * (self.n_pos * (2 * numbers + past) + read)

    def _numbers(self, kind: str) -> int:
        """Numbers of an activation at a position."""
        if kind in ATTENTION:
            return self.cfg.n_heads * self.n_pos
        return self._heads if kind in BY_HEAD else self._d_mlp if kind in BY_NEURON else self.cfg.d_model


def roomy(model: HookedModel) -> int:
    """A bound for whoever names none: `MAX_BYTES` and, besides, what does not grow with prompts: copies of weights."""
    sizes = Sizes(cfg=model.cfg, n_pos=1, n_read=1)
    return MAX_BYTES + sizes.weights() + max(sizes.copies(), sizes.traced_weights())


def worth_a_pass(model: HookedModel, least: int) -> int:
    """Bytes beyond which a forward pass on a CPU gains little: `least`, or half of the weights that it reads."""
    return max(least, sum(weight.nbytes for _, weight in model.named_parameters()) // 2)


def prompts_at_once(n: int, *, at_work: int, kept: int, room: int, target: int) -> int:
    """How many of `n` prompts to take at once.

    Args:
        n: How many there are.
        at_work: Bytes of one prompt in the forward pass that needs most.
        kept: Bytes that stay in memory for a prompt as long as its cells run.
        room: Bytes there are.
        target: Bytes that a forward pass of all prompts should not exceed if it can be helped.

    Raises:
        InputError: There is no room for one prompt.
    """
    if at_work + kept > room:
        raise InputError(
            f"max_bytes leaves {max(room, 0):,} bytes for activations and one prompt needs {at_work + kept:,}; allow "
            f"{at_work + kept - room:,} more"
        )
    return max(1, min(n, room // (at_work + kept), target // at_work))
