"""The residual stream read as logits: along a difference of logits, and after every layer (the logit lens).

The stream before the unembedding is a sum of what the embeddings, the heads, the MLPs and their biases wrote. The final
normalisation divides it by a scale. With the scale held at its value s in this run, a difference of logits is linear in
the parts x_c of the sum:

    logit(a) - logit(f) = sum over c of x_c . r  +  b_norm . d  +  b_U[a] - b_U[f]
    d = W_U[:, a] - W_U[:, f]        r = centred(gain * d) / s

`centred` subtracts the mean over the width (LayerNorm only; it may act on the direction in place of the stream,
because it is a symmetric projection). Gain and b_norm are the final normalisation's; without one, r = d. All of this is
done in float64, on what the model computed in its own precision. What a part does to the logits through the scale is
not in its term.

The *logit lens* (nostalgebraist 2020, "interpreting GPT: the logit lens") sends the stream after the embeddings, after
every attention layer and after every MLP through the final normalisation and the unembedding, as if nothing followed.
With `scale="own"` the normalisation divides the partial stream by its own scale; this is the lens. With `scale="final"`
it divides by the scale of the whole stream; between two depths the logit difference then changes by the terms that
`logit_attribution` gives to what was written between them.

The lens shows how far the answer can be read, with the model's own last layer, at each depth. It does not show that
later layers read it in this way, and an answer that it does not see may be there in directions that the last layer does
not read: early streams can be far from what it is used to. Nothing here is causal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.contrasts import Contrast, Foil, Selection, contrast, selection
from mnemoscope.analyses.forward import to_log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, is_hooked, norm_gain, resolve_model
from mnemoscope.core.site import Position
from mnemoscope.engine.architecture import transformer_without_hooks
from mnemoscope.interventions import recordings
from mnemoscope.interventions.reading import pick_columns, unembed_only

ROUNDING = 16
"""Units of rounding by which a sum may miss what it should give; models of 1 to 24 layers miss it by less than 1."""
SCALE = "ln_final.hook_scale"
MAX_BYTES = 2**28
"""Memory for the activations of one chunk of sequences by default."""
FROZEN = "scale frozen at its value in this run and shared by all terms; effects through it are in no term"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The record of one forward pass over some of the sequences, at the contrast's `columns`, which are positions.

    `cache` holds activations by hook name, with all positions. `direction` is r above, `constants` are terms of the
    biases after it. `truth` is the difference of logits that the model gave; a sum may miss it by the share `rounding`
    of `size`.
    """

    cache: Mapping[str, Tensor]
    contrast: Contrast
    columns: Tensor
    direction: Float[Tensor, "batch pos d_model"]
    constants: Mapping[str, Float[Tensor, "batch pos"]]
    truth: Float[Tensor, "batch pos"]
    size: Float[Tensor, "batch pos"]
    rounding: float

    def at(self, hook: str) -> Tensor:
        """An activation (batch, pos, ...) at the columns, in float64."""
        return self.cache[hook][:, self.columns].double()


@dataclass(frozen=True, kw_only=True, eq=False)
class FinalNorm:
    """The normalisation before the unembedding, apart from its scale."""

    centred: bool
    gain: Float[Tensor, " d_model"] | None
    bias: Float[Tensor, " d_model"] | None

    def apply(
        self, stream: Float[Tensor, "batch pos d_model"], scale: Float[Tensor, "batch pos 1"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """The normalised stream, with a given scale in place of the stream's."""
        stream = (stream - stream.mean(-1, keepdim=True) if self.centred else stream) / scale
        stream = stream if self.gain is None else stream * self.gain
        return stream if self.bias is None else stream + self.bias


def final_norm(model: Any) -> FinalNorm | None:
    """The model's; none if it has no normalisation."""
    kind = model.cfg.normalization_type
    if kind is None:
        return None
    centres = kind in ("LN", "LNPre") and not getattr(model.cfg, "final_rms", False)
    gain = norm_gain(model.ln_final) if kind in ("LN", "RMS") else None
    return FinalNorm(centred=centres, gain=gain, bias=model.ln_final.b if kind == "LN" and centres else None)


def check_readable(model: HookedModel) -> None:
    """Refuse a model whose logits are not a linear reading of the sum of its parts, or whose rounding is too coarse."""
    cfg = model.cfg
    if cfg.dtype not in (torch.float32, torch.float64):
        raise InputError(f"the model must be in float32 or float64; got {cfg.dtype}: use model.to(torch.float32)")
    cap = getattr(cfg, "output_logits_soft_cap", None)
    in_the_way = {
        "caps its logits": cap is not None and cap > 0,
        "normalises what heads and MLPs write": getattr(cfg, "use_normalization_before_and_after", False)
        or getattr(cfg, "original_architecture", None) in ("Olmo2ForCausalLM", "Olmo3ForCausalLM"),
        "has a mixture of experts": bool(getattr(cfg, "num_experts", None)),
    }
    for what, found in in_the_way.items():
        if found:
            raise InputError(
                f"the model {what}, so that its logits are no sum of terms of known parts; got "
                f"{getattr(cfg, 'model_name', 'a custom model')}: ablation and patching work on it"
            )


def normalisation_processing(model: HookedModel) -> str:
    """The processing of the weights, as far as the configuration says."""
    folded = model.cfg.normalization_type in ("LNPre", "RMSPre")
    return "normalisation folded" if folded else "unprocessed"


def split_sequences_by_memory(model: HookedModel, batch: Batch, floats_per_prompt: int, max_bytes: int) -> list[slice]:
    """Runs of sequences of bounded size; the whole batch where hooks are on the model, since they may know its rows."""
    if max_bytes < 1:
        raise InputError(f"max_bytes must be at least 1; got {max_bytes}")
    size = len(batch) if is_hooked(model) else min(len(batch), max(1, max_bytes // (8 * floats_per_prompt)))
    return [slice(start, start + size) for start in range(0, len(batch), size)]


def run_rows(
    model: HookedModel,
    batch: Batch,
    rows: slice,
    hooks: set[str],
    columns: Int[Tensor, " column"],
    *,
    directly: bool = False,
) -> tuple[Float[Tensor, "batch column d_vocab"], Mapping[str, Tensor]]:
    """Logits at some positions and named activations of some of the sequences; `directly` as `recordings.forward`."""
    final, points = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", hooks - {SCALE}
    if not directly or (weights := transformer_without_hooks(model, points | {final})) is None:
        cache, logits = recordings.record_hooks(model, batch.inputs[rows], hooks, columns)
    else:
        cache, logits = recordings.record_hooks(model, batch.inputs[rows], points | {final}, columns, by_engine=True)
        cache[SCALE] = weights.ln_final.scale(cache[final])
    if logits.isnan().any() or not logits.isfinite().any(-1).all():
        raise InputError(
            "the model's logits hold NaN or no finite value; check its weights and hooks, or take an earlier checkpoint"
        )
    return logits, cache


def readings(
    model: HookedModel,
    batch: Batch,
    contrast: Contrast,
    columns: Tensor,
    hooks: set[str],
    *,
    floats_per_prompt: int,
    max_bytes: int,
) -> Iterator[tuple[slice, Reading]]:
    """Forward passes over the batch in chunks of at most `max_bytes`: yields the rows and their reading.

    `hooks` are kept beside those that the reading itself needs. Raises InputError for NaN in what the reading needs.
    """
    final = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    needed = hooks | {final} | ({SCALE} if model.cfg.normalization_type else set())
    for rows in split_sequences_by_memory(model, batch, floats_per_prompt, max_bytes):
        logits, cache = run_rows(model, batch, rows, needed, columns, directly=True)
        logits, here = logits.double(), contrast.select(rows, columns)
        direction, constants = _read_direction(model, here, cache, columns)
        truth = here.difference(logits)
        check_finite(truth, here)
        stream = cache[final][:, columns].double()
        yield (
            rows,
            Reading(
                cache=cache,
                contrast=here,
                columns=columns,
                direction=direction,
                constants=constants,
                truth=truth,
                size=here.size(logits) + stream.norm(dim=-1) * direction.norm(dim=-1),
                rounding=ROUNDING * torch.finfo(model.cfg.dtype).eps,
            ),
        )


def _read_direction(
    model: Any, contrast: Contrast, cache: Mapping[str, Tensor], columns: Tensor
) -> tuple[Float[Tensor, "batch pos d_model"], dict[str, Float[Tensor, "batch pos"]]]:
    """The direction r of the module's formula, and the terms of the biases after the residual stream."""
    direction = contrast.column_difference(model.W_U)
    biases = {"b_U": contrast.column_difference(model.b_U[None]).squeeze(-1)}
    norm = final_norm(model)
    if norm is None:
        return direction, biases
    if norm.bias is not None:
        biases = {"ln_final b": direction @ norm.bias.double(), **biases}
    direction = direction if norm.gain is None else direction * norm.gain.double()
    direction = direction - direction.mean(-1, keepdim=True) if norm.centred else direction
    return direction / cache[SCALE][:, columns].double(), biases


def check_finite(difference: Float[Tensor, "batch pos"], contrast: Contrast) -> None:
    """Refuse a difference of logits that is infinite or no number at one of the contrast's positions."""
    if not difference[contrast.positions].isfinite().all():
        raise InputError(
            "the logits of answer and foil must be finite, so that they have a difference; got infinite ones: take "
            "as foil tokens that the model allows"
        )


Scale = Literal["own", "final"]
SCALES = {"own": "of each partial stream by itself", "final": FROZEN}
MEASURES = {"log_prob": "nats", "rank": "1: the most probable token", "kl": "nats", "entropy": "nats"}


def reading_depths(model: HookedModel) -> list[str]:
    """The readings of the residual stream: `L0 resid_pre`, then after every attention layer and every MLP."""
    cfg = model.cfg
    stages = ["resid_post"] if cfg.attn_only or cfg.parallel_attn_mlp else ["resid_mid", "resid_post"]
    return ["L0 resid_pre", *(f"L{layer} {stage}" for layer in range(cfg.n_layers) for stage in stages)]


@torch.no_grad()
def logit_lens(
    model: ModelLike,
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
        InputError: The last depth does not give the model's own logits; with the size of the gap.

    >>> lens = ms.logit_lens(model, batch)
    >>> lens.depth.values.tolist(), lens["rank"].dims
    (['L0 resid_pre', 'L0 resid_mid', 'L0 resid_post'], ('depth', 'prompt', 'pos'))
    """
    model = resolve_model(model, batch=batch)
    check_readable(model)
    one_of("scale", scale, SCALES)
    select = selection(batch, positions=positions, skills=skills)
    what = contrast(model, batch, positions=select.positions, answer=answer, foil=foil)
    values = select.gather(_values(model, batch, what, select, scale, max_bytes))
    dims = (*select.dims, "depth")
    kind = model.cfg.normalization_type
    return xr.Dataset(
        {name: (dims, to_numpy(value)) for name, value in values.items()},
        coords={"depth": reading_depths(model), **select.coords},
        attrs={
            **{f"{name}_unit": unit for name, unit in MEASURES.items()},
            "logit_difference_unit": "nats, a difference of logits",
            "contrast": what.name,
            "kl_of": "KL(model || lens)",
            "final_normalisation": "none" if kind is None else f"{kind}: {SCALES[scale]}",
            "n": len(batch),
            "weights": normalisation_processing(model),
            **select.attrs,
        },
    ).transpose("depth", *select.dims)


def _values(
    model: HookedModel, batch: Batch, what: Contrast, select: Selection, scale: Scale, max_bytes: int
) -> Iterator[tuple[slice, dict[str, Float[Tensor, "batch pos depth"]]]]:
    places = [depth.removeprefix("L").split(" ") for depth in reading_depths(model)]
    hooks = [f"blocks.{layer}.hook_{stage}" for layer, stage in places]
    kept = {*hooks, "ln_final.hook_scale"} if model.cfg.normalization_type else set(hooks)
    n_columns = len(select.columns)
    floats = batch.inputs.shape[1] * len(hooks) * model.cfg.d_model + n_columns * (
        len(hooks) * len(MEASURES) + 12 * model.cfg.d_vocab
    )
    for rows in split_sequences_by_memory(model, batch, floats, max_bytes):
        final, cache = run_rows(model, batch, rows, kept, select.columns)
        here = what.select(rows, select.columns)
        own, by_depth = to_log_probs(final), []
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
    with unembed_only(model, pick_columns(columns)) as picked:
        return picked(model.unembed(stream))


def _check_last(model: HookedModel, read: Tensor, final: Tensor) -> None:
    """Refuse a model whose output is not what is read from the final stream."""
    gap = (read - final).abs().nan_to_num(nan=0.0)  # of infinite logits
    size = final.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    rounding = ROUNDING * torch.finfo(final.dtype).eps * model.cfg.d_model**0.5  # of sums over the width
    if bool((gap <= rounding * size).all()):
        return
    missed = f"by up to {float(gap.max()):.3g}"
    if not is_hooked(model):
        raise InputError(
            f"the final stream must give the model's logits; what a final norm and the unembedding make of it misses "
            f"those of this {type(model).__name__} {missed}: load the weights as a HookedTransformer, or patch"
        )
    raise InputError(
        f"the final stream must give the model's logits, and a hook on the model changed that {missed}: remove the "
        "hooks after the last layer, or take scale='own'"
    )


def _measures(
    logits: Float[Tensor, "batch pos d_vocab"], own: Float[Tensor, "batch pos d_vocab"], here: Contrast
) -> dict[str, Float[Tensor, "batch pos"]]:
    log_probs, difference = to_log_probs(logits), here.difference(logits.double())
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
