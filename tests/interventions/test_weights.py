import pytest
import torch

from mnemoscope.core.intervention import LowRank, Scale
from mnemoscope.core.site import ParamSite
from mnemoscope.interventions.run import Decompositions, change_weights, weight_at
from tests.support import random_model

SITES = (ParamSite(name="W_out", layer=0), ParamSite(name="W_V", layer=0), ParamSite(name="W_O", layer=0, head=1))


@pytest.fixture
def decomposed(monkeypatch):
    """How often a decomposition was computed."""
    calls, svd = [], torch.linalg.svd

    def counted(matrix, **options):
        calls.append(tuple(matrix.shape))
        return svd(matrix, **options)

    monkeypatch.setattr(torch.linalg, "svd", counted)
    return calls


@pytest.mark.parametrize("site", SITES, ids=str)
def test_one_decomposition_serves_every_rank_and_gives_the_same(site, decomposed):
    model, kept = random_model(), Decompositions()
    for rank in (1, 2, 3):
        for part in ("top", "rest"):
            cut = LowRank(site=site, rank=rank, part=part)
            with change_weights(model, [cut], decompositions=kept):
                shared = weight_at(model, site)
            n = len(decomposed)
            with change_weights(model, [cut]):
                assert torch.equal(weight_at(model, site), shared)
            assert len(decomposed) == n + 1
    assert len(decomposed) == 1 + 6


def test_a_changed_weight_is_decomposed_anew(decomposed):
    model, kept, site = random_model(), Decompositions(), SITES[0]
    kept.factors(site, weight_at(model, site))
    with change_weights(model, [Scale(site=site, factor=2)]):
        doubled = kept.factors(site, weight_at(model, site))[1]
    assert torch.allclose(doubled, 2 * kept.factors(site, weight_at(model, site))[1])
    with torch.no_grad():
        model.blocks[0].mlp.W_out[0, 0] += 1
    again = kept.factors(site, weight_at(model, site))[1]
    assert torch.equal(again, torch.linalg.svd(model.blocks[0].mlp.W_out, full_matrices=False)[1])
