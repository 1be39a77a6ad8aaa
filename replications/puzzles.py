"""P10, P11, P13 and P14: sums of two numbers, sorted lists, and signs of running sums."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from archives import Run, fresh_draws
from judging import Criterion, Replication
from lens import Hook, answers, build, fix_mean, record

PLUS, EQUALS = 10, 11
N_VALUES, LENGTH, SEP = 51, 10, 51
NEGATIVE, ZERO, POSITIVE = range(3)


def layers_of_sums(runs: Mapping[str, Run]) -> dict[str, float]:
    """P10: what heads of layer 0 cost more than those of layer 1, in nats of the right digits of 4 + 4 digits.

    First digits are below 5. The output of one head is its mean over sequences, position by position.
    """
    run = runs["digit-sum"]
    top = torch.tensor([5, 10, 10, 10])
    digits = (torch.rand(512, 2, 4, generator=fresh_draws(run)) * top).long()
    total = (digits.sum(1) * torch.tensor([1000, 100, 10, 1])).sum(1)
    right = torch.stack([total // 10**power % 10 for power in (3, 2, 1, 0)], 1)
    signs = [torch.full((len(digits), 1), sign) for sign in (PLUS, EQUALS)]
    tokens = torch.cat((digits[:, 0], signs[0], digits[:, 1], signs[1], right), 1)
    model = build(run, d_vocab=12, n_ctx=tokens.shape[1])

    def log_probs(hooks: list[Hook]) -> Tensor:
        return answers(model, tokens, hooks)[:, 9:13].log_softmax(-1)

    def of_right(found: Tensor) -> float:
        return float(found.gather(-1, right[..., None]).mean())

    intact = log_probs([])
    cost = []
    for layer in range(2):
        point = f"blocks.{layer}.attn.hook_z"
        z = record(model, tokens, point)
        without = [of_right(log_probs([(point, fix_mean(z, head))])) for head in range(z.shape[2])]
        cost.append(of_right(intact) - sum(without) / len(without))
    gate = float((intact.argmax(-1) == right).double().mean())
    return {"gate": gate, "effect": cost[0] - cost[1], "layer_0": cost[0], "layer_1": cost[1]}


def sorted_lists(runs: Mapping[str, Run]) -> dict[str, float]:
    """P11: looks, copies, predicted effects, and what a look causes, in lists of ten values and the same in order."""
    run = runs["sorted-list"]
    draws = fresh_draws(run)
    values = torch.rand(1024, N_VALUES, generator=draws).argsort(1)[:, :LENGTH]
    ordered = values.sort(1)[0]
    tokens = torch.cat((values, torch.full((len(values), 1), SEP), ordered), 1)
    model = build(run, d_vocab=N_VALUES + 1, n_ctx=tokens.shape[1])
    due = torch.arange(LENGTH, 2 * LENGTH)  # from SEP on, the next value of the list in order
    at = (values[:, None] == ordered[..., None]).int().argmax(-1)  # place of the next value in the list
    point, patterns = "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"
    recorded: Any = model.run_with_cache(tokens, names_filter=[point, patterns])
    z, pattern, intact = recorded[1][point], recorded[1][patterns], recorded[0][:, due]
    without = [answers(model, tokens, [(point, fix_mean(z, head))])[:, due] for head in range(2)]
    own = _own_heads(intact, without, ordered, torch.rand(len(tokens), generator=draws) < 0.5)
    looks = pattern[:, :, due, :LENGTH].argmax(-1)  # batch, head, answer
    chosen = looks.gather(1, own[ordered][:, None])[:, 0]
    circuit = _ov(model)  # head, token, logit
    raised = circuit[own, torch.arange(N_VALUES)].argmax(-1)
    few = slice(0, 512)
    written = torch.einsum("bhqk,hbkv->hbqv", pattern[few, :, due], circuit[:, tokens[few]])
    predicted = written.mean(1, keepdim=True) - written  # the mean stays in the place of the output
    actual = torch.stack([(each - intact)[few] for each in without])
    fit = [float(np.corrcoef(predicted[h].flatten(), actual[h].flatten())[0, 1]) for h in range(2)]
    return {
        "gate": float((intact.argmax(-1) == ordered).double().mean()),
        "looks": float((chosen == at).double().mean()),
        "copies": float((raised == torch.arange(N_VALUES)).double().mean()),
        "predicted": sum(fit) / 2,
        "causes": _causes(model, tokens, at, ordered, draws),
    }


def _own_heads(intact: Tensor, without: list[Tensor], ordered: Tensor, half: Tensor) -> Tensor:
    """For every value the head whose removal costs its right answers the most log-probability, on half of the lists."""
    right = [each.log_softmax(-1).gather(-1, ordered[..., None])[..., 0] for each in (intact, *without)]
    value = torch.nn.functional.one_hot(ordered[half], N_VALUES).double()
    costs = [torch.einsum("bq,bqv->v", (right[0] - each)[half].double(), value) for each in right[1:]]
    return torch.stack(costs).argmax(0)


def _ov(model: HookedTransformer) -> Tensor:
    """What every head adds to the logits if it attends to a token: norms applied to the token, gains folded in."""
    block = model.blocks[0]
    read = block.ln1(model.W_E) @ block.attn.W_V + block.attn.b_V[:, None]
    written = read @ block.attn.W_O
    written = (written - written.mean(-1, keepdim=True)) * model.ln_final.w
    return written @ model.W_U


def _causes(model: HookedTransformer, tokens: Tensor, at: Tensor, ordered: Tensor, draws: torch.Generator) -> float:
    """The accuracy lost without attention to the next value, less what is lost without that to another one."""
    rows = torch.arange(len(tokens))
    answer = torch.randint(LENGTH, (len(tokens),), generator=draws)
    to_next = at[rows, answer]
    other = (to_next + torch.randint(1, LENGTH, (len(tokens),), generator=draws)) % LENGTH

    def without(place: Tensor) -> Callable[..., Tensor]:
        def hook(pattern: Tensor, hook: object) -> Tensor:
            changed = pattern.clone()
            changed[rows, :, LENGTH + answer, place] = 0
            return changed / changed.sum(-1, keepdim=True)

        return hook

    right = []
    for place in (other, to_next):
        found = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", without(place))])
        right.append(float((found[rows, LENGTH + answer].argmax(-1) == ordered[rows, answer]).double().mean()))
    return right[0] - right[1]


def running_sums(run: Run) -> tuple[HookedTransformer, Tensor, Tensor, float]:
    """The model, 2,048 sequences of values, their tokens, and the accuracy on the class that is answered worst.

    Sizes are uniform from 0 to 5. A value has the sign opposite to that of the sum so far with probability .7.
    """
    largest, length, draws = run.task["largest"], run.task["length"], fresh_draws(run)
    total, values = torch.zeros(2048).long(), []
    for _ in range(length):
        size = torch.randint(largest + 1, total.shape, generator=draws)
        opposite = torch.rand(total.shape, generator=draws) < run.task["opposite"]
        coin = torch.rand(total.shape, generator=draws) < 0.5
        sign = torch.where(total == 0, torch.where(coin, 1, -1), torch.where(opposite, -total.sign(), total.sign()))
        values.append(sign * size)
        total = total + values[-1]
    shown = torch.stack(values, 1)
    tokens, right = shown % (2 * largest + 1), shown.cumsum(1).sign() + 1
    model = build(run, d_vocab=2 * largest + 1, n_ctx=length, d_vocab_out=3)
    hit = answers(model, tokens).argmax(-1) == right
    return model, shown, tokens, min(float(hit[right == kind].double().mean()) for kind in range(3))


def running_mean(runs: Mapping[str, Run]) -> dict[str, float]:
    """P13: how uneven attention is, the share of one direction, and how well what is written along it is the mean."""
    model, shown, tokens, gate = running_sums(runs["running-sum"])
    pattern = record(model, tokens, "blocks.0.attn.hook_pattern")[:, 0].double()
    length = shown.shape[1]
    count = torch.arange(1, length + 1).double()
    uniform = torch.ones(length, length).double().tril() / count[:, None]
    written = (model.W_E @ model.W_V[0, 0] @ model.W_O[0, 0]).double()
    written = written - written.mean(0)
    _, singular, right = torch.linalg.svd(written)
    along = written @ right[0]
    value = torch.where(torch.arange(len(along)) > shown.max(), torch.arange(len(along)) - len(along),
                        torch.arange(len(along))).double()  # fmt: skip
    along = along * torch.sign((along * value).sum())
    writes = torch.einsum("bqk,bk->bq", pattern, along[tokens])
    total = shown.cumsum(1).double()
    fit = {
        name: float(np.corrcoef(writes.flatten(), target.flatten())[0, 1]) ** 2
        for name, target in (("mean", total / count), ("sum", total))
    }
    return {
        "gate": gate,
        "uneven": float((pattern - uniform).abs().sum(-1)[:, 1:].mean() / 2),
        "rank": float(singular[0] ** 2 / singular.square().sum()),
        "mean": fit["mean"],
        "advantage": fit["mean"] - fit["sum"],
    }


def without_neurons(runs: Mapping[str, Run]) -> dict[str, float]:
    """P14: the share of answers that are zero without neurons, and how far each is active at the sign it speaks for."""
    model, shown, tokens, gate = running_sums(runs["running-sum"])
    point = "blocks.0.mlp.hook_post"
    active = record(model, tokens, point).double()
    silent = answers(model, tokens, [(point, lambda value, hook: torch.zeros_like(value))]).argmax(-1)
    raises = (model.W_out[0] @ model.W_U).double()
    lead = raises[:, POSITIVE] - raises[:, NEGATIVE]
    sign = shown.cumsum(1).sign()
    at_own = torch.einsum("bqn,bqn->n", active, (sign[..., None] == lead.sign()).double())
    total = active.sum((0, 1))
    weight = total * lead.abs()
    share = torch.where(total > 0, at_own / total.clamp(min=1e-12), 0.0)
    effects = {
        "zero": float((silent == ZERO).double().mean()),
        "one_sign": float((weight * share).sum() / weight.sum()),
    }
    return {"gate": gate, **effects}


REPLICATIONS = (
    Replication(
        claim="P10",
        system="puzzles",
        units={"digit-sum": "digit-sum-quick"},
        criteria=(Criterion(effect="effect", direction="above", margin=1.0),),
        replicate=layers_of_sums,
        at_least=0.98,
        first_seed=32,
    ),
    Replication(
        claim="P11",
        system="puzzles",
        units={"sorted-list": "sorted-list-quick"},
        criteria=(
            Criterion(effect="looks", direction="above", margin=0.75),
            Criterion(effect="copies", direction="above", margin=0.9),
            Criterion(effect="predicted", direction="above", margin=0.5),
            Criterion(effect="causes", direction="above", margin=0.5),
        ),
        replicate=sorted_lists,
        at_least=0.99,
        first_seed=32,
    ),
    Replication(
        claim="P13",
        system="puzzles",
        units={"running-sum": "running-sum-quick"},
        criteria=(
            Criterion(effect="uneven", direction="below", margin=0.1),
            Criterion(effect="rank", direction="above", margin=0.95),
            Criterion(effect="mean", direction="above", margin=0.95),
            Criterion(effect="advantage", direction="above", margin=0.0),
        ),
        replicate=running_mean,
        at_least=0.95,
        first_seed=32,
    ),
    Replication(
        claim="P14",
        system="puzzles",
        units={"running-sum": "running-sum-quick"},
        criteria=(
            Criterion(effect="zero", direction="above", margin=0.5),
            Criterion(effect="one_sign", direction="above", margin=0.9),
        ),
        replicate=without_neurons,
        at_least=0.95,
        first_seed=32,
    ),
)
