"""The arrays behind the commands, from the public functions: patching, edges, circuits, ablation and the rest.

Figures that jump, such as ranks, are left out: they differ between processors where two numbers nearly tie. Circuits
are drawn, not searched for, for the same reason. What a function cannot do with a model is left out of `PLAN`.
"""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.metrics import ERROR_DIFF, LOGIT_DIFF
from mnemoscope.core.patterns import common_mechanisms
from tests.golden.models import Case, case
from tests.golden.summary import of_dataset

JUMPING = ("rank", "accuracy", "holds", "beats_control", "fallback", "costs", "needed", "p", "n")

Results = Mapping[str, xr.Dataset]


def _metrics(of: Case) -> list:
    return [LOGIT_DIFF] if of.batch.targets.ndim == 2 else [ERROR_DIFF]


def patching(of: Case) -> Results:
    """Activation patching of several kinds in both directions, through the stream or by hooks."""
    n_pos = of.batch.inputs.shape[1]
    some = {"pos": sorted({0, n_pos // 2, n_pos - 2, n_pos - 1})}
    over = {
        "resid_pre": ("layer", "pos"), "attn_out": ("layer", "pos"), "z": ("layer", "head"), "q": ("layer", "head"),
        "k": ("layer",), "v": ("layer",), "pattern": ("layer", "head"), "scores": ("layer",),
    }  # fmt: skip
    if not of.model.cfg.attn_only:
        over |= {"mlp_out": ("layer", "pos"), "post": ("layer",), "pre": ("layer",)}
    methods = ("auto", "hooks") if of.batch.inputs.ndim == 2 else ("hooks",)
    return {
        f"{kind} {method}": ms.patch(
            of.model, of.pairs, kind=kind, over=axes, method=method, only=some if "pos" in axes else None
        )
        for kind, axes in over.items()
        for method in methods
    }


def estimates(of: Case) -> Results:
    """Attribution patching of nodes."""
    estimate = ms.analyses.estimate
    options = {"metrics": _metrics(of)}
    return {
        "z": estimate(of.model, of.pairs, kind="z", over=("layer", "head"), **options),
        "q": estimate(of.model, of.pairs, kind="q", over=("layer", "head"), attention="recomputed", **options),
        "resid_pre": estimate(of.model, of.pairs, kind="resid_pre", over=("layer",), **options),
    }


def edges(of: Case) -> Results:
    """Path patching of every edge, direct effects, frozen attention, one path, and two estimates of all edges."""
    every = ms.interventions.model_edges(of.model)
    last = [edge for edge in every if edge.reader == "logits"]
    options = {"metrics": _metrics(of)}
    found = {
        "total": ms.patch_edges(of.model, of.pairs, **options),
        "hooks": ms.patch_edges(of.model, of.pairs, chosen=every[-6:], method="hooks", **options),
        "direct": ms.patch_edges(of.model, of.pairs, chosen=every[:6], effect="direct", **options),
        "frozen": ms.patch_edges(of.model, of.pairs, chosen=every[:6], freeze=("attention",), **options),
        "EAP": ms.analyses.attribute_edges(of.model, of.pairs, **options),
        "EAP-IG": ms.analyses.integrate_edges(of.model, of.pairs, steps=2, **options),
    }
    paths = {f"to {edge.writer}": (edge,) for edge in last[:3]}
    return found | {"paths": ms.analyses.patch_paths(of.model, of.pairs, paths, **options)}


def circuits(of: Case) -> Results:
    """The metric of twelve circuits that a fixed generator draws, under everything that may stand for the rest."""
    found = {}
    for replacement in ("patch", "mean", "zero"):
        setting = ms.analyses.Setting(
            model=of.model, pairs=of.pairs, metric=_metrics(of)[0], replacement=replacement, refuse=False
        )
        masks = np.random.RandomState(0).rand(12, len(setting.edges)) < np.linspace(0.3, 0.95, 12)[:, None]
        values = xr.Dataset({"value": (("circuit", "prompt"), setting.values(masks))})
        found[replacement] = values.assign(whole=("prompt", setting.ends[0]), empty=("prompt", setting.ends[1]))
    return found


def removal(of: Case) -> Results:
    """Ablation of every head and MLP by zeros, means and, of tokens, resampling.

    What is drawn follows from the digest of the reference, whose vectors have other last bits on other processors.
    """
    kinds = ("zero", "mean", "resample") if of.batch.inputs.ndim == 2 else ("zero", "mean")
    return {"ablate": ms.ablate(of.model, of.batch, skills=of.skills, reference=of.reference, kinds=kinds)}


def shapley(of: Case) -> Results:
    """Shapley values and interactions under mean ablation."""
    some = {"heads": [ms.Site(kind="z", layer=0)], "last": [ms.Site(kind="attn_out", layer=of.model.cfg.n_layers - 1)]}
    targets = some if of.model.cfg.n_layers > 1 else None
    result = ms.shapley(of.model, of.batch, skills=of.skills, reference=of.reference, targets=targets)
    return {"exact": result.sel(metric=[name for name in result.metric.values if "accuracy" not in str(name)])}


def attention(of: Case) -> Results:
    """Patterns, their shares by mechanism, scores of heads, and set patterns in the place of attention."""
    mechanisms = common_mechanisms()
    found = {
        "patterns": ms.analyses.named_patterns(of.model, of.batch),
        "shares": ms.analyses.attention_by_mechanism(of.model, of.batch, mechanisms),
    }
    if of.batch.inputs.ndim == 2:
        found["scores"] = ms.analyses.head_scores(of.model, of.batch)
    skills = {"skills": of.skills} if of.skills else {}
    return found | {
        "each": ms.analyses.replace_each(of.model, of.batch, mechanisms[:2], reference=of.reference, **skills),
        "joint": ms.analyses.replace_heads(of.model, of.batch, {(0, 0): mechanisms[0]}, **skills),
    }


def attribution(of: Case) -> Results:
    """Direct logit attribution at all grains, and the logit lens."""
    grains = ["component", "head", "source", *(["neuron"] * (not of.model.cfg.attn_only))]
    found = {by: ms.logit_attribution(of.model, of.batch, by=by) for by in grains}
    return found | {"lens": ms.logit_lens(of.model, of.batch)}


def truncation(of: Case) -> Results:
    """The last MLP cut at some ranks."""
    targets = {name: (of.batch.targets, where) for name, where in of.skills.items()}
    weights = ms.analyses.last_mlp(of.model)
    return {"MLP": ms.analyses.truncate(of.model, of.batch, weights=weights, targets=targets, ranks=(0, 1, 3, 8))}


def weights(of: Case) -> Results:
    """What heads do to tokens, from the weights alone."""
    return {
        "OV": ms.analyses.ov_circuits(of.model, parts=("token",)),
        "QK": ms.analyses.qk_circuits(of.model, parts=("token",)),
    }


Measure = Callable[[Case], Results]
ALL: tuple[Measure, ...] = (
    patching, estimates, edges, circuits, removal, shapley, attention, attribution, truncation, weights,
)  # fmt: skip
CAUSAL: tuple[Measure, ...] = (patching, estimates, edges, circuits, removal, attention)
PLAN: dict[str, tuple[Measure, ...]] = {
    "v3-quick": ALL,
    "birth-2-layers-quick": ALL,
    "facts-softmax-quick": ALL,
    "retrieval-2-2-layers-quick": CAUSAL,
    "gpt2": ALL,
    "neox": ALL,
    "llama": ALL[:-1],  # its last normalisation is no part of any product of weights
}


def arrays(name: str, measure: Measure) -> dict[str, np.ndarray]:
    """All that a measure gives of a model."""
    return {
        f"{name}/{measure.__name__}/{key}/{variable}": value
        for key, result in measure(case(name)).items()
        for variable, value in of_dataset(result).items()
        if not any(variable == word or variable.endswith(f"_{word}") for word in JUMPING) and "accuracy" not in variable
    }
