import numpy as np
import pytest
from scipy import stats

from mnemoscope.claims.judge import operating_characteristics
from mnemoscope.core.errors import InputError


def test_the_table_of_most_is_that_of_the_binomial_distribution():
    table = operating_characteristics("most", [0.0, 0.5, 0.9, 1.0], [16, 32], n_resamples=99)
    assert table.dims == ("share", "n_replicates", "outcome")
    np.testing.assert_allclose(table.sum("outcome"), 1)
    supported = table.sel(outcome="SUPPORTED")
    np.testing.assert_allclose(supported.sel(n_replicates=16), stats.binom.sf(13, 16, table.share), atol=1e-12)
    np.testing.assert_allclose(supported.sel(n_replicates=32), stats.binom.sf(23, 32, table.share), atol=1e-12)
    np.testing.assert_allclose(table.sel(outcome="REFUTED")[0], 1)
    mixed = stats.binom.pmf(np.arange(5, 12), 16, 0.5).sum()
    assert float(table.sel(share=0.5, n_replicates=16, outcome="MIXED")) == pytest.approx(mixed)


@pytest.mark.parametrize("quantifier", ["every", "exists", "mean", "equivalence"])
def test_the_tables_of_the_others(quantifier):
    table = operating_characteristics(quantifier, [0.0, 0.5, 0.95, 1.0], [16], n_resamples=499).sel(n_replicates=16)
    np.testing.assert_allclose(table.sel(outcome="SUPPORTED").sel(share=[0.0, 1.0]), [0, 1])
    np.testing.assert_allclose(table.sel(outcome="REFUTED").sel(share=[0.0, 1.0]), [1, 0])
    expected = {"every": 0.95**16, "exists": 1 - 0.05**16, "mean": 0.81, "equivalence": 0.81}[quantifier]
    assert float(table.sel(share=0.95, outcome="SUPPORTED")) == pytest.approx(expected, abs=0.01)


def test_shares_and_numbers_are_checked():
    with pytest.raises(InputError, match="share must be from 0 to 1; got 2"):
        operating_characteristics("most", [2.0], [16])
    with pytest.raises(InputError, match="n_replicates must be at least 16; got 8"):
        operating_characteristics("most", [0.5], [8])
