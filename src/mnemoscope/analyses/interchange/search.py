"""Distributed alignment search with its controls: does a subspace of a site carry a variable, and only just that?

For one variable and one site, `iia`, `mass` and `kl` (see `exchange`) on the pairs that the subspaces were fitted to
and on others, of

    learned    subspaces of k dimensions, found from several starts, since one search can fail
    arbitrary  the same searches for arbitrary answers (`counterfactuals.arbitrary`)
    random     random subspaces of k dimensions
    whole      the whole site

A variable lies in a subspace of the site if `learned` is near 1 on the test pairs of either kind while `arbitrary` and
`random` are near 0 on the changing ones. Where `arbitrary` succeeds too, k is so large that the search could have made
the network say anything. Where `learned` does better than `whole` on the changing pairs, the rest of the site carries
other variables as well, or the subspace works by a path that the network itself does not use (Makelov et al. 2023, "Is
this the subspace you are looking for?"). The same call on an untrained network is the third control.

It shows that the variable can be read off and set there, by a linear map. It does not show that the network computes it
there, nor that no smaller subspace would do.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.interchange.counterfactuals import OVER, Counterfactuals, arbitrary, counterfactuals
from mnemoscope.analyses.interchange.exchange import (
    MEASURES,
    Subspace,
    exchanged,
    in_parts,
    over_pairs,
    scores,
)
from mnemoscope.analyses.interchange.subspaces import (
    BATCH_SIZE,
    LEARNING_RATE,
    N_STEPS,
    learn_subspace,
    random_subspaces,
    subspace,
)
from mnemoscope.core.batch import CHUNK
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.errors import in_range
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import stream_seed
from mnemoscope.core.site import Site
from mnemoscope.interventions.recordings import Recordings

Sets = Mapping[str, Counterfactuals]
"""`fit` and `test`."""


def alignment_search(
    model: HookedModel,
    causal: CausalModel,
    variable: str,
    *,
    site: Site,
    k: int,
    fit: PromptPairs,
    test: PromptPairs,
    n_starts: int = 3,
    n_random: int = 20,
    n_steps: int = N_STEPS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
) -> xr.Dataset:
    """Learn subspaces for a variable and compare them with random ones and with a search for arbitrary answers.

    Args:
        model: Any hooked model through which gradients flow; its weights stay.
        causal: The causal model.
        variable: Which of its variables.
        site: Where it is looked for.
        k: Dimensions of the subspace, from 1 to the site's width.
        fit: Pairs to learn from: `clean` are the bases, `corrupted` the sources.
        test: Pairs of other sequences.
        n_starts: How many searches, for either kind of answers.
        n_random: How many random subspaces.
        n_steps: Steps of Adam.
        learning_rate: Of Adam.
        batch_size: Pairs a step.
        seed: Starts, random subspaces and arbitrary answers come from this seed's streams.

    Returns:
        `iia`, `mass`, `kl` over (answers, start, prompts, over), with answers `causal model` and `arbitrary` and
        prompts `fit` and `test`; `random_…` over (draw, prompts, over) and `whole_…`, `before_…` (nothing exchanged)
        and `n` over (prompts, over), for the answers of the causal model; `basis` over (answers, start, direction,
        dimension).

    Raises:
        InputError: The model is too small, the site does not exist or holds no vectors, there is no such variable, the
            causal model does not fit, or there are too few answers for arbitrary ones.
    """
    in_range("n_starts", n_starts, 1, float("inf"))
    for batch in (fit.clean, fit.corrupted, test.clean, test.corrupted):
        check_fits(model, batch)
    said = [counterfactuals(causal, pairs, variable, model.cfg.d_vocab) for pairs in (fit, test)]
    by_answers = {"causal model": said, "arbitrary": arbitrary(said, seed=seed)}
    recordings = Recordings(model)

    def measured(wanted: Sequence[Counterfactuals], place: Sequence[Site | Subspace]) -> Tensor:
        return torch.stack([_measured(model, one, place, recordings) for one in wanted], 1)

    bases, learned = [], []
    for wanted in by_answers.values():
        for start in range(n_starts):
            basis = learn_subspace(
                model,
                wanted[0],
                site,
                k,
                seed=stream_seed(seed, "start", start),
                n_steps=n_steps,
                learning_rate=learning_rate,
                batch_size=batch_size,
            )
            bases.append(basis)
            learned.append(measured(wanted, (subspace(site, basis, "learned"),)))
    shape = (len(by_answers), n_starts)
    at_random = random_subspaces(model, site, k, n=n_random, seed=seed).values()
    counts = [[int(one.over[name].sum()) for name in OVER] for one in said]
    return xr.Dataset(
        {
            **_named(torch.stack(learned).unflatten(0, shape), ("answers", "start")),
            **_named(torch.stack([measured(said, place) for place in at_random]), ("draw",), "random_"),
            **_named(measured(said, (site,)), (), "whole_"),
            **_named(measured(said, ()), (), "before_"),
            "n": (("prompts", "over"), counts),
            "basis": (
                ("answers", "start", "direction", "dimension"),
                torch.stack(bases).unflatten(0, shape).numpy(),
            ),
        },
        coords={"answers": list(by_answers), "prompts": ["fit", "test"], "over": list(OVER)},
        attrs={
            "causal": causal.name,
            "variable": variable,
            "site": str(site),
            "k": k,
            "pairs": f"fit: {fit.name}, test: {test.name}",
            "search": f"Adam, {n_steps} steps of {batch_size} pairs, learning rate {learning_rate:g}",
            "agreement": causal.agreement(test.clean, model.cfg.d_vocab),
            "kl_unit": "nats",
        },
    )


def _measured(
    model: HookedModel, wanted: Counterfactuals, place: Sequence[Site | Subspace], recordings: Recordings
) -> Tensor:
    parts = in_parts(wanted.pairs, CHUNK)
    logits = [exchanged(model, wanted.causal, part, place, recordings=recordings) for part in parts]
    return over_pairs(scores(torch.cat(logits), wanted), wanted)


def _named(values: Tensor, dims: tuple[str, ...], prefix: str = "") -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Variables by measure, from `dims measure prompts over`."""
    by_measure = values.movedim(len(dims), 0).numpy()
    return {prefix + name: ((*dims, "prompts", "over"), by_measure[i]) for i, name in enumerate(MEASURES)}
