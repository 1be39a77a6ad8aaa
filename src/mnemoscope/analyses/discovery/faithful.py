"""How much of what the model does a circuit does by itself.

Faithfulness as `setting` defines it, a ratio of means over prompts: what Hanna et al. 2024 ("Have faith in
faithfulness") and Marks et al. 2024 ("Sparse feature circuits") call faithfulness. `value` is not normalised: with
logit differences its mean is F(C) of Wang et al. 2022 ("Interpretability in the wild"), who compare it with F of the
model, and with KL the number that ACDC (Conmy et al. 2023) bounds.

The same numbers elsewhere: `value` is what EAP-IG's `evaluate_graph` returns with `patching`, `full` and `empty` what
its `evaluate_baseline` returns, clean and corrupted, if the circuit is given pruned and the metric reads the same
positions. `value` is what auto-circuit's `run_circuits` gives under `TREE_PATCH` and `RESAMPLE`. Its
`answer_diff_percent` is 100 times the mean of `value` by that of `full`: 0 there is no preference, and not the empty
circuit, so that the percentage is another number.

It shows that the circuit's edges together suffice, given corrupted (or mean, or no) values elsewhere. It does not show
that they are needed (`minimal`), nor that no other circuit does the same.
"""

import xarray as xr

from mnemoscope.analyses.discovery.setting import Setting


def faithfulness(setting: Setting, circuits: xr.DataArray) -> xr.Dataset:
    """Faithfulness of circuits.

    Args:
        setting: What they are measured on.
        circuits: Truth values over edge, after any other axes, which the result keeps.

    Returns:
        `faithfulness`, its standard error over prompts `error`, and `n_edges`, over the axes of `circuits` but edge;
        `value` with prompt: the metric of the circuit; `full` and `empty` over prompt: that of the whole model and of
        the empty circuit.

    Raises:
        InputError: They are no circuits of the model, or as `Setting.span`.
    """
    masks = setting.members(circuits)
    rest = circuits.drop_vars("edge").transpose(..., "edge").isel(edge=0, drop=True)
    values = setting.values(masks.reshape(-1, masks.shape[-1]))
    found = {"faithfulness": setting.share(values), "error": setting.error(values)}
    full, empty = setting.ends
    return xr.Dataset(
        {
            **{name: (rest.dims, given.reshape(rest.shape)) for name, given in found.items()},
            "n_edges": (rest.dims, masks.sum(-1)),
            "value": ((*rest.dims, "prompt"), values.reshape(*rest.shape, -1)),
            "full": ("prompt", full),
            "empty": ("prompt", empty),
        },
        coords={**rest.coords, "prompt": range(len(setting.pairs))},
        attrs={**setting.attrs, "unit": "share of the difference between the model and the empty circuit"},
    )
