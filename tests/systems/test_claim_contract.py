"""What every registered claim and every rival keeps to, whatever it is about."""

import inspect
import pickle
from functools import partial

import pytest

from mnemoscope.claims.claim import CLAIMS, MIN_HEADLINE, Claim
from mnemoscope.claims.functions import name_of
from mnemoscope.claims.measures import MeasureCall
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.claims.variants import with_configurations
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.constructed.stand_ins import prescribe_course
from tests.systems.on_trial import trouble

REGISTERED = [CLAIMS.get(name) for name in CLAIMS.names()]
ALL = [*REGISTERED, *(rival for claim in REGISTERED for rival in claim.rivals)]

OVER_TRAINING = [
    claim
    for claim in ALL
    if any(isinstance(c.plant, partial) and c.plant.func is prescribe_course({}, {}).func for c in claim.controls)
]
"""Claims with planted trajectories."""
SHARES = ("accuracy", "probability", "recall", "share")
"""First words of the units of effects from 0 to 1."""
AROUND_ZERO = {
    **dict.fromkeys(("T6", "T13", "T13-most", "T14-carriers"), "less its margin"),
    **dict.fromkeys(
        ("T14", "T14-single", "T14-both", "T14-redundant", "T15", "T15-narrow", "T17-stored"), "less margins"
    ),
    **dict.fromkeys(("P5", "P5-several", "P5-idle"), "less margins"),
    **dict.fromkeys(
        ("P15", *(f"P15-{word}" for word in ("single", "both", "redundant", "one_fault", "idle"))), "less margins"
    ),
    "T3-split": "a difference of two distances",
    "D2-rotated": "a difference of two agreements",
}
"""Effects of these units that lie on either side of 0: what they are."""
WITHOUT_UNIT = {"T17-combines": "the smallest of shares of different things, less their margins"}
WITHOUT_POSITIVE = {
    "T12-after-same-x": "in one layer a key does not know which x stood before it: such a head cannot be built"
}


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("tiny-recall", {f"T{i}" for i in range(1, 26)}),
        ("birth", {*(f"B{i}" for i in range(1, 14)), *(f"M{i}" for i in range(1, 4))}),
        ("induction-formation", {f"I{i}" for i in range(1, 7)}),
        ("language-models", {f"G{i}" for i in range(1, 6)}),
        ("memory-theory", {"M4"}),
        ("markov", {f"E{i}" for i in range(1, 8)}),
        ("modular-addition", {f"C{i}" for i in range(1, 7)}),
        ("noisy-recall", {"N1", "N2"}),
        ("retrieval", {f"R{i}" for i in range(1, 10)}),
        ("retrieval-prompts", {"L1", "L2"}),
    ],
)
def test_all_published_claims_are_there(system, names):
    assert names <= {claim.id for claim in REGISTERED if claim.system == system}


def test_ids_are_unique():
    assert len({claim.id for claim in ALL}) == len(ALL)


def test_a_claim_is_registered_under_its_id_with_a_known_system():
    for claim in REGISTERED:
        assert CLAIMS.get(claim.id) is claim, claim.id
        assert claim.system in SYSTEMS.names(), claim.id


def test_a_headline_claim_asks_for_more_seeds():
    for claim in REGISTERED:
        assert not claim.headline or claim.n_replicates >= MIN_HEADLINE, claim.id


def test_there_are_headline_claims_and_others():
    assert 0 < sum(claim.headline for claim in REGISTERED) < len(REGISTERED)


def test_units_are_configurations_that_exist():
    for claim in ALL:
        assert bool(claim.units) == (claim.replicate == "seed"), claim.id
        for name, unit in claim.units.items():
            assert isinstance(unit.spec(3), RunSpec), (claim.id, name)
        assert len(claim.units) < 2 or claim.compare is not None, claim.id


def test_enough_seeds_of_the_system_are_judged():
    for claim in ALL:
        assert not claim.units or len(expected_seeds(claim)) >= claim.n_replicates, claim.id


def test_effects_have_units():
    for claim in ALL:
        with_unit = [bool(part.unit) for part in claim.criteria]
        assert all(with_unit) or not any(with_unit), claim.id
        assert any(with_unit) != (claim.id in WITHOUT_UNIT), claim.id


def test_there_are_controls_of_both_kinds():
    for claim in ALL:
        kinds = {control.kind for control in claim.controls}
        assert ("positive" in kinds) != (claim.id in WITHOUT_POSITIVE), claim.id
        assert "negative" in kinds, claim.id
        by_itself = all(control.plant is not None for control in claim.controls)
        assert by_itself, f"{claim.id}: a trial has to plant them by itself"


@pytest.mark.parametrize("claim", OVER_TRAINING, ids=lambda claim: claim.id)
def test_what_is_asked_of_training_can_be_met_and_missed_at_the_checkpoints_of_every_recipe(claim):
    asked = {
        claim.recipe: claim,
        **{to: with_configurations(claim, "recipe", to) for to in claim.factors.get("recipe", ())},
    }
    for recipe, one in asked.items():
        assert trouble(one, most=4) is None, recipe


def test_margins_of_shares_can_be_met_and_missed():
    for claim in ALL:
        for part in claim.criteria:
            if part.unit.startswith(SHARES):
                at_zero = claim.id in AROUND_ZERO and part.margin == 0
                below = claim.id == "D2-rotated" and -1 < part.margin < 0  # two agreements, one of them may be less
                assert 0 < part.margin < 1 or at_zero or below, (claim.id, part.name)


def test_a_rival_is_judged_on_the_same_replicates():
    for claim in REGISTERED:
        for rival in claim.rivals:
            assert rival.id.startswith(f"{claim.id}-"), rival.id
            for field in ("units", "gate", "replicate", "n_replicates", "first_seed", "last_seed", "system"):
                assert getattr(rival, field) == getattr(claim, field), (rival.id, field)
            assert not rival.headline, rival.id
            assert not rival.rivals, rival.id


def functions():
    """Every claim with each function that another process has to call for it."""
    for claim in ALL:
        for function in (claim.measure, claim.compare, *(control.plant for control in claim.controls)):
            if function is not None:
                yield claim, function


def test_other_processes_can_be_sent_what_is_measured():
    for claim, function in functions():
        again = pickle.loads(pickle.dumps(function))
        assert name_of(again) == name_of(function), claim.id


def test_the_version_of_a_measure_says_what_is_kept():
    """By the version of its claim: all functions lie in the library or in packages, where registrations lie."""
    for claim, function in functions():
        assert claim.measure is not None
        assert MeasureCall(claim.measure, version=claim.version).is_keyed_by_version(function), (claim.id, function)


def changes(claim: Claim) -> list[tuple[str, object]]:
    return [(factor, value) for factor, values in claim.factors.items() for value in values]


def test_factors_change_the_measure_or_the_configurations():
    for claim in ALL:
        parameters = inspect.signature(claim.measure).parameters
        for factor, value in changes(claim):
            if factor == "recipe" or "." in factor:
                other = with_configurations(claim, factor, value)
                for name, unit in claim.units.items():
                    differs = other.units[name].spec(0).configuration != unit.spec(0).configuration
                    assert differs, (claim.id, factor, value)
            else:
                assert parameters[factor].kind is inspect.Parameter.KEYWORD_ONLY, (claim.id, factor)
                assert parameters[factor].default not in (value, inspect.Parameter.empty), (claim.id, factor)


def test_a_factor_names_every_value_once():
    for claim in ALL:
        assert all(values for values in claim.factors.values()), claim.id
        assert len(set(changes(claim))) == len(changes(claim)), claim.id
