"""Published models beside the judged seeds: in the ruling, its record, its tables and its page, not in the verdict."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope import InputError, generator, preset
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.originals import with_originals
from mnemoscope.claims.ruling import Ruling, ruling_record
from mnemoscope.models import load_original, write_original
from mnemoscope.models.building import build_untrained
from mnemoscope.report.rulings import original_rows, rulings_page, verdict_tables
from mnemoscope.systems.puzzles.claims.running_sum import P13
from mnemoscope.systems.puzzles.claims.sorted_list import P12
from mnemoscope.systems.puzzles.constructed.sorted_list import range_model
from mnemoscope.systems.puzzles.presets import JUDGED

N = 16


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The file of a hand-set model in which one head has the values from 20 to 34."""
    path = tmp_path_factory.mktemp("originals") / "by-hand.safetensors"
    write_original(range_model(), path)
    return path


def ruling(claim, **effects):
    """A ruling on sixteen seeds, the last of which fails the gate."""
    coords = {"seed": np.arange(N)}
    arrays = {name: ("seed", np.asarray(values, dtype=float)) for name, values in effects.items()}
    gate = xr.DataArray([1.0] * (N - 1) + [0.0], coords=coords, dims="seed")
    evidence = Evidence(effects=xr.Dataset(arrays, coords=coords), gate=gate)
    alone = replace(claim, controls=(), rivals=())
    return Ruling(claim=alone, evidence=evidence, verdict=judge(alone, evidence), rivals={})


def found(claim=P12):
    return ruling(claim, division=np.linspace(0, 1.5, N), range=np.full(N, 0.4), larger=np.full(N, 0.6))


@pytest.mark.parametrize("name", JUDGED)
def test_a_model_of_every_puzzle_is_written_and_read(name, tmp_path):
    spec = preset(name, "quick", 3)
    model, path = build_untrained(spec, own=True).eval(), tmp_path / "mine.safetensors"
    write_original(model, path)
    batch = spec.task.sample(4, split="test", generator=generator(0))
    assert torch.equal(load_original(path, name).model(batch.inputs), model(batch.inputs))


def test_a_file_is_read_as_the_model_that_it_holds(published):
    subject = load_original(published, "sorted-list")
    assert subject.task.name == "sorted-list"
    assert subject.model.cfg.normalization_type is None
    for path, name, words in (
        (published, "running-sum", "must have the sizes of running-sum"),
        (published.with_name("absent.safetensors"), "sorted-list", "does not exist"),
    ):
        with pytest.raises(InputError, match=words):
            load_original(path, name)


def test_the_original_has_a_rank_among_the_judged_seeds_and_no_part_in_the_verdict(published):
    before = found()
    (after,) = with_originals([before], [published])
    assert after.verdict is before.verdict
    placed = {each.quantity: each for each in after.originals}
    assert set(placed) == {"division", "range", "larger"}
    assert placed["range"].value == 1
    assert (placed["range"].rank, placed["range"].n) == (N, N)  # fifteen judged seeds below it, and itself
    assert (placed["division"].rank, placed["division"].high) == (11, pytest.approx(1.4))
    assert placed["larger"].rank == N
    assert "originals" not in ruling_record(before)
    assert ruling_record(after)["originals"][1]["rank"] == N


def test_tables_and_pages_show_it(published):
    (after,) = with_originals([found()], [published])
    rows = original_rows([after])
    assert ["P12", "by-hand", "range", "1", "0.4 [0.4, 0.4]", "beyond all seeds: rank 16 of 16"] in rows
    assert any("typical: rank 11 of 16" in row for row in rows)
    assert [table.name for table in verdict_tables([after])].count("originals") == 1
    page = rulings_page([after], title="verdicts")
    assert "typical: rank 11 of 16" in page
    assert "no verdict rests on it" in page
    assert "typical: rank" not in rulings_page([found()], title="verdicts")


def test_a_file_that_no_claim_is_about_is_refused(published):
    other = ruling(P13, uneven=np.zeros(N), rank=np.ones(N), mean=np.ones(N), advantage=np.ones(N))
    with pytest.raises(InputError, match="P13 is about running-sum"):
        with_originals([other], [published])
