"""Known circuits are what they say: their edges carry the whole answer, every one carries some, and no other does."""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import metrics_for
from mnemoscope.methods import KNOWN_CIRCUITS
from mnemoscope.methods.constructed import EDGES, other_tokens
from mnemoscope.models.constructed import induction

NAMES = [
    name
    for name in KNOWN_CIRCUITS.names()
    if not name.startswith(("rasp-", "trained-", "smollm2-")) and name != "induction-noised"
]
"""Those that are set by hand without noise; compiled programs are tried with their guest, runs in `test_trained`."""
N = 24


def largest_change(patched) -> np.ndarray:
    """The largest change of the metric by edge, over prompts and both directions."""
    found = patched.isel(metric=0)
    noised = abs(found.value.sel(direction="noising") - found.clean).max("prompt")
    denoised = abs(found.value.sel(direction="denoising") - found.corrupted).max("prompt")
    return np.maximum(noised, denoised).to_numpy()


@pytest.mark.parametrize("name", NAMES)
def test_the_edges_carry_all_of_the_answer_and_no_other_edge_does(name):
    known = KNOWN_CIRCUITS.get(name)()
    pairs = known.pairs(N, 3)
    assert len(pairs) == N
    metric = metrics_for(vectors=pairs.clean.has_vectors)[0]
    setting = ms.analyses.Setting(model=known.model, pairs=pairs, metric=metric)
    inside = ms.analyses.circuit(setting.edges, known.edges).to_numpy()
    assert setting.faithfulness(np.stack([inside, ~inside])) == pytest.approx([1, 0], abs=1e-4)
    change = largest_change(ms.patch_edges(known.model, pairs, metrics=[metric]))
    assert change[inside].min() > 1e-3 * abs(setting.span)
    assert change[~inside].max() < 1e-4 * abs(setting.span)


def test_circuits_register_under_their_names():
    assert len(NAMES) == 16
    assert all(KNOWN_CIRCUITS.get(name)().name == name for name in NAMES)


def test_edges_that_do_not_exist_are_refused():
    what = {"name": "wrong", "family": "wrong", "source": "", "model": induction(24, 8), "pairs": other_tokens}
    with pytest.raises(InputError, match="names them; got L5H0 → logits"):
        ms.methods.KnownCircuit(edges=frozenset({*EDGES, "L5H0 → logits"}), **what)
    with pytest.raises(InputError, match=r"edges .* got none"):
        ms.methods.KnownCircuit(edges=frozenset(), **what)
    with pytest.raises(InputError, match=r"absent .* got none"):
        ms.methods.KnownCircuit(edges=EDGES, absent=frozenset(), **what)
    with pytest.raises(InputError, match="absent too: L1H0 → logits"):
        ms.methods.KnownCircuit(edges=EDGES, absent=frozenset({"L1H0 → logits"}), **what)
