import math
from typing import Any

import numpy as np
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models import constructed
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.in_context_bigrams.analyses import (
    LEARNED,
    accuracy_by_class,
    evaluate_by_class,
    learned,
    position_classes,
)
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import fixed_triggers, global_bigrams, prompts
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams, NoisyRecall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, global_generators_untouched, random_model, reads_back, seeded

COUNTS = tuple((ord(a), ord(b), 1 + (ord(a) * ord(b)) % 5) for a in "abcdef" for b in "abcdef")
TASK = InContextBigrams(length=12, n_triggers=2, triggers="fixed", counts=COUNTS, loss_on="predictable")


def given(*tokens, triggers, outputs, task: InContextBigrams | NoisyRecall = TASK):
    """One sequence of given tokens, the last of which is a target only."""
    return task.batch(torch.tensor([tokens]), torch.tensor([triggers]), torch.tensor([outputs]))


def test_prompts_are_fresh_sequences_scored_everywhere_and_kept():
    with global_generators_untouched():
        batch = prompts(TASK, 3, n=5)
    assert batch is prompts(TASK, 3, n=5)
    assert batch.scored.all()
    assert (prompts(TASK, 4, n=5).inputs != batch.inputs).any()
    tokens, known = prompts(TASK, 3, 500, loops=False), batch.known
    assert not (tokens.known["triggers"] == tokens.known["outputs"]).any()
    assert known["triggers"].tolist() == [list(TASK.fixed_triggers)] * 5
    assert prompts(NoisyRecall(length=9), 0, n=2).inputs.shape == (2, 9)
    with pytest.raises(InputError, match=r"task.n_triggers must be from 1 to 5; got 9"):
        prompts(TASK, 3, n_triggers=9)


def test_bigrams_and_triggers_of_both_tasks():
    assert global_bigrams(TASK) is TASK.bigrams.transitions
    assert fixed_triggers(TASK) == TASK.fixed_triggers
    noisy = NoisyRecall(n_tokens=4, n_triggers=2, triggers="random")
    assert global_bigrams(noisy).tolist() == [[0.25, 0.25, 0.25, 0.25, 0]] * 5
    assert fixed_triggers(noisy) == ()
    for of in (global_bigrams, fixed_triggers):
        with pytest.raises(InputError, match="task must be in-context-bigrams or noisy-recall; got permutation-lookup"):
            of(PermutationLookup())


def test_classes_count_occurrences_of_triggers():
    batch = given(0, 1, 0, 1, 5, 0, 1, 4, triggers=[0, 4], outputs=[1, 2])
    found = {name: mask[0].nonzero()[:, 0].tolist() for name, mask in position_classes(batch).items()}
    assert found == {"in_context": [2, 5], "first": [0], "second": [2], "later": [5], "global": [1, 3, 4, 6]}


def test_positions_that_noise_follows_are_a_class_of_their_own():
    task = NoisyRecall(length=8, n_tokens=4, n_triggers=2)
    batch = given(0, 4, 0, 3, 0, 4, 2, 0, 3, triggers=[0, 1], outputs=[3, 2], task=task)
    found = {name: mask[0].nonzero()[:, 0].tolist() for name, mask in position_classes(batch).items()}
    assert found["noise"] == [0, 4]
    assert found["in_context"] == [2, 7]
    assert found["first"] == []
    assert found["global"] == [1, 3, 5, 6]
    assert math.isnan(accuracy_by_class(random_model(d_vocab=5), batch)["first"])


def test_an_induction_model_knows_the_context_and_nothing_else():
    batch = prompts(TASK, 0)
    found = evaluate_by_class(constructed.induction(6, 12), batch)
    assert found.accuracy.sel(position_class=["in_context", "second", "later"]).values.tolist() == [1, 1, 1]
    assert found.loss.sel(position_class="in_context") < 1e-6
    assert found.loss.sel(position_class="global") > 2
    counts = found.n.to_series()
    assert counts.in_context == counts.second + counts.later
    assert counts.in_context + counts["first"] + counts["global"] == batch.inputs.numel()


def test_ties_are_guessed_and_references_stand_beside(tmp_path):
    model: Any = Predictor(TASK, "unigram")
    even = random_model(d_vocab=6, n_ctx=12)
    with torch.no_grad():
        for parameter in even.parameters():
            parameter.zero_()
    batch = prompts(TASK, 1)
    assert list(accuracy_by_class(even, batch).values()) == pytest.approx([1 / 6] * 5)
    found = evaluate_by_class(model, batch, task=TASK, references=["unigram", "global_bigram"])
    same = found.sel(reference="unigram")
    np.testing.assert_allclose(same.floor, found.loss, rtol=1e-5)
    np.testing.assert_allclose(same.best_accuracy, found.accuracy)
    np.testing.assert_allclose(same.kl, 0, atol=1e-6)
    at = batch.inputs[position_classes(batch)["global"]]
    rows = TASK.bigrams.transitions[at]
    kl = (rows * (rows / TASK.bigrams.unigram).log()).sum(-1).mean()
    assert found.kl.sel(reference="global_bigram", position_class="global") == pytest.approx(float(kl), rel=1e-5)
    assert reads_back(found, tmp_path / "found.nc")


def test_chunks_change_nothing():
    model, batch = random_model(d_vocab=6, n_ctx=12, n_layers=2), TASK.sample(130, split="test", generator=seeded())
    whole = evaluate_by_class(model, batch)
    with torch.no_grad():
        right = (model(batch.inputs).argmax(-1) == batch.targets)[batch.latents["occurrence"] == 0]
    assert whole.accuracy.sel(position_class="global") == pytest.approx(float(right.double().mean()))


def test_the_gate_passes_who_reads_the_context():
    passed = Subject(model=constructed.induction(6, 12), task=TASK, seed=0)
    failed = Subject(model=random_model(d_vocab=6, n_ctx=12), task=TASK, seed=0)
    assert learned(passed) == 1
    assert learned(failed) < 0.5 < LEARNED.at_least == 0.8


def test_other_tasks_and_unknown_references_are_refused():
    lookup = PermutationLookup(split_seed=0).sample(2, split="test", generator=seeded())
    with pytest.raises(InputError, match="got 'occurrence'"):
        accuracy_by_class(random_model(), lookup)
    with pytest.raises(InputError, match="a reference must be one of: unigram, global_bigram, in_context; got 'bayes'"):
        evaluate_by_class(random_model(d_vocab=6, n_ctx=12), prompts(TASK, 0), task=TASK, references=["bayes"])
