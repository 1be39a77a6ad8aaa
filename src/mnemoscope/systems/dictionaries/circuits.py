"""A known circuit of features: neurons that are the memory, as features of a transcoder, and some that do nothing.

Of `constructed.detectors` every neuron is active on one pair (x, y) and writes its y. As many neurons again are active
on one pair (a, b), and write into dimensions that nothing reads. With the neurons as features the edges are known by
construction. Between two sequences of the same x whose y, a and b differ, the answer goes from the input to the head
that carries y, from there into every feature of (x, y), and from these to the logits.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

import mnemoscope as ms
from mnemoscope.systems.dictionaries.constructed import LOGIT, N, PairRecall, carriers, detectors

NAME = "features-of-pairs"
PAIRS = [(x, y) for x in range(1, N + 1) for y in range(1, N + 1)]
SOURCE = (
    "L0H0 and L0H1 carry x and y, L0H2 and L0H3 two tokens that do not matter; a feature for each pair of x and y "
    "writes y, one for each pair of the other two writes where nothing reads. Features are the neurons; y differs."
)


@torch.no_grad()
def memory_and_decoys() -> ms.HookedModel:
    """The model: neurons 0 to 24 are the memory, neurons 25 to 49 find pairs of tokens that do not matter."""
    model, blocks = carriers(2 * len(PAIRS))
    mlp = model.blocks[0].mlp
    for first, (one, other, writes) in enumerate((("x", "y", "answer"), ("a", "b", "a"))):
        for number, (left, right) in enumerate(PAIRS, first * len(PAIRS)):
            mlp.W_in[:, number] = blocks[one][:, left] + blocks[other][:, right]
            mlp.b_in[number] = -1.0
            mlp.W_out[number] = LOGIT * blocks[writes][:, right]
    return model


@torch.no_grad()
def neurons_as_features(model: ms.HookedModel) -> ms.Dictionary:
    """A transcoder whose features are the neurons of the first layer, without an error."""
    mlp = model.blocks[0].mlp
    parts = {"w_enc": mlp.W_in.T, "b_enc": mlp.b_in, "w_dec": mlp.W_out, "b_dec": mlp.b_out}
    parts = {name: value.detach().clone() for name, value in parts.items()}
    return ms.Dictionary(name="neurons", layer=0, reads="mlp_in", writes="mlp_out", **parts)


def detected_once() -> ms.HookedModel:
    """`constructed.detectors` with one feature a pair of x and y, and one for each pair of a and b."""
    return _detected(1)


def detected_twice() -> ms.HookedModel:
    """The same with two features a pair of x and y, each of which writes half of its y."""
    return _detected(2)


def _detected(n_copies: int) -> ms.HookedModel:
    features, n = neurons_as_features(memory_and_decoys()), len(PAIRS)
    rows = [*range(n)] * n_copies + [*range(n, 2 * n)]
    written = torch.cat([features.w_dec[:n] / n_copies, features.w_dec[n:]])
    copied = replace(features, w_enc=features.w_enc[rows], b_enc=features.b_enc[rows], w_dec=written[rows])
    return ms.with_dictionaries(detectors(), [copied])


def other_answers(n: int, seed: int) -> ms.PromptPairs:
    """Sequences beside others with another y; every (x, y) comes equally often where 25 divides `n`."""
    draws = ms.generator(seed, NAME)
    order = torch.randperm(len(PAIRS), generator=draws).repeat(1 + n // len(PAIRS))[:n]
    x, y = torch.tensor(PAIRS)[order].unbind(1)
    other = 1 + (y - 1 + torch.randint(1, N, (n,), generator=draws)) % N
    sides = [torch.stack((x, each, *torch.randint(1, N + 1, (2, n), generator=draws)), 1) for each in (y, other)]
    clean, corrupted = map(PairRecall().batch, sides)
    return ms.PromptPairs(clean=clean, corrupted=corrupted, name="another y")


@dataclass(frozen=True, kw_only=True)
class FeatureCircuit:
    """The known circuit, built when it is called; it takes part where it is named."""

    by_default: ClassVar[bool] = False

    def __call__(self) -> ms.methods.KnownCircuit:
        """The model with its neurons as features."""
        model = memory_and_decoys()
        memory = range(len(PAIRS))
        edges = ["input → L0H1 v", *(f"L0H1 → L0F{number}" for number in memory)]
        edges += [f"L0F{number} → logits" for number in memory]
        return ms.methods.KnownCircuit(
            name=NAME,
            family=NAME,
            source=SOURCE,
            model=ms.with_dictionaries(model, [neurons_as_features(model)]),
            pairs=other_answers,
            edges=frozenset(edges),
        )


ms.methods.KNOWN_CIRCUITS.add(NAME, FeatureCircuit())
