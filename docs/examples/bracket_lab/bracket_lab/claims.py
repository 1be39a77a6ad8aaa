"""Does the answer read the bracket that it closes, where it stands?"""

from pathlib import Path

import torch

import mnemoscope as ms
from bracket_lab.tasks import MatchingBrackets
from mnemoscope.claims import EFFECT, GATE, ClaimTexts
from mnemoscope.models import constructed, set_by_hand, untrained

UNITS = {"brackets": ms.Configuration(preset="matching-brackets")}
SHALLOW = MatchingBrackets(max_depth=2)
"""The task of the planted model, which tells depth 1 from depth 2 by odd and even positions."""
MARGIN = 20.0
"""Logit that the planted model gives to its answer."""


def measure(subject: ms.Subject, *, split: str = "test") -> dict[str, float]:
    """Accuracy at the last bracket as it is (`GATE`), and what it loses without attention to its opening bracket."""
    words = subject.task.enumerate(split=split)
    batch = words.select(words.latents["distance"][:, -1] > 1)

    def accuracy(*knockouts: ms.Knockout) -> float:
        answers = ms.run_with(subject.model, batch, knockouts)[:, -1].argmax(-1)
        return float((answers == batch.targets[:, -1]).double().mean())

    sites = [ms.Site(kind="scores", layer=n, pos=-1, key="opener") for n in range(subject.model.cfg.n_layers)]
    clean = accuracy()
    return {GATE: clean, EFFECT: clean - accuracy(*(ms.Knockout(site=site) for site in sites))}


@torch.no_grad()
def by_hand() -> ms.HookedModel:
    """One layer for words of depth 2 or less: L0H0 attends to the innermost open bracket and writes its answer.

    A bracket of depth 1 opens at an even position and one of depth 2 at an odd one. The head prefers opening brackets,
    from a closing one those at even positions, and among these the latest.
    """
    k, n_ctx = SHALLOW.n_types, SHALLOW.n_ctx
    dims = constructed.dimension_blocks(token=2 * k, position=n_ctx, answer=k)
    circuit = constructed.CircuitParts(dims=dims, heads={"match": (0, 0)})
    model = constructed.zero_model(circuit, d_vocab=2 * k, n_ctx=n_ctx)
    constructed.set_embeddings(model, circuit)
    token, position, answer = (constructed.directions(model, block) for block in dims.values())
    opening, closing, anything = token[:, :k].sum(1), token[:, k:].sum(1), token.sum(1)
    latest = position @ torch.arange(n_ctx).float()
    first = opening + position[:, ::2].sum(1)
    query = torch.stack((anything, closing), 1)
    key = constructed.SURE * torch.stack((latest + n_ctx * opening, n_ctx * first), 1)
    constructed.set_query_key(model, circuit.heads["match"], (query, key))
    constructed.set_value_output(model, circuit.heads["match"], (token[:, :k], MARGIN * answer))
    model.unembed.W_U[dims["answer"], k:] = torch.eye(k)
    return model


TEXTS = ClaimTexts(Path(__file__).with_suffix(".yaml"))
CLAIM = ms.Claim(
    id="brackets-look-back",
    statement="Closing a farther bracket needs attention from the answer to it.",
    source="a question of ours",
    system="bracket-lab",
    quantifier="most",
    margin=0.25,
    unit="accuracy",
    gate=ms.Gate(statement="closes 90 % of farther brackets in unseen words, or more", at_least=0.9),
    units=UNITS,
    controls=(
        ms.Control(name="by hand", kind="positive", plant=set_by_hand("brackets", by_hand, SHALLOW)),
        ms.Control(name="untrained", kind="negative", plant=untrained(UNITS)),
    ),
    measure=measure,
    explanation=TEXTS.explain("brackets-look-back"),
    factors={"split": ("train",)},
)
ms.CLAIMS.add(CLAIM.id, CLAIM)
