"""F2: does attention alone store the facts where the MLP is narrow, and the MLP where it is wide?

A sequence of 32 tokens ends with a query; a subject and a relation stand at random places, noise everywhere else. The
query's own embedding is zero, so that it asks with its bias, and the logits are those of the output of attention plus
that of the MLP. There are no positions: the score of a token, and what a head writes for it, are tables over tokens.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from archives import Run, fresh_draws, stream
from judging import Criterion, Replication
from lens import build

PER_FACT = 8


def sequences(run: Run) -> tuple[Tensor, Tensor]:
    """Eight sequences of every fact with their answers: answers are the first tokens, then subjects, relations, noise.

    The table of facts follows from the seed.
    """
    task, draws = run.task, fresh_draws(run)
    n, n_answers = task["n_subjects"], task["n_answers"]
    own = torch.randint(n_answers, (n, task["n_relations"]), generator=stream(task["facts_seed"], "facts"))
    facts = own + n_answers * torch.arange(task["n_relations"])
    first_subject = n_answers * task["n_relations"]
    first_relation, first_noise = first_subject + n, first_subject + n + task["n_relations"]
    subject, relation = (part.repeat_interleave(PER_FACT) for part in torch.ones_like(facts).nonzero().T)
    size = (len(subject), task["length"] - 1)
    tokens = first_noise + torch.randint(task["n_noise"], size, generator=draws)
    places = torch.rand(size, generator=draws).argsort(1)[:, :2]
    tokens.scatter_(1, places, torch.stack((first_subject + subject, first_relation + relation), 1))
    query = torch.full((len(tokens), 1), first_noise + task["n_noise"])
    return torch.cat((tokens, query), 1), facts[subject, relation]


def routes(run: Run) -> dict[str, float]:
    """Accuracy as it is, with the MLP's output at its mean, and with the direct output of attention at its mean."""
    tokens, answer = sequences(run)
    task, last = run.task, int(tokens.max())
    model = build(run, d_vocab=last + 1, n_ctx=task["length"], d_vocab_out=task["n_answers"] * task["n_relations"])
    block = model.blocks[0]
    keys = torch.einsum("td,hde->the", model.W_E, block.attn.W_K)
    scores = torch.einsum("he,the->th", block.attn.b_Q, keys) / block.attn.W_K.shape[-1] ** 0.5
    writes = torch.einsum("td,hde,hef->thf", model.W_E, block.attn.W_V, block.attn.W_O)
    attention = torch.einsum("bph,bphf->bf", scores[tokens].softmax(1), writes[tokens])
    mlp = (attention @ block.mlp.W_in).relu() @ block.mlp.W_out

    def right(output: Tensor) -> float:
        return float(((output @ model.W_U).argmax(-1) == answer).double().mean())

    return {
        "both": right(attention + mlp),
        "attention": right(attention + mlp.mean(0)),
        "mlp": right(attention.mean(0) + mlp),
    }


def mechanisms(runs: Mapping[str, Run]) -> dict[str, float]:
    """F2: the lead of attention over the MLP in the narrow model, or its lag in the wide one, the smaller of both."""
    right = {name: routes(run) for name, run in runs.items()}
    lead = {name: each["attention"] - each["mlp"] for name, each in right.items()}
    return {"gate": min(each["both"] for each in right.values()), "two": min(lead["narrow"], -lead["wide"])}


REPLICATIONS = (
    Replication(
        claim="F2",
        system="factual_recall",
        units={name: f"facts-{name}-quick" for name in ("narrow", "middle", "wide")},
        criteria=(Criterion(effect="two", direction="above", margin=0.25),),
        replicate=mechanisms,
        at_least=0.9,
    ),
)
