"""What every registered claim and every rival keeps to, whatever it is about."""

import importlib
import inspect
import pickle
import pkgutil
import sys
from functools import cache, partial
from pathlib import Path

import pytest

from mnemoscope.core import guests
from mnemoscope.core.presets import SYSTEMS
from mnemoscope.core.specification import RunSpec
from mnemoscope.judging.claim import CLAIMS, MIN_HEADLINE, Claim
from mnemoscope.sweeps.measuring import MEASURED_BY, name_of
from mnemoscope.sweeps.trials import under

REGISTERED = [CLAIMS.get(name) for name in CLAIMS.names()]
RIVALS = [(claim, rival) for claim in REGISTERED for rival in claim.rivals]
ALL = [*REGISTERED, *(rival for _, rival in RIVALS)]

WITHOUT_UNIT = {"T17-combines": "the smallest of shares of different things, less their margins"}
WITHOUT_POSITIVE = {
    "T12-after-same-x": "in one layer a key does not know which x stood before it: such a head cannot be built"
}
WITHOUT_NEGATIVE: dict[str, str] = {}

each = pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)
each_registered = pytest.mark.parametrize("claim", REGISTERED, ids=lambda claim: claim.id)
each_rival = pytest.mark.parametrize(("claim", "rival"), RIVALS, ids=lambda claim: claim.id)


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("tiny-recall", {f"T{i}" for i in range(1, 26)}),
        ("birth", {*(f"B{i}" for i in range(1, 14)), *(f"M{i}" for i in range(1, 4))}),
        ("noisy-recall", {"N1", "N2"}),
    ],
)
def test_all_published_claims_are_there(system, names):
    assert names <= {claim.id for claim in REGISTERED if claim.system == system}


def test_ids_are_unique():
    assert len({claim.id for claim in ALL}) == len(ALL)


MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (importlib.import_module(f"{guest}.claims") for guest in guests.guests())
    for module in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_refutes_its_claims(name):
    assert "refuted" in (importlib.import_module(name).__doc__ or "").lower()


@each_registered
def test_a_claim_is_registered_under_its_id_with_a_known_system(claim):
    assert CLAIMS.get(claim.id) is claim
    assert claim.system in SYSTEMS.names()


@each_registered
def test_a_headline_claim_asks_for_more_seeds(claim):
    assert not claim.headline or claim.n_replicates >= MIN_HEADLINE


def test_there_are_headline_claims_and_others():
    assert 0 < sum(claim.headline for claim in REGISTERED) < len(REGISTERED)


@each
def test_units_are_configurations_that_exist(claim):
    assert bool(claim.units) == (claim.replicate == "seed")
    for unit in claim.units.values():
        assert isinstance(unit.spec(3), RunSpec)
    assert len(claim.units) < 2 or claim.compare is not None


@cache
def judged(system: str) -> dict[tuple, set[int]]:
    """Seeds behind the verdicts, by configuration."""
    seeds: dict[tuple, set[int]] = {}
    for part in SYSTEMS.get(system).judged:
        for spec in part.specs():
            seeds.setdefault(spec.configuration, set()).add(spec.seed)
    return seeds


@each
def test_enough_seeds_of_the_system_are_judged(claim):
    plan = judged(claim.system)
    seeds = [plan.get(unit.spec(0).configuration, set()) for unit in claim.units.values()]
    assert not seeds or len(set.intersection(*seeds)) >= claim.n_replicates


@each
def test_effects_have_units(claim):
    with_unit = [bool(part.unit) for part in claim.criteria]
    assert all(with_unit) or not any(with_unit)
    assert any(with_unit) != (claim.id in WITHOUT_UNIT)


@each
def test_there_are_controls_of_both_kinds(claim):
    kinds = {control.kind for control in claim.controls}
    assert ("positive" in kinds) != (claim.id in WITHOUT_POSITIVE)
    assert ("negative" in kinds) != (claim.id in WITHOUT_NEGATIVE)
    assert all(control.plant is not None for control in claim.controls), "a trial has to plant them by itself"


@each_rival
def test_a_rival_is_judged_on_the_same_replicates(claim, rival):
    assert rival.id.startswith(f"{claim.id}-")
    assert rival.units == claim.units
    assert rival.gate == claim.gate
    assert rival.replicate == claim.replicate
    assert rival.n_replicates == claim.n_replicates
    assert rival.system == claim.system
    assert not rival.headline
    assert not rival.rivals


def _functions(claim: Claim):
    found = [claim.measure, claim.compare, *(control.plant for control in claim.controls)]
    return [function for function in found if function is not None]


@each
def test_other_processes_can_be_sent_what_is_measured(claim):
    for function in _functions(claim):
        again = pickle.loads(pickle.dumps(function))
        assert name_of(again) == name_of(function)


@each
def test_the_code_of_a_measure_counts_towards_what_is_kept(claim):
    """A result that is kept is thrown away when the code of the library or of the system changes."""
    for function in _functions(claim):
        written = function.func if isinstance(function, partial) else function
        file = Path(sys.modules[written.__module__].__file__)
        assert written.__module__.split(".")[1] in MEASURED_BY or file in guests.sources(written.__module__)


def changes(claim: Claim) -> list[tuple[str, object]]:
    return [(factor, value) for factor, values in claim.factors.items() for value in values]


@each
def test_factors_change_the_measure_or_the_configurations(claim):
    parameters = inspect.signature(claim.measure).parameters
    for factor, value in changes(claim):
        if factor == "recipe" or "." in factor:
            other = under(claim, factor, value)
            for name, unit in claim.units.items():
                assert other.units[name].spec(0).configuration != unit.spec(0).configuration
        else:
            assert parameters[factor].kind is inspect.Parameter.KEYWORD_ONLY, factor
            assert parameters[factor].default not in (value, inspect.Parameter.empty)


@each
def test_a_factor_names_every_value_once(claim):
    assert all(values for values in claim.factors.values())
    assert len(set(changes(claim))) == len(changes(claim))
