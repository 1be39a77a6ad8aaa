import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mnemoscope.claims.claim import Criterion
from mnemoscope.core.errors import InputError
from tests.claims.trials import along_seeds, make_evidence

NONE = np.zeros(3, dtype=bool)


def test_the_sample_holds_the_chosen_replicates_with_their_labels():
    effects = xr.DataArray([[1, 2, 3], [3, 4, 5]], dims=("prompt", "seed"), coords={"seed": [4, 5, 9]})
    sample = make_evidence(effects, prompts="own").sample("effect", np.array([True, False, True]))
    assert sample.values.tolist() == [[1, 3], [3, 5]]
    assert sample.effects.tolist() == [2, 4]
    assert sample.labels == ("seed 4", "seed 9")
    assert sample.prompts == "own"
    assert make_evidence(np.ones(3), prompts="own").sample("effect", ~NONE).prompts is None


def test_effects_are_found_by_name():
    effects = xr.Dataset({"a": along_seeds([1.0, 2.0, 3.0]), "b": along_seeds([4.0, 5.0, 6.0])})
    assert make_evidence(effects).sample("b", ~NONE).effects.tolist() == [4, 5, 6]
    with pytest.raises(InputError, match="name of an effect must be one of: a, b; got 'c'"):
        make_evidence(effects).sample("c", ~NONE)


def test_nan_is_refused_where_the_gate_is_passed():
    evidence = make_evidence([1.0, np.nan, 3.0])
    assert evidence.sample("effect", np.array([True, False, True])).effects.tolist() == [1, 3]
    with pytest.raises(InputError, match="NaN in a seed that passes the gate"):
        evidence.sample("effect", ~NONE)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("effects", "fields", "message"),
    [
        (xr.DataArray([1.0], dims="seed"), {}, "must have labels along seed"),
        (xr.DataArray([1.0, 2.0], coords={"seed": [3, 3]}), {}, r"must have every seed once; got \[3, 3\]"),
        (xr.DataArray([1.0], coords={"draw": [3]}), {}, "must have the dimension seed"),
        (xr.DataArray([[1.0]], coords={"seed": [3], "head": [1]}), {}, "may have prompt; got"),
        (along_seeds([[1.0, 2.0]]), {"prompts": None}, "prompts must be one of: own, shared, enumerated"),
        (along_seeds([[1.0]]), {"prompts": "own"}, "there must be two or more"),
        (along_seeds([1.0]), {"prompts": "some"}, "prompts of evidence must be one of"),
        (along_seeds([1.0, 2.0]), {"gate": along_seeds([1.0])}, r"gate must have the seeds of the effects, \[0, 1\]"),
        (along_seeds([1.0, 2.0]).assign_coords(recipe=("seed", ["quick", "published"])), {}, "must be of one recipe"),
        (
            along_seeds([1.0]).assign_coords(recipe="quick"),
            {"gate": along_seeds([1.0]).assign_coords(recipe="published")},
            "must be of one recipe; got published, quick; judge them apart",
        ),
    ],
)
def test_evidence_that_does_not_fit_is_refused(effects, fields, message):
    with pytest.raises(InputError, match=message):
        make_evidence(effects, **fields)


def part(direction="above"):
    return Criterion(name="effect", quantifier="most", margin=1.0, direction=direction)


def test_the_own_p_of_a_replicate_is_that_of_t_over_its_prompts():
    values = np.random.default_rng(0).normal(1.2, 1, (3, 30))
    sample = make_evidence(values, prompts="own").sample("effect", ~NONE)
    above, below = (stats.ttest_1samp(values, 1.0, axis=1, alternative=side).pvalue for side in ("greater", "less"))
    not_low = stats.ttest_1samp(values, -1.0, axis=1, alternative="greater").pvalue
    np.testing.assert_allclose(sample.p_clears(part()), above)
    np.testing.assert_allclose(sample.p_fails(part()), below)
    np.testing.assert_allclose(sample.p_clears(part("below")), below)
    np.testing.assert_allclose(sample.p_clears(part("within")), np.maximum(below, not_low))
    np.testing.assert_allclose(sample.p_fails(part("within")), np.minimum(1, 2 * above))


@pytest.mark.parametrize("values", [np.array([0.5, 1.0, 2.0]), np.array([[0.5, 0.5], [1.0, 1.0], [np.inf, 2.0]])])
def test_an_enumerated_effect_is_certain_and_one_at_the_margin_is_neither(values):
    sample = make_evidence(values).sample("effect", ~NONE)
    assert sample.p_clears(part()).tolist() == [1, 1, 0]
    assert sample.p_fails(part()).tolist() == [0, 1, 1]


def test_without_prompts_no_replicate_speaks_for_itself():
    sample = make_evidence([0.5, 1.0, 2.0], prompts=None).sample("effect", ~NONE)
    assert sample.p_clears(part()).tolist() == sample.p_fails(part()).tolist() == [1, 1, 1]
