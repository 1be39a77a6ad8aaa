"""B1, B2, B8 and B12: Markov chains of characters in which five trigger tokens have an output of the sequence's own.

A sequence starts from the unigram distribution and follows the character bigrams of tiny Shakespeare, but a trigger is
always followed by its output. From its second occurrence on the output can be read from the context.
"""

import csv
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from archives import SYSTEMS, Run, fresh_draws
from judging import Criterion, Replication
from lens import answers, build, record

COUNTS = SYSTEMS / "in_context_bigrams" / "data" / "shakespeare_char_bigrams.csv"
N_SYMBOLS = 65


@lru_cache
def bigrams() -> tuple[Tensor, Tensor]:
    """The share of every symbol among successors, and the distribution after every symbol; symbols by code point."""
    with COUNTS.open(encoding="utf-8") as file:
        rows = [tuple(map(int, row)) for row in csv.reader(file) if row[0].isdecimal()]
    place = {point: i for i, point in enumerate(sorted({point for row in rows for point in row[:2]}))}
    counts = torch.zeros(len(place), len(place)).double()
    for first, second, count in rows:
        counts[place[first], place[second]] = count
    return counts.sum(0) / counts.sum(), counts / counts.sum(1, keepdim=True)


def draw(
    n: int, length: int, draws: torch.Generator, *, fixed: bool = True, from_bigrams: bool = False
) -> tuple[Tensor, Tensor]:
    """Sequences of shape (batch, length + 1), and True where a trigger stands that has occurred before."""
    unigram, chain = bigrams()
    triggers = unigram.topk(5)[1].expand(n, -1)
    if not fixed:
        triggers = unigram.expand(n, -1).multinomial(5, generator=draws)
    choices = chain if from_bigrams else torch.ones_like(chain)
    outputs = choices[triggers].flatten(0, 1).multinomial(1, generator=draws).view(n, 5)
    after = torch.full((n, len(unigram)), -1).scatter(1, triggers, outputs)  # the output of a trigger, else -1
    tokens, below = [unigram.multinomial(n, replacement=True, generator=draws)], chain.cumsum(1)[:, :-1]
    for uniform in torch.rand(length, n, 1, generator=draws, dtype=torch.double):
        prescribed = after.gather(1, tokens[-1][:, None])[:, 0]
        tokens.append(torch.where(prescribed >= 0, prescribed, (below[tokens[-1]] <= uniform).sum(1)))
    found = torch.stack(tokens, 1)
    stands = found[:, :-1, None] == triggers[:, None]
    return found, (stands & (stands.cumsum(1) > 1)).any(-1)


def model_of(run: Run) -> HookedTransformer:
    """The trained model."""
    return build(run, d_vocab=N_SYMBOLS, n_ctx=run.task["length"])


def accuracy(model: HookedTransformer, found: tuple[Tensor, Tensor]) -> float:
    """The share of right answers at triggers that have occurred before."""
    tokens, known = found
    right = answers(model, tokens[:, :-1]).argmax(-1) == tokens[:, 1:]
    return float(right[known].double().mean())


def one_layer(runs: Mapping[str, Run]) -> dict[str, float]:
    """B1: the distance of one layer's accuracy from the published 55 %."""
    run = runs["birth-1-layer"]
    return {"distance": abs(accuracy(model_of(run), draw(512, run.task["length"], fresh_draws(run))) - 0.55)}


def two_layers(runs: Mapping[str, Run]) -> dict[str, float]:
    """B2: the accuracy of two layers."""
    run = runs["birth-fixed"]
    return {"two_layers": accuracy(model_of(run), draw(512, run.task["length"], fresh_draws(run)))}


def generalisation(runs: Mapping[str, Run]) -> dict[str, float]:
    """B8: the advantage of training on uniform outputs there, and the deficit on outputs from the bigrams."""
    run = runs["uniform"]
    draws = fresh_draws(run)
    uniform, bigram = (draw(256, run.task["length"], draws, from_bigrams=choice) for choice in (False, True))
    models = {name: model_of(each) for name, each in runs.items()}
    on_uniform = accuracy(models["uniform"], uniform)
    return {
        "on_uniform": on_uniform - accuracy(models["bigram"], uniform),
        "even_on_bigram": on_uniform - accuracy(models["uniform"], bigram),
    }


def any_repeated(runs: Mapping[str, Run]) -> dict[str, float]:
    """B12: accuracy and attention of models of random and of fixed triggers, on 50 random tokens that stand twice."""
    effects = {}
    draws = fresh_draws(runs["random"])
    once = torch.rand(64, N_SYMBOLS, generator=draws).argsort(1)[:, :50]
    tokens, second = torch.cat((once, once), 1), torch.arange(50, 99)
    for name, run in runs.items():
        model = model_of(run)
        right = answers(model, tokens)[:, second].argmax(-1) == tokens[:, second + 1]
        pattern = record(model, tokens, "blocks.1.attn.hook_pattern")[:, :, second, second - 49]
        effects[name] = {
            "accuracy": float(right.double().mean()),
            "attention": float(pattern.mean((0, 2)).max()),
            "gate": accuracy(model, draw(64, run.task["length"], draws, fixed=name == "fixed")),
        }
    return {
        "gate": min(each["gate"] for each in effects.values()),
        "any": effects["random"]["accuracy"],
        "attends": effects["random"]["attention"],
        "not_fixed": effects["fixed"]["accuracy"],
    }


_SYSTEM = "in_context_bigrams"
REPLICATIONS = (
    Replication(
        claim="B1",
        system=_SYSTEM,
        units={"birth-1-layer": "birth-1-layer-quick"},
        criteria=(Criterion(effect="distance", direction="below", margin=0.1),),
        replicate=one_layer,
    ),
    Replication(
        claim="B2",
        system=_SYSTEM,
        units={"birth-fixed": "birth-fixed-quick"},
        criteria=(Criterion(effect="two_layers", direction="above", margin=0.98),),
        replicate=two_layers,
    ),
    Replication(
        claim="B8",
        system=_SYSTEM,
        units={"uniform": "memories-all-quick", "bigram": "memories-all-bigram-quick"},
        criteria=(
            Criterion(effect="on_uniform", direction="above", margin=0.1),
            Criterion(effect="even_on_bigram", direction="below", margin=0.1),
        ),
        replicate=generalisation,
    ),
    Replication(
        claim="B12",
        system=_SYSTEM,
        units={"random": "birth-2-layers-quick", "fixed": "birth-fixed-quick"},
        criteria=(
            Criterion(effect="any", direction="above", margin=0.5),
            Criterion(effect="attends", direction="above", margin=0.5),
            Criterion(effect="not_fixed", direction="below", margin=0.5),
        ),
        replicate=any_repeated,
        at_least=0.8,
    ),
)
