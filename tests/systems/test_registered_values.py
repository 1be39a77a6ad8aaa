"""The measures of all claims give on their controls what is registered: quick ones in seconds, most others if slow."""

from unittest import mock

import pytest

from mnemoscope.claims import registration
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.measures import measure_all
from mnemoscope.claims.registration import check_registration, measure_controls
from mnemoscope.claims.replicates import expected_seeds
from tests.systems import on_trial

QUICK = ("B6", "B7", "B9", "B13", "F1", "F4", "M1", "M2", "M4", "N1", "R1", "T5", "T18", "T24")
"""Claims whose controls take less than a third of a second."""
BY_HAND = ("R5", "R5-alone", "R6", "R6-first", "R7", "R8", "R9", "D2", "D4", "D5", "F-K1")
"""Claims on twelve-layer models, whose controls take minutes each: `mnemoscope dev check retrieval`; and those that
train dictionaries, which differ between processors: `mnemoscope dev check dictionaries`."""


def measure_once(work, *, store, **how):
    """Measurements, or those that another test of this session has taken with the same code."""
    return measure_all(work, store=on_trial.STORE, **how)


@pytest.mark.drawn(28)
@pytest.mark.parametrize(
    "id",
    [pytest.param(id, marks=[] if id in QUICK else [pytest.mark.slow]) for id in CLAIMS.names() if id not in BY_HAND],
)
def test_the_values_are_as_registered(id):
    """A measure that is meant to give other numbers has another version: `mnemoscope dev register --supersede`."""
    claim = CLAIMS.get(id)
    with mock.patch.object(registration, "measure_all", measure_once):
        values = measure_controls([claim])
    found = check_registration(claim, expected_seeds(claim), values, anew=True)
    assert found.departures == ()
    assert found.off is not None
    assert "values differ" not in found.code
