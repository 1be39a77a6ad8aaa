import math

import pytest
import xarray as xr

from mnemoscope.report.rulings.differences import format_number
from mnemoscope.report.rulings.words import with_interval
from mnemoscope.report.tables import format_rounded, mean_with_range, pluralise


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.004, ".2f", "0.00"),
        (-0.006, ".2f", "-0.01"),
        (-0.0, ".4g", "0"),
        (-0.0004, "+.3f", "+0.000"),
        (-0.0005001, "+.3f", "-0.001"),
        (-0.0001, ".1%", "0.0%"),
        (1, ".4g", "1"),
        (-math.inf, ".2f", "-inf"),
    ],
)
def test_what_is_rounded_to_zero_has_no_minus(value, form, text):
    assert format_rounded(value, form) == text


def test_neither_has_it_in_tables_and_verdicts():
    assert mean_with_range(xr.DataArray([-0.00002, -0.00001], dims="seed")) == "0.0000 [0.0000, 0.0000]"
    assert mean_with_range(xr.DataArray([-0.00001], dims="seed")) == "0.0000"
    assert mean_with_range(xr.DataArray([math.nan], dims="seed")) == "–"
    assert format_number(-0.001, ".2f") == "0.00"
    assert with_interval(-0.0, -0.001, None, "nats", ".2f") == "0.00 [0.00, ∞] nats"


def test_one_has_no_plural():
    assert [pluralise(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
