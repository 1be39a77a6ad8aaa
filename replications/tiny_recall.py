"""T2, T5, T9, T10, T14, T16, T20 and T22: permutations that are shown pair by pair, x1 y1 … x5 y5.

All sequences are enumerated: 24 unseen mappings × 120 orders of x, with a new last x (fresh), or with the last x
replaced by one of the four before (repeat). All models have one layer, so that the last answer depends on the output of
a head at the last position alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from archives import Run, stream
from judging import Criterion, Replication
from lens import Hook, answers, build, fix_mean, record

V = 5
EVERY = torch.tensor(list(permutations(range(1, V + 1))))
EPOCH = 391
"""Steps: 100,000 sequences in batches of 256."""
Z, PATTERN, MLP = "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern", "blocks.0.hook_mlp_out"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """Inputs of shape (batch, 9), and the y of every slot, of shape (batch, 5)."""

    inputs: Tensor
    y: Tensor

    @property
    def answer(self) -> Tensor:
        """The last y."""
        return self.y[:, -1]

    @property
    def unused(self) -> Tensor:
        """The value that is no earlier y."""
        return V * (V + 1) // 2 - self.y[:, :-1].sum(1)


def sequences(mappings: Tensor, *, repeats: bool) -> Sequences:
    """All fresh sequences over these mappings, or all repeats."""
    orders = EVERY
    if repeats:
        orders = torch.cat([torch.cat((EVERY[:, :-1], EVERY[:, [slot]]), 1) for slot in range(V - 1)])
    x = orders.repeat(len(mappings), 1)
    y = mappings.repeat_interleave(len(orders), 0).gather(1, x - 1)
    return Sequences(inputs=torch.stack((x, y), -1).flatten(1)[:, :-1], y=y)


def unseen(run: Run) -> Tensor:
    """The 24 mappings that the run was not trained on."""
    order = torch.randperm(len(EVERY), generator=stream(run.task["split_seed"], "split"))
    return EVERY[order[round(run.task["train_fraction"] * len(EVERY)) :]]


def model_of(run: Run) -> HookedTransformer:
    """The trained model."""
    return build(run, d_vocab=V + 1, n_ctx=2 * V - 1)


def log_probs(model: HookedTransformer, of: Sequences, hooks: list[Hook] | None = None) -> Tensor:
    """Log-probabilities in the five slots, of shape (batch, slot, token)."""
    return answers(model, of.inputs, hooks)[:, ::2].log_softmax(-1)


def accuracy(model: HookedTransformer, of: Sequences, hooks: list[Hook] | None = None) -> float:
    """The share of right answers in the last slot."""
    return float((log_probs(model, of, hooks)[:, -1].argmax(-1) == of.answer).double().mean())


def both_skills(run: Run) -> tuple[HookedTransformer, dict[str, Sequences], dict[str, float]]:
    """The model, fresh sequences and repeats over unseen mappings, and the accuracy on either."""
    model, mappings = model_of(run), unseen(run)
    of = {"elimination": sequences(mappings, repeats=False), "recall": sequences(mappings, repeats=True)}
    return model, of, {skill: accuracy(model, each) for skill, each in of.items()}


def unused_value(runs: Mapping[str, Run]) -> dict[str, float]:
    """T2: the mean probability of the unused value on repeats, of a model that was trained without them."""
    model, of, right = both_skills(runs["v1"])
    last = log_probs(model, of["recall"])[:, -1].exp().double()
    return {"gate": right["elimination"], "effect": float(last.gather(1, of["recall"].unused[:, None]).mean())}


def small_model(runs: Mapping[str, Run]) -> dict[str, float]:
    """T5: the skills of the small model, and the distance of its loss on the mixture from that of v3."""
    effects, loss = {}, {}
    for name, run in runs.items():
        model, of, right = both_skills(run)
        effects |= right if name == "d16h1" else {}
        each = {
            skill: -float(log_probs(model, part).gather(-1, part.y[..., None]).double().mean())
            for skill, part in of.items()
        }
        loss[name] = 0.7 * each["elimination"] + 0.3 * each["recall"]
    return {**effects, "loss_distance": abs(loss["d16h1"] - loss["v3"])}


def recall_without_repeats(runs: Mapping[str, Run]) -> dict[str, float]:
    """T9: the larger recall of two models that were trained without repeats."""
    return {"effect": max(both_skills(run)[2]["recall"] for run in runs.values())}


def onset(runs: Mapping[str, Run]) -> dict[str, float]:
    """T10: the epoch from which the logged recall stays at one half, and how long it takes from .4 to .9.

    The gate is read from the weights.
    """
    lines = [(line["step"] / EPOCH, line["test_recall"]) for line in runs["v3"].log]
    below = [i for i, (_, recall) in enumerate(lines) if recall < 0.5]
    low = max((i for i, (_, recall) in enumerate(lines) if recall <= 0.4), default=0)
    begins = lines[below[-1] + 1][0] if below and below[-1] + 1 < len(lines) else float("nan")
    high = next((epoch for epoch, recall in lines[low:] if recall >= 0.9), float("nan"))
    effects = {"onset_distance": abs(begins - 9.5), "width": high - lines[low][0]}
    return {"gate": both_skills(runs["v3"])[2]["recall"], **effects}


def dissociation(runs: Mapping[str, Run]) -> dict[str, float]:
    """T14: by how much the weakest of four conditions is met, with the two heads in the better order.

    Removing head a costs elimination and spares recall, removing b the reverse. A head is removed by its mean output
    over sequences of the same kind. Costs are losses of accuracy, and a quarter is the margin.
    """
    model, of, right = both_skills(runs["v3"])
    cost = {
        (head, skill): right[skill] - accuracy(model, part, [(Z, fix_mean(record(model, part.inputs, Z), head))])
        for skill, part in of.items()
        for head in range(2)
    }
    effect = max(
        min(
            cost[a, "elimination"] - 0.25,
            0.25 - cost[a, "recall"],
            cost[b, "recall"] - 0.25,
            0.25 - cost[b, "elimination"],
        )
        for a, b in ((0, 1), (1, 0))
    )
    return {"gate": min(right.values()), "effect": effect}


def parts_of_recall(runs: Mapping[str, Run]) -> dict[str, float]:
    """T16: the recall of v3 with its MLP's output, or its attention, at the mean over repeats, and of one without."""
    model, of, right = both_skills(runs["v3"])
    repeats = of["recall"]
    without = {
        name: accuracy(model, repeats, [(point, fix_mean(record(model, repeats.inputs, point)))])
        for name, point in (("without_mlp", MLP), ("fixed_attention", PATTERN))
    }
    trained = both_skills(runs["v3-no-mlp"])[2]["recall"]
    return {"gate": min(right.values()), **without, "trained_without_mlp": trained}


def blindness(runs: Mapping[str, Run]) -> dict[str, float]:
    """T20: the loss of the model without positions in the last slot, above that of the exact blind reader.

    The reader knows which tokens stood earlier, without their order, and the last x; its answer is the posterior over
    all 72,000 sequences over all mappings, of which repeats weigh .3.
    """
    parts = [(sequences(EVERY, repeats=repeats), share) for repeats, share in ((False, 0.7), (True, 0.3))]
    weight = torch.cat([torch.full((len(part.y),), share / len(part.y)) for part, share in parts]).double()
    inputs, answer = (torch.cat([getattr(part, name) for part, _ in parts]) for name in ("inputs", "answer"))
    seen = torch.cat((inputs[:, :-1].sort(1)[0], inputs[:, -1:]), 1)
    group = seen.unique(dim=0, return_inverse=True)[1]
    joint = torch.zeros(int(group.max()) + 1, V + 1).double().index_put_((group, answer), weight, accumulate=True)
    exact = -float((weight * (joint / joint.sum(1, keepdim=True))[group, answer].log()).sum())
    last = answers(model_of(runs["v3-no-positions"]), inputs)[:, -1].double().log_softmax(-1)
    return {"effect": -float((weight * last.gather(1, answer[:, None])[:, 0]).sum()) - exact}


def override(runs: Mapping[str, Run]) -> dict[str, float]:
    """T22: the lead of the unused value on repeats, and the share that it wins once the other head sees no repeat.

    The elimination head costs fresh sequences over half of the unseen mappings the most log-probability if its output
    is the mean over sequences as the task draws them. The other head gets the mean over all fresh sequences.
    """
    model, of, right = both_skills(runs["v3"])
    fresh, repeats = of["elimination"], of["recall"]
    z = {skill: record(model, part.inputs, Z).mean(0) for skill, part in of.items()}
    mixed = (0.7 * z["elimination"] + 0.3 * z["recall"])[None]
    half = Sequences(inputs=fresh.inputs[: len(fresh.y) // 2], y=fresh.y[: len(fresh.y) // 2])
    left = [
        float(log_probs(model, half, [(Z, fix_mean(mixed, head))])[:, -1].gather(1, half.answer[:, None]).mean())
        for head in range(2)
    ]
    other = 1 if left[0] < left[1] else 0
    intact = log_probs(model, repeats)[:, -1]
    removed = log_probs(model, repeats, [(Z, fix_mean(z["elimination"][None], other))])[:, -1]
    wrong = torch.ones_like(intact, dtype=torch.bool)
    wrong[:, 0] = False
    wrong.scatter_(1, torch.stack((repeats.unused, repeats.answer), 1), False)
    lead = intact.gather(1, repeats.unused[:, None])[:, 0] - (intact * wrong).sum(1) / wrong.sum(1)
    won = removed.argmax(-1) == repeats.unused
    return {"gate": min(right.values()), "present": float(lead.mean()), "override": float(won.double().mean())}


_V3 = {"v3": "v3-published"}
REPLICATIONS = (
    Replication(
        claim="T2",
        system="tiny_recall",
        units={"v1": "v1-published"},
        criteria=(Criterion(effect="effect", direction="above", margin=0.99),),
        replicate=unused_value,
        at_least=0.99,
        last_seed=47,
    ),
    Replication(
        claim="T5",
        system="tiny_recall",
        units={"d16h1": "d16h1-published", "v3": "v3-published"},
        criteria=(
            Criterion(effect="elimination", direction="above", margin=0.99),
            Criterion(effect="recall", direction="below", margin=0.01),
            Criterion(effect="loss_distance", direction="below", margin=0.01),
        ),
        replicate=small_model,
        last_seed=47,
    ),
    Replication(
        claim="T9",
        system="tiny_recall",
        units={"v1": "v1-quick", "v3-fresh": "v3-fresh-quick"},
        criteria=(Criterion(effect="effect", direction="below", margin=0.1, quantifier="every"),),
        replicate=recall_without_repeats,
        last_seed=47,
    ),
    Replication(
        claim="T10",
        system="tiny_recall",
        units=_V3,
        criteria=(
            Criterion(effect="onset_distance", direction="below", margin=1.5),
            Criterion(effect="width", direction="below", margin=1.0),
        ),
        replicate=onset,
        at_least=0.99,
        last_seed=47,
    ),
    Replication(
        claim="T14",
        system="tiny_recall",
        units=_V3,
        criteria=(Criterion(effect="effect", direction="above", margin=0.0),),
        replicate=dissociation,
        at_least=0.99,
        last_seed=47,
    ),
    Replication(
        claim="T16",
        system="tiny_recall",
        units={"v3": "v3-quick", "v3-no-mlp": "v3-no-mlp-quick"},
        criteria=tuple(
            Criterion(effect=name, direction="below", margin=0.625)
            for name in ("without_mlp", "fixed_attention", "trained_without_mlp")
        ),
        replicate=parts_of_recall,
        at_least=0.99,
        first_seed=80,
    ),
    Replication(
        claim="T20",
        system="tiny_recall",
        units={"v3-no-positions": "v3-no-positions-quick", "v3": "v3-quick"},
        criteria=(Criterion(effect="effect", direction="within", margin=0.0575),),
        replicate=blindness,
        first_seed=64,
        last_seed=79,
    ),
    Replication(
        claim="T22",
        system="tiny_recall",
        units=_V3,
        criteria=(
            Criterion(effect="present", direction="above", margin=1.0),
            Criterion(effect="override", direction="above", margin=0.5),
        ),
        replicate=override,
        at_least=0.99,
        last_seed=47,
    ),
)
