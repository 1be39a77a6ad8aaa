"""In bfloat16 analyses of language models give what they give in float32, nearly."""

import numpy as np
import pytest

import mnemoscope as ms
from tests.language_models import KINDS, save

STORY = "When {A} and {B} went to the store , {S} gave a drink to"
NAMES = [("John", "Mary"), ("Anna", "Paul"), ("Mary", "Anna")]
ANALYSES = {
    "patch": lambda model, pairs: ms.patch(model, pairs, kind="resid_pre", over=("layer", "pos")).value,
    "patch heads": lambda model, pairs: ms.patch(model, pairs, kind="z", over=("layer", "head")).value,
    "patch edges": lambda model, pairs: ms.patch_edges(model, pairs).value,
    "attribute edges": lambda model, pairs: ms.analyses.attribute_edges(model, pairs).value,
    "head scores": lambda model, pairs: (
        ms.analyses.head_scores(model, ms.analyses.repeated_tokens(model, n=2, length=6)).score
    ),
    "ablate": lambda model, pairs: (
        ms.ablate(model, pairs.clean, skills={"name": pairs.scored}, reference=pairs.corrupted).log_prob
    ),
    "patterns": lambda model, pairs: ms.analyses.named_patterns(model, pairs.clean).pattern,
    "low rank": lambda model, pairs: ms.run_with(
        model, pairs.clean, [ms.LowRank(site=ms.ParamSite(name="W_in", layer=0), rank=2)]
    ).float(),
    "circuits": lambda model, pairs: ms.analyses.Setting(model=model, pairs=pairs, refuse=False).ends[0],
}


@pytest.fixture(scope="module", params=list(KINDS))
def models(request, tmp_path_factory):
    path = save(request.param, tmp_path_factory.mktemp("models") / request.param)
    return [ms.language_model(path, dtype=dtype) for dtype in ("float32", "bfloat16")]


@pytest.mark.parametrize("name", ANALYSES)
def test_bfloat16(models, name):
    clean, corrupted = ([ms.Prompt.fill(STORY, A=a, B=b, S=(a, b)[side]) for a, b in NAMES] for side in (0, 1))
    pairs = ms.prompt_pairs(
        models[0].tokenizer, clean, corrupted, answers=[b for _, b in NAMES], foils=[a for a, _ in NAMES]
    )
    single, half = (np.asarray(ANALYSES[name](model, pairs), dtype=float) for model in models)
    assert np.abs(single - half).max() < 0.1 * max(1, np.abs(single).max())
    assert np.ptp(single) > 0
    assert (single != half).any()
