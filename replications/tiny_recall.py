"""T2, T5, T9, T10, T14, T16, T20 and T22: permutations that are shown pair by pair, x1 y1 … x5 y5.

All sequences are enumerated: 24 unseen mappings × 120 orders of x, with a new last x (fresh), or with the last x
replaced by one of the four before (repeat). The forward pass is written out, for the last position alone: models have
one layer, so that the last answer depends on the attention and the MLP there. The answer in an earlier slot is the last
one of a shorter sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from archives import Run, stream
from judging import Criterion, Replication

V = 5
EVERY = torch.tensor(list(permutations(range(1, V + 1))))
EPOCH = 391
"""Steps: 100,000 sequences in batches of 256."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """What happens at the last position, by sequence: attention, output of heads and of the MLP, log-probabilities.

    Shapes are (batch, head, key), (batch, head, d_head), (batch, d_model) and (batch, token).
    """

    pattern: Tensor
    z: Tensor
    mlp_out: Tensor
    log_probs: Tensor

    @property
    def answer(self) -> Tensor:
        """The most probable value."""
        return self.log_probs.argmax(-1)

    def of(self, values: Tensor) -> Tensor:
        """The log-probability of one value for each sequence."""
        return self.log_probs.gather(1, values[:, None])[:, 0].double()


def forward(
    run: Run, inputs: Tensor, *, pattern: Tensor | None = None, z: Tensor | None = None, mlp_out: Tensor | None = None
) -> Pass:
    """Run the model at the last position; what is given takes the place of what is computed, in every sequence.

    `z` is of shape (head, d_head), with NaN for heads that stay as they are.
    """
    w, last = run.weights, inputs.shape[1] - 1

    def norm(x: Tensor, name: str) -> Tensor:
        if run.model["normalization"] == "none":
            return x
        return layer_norm(x, x.shape[-1:], w[f"{name}.w"], w[f"{name}.b"], eps=1e-5)

    def of_heads(x: Tensor, name: str) -> Tensor:
        return torch.einsum("...d,hde->...he", x, w[f"blocks.0.attn.W_{name}"]) + w[f"blocks.0.attn.b_{name}"]

    # the input of attention depends on a token and its position only: (position, token, d_model)
    start = w["embed.W_E"] + w["pos_embed.W_pos"][: last + 1, None]
    read = norm(start, "blocks.0.ln1")
    place = torch.arange(last + 1)
    queries, keys, values = of_heads(read[last], "Q")[inputs[:, last]], of_heads(read, "K"), of_heads(read, "V")
    scores = torch.einsum("bhe,bphe->bhp", queries, keys[place, inputs]) / queries.shape[-1] ** 0.5
    weight = scores.softmax(-1) if pattern is None else pattern.expand_as(scores)
    heads = torch.einsum("bhp,bphe->bhe", weight, values[place, inputs])
    if z is not None:
        heads = torch.where(z.isnan(), heads, z)
    stream_ = start[last, inputs[:, last]] + w["blocks.0.attn.b_O"]
    stream_ = stream_ + torch.einsum("bhe,hed->bd", heads, w["blocks.0.attn.W_O"])
    written = torch.zeros_like(stream_)
    if run.model["mlp"]:
        neurons = (norm(stream_, "blocks.0.ln2") @ w["blocks.0.mlp.W_in"] + w["blocks.0.mlp.b_in"]).relu()
        written = neurons @ w["blocks.0.mlp.W_out"] + w["blocks.0.mlp.b_out"]
    if mlp_out is not None:
        written = mlp_out.expand_as(stream_)
    logits = norm(stream_ + written, "ln_final") @ w["unembed.W_U"] + w["unembed.b_U"]
    return Pass(pattern=weight, z=heads, mlp_out=written, log_probs=logits.log_softmax(-1))


def only(head: int, mean: Tensor) -> Tensor:
    """A mean output of heads in which the others are left as they are."""
    return torch.where(torch.arange(len(mean))[:, None] == head, mean, torch.nan)


def share(hits: Tensor) -> float:
    """The share of True."""
    return float(hits.double().mean())


def both_skills(run: Run) -> tuple[dict[str, Sequences], dict[str, Pass], dict[str, float]]:
    """Fresh sequences and repeats over unseen mappings, what the model does on them, and its accuracy."""
    mappings = unseen(run)
    of = {"elimination": sequences(mappings, repeats=False), "recall": sequences(mappings, repeats=True)}
    passes = {skill: forward(run, each.inputs) for skill, each in of.items()}
    return of, passes, {skill: share(passes[skill].answer == each.answer) for skill, each in of.items()}


def unused_value(runs: Mapping[str, Run]) -> dict[str, float]:
    """T2: the mean probability of the unused value on repeats, of a model that was trained without them."""
    of, passes, right = both_skills(runs["v1"])
    effect = passes["recall"].of(of["recall"].unused).exp().mean()
    return {"gate": right["elimination"], "effect": float(effect)}


def small_model(runs: Mapping[str, Run]) -> dict[str, float]:
    """T5: the skills of the small model, and the distance of its loss on the mixture from that of v3.

    The loss is the cross-entropy over the five slots, .7 of it on fresh sequences and .3 on repeats.
    """
    loss = {}
    for name, run in runs.items():
        of = both_skills(run)[0]
        each = {
            skill: -sum(float(forward(run, part.inputs[:, : 2 * i + 1]).of(part.y[:, i]).mean()) for i in range(V)) / V
            for skill, part in of.items()
        }
        loss[name] = 0.7 * each["elimination"] + 0.3 * each["recall"]
    return {**both_skills(runs["d16h1"])[2], "loss_distance": abs(loss["d16h1"] - loss["v3"])}


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
    run = runs["v3"]
    of, passes, right = both_skills(run)
    cost = {}
    for skill, part in of.items():
        mean = passes[skill].z.mean(0)
        for head in range(2):
            without = forward(run, part.inputs, z=only(head, mean))
            cost[head, skill] = right[skill] - share(without.answer == part.answer)
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
    run = runs["v3"]
    of, passes, right = both_skills(run)
    repeats, intact = of["recall"], passes["recall"]
    without_mlp = forward(run, repeats.inputs, mlp_out=intact.mlp_out.mean(0))
    fixed = forward(run, repeats.inputs, pattern=intact.pattern.mean(0))
    return {
        "gate": min(right.values()),
        "without_mlp": share(without_mlp.answer == repeats.answer),
        "fixed_attention": share(fixed.answer == repeats.answer),
        "trained_without_mlp": both_skills(runs["v3-no-mlp"])[2]["recall"],
    }


@lru_cache
def blind_reader() -> tuple[Tensor, Tensor, Tensor, float]:
    """Inputs, answers and weights of all 72,000 sequences over all mappings, and the loss of the exact blind reader.

    Repeats weigh .3. The reader knows which tokens stood earlier, without their order, and the last x; it says the
    posterior of the answer.
    """
    parts = [(sequences(EVERY, repeats=repeats), part) for repeats, part in ((False, 0.7), (True, 0.3))]
    weight = torch.cat([torch.full((len(each.y),), part / len(each.y)) for each, part in parts]).double()
    inputs, answer = torch.cat([each.inputs for each, _ in parts]), torch.cat([each.answer for each, _ in parts])
    seen = torch.cat((inputs[:, :-1].sort(1)[0], inputs[:, -1:]), 1)
    group = seen.unique(dim=0, return_inverse=True)[1]
    joint = torch.zeros(int(group.max()) + 1, V + 1).double().index_put_((group, answer), weight, accumulate=True)
    posterior = joint / joint.sum(1, keepdim=True)
    return inputs, answer, weight, -float((weight * posterior[group, answer].log()).sum())


def blindness(runs: Mapping[str, Run]) -> dict[str, float]:
    """T20: the loss of the model without positions in the last slot, above that of the exact blind reader."""
    inputs, answer, weight, exact = blind_reader()
    return {"effect": -float((weight * forward(runs["v3-no-positions"], inputs).of(answer)).sum()) - exact}


def override(runs: Mapping[str, Run]) -> dict[str, float]:
    """T22: the lead of the unused value on repeats, and the share that it wins once the other head sees no repeat.

    The elimination head costs fresh sequences over half of the unseen mappings the most log-probability if its output
    is the mean over sequences as the task draws them. The other head gets the mean over all fresh sequences.
    """
    run = runs["v3"]
    of, passes, right = both_skills(run)
    fresh, repeats, intact = of["elimination"], of["recall"], passes["recall"]
    mean = {skill: each.z.mean(0) for skill, each in passes.items()}
    mixed, half = 0.7 * mean["elimination"] + 0.3 * mean["recall"], slice(0, len(fresh.y) // 2)
    left = [
        float(forward(run, fresh.inputs[half], z=only(head, mixed)).of(fresh.answer[half]).mean()) for head in range(2)
    ]
    other = 1 if left[0] < left[1] else 0
    removed = forward(run, repeats.inputs, z=only(other, mean["elimination"]))
    total = intact.log_probs[:, 1:].sum(1)
    wrong = (total - intact.of(repeats.unused) - intact.of(repeats.answer)) / (V - 2)
    present = float((intact.of(repeats.unused) - wrong).mean())
    return {"gate": min(right.values()), "present": present, "override": share(removed.answer == repeats.unused)}


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
