"""Entropy of attention: how widely every head spreads its attention where a skill gives the answer.

For a query with pattern p over its keys, H = -Σ p ln p in nats: 0 where all attention goes to one key, ln of the number
of keys where it is even. The share is H over that largest value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mnemoscope as ms
from mnemoscope.records.record import MeasuredRuns, Options, draw_sequences, register_module, xr


@dataclass(frozen=True, kw_only=True)
class AttentionEntropy(Options):
    """The spread of each head's attention, from one key to all of them alike; heads by role."""

    n: int = 512
    """Sequences of each subgroup."""


LIMITS = (
    "The entropy of a head's pattern at the positions whose answer a skill gives, in nats and as a share of the "
    "largest that this many keys allow: 0 is one key, 1 is all keys alike. It is a mean over queries.",
    "It shows how sharp attention is. It does not show which keys a head looks at, nor whether what it reads there "
    "matters.",
)


def measure(run: ms.Run, options: AttentionEntropy) -> dict[str, xr.Dataset]:
    """Take the entropies of the heads of one run, by role."""
    batch = draw_sequences(run, options, "attention entropy")
    skills = {name: mask for name, mask in run.spec.task.skills(batch).items() if mask.any()}
    found = entropies(run.hooked(options.step), batch, skills or {"all": batch.scored})
    return {"entropy": ms.analyses.by_role(found, ms.analyses.last_roles(run))}


def entropies(model: ms.HookedModel, batch: ms.Batch, skills: Any) -> xr.Dataset:
    """Mean entropy (nats) and share of the largest one over (layer, head, skill), at the queries of each skill.

    Raises InputError where the model is too small for the batch, or its attention has no softmax.
    """
    import torch

    from mnemoscope.analyses.attention import visit_layers
    from mnemoscope.core.numerics import to_numpy

    sums = torch.zeros(2, model.cfg.n_layers, model.cfg.n_heads, len(skills), dtype=torch.float64)
    n_keys = torch.arange(1, batch.inputs.shape[1] + 1, dtype=torch.float64)
    if model.cfg.attention_dir != "causal":
        n_keys = n_keys[-1:].expand_as(n_keys)
    largest = n_keys.log().clamp_min(torch.finfo(torch.float64).tiny)

    def use(layer: int, rows: slice, attention: torch.Tensor) -> None:
        entropy = torch.special.entr(attention).sum(-1)
        for column, mask in enumerate(skills.values()):
            here = mask[rows].double()[:, None]
            sums[0, layer, :, column] += (entropy * here).sum((0, 2))
            sums[1, layer, :, column] += (entropy / largest * here).sum((0, 2))

    visit_layers(model, batch, use)
    mean = sums / torch.tensor([int(mask.sum()) for mask in skills.values()])
    names = ("entropy", "share")
    variables = {name: (("layer", "head", "skill"), to_numpy(each)) for name, each in zip(names, mean, strict=True)}
    axes = {"layer": range(model.cfg.n_layers), "head": range(model.cfg.n_heads), "skill": list(skills)}
    return xr.Dataset(variables, coords=axes, attrs={"unit": "nats", "n": len(batch)})


def tables(measured: MeasuredRuns) -> list[ms.report.Table]:
    """Entropy and share of every head, skill by skill."""
    found = measured.results["entropy"]
    skills = found.skill.values.tolist()
    header = ["head", *(f"{skill}, {what}" for skill in skills for what in ("nats", "share"))]
    rows = [
        [
            role,
            *(
                ms.report.mean_with_range(found[name].sel(role=role, skill=s), ".2f")
                for s in skills
                for name in ("entropy", "share")
            ),
        ]
        for role in found.role.values.tolist()
    ]
    return [ms.report.Table(name="entropy", title="entropy of attention", header=header, rows=rows)]


def figures(measured: MeasuredRuns) -> list[tuple[str, Any]]:
    """The shares as bars with a dot per seed."""
    import plotly.graph_objects as go

    found = measured.results["entropy"].share
    roles, skills = found.role.values.tolist(), found.skill.values.tolist()
    figure = go.Figure()
    for i, (skill, colour) in enumerate(ms.report.assign_colours(skills).items()):
        places = [place + 0.34 * (i - (len(skills) - 1) / 2) for place in range(len(roles))]
        cells = [found.sel(role=role, skill=skill) for role in roles]
        figure.add_traces(ms.report.bars_with_dots(cells, places, name=skill, colour=colour, width=0.3, legend=True))
    figure.update_xaxes(tickvals=list(range(len(roles))), ticktext=roles)
    figure.update_yaxes(title="entropy, share of the largest", range=[-0.03, 1.05])
    caption = "Entropy of attention as a share of the largest: 0 is one key, 1 all keys alike. Dots are seeds."
    return [(caption, figure.update_layout(**ms.report.LAYOUT, height=360))]


def finding(measured: MeasuredRuns) -> str:
    """The sharpest head of every skill."""
    found = measured.results["entropy"]
    sharpest = []
    for skill in found.skill.values.tolist():
        role = str(found.share.sel(skill=skill).mean("seed").idxmin("role").item())
        share = ms.report.mean_with_range(found.share.sel(skill=skill, role=role), ".2f")
        sharpest.append(f"{skill} the {role.removeprefix('the ')} ({share} of the largest entropy)")
    return f"Sharpest attention: for {'; for '.join(sharpest)}."


register_module(__name__, AttentionEntropy, vectors=True)
