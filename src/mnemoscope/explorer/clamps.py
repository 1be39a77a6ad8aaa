"""Clamps of a run as a page computes them: places, values and the part of each change, for every checkpoint.

The page runs one sequence at a time and knows no latents. A clamp that needs more is refused in words, and the page
then shows the free model alone, for one clamp left out would make another forward pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.clamped import put_clamps, with_clamps
from mnemoscope.core.batch import Batch
from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.specification import RunSpec
from mnemoscope.explorer.packing import Packer
from mnemoscope.explorer.record import PageClamp, PageClamps
from mnemoscope.interventions.clamping import Part, make_clamping
from mnemoscope.interventions.replacements import as_tuple
from mnemoscope.models.run import Run
from mnemoscope.report.task_report import find_report

_BY_TOKENS = {"same token": "same token, earlier", "after same token": "after the same token"}
"""Mechanisms that depend on tokens, by name, as the page calls them (`js/mechanisms.js`)."""
_SLOTS = " at same place"
"""End of the name of such a mechanism where only tokens at the same place of a slot count."""


def without_clamps(run: Run) -> Run:
    """The run as it is, where `with_clamps` gave it: the page shows both."""
    return replace(run, prepare=None, view="") if run.prepare is put_clamps else run


def run_clamps(run: Run, steps: Sequence[int], packer: Packer, *, shown: bool) -> PageClamps | None:
    """The clamps of a run; raises InputError where they have to be shown and the page cannot compute them."""
    if run.spec.recipe.clamps and run.prepare is not None:
        return PageClamps(
            words=list(map(str, run.spec.recipe.clamps)), refused="A model takes dictionaries or clamps, not both."
        )
    found = pack_clamps(run.spec, steps, packer, lambda step: with_clamps(run).hooked(step))
    if shown and found is not None and found.refused:
        raise InputError(f"the explorer cannot show {run.path} with its clamps. {found.refused}")
    return found


def pack_clamps(
    spec: RunSpec, steps: Sequence[int], packer: Packer, clamped: Callable[[int], HookedModel]
) -> PageClamps | None:
    """The clamps of a run's recipe for the page; None where it has none.

    `clamped` gives the model of a step with its clamps, as `with_clamps` does. It is asked only where a clamp changes
    weights.
    """
    clamping = make_clamping(spec)
    if clamping is None:
        return None
    clamps, words = spec.recipe.clamps, [str(clamp) for clamp in spec.recipe.clamps]
    has_script = find_report(spec.task).ideal_parts is not None
    for clamp in clamps:
        part = None if clamp.is_at_weights else clamping.part(clamp)
        if (reason := _reason_against(clamp, part, has_script)) is not None:
            return PageClamps(words=words, refused=f"This page does not compute {clamp}: {reason}.")
    at_weights = any(clamp.is_at_weights and clamp.kind != "hold" for clamp in clamps)
    return PageClamps(
        words=words,
        parts=[
            PageClamp(kind="weight") if clamp.is_at_weights else _packed(clamping.part(clamp), spec, packer)
            for clamp in clamps
        ],
        shares=[[clamp.share(step) for clamp in clamps] for step in steps],
        weights=[packer.checkpoint(clamped(step)) if at_weights else {} for step in steps],
    )


def _reason_against(clamp: Clamp, part: Part | None, has_script: bool) -> str | None:
    """Why the page cannot compute a clamp, in words that follow its name; None: it can."""
    if part is None:
        return None
    if clamp.kind == "mean":
        return "its mean is over a batch, and a page runs one sequence"
    if clamp.kind == "patch":
        return "it copies one activation to the place of another"
    if clamp.kind == "ideal" and not has_script:
        return "the task has no script for its ideal parts"
    if any(site.kind == "result" for site in part.sites):
        return "it is at the result of a head, and the page clamps z"
    if any(isinstance(place, str) for site in part.sites for place in (site.pos, site.key)):
        return "its place differs between sequences"
    return None


def _packed(part: Part, spec: RunSpec, packer: Packer) -> PageClamp:
    clamp = part.clamp
    found = PageClamp(
        kind=clamp.kind,
        sites=[fields for site in part.sites for fields in _single_sites(site)],
        factor=clamp.scale,
        ideal=clamp.ideal or "",
        reads=[_fields(site) for site in part.ideal.reads] if part.ideal else (),
    )
    name = "" if part.mechanism is None else part.mechanism.name
    if (by_tokens := _BY_TOKENS.get(name.removesuffix(_SLOTS))) is not None:
        return replace(found, mechanism=by_tokens, period=spec.task.slot_size if name.endswith(_SLOTS) else 1)
    return found if part.mechanism is None else replace(found, rows=packer.pack(_fixed_pattern(part, spec)))


def _fixed_pattern(part: Part, spec: RunSpec) -> Float[Tensor, "query key"]:
    """The attention of a mechanism that does not depend on tokens, (query, key)."""
    tokens = torch.zeros(1, spec.task.n_ctx, dtype=torch.long)
    assert part.mechanism is not None
    return part.mechanism.pattern(Batch(inputs=tokens, targets=tokens, scored=tokens > 0))[0]


def _single_sites(site: Site) -> list[dict[str, int | str]]:
    """Sites of one position, key and neuron each, or of all, as the page's script takes them."""
    axes = {name: as_tuple(getattr(site, name)) or (None,) for name in ("pos", "key", "neuron")}
    return [_fields(replace(site, **dict(zip(axes, each, strict=True)))) for each in product(*axes.values())]


def _fields(site: Site) -> dict[str, int | str]:
    names = ("kind", "layer", "head", "neuron", "pos", "key")
    return {name: value for name in names if (value := getattr(site, name)) is not None}
