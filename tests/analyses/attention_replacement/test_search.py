from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.attention_replacement.search import reverse_engineer
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import Mechanism, common_mechanisms, identity, previous, slot_mechanisms, uniform
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import elimination_only, shared_store
from tests.support import EARLIER_Y, global_generators_untouched, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(100, split="test", generator=seeded())
SKILLS = TASK.skills(BATCH)


def best(tree) -> dict[str, tuple[str, str]]:
    heads = tree["heads"].to_dataset()
    return {
        f"L{layer}H{head}": (
            heads.best.sel(layer=layer, head=head).item(),
            heads.verdict.sel(layer=layer, head=head).item(),
        )
        for layer in heads.layer.values
        for head in heads["head"].values
    }


def repetition(n: int = 60):
    batch = induction_batch(n, n_tokens=12, n_ctx=12, generator=seeded())
    scored = batch.scored.clone()
    scored[:, -1] = False
    return replace(batch, scored=scored)


def test_the_elimination_head_is_found_and_the_idle_one_not_read_as_anything():
    tree = reverse_engineer(elimination_only(), BATCH, slot_mechanisms(2), skills=SKILLS)
    assert best(tree) == {
        "L0H0": ("earlier at place 2 of 2, else identity", "explained"),
        "L0H1": ("uniform", "not needed"),
    }
    assert bool(tree["joint"].holds)
    assert set(tree["paths"]["path"].values) == {"L0H0 earlier at place 2 of 2", "L0H0 identity"}, (
        "nothing is left of the idle head"
    )
    assert tree["paths"].needed.values.tolist() == [True, False]


def test_both_layers_of_the_induction_circuit_are_found():
    tree = reverse_engineer(induction(12, 12), repetition(), common_mechanisms())
    assert best(tree) == {
        "L0H0": ("previous token, else identity", "explained"),
        "L0H1": ("uniform", "not needed"),
        "L1H0": ("after same token, else identity", "explained"),
        "L1H1": ("uniform", "not needed"),
    }
    assert bool(tree["joint"].holds)
    paths = tree["paths"].to_dataset()
    needed = paths.path[paths.needed].values.tolist()
    assert needed == ["L0H0 previous token", "L1H0 after same token"]


def test_weights_by_slot_are_found_where_even_ones_do_not_do():
    tree = reverse_engineer(shared_store(), BATCH, slot_mechanisms(2), skills=SKILLS)
    assert best(tree) == {
        "L0H0": ("earlier at place 2 of 2, learned mean, else identity", "explained"),
        "L0H1": ("same token at same place, else identity", "explained"),
    }
    assert tree["heads"].n_parameters.values.tolist() == [[9, 0]]
    assert bool(tree["joint"].holds)
    without = reverse_engineer(shared_store(), BATCH, [EARLIER_Y], skills=SKILLS, learned=False)
    assert best(without)["L0H0"] == ("none", "unexplained")
    assert without["heads"].loss.sel(layer=0, head=0).isnull().all()


def test_an_untrained_model_is_not_read_as_anything():
    tree = reverse_engineer(random_model(), BATCH, common_mechanisms(), skills=SKILLS)
    assert {verdict for _, verdict in best(tree).values()} == {"not needed"}
    assert tree["heads"].recovered.isnull().all()


def test_the_simplest_is_the_first_of_equals_and_fitted_numbers_come_last():
    costly = Mechanism(name="costly", pattern=uniform().pattern, n_parameters=1)
    also = Mechanism(name="also", pattern=uniform().pattern)
    assert best(reverse_engineer(elimination_only(), BATCH, [costly, also, uniform()]))["L0H1"][0] == "also"


def test_selection_and_test_are_different_sequences():
    # on the sequences of the first half, marked by a latent, the mechanism is right; on the others it is wrong
    first = torch.zeros(len(BATCH), dtype=torch.long)
    first[::2] = 1
    marked = replace(BATCH, known={"first": first})

    def pattern(batch):
        right, wrong = (m.pattern(batch).nan_to_num() for m in (EARLIER_Y, identity()))
        rows = torch.where(batch.latents["first"][:, None, None] == 1, right, wrong)
        return torch.where(rows.sum(-1, keepdim=True) == 0, identity().pattern(batch), rows)

    tree = reverse_engineer(
        elimination_only(), marked, [Mechanism(name="lucky", pattern=pattern)], skills=SKILLS, learned=False
    )
    assert best(tree)["L0H0"] == ("lucky", "unexplained")
    assert not bool(tree["joint"].holds)
    assert tree["selection"].holds.sel(layer=0, head=0, mechanism="lucky").item()


def test_what_was_tried_is_told_and_saved(tmp_path):
    tree = reverse_engineer(elimination_only(), BATCH, [previous()], skills=SKILLS)
    tried = tree["selection"].to_dataset()
    assert "previous token, else uniform" in tried.mechanism.values
    assert "learned mean" in tried.mechanism.values
    assert tried.holds.dtype == bool
    assert tree["heads"].attrs["n"] == len(BATCH) // 2
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as again:
        assert again["heads"].best.values.tolist() == tree["heads"].best.values.tolist()


def test_it_is_a_function_of_its_arguments():
    with global_generators_untouched():
        one, again = (reverse_engineer(elimination_only(), BATCH, [EARLIER_Y], learned=False) for _ in range(2))
    np.testing.assert_array_equal(one["heads"].control_loss, again["heads"].control_loss)


def test_wrong_input_is_refused():
    model = elimination_only()
    with pytest.raises(InputError, match="fallback earlier y says nothing about some queries"):
        reverse_engineer(model, BATCH, common_mechanisms(), fallbacks=[EARLIER_Y])
    with pytest.raises(InputError, match="twice"):
        reverse_engineer(model, BATCH, [uniform(), uniform()])
    one_half = {"odd": SKILLS["recall"] & (torch.arange(len(BATCH)) % 2 == 1)[:, None]}
    with pytest.raises(InputError, match="skill odd is tested in one half of the sequences only"):
        reverse_engineer(model, BATCH, common_mechanisms(), skills=one_half)
