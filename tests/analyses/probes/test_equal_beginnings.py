"""Rows that begin alike, or belong to one group, are on one side of a probe's split; random labels show where not."""

from dataclasses import replace

import pytest
import torch
from sklearn.model_selection import GroupKFold

import mnemoscope as ms
from mnemoscope.analyses.probe_rows import row_groups
from tests.support import foreign_model, seeded

PLACE = ms.Site(kind="resid_post", layer=1, pos=2)
MODEL = foreign_model(d_model=32)


def prompts(n_subjects: int = 40, n_each: int = 6):
    """Stories about subjects of three tokens, which go on in different ways."""
    draws = seeded()
    subjects = torch.randint(50, (n_subjects, 3), generator=draws).repeat_interleave(n_each, 0)
    rest = torch.randint(50, (len(subjects), 4), generator=draws)
    inputs = torch.cat((subjects, rest), 1)
    number = torch.arange(n_subjects).repeat_interleave(n_each)
    labels = torch.arange(len(inputs)) % 2
    return ms.Batch(
        inputs=inputs,
        targets=inputs,
        scored=torch.ones_like(inputs, dtype=torch.bool),
        known={"subject": number, "label": labels},
    )


BATCH = ms.analyses.with_random_labels(prompts(), "label", "random", groups="subject", seed=1)


def accuracy(**arguments) -> float:
    found = ms.probe(MODEL, arguments.pop("fit", BATCH), "random", sites=[PLACE], n_shuffles=1, **arguments)
    return float(found.accuracy.squeeze())


def test_random_labels_of_subjects_are_read_by_chance_only():
    assert accuracy() < 0.75
    assert accuracy(groups="subject") < 0.75


def test_a_split_through_the_subjects_leaks_and_says_so():
    """The control: the same labels, on sides that share subjects."""
    every_other = torch.arange(len(BATCH)) % 2 == 0
    sides = {"fit": BATCH.select(every_other), "test": BATCH.select(~every_other)}
    assert accuracy(**sides) > 0.9
    found = ms.probe(MODEL, sides["fit"], "random", sites=[PLACE], n_shuffles=1, test=sides["test"])
    assert found.attrs["shared"] == 1


def test_where_sequences_have_parted_the_split_is_as_before():
    last = torch.zeros_like(BATCH.scored)
    last[:, -1] = True
    plain, read = ms.analyses.split_sequences(BATCH), ms.analyses.split_sequences(BATCH, at=last)
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(plain, read, strict=True))


def test_groups_are_whole_as_those_of_scikit_learn():
    early = torch.zeros_like(BATCH.scored)
    early[:, 2] = True
    groups = row_groups(BATCH, at=early)
    assert torch.equal(groups.unique(return_inverse=True)[1], row_groups(BATCH, groups="subject"))
    for half in ms.analyses.split_sequences(BATCH, groups="subject"):
        other = BATCH.latents["subject"][~torch.isin(BATCH.latents["subject"], half.latents["subject"])]
        assert len(half) + len(other) == len(BATCH)
    for fit, test in GroupKFold(2).split(BATCH.inputs, groups=groups):
        assert not set(groups[fit].tolist()) & set(groups[test].tolist())


def test_groups_and_beginnings_are_joined():
    """Rows 0 and 1 begin alike, rows 1 and 2 have one name: all three belong together."""
    inputs = torch.tensor([[1, 2, 3], [1, 2, 4], [5, 6, 7], [8, 9, 3]])
    batch = replace(BATCH.select(slice(4)), inputs=inputs, targets=inputs, scored=inputs > 0)
    batch = replace(batch, known={"name": torch.tensor([0, 1, 1, 2])})
    at = torch.tensor([[False, True, False]]).expand(4, 3)
    assert row_groups(batch, groups="name", at=at).tolist() == [0, 0, 0, 1]
    assert row_groups(batch, at=at).tolist() == [0, 0, 1, 2]


def test_where_all_begin_alike_nothing_is_tested():
    whole = replace(BATCH, inputs=torch.cat((torch.zeros_like(BATCH.inputs[:, :1]), BATCH.inputs[:, 1:]), 1))
    site = ms.Site(kind="resid_pre", layer=0, pos=0)
    found = ms.probe(MODEL, whole, "random", sites=[site], n_shuffles=1)
    assert found.n_test.item() == 0
    assert found.accuracy.isnull().all()
    pooled = ms.probe(MODEL, whole, "random", sites=[replace(site, pos=None)], n_shuffles=1, pooled=True)
    assert 0 < pooled.n_test.item() < whole.scored.numel() / 2


@pytest.mark.usefixtures("as_installed")
def test_what_cannot_be_split_is_refused():
    single = replace(BATCH, known={**BATCH.known, "same": torch.zeros(len(BATCH), dtype=torch.long)})
    with pytest.raises(ms.InputError, match="two different groups of sequences at least; got 1"):
        ms.probe(MODEL, single, "random", sites=[PLACE], groups="same")
    with pytest.raises(ms.InputError, match="groups says how fit is split"):
        ms.probe(MODEL, BATCH, "random", sites=[PLACE], groups="subject", test=BATCH)
