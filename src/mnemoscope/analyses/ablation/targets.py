"""Sets of sites that an ablation can remove.

Every function returns names and the sites that are removed together under each, in the order of the model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from mnemoscope.analyses.roles import HEAD, called
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, Kind, Position, Site

MAX_IN_SUBSETS = 12

Targets = dict[str, tuple[Site, ...]]


def components(model: HookedModel) -> list[Site]:
    """Every head (at z), then every MLP (its output), of a model."""
    heads = [Site(kind="z", layer=n, head=h) for n in range(model.cfg.n_layers) for h in range(model.cfg.n_heads)]
    return heads + ([] if model.cfg.attn_only else [Site(kind="mlp_out", layer=n) for n in range(model.cfg.n_layers)])


def heads_and_mlps(model: HookedModel) -> Targets:
    """Every head and every MLP."""
    return _named(components(model))


def neurons(model: HookedModel) -> Targets:
    """Every neuron of every MLP, after its activation function."""
    if model.cfg.attn_only:
        raise InputError("the model has no MLP and so no neurons; ablate its heads")
    every = product(range(model.cfg.n_layers), range(model.cfg.d_mlp))
    return _named(Site(kind="post", layer=layer, neuron=neuron) for layer, neuron in every)


def positions(model: HookedModel, at: int | Sequence[Position]) -> Targets:
    """The output of every head and every MLP at each of some positions, one at a time.

    Positions are numbers, names or names of latents; an int stands for that many positions from the start.
    """
    places = range(at) if isinstance(at, int) else at
    return _named(replace(site, pos=pos) for site in components(model) for pos in places)


def labels(targets: Mapping[str, Sequence[Site]], batch: Batch) -> dict[str, tuple[str, list[str]]]:
    """Tokens at each target, along `component`: `pos_token`, or `query_token` and `key_token`.

    Where positions have names these are given instead, as `pos_name` and so on. An entry is empty for a target without
    a single position. A coordinate is missing where no target has one, or neither tokens nor positions have names.
    """
    if batch.symbol is None and not batch.positions:
        return {}
    kind, names = ("name", batch.positions) if batch.positions else ("token", batch.common_tokens)
    found = {"pos": [], "query": [], "key": []}
    for sites in targets.values():
        for axis, those in found.items():
            at = {_place(site, axis) for site in sites}
            pos = at.pop() if len(at) == 1 else None
            those.append(names[pos] if isinstance(pos, int) else pos if isinstance(pos, str) else "")
    return {f"{axis}_{kind}": ("component", tokens) for axis, tokens in found.items() if any(tokens)}


def _place(site: Site, axis: str) -> Position | None:
    if site.kind in ATTENTION:
        return {"query": site.pos, "key": site.key}.get(axis)
    return site.pos if axis == "pos" else None


def paths(
    model: HookedModel,
    n_pos: int,
    *,
    kind: Kind = "scores",
    queries: Sequence[int] | None = None,
    names: Sequence[str] = (),
) -> Targets:
    """Every attention path: from one key to one query through one head.

    `kind` is `scores` for the ablation `knockout` (the weight is spread over the other keys) or `pattern` for `zero`
    (the weight is lost). With `queries` only paths to these positions are taken. `names` of all positions name the
    paths; without them their numbers do.
    """
    one_of("kind", kind, ("scores", "pattern"))
    for query in queries or ():
        in_range("a query", query, 0, n_pos - 1)
    called = names or range(n_pos)
    return {
        f"L{layer}H{head} {called[key]}→{called[query]}": (Site(kind=kind, layer=layer, head=head, pos=query, key=key),)
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.n_heads)
        for query in (range(n_pos) if queries is None else queries)
        for key in range(query + 1)
    }


def subsets(targets: Mapping[str, Sequence[Site]]) -> Targets:
    """Every set of targets but the empty one, the smaller sets first; raises InputError where these are too many."""
    in_range("the number of targets whose subsets are formed", len(targets), 1, MAX_IN_SUBSETS)
    chosen = [names for size in range(1, len(targets) + 1) for names in combinations(targets, size)]
    return {" + ".join(names): tuple(site for name in names for site in targets[name]) for names in chosen}


def by_role(targets: Mapping[str, Sequence[Site]], named: Mapping[str, str]) -> Targets:
    """The same sets with heads called by their roles, in the order of the roles.

    Each set is one head or part of one; other sets keep their names and their order. `named` maps components (`L0H1`)
    to roles.
    """
    rank = {name: place for place, name in enumerate(named)}

    def place(target: str) -> int:
        head = HEAD.match(target)
        return rank[head[0]] if head else len(rank)

    return {called(target, named): tuple(targets[target]) for target in sorted(targets, key=place)}


def _named(sites: Iterable[Site]) -> Targets:
    return {str(site): (site,) for site in sites}
