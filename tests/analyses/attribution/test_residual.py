import pytest
import torch

from mnemoscope.analyses.residual import final_norm, split_sequences_by_memory
from mnemoscope.core.batch import Batch
from tests.support import foreign_model, seeded


@pytest.mark.parametrize("changes", [{}, {"final_rms": True}], ids=str)
@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre"])
def test_the_final_normalisation_with_its_own_scale_is_the_models(kind, changes):
    model, stream = foreign_model(normalization_type=kind, **changes), torch.randn(2, 3, 8, generator=seeded())
    scales = []
    model.ln_final.hook_scale.add_hook(lambda scale, hook: scales.append(scale))
    expected = model.ln_final(stream)
    norm = final_norm(model)
    assert norm is not None
    torch.testing.assert_close(norm.apply(stream, scales[0]), expected)
    assert final_norm(foreign_model(normalization_type=None)) is None


def test_chunks_cover_the_batch_within_the_budget():
    tokens = torch.zeros(7, 2, dtype=torch.long)
    batch, model = Batch(inputs=tokens, targets=tokens, scored=tokens == 0), foreign_model()
    assert split_sequences_by_memory(model, batch, 10, 8 * 30) == [slice(0, 3), slice(3, 6), slice(6, 9)]
    assert split_sequences_by_memory(model, batch, 10, 1) == [slice(i, i + 1) for i in range(7)]
    model.add_hook("hook_embed", lambda embed, hook: None)
    assert split_sequences_by_memory(model, batch, 10, 1) == [slice(0, 7)]
