import pytest
import torch
import xarray as xr

from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.dissociation_tables import dissociation
from mnemoscope.analyses.games import coalitions, player_pairs
from mnemoscope.analyses.roles import by_role
from mnemoscope.analyses.shapley import removal_agreement, shapley
from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, twin_elimination
from tests.analyses.shapley.tables import shapley_interactions, shapley_values
from tests.support import random_model, reads_back, seeded, small_spec

TASK = small_spec("v3").task
THERE = coalitions(3)
FIRST, SECOND, THIRD = THERE.T.double()


def played(*games, error: float = 0.01, full=1.0) -> xr.Dataset:
    """What `shapley` would give for games of three players, one a skill, in accuracy."""
    values = torch.stack([game * full for game in games], -1)
    value, joint = shapley_values(values), torch.full((3, 3, len(games)), torch.nan, dtype=torch.double)
    first, second = player_pairs(3).T
    joint[first, second] = joint[second, first] = shapley_interactions(values)
    lost = values[-1] - values[[6, 5, 3]]
    arrays = {
        "value": value,
        "low": value - 1.96 * error,
        "high": value + 1.96 * error,
        "lost": lost,
        "lost_error": torch.full_like(lost, error),
        "full": values[-1],
        "carried": values[-1] - values[0],
        "carried_error": torch.full_like(values[0], error),
        "interaction": joint,
    }
    dims = {1: (), 2: ("component",), 3: ("component", "other")}
    return xr.Dataset(
        {
            name: (("kind", *dims[array.ndim], "skill", "metric"), array[None, ..., None].numpy())
            for name, array in arrays.items()
        },
        coords={
            "kind": ["mean"],
            "component": list("abc"),
            "other": list("abc"),
            "skill": ["elimination", "recall"][: len(games)],
            "metric": ["accuracy"],
        },
    )


def judged(game, **arguments) -> xr.Dataset:
    return removal_agreement(played(game, game, **arguments)).sel(kind="mean", skill="elimination")


def test_parts_that_only_add_are_told_alike():
    found = judged(0.6 * FIRST + 0.3 * SECOND + 0.1 * THIRD)
    for share in (found.lost_share, found.value_share):
        assert share.values == pytest.approx([0.6, 0.3, 0.1])
    assert found.by_removal.values.tolist() == found.by_value.values.tolist() == ["costs", "costs", "spares"]
    assert (found.agreement == "agrees").all()
    assert (found.reason == "").all()
    assert (found.partner == "").all()
    assert found.rank_correlation == pytest.approx(1)


def test_parts_that_stand_in_for_each_other_disagree_by_redundancy():
    found = judged(0.7 * torch.maximum(FIRST, SECOND) + 0.3 * THIRD)
    assert found.by_removal.values.tolist() == ["spares", "spares", "costs"]
    assert found.by_value.values.tolist() == ["costs", "costs", "costs"]
    assert found.agreement.values.tolist() == ["disagrees", "disagrees", "agrees"]
    assert found.reason.values.tolist() == ["redundancy", "redundancy", ""]
    assert found.partner.values.tolist() == ["b", "a", ""]
    assert found.pairs.values == pytest.approx([-0.35, -0.35, 0])
    assert found.rest.values == pytest.approx([0, 0, 0])
    assert found.rank_correlation == pytest.approx(-1)


def test_parts_that_are_worth_little_alone_disagree_by_synergy():
    found = judged(0.4 * FIRST * SECOND + 0.6 * THIRD)
    assert found.value_share.values == pytest.approx([0.2, 0.2, 0.6])
    assert found.by_removal.values.tolist() == ["costs"] * 3
    assert found.agreement.values.tolist() == ["disagrees", "disagrees", "agrees"]
    assert found.reason.values.tolist() == ["synergy", "synergy", ""]
    assert found.partner.values.tolist() == ["b", "a", ""]


def test_what_pairs_do_not_explain_is_of_higher_order():
    """Whether an odd number is there: without one of three all is lost, no pair interacts, each is worth a third."""
    parity = (THERE.sum(1) % 2).double()
    found = judged(parity)
    assert found.lost_share.values == pytest.approx([1] * 3)
    assert found.value_share.values == pytest.approx([1 / 3] * 3)
    assert found.pairs.values == pytest.approx([0] * 3)
    assert found.rest.values == pytest.approx([2 / 3] * 3)
    found = judged(0.6 * parity + 0.4 * FIRST)
    assert found.value_share.values == pytest.approx([0.6, 0.2, 0.2])
    assert found.agreement.values.tolist() == ["agrees", "disagrees", "disagrees"]
    assert found.reason.values.tolist() == ["", "higher orders", "higher orders"]
    assert found.partner.values.tolist() == ["", "", ""]


def test_both_tables_may_dissociate_and_need_not_agree():
    found = removal_agreement(played(FIRST, SECOND)).sel(kind="mean", skill="elimination", other_skill="recall")
    assert (found.removal_outcome.item(), found.value_outcome.item()) == ("double", "double")
    stand_in = torch.maximum(SECOND, THIRD)
    found = removal_agreement(played(FIRST, stand_in)).sel(kind="mean", skill="elimination", other_skill="recall")
    assert (found.removal_outcome.item(), found.value_outcome.item()) == ("single", "double")
    unlearned = removal_agreement(played(FIRST, SECOND, full=0.5)).sel(
        kind="mean", skill="elimination", other_skill="recall"
    )
    assert unlearned.removal_outcome.item() == unlearned.value_outcome.item() == "not learned"


def test_an_interval_that_holds_the_margin_leaves_a_cell_undecided():
    found = judged(0.74 * FIRST + 0.26 * SECOND)
    assert found.by_value.values.tolist() == ["costs", "undecided", "spares"]
    assert found.agreement.values.tolist() == ["agrees", "undecided", "agrees"]


def test_where_nothing_is_carried_nothing_is_said():
    found = judged(0.04 * FIRST)
    assert found.value_share.isnull().all()
    assert (found.agreement == "undecided").all()
    assert (found.reason == "").all()
    assert found.rank_correlation.isnull()


def measured(model, n: int = 150):
    batch = TASK.monitor(n, split="test", generator=seeded())
    given = {"skills": TASK.skills(batch), "reference": TASK.monitor(n, split="test", generator=seeded(1))}
    return shapley(model, batch, **given), ablate(model, batch, kinds=("mean",), **given)


@pytest.mark.parametrize("make", [dissociated, shared_store])
def test_the_table_by_removal_is_that_of_the_dissociation(make):
    result, ablation = measured(make())
    found, table = removal_agreement(result), dissociation(ablation)
    assert found.by_removal.transpose(*table.effect.dims).equals(table.effect)
    assert found.removal_outcome.transpose(*table.outcome.dims).equals(table.outcome)


def test_twins_are_spared_by_removal_and_worth_half_each():
    found = removal_agreement(measured(twin_elimination())[0]).sel(kind="mean", skill="elimination")
    assert found.by_removal.values.tolist() == ["spares"] * 2
    assert found.by_value.values.tolist() == ["costs"] * 2
    assert found.reason.values.tolist() == ["redundancy"] * 2
    assert found.partner.values.tolist() == ["L0H1", "L0H0"]
    assert found.value_share.values == pytest.approx([0.5, 0.5])


def test_values_alone_do_not_tell_a_shared_store_from_a_dissociation():
    """The store serves both skills; its share of recall is small, because without the others it does harm to it."""
    found = removal_agreement(measured(shared_store())[0]).sel(kind="mean")
    both = found.sel(skill="elimination", other_skill="recall")
    assert (both.removal_outcome.item(), both.value_outcome.item()) == ("single", "double")
    store = found.sel(component="L0H0", skill="recall")
    assert (store.agreement.item(), store.reason.item()) == ("disagrees", "synergy")


def test_an_untrained_model_is_not_read_as_anything():
    for seed in range(3):
        found = removal_agreement(measured(random_model(seed=seed), 100)[0])
        outcome = found.sel(skill="elimination", other_skill="recall")
        assert outcome.removal_outcome.item() == outcome.value_outcome.item() == "not learned"


def test_results_by_role_are_read_as_well():
    result = measured(dissociated(), 50)[0]
    named = {"L0H1": "recall head", "L0H0": "elimination head"}
    found, expected = removal_agreement(by_role(result, named)), removal_agreement(result)
    assert found.role.values.tolist() == ["recall head", "elimination head", "L0 MLP"]
    for name in ("agreement", "by_value"):
        assert found[name].sel(role="recall head").values.tolist() == (
            expected[name].sel(component="L0H1").values.tolist()
        )


def test_an_agreement_is_a_plain_file(tmp_path):
    assert reads_back(removal_agreement(played(FIRST, torch.maximum(SECOND, THIRD))), tmp_path / "agreement.nc")


def test_a_result_without_interactions_or_a_margin_outside_is_refused():
    with pytest.raises(InputError, match="call shapley with interactions=True"):
        removal_agreement(played(FIRST).drop_vars("interaction"))
    with pytest.raises(InputError, match="margin must be from 0 to 1; got 2"):
        removal_agreement(played(FIRST, SECOND), margin=2)
    with pytest.raises(InputError, match="a dissociation needs two skills"):
        removal_agreement(played(FIRST))
