"""Factual recall: sequences, facts, references and minimal pairs, counted by hand."""

import math
from itertools import pairwise

import pytest
import torch

from mnemoscope import InputError, preset
from mnemoscope.models.building import build_untrained
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from tests.support import seeded

SMALL = {"n_subjects": 6, "n_relations": 3, "n_answers": 4, "n_noise": 5, "length": 8}


def sample(n=400, **fields):
    task = FactualRecall(**{**SMALL, **fields}).for_seed(3)
    return task, task.sample(n, split="train", generator=seeded())


def test_a_sequence_is_a_subject_and_a_relation_among_noise_and_ends_with_the_query():
    task, batch = sample()
    kinds = [0, 12, 18, 21, 26, 27]  # answers, subjects, relations, noise, query
    assert list(task.first.values()) == kinds[:-1]
    assert task.d_vocab == 27
    for row in batch.inputs.tolist():
        counts = [sum(low <= token < high for token in row) for low, high in pairwise(kinds)]
        assert counts == [0, 1, 1, 5, 1]
        assert row[-1] == 26
    for name in ("subject_pos", "relation_pos"):
        assert batch.latents[name].unique().tolist() == list(range(7)), name


def test_the_fact_of_both_is_due_at_the_query():
    task, batch = sample()
    table = task.table().tolist()
    for row in range(50):
        subject, relation = (int(batch.latents[name][row]) for name in ("subject", "relation"))
        assert int(batch.inputs[row, batch.latents["subject_pos"][row]]) == 12 + subject
        assert int(batch.inputs[row, batch.latents["relation_pos"][row]]) == 18 + relation
        assert int(batch.targets[row, -1]) == table[subject][relation]
        assert table[subject][relation] // 4 == relation, "the answers of a relation are its own"
    assert batch.scored.sum(1).tolist() == [1] * 400


def test_facts_follow_the_seed_or_the_number_of_the_subject():
    assert not torch.equal(FactualRecall().for_seed(1).table(), FactualRecall().for_seed(2).table())
    assert torch.equal(FactualRecall(facts_seed=1).for_seed(2).table(), FactualRecall().for_seed(1).table())
    ordered = FactualRecall(n_subjects=16, n_relations=4, facts="ordered")
    assert ordered.for_seed(5) == ordered
    assert ordered.table()[:, 1].tolist() == [8 + j // 2 for j in range(16)]
    with pytest.raises(InputError, match="facts_seed is not set"):
        FactualRecall().table()


def test_references_know_what_they_are_named_for():
    task, batch = sample(4000)
    right = batch.targets[:, -1:]
    loss = {name: -task.reference(batch, name)[:, -1].gather(1, right)[:, 0].log() for name in task.references}
    assert loss["uniform"].tolist() == pytest.approx([math.log(12)] * 4000)
    assert loss["relation_uniform"].tolist() == pytest.approx([math.log(4)] * 4000)
    assert loss["fact"].abs().max() == 0
    table = task.table()
    for name, axis in (("relation", 0), ("subject", 1)):
        given, of = task.reference(batch, name)[0, -1], int(batch.latents[name][0])
        facts = table[:, of] if axis == 0 else table[of]
        shares = [float((facts == answer).double().mean()) for answer in range(12)]
        assert given.tolist() == pytest.approx(shares), name


def test_frequencies_weigh_the_references():
    task, batch = sample(20_000, exponent=1.0)
    shares = torch.bincount(batch.latents["subject"]) / 20_000
    harmonic = sum(1 / j for j in range(1, 7))
    assert shares.tolist() == pytest.approx([1 / j / harmonic for j in range(1, 7)], abs=0.015)
    found = torch.bincount(batch.targets[batch.latents["relation"] == 2, -1], minlength=12).double()
    row = int((batch.latents["relation"] == 2).nonzero()[0])
    assert task.reference(batch, "relation")[row, -1].tolist() == pytest.approx(
        (found / found.sum()).tolist(), abs=0.03
    )


@pytest.mark.parametrize(("kind", "changed"), [("other_subject", 1), ("other_relation", 1), ("other_noise", 5)])
def test_minimal_pairs_differ_in_what_they_are_named_for(kind, changed):
    task, batch = sample()
    other = task.corrupt(batch, kind=kind, generator=seeded(1))
    assert (batch.inputs != other.inputs).sum(1).tolist() == [changed] * 400
    assert task.pair_report(batch, other)["answer_changed"] == (kind != "other_noise")
    for name in ("subject", "relation"):
        assert torch.equal(batch.latents[name], other.latents[name]) == (kind != f"other_{name}")
        assert torch.equal(batch.latents[f"{name}_pos"], other.latents[f"{name}_pos"])


def test_subjects_that_cannot_be_told_apart_are_refused():
    task = FactualRecall(n_subjects=2, n_answers=2, n_relations=12, facts_seed=0)
    assert (task.table()[0] == task.table()[1]).any()
    with pytest.raises(InputError, match="relations whose facts differ"):
        task.corrupt(task.sample(400, split="test", generator=seeded()), kind="other_subject", generator=seeded(1))


def test_the_query_has_no_residual_of_its_own_and_only_answers_can_be_predicted():
    spec = preset("facts", seed=1)
    model, batch = build_untrained(spec), spec.task.sample(9, split="train", generator=seeded())
    _, cache = model.run_with_cache(batch.inputs)
    assert model(batch.inputs).shape[-1] == model.cfg.d_vocab_out == 8 * 32
    assert not cache["blocks.0.hook_resid_pre"][:, -1].any()
    written = cache["blocks.0.hook_attn_out"] + cache["blocks.0.hook_mlp_out"]
    torch.testing.assert_close(cache["blocks.0.hook_resid_post"][:, -1], written[:, -1])
    scores = model.blocks[0].attn.b_Q @ cache["blocks.0.attn.hook_k"][0].permute(1, 2, 0)
    expected = scores.diagonal().T / model.cfg.attn_scale
    torch.testing.assert_close(cache["blocks.0.attn.hook_attn_scores"][0, :, -1], expected)


@pytest.mark.parametrize(("fields", "words"), [({"length": 3}, "task.length"), ({"n_answers": 1}, "task.n_answers")])
def test_what_cannot_be_is_refused(fields, words):
    with pytest.raises(InputError, match=words):
        FactualRecall(**fields)
