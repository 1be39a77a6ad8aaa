"""Prompts as text: their words by position, in characters, and their tokens.

Prompts of different lengths are padded on the right. Attention is causal, so that nothing reads the padding, and
`Batch.real` says which positions are none. Positions have names, so that "the subject" may stand elsewhere in every
prompt: a name is the last token of what it stands for, and `<name>_first` the first one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs

LAST = "last"
"""Name of the last token of every prompt."""


@runtime_checkable
class Tokenizer(Protocol):
    """The used part of a tokenizer of the transformers library."""

    bos_token_id: int | None
    pad_token_id: int | None

    def __call__(self, text: str, *args: Any, **options: Any) -> Any:
        """Tokens of a text (`input_ids`), and where in it they stand (`offset_mapping`)."""
        ...

    def decode(self, token_ids: Any, *args: Any, **options: Any) -> Any:
        """The text of tokens."""
        ...


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text in which places have names.

    Attributes:
        text: All of it.
        spans: By name the first character, and the one after the last.

    >>> prompt = ms.Prompt(text="Mary gave John a drink", spans={"giver": (0, 4)})
    >>> prompt.text[slice(*prompt.spans["giver"])]
    'Mary'
    """

    text: str
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def find(text: str, **names: str) -> "Prompt":
        """A text, and words in it by name; InputError where a word occurs never, or more than once."""
        spans = {}
        for name, word in names.items():
            n = text.count(word) if word else 0
            if n != 1:
                raise InputError(
                    f"{name}: {word!r} must occur once in {text!r}; it occurs {n} times (a template tells places apart)"
                )
            spans[name] = (text.index(word), text.index(word) + len(word))
        return Prompt(text=text, spans=spans)

    @staticmethod
    def fill(template: str, **values: str) -> "Prompt":
        """A template such as `"{A} and {B} met. {B} said"`, filled.

        Every field becomes a name; where it occurs again its places are called `B`, `B_2` and so on. Raises InputError
        where the template has a field without a value, or one that is not a plain name.
        """
        text, spans, seen = "", {}, {}
        for literal, name, form, conversion in Formatter().parse(template):
            text += literal
            if name is None:
                continue
            if name not in values or form or conversion:
                known = ", ".join(values) or "none"
                raise InputError(f"the template {template!r} has the field {name!r}; values are given for: {known}")
            seen[name] = seen.get(name, 0) + 1
            spans[name if seen[name] == 1 else f"{name}_{seen[name]}"] = (len(text), len(text) + len(values[name]))
            text += values[name]
        return Prompt(text=text, spans=spans)


@check_arguments
def prompts(
    tokenizer: Tokenizer,
    texts: str | Prompt | Sequence[str | Prompt],
    *,
    answers: Sequence[str] | None = None,
    bos: bool = True,
    first_token: bool = False,
) -> Batch:
    """Texts as a batch.

    Args:
        tokenizer: Such as `model.tokenizer`.
        texts: One or several.
        answers: The answer after each text, a single token, such as `" Paris"`: only there the batch is scored. None:
            every next token of the text is an answer.
        bos: Whether the BOS token is put in front, as TransformerLens does by default. A text whose own first token it
            is, such as one that a chat template has written, gets no second one.
        first_token: Whether the first token of an answer that has several stands for it.

    Returns:
        Latents `last`, and the position of the last and the first token of every name that all texts have.

    Raises:
        InputError: A text is empty, an answer is not one token, their numbers differ, or the tokenizer does not say
            where in a text its tokens stand.

    >>> tokenizer = ms.language_model("smollm2").tokenizer
    >>> ms.prompts(tokenizer, ["Rome is in"], answers=[" Italy"]).symbols[0]
    ['<|im_start|>', 'Rome', ' is', ' in']
    """
    texts = [texts] if isinstance(texts, str | Prompt) else list(texts)
    texts = [Prompt(text=text) if isinstance(text, str) else text for text in texts]
    if not texts:
        raise InputError("texts must hold at least one; got none")
    if answers is not None and len(answers) != len(texts):
        raise InputError(f"answers must be as many as texts, {len(texts)}; got {len(answers)}")
    front = [tokenizer.bos_token_id] if bos and tokenizer.bos_token_id is not None else []
    rows, places = zip(*(_encoded(tokenizer, text, front) for text in texts), strict=True)
    lengths = torch.tensor([len(row) for row in rows])
    if int(lengths.min()) < (2 if answers is None else 1):
        raise InputError(f"text {int(lengths.argmin())} is too short: nothing follows its first token")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    n_pos = int(lengths.max())
    inputs = torch.tensor([[*row, *[pad] * (n_pos - len(row))] for row in rows])
    targets = torch.cat((inputs[:, 1:], torch.full((len(rows), 1), pad)), 1)
    numbers, last = torch.arange(n_pos), lengths[:, None] - 1
    if answers is None:
        scored = numbers < last
    else:
        scored = numbers == last
        targets[scored] = torch.tensor([token(tokenizer, answer, first_token=first_token) for answer in answers])
    return Batch(
        inputs=inputs,
        targets=targets,
        scored=scored,
        lengths=lengths,
        known={**_common(places), LAST: lengths - 1},
        symbol=tokenizer.decode,
    )


@check_arguments
def prompt_pairs(
    tokenizer: Tokenizer,
    clean: str | Prompt | Sequence[str | Prompt],
    corrupted: str | Prompt | Sequence[str | Prompt],
    *,
    answers: Sequence[str],
    foils: Sequence[str],
    name: str = "corrupted",
    bos: bool = True,
    first_token: bool = False,
) -> PromptPairs:
    """Clean and corrupted texts, read after their last token.

    Row i of `corrupted` has as many tokens as row i of `clean`; rows may differ. `answers` follow the clean texts, a
    single token each. `foils` are the same of the corrupted ones, or what the answer is compared with. `name` says for
    results how the pairs differ. `bos` and `first_token` are as for `prompts`, errors too. Raises InputError where
    numbers differ, a pair has unequal numbers of tokens, or an answer is its own foil.

    >>> tokenizer = ms.language_model("smollm2").tokenizer
    >>> capitals = ms.prompt_pairs(tokenizer, ["Rome is in"], ["Paris is in"], answers=[" Italy"], foils=[" France"])
    >>> len(capitals)
    1
    """
    sides = [
        prompts(tokenizer, texts, answers=due, bos=bos, first_token=first_token)
        for texts, due in ((clean, answers), (corrupted, foils))
    ]
    if len(sides[0]) != len(sides[1]):
        raise InputError(f"clean and corrupted must be equal in number; got {len(sides[0])} and {len(sides[1])}")
    lengths = [side.known_lengths for side in sides]
    for row in (lengths[0] != lengths[1]).nonzero()[:1, 0].tolist():
        shown = " and ".join(repr(side.symbols[row][: int(n[row])]) for side, n in zip(sides, lengths, strict=True))
        raise InputError(f"pair {row} must be of equal length, since positions are exchanged; its tokens are {shown}")
    at_last = [side.targets[side.scored] for side in sides]
    for row in (at_last[0] == at_last[1]).nonzero()[:1, 0].tolist():
        raise InputError(f"pair {row} has {answers[row]!r} for an answer and for a foil; they must differ")
    return PromptPairs(clean=sides[0], corrupted=sides[1], name=name)


def token(tokenizer: Tokenizer, text: str, *, first_token: bool = False) -> int:
    """The one token of a text, or its first one; raises InputError where it has none, or several."""
    found = _tokens(tokenizer, text)["input_ids"]
    if not found or (len(found) > 1 and not first_token):
        shown = [tokenizer.decode([each]) for each in found]
        hint = "" if text.startswith(" ") else "; within a text a word mostly begins with a space"
        raise InputError(
            f"{text!r} must be a single token; it is {shown}{hint}. Take another word, or first_token for the first one"
        )
    return found[0]


def _tokens(tokenizer: Tokenizer, text: str, **options: Any) -> Any:
    return tokenizer(text, add_special_tokens=False, **options)


def _encoded(tokenizer: Tokenizer, prompt: Prompt, front: list[int]) -> tuple[list[int], dict[str, int]]:
    """Tokens of a prompt behind the BOS token, unless they begin with it, and the positions that have names."""
    if not prompt.spans:
        return _prepend(front, _tokens(tokenizer, prompt.text)["input_ids"]), {}
    try:
        found = _tokens(tokenizer, prompt.text, return_offsets_mapping=True)
    except NotImplementedError:
        raise InputError(
            "this tokenizer does not say where tokens stand; load its fast version, or name no places"
        ) from None
    row, places = _prepend(front, found["input_ids"]), {}
    n_front = len(row) - len(found["input_ids"])
    for name, (start, stop) in prompt.spans.items():
        inside = [i for i, (first, end) in enumerate(found["offset_mapping"]) if first < stop and end > start]
        if not inside:
            raise InputError(f"{name} is empty in {prompt.text!r}; every named place must hold something")
        places |= {name: inside[-1] + n_front, f"{name}_first": inside[0] + n_front}
    return row, places


def _prepend(front: list[int], tokens: list[int]) -> list[int]:
    """Tokens that begin with `front` once."""
    return [*tokens] if tokens[:1] == front else [*front, *tokens]


def _common(places: Sequence[Mapping[str, int]]) -> dict[str, Int[Tensor, " batch"]]:
    """The positions of the names that all prompts have."""
    names = [name for name in places[0] if all(name in each for each in places)]
    return {name: torch.tensor([each[name] for each in places]) for name in names}
