import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models import constructed
from tests.support import global_generators_untouched, seeded

MAPPING = [3, 1, 4, 1, 5, 9, 2, 6, 5, 8]


@torch.no_grad()
def at_target(model, batch):
    """Probability of the target at every scored position."""
    probs = model(batch.inputs).softmax(-1)
    return probs.gather(-1, batch.targets[..., None])[..., 0][batch.scored]


@pytest.mark.parametrize(
    "model",
    [
        lambda: constructed.associative_memory(MAPPING),
        lambda: constructed.associative_memory(MAPPING, d_embed=8),
        lambda: constructed.attention_memory(MAPPING),
    ],
)
def test_memories_hold_the_mapping(model):
    batch = constructed.memory_batch(40, MAPPING, generator=seeded())
    assert set(batch.inputs.flatten().tolist()) == set(range(10))
    assert at_target(model(), batch).min() > 0.99


@pytest.mark.parametrize("d_embed", [None, 8])
def test_every_token_has_its_neuron(d_embed):
    model = constructed.associative_memory(MAPPING, d_embed=d_embed)
    _, cache = model.run_with_cache(torch.arange(10)[:, None])
    torch.testing.assert_close(cache["blocks.0.mlp.hook_post"][:, 0], torch.eye(10))


def test_the_memory_of_a_head_is_its_ov_circuit():
    model, circuit = constructed.attention_memory(MAPPING), constructed.attention_memory_circuit(MAPPING)
    table = torch.zeros(10, 10).index_put((torch.arange(10), torch.tensor(MAPPING)), torch.tensor(20.0))
    torch.testing.assert_close(model.OV[0, 0].AB[circuit.dims["token"], circuit.dims["answer"]], table)
    _, cache = model.run_with_cache(torch.zeros(1, 8, dtype=torch.long))
    torch.testing.assert_close(cache["blocks.0.attn.hook_pattern"][0, 0], torch.eye(8))


@pytest.mark.parametrize(
    ("mapping", "options", "message"),
    [([0, 3], {}, "an answer of mapping must be from 0 to 1; got 3"), ([0] * 20, {"d_embed": 2}, "larger d_embed")],
)
def test_memories_that_cannot_be_are_refused(mapping, options, message):
    with pytest.raises(InputError, match=message):
        constructed.associative_memory(mapping, **options)


def test_random_embeddings_leave_the_global_generators_alone():
    with global_generators_untouched():
        one, two = (constructed.associative_memory(MAPPING, d_embed=8, seed=seed) for seed in (0, 1))
    assert (one.W_E != two.W_E).any()


def test_a_context_that_a_head_cannot_tell_apart_is_refused():
    with pytest.raises(InputError, match="n_ctx must be from 1 to 6; got 8"):
        constructed.attention_memory([2, 0, 1])
    assert constructed.attention_memory([2, 0, 1], n_ctx=6).cfg.n_ctx == 6
