"""D5: what the error of a transcoder carries is little, by what the model does without it."""

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import CLAIMS, Subject, generator
from mnemoscope.claims import GATE, controls, most, table
from mnemoscope.systems.dictionaries.answers import Answers, log_probs, read_answers
from mnemoscope.systems.dictionaries.claim_parts import (
    DETECTORS,
    MIN_CARRIED,
    MIXTURES,
    TEXTS,
    UNTRAINED,
    V3,
    carried,
    dictionary_claim,
    passing,
    transcoder,
)
from mnemoscope.systems.dictionaries.units import features

LITTLE = 0.1
"""Share of what the MLP adds: a dictionary that recovers nine tenths is what the field calls a good one."""
TIMES = 2.0
"""By how much the error must cost more than a random change of its size, to be more than noise."""
N_RANDOM = 20
LEAST = 1e-3
"""Nats below which a cost counts as this much, so that ratios stay finite."""


@torch.no_grad()
def measure(subject: Subject, *, seed: int = 0) -> dict[str, float]:
    """Costs of leaving the error out by that of the mean in place of the MLP, or by that of noise, and `GATE`."""
    answers = read_answers(subject)
    error = features(transcoder(subject, seed=seed), answers).error
    whole, draws = answers.stream + answers.written, generator(subject.seed, "noise")
    log_prob, recall = _scores(subject, answers, whole)
    scores = {
        "error": _scores(subject, answers, whole - error),
        "mlp": _scores(subject, answers, answers.stream + answers.mean(answers.written)),
    }
    noise = []
    for _ in range(N_RANDOM):
        drawn = torch.nn.functional.normalize(torch.randn(error.shape, generator=draws, dtype=torch.float32), dim=-1)
        moved = drawn.to(error) * error.norm(dim=-1, keepdim=True)
        noise.append(log_prob - _scores(subject, answers, whole - moved)[0])
    nats, accuracy = ({name: one[i] for name, one in scores.items()} for i in (0, 1))
    of_mlp = log_prob - nats["mlp"], recall - accuracy["mlp"]
    carries = carried(subject) >= MIN_CARRIED and of_mlp[0] > LEAST and of_mlp[1] > 0
    return {
        "loss": (log_prob - nats["error"]) / of_mlp[0] if carries else 1.0,
        "recall": (recall - accuracy["error"]) / of_mlp[1] if carries else 1.0,
        "noise": max(log_prob - nats["error"], LEAST) / max(sum(noise) / N_RANDOM, LEAST),
        "nats without the error": log_prob - nats["error"],
        "nats without the MLP": of_mlp[0],
        GATE: passing(subject),
    }


def _scores(subject: Subject, answers: Answers, stream: Float[Tensor, "row d_model"]) -> tuple[float, float]:
    """The mean log-probability of the last answer under the task, and the accuracy of recall."""
    found = log_probs(subject.model, stream)
    answer = found.gather(1, answers.target[:, None])[:, 0]
    right = (found.argmax(-1) == answers.target)[answers.of_skill]
    return float(answers.weights @ answer), float(right.double().mean())


_SHARE, _TIMES = "times the cost of the MLP", "times noise"
_LITTLE = {"loss": 0.02, "recall": 0.02, "noise": 0.5}
_MUCH = {"loss": 0.4, "recall": 0.4, "noise": 5.0}
_AT = table("at the margins", {V3: {"loss": LITTLE, "recall": LITTLE, "noise": TIMES}})
_CLAIM = dictionary_claim(
    id="D5",
    statement=(
        "The error of a transcoder carries little: leaving it out costs less than a tenth of what the mean in place "
        "of the MLP costs."
    ),
    measure=measure,
    explanation=TEXTS.explain("D5", little=LITTLE, times=TIMES, n=N_RANDOM),
    prompts="enumerated",
    parts=(most("loss", "below", LITTLE, _SHARE), most("recall", "below", LITTLE, _SHARE)),
    factors={"seed": (1,)},
    controls=controls(
        positive=(MIXTURES, DETECTORS), negative=(UNTRAINED, table("much", {V3: _MUCH}), _AT),
    ),
)  # fmt: skip
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "no-noise",
        "The error is no noise: leaving it out costs more than twice as much as a random change of its size.",
        parts=(most("noise", "above", TIMES, _TIMES),),
        controls=controls(positive=(table("much", {V3: _MUCH}),), negative=(table("little", {V3: _LITTLE}), _AT)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
