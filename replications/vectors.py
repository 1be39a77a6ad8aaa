"""K1, K2, R1-models and R4: tasks whose models read vectors and give vectors.

k-hop: a sequence shows four permutations of four symbols as one-hot vectors; four others are hidden and the same in all
sequences. A hop applies a hidden one and then a shown one. Retrieval: chains of symbols, each a random vector, cut into
pairs with a rotary code; the answer to a query is its whole chain.
"""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from archives import Run, fresh_draws, stream
from judging import Criterion, Replication
from lens import build, run_vectors

N_SEQUENCES = 1024
N_CHAINS = WIDTH = 4


def hop_errors(run: Run) -> dict[int, float]:
    """The mean squared error of the answers after 1, 2 and 4 hops, over all sixteen places of fresh sequences."""
    n, hops = run.task["n_symbols"], run.task["hops"]
    hidden = torch.rand(4, n, generator=stream(run.task["hidden_seed"], "hidden permutations")).argsort(-1)
    shown = torch.rand(N_SEQUENCES, 4, n, generator=fresh_draws(run)).argsort(-1)
    model = build(run, d_vocab=n, n_ctx=4 * n, d_vocab_out=n * len(hops))
    found = run_vectors(model, one_hot(shown.flatten(1), n).float()).unflatten(-1, (len(hops), n))
    function, symbol = torch.arange(4).repeat_interleave(n), torch.arange(n).repeat(4).expand(N_SEQUENCES, -1)
    errors = {}
    for hop in range(1, max(hops) + 1):
        symbol = shown.flatten(1).gather(1, function * n + hidden[function, symbol])
        function = (function + 1) % 4
        if hop in hops:
            errors[hop] = float((found[:, :, hops.index(hop)] - one_hot(symbol, n)).square().mean())
    return errors


def enough_layers(runs: Mapping[str, Run]) -> dict[str, float]:
    """K1: the error after four hops with three layers."""
    return {"enough": hop_errors(runs["k-hop-4"])[4]}


def alone(runs: Mapping[str, Run]) -> dict[str, float]:
    """K2: the error after four hops of a model that was trained on these alone, where the mixture was learned."""
    return {"gate": max(hop_errors(runs["mixture"]).values()), "alone": hop_errors(runs["alone"])[4]}


def chain_errors(run: Run, n: int = N_SEQUENCES) -> list[float]:
    """The mean squared error of every symbol of the chain, at the queries of fresh sequences."""
    steps, draws = run.task["n_steps"], fresh_draws(run)
    symbols = torch.randn(n, steps + 1, N_CHAINS, WIDTH, generator=draws)

    def orders() -> Tensor:
        return torch.rand(n, N_CHAINS, generator=draws).argsort(1)

    def of(step: int, order: Tensor) -> Tensor:
        return symbols[:, step].gather(1, order[..., None].expand(-1, -1, WIDTH))

    content, number = [], []
    for step in range(steps):
        order = orders()
        content.append(torch.stack((of(step, order), of(step + 1, order)), 2).flatten(1, 2))
        number.append(torch.arange(step * N_CHAINS, (step + 1) * N_CHAINS).repeat_interleave(2))
    query = orders()
    content.append(of(0, query))
    number.append(torch.arange(steps * N_CHAINS, (steps + 1) * N_CHAINS))
    angle = torch.cat(number)[:, None] * 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    code = torch.cat((angle.cos(), angle.sin()), -1).expand(n, -1, -1)
    model = build(run, d_vocab=2 * WIDTH, n_ctx=code.shape[1], d_vocab_out=WIDTH * steps)
    found = run_vectors(model, torch.cat((torch.cat(content, 1), code), -1))[:, -N_CHAINS:]
    parts = found.unflatten(-1, (steps, WIDTH)).unbind(2)
    return [float((part - of(i + 1, query)).square().mean()) for i, part in enumerate(parts)]


def below_reach(runs: Mapping[str, Run]) -> dict[str, float]:
    """R1-models: the smallest error of a symbol in a model with fewer layers than the count of reach asks for.

    The first symbol needs two layers and the second three.
    """
    one, two = chain_errors(runs["1 layer"]), chain_errors(runs["2 layers"])
    return {"below_reach": min(*one, two[1])}


def order_of_falls(runs: Mapping[str, Run]) -> dict[str, float]:
    """R4: the smallest lead, in steps, by which the error of a symbol falls below .5 before that of the next.

    Checkpoints along training are not shipped: their errors, 25 steps apart, are read from the trajectory. The gate is
    measured on the weights.
    """
    run = runs["retrieval-3"]
    steps, errors = run.trajectory["step"], run.trajectory["measures"]
    falls = []
    for symbol in range(1, run.task["n_steps"] + 1):
        low = [step for step, error in zip(steps, errors[f"loss_x{symbol}"], strict=True) if error < 0.5]
        falls.append(low[0] if low else steps[-1] + 1)
    lead = min(later - earlier for earlier, later in pairwise(falls))
    return {"gate": max(chain_errors(run, 256)), "lead": float(lead)}


REPLICATIONS = (
    Replication(
        claim="K1",
        system="k_hop",
        units={"k-hop-4": "k-hop-4-quick"},
        criteria=(Criterion(effect="enough", direction="below", margin=0.05),),
        replicate=enough_layers,
    ),
    Replication(
        claim="K2",
        system="k_hop",
        units={"alone": "k-hop-4-alone-quick", "mixture": "k-hop-4-quick"},
        criteria=(Criterion(effect="alone", direction="above", margin=0.15, quantifier="every"),),
        replicate=alone,
        at_most=0.05,
    ),
    Replication(
        claim="R1-models",
        system="retrieval",
        units={"1 layer": "retrieval-2-1-layer-quick", "2 layers": "retrieval-2-2-layers-quick"},
        criteria=(Criterion(effect="below_reach", direction="above", margin=0.5, quantifier="every"),),
        replicate=below_reach,
    ),
    Replication(
        claim="R4",
        system="retrieval",
        units={"retrieval-3": "retrieval-3-quick"},
        criteria=(Criterion(effect="lead", direction="above", margin=0.0, quantifier="every"),),
        replicate=order_of_falls,
        at_most=0.1,
        first_seed=64,
        last_seed=87,
    ),
)
