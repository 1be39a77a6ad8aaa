"""The head that carries each variable of a causal model, chosen on some pairs and tested on others.

Every variable gets a separate head, and with it the MLP of that layer or not (an MLP belongs to one variable at
most); what is exchanged is their output at the answer. The score of such an alignment is the smallest
interchange intervention accuracy over its variables, each on changing and on kept pairs (see `counterfactuals`): 1
where the network always answers as the causal model says, near 0 where a variable lies nowhere, or a head does more
than the variable should. The alignment with the highest score on the selection is measured on the test pairs.

A score near 1 shows that the heads can be read as these variables on this distribution. A low one shows that no head
by itself, nor with the MLP after it, is the variable; it may lie in a subspace that several heads write (`search`), or
at other positions. Controls: the place of another variable, random subspaces as wide as a head of what the layer's
heads write together, arbitrary answers, and the same call on an untrained network.
"""

from itertools import permutations

import xarray as xr

from mnemoscope.analyses.interchange.exchange import Subspace, interchange_accuracy
from mnemoscope.analyses.interchange.search import random_subspaces
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site

Candidates = dict[str, tuple[Site, ...]]
"""Name to a head, and the MLP that goes with it if there is one."""


def align(
    model: HookedModel,
    causal: CausalModel,
    *,
    selection: PromptPairs,
    test: PromptPairs,
    n_random: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """The best alignment of variables with heads, measured on other pairs, with its controls.

    The model has as many heads as there are variables, or more. `selection` chooses the alignment and `test` measures
    it; in both `clean` are the bases, `corrupted` the sources. Random subspaces and arbitrary answers come from the
    seed's streams. Raises InputError where there are fewer heads than variables, and as `interchange_accuracy`.

    Returns:
        `iia`, `mass`, `kl`, `before_iia`, `before_mass`, `before_kl` (nothing exchanged), `n` (pairs), `other_iia` (at
        the place of the next variable) and `arbitrary_iia` over (variable, over); `random_iia` over (variable, draw,
        over); `score` and `selection_score`. The coordinate `place` says what was exchanged for each variable.
    """
    variables = list(causal.variables)
    candidates = _candidates(model, causal)
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    if n_heads < len(variables):
        raise InputError(
            f"{causal.name} has {len(variables)} variables, and each gets a head of its own; the model has {n_heads}; "
            "take alignment_search, or interchange with places of your own"
        )
    table = worst(interchange_accuracy(model, causal, selection, places=candidates))
    chosen = _best(table, candidates)
    places = {name: candidates[name] for name in chosen}
    tested = interchange_accuracy(model, causal, test, places=places)
    at_chosen = {"variable": xr.DataArray(variables, dims="variable"), "place": xr.DataArray(chosen, dims="variable")}
    at_next = {**at_chosen, "place": xr.DataArray([*chosen[1:], chosen[0]], dims="variable")}
    result = tested.sel(at_chosen)
    arbitrary = interchange_accuracy(model, causal, test, places=places, answers="arbitrary", seed=seed)
    return result.assign(
        other_iia=tested.iia.sel(at_next).drop_vars("place"),
        arbitrary_iia=arbitrary.iia.sel(at_chosen),
        random_iia=xr.concat(
            [
                _random(model, causal, test, variable, places[name], n_random, seed)
                for variable, name in zip(variables, chosen, strict=True)
            ],
            "variable",
        ),
        score=worst(result).min(),
        selection_score=min(float(table.sel(variable=v, place=p)) for v, p in zip(variables, chosen, strict=True)),
    ).assign_attrs(selected=f"by the score on {len(selection)} {selection.name}")


def worst(result: xr.Dataset) -> xr.DataArray:
    """The smaller of the accuracies on changing and on kept pairs."""
    return result.iia.sel(over=["changing", "kept"]).min("over")


def _candidates(model: HookedModel, causal: CausalModel) -> Candidates:
    """Every head at the answer, alone and with the MLP of its layer."""
    found = {}
    for layer in range(model.cfg.n_layers):
        mlp = Site(kind="mlp_out", layer=layer, pos=causal.pos)
        for number in range(model.cfg.n_heads):
            head = Site(kind="z", layer=layer, head=number, pos=causal.pos)
            found[f"L{layer}H{number}"] = (head,)
            if not model.cfg.attn_only:
                found[f"L{layer}H{number} + L{layer} MLP"] = (head, mlp)
    return found


def _best(table: xr.DataArray, candidates: Candidates) -> list[str]:
    """A place for every variable: the highest score, of equals the highest mean."""
    columns = [dict(zip(candidates, row.tolist(), strict=True)) for row in table.sel(place=list(candidates)).values]

    def key(places: tuple[str, ...]) -> tuple[float, float]:
        found = [column[place] for column, place in zip(columns, places, strict=True)]
        return min(found), sum(found)

    def apart(places: tuple[str, ...]) -> bool:
        sites = [site for place in places for site in candidates[place]]
        return len(set(sites)) == len(sites)

    return list(max(filter(apart, permutations(candidates, len(columns))), key=key))


def _random(
    model: HookedModel,
    causal: CausalModel,
    test: PromptPairs,
    variable: str,
    place: tuple[Site, ...],
    n: int,
    seed: int,
) -> xr.DataArray:
    """The accuracy with a random subspace of what the layer's heads write in the place of one head."""
    head, *mlp = place
    written = Site(kind="attn_out", layer=head.layer, pos=head.pos)
    k = min(model.cfg.d_head, model.cfg.d_model)
    draws: dict[str, tuple[Site | Subspace, ...]] = {
        name: (*part, *mlp) for name, part in random_subspaces(model, written, k, n=n, seed=seed).items()
    }
    found = interchange_accuracy(model, causal, test, places=draws, variables=[variable]).iia
    return found.rename(place="draw").drop_vars("draw")
