"""Questions whose answer takes several steps of retrieval, with interleaved chains, and their acceptable answers.

Five formulations, worded as in the source's appendix A. Three are plain retrieval: equations, lives-with and kingdoms.
Two are conditional, since a step depends on two values that were retrieved: functions and relatives.

A question has as many chains as acceptable answers (of relatives sixteen residences on four persons), and only one of
them is asked about. Chains are interleaved: the lines of a step stand together. Of equations, lives-with and kingdoms
the lines of a step are in random order, and who belongs to which chain is drawn at every step; of functions and
relatives the order of the lines is fixed where the example's is. That a bijection is drawn at every step, also between
kingdoms and beliefs, is how the one example is read here.

The difficulty D is the number of steps of a chain: D lines each in equations and lives-with, the first of which gives
the value. In the source the difficulty of the other three is fixed.

Words are those of the source's examples; the first two lists go on where those end. No word begins another one of its
list, so that no answer is the beginning of another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from mnemoscope import InputError, generator
from mnemoscope.core import in_range, one_of

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")

NAMES = (
    "Alice", "Bob", "Charlie", "David", "Eve", "Frank", "Grace", "Henry", "Isabelle", "Jack", "Kate", "Larry", "Mary",
    "Nick", "Olivia", "Peter", "Queen", "Rose", "Sam", "Tom", "Ursula", "Victor", "Wendy", "Xavier", "Yvonne", "Zach",
)  # fmt: skip
CITIES = (
    "Amsterdam", "Berlin", "Cairo", "Delhi", "Edinburgh", "Florence", "Geneva", "Helsinki", "Istanbul", "Jakarta",
    "Kyoto", "Lisbon", "Madrid", "Nairobi", "Oslo", "Paris", "Quito", "Rome", "Sydney", "Tokyo", "Utrecht", "Vienna",
    "Warsaw", "Xiamen", "York", "Zagreb",
)  # fmt: skip

KINGDOMS = {"Novaria": "Novarians", "Silvania": "Silvanians", "Aurora": "Aurorans", "Florinia": "Florinians"}
"""By kingdom, who lives there."""
BELIEFS = {
    "harmonianism": "Harmonianists",
    "celestianism": "Celestianists",
    "elysianism": "Elysianists",
    "luminism": "Luminists",
}
"""By belief, who holds it."""
MEATS = ("lamb", "chicken", "pork", "beef")
SUBSTANCES = ("Zephyrium", "Nephryon", "Virellium", "Astralyte")
CONDITIONS = ("Chronogy", "Synthemia", "Somnosis", "Aetherflux")

PEOPLE = ("John", "Chris", "Diana", "Eve")
RELATIVES = {
    "mother": ("Jane", "Penny", "Nancy", "Lily"),
    "sister": ("Olivia", "Dana", "Isabelle", "Cathy"),
    "father": ("Ed", "Adam", "Hank", "Fred"),
    "brother": ("Mike", "George", "Bob", "Kevin"),
}
"""By relation the names; whose relative each is, is drawn."""
JOBS = {"doctor": "a doctor", "lawyer": "a lawyer", "teacher": "a teacher", "engineer": "an engineer"}
"""By profession, what somebody works as."""
COUNTRIES = (
    "Argentina", "Brazil", "Canada", "Denmark", "England", "France", "Germany", "Hungary", "Italy", "Japan", "Kenya",
    "Laos", "Mexico", "Norway", "Peru", "Qatar",
)  # fmt: skip


N_CHAINS = 4
"""Of the source."""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A text to be answered, with what is right and what counts as an answer."""

    text: str
    """What is given and asked, and how to answer."""
    correct: str
    acceptable: tuple[str, ...]
    """In their order, the correct one among them; chance is one in so many."""
    formulation: str
    difficulty: int | None = None
    """Steps of a chain; none: the formulation has one difficulty."""
    seed: int = 0
    number: int = 0
    """Among those of the seed."""


@dataclass(frozen=True, kw_only=True)
class Formulation:
    """A way to put the retrieval problem into words."""

    write: Callable[[torch.Generator, int, int], tuple[list[str], str, str, Sequence[str]]]
    """Takes a generator, a difficulty and a number of chains; gives lines, question, correct and acceptable answers."""
    conditional: bool = False
    """Whether a step depends on two retrieved values."""
    grows: bool = False
    """Whether difficulty and number of chains can be chosen."""
    largest: int = N_CHAINS
    """How many names there are: steps times chains, if it grows."""


def questions(
    formulation: str, n: int, *, difficulty: int | None = None, n_chains: int = N_CHAINS, seed: int = 0
) -> tuple[Question, ...]:
    """The first `n` questions of a seed; each has a stream of its own, so that more of them begin with the same.

    Equations and lives-with have chains of `difficulty` steps (none: 5, as in the source) and `n_chains` interleaved
    chains; the others have one difficulty, and four chains. An `InputError` says so where letters or names are too few.
    """
    one_of("formulation", formulation, FORMULATIONS)
    in_range("n", n, 1, float("inf"))
    form = FORMULATIONS[formulation]
    steps = _checked(formulation, form, difficulty, n_chains)
    made = []
    for number in range(n):
        stream = generator(seed, "retrieval prompts", formulation, steps, n_chains, number)
        lines, asked, correct, acceptable = form.write(stream, steps, n_chains)
        made.append(
            Question(
                text="\n".join([*lines, asked]),
                correct=correct,
                acceptable=tuple(acceptable),
                formulation=formulation,
                difficulty=steps if form.grows else None,
                seed=seed,
                number=number,
            )
        )
    return tuple(made)


def _checked(name: str, form: Formulation, difficulty: int | None, n_chains: int) -> int:
    """The number of steps, if there can be so many."""
    if not form.grows:
        if difficulty is not None or n_chains != N_CHAINS:
            raise InputError(
                f"{name} has one difficulty and {N_CHAINS} chains; got difficulty {difficulty} and {n_chains} chains. "
                "Leave both out, or take equations or lives-with"
            )
        return 0
    steps = 5 if difficulty is None else difficulty
    in_range("difficulty", steps, 1, float("inf"))
    in_range("n_chains", n_chains, 2, float("inf"))
    if steps * n_chains > form.largest:
        raise InputError(
            f"{name} has {form.largest} letters or names, one for every step of every chain; difficulty {steps} with "
            f"{n_chains} chains takes {steps * n_chains}. Take fewer steps or fewer chains"
        )
    return steps


def _shuffled(of: Sequence[_T], stream: torch.Generator) -> list[_T]:
    return [of[i] for i in torch.randperm(len(of), generator=stream).tolist()]


def _any(of: Sequence[_T], stream: torch.Generator) -> _T:
    return of[int(torch.randint(len(of), (1,), generator=stream))]


def _chains(
    stream: torch.Generator, names: Sequence[str], values: Sequence[str], steps: int, first: str, later: str
) -> tuple[list[str], str, str]:
    """Lines in which every step gives its names to the chains anew; somebody at the last step, and their value."""
    n, holders, lines = len(values), list(values), []
    value_of = {value: value for value in values}
    for step in range(steps):
        here = _shuffled(names[step * n : (step + 1) * n], stream)
        wording = later if step else first
        lines += _shuffled([wording.format(a=a, b=b) for a, b in zip(here, holders, strict=True)], stream)
        value_of = {a: value_of[b] for a, b in zip(here, holders, strict=True)}
        holders = here
    asked = _any(sorted(holders), stream)
    return lines, asked, value_of[asked]


def _equations(stream: torch.Generator, steps: int, n_chains: int) -> tuple[list[str], str, str, Sequence[str]]:
    values = [str(value) for value in range(n_chains)]
    lines, asked, correct = _chains(stream, LETTERS, values, steps, "{a} = {b}", "{a} = {b}")
    end = f"What is the value of {asked}? Say directly only the numeric value, without any other words."
    return lines, end, correct, values


def _lives_with(stream: torch.Generator, steps: int, n_chains: int) -> tuple[list[str], str, str, Sequence[str]]:
    cities = CITIES[:n_chains]
    lines, asked, correct = _chains(stream, NAMES, cities, steps, "{a} lives in {b}", "{a} lives with {b}")
    end = f"Where does {asked} live? Say directly only the name of the city, without any other words."
    return lines, end, correct, cities


def _kingdoms(stream: torch.Generator, steps: int, n_chains: int) -> tuple[list[str], str, str, Sequence[str]]:
    """Asked from the other end: the condition leads back to a name."""
    people = sorted(NAMES[:n_chains])
    kingdoms, beliefs = list(KINGDOMS), list(BELIEFS)
    meats, substances, conditions = list(MEATS), list(SUBSTANCES), list(CONDITIONS)
    levels = [_shuffled(each, stream) for each in (people, kingdoms, beliefs, meats, substances, conditions)]
    who, where, belief, meat, substance, condition = levels
    steps_of = (
        [f"{a} lives in {b}." for a, b in zip(who, where, strict=True)],
        [f"{KINGDOMS[a]} believe in {b}." for a, b in zip(where, belief, strict=True)],
        [f"{BELIEFS[a]} eat {b}." for a, b in zip(belief, meat, strict=True)],
        [f"{a.capitalize()} contains {b}." for a, b in zip(meat, substance, strict=True)],
        [f"{a} causes {b}." for a, b in zip(substance, condition, strict=True)],
    )
    asked = _any(CONDITIONS, stream)
    lines = [line for step in steps_of for line in _shuffled(step, stream)]
    end = f"Who has {asked}? Say directly the name without other words."
    return lines, end, who[condition.index(asked)], people


def _functions(stream: torch.Generator, steps: int, n_chains: int) -> tuple[list[str], str, str, Sequence[str]]:
    """Permutations as tables, other names for them, and names for their arguments, in the order of the alphabet."""
    n = n_chains
    values = [str(value) for value in range(n)]
    names, aliases, arguments = (LETTERS[i * n : (i + 1) * n] for i in range(3))
    tables = {name: _shuffled(values, stream) for name in names}
    meant = dict(zip(aliases, _shuffled(names, stream), strict=True))
    value_of = dict(zip(arguments, _shuffled(values, stream), strict=True))
    lines = [f"{name}({x}) = {y}" for name, table in tables.items() for x, y in zip(values, table, strict=True)]
    lines += [f"{alias} = {name}" for alias, name in meant.items()]
    lines += [f"{argument} = {value}" for argument, value in value_of.items()]
    function, argument = _any(aliases, stream), _any(arguments, stream)
    end = f"What is the value of {function}({argument})? Say directly only the numeric value, without any other words."
    return lines, end, tables[meant[function]][int(value_of[argument])], values


def _relatives(stream: torch.Generator, steps: int, n_chains: int) -> tuple[list[str], str, str, Sequence[str]]:
    """A story: where somebody lives depends on the profession, which says with which relative."""
    relatives = {relation: _shuffled(names, stream) for relation, names in RELATIVES.items()}
    everybody = [name for names in relatives.values() for name in names]
    country = dict(zip(everybody, _shuffled(COUNTRIES, stream), strict=True))
    job_of = dict(zip(PEOPLE, _shuffled(list(JOBS), stream), strict=True))
    relation_of = dict(zip(JOBS, _shuffled(list(RELATIVES), stream), strict=True))
    lines = _shuffled([f"{name} lives in {where}." for name, where in country.items()], stream)
    lines += [
        f"{person}s {relation} is {names[i]}."
        for i, person in enumerate(PEOPLE)
        for relation, names in relatives.items()
    ]
    lines += [f"{job.capitalize()}s live with their {relation}s." for job, relation in relation_of.items()]
    lines += [f"{person} works as {JOBS[job]}." for person, job in job_of.items()]
    asked = _any(PEOPLE, stream)
    relative = relatives[relation_of[job_of[asked]]][PEOPLE.index(asked)]
    end = f"Where does {asked} live? Say directly only the name, without any other words."
    return lines, end, country[relative], COUNTRIES


FORMULATIONS = {
    "equations": Formulation(write=_equations, grows=True, largest=len(LETTERS)),
    "lives-with": Formulation(write=_lives_with, grows=True, largest=len(NAMES)),
    "kingdoms": Formulation(write=_kingdoms),
    "functions": Formulation(write=_functions, conditional=True),
    "relatives": Formulation(write=_relatives, conditional=True),
}
"""By name, in the source's order."""
