"""Known circuits of trained associative memories, as far as B4 establishes them: the induction circuit, by its weights.

B4 reads three memories off the matrices: W_K of layer 1 leads a position to the one before, W_K of layer 2 a trigger
to its copy through layer 1, and W_O of layer 2 a token to itself. On *outputs* one trigger has another output, and the
difference goes through the values of layer 2. On *triggers* two of them stand in each other's places, and it goes
through layer 1 and the keys. Edges that the memories have no use for are absent. Recall is of matrices: that the model
computes with them is concluded from its accuracy.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

import mnemoscope as ms
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams

_ABSENT = {
    *(f"input → L0H0 {way}" for way in "qk"),
    *(f"input → L1H0 {way}" for way in "qk"),
    *(f"L0H0 → L1H0 {way}" for way in "qv"),
    *("input → logits", "L0H0 → logits"),
}


def output_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The circuit where the outputs differ; unjudged is what layer 1 copies of them."""
    return {"input → L1H0 v", "L1H0 → logits"}, _ABSENT


def trigger_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The circuit where the triggers differ; unjudged are the values of layer 2."""
    return {"input → L0H0 v", "L0H0 → L1H0 k", "L1H0 → logits"}, _ABSENT


def _sample(trained: ms.Subject, n: int, seed: int) -> ms.Batch:
    return trained.task.sample(n, split="test", generator=ms.generator(seed, "known circuit"))


def output_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Sequences in which one trigger has another output, read at its last occurrence."""
    task, batch = trained.task, _sample(trained, 4 * n, seed)
    assert isinstance(task, InContextBigrams)
    batch = batch.select(task.exchangeable(batch))
    pairs = ms.PromptPairs.from_task(task, batch, kind="exchange_output", seed=seed)
    same = pairs.clean.inputs == pairs.corrupted.inputs
    return _where(pairs, pairs.scored & same & (pairs.answer != pairs.foil), n)


def trigger_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Sequences in which two triggers stand in each other's places before the last known one, read there.

    That one is one of both, the other has occurred before, and what follows them is no trigger.
    """
    batch = _sample(trained, 8 * n, seed)
    triggers, outputs = batch.known["triggers"], batch.known["outputs"]
    number, place = batch.latents["trigger"], torch.arange(batch.inputs.shape[1])
    at = torch.where(batch.latents["occurrence"] > 1, place, -1).amax(1, keepdim=True)
    asked = number.gather(1, at.clamp(min=0))
    clear = ~(outputs[..., None] == triggers[:, None]).any(-1)
    shown = (number[..., None] == torch.arange(triggers.shape[1])).logical_and(place[:, None] < at[:, None] - 1).any(1)
    usable = clear & shown & (outputs != outputs.gather(1, asked.clamp(min=0)))
    other = usable.int().argmax(1, keepdim=True)
    first, second = (triggers.gather(1, each.clamp(min=0)) for each in (asked, other))
    before, tokens = place < at, batch.inputs
    turned = torch.where(tokens == first, second, torch.where(tokens == second, first, tokens))
    foils = torch.where(place == at, outputs.gather(1, other), batch.targets)
    corrupted = replace(batch, inputs=torch.where(before, turned, tokens), targets=foils)
    fits = usable.any(1, keepdim=True) & clear.gather(1, asked.clamp(min=0)) & (asked >= 0)
    pairs = ms.PromptPairs(clean=batch, corrupted=corrupted, name="exchange_triggers")
    return _where(pairs, (place == at) & fits, n)


def _where(pairs: ms.PromptPairs, mask: Bool[Tensor, "prompt pos"], n: int) -> ms.PromptPairs:
    """The first `n` pairs that are read somewhere, at the last place."""
    rows = mask.any(1)
    return pairs.select(rows).read_at(mask[rows]).read_last().select(slice(n))


for _name, _sides, _pairs in (
    ("outputs", output_edges, output_pairs),
    ("triggers", trigger_edges, trigger_pairs),
):
    ms.methods.plant_trained(
        (32, 33, 34),
        name=f"trained-memories-{_name}",
        label="memories-sgd",
        source=(
            "B4, 15 of 16: W_K of layer 1 recalls the position before, W_K of layer 2 the copy of a trigger, W_O of "
            "layer 2 the token itself, read off the matrices. Edges that these memories have no use for are absent."
        ),
        sides=_sides,
        pairs=_pairs,
    )
