"""Evidence on disk explains itself: whoever opens it with xarray alone finds claim, units and margins."""

import numpy as np
import xarray as xr

from mnemoscope.claims.arrays import evidence_arrays
from mnemoscope.claims.claim import Gate
from mnemoscope.claims.explanation import Explanation, Quantity
from mnemoscope.cli.output import write_arrays
from tests.claims.trials import MARGIN, clearing, make_claim, make_evidence
from tests.report.rulings.made_up import ruling, two_heads


def test_a_lone_effect_has_margin_and_unit_and_the_gate_its_bounds(tmp_path):
    words = Explanation(
        quantities={"effect": Quantity(words="what is lost", formula="a - b")},
        procedure="It is measured.",
        margins="As given.",
    )
    claim = make_claim(gate=Gate(statement="has learned it", at_least=0.9), version=3, explanation=words)
    gate = xr.DataArray(np.full(16, 0.95), dims="seed", coords={"seed": np.arange(16)})
    evidence = make_evidence(clearing(16, 16), gate=gate)
    write_arrays(tmp_path, {"T0": evidence_arrays(ruling(claim, evidence))})
    with xr.open_dataset(tmp_path / "T0.nc") as opened:
        assert (opened.attrs["claim"], opened.attrs["version"]) == ("T0", 3)
        assert (opened.attrs["outcome"], opened.attrs["replicate"]) == ("SUPPORTED", "seed")
        effect = opened["effect"]
        demanded = {"unit": "logits", "margin": MARGIN, "direction": "above", "quantifier": "most"}
        assert effect.attrs == {**demanded, "long_name": "what is lost: a - b"}
        assert effect.dims == ("seed",)
        np.testing.assert_array_equal(effect, clearing(16, 16))
        assert opened["gate"].attrs == {"at_least": 0.9, "at_most": np.inf}
    assert "margin" not in evidence.effects.attrs, "the evidence itself stays as it is"


def test_every_part_of_a_claim_has_its_own(tmp_path):
    tried = two_heads()
    write_arrays(tmp_path, {"two": evidence_arrays(tried)})
    with xr.open_dataset(tmp_path / "two.nc") as opened:
        assert len(tried.claim.criteria) > 1
        for part in tried.claim.criteria:
            assert opened[part.name].attrs["margin"] == part.margin
            assert opened[part.name].attrs["direction"] == part.direction
