"""What is planted, measured once for all tests that ask, and what a claim and its rivals say of it."""

from functools import partial

from mnemoscope.claims.measures import MeasureCall
from tests.systems.on_trial import taken, trouble, verdict

_FOUND = {}


def effects_of(claim, plant, case=0, **factors):
    """What is planted, measured and compared."""
    key = repr((claim.measure, claim.compare, plant, case, factors))
    if key not in _FOUND:
        call = MeasureCall(claim.measure, tuple(factors.items()))
        _FOUND[key] = taken(plant, case, claim.compare, call)
    return _FOUND[key]


def misbehaving(claim, **factors):
    """What is wrong with the controls of a claim or of its rivals; nothing if all behave."""
    found = {}
    for one in (claim, *claim.rivals):
        assert one.controls
        found[one.id] = trouble(one, **factors)
    return {name: wrong for name, wrong in found.items() if wrong}


def outcomes(claim, plant, **factors):
    """Outcomes of a claim and of its rivals where all replicates are what is planted."""
    case = effects_of(claim, plant, **factors)
    return {one.id: verdict(one, case).outcome for one in (claim, *claim.rivals)}


def numbers(measured):
    """A plant of what was measured, by configuration."""
    return partial(_same, measured)


def _same(measured, case):
    return measured
