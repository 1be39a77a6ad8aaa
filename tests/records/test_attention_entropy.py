import math

import numpy as np
import pytest
import torch

from mnemoscope.cli import main
from mnemoscope.core.batch import Batch
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.records.attention_entropy import entropies, finding
from tests.records.planted import along, measured
from tests.support import random_model, seeded

N_POS = 5


@pytest.fixture
def batch():
    inputs = torch.randint(6, (20, N_POS), generator=seeded())
    return Batch(inputs=inputs, targets=inputs, scored=torch.ones_like(inputs, dtype=torch.bool))


def of_queries(found):
    return found.entropy.values[0, 0]


def test_even_attention_has_the_logarithm_of_the_number_of_keys(batch):
    model = random_model()
    with torch.no_grad():
        for name in ("W_Q", "b_Q"):
            getattr(model.blocks[0].attn, name).zero_()
    masks = {str(pos): torch.arange(N_POS).eq(pos).expand(20, -1) for pos in range(N_POS)}
    found = entropies(model, batch, masks)
    np.testing.assert_allclose(of_queries(found), [math.log(pos + 1) for pos in range(N_POS)], atol=1e-12)
    np.testing.assert_allclose(found.share.values[0, 0], [0, *[1] * (N_POS - 1)], atol=1e-12)


def test_it_is_the_entropy_of_the_models_own_patterns(batch):
    model = random_model()
    _, cache = model.run_with_cache(batch.inputs)
    pattern = cache["blocks.0.attn.hook_pattern"].detach().double()
    expected = -(pattern * pattern.clamp_min(1e-300).log()).sum(-1)[..., 2:4].mean((0, 2))
    mask = torch.tensor([False, False, True, True, False]).expand(20, -1)
    np.testing.assert_allclose(entropies(model, batch, {"late": mask}).entropy.values[0, :, 0], expected, atol=1e-6)


def test_heads_that_look_at_one_token_have_none_and_idle_ones_all():
    """Of the constructed induction model the first head of either layer attends to one key, the second to all alike."""
    prompts = induction_batch(16, n_tokens=9, n_ctx=12, generator=seeded())
    share = entropies(induction(9, 12), prompts, {"repeated": prompts.scored}).share.values[..., 0]
    np.testing.assert_allclose(share, [[0, 1], [0, 1]], atol=1e-3)
    untrained = entropies(random_model(d_vocab=9, n_ctx=12), prompts, {"repeated": prompts.scored}).share.values
    assert 0.5 < untrained.min() < untrained.max() < 1


def test_the_finding_names_the_sharpest_head_of_every_skill():
    coords = {"role": ["memory head", "other head"], "skill": ["copy", "count"]}
    share = along(("role", "skill"), (2, 2), {("memory head", "count"): 0.4, ("other head", "copy"): 0.9}, **coords)
    said = finding(measured(entropy=share.to_dataset(name="share")))
    assert said == (
        "Sharpest attention: for copy the memory head (0.00 [0.00, 0.00] of the largest entropy); "
        "for count the other head (0.00 [0.00, 0.00] of the largest entropy)."
    )


def test_it_is_a_command(learned_pair, tmp_path, capsys):
    main(["attention-entropy", str(learned_pair[0].path), "--n", "32", "--out", str(tmp_path)])
    (place,) = tmp_path.glob("*/attention-entropy")
    assert {file.name for file in place.iterdir()} >= {"attention-entropy.html", "entropy.csv", "entropy.nc"}
    assert "Sharpest attention: for " in " ".join(capsys.readouterr().out.split())
