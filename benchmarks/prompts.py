"""Scoring retrieval prompts in batches, against a plain pass over every question with each of its answers in turn.

Tokens are random, as many as SmolLM2's tokenizer makes of the questions; time does not depend on which they are. Beside
the ratio stands the gain from batches alone: the same code with one question at a time.
"""

from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from language import SHAPES
from mnemoscope.models.building import from_configuration
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.systems.retrieval_prompts.questions import Question, questions
from mnemoscope.systems.retrieval_prompts.reading import Asked
from mnemoscope.systems.retrieval_prompts.scoring import answers
from timing import Figure, duration, interleave, ratio

KINDS = {"equations": (133, (1, 1, 1, 1)), "lives-with": (158, (2, 2, 2, 2)), "relatives": (335, (2,) * 8 + (1,) * 8)}
"""Tokens of a question at the published difficulty, and of its acceptable answers."""
AIM = 3.0


def scoring(quick: bool) -> list[Figure]:
    """Every kind of questions on SmolLM2's shape; in the short version of two layers and a small vocabulary."""
    small = {"n_layers": 2, "d_vocab": 2000} if quick else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = from_configuration({**SHAPES["SmolLM2 135M"][1], **small, "n_ctx": 512})
    model.tokenizer = SimpleNamespace(padding_side="right")  # type: ignore[assignment]
    return [_of_kind(name, model, 1 if quick else 3) for name in (list(KINDS)[:1] if quick else KINDS)]


def _of_kind(name: str, model: HookedTransformer, repetitions: int) -> Figure:
    asked = _asked(name, 8, model.cfg.d_vocab)
    found: dict[str, dict[Question, Any]] = {}
    contenders = {
        "plain": partial(_plain, model, asked[:1], found),
        "apart": partial(_ours, model, asked[:2], found, 1),
        "ours": partial(_ours, model, asked, found, None),
    }
    seconds = interleave(contenders, repetitions)
    value, spread = ratio(seconds["plain"], seconds["ours"])
    times = ", ".join(f"{who} {duration(median(seconds[who]))}" for who in contenders)
    question, expected = next(iter(found["plain"].items()))
    difference = max(abs(a - b) for a, b in zip(found["ours"][question], expected, strict=True))
    note = f"a question: {times}; difference {difference:.0e}"
    title = f"SmolLM2 135M: scoring {name}, in batches against plainly one at a time"
    return Figure(group="language", name=title, value=value, unit="x", spread=spread, aim=AIM, note=note)


def _asked(name: str, n: int, d_vocab: int) -> list[Asked]:
    """Questions in random tokens."""
    n_tokens, lengths = KINDS[name]
    stream = torch.Generator().manual_seed(0)

    def tokens(k: int) -> tuple[int, ...]:
        return tuple(torch.randint(d_vocab, (k,), generator=stream).tolist())

    return [
        Asked(question=question, prompt=tokens(n_tokens), answers=tuple(tokens(k) for k in lengths))
        for question in questions(name, n)
    ]


def _ours(model: HookedTransformer, asked: list[Asked], found: dict[str, Any], max_bytes: int | None) -> float:
    given = [each for batch in answers(model, asked, max_bytes=max_bytes) for each in batch]
    found["ours"] = {each.question: each.log_probs for each in given}
    return float(len(asked))


@torch.no_grad()
def _plain(model: HookedTransformer, asked: list[Asked], found: dict[str, Any]) -> float:
    """A pass over the question with each answer."""
    for each in asked:
        sums = []
        for answer in each.answers:
            tokens = torch.tensor([[*each.prompt, *answer]])
            log_probs = model(tokens)[0, len(each.prompt) - 1 : -1].log_softmax(-1)
            sums.append(float(log_probs.gather(1, tokens[0, -len(answer) :, None]).sum()))
        found["plain"] = {each.question: sums}
    return float(len(asked))
