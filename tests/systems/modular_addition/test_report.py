"""The page on runs of modular addition, the published table beside ours, and originals among seeds."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope import InputError, Subject, preset
from mnemoscope.cli import main
from mnemoscope.core.presets import PRESETS
from mnemoscope.core.protocols import attention_mix
from mnemoscope.report.task_report import find_report
from mnemoscope.systems.modular_addition.claim_parts import pizza_by_hand
from mnemoscope.systems.modular_addition.constructed import clock, pizza
from mnemoscope.systems.modular_addition.presets import MIXES
from mnemoscope.systems.modular_addition.report import (
    PUBLISHED,
    bin_of,
    numbers_of,
    original_table,
    parse,
    published_table,
)
from mnemoscope.systems.modular_addition.tasks import ModularAddition

TASK = ModularAddition(modulus=17).for_seed(0)


def result(make, mix, *, seeds=2, accuracy=1.0):
    found = numbers_of(make(TASK, frequencies=(1, 3, 5)), TASK)
    every = xr.concat([found] * seeds, "seed").assign_coords(seed=range(seeds))
    return {"algorithm": every.assign(accuracy=every.accuracy * accuracy).assign_attrs(attention_mix=mix)}


def test_bins_are_half_open_but_for_the_last():
    assert [bin_of(mix) for mix in (0, 0.0999, 0.1, 0.5, 0.9, 1)] == [
        (0, 0.1), (0, 0.1), (0.1, 0.25), (0.5, 0.75), (0.9, 1), (0.9, 1)
    ]  # fmt: skip
    assert [bin_of(mix) for mix in MIXES.values()] == list(PUBLISHED)
    with pytest.raises(InputError, match="attention_mix"):
        bin_of(1.2)


def test_the_published_table_has_ours_in_their_bins():
    table = published_table(
        {"c1": result(clock, 1.0), "c0": result(pizza, 0.0), "none": result(clock, 0.6, accuracy=0.5)}
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["0 to 0.1"][:2] == ["2", "0.976"]
    assert rows["0 to 0.1"][2].startswith("1.000")
    assert rows["0.9 to 1"][1] == "0.466"
    assert abs(float(rows["0.9 to 1"][2].split()[0])) < 0.05
    assert rows["0.5 to 0.75"] == ["0", "0.821", "–", "0.573", "–"]
    assert len(table.header) == len(set(table.header)) == 6


def test_an_original_has_a_rank_among_the_seeds_of_its_bin():
    original = Subject(model=pizza(TASK, frequencies=(1, 3, 5)), task=TASK, seed=0)
    mix = attention_mix(original.model)
    table = original_table({"mine": original}, {"like": result(clock, mix), "other": result(pizza, 1 - mix)})
    rows = {row[2]: row for row in table.rows}
    assert rows["gradient symmetricity"][-1] == "3 of 3"
    assert rows["distance irrelevance"][-1] == "1 of 3"
    alone = original_table({"mine": original}, {"other": result(pizza, 1 - mix)})
    assert {row[-1] for row in alone.rows} == {"–"}


@pytest.mark.parametrize("text", ["17 5", "1", "1 2 3", "x 2"])
def test_other_sequences_are_refused(text):
    with pytest.raises(InputError):
        parse(TASK, text)


def test_a_sequence_and_what_is_known_of_it():
    task = ModularAddition(modulus=31).for_seed(0)
    entry = find_report(task)
    for text in ("20 15", "20 + 15"):
        (table,) = entry.prediction_tables(entry.predict(pizza_by_hand(), task, entry.parse(task, text)))
        last = dict(zip(table.header, table.rows[-1], strict=True))
        assert last["what the task knows"].startswith("20 + 15 = 4, ")
        assert last["next"] == "4"
    signed = ModularAddition(modulus=31, equals=True)
    assert parse(signed, "1 2 =").inputs.tolist() == [[1, 2, 31]]


def test_recipes_are_the_published_ones():
    found = PRESETS.get("addition-c0")
    spec = preset("addition-c0", "published")
    assert (spec.task.modulus, spec.model.d_model, spec.model.d_mlp, spec.model.attention_mix) == (59, 128, 512, 0)  # pyright: ignore[reportAttributeAccessIssue]
    recipe = found.recipes["published"]
    assert (recipe.n_steps, recipe.learning_rate, recipe.weight_decay, recipe.beta2) == (20_000, 1e-3, 2, 0.98)
    assert recipe.full_batch
    nanda = preset("addition-nanda", "published")
    assert (nanda.task.modulus, nanda.task.n_ctx, nanda.task.n_train) == (113, 3, round(0.3 * 113**2))  # pyright: ignore[reportAttributeAccessIssue]
    assert nanda.model.attention_dir == "causal"


@pytest.fixture
def runs(tmp_path, monkeypatch, trained_once):
    """Two seeds of constant attention, hardly trained."""
    for seed in (0, 1):
        spec = preset("addition-c0", "quick", seed, changes={"task.modulus": 7, "recipe.n_steps": 20})
        trained = trained_once(f"addition/seed-{seed}", replace(spec, preset="addition-c0"))
        shutil.copytree(trained.path, tmp_path / f"runs/seed-{seed}")
    monkeypatch.chdir(tmp_path)
    return "runs"


@pytest.mark.full
def test_the_page_has_the_numbers_and_the_published_table(runs):
    main(["report", runs])
    text = " ".join(re.sub(r"<[^>]+>", " ", Path("report.html").read_text(encoding="utf-8")).split())
    assert "Clock or pizza" in text
    assert "gradient symmetricity" in text
    assert "0.976" in text
