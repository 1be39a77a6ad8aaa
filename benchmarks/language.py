"""Patching and head scores of language models, of their shapes, against TransformerLens's patching and a forward pass.

Weights are random: time does not depend on them. The rival runs some cells of a sweep, ours all; both count per cell.
"""

from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import pandas as pd
import torch
from transformer_lens import patching

from mnemoscope.analyses import head_scores, repeated_tokens
from mnemoscope.analyses.ablation import ablate
from mnemoscope.analyses.patching import patch
from mnemoscope.core.batch import Batch
from mnemoscope.core.metrics import LOGIT_DIFF, at_target
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Site
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.models.building import from_configuration
from mnemoscope.models.lens import HookedTransformer
from patching import most_at_once, random_pairs
from timing import Figure, duration, interleave, ratio

_GPT2: dict[str, Any] = {
    "n_layers": 12, "d_model": 768, "n_heads": 12, "d_head": 64, "d_mlp": 3072, "d_vocab": 50257, "n_ctx": 128,
    "act_fn": "gelu_new", "normalization_type": "LN", "dtype": "float32",
}  # fmt: skip
_ROTARY: dict[str, Any] = {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False}
SHAPES: dict[str, tuple[float, dict[str, Any]]] = {
    "GPT-2 small": (8.0, _GPT2),
    "Pythia 160M": (4.0, {**_GPT2, **_ROTARY, "rotary_dim": 16, "parallel_attn_mlp": True, "d_vocab": 50304}),
    "SmolLM2 135M": (
        4.0,
        {
            **_GPT2, **_ROTARY, "n_layers": 30, "d_model": 576, "n_heads": 9, "n_key_value_heads": 3, "d_mlp": 1536,
            "rotary_dim": 64, "d_vocab": 49152, "gated_mlp": True, "act_fn": "silu", "normalization_type": "RMS",
            "final_rms": True,
        },
    ),
}  # fmt: skip
"""By name the aimed ratio of patching, and the architecture."""
N_PROMPTS, N_POS, NAME = 8, 14, 10
SWEEPS = {
    "position": ("resid_pre", "pos", "layer_pos_patch_setter"),
    "head": ("z", "head", "layer_head_vector_patch_setter"),
}


def sweeps(quick: bool) -> list[Figure]:
    """Every shape; in the short version of two layers and a small vocabulary."""
    return [figure for name, (aim, shape) in SHAPES.items() for figure in _of_shape(name, aim, shape, quick)]


def _of_shape(name: str, aim: float, shape: dict[str, Any], quick: bool) -> list[Figure]:
    model = shaped(shape, quick)
    everywhere = random_pairs(N_PROMPTS, n_pos=N_POS, d_vocab=model.cfg.d_vocab)
    pairs = {f"{N_PROMPTS} prompts": everywhere, "prompts that differ in a name": in_a_name(everywhere)}
    figures = [
        _patching(f"{name}: patching by layer and {by}, {which}", model, each, by, aim, 1 if quick else 2)
        for which, each in pairs.items()
        for by in SWEEPS
    ]
    return [*figures, _scores(name, model, 1 if quick else 3), _memory(name, model)]


def shaped(shape: dict[str, Any], quick: bool) -> HookedTransformer:
    """A model of random weights; in the short version of two layers."""
    small = {"n_layers": 2, "d_vocab": 2000} if quick else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return from_configuration({**shape, **small}).eval()


def in_a_name(pairs: PromptPairs) -> PromptPairs:
    """The same that differ in one token, as in "When Mary and John went to the store, John gave a drink to"."""
    tokens = pairs.clean.inputs.clone()
    tokens[:, NAME] = pairs.corrupted.inputs[:, NAME]
    return replace(pairs, corrupted=replace(pairs.corrupted, inputs=tokens))


def _patching(
    title: str, model: HookedTransformer, pairs: PromptPairs, by: str, aim: float, repetitions: int
) -> Figure:
    kind, axis, setter = SWEEPS[by]
    found: dict[str, Any] = {}
    contenders = {
        "rival": partial(_rival, model, pairs, kind, axis, getattr(patching, setter), found),
        "ours": partial(_ours, model, pairs, kind, axis, found),
    }
    seconds = interleave(contenders, repetitions)
    value, spread = ratio(seconds["rival"], seconds["ours"])
    times = ", ".join(f"{who} {duration(median(seconds[who]))}" for who in ("ours", "rival"))
    note = f"a cell: {times}; difference {_difference(found, axis):.0e}"
    return Figure(group="language", name=title, value=value, unit="x", spread=spread, aim=aim, note=note)


def _difference(found: dict[str, Any], axis: str) -> float:
    """The largest difference between the means of both."""
    cells = found["cells"].to_dict("records")
    ours = [float(found["ours"].sel(layer=cell["layer"], **{axis: cell[axis]})) for cell in cells]
    return float((found["rival"].double() - torch.tensor(ours, dtype=torch.double)).abs().max())


def _ours(model: HookedTransformer, pairs: PromptPairs, kind: Any, axis: str, found: dict[str, Any]) -> float:
    result = patch(model, pairs, kind=kind, over=("layer", axis), metrics=[LOGIT_DIFF], directions=["denoising"])
    found["ours"] = result.value[0, 0].mean("prompt")
    return float(found["ours"].size)


@torch.no_grad()
def _rival(
    model: HookedTransformer, pairs: PromptPairs, kind: str, axis: str, setter: Any, found: dict[str, Any]
) -> float:
    """Some cells, spread over the layers."""
    answer, foil = pairs.answer[:, -1], pairs.foil[:, -1]
    _, cache = model.run_with_cache(pairs.clean.inputs, names_filter=lambda hook: hook.endswith(f"hook_{kind}"))

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return (at_target(logits[:, -1], answer) - at_target(logits[:, -1], foil)).mean()

    n = N_POS if axis == "pos" else model.cfg.n_heads
    layers = sorted({0, model.cfg.n_layers // 2, model.cfg.n_layers - 1})
    found["cells"] = pd.DataFrame(
        [(layer, at) for layer in layers for at in (0, n // 2, n - 1)], columns=["layer", axis]
    )
    with mock.patch.object(patching, "tqdm", iter):  # no progress bar
        found["rival"] = patching.generic_activation_patch(
            model, pairs.corrupted.inputs, cache, metric, setter, kind, index_df=found["cells"]
        )
    return float(len(found["cells"]))


def _scores(name: str, model: HookedTransformer, repetitions: int) -> Figure:
    """Scores of all heads in forward passes."""
    batch = repeated_tokens(model, n=8, length=32)

    @torch.no_grad()
    def forward() -> float:
        model(batch.inputs)
        return 1.0

    def ours() -> float:
        head_scores(model, batch)
        return 1.0

    seconds = interleave({"forward": forward, "ours": ours}, repetitions)
    value, spread = ratio(seconds["ours"], seconds["forward"])
    title = f"{name}: scores of all heads, in forward passes"
    return Figure(group="language", name=title, value=value, unit="x", spread=spread, aim=1.5, at_most=True)


def _memory(name: str, model: HookedTransformer) -> Figure:
    """Bytes that ablation of two heads allocates at once on 64 prompts, beside the logits of a whole forward pass."""
    n, n_pos = 64, N_POS
    inputs = torch.randint(model.cfg.d_vocab, (n, n_pos), generator=torch.Generator().manual_seed(0))
    scored = torch.zeros(n, n_pos, dtype=torch.bool)
    scored[:, -1] = True
    batch = Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored)
    heads = {f"L0H{head}": [Site(kind="z", layer=0, head=head)] for head in range(2)}
    most = most_at_once(
        lambda: ablate(model, batch, skills={"last": scored}, reference=batch, targets=heads, kinds=("mean",))
    )
    whole = most_at_once(torch.no_grad()(partial(model, inputs)))
    return Figure(
        group="language",
        name=f"{name}: most memory at once, ablation of heads, {n} prompts",
        value=most / 2**20,
        unit="MiB",
        aim=2 * MAX_BYTES / 2**20,
        at_most=True,
        note=f"a single forward pass with all its logits: {whole / 2**20:.0f} MiB",
    )
