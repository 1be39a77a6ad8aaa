"""What the weights of every head say, and how far it can be trusted: the analyses of circuits put together.

What each shows and does not show stands in its own module. Circuits are read with LayerNorm linearised at the batch.
"""

import xarray as xr

from mnemoscope.analyses.circuits.composition import composition
from mnemoscope.analyses.circuits.full import ov_circuits, qk_circuits
from mnemoscope.analyses.circuits.pattern_prediction import predict_patterns
from mnemoscope.analyses.circuits.removal_prediction import predict_removal
from mnemoscope.analyses.circuits.spectra import spectra
from mnemoscope.analyses.circuits.summaries import copying, offset_affinity, same_token_affinity
from mnemoscope.core.batch import Batch
from mnemoscope.core.protocols import HookedModel


def read_circuits(model: HookedModel, batch: Batch, *, reference: Batch, seed: int = 0) -> dict[str, xr.Dataset]:
    """All reads of the OV and QK circuits of a model with positional embeddings.

    Args:
        model: Any hooked model with a vocabulary small enough for full circuits.
        batch: Sequences at which LayerNorm is linearised, and on which the reads are compared with what happens.
        reference: For mean ablation.
        seed: Of the random baselines of composition.

    Returns:
        `qk`, `ov`: the full circuits by layer and head. `heads`: copying score, affinities to the same token and to
        offsets, singular values and eigenvalues. `patterns`, `removal`: how well the reads predict the attention and
        the effect of removing a head. `composition`, with several layers: over pairs of heads.
    """
    summaries = [copying(model), spectra(model).drop_vars("sign_score")]
    affinities = {"same_token": same_token_affinity(model), "offset_affinity": offset_affinity(model)}
    heads = xr.merge([*summaries, xr.Dataset(affinities)], combine_attrs="drop_conflicts")
    results = {
        "qk": qk_circuits(model, normalisation="linearised", at=batch),
        "ov": ov_circuits(model, normalisation="linearised", at=batch),
        "heads": heads,
        "patterns": predict_patterns(model, batch),
        "removal": predict_removal(model, batch, reference=reference),
    }
    return results | ({"composition": composition(model, seed=seed)} if model.cfg.n_layers > 1 else {})
