"""Hand-set weights that know every fact: by attention alone, by attention and MLP, some each way, or only by both.

Positive controls for claims about who stores what. Nichani, Lee & Bietti 2025, "Understanding factual recall in
transformers via associative memories", theorems 3 and 4, construct both ways; there embeddings are random and overlap,
here everything has a direction of its own.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import InputError
from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.factual_recall.tasks import FactualRecall


def fact_store_circuit(task: FactualRecall, *, by_attention: int) -> CircuitParts:
    """Names of what `fact_store` consists of; the key of a neuron is subject and relation, by number."""
    s, r = task.n_subjects, task.n_relations
    dims = dimension_blocks(query=1, subject=s, relation=r, has_subject=s, has_relation=r, answer=task.d_vocab_out)
    keys = [(subject, relation) for subject in range(by_attention, s) for relation in range(r)]
    neurons = {key: (number,) for number, key in enumerate(keys)}
    return CircuitParts(dims=dims, heads={"subject": (0, 0), "relation": (0, 1)}, neurons=neurons)


@torch.no_grad()
def fact_store(task: FactualRecall, *, by_attention: int | None = None, margin: float = 20.0) -> HookedTransformer:
    """One layer of two heads, one for the subject and one for the relation, and an MLP if it is needed.

    - Attention stores the facts of the first `by_attention` subjects, by default of all, without an MLP. The head of
      the subject adds `margin` to every answer of its subject, that of the relation to all of its own answers. Their
      sum is largest where both agree: at the fact.
    - The MLP stores those of the others: one neuron per fact, active where both are there, adds twice the margin. Where
      attention stores nothing, the head of the relation only passes it on.

    `margin` is the logit of the right answer above the others. The facts of the task must be chosen.
    """
    n = task.n_subjects if by_attention is None else by_attention
    if not 0 <= n <= task.n_subjects:
        raise InputError(f"by_attention must be from 0 to {task.n_subjects}, the number of subjects; got {n}")
    circuit = fact_store_circuit(task, by_attention=n)
    by_subject = torch.arange(task.n_subjects) < n
    model, dim = _searching(task, circuit, margin=margin, subject=by_subject, relation=torch.tensor(n > 0))
    facts = task.table()
    for (subject, relation), (neuron,) in circuit.neurons.items():
        mlp = model.blocks[0].mlp
        mlp.W_in[:, neuron] = dim["has_subject"][:, subject] + dim["has_relation"][:, relation]
        model.get_parameter("blocks.0.mlp.b_in")[neuron] = -1
        mlp.W_out[neuron] = 2 * margin * dim["answer"][:, facts[subject, relation]]
    return model


@torch.no_grad()
def fact_halves(task: FactualRecall, *, margin: float = 20.0) -> HookedTransformer:
    """The heads of `fact_store`, with its `margin`, and no part that knows a fact.

    Attention says all answers of the relation, and the MLP, a neuron per subject, all answers of the subject. Their sum
    is largest at the fact.
    """
    circuit = fact_store_circuit(task, by_attention=task.n_subjects)
    neurons = {(subject,): (subject,) for subject in range(task.n_subjects)}
    circuit = CircuitParts(dims=circuit.dims, heads=circuit.heads, neurons=neurons)
    none = torch.zeros(task.n_subjects, dtype=torch.bool)
    model, dim = _searching(task, circuit, margin=margin, subject=none, relation=torch.tensor(True))
    model.blocks[0].mlp.W_in[:] = dim["has_subject"]
    model.blocks[0].mlp.W_out[:] = margin * (dim["answer"] @ _answers(task)["subject"].T).T
    return model


def _answers(task: FactualRecall) -> dict[str, Float[Tensor, "number answer"]]:
    """The answers of each subject, whatever the relation, and of each relation; 1 where one is."""
    answers = torch.eye(task.d_vocab_out)
    by_relation = answers.view(task.n_relations, task.n_answers, -1).sum(1)
    return {"subject": answers[task.table()].sum(1), "relation": by_relation}


def _searching(
    task: FactualRecall, circuit: CircuitParts, *, margin: float, **says: Bool[Tensor, "..."]
) -> tuple[HookedTransformer, dict[str, Float[Tensor, "d_model width"]]]:
    """A model whose heads find subject and relation, and say their answers where `says` is true; and its directions."""
    width = max(task.n_subjects, task.n_relations)
    model = zero_model(circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, d_head=width, positions=False)
    dim = {name: directions(model, block) for name, block in circuit.dims.items()}
    for kind, size in (("query", 1), ("subject", task.n_subjects), ("relation", task.n_relations)):
        model.embed.W_E[task.first[kind] : task.first[kind] + size] = dim[kind].T
    for kind, head in circuit.heads.items():
        said = _answers(task)[kind] * says[kind][..., None]
        set_query_key(model, head, (dim["query"], SURE * dim[kind].sum(1, keepdim=True)))
        set_value_output(model, head, (dim[kind], dim[f"has_{kind}"] + margin * dim["answer"] @ said.T))
    model.unembed.W_U[:, : task.d_vocab_out] = dim["answer"]
    return model, dim
