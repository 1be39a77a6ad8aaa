"""The effects of one result, parted into clusters that choose and clusters that confirm, and their test on a part."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int, Shaped

from mnemoscope.analyses.auditing.effects import (
    Readings,
    cluster_means,
    probe_readings,
    probe_scores_by_prompt,
    prompt_clusters,
    prompt_effects,
)
from mnemoscope.analyses.auditing.nulls import (
    deal_labels,
    draw_heads,
    flip_signs,
    least_p,
    mean_effects,
    mean_intervals,
    rank_among,
)
from mnemoscope.core.errors import InputError, one_of, pluralise
from mnemoscope.core.seeding import stream_seed

Result = xr.Dataset | xr.DataArray
Null = Literal["signs", "heads", "labels", "controls"]
NULLS: dict[Null, str] = {
    "signs": "effects are symmetric about 0 over clusters of prompts",
    "heads": "a head does no more than one of its layer that is drawn anew for each cluster of prompts",
    "labels": "what is read has nothing to do with labels that are dealt anew to clusters of prompts",
    "controls": "the effect is one of those of {controls}",
}
"""Every null in words."""
LEAST_CLUSTERS = 6
"""Fewest clusters of a part: flips of the signs of 5 give no p below .06."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """The numbers that are tested: effects by cell and prompt, or the readings of probes.

    `parts` say which prompts choose and which confirm; `controls` are mean effects by cell. `whole` is the difference
    between clean and corrupted prompts, where there is one.
    """

    template: xr.DataArray
    values: Float[np.ndarray, "cell prompt"] | Readings
    cluster: Int[np.ndarray, " prompt"]
    parts: tuple[Bool[np.ndarray, " prompt"], Bool[np.ndarray, " prompt"]]
    null: Null
    controls: Float[np.ndarray, "control cell"] | None
    whole: xr.DataArray | None
    attrs: Mapping[str, Any]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions without prompts."""
        return tuple(size for dim, size in self.template.sizes.items() if dim != "prompt")

    @property
    def n_cells(self) -> int:
        """The number of cells that are tested."""
        cells = np.isfinite(self.values).any(1).sum() if isinstance(self.values, np.ndarray) else np.prod(self.shape)
        return int(cells)

    def n_clusters(self, part: Bool[np.ndarray, " prompt"]) -> int:
        """The number of clusters of a part."""
        return len(np.unique(self.cluster[part]))

    def least_p(self, n_draws: int) -> float:
        """The smallest p that the null can give on the part that chooses."""
        if self.null == "controls" and self.controls is not None:
            return 1 / (len(self.controls) + 1)
        return least_p(self.n_clusters(self.parts[0]), n_draws) if self.null == "signs" else 1 / (n_draws + 1)

    def test(self, side: int, n_draws: int, seed: int) -> dict[str, Float[np.ndarray, " cell"]]:
        """Mean effect, its interval and p on the prompts that choose (0) or confirm (1); NaN without any."""
        part = self.parts[side]
        if not part.any():
            return {name: np.full(int(np.prod(self.shape)), np.nan) for name in ("effect", "low", "high", "p")}
        draws, resamples = (
            np.random.default_rng(stream_seed(seed, "audit", what, side)) for what in ("null", "interval")
        )
        cluster = np.unique(self.cluster[part], return_inverse=True)[1]
        if isinstance(self.values, Readings):
            some = self.values.select(part)
            scores, p = deal_labels(some, cluster, n_draws, draws)
            effects = cluster_means(scores, cluster)
        else:
            effects = cluster_means(self.values[:, part], cluster)
            _check_number(effects)
            p = self._p(effects, n_draws, draws)
        low, high = mean_intervals(effects, resamples)
        mean = mean_effects(effects)
        return {"effect": mean, "low": low, "high": high, "p": np.where(np.isfinite(mean), p, np.nan)}

    def _p(
        self, effects: Float[np.ndarray, "cell cluster"], n_draws: int, draws: np.random.Generator
    ) -> Float[np.ndarray, " cell"]:
        if self.null == "controls" and self.controls is not None:
            return rank_among(effects, self.controls)
        if self.null == "signs":
            return flip_signs(effects, n_draws, draws)
        dims = [dim for dim in self.template.dims if dim != "prompt"]
        by_head = np.moveaxis(effects.reshape(*self.shape, -1), dims.index("head"), -2)
        p = draw_heads(by_head.reshape(-1, *by_head.shape[-2:]), n_draws, draws)
        return np.moveaxis(p.reshape(by_head.shape[:-1]), -1, dims.index("head")).ravel()

    def labelled(self, variables: Mapping[str, Shaped[np.ndarray, " cell"]]) -> xr.Dataset:
        """Numbers by cell as a dataset, with what was tested in its attributes."""
        bare = self.template.isel(prompt=0, drop=True)
        found = xr.Dataset({name: (bare.dims, values.reshape(self.shape)) for name, values in variables.items()})
        found = found.assign_coords(bare.coords)
        if self.whole is not None:
            wholes = [self.whole.isel(prompt=np.flatnonzero(part)).mean("prompt") for part in self.parts]
            found = found.assign(whole=wholes[0], held_out_whole=wholes[1])
        sizes = {
            f"n_{at}{what}": number
            for at, part in zip(("", "held_out_"), self.parts, strict=True)
            for what, number in (("prompts", int(part.sum())), ("clusters", self.n_clusters(part)))
        }
        return found.assign_attrs({**self.attrs, **sizes, "null": self.sentence})

    @cached_property
    def sentence(self) -> str:
        """The null in words."""
        n_controls = 0 if self.controls is None else len(self.controls)
        return NULLS[self.null].format(controls=pluralise(n_controls, "control"))


def prepare(
    result: Result,
    *,
    null: Null | None,
    against: Result | Sequence[Result] | None,
    clusters: str | Iterable[Any] | None,
    measure: str | None,
    held_out: float,
    seed: int,
) -> Trial:
    """The trial of a result; arguments and errors as for `audit`."""
    readings = probe_scores_by_prompt(result)
    several = against is not None and not isinstance(against, Result)
    chosen = _checked_null(null, is_probe=readings is not None, against=against is not None, several=several)
    effects = prompt_effects(result, measure) if readings is None else readings
    if chosen == "heads" and not {"layer", "head"} <= set(effects.dims):
        dims = ", ".join(str(dim) for dim in effects.dims if dim != "prompt") or "no dimension"
        raise InputError(f"the null heads needs effects over layer and head; these are over {dims}: take null='signs'")
    controls, values = None, effects.values.reshape(-1, effects.sizes["prompt"])
    if isinstance(against, Result):
        values = values - _alike(effects, against, measure, with_prompts=True)
    elif against is not None:
        controls = np.stack([np.nanmean(_alike(effects, each, measure), 1) for each in against])
    cluster = prompt_clusters(result, clusters)
    if chosen == "labels" and isinstance(result, xr.Dataset):
        tested, known = probe_readings(result, cluster), np.isfinite(values).all(axis=0)
    else:
        tested, known = values, np.isfinite(values).any(axis=0)
    return Trial(
        template=effects,
        values=tested,
        cluster=cluster,
        parts=_parts(cluster, np.asarray(known), held_out, seed),
        null=chosen,
        controls=controls,
        whole=result.clean - result.corrupted if isinstance(result, xr.Dataset) and "corrupted" in result else None,
        attrs={key: value for key, value in result.attrs.items() if key in _KEPT} | {"measure": effects.name},
    )


_KEPT = ("intervention", "pairs", "weights", "latent", "unit", "within", "gradient")
"""Attributes of a result that an audit keeps."""


def _checked_null(null: Null | None, *, is_probe: bool, against: bool, several: bool) -> Null:
    """The null, or the one that suits the result; InputError where it does not suit it."""
    usual = "controls" if several else "labels" if is_probe and not against else "signs"
    chosen = usual if null is None else null
    one_of("null", chosen, get_args(Null))
    if chosen == usual or (chosen == "heads" and not is_probe and not several):
        return chosen
    suits = "heads or signs" if usual == "signs" and not is_probe else usual
    what = "a comparison with several results" if several else "what probes read" if is_probe else "these effects"
    raise InputError(f"null must be {suits} for {what}; got {chosen!r}: leave it out, or change against")


def _alike(
    effects: xr.DataArray, other: Result, measure: str | None, *, with_prompts: bool = False
) -> Float[np.ndarray, "cell prompt"]:
    """The effects of a result over the same cells, and prompts where they are paired."""
    readings = probe_scores_by_prompt(other)
    found = prompt_effects(other, measure) if readings is None else readings
    for dim in map(str, effects.dims):
        same = dim in found.dims and (found.get_index(dim).equals(effects.get_index(dim)))
        if not same and (dim != "prompt" or with_prompts):
            raise InputError(f"against must be over the same {dim} as the result; measure both with the same arguments")
    return found.transpose(*effects.dims).values.reshape(-1, found.sizes["prompt"])


def _parts(
    cluster: Int[np.ndarray, " prompt"], known: Bool[np.ndarray, " prompt"], held_out: float, seed: int
) -> tuple[Bool[np.ndarray, " prompt"], Bool[np.ndarray, " prompt"]]:
    """The prompts that choose, and those that confirm; clusters stay whole."""
    order = np.random.default_rng(stream_seed(seed, "audit", "parts")).permutation(np.unique(cluster[known]))
    n_held = round(len(order) * held_out)
    for n, what in ((len(order) - n_held, "choose"), *([(n_held, "confirm")] if n_held else [])):
        if n < LEAST_CLUSTERS:
            flips = 2.0 ** (1 - n) if n else 1.0
            raise InputError(
                f"an audit needs at least {LEAST_CLUSTERS} clusters of prompts that {what}, since flips of the signs "
                f"of {n} give no p below {flips:.2g}; got {n} of {len(order)}: take more prompts, or another held_out"
            )
    confirms = np.isin(cluster, order[:n_held])
    return known & ~confirms, known & confirms


def _check_number(effects: Float[np.ndarray, "cell cluster"]) -> None:
    """Refuse cells that too few clusters say something about."""
    n = np.isfinite(effects).sum(1)
    if (few := (n > 0) & (n < LEAST_CLUSTERS)).any():
        raise InputError(
            f"every cell needs the effects of at least {LEAST_CLUSTERS} clusters of prompts in each part; some have "
            f"{int(n[few].min())}: take more prompts"
        )
