"""What the page reads from weights and streams beside the analyses of the same names."""

from typing import Any

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.analyses import neuron_activity, neuron_keys, neuron_values, ov_circuits, qk_circuits, top_inputs
from mnemoscope.explorer.packing import Packer, page_configuration
from tests.explorer.chromium import computed, needs_chromium
from tests.support import foreign_model, random_model

HARNESS = """
const { tensors, run, tokens, answer, foil, sequences } = content;
const model = opener(tensors)(run, 0);
const pass = forward(model, tokens);
const pos = tokens.length - 1;
return {
  qk: [...qkCircuit(model, 1, 0)], ov: [...ovCircuit(model, 1, 0)],
  shares: attribution(model, pass, pos, answer, foil), total: margin(pass, pos, answer, foil),
  keys: neuronKeys(model, 0, 2), deep: neuronKeys(model, 1, 1), value: [...neuronValue(model, 0, 2)],
  top: atOnce(topInputs(model, sequences, { layer: 1, neuron: 1, pos: 4 })),
  neurons: unitShares(model, pass, pos, answer, foil, 1).reduce((sum, value) => sum + value, 0),
  lens: ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_mid", "blocks.0.hook_resid_post", "blocks.1.hook_resid_mid",
    "blocks.1.hook_resid_post"].map((hook) => {
    const logits = lens(model, row(pass.cache.get(hook), pos));
    return logits[answer] - logits[foil];
  }),
};
"""
MODELS = {
    "LN": lambda: random_model(n_layers=2),
    "none": lambda: random_model(n_layers=2, normalization="none"),
    "RMS": lambda: foreign_model(normalization_type="RMS"),
    "LNPre": lambda: foreign_model(normalization_type="LNPre"),
}


@needs_chromium
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if i else name for i, name in enumerate(MODELS)]
)
def test_circuits_attribution_and_lens_are_those_of_the_analyses(name, tmp_path):
    model: Any = MODELS[name]()
    tokens, answer, foil = torch.tensor([[1, 4, 2, 3, 5]]), 3, 1
    batch = ms.Batch(inputs=tokens, targets=tokens, scored=torch.arange(5)[None] == 4)
    packer = Packer()
    run = {"cfg": page_configuration(model), "checkpoints": [packer.checkpoint(model)]}
    content = {"tensors": packer.tensors, "run": run, "tokens": tokens[0].tolist(), "answer": answer, "foil": foil}
    drawn = torch.randint(6, (20, 5), generator=torch.Generator().manual_seed(0))
    content["sequences"] = drawn.tolist()
    found = computed(("weights", "reading", "inside", "neurons"), HARNESS, content, tmp_path)

    qk = qk_circuits(model, parts=["token"]).token_token[1, 0].values
    np.testing.assert_allclose(np.reshape(found["qk"], qk.shape), qk, rtol=1e-4, atol=1e-4)
    ov = ov_circuits(model, parts=["token"]).token_logit[1, 0].values
    np.testing.assert_allclose(np.reshape(found["ov"], ov.shape), ov - ov.mean(-1, keepdims=True), rtol=1e-4, atol=1e-4)

    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
        hooks = ["0.hook_resid_pre", "0.hook_resid_mid", "0.hook_resid_post", "1.hook_resid_mid", "1.hook_resid_post"]
        streams = torch.cat([cache[f"blocks.{hook}"][:, -1:] for hook in hooks])
        seen = model.unembed(streams if name == "none" else model.ln_final(streams))[:, 0]
    assert found["lens"] == pytest.approx((seen[:, answer] - seen[:, foil]).tolist(), abs=1e-4)
    difference = float(logits[0, -1, answer] - logits[0, -1, foil])
    assert found["total"] == pytest.approx(difference, abs=1e-4)
    shares = {share["name"]: share["value"] for share in found["shares"]}
    assert sum(shares.values()) == pytest.approx(difference, abs=1e-4)
    chosen, other = torch.full_like(tokens, answer), torch.full_like(tokens, foil)
    exact = ms.logit_attribution(model, batch, answer=chosen, foil=other)
    parts = {str(part): float(exact.attribution.sel(component=part).sum()) for part in exact.component.values}
    for part in ("L0H0", "L1H1", "L0 MLP"):
        assert shares[part] == pytest.approx(parts[part], abs=1e-4)
    assert found["neurons"] == pytest.approx(shares["L1 MLP"], abs=1e-4)

    for layer, neuron, keys in ((0, 2, found["keys"]), (1, 1, found["deep"])):
        weights = neuron_keys(model, layer=layer, neurons=[neuron]).isel(neuron=0)
        for kind in ("token", "pos"):
            assert list(keys[kind].values()) == pytest.approx(weights[f"key_{kind}"].values.tolist(), abs=1e-4)
            for head, own in enumerate(keys["heads"]):
                by_head = weights[f"key_head_{kind}"].values[head].tolist()
                assert list(own[kind].values()) == pytest.approx(by_head, abs=1e-4)
    value = neuron_values(model, layer=0, neurons=[2]).value.values[0]
    assert found["value"] == pytest.approx(value.tolist(), abs=1e-4)
    seen = ms.Batch(inputs=drawn, targets=drawn, scored=torch.arange(5).expand(20, 5) == 4)
    top = top_inputs(neuron_activity(model, seen, layer=1), n=20).isel(neuron=1)
    active = top.where(top.active, drop=True)
    assert 0 < len(found["top"]) == active.sizes["rank"]
    assert [one["row"] for one in found["top"]] == active.sequence.values.astype(int).tolist()
    assert [one["activation"] for one in found["top"]] == pytest.approx(active.activation.values.tolist(), abs=1e-4)
