"""What linear probes read from a model whose layers are known, and the probes' controls."""

import pytest

from mnemoscope import InputError, Site, probe
from mnemoscope.systems.k_hop.analyses import readable
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

TASK = KHop(n_functions=2, hops=(1, 2), hidden_seed=3)


def test_every_number_of_hops_can_be_read_from_its_layer_on():
    found = readable(doubling(TASK), doubling(TASK, reached=1), TASK, seed=0)
    assert found.accuracy.dims == ("hops", "layer")
    assert found.accuracy.sel(hops=1).values.tolist() == [1, 1]
    assert found.accuracy.sel(hops=2, layer=1) == 1
    assert found.accuracy.sel(hops=2, layer=0) < 0.45
    assert found.shuffled.values.tolist() == [[pytest.approx(0.25, abs=0.1)] * 2] * 2


def test_vectors_have_no_token_to_probe_for():
    fit = TASK.sample(20, split="test", generator=seeded())
    with pytest.raises(InputError, match="a latent must be one of"):
        probe(doubling(TASK), fit, "target", sites=[Site(kind="resid_post", layer=0)])
