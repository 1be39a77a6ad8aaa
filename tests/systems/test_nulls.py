"""Five hundred claims that are false, about real models: untrained ones, shuffled labels, and the wrong program.

Labels are values drawn at random, so that no model knows them: accuracy lies at chance in every model, and the
probability and log-probability of a label at their means over the values. A wrong program is a model set by hand, with
noise on all weights, that does the task in another way than the claim says.
"""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch

from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.claims.trials import along_seeds, make_claim
from tests.support import seeded
from tests.systems.on_trial import on
from tests.systems.test_calibration import ALL, PLANTED, UNTRAINED, lighter, measured, variant, verdict

QUANTITIES = {"accuracy": (1 / 4, (0, 1)), "probability": (1 / 4, (0, 1)), "log-probability": (0.0, None)}
"""The mean over random labels of four values, and the bounds."""
N_MODELS, N_PROMPTS = 24, (5, 20, 80)


@cache
def answers(make, seed: int) -> np.ndarray:
    """Log-probabilities of the four values at the last scored position of prompts, their sum set to 1."""
    task = PermutationLookup(n_values=4, repeat_ratio=0.3)
    subject = on(UNTRAINED(seed)["v3"].model, task, seed) if make is None else variant(make, seed)
    batch = task.sample(200, split="all", generator=seeded(seed))
    with torch.no_grad():
        logits = subject.model(batch.inputs)
    last = batch.scored.float().cumsum(1).argmax(1)
    values = batch.targets[batch.scored].unique()
    return logits[torch.arange(len(last)), last][:, values].log_softmax(-1).double().numpy()


def false_claim(rng: np.random.Generator, make) -> Counter:
    """The outcome of one claim about 16 models and random labels."""
    quantity = rng.choice(list(QUANTITIES))
    (mean, bounds), n_prompts = QUANTITIES[quantity], int(rng.choice(N_PROMPTS))
    quantifier = str(rng.choice(["most", "every", "exists", "mean"]))
    rows = []
    for seed in rng.choice(N_MODELS, 16, replace=False).tolist():
        known = answers(make, seed)
        known = known[rng.choice(len(known), n_prompts, replace=False)]
        label = rng.integers(known.shape[1], size=n_prompts)
        said = known[np.arange(n_prompts), label]
        rows.append({
            "accuracy": known.argmax(1) == label,
            "probability": np.exp(said),
            "log-probability": said - known.mean(1),
        }[quantity])  # fmt: skip
    claim = make_claim(quantifier, margin=mean, bounds=bounds, direction=str(rng.choice(["above", "below"])))
    evidence = Evidence(effects=along_seeds(np.array(rows, dtype=float)), prompts="own")
    return Counter([judge(claim, evidence, n_resamples=399).outcome])


@pytest.mark.parametrize(("make", "n"), [(None, 200), (shared_store, 75), (dissociated, 75)])
def test_random_labels_support_and_refute_nothing(make, n):
    rng = np.random.default_rng(0)
    found = sum((false_claim(rng, make) for _ in range(n)), Counter())
    print(make and make.__name__, dict(found))
    assert max(found["SUPPORTED"], found["REFUTED"]) <= 0.02 * n, found


def test_the_wrong_program_supports_nothing():
    """150 claims: 16 of 24 models that do it otherwise, drawn again and again."""
    rng, found = np.random.default_rng(0), Counter()
    wrong = [(name, make) for name, make, expected in PLANTED if expected == "REFUTED"]
    for i in range(150):
        name, make = wrong[i % len(wrong)]
        cases = [measured(ALL[name].measure, make, seed) for seed in rng.choice(N_MODELS, 16, replace=False).tolist()]
        found[verdict(lighter(ALL[name]), cases).outcome] += 1
    print("wrong program", dict(found))
    assert found["SUPPORTED"] <= 3, found
    assert {make for _, make in wrong} == {dissociated, shared_store, store_and_match}
