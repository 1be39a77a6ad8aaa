"""Questions: solved from their text, worded as in the source, drawn evenly and from nothing but their seed."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from scipy.stats import binomtest

import mnemoscope as ms
from mnemoscope.systems.retrieval_prompts import questions as words
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS, questions
from tests.support import global_generators_untouched
from tests.systems.retrieval_prompts.examples import EXAMPLES
from tests.systems.retrieval_prompts.solver import solve

CELLS = [
    *((name, d) for name in ("equations", "lives-with") for d in (1, 2, 5, 6)),
    *((name, None) for name in ("kingdoms", "functions", "relatives")),
]
each_cell = pytest.mark.parametrize(("name", "difficulty"), CELLS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_solver_solves_the_examples_of_the_source(name):
    text, correct, acceptable = EXAMPLES[name]
    assert solve(text) == correct
    (question,) = questions(name, 1)
    assert ", ".join(question.acceptable) == acceptable


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_question_has_the_lines_of_the_example_in_other_words(name):
    """Kinds of lines, in their order; a word, a letter or a number stands for any other."""
    (question,) = questions(name, 1)
    fixed = {"lives", "in", "with", "believe", "eat", "contains", "causes", "is", "live", "their", "works", "as", "an"}
    fixed |= {"mother", "sister", "father", "brother", "What", "Who", "Where", "does", "has", "the", "value", "of"}

    def form(text: str) -> list[str]:
        shapes = []
        for line in text.splitlines():
            line = re.sub(r"(mother|sister|father|brother)s\b", "relatives", line)  # whose relatives, is drawn
            asked, _, instruction = line.partition("? ")
            shape = re.sub(r"\w+", lambda w: w[0] if w[0] in fixed or w[0] == "relatives" else "_", asked)
            shapes.append(f"{shape}? {instruction}")
        return shapes

    assert form(question.text) == form(EXAMPLES[name][0])


@each_cell
def test_the_answer_follows_from_the_text(name, difficulty):
    made = questions(name, 60, difficulty=difficulty, seed=3)
    for question in made:
        assert solve(question.text) == question.correct
        assert question.acceptable.count(question.correct) == 1
        assert len(set(question.acceptable)) == len(question.acceptable)
    assert len({question.text for question in made}) == 60 or difficulty == 1


@pytest.mark.parametrize(("name", "largest"), [("equations", 26), ("lives-with", 26)])
@pytest.mark.parametrize("n_chains", [2, 3, 6, 13])
def test_any_number_of_steps_and_chains_that_the_names_allow(name, largest, n_chains):
    steps = largest // n_chains
    for question in questions(name, 5, difficulty=steps, n_chains=n_chains):
        *lines, _ = question.text.splitlines()
        assert len(lines) == steps * n_chains
        assert solve(question.text) == question.correct
        assert len(question.acceptable) == n_chains
    with pytest.raises(ms.InputError, match=f"takes {(steps + 1) * n_chains}. Take fewer steps"):
        questions(name, 1, difficulty=steps + 1, n_chains=n_chains)


@pytest.mark.parametrize("name", ["equations", "lives-with"])
def test_chains_are_interleaved_and_reach_from_the_first_step_to_the_last(name):
    for question in questions(name, 30, difficulty=5):
        *lines, asked = question.text.splitlines()
        pairs = [re.fullmatch(r"(\w+) (?:=|lives in|lives with) (\w+)", line).groups() for line in lines]
        steps = [pairs[i : i + 4] for i in range(0, 20, 4)]
        assert len({first for first, _ in pairs}) == 20, "every name is said once to be somebody's"
        assert {value for _, value in steps[0]} == set(question.acceptable)
        for earlier, later in pairwise(steps):
            assert {b for _, b in later} == {a for a, _ in earlier}, "every chain goes on at every step"
        assert re.search(r"(?:of|does) (\w+)", asked)[1] in {a for a, _ in steps[-1]}


def test_lines_of_a_step_are_not_in_the_order_of_the_chains():
    """In a question of 5 steps the order is that of the step before in one of 24 cases."""
    same = 0
    for question in questions("equations", 300):
        pairs = [line.split(" = ") for line in question.text.splitlines()[:20]]
        steps = [pairs[i : i + 4] for i in range(0, 20, 4)]
        same += sum([a for a, _ in x] == [b for _, b in y] for x, y in pairwise(steps))
    assert binomtest(same, 1200, 1 / 24).pvalue > 0.001


@each_cell
def test_every_answer_is_as_likely_as_any_other(name, difficulty):
    made = questions(name, 800, difficulty=difficulty, seed=1)
    counts = Counter(question.correct for question in made)
    for answer in made[0].acceptable:
        assert binomtest(counts[answer], 800, 1 / len(made[0].acceptable)).pvalue > 1e-4, answer


@pytest.mark.parametrize(("name", "n_positions"), [("equations", 4), ("lives-with", 4), ("relatives", 16)])
def test_the_place_of_the_answer_says_nothing(name, n_positions):
    """The line of the first step that holds it is as likely as any other."""
    made = questions(name, 800, seed=2)
    places = Counter(
        next(i for i, line in enumerate(question.text.splitlines()) if line.rstrip(".").endswith(question.correct))
        for question in made
    )
    assert set(places) == set(range(n_positions))
    assert all(binomtest(n, 800, 1 / n_positions).pvalue > 1e-4 for n in places.values())


@each_cell
def test_questions_follow_their_seed_and_no_other_generator(name, difficulty):
    with global_generators_untouched():
        few, many, other = (questions(name, n, difficulty=difficulty, seed=s) for n, s in ((3, 0), (5, 0), (5, 1)))
    assert many[:3] == few
    assert [question.number for question in many] == [0, 1, 2, 3, 4]
    assert {q.text for q in many} != {q.text for q in other}


def test_no_answer_is_the_beginning_of_another():
    for list_of in (words.NAMES, words.CITIES, words.COUNTRIES, tuple(map(str, range(4)))):
        assert len(set(list_of)) == len(list_of)
        assert [(a, b) for a in list_of for b in list_of if a != b and b.startswith(a)] == []


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("riddles", {}, "equations, lives-with, kingdoms, functions, relatives"),
        ("equations", {"difficulty": 7}, "26 letters or names.* takes 28"),
        ("equations", {"difficulty": 0}, "difficulty must be at least 1"),
        ("lives-with", {"n_chains": 1}, "n_chains must be at least 2"),
        ("kingdoms", {"difficulty": 3}, "kingdoms has one difficulty and 4 chains; got difficulty 3"),
        ("relatives", {"n_chains": 3}, "and 3 chains. Leave both out"),
    ],
)
def test_what_cannot_be_asked_is_refused(name, options, named):
    with pytest.raises(ms.InputError, match=named):
        questions(name, 1, **options)


def test_two_formulations_are_conditional():
    assert [name for name, form in FORMULATIONS.items() if form.conditional] == ["functions", "relatives"]
