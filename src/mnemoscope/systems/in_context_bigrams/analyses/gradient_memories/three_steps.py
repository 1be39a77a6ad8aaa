"""Three gradient steps, one per matrix: do they build an induction head?

Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint", take the simplified transformer, whose W_O of layer 2
(copied token), W_K of layer 2 (remapped copy) and W_K of layer 1 (previous token) start at zero. One gradient step on
each, in this order, recovers the three memories of in-context bigrams, if embeddings are nearly orthonormal. A large
fresh sample stands for the population at each step; the other matrices are as they then are.

The sequences are those of the argument: tokens are uniform, and one random trigger per sequence is followed by an
output that differs from it. The loss is taken where the trigger stands again, late in the sequence. Step sizes are
constants (`SETTINGS`): the first is small, so that predictions stay near uniform; the other two are just
large enough to turn attention away from uniform.

Embeddings are `random`, as in the paper's model and experiments, or `orthonormal`, the limit of infinite width. Tokens,
positions, their images through W_V W_O of layer 1 and unembeddings are then orthogonal, and W_V of layer 2 is the
identity.

*Shows* whether the gradients contain the memories, by argmax (`memory_recall`), and what the model does with them.
*Does not show* how training with many joint steps gets there. Recall is possible without sharp attention, so accuracy
is given as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import xarray as xr
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, ModelSpec, generator
from mnemoscope.core import in_range, metrics, one_of
from mnemoscope.models import build
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import gradient, logits, tables
from mnemoscope.systems.in_context_bigrams.analyses.memories import copied_token, previous_token, remapped_copy
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams

MATRICES = {"output": "blocks.1.attn.W_O", "match": "blocks.1.attn.W_K", "previous": "blocks.0.attn.W_K"}
"""The learned matrices in the order of the theorem: copied token, remapped copy, previous token."""
ORDER = tuple(MATRICES)
N_EVALUATED = 2048
"""Sequences on which the model is tried."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes and step sizes (`rates`, by matrix); `n_samples` counts sequences per step.

    The loss is taken from position `first_scored` on. Recall of W_K of layer 1 is measured on the first `n_recalled`
    positions: a later trigger hardly ever asks for an output at the last ones, and never at the very last.
    """

    n_tokens: int = 16
    length: int = 32
    width: int
    n_samples: int = 8192
    first_scored: int = 12
    n_recalled: int = 24
    rates: tuple[float, float, float]

    @property
    def task(self) -> InContextBigrams:
        """Uniform bigrams with one trigger per sequence."""
        symbols = range(ord("A"), ord("A") + self.n_tokens)
        counts = tuple((first, second, 1) for first in symbols for second in symbols)
        return InContextBigrams(length=self.length, n_triggers=1, loss_on="predictable", counts=counts, loops=False)


SETTINGS = {
    "random": Setting(width=1024, rates=(1.0, 30.0, 100.0)),
    "orthonormal": Setting(width=112, rates=(1.0, 100.0, 10_000.0)),
}
"""By embeddings. Chosen on draws from 100 on."""


def three_steps(
    *,
    seed: int,
    embeddings: str = "random",
    order: Sequence[str] = ORDER,
    permuted: bool = False,
    setting: Setting | None = None,
) -> xr.Dataset:
    """One gradient step on each matrix, in this order, and what the matrices recall afterwards.

    The seed draws the model and all samples. With `permuted` targets are exchanged among sequences in training: the
    context then teaches nothing.

    `recall` is over memory, of all tokens and of the first positions; `accuracy` is the share of right predictions at
    repeated triggers, `loss` the loss there, in nats, and `loss_at_start` that with all three matrices at zero.
    """
    one_of("embeddings", embeddings, SETTINGS)
    if sorted(order) != sorted(ORDER):
        raise InputError(f"order must name each of {', '.join(ORDER)} once; got {', '.join(order)}")
    setting = SETTINGS[embeddings] if setting is None else setting
    model = _at_zero(setting, seed, embeddings)
    named, rates = dict(model.named_parameters()), dict(zip(ORDER, setting.rates, strict=True))
    at_start = _behaviour(model, setting, seed)["loss"]
    for name in order:
        parameter = named[MATRICES[name]].requires_grad_()
        found = gradient(model, parameter, _sample(setting, seed, name, permuted))
        parameter.requires_grad_(False).sub_(rates[name] * found)
    memories = {
        "output": copied_token(model, n_draws=2),
        "match": remapped_copy(model, n_draws=2),
        "previous": previous_token(model, n_pos=setting.n_recalled, n_draws=2),
    }
    shares = ("memory", [float(memories[name].recall) for name in ORDER])
    data = {"recall": shares, **_behaviour(model, setting, seed), "loss_at_start": at_start}
    attrs = {
        "unit": "share; losses: nats", "embeddings": embeddings, "order": ", ".join(order), "n": setting.n_samples,
        "n_tokens": setting.n_tokens, "length": setting.length, "width": setting.width, "rates": str(setting.rates),
    }  # fmt: skip
    return xr.Dataset(data, coords={"memory": list(ORDER)}, attrs=attrs)


def _at_zero(setting: Setting, seed: int, embeddings: str) -> HookedModel:
    """The simplified transformer before the first step; nothing requires a gradient."""
    spec = ModelSpec(
        n_layers=2, n_heads=1, d_model=setting.width, mlp=False, normalization="none", initialisation="memories"
    )
    model = build(spec, d_vocab=setting.n_tokens, n_ctx=setting.length, seed=seed)
    named = dict(model.named_parameters())
    for parameter in named.values():
        parameter.requires_grad_(False)
    for name in MATRICES.values():
        named[name].zero_()
    if embeddings == "orthonormal":
        _orthonormal(named, setting)
    return model


def _orthonormal(named: Mapping[str, Tensor], setting: Setting) -> None:
    """Embeddings, their images and unembeddings along axes of their own; embeddings as long as random ones."""
    n, last = setting.n_tokens, setting.n_tokens + setting.length
    in_range("width of orthonormal embeddings", setting.width, 2 * last + n, float("inf"))
    axes = torch.eye(setting.width)
    named["embed.W_E"].copy_(setting.width**0.5 * axes[:n])
    named["pos_embed.W_pos"].copy_(setting.width**0.5 * axes[n:last])
    named["unembed.W_U"].copy_(axes[:, 2 * last : 2 * last + n])
    shift = torch.zeros_like(axes)
    shift[:last, last : 2 * last] = torch.eye(last)
    for name, value in (("0.attn.W_V", axes), ("0.attn.W_O", shift), ("1.attn.W_V", axes)):
        named[f"blocks.{name}"][0] = value


def _sample(setting: Setting, seed: int, stream: str, permuted: bool = False) -> Batch:
    """Sequences with the loss at their late predictable positions."""
    draws = generator(seed, "three steps", stream)
    batch = setting.task.sample(setting.n_samples, split="train", generator=draws)
    scored = batch.scored.clone()
    scored[:, : setting.first_scored] = False
    targets = batch.targets.clone()
    if permuted:
        answers = targets[scored]
        targets[scored] = answers[torch.randperm(len(answers), generator=draws)]
    return replace(batch, scored=scored, targets=targets)


def _behaviour(model: HookedModel, setting: Setting, seed: int) -> dict[str, float]:
    """Accuracy and loss at the late repeated triggers of fresh sequences."""
    batch = _sample(replace(setting, n_samples=N_EVALUATED), seed, "evaluation")
    rows, positions = batch.scored.nonzero().T
    with torch.no_grad():
        outputs = logits(tables(model, setting.length), batch.inputs, rows, positions)
    targets = batch.targets[rows, positions]
    right = metrics.is_correct(outputs, targets)
    return {"accuracy": float(right.double().mean()), "loss": float(metrics.cross_entropy(outputs, targets).mean())}
