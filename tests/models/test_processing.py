import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.building import fold_normalisation
from tests.support import foreign_model, random_model


def tokens(model, n: int = 20):
    return torch.randint(model.cfg.d_vocab, (n, model.cfg.n_ctx), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"mlp": False}, {"dtype": "float64"}])
def test_logits_stay_the_same(n_layers, changes):
    model = random_model(n_layers=n_layers, **changes)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = fold_normalisation(model)
    assert (model.cfg.normalization_type, result.cfg.normalization_type) == ("LN", "LNPre")
    torch.testing.assert_close(result(tokens(model)), model(tokens(model)), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any("ln" in name for name, _ in result.named_parameters())


def test_root_mean_square_normalisation_is_folded_too():
    model = foreign_model(normalization_type="RMS")
    result = fold_normalisation(model)
    assert result.cfg.normalization_type == "RMSPre"
    torch.testing.assert_close(result(tokens(model)), model(tokens(model)), atol=1e-5, rtol=1e-5)


def test_the_copy_has_no_hooks_and_the_original_keeps_its_own():
    model = random_model()
    model.blocks[0].hook_mlp_out.add_hook(lambda activation, hook: 0 * activation)
    shown = model(tokens(model))
    assert not torch.allclose(fold_normalisation(model)(tokens(model)), shown)
    assert torch.equal(model(tokens(model)), shown)


@pytest.mark.parametrize("kind", ["none", "LNPre"])
def test_a_model_without_gains_is_refused(kind):
    model = random_model(normalization="none") if kind == "none" else fold_normalisation(random_model())
    with pytest.raises(InputError, match="use the model as it is"):
        fold_normalisation(model)
