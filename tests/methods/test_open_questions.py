"""Models of whose circuit nothing is known: measures of faithfulness alone, and SmolLM2 on stories of two names."""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.methods import KNOWN_CIRCUITS, METHODS, KnownCircuit, OpenQuestion
from mnemoscope.methods.constructed import other_tokens
from mnemoscope.methods.trial import _names, tree_of
from mnemoscope.models.constructed import induction

TRIED = ["eap", "random"]
REFUSED = {
    "edge-patching": "edge patching runs 70,651 circuits",
    "ugs": "share keys and values",
    "edge-shapley": "at most 1,200 edges",
    "optimal-ablation": "at most 1,200 edges",
    "minimal-circuits": "at most 16 edges",
}


def question() -> KnownCircuit:
    return OpenQuestion(
        name="unknown", source="", make=lambda: induction(24, 8), pairs=lambda model, n, seed: other_tokens(n, seed)
    )()


def test_methods_have_measures_of_faithfulness_alone():
    found = ms.methods.try_circuit(question(), TRIED, n=4, n_draws=1)
    assert found.CPR.notnull().all()
    for measure in ("auroc", "precision_at_size", "precision", "recall", "protocol_auroc"):
        assert found[measure].isnull().all(), measure
    known = ms.methods.try_circuit(KNOWN_CIRCUITS.get("induction")(), TRIED, n=4, n_draws=1)
    assert known.auroc.notnull().all()
    tried = tree_of([found])
    summary = ms.methods.summarise(tried)
    assert summary.n_circuits.values.tolist() == [1, 1]
    assert summary.CMD.sel(bound="mean").notnull().all()


def test_open_questions_take_part_where_they_are_named():
    assert isinstance(KNOWN_CIRCUITS.get("smollm2-names"), OpenQuestion)
    assert "smollm2-names" not in _names("known circuit", KNOWN_CIRCUITS, None)
    assert _names("known circuit", KNOWN_CIRCUITS, ["smollm2-names"]) == ["smollm2-names"]


@pytest.mark.lm
def test_smollm2_is_ranked_by_gradients_and_other_methods_say_why_not():
    known = KNOWN_CIRCUITS.get("smollm2-names")()
    setting = ms.analyses.Setting(model=known.model, pairs=known.pairs(2, 0))
    found = METHODS.get("eap")(setting, 0)
    assert found.sizes["edge"] == 70_651
    assert np.isfinite(found.values).all()
    largest = found.edge.values[abs(found.values).argsort()[-4:]]
    assert "L23H3 → logits" in largest  # as on other stories, in docs/language_models.md
    for name, reason in REFUSED.items():
        with pytest.raises(InputError, match=reason):
            METHODS.get(name)(setting, 0)
