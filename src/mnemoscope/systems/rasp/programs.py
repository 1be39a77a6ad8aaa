"""What every program answers, in plain Python, and on which sequences: nothing here knows of RASP or of the weights.

The script that compiles the programs reads this module by its path, so it imports the standard library only.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Value = str | int | bool
BOS = "BOS"
"""The name of the token before every sequence."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The function that a RASP program computes.

    Attributes:
        summary: The answer at a place, in words.
        answer: The answers to a sequence, place by place; None where there is none.
        tokens: The alphabet.
        outputs: Everything that can be answered, in the order of the classes.
        n_shown: Tokens in a sequence.
        causal: True if a place sees itself and earlier places only.
        distinct: True if all tokens of a sequence differ.
    """

    summary: str
    answer: Callable[[Sequence], Sequence[Value | None]]
    tokens: tuple[Value, ...] = ("a", "b", "c")
    outputs: tuple[Value, ...] = ("a", "b", "c")
    n_shown: int = 5
    causal: bool = False
    distinct: bool = False


_COUNTS = tuple(range(6))
_TRUTH = (False, True)
_DIGITS = (0, 1, 2, 3)


def _everywhere(function: Callable[[Sequence], Value]) -> Callable[[Sequence], list[Value]]:
    return lambda shown: [function(shown)] * len(shown)


def _frac_prevs(shown: Sequence) -> list[Value]:
    shares = [shown[: place + 1].count("x") / (place + 1) for place in range(len(shown))]
    return ["none" if share == 0 else "some" if share < 0.5 else "half" for share in shares]


def _pair_balance(shown: Sequence) -> list[Value]:
    balances = [shown[: place + 1].count("(") - shown[: place + 1].count(")") for place in range(len(shown))]
    return ["-" if balance < 0 else "+" if balance else "0" for balance in balances]


def _is_shuffle_dyck(*pairs: str) -> Callable[[Sequence], bool]:
    def balanced(shown: Sequence) -> bool:
        courses = [
            [shown[: place + 1].count(left) - shown[: place + 1].count(right) for place in range(len(shown))]
            for left, right in pairs
        ]
        return all(course[-1] == 0 and min(course) >= 0 for course in courses)

    return balanced


def _by_frequency(shown: Sequence) -> list[Value]:
    return sorted(shown, key=lambda token: -shown.count(token))  # ties stay in the order of the sequence


def _detect(shown: Sequence, pattern: str = "aba") -> list[Value | None]:
    reach = len(pattern) - 1
    return [None if i < reach else "".join(shown[i - reach : i + 1]) == pattern for i in range(len(shown))]


def _induction(shown: Sequence) -> list[Value | None]:
    before = [[j for j in range(i) if shown[j] == token] for i, token in enumerate(shown)]
    return [shown[places[0] + 1] if len(places) == 1 else None for places in before]


def _pointer(shown: Sequence) -> list[int]:
    return [shown[token] for token in shown]


PROGRAMS = {
    "length": Program(
        summary="number of places that are not blank",
        tokens=("a", "b", "_"),
        outputs=_COUNTS,
        answer=_everywhere(lambda shown: len(shown) - shown.count("_")),
    ),
    "count": Program(
        summary="number of places with a", outputs=_COUNTS, answer=_everywhere(lambda shown: shown.count("a"))
    ),
    "parity": Program(
        summary="the number of places with a is odd",
        outputs=_TRUTH,
        answer=_everywhere(lambda shown: shown.count("a") % 2 == 1),
    ),
    "majority": Program(
        summary="there are more a than b",
        outputs=_TRUTH,
        answer=_everywhere(lambda shown: shown.count("a") > shown.count("b")),
    ),
    "hist": Program(
        summary="number of places with the token of this place",
        outputs=_COUNTS,
        answer=lambda shown: [shown.count(token) for token in shown],
    ),
    "double_hist": Program(
        summary="number of places whose token is as frequent as that of this place",
        outputs=_COUNTS,
        answer=lambda shown: [Counter(map(shown.count, shown))[shown.count(token)] for token in shown],
    ),
    "is_unique": Program(
        summary="the token of this place stands nowhere else",
        outputs=_TRUTH,
        answer=lambda shown: [shown.count(token) == 1 for token in shown],
    ),
    "count_less_freq": Program(
        summary="number of places whose token stands twice at most",
        outputs=_COUNTS,
        answer=_everywhere(lambda shown: sum(shown.count(token) <= 2 for token in shown)),
    ),
    "occurrence": Program(
        summary="number of places with this token so far",
        outputs=_COUNTS,
        causal=True,
        answer=lambda shown: [shown[: i + 1].count(token) for i, token in enumerate(shown)],
    ),
    "rank": Program(
        summary="number of places with a smaller token",
        tokens=(1, 2, 3),
        outputs=_COUNTS,
        answer=lambda shown: [sum(other < token for other in shown) for token in shown],
    ),
    "frac_prevs": Program(
        summary="x at none, at fewer than half or at half or more of the places so far",
        tokens=("x", "y"),
        outputs=("none", "some", "half"),
        answer=_frac_prevs,
    ),
    "pair_balance": Program(
        summary="sign of the number of ( so far minus that of )",
        tokens=("(", ")", "a"),
        outputs=("-", "0", "+"),
        answer=_pair_balance,
    ),
    "shuffle_dyck": Program(
        summary="brackets are balanced",
        tokens=("(", ")"),
        outputs=_TRUTH,
        n_shown=6,
        answer=_everywhere(_is_shuffle_dyck("()")),
    ),
    "shuffle_dyck2": Program(
        summary="brackets of both kinds are balanced, each kind by itself",
        tokens=("(", ")", "{", "}"),
        outputs=_TRUTH,
        n_shown=4,
        answer=_everywhere(_is_shuffle_dyck("()", "{}")),
    ),
    "reverse": Program(summary="the sequence in reverse", answer=lambda shown: list(shown[::-1])),
    "mirror": Program(
        summary="the token of this place stands at the mirrored place",
        outputs=_TRUTH,
        answer=lambda shown: [a == b for a, b in zip(shown, shown[::-1], strict=True)],
    ),
    "palindrome": Program(
        summary="the sequence is a palindrome",
        outputs=_TRUTH,
        answer=_everywhere(lambda shown: list(shown) == list(shown[::-1])),
    ),
    "sort_unique": Program(
        summary="the tokens in order, all different",
        tokens=(1, 2, 3, 4, 5),
        outputs=(1, 2, 3, 4, 5),
        n_shown=4,
        distinct=True,
        answer=lambda shown: sorted(shown),
    ),
    "sort": Program(
        summary="the tokens in order", tokens=(1, 2, 3), outputs=(1, 2, 3), answer=lambda shown: sorted(shown)
    ),
    "median": Program(
        summary="the token in the middle of the order",
        tokens=(1, 2, 3),
        outputs=(1, 2, 3),
        answer=_everywhere(lambda shown: sorted(shown)[2]),
    ),
    "sort_freq": Program(summary="the tokens by frequency, the most frequent first", answer=_by_frequency),
    "most_freq": Program(
        summary="the most frequent token, of several the first",
        answer=_everywhere(lambda shown: _by_frequency(shown)[0]),
    ),
    "dedup": Program(
        summary="the token where it stands first, - where it stood before",
        outputs=("a", "b", "c", "-"),
        answer=lambda shown: ["-" if token in shown[:i] else token for i, token in enumerate(shown)],
    ),
    "detect_pattern": Program(
        summary="the last three tokens are a b a", tokens=("a", "b"), outputs=_TRUTH, answer=_detect
    ),
    "induction": Program(
        summary="the token that followed this one when it stood here before, once",
        causal=True,
        answer=_induction,
    ),
    "shift": Program(summary="the token of the place before", answer=lambda shown: [None, *shown[:-1]]),
    "next_token": Program(summary="the token of the place after", answer=lambda shown: [*shown[1:], None]),
    "first": Program(summary="the first token", answer=_everywhere(lambda shown: shown[0])),
    "last": Program(summary="the last token", answer=_everywhere(lambda shown: shown[-1])),
    "pointer": Program(
        summary="the token at the place that this token names",
        tokens=_DIGITS,
        outputs=_DIGITS,
        n_shown=4,
        answer=_pointer,
    ),
    "pointer_twice": Program(
        summary="the token at the place that the token there names",
        tokens=_DIGITS,
        outputs=_DIGITS,
        n_shown=4,
        answer=lambda shown: [shown[token] for token in _pointer(shown)],
    ),
    "sum_with_previous": Program(
        summary="this token plus the one before, modulo 3",
        tokens=(0, 1, 2),
        outputs=(0, 1, 2),
        answer=lambda shown: [None, *((a + b) % 3 for a, b in pairwise(shown))],
    ),
}
"""The programs by name."""
