"""Models with weights set by hand, with a tokenizer of whole words, for controls.

*Copying*: the induction circuit of `ms.constructed`, on the words of this system. *Recall*: an MLP that knows facts.
It is the first one or the second, at the subject, from where a head carries them to the last token; or it is late, at
the last token, to which a head has carried the subject. *Naming*: a head marks the repeated name S2, a second one tells
the last token which it is, a name mover copies the other name. *Relaying*: the same, but what the name mover copies is
written to the logits by a later head, which attends to the last token. *Sharing*: naming, with a head that writes
against it. *Conflict*: the induction circuit beside an MLP, twice as strong, that knows which word mostly follows a
preposition; it is in the first layer or in the last.
"""

from typing import Any, Literal

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import mnemoscope as ms
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    induction,
    set_embeddings,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.language_models.words import (
    ALL,
    COMMON,
    CONFLICTS,
    FACTS,
    GENERIC,
    NAMES,
    PLACES,
    RELATIONS,
    Questions,
    vocabulary,
)

N_CTX = 40
SIZE = 20.0
"""Logit of what a constructed model answers."""
UNKNOWN = "<unk>"


def tokenizer(*of: Questions) -> PreTrainedTokenizerFast:
    """One token a word of some kinds of questions, none: of all; no token begins a text."""
    whole = Tokenizer(models.WordLevel(numbers(*of), unk_token=UNKNOWN))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=whole, unk_token=UNKNOWN, pad_token=UNKNOWN)


def numbers(*of: Questions) -> dict[str, int]:
    """The tokens of that tokenizer by word."""
    return {word: number for number, word in enumerate((UNKNOWN, *vocabulary(*of)))}


def with_words(model: Any, *of: Questions) -> Any:
    """The model with that tokenizer."""
    model.tokenizer = tokenizer(*of)
    return model.eval()


def untrained(case: int) -> dict[str, Any]:
    """A control: random weights, another seed a case."""
    spec = ms.ModelSpec(n_layers=4, n_heads=4, d_model=32, mlp=True)
    model = ms.models.build(spec, d_vocab=len(numbers()), n_ctx=N_CTX, seed=ms.models.FIRST_CONTROL_SEED + case)
    return {"model": with_words(model)}


def copying(case: int) -> dict[str, Any]:
    """A control: the induction circuit, with a little noise, another one a case."""
    words = len(numbers("repeated"))
    return {"model": with_words(induction(words, n_ctx=N_CTX, margin=SIZE, noise=1e-3, seed=case), "repeated")}


@torch.no_grad()
def recalling(where: Literal["first", "early", "again", "late"], case: int) -> dict[str, Any]:
    """A control: facts are known by the first or the second MLP, and carried from the subject; or by the last one.

    Where the second MLP says the token `again`, the last one knows the facts, and the token itself is an answer too.
    """
    tokens = numbers("facts")
    n, known_facts = len(tokens), [FACTS[relation] for relation in RELATIONS[ALL]]
    subjects = sorted({subject.split()[-1] for of in known_facts for subject in of})
    circuit = CircuitParts(
        dims=dimension_blocks(token=n, position=N_CTX, again=n, carried=n, fact=n),
        heads={"carry": (2, 0)},
        neurons={(i,): (i,) for i in range(len(subjects))},
    )
    model = zero_model(circuit, d_vocab=n, n_ctx=N_CTX, n_layers=4, d_head=n)
    set_embeddings(model, circuit)
    token, _, again, carried, fact = (directions(model, block) for block in circuit.dims.values())
    model.unembed.W_U[circuit.dims["fact"]] = torch.eye(n)
    early = where in ("first", "early")
    known, mlp = token if early else carried, model.blocks[{"first": 0, "early": 1}.get(where, 3)].mlp
    for i, subject in enumerate(subjects):
        mlp.W_in[:, i] = known[:, tokens[subject]]
        for of in known_facts:
            for name, answer in of.items():
                if name.split()[-1] == subject:
                    mlp.W_out[i] += SIZE * fact[:, tokens[answer]]
    attention = model.blocks[2].attn
    attention.b_Q[0, -1] = model.cfg.attn_scale
    for subject in subjects:
        attention.W_K[0, :, -1] += SURE * token[:, tokens[subject]]
    set_value_output(model, (2, 0), (fact, fact) if early else (again if where == "again" else token, carried))
    if where == "again":
        model.unembed.W_U[circuit.dims["carried"]] = SIZE * torch.eye(n)
        for i, subject in enumerate(subjects):
            model.blocks[1].mlp.W_in[:, i] = token[:, tokens[subject]]
            model.blocks[1].mlp.W_out[i] = again[:, tokens[subject]]
    return {"model": with_words(model, "facts")}


@torch.no_grad()
def naming(case: int, *, relayed: bool = False) -> dict[str, Any]:
    """A control: the last token attends to the name that was said once, and copies it."""
    tokens = numbers("stories")
    n = len(tokens)
    circuit = CircuitParts(
        dims=dimension_blocks(token=n, position=N_CTX, seen=N_CTX, subject=n, copied=n, answer=n),
        heads={"again": (0, 0), "which": (1, 0), "mover": (2, 0), "relay": (3, 0)},
    )
    model = zero_model(circuit, d_vocab=n, n_ctx=N_CTX, n_layers=4, n_heads=4, d_head=n + N_CTX)
    set_embeddings(model, circuit)
    token, position, seen, subject, copied, answer = (directions(model, block) for block in circuit.dims.values())
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n)
    names = token[:, [tokens[name] for name in NAMES[COMMON]]].sum(1)
    set_query_key(model, circuit.heads["again"], (token, 2 * SURE * token))  # of those with the query's token the first
    model.blocks[0].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[0].attn.W_K[0, :, -1] = -position @ torch.arange(N_CTX).float()
    set_value_output(model, circuit.heads["again"], (position, seen))
    places = torch.arange(N_CTX).float()
    later = (position - seen) @ places  # how far behind its first occurrence a token stands
    for layer, key in ((1, 100 * SURE * names + SURE * later), (2, SURE * names)):
        model.blocks[layer].attn.b_Q[0, -1] = model.cfg.attn_scale
        model.blocks[layer].attn.W_K[0, :, -1] = key
    set_value_output(model, circuit.heads["which"], (token, subject))
    set_query_key(model, circuit.heads["mover"], (subject, -2 * SURE * token))
    set_value_output(model, circuit.heads["mover"], (token, copied if relayed else SIZE * answer))
    if relayed:
        set_query_key(model, circuit.heads["relay"], (position, SURE * position))
        set_value_output(model, circuit.heads["relay"], (copied, SIZE * answer))
    return {"model": with_words(model, "stories")}


def relaying(case: int) -> dict[str, Any]:
    """A control: naming, but the name is copied to where no logit reads it, and written from there by a later head."""
    return naming(case, relayed=True)


@torch.no_grad()
def sharing(case: int) -> dict[str, Any]:
    """A control: naming, with a second head beside the one that copies the name, which writes half of it against it."""
    model = naming(case)["model"]
    attention = model.blocks[2].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V):
        weight[1] = weight[0]
    attention.b_Q[1] = attention.b_Q[0]
    attention.W_O[1] = -attention.W_O[0] / 2
    return {"model": model}


@torch.no_grad()
def conflicting(where: Literal["early", "late"], case: int) -> dict[str, Any]:
    """A control: an MLP says what mostly follows, twice as loud as an induction head says what follows here."""
    tokens, prepositions = numbers("conflicts"), sorted({text.split()[-1] for text in CONFLICTS[PLACES]})
    n = len(tokens)
    circuit = CircuitParts(
        dims=dimension_blocks(token=n, position=N_CTX, previous=n, answer=n),
        heads={"previous": (0, 0), "induction": (1, 0)},
        neurons={(i,): (i,) for i in range(len(prepositions))},
    )
    model = zero_model(circuit, d_vocab=n, n_ctx=N_CTX, n_layers=3, d_head=n + 1)
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n)
    token, position, previous, answer = (directions(model, block) for block in circuit.dims.values())
    set_query_key(model, circuit.heads["previous"], (position[:, 1:], SURE * position[:, :-1]))
    set_value_output(model, circuit.heads["previous"], (token, previous))
    set_query_key(model, circuit.heads["induction"], (token, SURE * previous))
    model.blocks[1].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[1].attn.W_K[0, :, -1] = -2 * SURE * position[:, 0]
    set_value_output(model, circuit.heads["induction"], (token, SIZE * answer))
    mlp = model.blocks[0 if where == "early" else 2].mlp
    for i, word in enumerate(prepositions):
        mlp.W_in[:, i] = token[:, tokens[word]]
        mlp.W_out[i] = 2 * SIZE * answer[:, tokens[GENERIC]]
    return {"model": with_words(model, "conflicts")}
