"""Models whose outputs are classes and that attend in both directions, without the padding."""

import math
from dataclasses import replace

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.analyses.head_predictions import predict_removal
from mnemoscope.core.protocols import class_names, n_outputs
from mnemoscope.models.building import build
from mnemoscope.records.record import analyse, records, render_results
from mnemoscope.report.guesses import output_symbols, token_symbols
from mnemoscope.report.plain_report import parse, predict
from mnemoscope.report.task_words import task_words
from tests.records.test_contract import QUICK
from tests.support import random_model, seeded
from tests.toys import BRACKETS, PAD, Brackets, bracket_spec, registered

TASK = Brackets()


class Named:
    """A method that a batch may have as `derive`."""

    def latents(self, batch):
        return {}


BACKWARDS = {"heads": "look back", "interchange": "reads runs of permutation-lookup"}
"""Analyses that this task cannot have, and their words."""


@pytest.fixture(scope="module")
def bracket_runs(trained_once):
    with registered(Brackets):
        yield [trained_once(f"brackets/seed-{seed}", bracket_spec(seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def model(bracket_runs):
    return bracket_runs[0].hooked()


@pytest.fixture
def batch():
    return TASK.sample(40, split="test", generator=seeded())


@pytest.mark.full
def test_a_task_that_names_classes_has_as_many_outputs(model, batch):
    assert (class_names(TASK), n_outputs(TASK), list(TASK.answers)) == (("unbalanced", "balanced"), 2, [0, 1])
    assert model.W_U.shape[1] == 2
    assert output_symbols(TASK) == ["unbalanced", "balanced"]
    assert token_symbols(TASK) == ["[", "(", ")", "]", "_"]
    assert [batch.output_name(number) for number in (0, 1)] == ["unbalanced", "balanced"]
    assert replace(batch, classes=(), derive=Named.latents.__get__(TASK)).classes == TASK.classes, "of the task"
    assert (class_names(ms.TASKS.get("k-hop")()), batch.select(slice(2)).classes) == ((), TASK.classes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted({*records()} - {*BACKWARDS}))
def test_every_analysis_reads_it(name, bracket_runs):
    measured = analyse(name, bracket_runs, **QUICK.get(name, {"n": 64}))
    display = render_results(records()[name], measured)
    assert display.finding.endswith(".")
    assert all(table.rows for table in display.tables)
    if name == "neurons":
        listed = next(table for table in display.tables if table.name == "most-needed")
        assert {row[listed.header.index("promotes")] for row in listed.rows} <= {*TASK.classes}
        assert list(measured.results["neurons"]["class"].values) == list(TASK.classes)
    if name == "circuits":
        assert list(display.figures[1][1].data[0].x) == list(TASK.classes)


@pytest.mark.parametrize("name", BACKWARDS)
def test_what_cannot_read_it_says_so(name, bracket_runs):
    with pytest.raises(InputError, match=BACKWARDS[name]):
        analyse(name, bracket_runs, n=64)


def test_prompts_differ_by_class(model, batch):
    pairs = ms.PromptPairs.from_task(TASK, batch, kind="other").read_last()
    assert (pairs.answer[:, 0] != pairs.foil[:, 0]).all()
    found = ms.patch(model, pairs, kind="resid_pre", over=("layer", "pos"), directions=("denoising",))
    site = ms.Site(kind="resid_pre", layer=1, pos=0)
    source = ms.Named(name="clean", value=pairs.clean)
    logits = ms.run_with(model, pairs.corrupted, [ms.Patch(site=site, source=source)])[:, 0]
    right, foil = (logits.gather(1, side[:, :1])[:, 0] for side in (pairs.answer, pairs.foil))
    given = torch.tensor(found.value.sel(layer=1, pos=0).squeeze().values)
    torch.testing.assert_close(given.float(), (right - foil).detach(), atol=1e-4, rtol=1e-4)
    direct = ms.logit_attribution(model, batch, skills={"answer": batch.scored}, foil=1 - batch.targets)
    assert all(direct[name].notnull().all() for name in direct.data_vars)


def test_rows_of_unequal_length_are_each_as_alone(model, batch):
    """Analyses of a padded batch and of every row without its padding."""
    ragged = replace(batch, derive=None)
    whole = ms.analyses.log_probs(model, TASK, ragged)[:, 0]
    kinds = [("z", 0, 1), ("resid_pre", 1, None)]
    sites = [ms.Site(kind=kind, layer=layer, head=head) for kind, layer, head in kinds]
    removed = [ms.run_with(model, ragged, [ms.Zero(site=site)])[:, 0] for site in sites]
    entropy = ms.analyses.layer_attention(model, 1, ragged)[:, :, 0]
    for row in range(0, len(batch), 5):
        one, n = ragged.select(slice(row, row + 1)), int(batch.lengths[row])
        cut = {name: getattr(one, name)[:, :n] for name in ("inputs", "targets", "scored")}
        alone = replace(one, **cut, lengths=None)
        torch.testing.assert_close(ms.analyses.log_probs(model, TASK, alone)[0, 0], whole[row], atol=1e-5, rtol=1e-5)
        for site, found in zip(sites, removed, strict=True):
            torch.testing.assert_close(
                ms.run_with(model, alone, [ms.Zero(site=site)])[0, 0], found[row], atol=1e-5, rtol=1e-5
            )
        pattern = ms.analyses.layer_attention(model, 1, alone)[0, :, 0]
        torch.testing.assert_close(pattern, entropy[row, :, :n], atol=1e-6, rtol=1e-5)
        assert not entropy[row, :, n:].any()


def test_removal_is_predicted_without_the_padding(model, batch):
    """More padding changes nothing, in the batch or in the reference."""
    longer = replace(
        batch,
        inputs=torch.nn.functional.pad(batch.inputs[:, :6], (0, 2), value=PAD),
        lengths=batch.lengths.clamp(max=6),
    )
    fit = {name: getattr(longer, name)[:, :6] for name in ("inputs", "targets", "scored")}
    short = replace(longer, **fit)
    one, other = (predict_removal(model, some, reference=some) for some in (longer, short))
    torch.testing.assert_close(torch.tensor(one.r2.values), torch.tensor(other.r2.values), atol=1e-4, rtol=1e-4)


def test_padding_that_would_be_read_is_refused(model, batch):
    unmasked = build(replace(BRACKETS, masked=None), d_vocab=5, n_ctx=8, d_vocab_out=2, seed=0)
    with pytest.raises(InputError, match="would read the padding; train it with"):
        ms.analyses.log_probs(unmasked, TASK, batch)
    other = replace(batch, inputs=batch.inputs.where(batch.real, 1))
    with pytest.raises(InputError, match="must be padded with token 4"):
        ms.analyses.log_probs(model, TASK, other)


def test_targets_are_below_the_number_of_outputs(model, batch):
    tokens = random_model(d_vocab=5, n_ctx=8)
    with pytest.raises(InputError, match="has 5 outputs and the batch names 2 classes, unbalanced, balanced"):
        ms.analyses.log_probs(tokens, TASK, batch)
    wrong = replace(batch, targets=batch.targets + 2, classes=())
    with pytest.raises(InputError, match="the model has 2 outputs and the batch has the target 3"):
        ms.analyses.log_probs(model, TASK, wrong)
    many = build(BRACKETS, d_vocab=5, n_ctx=8, d_vocab_out=9, seed=0)  # more outputs than tokens
    assert ms.evaluate(many, TASK, replace(batch, classes=())).loss.notnull().all()


def test_predictions_have_the_names_of_classes(model, batch):
    text = parse(TASK, "0 1 2 3")
    assert (text.classes, bool(text.scored.any())) == (TASK.classes, False)
    found = predict(model, TASK, text)
    assert found.guess.sizes["rank"] == 2
    assert list(found.output.values) == list(TASK.classes)
    exact = model(text.inputs)[0, 0].softmax(-1).max().detach()
    assert math.isclose(float(found.p_guess[0, 0]), float(exact), rel_tol=1e-5)
    words = task_words(TASK)
    assert words.answer in TASK.classes
    assert words.sequence.startswith("[ ")
    assert words.sequence.endswith(" ]"), "whole, and without padding"
