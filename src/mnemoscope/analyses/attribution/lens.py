"""The logit lens: what the model would answer if it stopped after each layer.

The residual stream after the embeddings, after every attention layer and after every MLP goes through the final
normalisation and the unembedding, as if nothing followed (nostalgebraist 2020, "interpreting GPT: the logit lens").
From these logits: the log-probability and the rank of the answer, the KL divergence from the model's own distribution
to that of the lens, the entropy, and the logit difference that direct logit attribution splits up.

With `scale="own"` the final normalisation divides the partial stream by its own scale; this is the lens. With
`scale="final"` it divides by the scale of the whole stream. Then the logit difference is linear in the stream: between
two depths it changes by the terms that `logit_attribution` gives to what was written between them.

It shows how far the answer can be read, with the model's own last layer, at each depth. It does not show that later
layers read it in this way, and an answer that the lens does not see may be there in directions that the last layer does
not read: early streams can be far from what it is used to. Nothing here is causal.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.attribution.residual import (
    FROZEN,
    MAX_BYTES,
    ROUNDING,
    check_finite,
    check_model,
    chunks,
    final_norm,
    forward,
    processing,
)
from mnemoscope.analyses.attribution.selection import Contrast, Foil, Selection, contrast, selection
from mnemoscope.analyses.forward import normalised
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import HookedModel, is_hooked
from mnemoscope.core.site import Position
from mnemoscope.interventions.reading import pick_columns, unembedding

Scale = Literal["own", "final"]
SCALES = {"own": "of each partial stream by itself", "final": FROZEN}
MEASURES = {"log_prob": "nats", "rank": "1: the most probable token", "kl": "nats", "entropy": "nats"}


def depths(model: HookedModel) -> list[str]:
    """The readings of the residual stream: `L0 resid_pre`, then after every attention layer and every MLP."""
    cfg = model.cfg
    stages = ["resid_post"] if cfg.attn_only or cfg.parallel_attn_mlp else ["resid_mid", "resid_post"]
    return ["L0 resid_pre", *(f"L{layer} {stage}" for layer in range(cfg.n_layers) for stage in stages)]


@torch.no_grad()
def logit_lens(
    model: HookedModel,
    batch: Batch,
    *,
    scale: Scale = "own",
    answer: Int[Tensor, "batch pos"] | None = None,
    foil: Foil = "mean",
    positions: Bool[Tensor, "batch pos"] | Position | None = None,
    skills: Mapping[str, Bool[Tensor, "batch pos"]] | None = None,
    max_bytes: int = MAX_BYTES,
) -> xr.Dataset:
    """The answer as it can be read from the residual stream at every depth.

    Arguments and errors as for `logit_attribution`. `scale` is what the final normalisation divides by: the partial
    stream's own scale, or the final stream's.

    Returns:
        Over (depth, prompt, pos), or (depth, skill) if there are skills: `log_prob` of the answer (nats); `rank` of the
        answer, 1 for the most probable token, of equals the lowest first; `kl`, the divergence KL(model || lens) in
        nats; `entropy` of the lens (nats); `logit_difference`, answer minus foil. The last depth is the model's own
        output. `pos` has the positions that are looked at, NaN in sequences where they are not.

    Raises:
        AssertionError: The last depth does not give the model's own logits; with the size of the gap.
    """
    check_model(model)
    one_of("scale", scale, SCALES)
    select = selection(batch, positions=positions, skills=skills)
    what = contrast(model, batch, positions=select.positions, answer=answer, foil=foil)
    values = select.gather(_values(model, batch, what, select, scale, max_bytes))
    dims = (*select.dims, "depth")
    kind = model.cfg.normalization_type
    return xr.Dataset(
        {name: (dims, value.numpy()) for name, value in values.items()},
        coords={"depth": depths(model), **select.coords},
        attrs={
            **{f"{name}_unit": unit for name, unit in MEASURES.items()},
            "logit_difference_unit": "nats, a difference of logits",
            "contrast": what.name,
            "kl_of": "KL(model || lens)",
            "final_normalisation": "none" if kind is None else f"{kind}: {SCALES[scale]}",
            "n": len(batch),
            "weights": processing(model),
            **select.attrs,
        },
    ).transpose("depth", *select.dims)


def _values(
    model: HookedModel, batch: Batch, what: Contrast, select: Selection, scale: Scale, max_bytes: int
) -> Iterator[tuple[slice, dict[str, Float[Tensor, "batch pos depth"]]]]:
    places = [depth.removeprefix("L").split(" ") for depth in depths(model)]
    hooks = [f"blocks.{layer}.hook_{stage}" for layer, stage in places]
    kept = {*hooks, "ln_final.hook_scale"} if model.cfg.normalization_type else set(hooks)
    n_columns = len(select.columns)
    floats = batch.inputs.shape[1] * len(hooks) * model.cfg.d_model + n_columns * (
        len(hooks) * len(MEASURES) + 12 * model.cfg.d_vocab
    )
    for rows in chunks(model, batch, floats, max_bytes):
        final, cache = forward(model, batch, rows, kept, select.columns)
        here = what.at(rows, select.columns)
        own, by_depth = normalised(final), []
        for hook in hooks:
            read = _read(model, cache, hook, scale, select.columns)
            if hook == hooks[-1]:
                _check_last(model, read, final)
                read = final
            by_depth.append(_measures(read, own, here))
        yield rows, {name: torch.stack([each[name] for each in by_depth], -1) for name in by_depth[0]}


def _read(
    model: Any, cache: Mapping[str, Tensor], hook: str, scale: Scale, columns: Int[Tensor, " column"]
) -> Float[Tensor, "batch column d_vocab"]:
    """Logits of a residual stream at some positions, read as the model does it, so that rounding is the model's."""
    norm, stream = final_norm(model), cache[hook]
    if norm is not None and scale == "own":
        stream = model.ln_final(stream)
    elif norm is not None:
        stream = norm.apply(stream, cache["ln_final.hook_scale"])
    with unembedding(model, pick_columns(columns)) as picked:
        return picked(model.unembed(stream))


def _check_last(model: HookedModel, read: Tensor, final: Tensor) -> None:
    """Assert that what is read from the final stream is the model's output."""
    gap = (read - final).abs().nan_to_num(nan=0.0)  # of infinite logits
    size = final.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    rounding = ROUNDING * torch.finfo(final.dtype).eps * model.cfg.d_model**0.5  # of sums over the width
    if bool((gap <= rounding * size).all()):
        return
    missed = f"by up to {float(gap.max()):.3g}"
    assert is_hooked(model), f"what is read from the last depth misses the model's logits {missed}"
    raise InputError(
        f"the final stream must give the model's logits, and a hook on the model changed that {missed}: remove the "
        "hooks after the last layer, or take scale='own'"
    )


def _measures(
    logits: Float[Tensor, "batch pos d_vocab"], own: Float[Tensor, "batch pos d_vocab"], here: Contrast
) -> dict[str, Float[Tensor, "batch pos"]]:
    log_probs, difference = normalised(logits), here.of(logits.double())
    check_finite(difference, here)
    probs, value = log_probs.exp(), metrics.at_target(logits, here.answer).unsqueeze(-1)
    lower = torch.arange(logits.shape[-1], device=logits.device) < here.answer.unsqueeze(-1)
    ahead = (logits > value) | ((logits == value) & lower)  # of equals the lowest token, as in `metrics.correct`
    return {
        "log_prob": metrics.at_target(log_probs, here.answer),
        "rank": (1 + ahead.sum(-1)).double(),
        "kl": metrics.kl_divergence(own.exp(), log_probs),
        "entropy": -torch.special.xlogy(probs, probs).sum(-1),
        "logit_difference": difference,
    }
