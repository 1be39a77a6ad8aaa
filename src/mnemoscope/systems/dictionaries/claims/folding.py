"""D3: a cross-layer transcoder folds hops together that its model has in layers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import CLAIMS, Claim, Criterion, DictionaryRecipe, Gate
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.models import FIRST_CONTROL_SEED, HookedTransformer
from mnemoscope.systems.dictionaries.claim_parts import TEXTS, WIDTH
from mnemoscope.systems.dictionaries.cross_layer import CrossLayerTranscoder, train_cross_layer
from mnemoscope.systems.dictionaries.hops import (
    N_HOPS,
    N_VALUES,
    Passed,
    Stream,
    answers,
    chain,
    passed,
    starting_at,
    varied,
)

Maker = Callable[[HookedTransformer], CrossLayerTranscoder]
HALF = 0.5
EXPLAINED = 0.95
FIRST_DRAW = 16
"""Draws from 1000 on were looked at while the recipe was chosen."""
PRICE = DictionaryRecipe(width=WIDTH, activation="relu", l1=0.03, n_steps=1000)
K = 2
NO_PRICE = replace(PRICE, activation="topk", k=K)
N_ROWS = 512


def measure(draw: int, *, l1: float = PRICE.l1, width: float = WIDTH) -> dict[str, float]:
    """Effects of a transcoder with a price on activations, of one without, and of one on varied activations."""
    model, price = chain(draw), replace(PRICE, l1=l1)
    own = passed(model, starting_at(*range(N_HOPS)))
    trained = {
        "": (own, price),
        "no price ": (own, NO_PRICE),
        "varied ": (varied(model, N_ROWS, draw), price),
    }
    n = round(width * N_VALUES)
    return _together(
        {
            name: effects(model, train_cross_layer(rows.reads, rows.writes, n_features=n, recipe=recipe, seed=draw))
            for name, (rows, recipe) in trained.items()
        }
    )


@torch.no_grad()
def effects(model: HookedTransformer, transcoder: CrossLayerTranscoder) -> dict[str, float]:
    """Shares of later hops that are folded, of answers that follow a change, and of the variance that is explained."""
    own = passed(model, starting_at(*range(N_HOPS)))
    contributions = transcoder.contributions(own.reads)
    errors = (contributions.sum(0) + transcoder.b_dec).transpose(0, 1) - own.writes
    left = errors.square().sum((1, 2)) / (own.writes - own.writes.mean(1, keepdim=True)).square().sum((1, 2))
    return {
        "folded": _folded(own, contributions),
        "followed": _followed(model, transcoder),
        "explained": float(1 - left.max()),
    }


def _folded(own: Passed, contributions: Float[Tensor, "layer row written d_model"]) -> float:
    """The share of later hops that features of earlier layers write, along the direction of what the MLP writes."""
    shares = []
    for layer in range(1, N_HOPS):
        rows = starting_at(*range(layer))
        along = (contributions[: layer + 1, rows, layer] * own.writes[layer, rows]).sum(-1)
        shares.append(along[:-1].sum(0) / along.sum(0))
    return float(torch.cat(shares).mean())


def _followed(model: HookedTransformer, transcoder: CrossLayerTranscoder) -> float:
    """The share of answers that are the model's if a hop's result is exchanged for that of another value."""
    tokens, right = starting_at(0), []
    clean = passed(model, tokens)
    for layer in range(N_HOPS - 1):
        for shift in range(1, N_VALUES):
            change = partial(exchange, layer, clean.writes[layer].roll(shift, 0))
            expected = answers(model, passed(model, tokens, change).last)
            right.append(answers(model, transcoder.run(clean.reads[0], change)) == expected)
    return float(torch.stack(right).double().mean())


def exchange(changed: int, others: Stream, layer: int, written: Stream) -> Stream:
    """A change of what one layer writes, for what is written on other rows."""
    return others if layer == changed else written


# ---- what is planted


@torch.no_grad()
def apart(model: HookedTransformer) -> CrossLayerTranscoder:
    """The neurons as features: each writes into its own layer alone."""
    w_out = torch.stack([block.mlp.W_out for block in model.blocks])
    return _by_hand(model, w_out[:, :, None] * torch.eye(N_HOPS)[:, None, :, None])


@torch.no_grad()
def folded(model: HookedTransformer) -> CrossLayerTranscoder:
    """A feature for each token, at the layer at which it starts, which writes what all layers write from there on."""
    w_dec = [passed(model, starting_at(hop)).writes.transpose(0, 1) for hop in range(N_HOPS)]
    found = _by_hand(model, torch.stack(w_dec))
    w_enc = found.w_enc.clone()
    w_enc[1:] -= found.w_enc[:-1].sum(1, keepdim=True)  # a value that comes from a hop before is left out
    return replace(found, w_enc=w_enc)


def _by_hand(model: HookedTransformer, w_dec: Float[Tensor, "layer feature written d_model"]) -> CrossLayerTranscoder:
    return CrossLayerTranscoder(
        w_enc=torch.stack([block.mlp.W_in.T for block in model.blocks]),
        b_enc=torch.zeros(N_HOPS, N_VALUES),
        w_dec=w_dec,
        b_dec=torch.zeros(N_HOPS, model.cfg.d_model),
    )


_MAKERS = {"": apart, "no price ": apart, "varied ": apart}


def _planted(name: str, *names: str) -> Case:
    """A control: hops are folded in the transcoders of these names, and apart in the others."""
    return case(name, partial(_measured, {**_MAKERS, **dict.fromkeys(names, folded)}), n=2)


def _measured(makers: dict[str, Maker], number: int) -> dict[str, Measured]:
    model = chain(FIRST_CONTROL_SEED + number)
    found = {name: effects(model, make(model)) for name, make in makers.items()}
    return {"draw": _together(found)}


def _together(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """The effects of all transcoders, and the value of the gate."""
    return {
        **{f"{name}{effect}": value for name, each in found.items() for effect, value in each.items()},
        GATE: min(each["explained"] for each in found.values()),
    }


_APART = _planted("apart")
_WITH_A_PRICE = _planted("folded where features have a price", "")
_EVERYWHERE = _planted("folded everywhere", *_MAKERS)
_UNVARIED = _planted("folded where nothing varies", "", "no price ")
_PRICED = _planted("folded with a price, varied or not", "", "varied ")
_MARGIN = dict.fromkeys(("folded", "followed"), HALF)
_AT = table(
    "at the margins",
    {"draw": {**{f"{name}{effect}": at for name in _MAKERS for effect, at in _MARGIN.items()}, GATE: 1.0}},
)
_SHARE, _ANSWERS = "share of what is written", "share of the answers"
_FOLDED = most("folded", "above", HALF, _SHARE)
_CLAIM = Claim(
    id="D3",
    statement=(
        "Cross-layer transcoders fold hops together: features of earlier layers write most of a later hop, "
        "and answers do not follow if the hop before is changed."
    ),
    source="ours, issue 46",
    system="dictionaries",
    replicate="draw",
    first_seed=FIRST_DRAW,
    develops=False,
    prompts="enumerated",
    gate=Gate(statement=f"every transcoder explains {EXPLAINED:.0%} of what each layer writes", at_least=EXPLAINED),
    measure=measure,
    explanation=TEXTS.explain("D3", k=K, n_rows=N_ROWS, n_steps=PRICE.n_steps, l1=PRICE.l1),
    parts=(_FOLDED, most("followed", "below", HALF, _ANSWERS)),
    factors={"l1": (0.003, 0.3), "width": (2, 8)},
    controls=controls(positive=(_WITH_A_PRICE, _EVERYWHERE), negative=(_APART, _AT)),
)


def _stay_apart(name: str) -> tuple[Criterion, ...]:
    """With a price hops are folded, and in the transcoder of this name they are not."""
    return (
        _FOLDED,
        most(f"{name}folded", "below", HALF, _SHARE),
        most(f"{name}followed", "above", HALF, _ANSWERS),
    )


CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "price",
        "The price decides: where features have none, hops stay apart.",
        parts=_stay_apart("no price "),
        controls=controls(positive=(_WITH_A_PRICE, _PRICED), negative=(_APART, _EVERYWHERE, _UNVARIED, _AT)),
    ),
    _CLAIM.rival(
        "varied",
        "Data decide: where half of the results are exchanged in training, hops stay apart.",
        parts=_stay_apart("varied "),
        controls=controls(positive=(_WITH_A_PRICE, _UNVARIED), negative=(_APART, _EVERYWHERE, _PRICED, _AT)),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
