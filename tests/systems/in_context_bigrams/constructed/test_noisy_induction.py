import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.constructed import (
    PLACES,
    noisy_induction,
    noisy_induction_circuit,
)

NOISE = 5  # after symbols 0 to 4; 0 and 1 are triggers
#         trigger 0 shows 3, then noise; trigger 1 shows noise only
TOKENS = torch.tensor([[2, 0, 3, 4, 0, NOISE, 1, NOISE, 2, 0, 1]])


@torch.no_grad()
def logits(place, **options):
    model = noisy_induction(5, 12, triggers=(0, 1), noise_in=place, **options)
    assert model.cfg.n_heads == 1
    return model.run_with_cache(TOKENS)


@pytest.mark.parametrize("place", ["mlp", "head"])
def test_output_and_noise_token_get_the_same_logit(place):
    found, _ = logits(place, margin=7.0)
    torch.testing.assert_close(found[0, 9], torch.tensor([0.0, 0, 0, 7, 0, 7]), atol=1e-4, rtol=0)
    assert found[0, 1, NOISE] == pytest.approx(7, abs=1e-4)  # a trigger, for the first time
    assert found[0, 8, NOISE] == pytest.approx(0, abs=1e-4)  # no trigger; what followed it is 0
    assert found[0, 8, 0] == pytest.approx(7, abs=1e-4)


@pytest.mark.parametrize("place", ["mlp", "head"])
def test_keys_that_are_passed_over(place):
    _, cache = logits(place)
    pattern = cache["blocks.1.attn.hook_pattern"][0, 0]
    assert pattern[9, 2] == pytest.approx(1)  # not at the noise after the second occurrence
    others = [1, 2, 3, 4, 6, 8, 9, 10]  # trigger 1 was followed by noise only
    torch.testing.assert_close(pattern[10, others], torch.full((8,), 1 / 8))


def test_the_induction_head_carries_both():
    found, cache = logits("induction", margin=8.0)
    torch.testing.assert_close(cache["blocks.1.attn.hook_pattern"][0, 0, 9, [2, 5]], torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(found[0, 9], torch.tensor([0.0, 0, 0, 4, 0, 4]), atol=1e-4, rtol=0)
    assert found[0, 1, NOISE] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("place", PLACES)
def test_parts_that_the_circuit_names(place):
    circuit = noisy_induction_circuit(5, 12, triggers=(0, 1), noise_in=place)
    model = noisy_induction(5, 12, triggers=(0, 1), noise_in=place)
    busy = {(layer, 0) for layer in range(model.cfg.n_layers) if model.W_O[layer, 0].any()}
    assert busy == set(circuit.heads.values())
    assert circuit.neurons == {(0,): (0,), (1,): (1,)}
    ranks = [int(torch.linalg.matrix_rank(block.mlp.W_out)) for block in model.blocks]
    assert ranks == {"mlp": [0, 1], "head": [0, 0, 0], "induction": [0, 0]}[place]


@pytest.mark.usefixtures("as_installed")
def test_what_is_refused():
    with pytest.raises(InputError, match="noise_in must be one of: mlp, head, induction"):
        noisy_induction_circuit(noise_in="attention")
    with pytest.raises(InputError, match="a trigger must be from 0 to 4"):
        noisy_induction(5, 12, triggers=(5,))
