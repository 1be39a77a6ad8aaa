"""Predictions of a causal model for pairs of sequences, and arbitrary answers to compare with.

A pair is a base and a source; one variable of the base takes its value in the source. Pairs are distinguished by
what follows for the answer:

    changing  no answer that was best before is best afterwards: who is left alone cannot score here
    kept      the probabilities of all answers stay: who changes anything fails here
    (others)  some best answers stay best; they count among `all` pairs only

An accuracy over all pairs is flattering where most are kept, and one over the changing pairs alone is flattering to a
model that leaves out what the variable does not change: read both.

`arbitrary` gives the changing pairs other answers: of each pair of (answer before, answer after) a random function that
is neither, the same on every set of pairs. Where a learned subspace reaches these as well, its success shows how much
can be expressed by the learning, not what the network computes (the point of Sutter et al. 2025, "The non-linear
representation dilemma", made there with non-linear maps on untrained networks).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.causal import CausalModel, best
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator

OVER = ("all", "changing", "kept")


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """The predictions of a causal model for pairs (bases `clean`, sources `corrupted`), one variable exchanged.

    `before` has the probabilities of the answer on the base as it is, `after` those with the variable as in the source.
    """

    causal: CausalModel
    variable: str
    pairs: PromptPairs
    before: Float[Tensor, "pair d_vocab"]
    after: Float[Tensor, "pair d_vocab"]

    @property
    def over(self) -> dict[str, Bool[Tensor, " pair"]]:
        """The pairs that count as `all`, `changing` and `kept`."""
        kept = (self.before - self.after).abs().amax(1) < 1e-9
        changing = ~(best(self.before) & best(self.after)).any(1)
        return {"all": torch.ones_like(kept), "changing": changing, "kept": kept}


def random_pairs(batch: Batch, n: int, *, seed: int = 0) -> PromptPairs:
    """Bases and sources drawn from one batch, each row alike, never a row with itself.

    Weights of the batch are not used: choose the rows that are to count. Draws come from the seed's stream `random
    pairs`. Raises InputError where the batch has fewer than two rows, or n is below 1.
    """
    in_range("n", n, 1, float("inf"))
    in_range("the number of sequences that pairs are drawn from", len(batch), 2, float("inf"))
    draws = generator(seed, "random pairs")
    base = torch.randint(len(batch), (n,), generator=draws)
    source = (base + torch.randint(1, len(batch), (n,), generator=draws)) % len(batch)
    device = batch.inputs.device
    return PromptPairs(
        clean=batch.select(base.to(device)), corrupted=batch.select(source.to(device)), name="random pairs"
    )


def counterfactuals(causal: CausalModel, pairs: PromptPairs, variable: str, d_vocab: int) -> Counterfactuals:
    """The predictions of a causal model for pairs (bases `clean`, sources `corrupted`) with one variable exchanged."""
    return Counterfactuals(
        causal=causal,
        variable=variable,
        pairs=pairs,
        before=causal.answers(pairs.clean, d_vocab),
        after=causal.interchanged(pairs.clean, pairs.corrupted, variable, d_vocab),
    )


def arbitrary(sets: Sequence[Counterfactuals], *, seed: int = 0) -> list[Counterfactuals]:
    """The same pairs, the changing ones with an arbitrary answer.

    The sets are of one variable, such as those of fit and of test prompts. They share one function, drawn from the
    seed's stream `arbitrary answers`. Raises InputError where fewer than three answers exclude each other, so that none
    is left to say.
    """
    changing = [wanted.over["changing"] for wanted in sets]
    before, after = (
        torch.cat([getattr(wanted, side)[rows] for wanted, rows in zip(sets, changing, strict=True)])
        for side in ("before", "after")
    )
    kinds, kind = torch.cat((before, after)).unique(dim=0, return_inverse=True)
    changes, which = kind.view(2, -1).unique(dim=1, return_inverse=True)
    apart = (best(kinds).double() @ best(kinds).double().T == 0).double()
    allowed = apart[changes[0]] * apart[changes[1]]
    if not len(before) or not allowed.any(1).all():
        raise InputError(
            "an arbitrary answer must be neither that before nor that after the exchange, so that three answers are "
            f"needed; the {len(before)} changing pairs have {len(kinds)}; take more pairs, or leave this control out"
        )
    chosen = allowed.cpu().multinomial(1, generator=generator(seed, "arbitrary answers"))[:, 0].to(kinds.device)
    answers = kinds[chosen[which]].split([int(rows.sum()) for rows in changing])
    return [
        replace(wanted, after=wanted.after.masked_scatter(rows[:, None], answer))
        for wanted, rows, answer in zip(sets, changing, answers, strict=True)
    ]
