"""Published models beside the judged seeds: in the ruling, its record, its tables and its page, not in the verdict."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from safetensors.torch import save_file

from mnemoscope import InputError
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.originals import with_originals
from mnemoscope.claims.ruling import Ruling, ruling_record
from mnemoscope.models import load_original
from mnemoscope.report.rulings import original_rows, rulings_page, verdict_tables
from mnemoscope.systems.puzzles.claims.running_sum import P13
from mnemoscope.systems.puzzles.claims.sorted_list import P12
from mnemoscope.systems.puzzles.constructed.sorted_list import range_model

N = 16


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The file of a hand-set model in which one head has the values from 20 to 34."""
    model, path = range_model(), tmp_path_factory.mktemp("originals") / "by-hand.safetensors"
    cfg, names = model.cfg, ("d_model", "d_head", "n_heads", "n_layers", "d_vocab", "n_ctx", "attn_only", "act_fn")
    config = {**{name: getattr(cfg, name) for name in names}, "normalization_type": None}
    weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
    save_file(weights, path, metadata={"config": json.dumps(config)})
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


def test_a_file_is_read_as_the_model_that_it_holds(published):
    subject = load_original(published, "sorted-list")
    assert subject.task.name == "sorted-list"
    assert subject.model.cfg.normalization_type is None
    for path, preset, words in (
        (published, "running-sum", "must have the sizes of running-sum"),
        (published.with_name("absent.safetensors"), "sorted-list", "does not exist"),
    ):
        with pytest.raises(InputError, match=words):
            load_original(path, preset)


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
    with pytest.raises(InputError, match="none of P13 is about such a model"):
        with_originals([other], [published])
