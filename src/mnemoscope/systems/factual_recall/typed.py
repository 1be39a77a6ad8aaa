"""One sequence of factual recall: as it is typed, and what a model says of it beside the fact.

Tokens are called a0, a1, … (answers), s0, … (subjects), r0, … (relations), n0, … (noise), and ? is the query.
"""

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel, InputError
from mnemoscope.analyses import named_patterns
from mnemoscope.core import in_range
from mnemoscope.report import plain_report
from mnemoscope.systems.factual_recall.tasks import FactualRecall


def symbols(task: FactualRecall) -> list[str]:
    """The names of tokens, in their order."""
    sizes = {"a": task.d_vocab_out, "s": task.n_subjects, "r": task.n_relations, "n": task.n_noise}
    return [*(f"{kind}{i}" for kind, size in sizes.items() for i in range(size)), "?"]


def parse(task: FactualRecall, text: str) -> Batch:
    """One sequence as typed, such as `n3 s5 n0 r2 ?`: symbols or numbers, the query last; InputError otherwise."""
    words = text.replace(",", " ").split()
    in_range("the number of tokens", len(words), 3, task.length)
    numbers = {symbol: token for token, symbol in enumerate(symbols(task))}
    for word in words:
        if word not in numbers and not (word.isdecimal() and int(word) < task.d_vocab):
            raise InputError(
                f"a token must be a number below {task.d_vocab}, or one of a0 … (answers), s0 … (subjects), r0 … "
                f"(relations), n0 … (noise) and ?; got {word!r}"
            )
    tokens = torch.tensor([[numbers[word] if word in numbers else int(word) for word in words]])
    first = task.first
    subjects = (tokens >= first["subject"]) & (tokens < first["relation"])
    relations = (tokens >= first["relation"]) & (tokens < first["noise"])
    queries = tokens == first["query"]
    if [int(mask.sum()) for mask in (subjects, relations, queries)] != [1, 1, 1] or not queries[0, -1]:
        raise InputError(f"a sequence has one subject and one relation, and the query ? last; got {text!r}")
    targets = torch.zeros_like(tokens)
    number = {name: int(tokens[mask]) - first[name] for name, mask in (("subject", subjects), ("relation", relations))}
    targets[0, -1] = task.table()[number["subject"], number["relation"]]
    return Batch(inputs=tokens, targets=targets, scored=queries, derive=task.latents)


def patterns(model: HookedModel, task: FactualRecall, batch: Batch) -> xr.Dataset:
    """The attention of every head on every sequence, with the symbols of the tokens."""
    return named_patterns(model, batch, symbols(task))


def predict(model: HookedModel, task: FactualRecall, batch: Batch) -> xr.Dataset:
    """The likeliest answers at the query, beside the fact; elsewhere there is no answer."""
    found = plain_report.predict(model, task, batch, reference="fact", knows=known_of)
    due = xr.DataArray(batch.scored[0].tolist(), dims="pos")
    tokens = {name: found[name].where(due, -1) for name in ("following", "guess", "ideal_guess")}
    shares = {name: found[name].where(due) for name in ("p_following", "p_guess", "ideal_p_following", "ideal_p_guess")}
    return found.assign({**tokens, **shares}).assign_coords(symbol=("token_number", symbols(task)))


def known_of(task: FactualRecall, batch: Batch) -> list[str]:
    """The subject, the relation, and the fact at the query, by position."""
    known = {name: int(values[0]) for name, values in batch.latents.items()}
    words, called = [""] * batch.inputs.shape[1], symbols(task)
    words[known["subject_pos"]], words[known["relation_pos"]] = "the subject", "the relation"
    relation, n = known["relation"], task.n_answers
    answers = called[relation * n : (relation + 1) * n]
    words[-1] = f"the fact {called[int(batch.targets[0, -1])]}; r{relation} has {answers[0]} to {answers[-1]}"
    return words
