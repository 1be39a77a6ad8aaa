r"""The place of a causal model's variables: a learned subspace of a site, or a head of its own, with controls.

*Distributed alignment search.* With B an orthonormal basis, h the activation on the base and s that on the source, what
is exchanged is

    h + B^T B (s - h)

and B is chosen by gradient descent on the cross-entropy of the network's answer with that of the causal model after
the exchange (Geiger, Wu et al. 2023, "Finding alignments between interpretable causal variables and distributed neural
representations"; a basis of k columns as in Wu et al. 2024, "pyvene"). The network's weights stay as they are. For one
variable and one site, `iia`, `mass` and `kl` (see `interchange`) on the pairs that the subspaces were fitted to and on
others, of

    learned    subspaces of k dimensions, found from several starts, since one search can fail
    arbitrary  the same searches for arbitrary answers (`interchange.arbitrary`)
    random     random subspaces of k dimensions
    whole      the whole site

A variable lies in a subspace of the site if `learned` is near 1 on the test pairs of either kind while `arbitrary` and
`random` are near 0 on the changing ones. Where `arbitrary` succeeds too, k is so large that the search could have made
the network say anything. The same call on an untrained network is the third control.

A learned subspace shows that the variable *can be set* there, by a linear map. It does not show that the network sets
it there itself: a direction that holds a little of it, and one that the rest of the network ignores until it is written
to, do together what neither does alone (Makelov et al. 2023, "Is this the subspace you are looking for?"). Where
`learned` does better than `whole` on the changing pairs, that may be so, or the rest of the site carries other
variables as well. Nor does it show that the subspace is unique, or the smallest.

*Alignment with heads.* Every variable gets a separate head, and with it the MLP of that layer or not (an MLP belongs to
one variable at most); what is exchanged is their output at the answer. The score of such an alignment is the smallest
accuracy over its variables, each on changing and on kept pairs: 1 where the network always answers as the causal model
says, near 0 where a variable lies nowhere, or a head does more than the variable should. The alignment with the highest
score on the selection is measured on the test pairs. A score near 1 shows that the heads can be read as these variables
on this distribution. A low one shows that no head by itself, nor with the MLP after it, is the variable; it may lie in
a subspace that several heads write, or at other positions. Controls: the place of another variable, random subspaces as
wide as a head of what the layer's heads write together, arbitrary answers, and the same call on an untrained network.
"""

from collections.abc import Sequence
from itertools import cycle, islice, permutations

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.interchange import (
    PAIR_SETS,
    Counterfactuals,
    SubspacePlace,
    answer_mask,
    arbitrary_answers,
    counterfactuals,
    exchange_patch,
    interchange_accuracy,
    interchange_scores,
    measure_variables,
    n_pairs_at_once,
    run_interchange,
    split_pairs,
)
from mnemoscope.core.batch import Named
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.dictionary_places import n_neurons
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator, stream_seed
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, Site
from mnemoscope.engine.budget import output_width
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import intervene

N_STEPS = 300
LEARNING_RATE = 0.03
BATCH_SIZE = 128


def alignment_search(
    model: ModelLike,
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
        model: A run, a subject or any hooked model through which gradients flow; its weights stay.
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
        batch_size: Pairs per step.
        seed: Starts, random subspaces and arbitrary answers come from this seed's streams.

    Returns:
        `iia`, `mass`, `kl` over (answers, start, prompts, over), with answers `causal model` and `arbitrary` and
        prompts `fit` and `test`; `random_…` over (draw, prompts, over) and `whole_…`, `before_…` (nothing exchanged)
        and `n` over (prompts, over), for the answers of the causal model; `basis` over (answers, start, direction,
        dimension).

    Raises:
        InputError: The model is too small, the site does not exist or holds no vectors, there is no such variable, the
            causal model does not fit, or there are too few answers for arbitrary ones.

    >>> slot = ms.core.CausalModel(
    ...     name="recall",
    ...     variables={"slot": lambda known: known["source_slot"]},
    ...     answer=lambda known: known["y"].gather(1, known["slot"][:, None] - 1)[:, 0],
    ... )
    >>> repeats = batch.select(batch.latents["is_repeat"])
    >>> one, two = (ms.analyses.random_pairs(repeats, 20, seed=seed) for seed in (0, 1))
    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> short = {"n_starts": 1, "n_random": 1, "n_steps": 2}
    >>> ms.analyses.alignment_search(model, slot, "slot", site=site, k=4, fit=one, test=two, **short).iia.dims
    ('answers', 'start', 'prompts', 'over')
    """
    model = resolve_model(model)
    in_range("n_starts", n_starts, 1, float("inf"))
    for batch in (fit.clean, fit.corrupted, test.clean, test.corrupted):
        check_fits(model, batch)
    modelled = [counterfactuals(causal, pairs, variable, output_width(model)) for pairs in (fit, test)]
    by_answers = {"causal model": modelled, "arbitrary": arbitrary_answers(modelled, seed=seed)}
    parts, recordings = [split_pairs(pairs, n_pairs_at_once(model, pairs)) for pairs in (fit, test)], Recordings(model)

    def measured(
        wanted: Sequence[Counterfactuals], place: Sequence[Site | SubspacePlace]
    ) -> Float[Tensor, "measure 2 over"]:
        logits = [run_interchange(model, causal, part, place, recordings) for part in parts]
        return torch.stack([interchange_scores(*each) for each in zip(logits, wanted, strict=True)], 1)

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
            learned.append(measured(wanted, (subspace_place(site, basis, "learned"),)))
    shape = (len(by_answers), n_starts)
    at_random = random_subspaces(model, site, k, n=n_random, seed=seed).values()
    counts = [[int(one.pair_sets[name].sum()) for name in PAIR_SETS] for one in modelled]
    over = ("prompts", "over")
    return xr.Dataset(
        {
            **measure_variables(torch.stack(learned).unflatten(0, shape), ("answers", "start"), over),
            **measure_variables(
                torch.stack([measured(modelled, place) for place in at_random]), ("draw",), over, "random_"
            ),
            **measure_variables(measured(modelled, (site,)), (), over, "whole_"),
            **measure_variables(measured(modelled, ()), (), over, "before_"),
            "n": (over, counts),
            "basis": (("answers", "start", "direction", "dimension"), to_numpy(torch.stack(bases).unflatten(0, shape))),
        },
        coords={"answers": list(by_answers), "prompts": ["fit", "test"], "over": list(PAIR_SETS)},
        attrs={
            "causal": causal.name,
            "variable": variable,
            "site": str(site),
            "k": k,
            "pairs": f"fit: {fit.name}, test: {test.name}",
            "search": f"Adam, {n_steps} steps of {batch_size} pairs, learning rate {learning_rate:g}",
            "agreement": causal.agreement(test.clean, output_width(model)),
            "kl_unit": "nats",
        },
    )


def site_width(model: HookedModel, site: Site) -> int:
    """Number of dimensions of the vectors at a site, which must exist and not be narrowed to some neurons."""
    check_exists(model, site)
    if site.kind in ATTENTION or site.neuron is not None:
        raise InputError(f"a subspace needs a site that holds whole vectors; got {site}; take z, attn_out or mlp_out")
    if site.kind in BY_NEURON:
        return n_neurons(model, site.kind, site.layer)
    return model.cfg.d_head if site.kind in BY_HEAD and site.kind != "result" else model.cfg.d_model


def random_basis(d_site: int, k: int, draws: torch.Generator) -> Float[Tensor, "k d_site"]:
    """An orthonormal basis of a subspace, all subspaces being equally likely."""
    return torch.linalg.qr(torch.randn(d_site, k, generator=draws, dtype=torch.double)).Q.T


def random_subspaces(
    model: HookedModel, site: Site, k: int, *, n: int = 20, seed: int = 0
) -> dict[str, tuple[SubspacePlace, ...]]:
    """Places to compare with: `n` random subspaces of k dimensions, from the seed's stream `random subspaces`."""
    d_site = site_width(model, site)
    in_range("k, the dimensions of a subspace", k, 1, d_site)
    in_range("n, the number of random subspaces", n, 1, float("inf"))
    draws = generator(seed, "random subspaces")
    return {f"random {i}": (subspace_place(site, random_basis(d_site, k, draws), f"random {i}"),) for i in range(n)}


def subspace_place(site: Site, basis: Float[Tensor, "k d_site"], name: str) -> SubspacePlace:
    """A basis by name, at a site."""
    return SubspacePlace(site=site, basis=Named(name=name, value=basis))


def learn_subspace(
    model: HookedModel,
    wanted: Counterfactuals,
    site: Site,
    k: int,
    *,
    seed: int = 0,
    n_steps: int = N_STEPS,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH_SIZE,
) -> Float[Tensor, "k d_site"]:
    """The subspace of a site in which exchanging does best what a causal model says: distributed alignment search.

    Adam from a draw of the seed's stream `subspace`, on batches of the pairs in turn; at a site with several positions
    the subspace is the same at all of them. Returns an orthonormal basis, a row each, in float64 on the CPU.
    """
    d_site = site_width(model, site)
    in_range("k, the dimensions of a subspace", k, 1, d_site)
    for name, given in (("n_steps", n_steps), ("batch_size", batch_size)):
        in_range(name, given, 1, float("inf"))
    rotation = nn.Module()
    rotation.weight = nn.Parameter(random_basis(d_site, k, generator(seed, "subspace")).T.contiguous())
    orthogonal(rotation, orthogonal_map="householder", use_trivialization=False)  # the other way draws at random
    optimizer = torch.optim.Adam(rotation.parameters(), lr=learning_rate)
    recordings, parts = Recordings(model), split_pairs(wanted.pairs, batch_size)
    answers = wanted.after.split(batch_size)
    for (base, source), after in islice(cycle(zip(parts, answers, strict=True)), n_steps):
        with torch.enable_grad():
            place = subspace_place(site, rotation.weight.T, "learned")
            with intervene(model, base, [exchange_patch(place, source)], recordings=recordings):
                logits = logits_at(model, base.inputs, answer_mask(wanted.causal, base))
            log_probs = logits.double().log_softmax(-1)
            loss = -torch.where(after > 0, after * log_probs, 0).sum(-1).mean()
            (gradient,) = torch.autograd.grad(loss, list(rotation.parameters()))
        if gradient.isnan().any():
            raise InputError(
                f"the search at {site} has a gradient of NaN at a loss of {float(loss.detach()):g}; check the model's "
                "weights, or take a smaller learning_rate"
            )
        next(iter(rotation.parameters())).grad = gradient
        optimizer.step()
    return rotation.weight.T.detach().cpu()


AlignmentCandidates = dict[str, tuple[Site, ...]]
"""Name to a head, and the MLP that goes with it if there is one."""


def align(
    model: ModelLike,
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

    >>> slot = ms.core.CausalModel(
    ...     name="recall",
    ...     variables={"slot": lambda known: known["source_slot"]},
    ...     answer=lambda known: known["y"].gather(1, known["slot"][:, None] - 1)[:, 0],
    ... )
    >>> repeats = batch.select(batch.latents["is_repeat"])
    >>> one, two = (ms.analyses.random_pairs(repeats, 20, seed=seed) for seed in (0, 1))
    >>> ms.analyses.align(model, slot, selection=one, test=two, n_random=1).iia.dims
    ('variable', 'over')
    """
    model = resolve_model(model)
    variables = list(causal.variables)
    candidates = _candidates(model, causal)
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    if n_heads < len(variables):
        raise InputError(
            f"{causal.name} has {len(variables)} variables, and each gets a head of its own; the model has {n_heads}; "
            "take alignment_search, or interchange with places of your own"
        )
    table = worse_accuracy(interchange_accuracy(model, causal, selection, places=candidates))
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
        score=worse_accuracy(result).min(),
        selection_score=min(float(table.sel(variable=v, place=p)) for v, p in zip(variables, chosen, strict=True)),
    ).assign_attrs(selected=f"by the score on {len(selection)} {selection.name}")


def worse_accuracy(result: xr.Dataset) -> xr.DataArray:
    """The smaller of the accuracies on changing and on kept pairs."""
    return result.iia.sel(over=["changing", "kept"]).min("over")


def _candidates(model: HookedModel, causal: CausalModel) -> AlignmentCandidates:
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


def _best(table: xr.DataArray, candidates: AlignmentCandidates) -> list[str]:
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
    draws: dict[str, tuple[Site | SubspacePlace, ...]] = {
        name: (*part, *mlp) for name, part in random_subspaces(model, written, k, n=n, seed=seed).items()
    }
    found = interchange_accuracy(model, causal, test, places=draws, variables=[variable]).iia
    return found.rename(place="draw").drop_vars("draw")
