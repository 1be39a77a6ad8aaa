"""Known circuits without a task: the induction circuit, set by hand, as it is and with noise on every head."""

from functools import partial

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.methods.known import KNOWN_CIRCUITS, KnownCircuit, NoisedCircuit, plant_circuit
from mnemoscope.models.constructed import induction

N_TOKENS, N_CTX = 24, 8
PAIRS = "other tokens"
EDGES = frozenset({"input → L0H0 v", "L0H0 → L1H0 k", "input → L1H0 q", "input → L1H0 v", "L1H0 → logits"})
SOURCE = (
    "L0H0 copies the token one place earlier; L1H0 looks for the query's token among these copies, and copies the "
    "token where it finds it to the logits. The pairs show other tokens, in other places."
)


def other_tokens(n: int, seed: int) -> PromptPairs:
    """Distinct tokens and one of them again, beside other tokens of which another one stands twice; read at the end."""
    return PromptPairs(clean=_shown_again(n, seed, "clean"), corrupted=_shown_again(n, seed, "corrupted"), name=PAIRS)


def _shown_again(n: int, seed: int, side: str) -> Batch:
    """Distinct tokens, then one of them but the last; the answer is the token that followed it."""
    stream = generator(seed, "known induction", side)
    shown = torch.rand(n, N_TOKENS, generator=stream, dtype=torch.float32).argsort(1)[:, : N_CTX - 1]
    place = torch.randint(N_CTX - 2, (n, 1), generator=stream)
    inputs = torch.cat((shown, shown.gather(1, place)), 1)
    targets = shown.gather(1, place + 1).expand(-1, N_CTX)
    return Batch(inputs=inputs, targets=targets, scored=(torch.arange(N_CTX) == N_CTX - 1).expand(n, -1))


def noised_induction(*, seed: int) -> KnownCircuit:
    """The induction circuit with noise on every head."""
    model = induction(N_TOKENS, N_CTX, noise=0.03, seed=seed)
    what = {"name": "induction-noised", "family": "induction", "source": SOURCE, "pairs": other_tokens}
    return KnownCircuit(model=model, edges=EDGES, **what)


plant_circuit(
    "induction",
    family="induction",
    source=SOURCE,
    make=partial(induction, N_TOKENS, N_CTX),
    pairs=other_tokens,
    edges=EDGES,
)
KNOWN_CIRCUITS.add("induction-noised", NoisedCircuit(build=noised_induction))
