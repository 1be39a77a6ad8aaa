"""The final residual stream, read along a difference of logits.

The residual stream before the unembedding is a sum of what the embeddings, the heads, the MLPs and their biases wrote.
The final normalisation divides it by a scale. With the scale held at its value s in this run, a difference of logits
is linear in the parts x_c of the sum:

    logit(a) - logit(f) = sum over c of x_c . r  +  b_norm . d  +  b_U[a] - b_U[f]
    d = W_U[:, a] - W_U[:, f]        r = centred(gain * d) / s

`centred` subtracts the mean over the width (LayerNorm only; it may act on the direction in place of the stream,
because it is a symmetric projection). Gain and b_norm are the final normalisation's; without one, r = d. All of this is
done in float64, on what the model computed in its own precision.

The scale depends on every part. What a part does to the logits through the scale is not in its term.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.attribution.selection import Contrast
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, is_hooked
from mnemoscope.engine.architecture import transformer_without_hooks
from mnemoscope.interventions import recordings

ROUNDING = 16
"""Units of rounding by which a sum may miss what it should give; models of 1 to 24 layers miss it by less than 1."""
SCALE = "ln_final.hook_scale"
MAX_BYTES = 2**28
"""Memory for the activations of one chunk of sequences by default."""
FROZEN = "scale frozen at its value in this run and shared by all terms; effects through it are in no term"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The record of one forward pass over some of the sequences, at the contrast's positions.

    `cache` holds activations by hook name, with all positions; `contrast` is at its `columns`, which are positions.
    `direction` multiplies a vector in the final residual stream (r above). `constants` are terms of the biases after
    it. `truth` is the difference of logits that the model gave, and `size` that to which its rounding is relative.
    `rounding` is the share of the size by which a sum may miss what it should give.
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
    gain = model.ln_final.w if kind in ("LN", "RMS") else None
    return FinalNorm(centred=centres, gain=gain, bias=model.ln_final.b if kind == "LN" and centres else None)


def check_model(model: HookedModel) -> None:
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


def processing(model: HookedModel) -> str:
    """The processing of the weights, as far as the configuration says."""
    folded = model.cfg.normalization_type in ("LNPre", "RMSPre")
    return "normalisation folded" if folded else "unprocessed"


def chunks(model: HookedModel, batch: Batch, floats_per_prompt: int, max_bytes: int) -> list[slice]:
    """Runs of sequences of bounded size; the whole batch where hooks are on the model, since they may know its rows."""
    if max_bytes < 1:
        raise InputError(f"max_bytes must be at least 1; got {max_bytes}")
    size = len(batch) if is_hooked(model) else min(len(batch), max(1, max_bytes // (8 * floats_per_prompt)))
    return [slice(start, start + size) for start in range(0, len(batch), size)]


def forward(
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
        cache, logits = recordings.forward(model, batch.inputs[rows], hooks, columns)
    else:
        cache, logits = recordings.forward(model, batch.inputs[rows], points | {final}, columns, directly=True)
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
    """Forward passes over the batch in chunks, with the named activations: yields the rows and their reading.

    `hooks` are kept beside those that the reading itself needs; the contrast is read at the positions `columns`. A
    chunk takes up at most `max_bytes`, with `floats_per_prompt` numbers a sequence; at least one sequence is run at a
    time. Raises InputError for NaN in what the reading needs.
    """
    final = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    needed = hooks | {final} | ({SCALE} if model.cfg.normalization_type else set())
    for rows in chunks(model, batch, floats_per_prompt, max_bytes):
        logits, cache = forward(model, batch, rows, needed, columns, directly=True)
        logits, here = logits.double(), contrast.at(rows, columns)
        direction, constants = _read_direction(model, here, cache, columns)
        truth = here.of(logits)
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
    direction = contrast.of_columns(model.W_U)
    biases = {"b_U": contrast.of_columns(model.b_U[None]).squeeze(-1)}
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
