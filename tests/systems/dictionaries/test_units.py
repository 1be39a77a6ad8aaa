"""Units of an MLP: what they write adds up, removals are those of the library, and planted memories are counted."""

from dataclasses import replace
from itertools import pairwise, product
from typing import Literal

import pytest
import torch

from mnemoscope import Dictionary, HookedModel, Subject, ablate, generator, with_dictionaries
from mnemoscope import Site as Place
from mnemoscope.analyses import every_sequence, group_effects
from mnemoscope.core.errors import InputError
from mnemoscope.systems.dictionaries.answers import SKILL, read_answers, right
from mnemoscope.systems.dictionaries.constructed import N, PairRecall, detectors, mixtures
from mnemoscope.systems.dictionaries.units import (
    Removal,
    Units,
    changes,
    ends,
    explained,
    features,
    keep_in_turn,
    n_needed,
    neurons,
    rotated,
    without,
)
from tests.systems.on_trial import on


@pytest.fixture(scope="module", params=[detectors, mixtures])
def planted(request) -> Subject:
    return on(request.param(), PairRecall())


@pytest.fixture(scope="module")
def memory() -> Subject:
    return on(detectors(), PairRecall())


def by_hand() -> Dictionary:
    """Five features, one a y, of the stream before the MLP of `detectors`; they write what its neurons write."""
    model = detectors()
    mlp = model.blocks[0].mlp
    values = mlp.W_out[:N].detach()
    w_enc = torch.stack([mlp.W_in[:, y].detach() - mlp.W_in[:, (y + 1) % N].detach() for y in range(N)])
    return Dictionary(
        name="y", layer=0, reads="mlp_in", writes="mlp_out", w_enc=w_enc, b_enc=torch.zeros(N), w_dec=values,
        b_dec=torch.zeros(values.shape[1]),
    )  # fmt: skip


def test_planted_models_answer_and_need_their_mlp(planted):
    answers = read_answers(planted)
    assert len(answers.order) == N**4
    none, whole = ends(planted.model, answers)
    assert whole == 1
    assert none < 0.3  # one answer of five


def test_units_of_every_kind_write_what_the_mlp_writes(planted):
    answers, model = read_answers(planted), planted.model
    frame = rotated(model, answers, answers.post.shape[1] + 7, generator(0, "frame"))
    for units, removal in product((neurons(model, answers), frame, features(by_hand(), answers)), ("mean", "zero")):
        stream = without(answers, units, removal=removal) + changes(answers, units, removal=removal) @ units.value
        torch.testing.assert_close(stream, answers.stream + answers.written, atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("removal", ["mean", "zero"])
def test_removals_are_those_of_the_library(memory, removal: Removal):
    answers, batch = read_answers(memory), every_sequence(memory.task)
    chosen, rows = [0, 3, 7], answers.order
    kinds: list[tuple[Units, Literal["neurons", "features"], HookedModel]] = [
        (neurons(memory.model, answers), "neurons", memory.model),
        (features(by_hand(), answers), "features", with_dictionaries(memory.model, [by_hand()])),
    ]
    for units, kind, model in kinds:
        some = [each for each in chosen if each < len(units.value)]
        lost = changes(answers, units, removal=removal)[:, some] @ units.value[some]
        _, ours = right(memory.model, (answers.stream + answers.written - lost)[rows], answers.target[rows])
        found = group_effects(
            model, batch, {"some": some}, skills=memory.task.skills(batch), units=kind, kinds=(removal,),
            reference=batch,
        )  # fmt: skip
        assert float(ours.mean()) == pytest.approx(found.log_prob.sel(group="some", skill=SKILL).item(), abs=1e-4)
        assert float(ours.mean()) < found.clean_log_prob.item() - 0.1


@pytest.mark.parametrize("removal", ["mean", "zero"])
def test_the_ends_are_those_of_an_ablation(memory, removal):
    batch, answers = every_sequence(memory.task), read_answers(memory)
    found = ablate(
        memory.model, batch, skills=memory.task.skills(batch), reference=batch,
        targets={"mlp": [Place(kind="mlp_out", layer=0)]}, kinds=(removal,),
    )  # fmt: skip
    everywhere = replace(answers, order=answers.order.repeat(2))  # so that all rows are measured
    removed, whole = ends(memory.model, everywhere, removal=removal)
    ablated = found.accuracy.sel(kind=removal, component="mlp", skill=SKILL).item()
    assert (removed, whole) == pytest.approx((ablated, 1), abs=1e-6)


def test_neurons_that_are_the_memory_are_selective_and_mixtures_are_not(memory):
    def shares(subject, units):
        return explained(subject, units, torch.arange(len(units.value)))

    answers = read_answers(memory)
    assert shares(memory, neurons(memory.model, answers)) == pytest.approx(1)
    mixed = on(mixtures(), PairRecall())
    assert shares(mixed, neurons(mixed.model, read_answers(mixed))) < 0.5


def test_more_of_the_memory_needs_more_units(memory):
    answers, model = read_answers(memory), memory.model
    units = neurons(model, answers)
    order = keep_in_turn(model, answers, units, 25, error=True)
    assert sorted(order.tolist()) == list(range(25))
    counts = [n_needed(model, answers, units, order, error=True, share=share) for share in (0.0, 0.5, 0.75, 1.0)]
    assert counts[0] == 0
    assert all(one < other for one, other in pairwise(counts))
    assert counts[-1] <= 20  # without the neurons of one y its logit is the mean, which no other answer reaches
    assert n_needed(model, answers, units, order[:3], error=True, share=1.0) == 4


def test_a_model_that_does_not_fit_is_refused(memory):
    with pytest.raises(InputError, match="skill must be one of recall"):
        read_answers(memory, skill="elimination")
