import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.systems.in_context_bigrams.markov import count_bigrams, shakespeare
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from tests.support import seeded

SMALL = count_bigrams("abacabadbcaacdbbadcbaddacbdcab")  # only cc never occurs
MICRO = InContextBigrams(counts=SMALL, n_triggers=2, length=40)
A, B, C, D = range(4)
FROZEN = [
    [[61, 1, 0, 0, 20, 39, 58, 63], [1, 9, 1, 9, 1, 9, 1, 9]],
    [[17, 32, 53, 49, 43, 13, 28, 43], [58, 1, 52, 49, 50, 50, 11, 1]],
]


def written_out(inputs: str, target: str, triggers: str, outputs: str, task: InContextBigrams = MICRO):
    """One sequence as letters: its inputs, the last target, triggers and outputs."""
    tokens, *known = (torch.tensor([["abcd".index(s) for s in text]]) for text in (inputs + target, triggers, outputs))
    return task.batch(tokens, *known)


def letters(tokens) -> str:
    return "".join("abcd"[token] for token in tokens.tolist())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": 2}, "task.length must be at least 3; got 2"),
        ({"n_triggers": 0}, "task.n_triggers must be from 1 to 64; got 0"),
        ({"n_triggers": 65}, "task.n_triggers must be from 1 to 64; got 65"),
        ({"first_rank": 61}, "task.first_rank must be from 0 to 60; got 61"),
        ({"held_out": 1.5}, "task.held_out must be from 0 to 1"),
        ({"held_out": 0.2, "outputs": "bigram"}, "held_out needs uniform outputs; set task.outputs to uniform"),
        ({"held_out": 0.01}, "must leave two tokens or more on either side; got 0.01 of 65"),
        ({"counts": ((1, 1, 0),)}, "must be 1 or more"),
    ],
)
def test_a_task_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        InContextBigrams(**fields)


# ---- sequences


def test_the_stream_of_sequences_is_frozen():
    random, fixed = InContextBigrams(length=8), InContextBigrams(length=8, triggers="fixed", loops=False)
    given = [task.sample(2, split="train", generator=seeded(5)).inputs.tolist() for task in (random, fixed)]
    assert given == FROZEN


@pytest.mark.parametrize("fields", [{}, {"triggers": "fixed", "first_rank": 3}, {"outputs": "bigram", "loops": False}])
def test_a_trigger_is_followed_by_its_output_everywhere_and_other_tokens_by_the_chain(fields):
    task = InContextBigrams(length=100, **fields)
    batch = task.sample(400, split="test", generator=seeded())
    latents, table = batch.latents, shakespeare()
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    stands = latents["occurrence"] > 0
    output = latents["outputs"].gather(1, latents["trigger"].clamp(min=0))
    assert (batch.targets == output)[stands].all()
    assert (batch.inputs == latents["triggers"].gather(1, latents["trigger"].clamp(min=0)))[stands].all()
    counts = torch.zeros(65, 65, dtype=torch.double)
    at = (batch.inputs[~stands], batch.targets[~stands])
    counts.index_put_(at, torch.ones(len(at[0]), dtype=torch.double), accumulate=True)
    assert (counts[table.transitions == 0] == 0).all()
    pvalues = []
    for row, share in zip(counts, table.transitions, strict=True):
        expected = share * row.sum()
        often = expected > 5
        if often.sum() > 1:
            rest = (row[~often].sum(), expected[~often].sum())
            observed, wanted = ([*x[often].tolist(), r.item()] for x, r in zip((row, expected), rest, strict=True))
            if rest[1] > 5:
                pvalues.append(chisquare(observed, wanted).pvalue)
    assert len(pvalues) > 10
    assert min(pvalues) > 1e-3 / len(pvalues)


def plain_sequences(task: InContextBigrams, n: int, rng: np.random.Generator) -> list[list[int]]:
    """One token after another with a choice each, as the task is described."""
    table, rows = task.bigrams, []
    unigram, transitions = table.unigram.numpy(), table.transitions.numpy()
    for _ in range(n):
        triggers = rng.choice(task.d_vocab, task.n_triggers, replace=False, p=unigram)
        output = {int(trigger): int(rng.integers(task.d_vocab)) for trigger in triggers}
        tokens = [int(rng.choice(task.d_vocab, p=unigram))]
        while len(tokens) <= task.length:
            drawn = int(rng.choice(task.d_vocab, p=transitions[tokens[-1]]))
            tokens.append(output.get(tokens[-1], drawn))
        rows.append(tokens)
    return rows


def test_sequences_are_those_of_a_plain_loop():
    """Counts of (first, second, third and last) token, one a sequence, so that they are independent."""
    n = 800
    task = replace(MICRO, length=12)
    batch = task.sample(n, split="train", generator=seeded())
    ours = torch.cat((batch.inputs, batch.targets[:, -1:]), 1).tolist()
    theirs = plain_sequences(task, n, np.random.default_rng(0))
    for places in ((0, 1, 2), (5, 6), (0, 12), (10, 12)):
        counts = [Counter(tuple(row[place] for place in places) for row in rows) for rows in (ours, theirs)]
        table = [[count[key] for key in set(counts[0] | counts[1])] for count in counts]
        assert chi2_contingency(table).pvalue > 1e-3


def test_random_triggers_are_drawn_one_after_another_without_replacement():
    task, n = replace(MICRO, n_triggers=3, length=3), 20_000
    batch = task.sample(n, split="train", generator=seeded())
    share = task.bigrams.unigram.tolist()
    drawn = Counter(frozenset(row) for row in batch.latents["triggers"].tolist())
    expected = Counter()
    for x, y, z in permutations(range(4), 3):
        left = 1 - share[x]
        expected[frozenset((x, y, z))] += n * share[x] * share[y] / left * share[z] / (left - share[y])
    assert chisquare([drawn[s] for s in expected], list(expected.values())).pvalue > 1e-3


def test_fixed_triggers_are_the_most_frequent_tokens_from_a_rank_on():
    symbols = shakespeare().symbols
    top = InContextBigrams(triggers="fixed").fixed_triggers
    assert "".join(symbols[i] for i in top) == " etoa"
    assert InContextBigrams(triggers="fixed", first_rank=2, n_triggers=3).fixed_triggers == top[2:]
    batch = InContextBigrams(triggers="fixed").sample(3, split="train", generator=seeded())
    assert batch.latents["triggers"].tolist() == [list(top)] * 3


@pytest.mark.parametrize("fields", [{}, {"loops": False}, {"outputs": "bigram"}, {"outputs": "bigram", "loops": False}])
def test_outputs_have_the_distribution_that_the_task_says(fields):
    task = replace(MICRO, triggers="fixed", n_triggers=1, length=3, **fields)
    (trigger,) = task.fixed_triggers
    n = 5000
    outputs = task.sample(n, split="train", generator=seeded()).latents["outputs"][:, 0]
    share = (
        torch.ones(4, dtype=torch.double) if task.outputs == "uniform" else task.bigrams.transitions[trigger].clone()
    )
    share[trigger] *= task.loops
    counts, possible = torch.bincount(outputs, minlength=4), share > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], n * share[possible] / share.sum()).pvalue > 1e-3


def test_held_out_tokens_are_outputs_in_the_test_split_only():
    task = InContextBigrams(held_out=0.2, length=3).for_seed(4)
    assert task.split_seed == 4
    assert replace(task, split_seed=7).for_seed(4).split_seed == 7
    assert InContextBigrams().for_seed(4) == InContextBigrams()
    seen = {
        split: set(task.sample(500, split=split, generator=seeded()).latents["outputs"].flatten().tolist())
        for split in ("train", "test", "all")
    }
    assert len(seen["test"]) == task.n_held_out == 13
    assert not seen["test"] & seen["train"]
    assert seen["all"] == seen["train"] | seen["test"] == set(range(65))
    assert task.may_be_output("test").nonzero()[:, 0].tolist() == sorted(seen["test"])
    assert not torch.equal(task.may_be_output("test"), InContextBigrams(held_out=0.2).for_seed(5).may_be_output("test"))
    with pytest.raises(InputError, match=r"task\.split_seed is not set.*for_seed"):
        InContextBigrams(held_out=0.2).sample(3, split="train", generator=seeded())


def test_sequences_cannot_be_enumerated():
    with pytest.raises(InputError, match="cannot be enumerated; draw samples"):
        MICRO.enumerate(split="train")


# ---- latents, skills


def test_latents_of_a_sequence_written_out():
    batch = written_out("dabcabca", "b", triggers="ac", outputs="ba")
    assert batch.latents["trigger"].tolist() == [[-1, 0, -1, 1, 0, -1, 1, 0]]
    assert batch.latents["occurrence"].tolist() == [[0, 1, 0, 1, 2, 0, 2, 3]]
    assert batch.latents["attended"].tolist() == [[-1, -1, -1, -1, 2, -1, 4, 5]]
    assert letters(batch.targets[0]) == "abcabcab"
    skills = MICRO.skills(batch)
    assert skills["in_context"].tolist() == [[False] * 4 + [True, False, True, True]]
    assert skills["global"].tolist() == [[True, False, True, False, False, True, False, False]]
    assert batch.scored.all()


def test_a_trigger_at_the_start_can_be_attended():
    batch = written_out("aaa", "a", triggers="ab", outputs="ac")
    assert batch.latents["attended"].tolist() == [[-1, 1, 2]]


def test_only_predictable_positions_are_scored_if_asked_for():
    task = replace(MICRO, loss_on="predictable")
    batch = written_out("dabcabca", "b", triggers="ac", outputs="ba", task=task)
    assert torch.equal(batch.scored, task.skills(batch)["in_context"])
    assert set(task.skills(batch)) == {"in_context"}
    logits = torch.zeros(1, 8, 4)
    logits[0, ~batch.scored[0], 0] = 100.0
    assert task.loss(logits, batch).item() == pytest.approx(math.log(4))


# ---- exact predictors


def test_references_of_a_sequence_written_out():
    task = replace(MICRO, triggers="fixed")
    q, other = task.fixed_triggers
    assert letters(torch.tensor([q, other])) == "ab"
    batch = written_out("dacac", "a", triggers="ab", outputs="cd", task=task)
    ideal = task.reference(batch, "in_context")[0]
    table = task.bigrams.transitions
    assert torch.equal(ideal[[0, 2, 4]], table[[D, C, C]])
    assert ideal[1].tolist() == [0.25] * 4  # the output is not known yet
    assert ideal[3].tolist() == [0, 0, 1, 0]
    assert torch.equal(task.reference(batch, "global_bigram")[0], table[batch.inputs[0]])
    assert torch.equal(task.reference(batch, "unigram")[0, 3], task.bigrams.unigram)
    broken = written_out("acad", "a", triggers="ab", outputs="cd", task=task)
    assert task.reference(broken, "in_context")[0, :, 0].isnan().tolist() == [False, False, False, True]


def test_hidden_triggers_are_weighed_by_what_followed():
    ideal = MICRO.reference(written_out("acacacac", "a", triggers="ab", outputs="cd"), "in_context")[0]
    assert (ideal[2::2, C].diff() > 0).all()  # every time c follows a it is surer
    differ = MICRO.reference(written_out("acad", "b", triggers="ab", outputs="cd"), "in_context")[0]
    torch.testing.assert_close(differ[2], ideal[2])
    a_again = MICRO.reference(written_out("acada", "b", triggers="ab", outputs="cd"), "in_context")[0, 4]
    torch.testing.assert_close(a_again, MICRO.bigrams.transitions[A])  # followed by c and d: no trigger


def test_no_predictor_beats_the_ideal_one_on_average():
    task = replace(MICRO, length=60)
    batch = task.sample(100, split="train", generator=seeded())
    at = {name: task.reference(batch, name).gather(-1, batch.targets[..., None]).log() for name in task.references}
    means = {name: -values.mean().item() for name, values in at.items()}
    assert means["in_context"] < min(means["unigram"], means["global_bigram"]) - 0.1
    learner = replace(task, n_triggers=1)  # believes that there is one trigger only
    wrong = learner.reference(batch, "in_context").gather(-1, batch.targets[..., None]).clamp(min=1e-3)
    assert means["in_context"] < -wrong.nan_to_num(nan=0.25).log().mean().item()


# ---- text


def test_a_text_is_read_as_a_sequence():
    task = InContextBigrams(triggers="fixed")
    text = "to be or not to be⏎"
    batch = task.parse(text)
    assert "".join(task.symbols[i] for i in batch.inputs[0].tolist()) == text.replace("⏎", "\n")
    assert torch.equal(batch.targets[0, :-1], batch.inputs[0, 1:])
    assert batch.scored[0].tolist() == [True] * 18 + [False]
    known = zip(batch.latents["triggers"][0].tolist(), batch.latents["outputs"][0].tolist(), strict=True)
    shown = {task.symbols[trigger]: task.symbols[output] if output >= 0 else None for trigger, output in known}
    assert shown == {" ": "b", "e": " ", "t": "o", "o": " ", "a": None}
    assert batch.latents["occurrence"][0, :4].tolist() == [1, 1, 1, 0]
    hidden = InContextBigrams().parse(text)
    assert (hidden.latents["trigger"] == -1).all()
    assert not InContextBigrams().skills(hidden)["in_context"].any()
    assert task.parse("a").inputs.shape == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "number of symbols must be from 1 to 40; got 0"), ("a" * 41, "got 41"), ("abe", "has no symbol 'e'")],
)
def test_a_text_that_cannot_be_read_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        MICRO.parse(text)


# ---- counterfactuals


def test_an_exchanged_output_stands_wherever_the_old_one_followed():
    clean = written_out("dabdabcab", "c", triggers="ac", outputs="ba")
    changed = MICRO.corrupt(clean, kind="exchange_output", generator=seeded())
    assert changed.latents["outputs"].tolist() == [[D, A]]  # d is the only token that is no trigger and not b
    assert letters(changed.inputs[0]) + letters(changed.targets[0])[-1:] == "daddadcadc"
    differs = clean.targets != changed.targets
    assert differs.tolist() == [[False, True, False, False, True, False, False, True, False]]
    assert MICRO.pair_report(clean, changed)["answer_changed"] == 1


def test_a_loop_comes_apart():
    clean = written_out("bbabcccccc", "c", triggers="ca", outputs="cb")
    changed = MICRO.corrupt(clean, kind="exchange_output", generator=seeded())
    new = "abcd"[int(changed.latents["outputs"][0, 0])]
    assert new in "bd"
    assert letters(torch.cat((changed.inputs[0], changed.targets[0, -1:]))) == f"bbabc{new}c{new}c{new}c"
    assert MICRO.pair_report(clean, changed)["answer_changed"] == 1


def test_a_sequence_in_which_no_answer_can_change_is_refused():
    none = written_out("dabcd", "b", triggers="ac", outputs="bd")  # every trigger stands there once
    assert MICRO.exchangeable(none).tolist() == [False]
    with pytest.raises(InputError, match=r"1 of 1 are not; select the others with task\.exchangeable\(batch\)"):
        MICRO.corrupt(none, kind="exchange_output", generator=seeded())


@pytest.mark.parametrize("fields", [{}, {"triggers": "fixed"}, {"loss_on": "predictable"}, {"held_out": 0.2}])
def test_exchanged_outputs_change_the_answer_and_keep_the_process(fields):
    task = InContextBigrams(length=100, **fields).for_seed(1)
    clean = task.sample(60, split="test", generator=seeded())
    clean = clean.select(task.exchangeable(clean) & task.skills(clean)["in_context"].any(1))
    changed = task.corrupt(clean, kind="exchange_output", generator=seeded(1))
    report = task.pair_report(clean, changed)
    assert report["answer_changed"] == 1
    assert report["impossible"] < 0.1
    assert 0 < report["tokens_changed"] < 0.2
    assert torch.equal(clean.scored, changed.scored)
    assert torch.equal(clean.latents["triggers"], changed.latents["triggers"])
    assert ((clean.latents["outputs"] != changed.latents["outputs"]).sum(1) == 1).all()
    assert task.may_be_output("test")[changed.latents["outputs"]].all()
    stands = changed.latents["occurrence"] > 0
    output = changed.latents["outputs"].gather(1, changed.latents["trigger"].clamp(min=0))
    assert (changed.targets == output)[stands].all()  # one output throughout
    assert len(PromptPairs.from_task(task, clean, kind="exchange_output", skill="in_context")) == len(clean)


def test_the_ideal_learner_follows_the_exchange():
    task = InContextBigrams(length=100, triggers="fixed")
    clean = task.sample(60, split="test", generator=seeded())
    changed = task.corrupt(clean, kind="exchange_output", generator=seeded(1))
    for batch in (clean, changed):
        right = task.reference(batch, "in_context").gather(-1, batch.targets[..., None])[..., 0]
        known = (batch.latents["occurrence"] > 1) & ~right.isnan()
        assert known.any()
        assert (right[known] == 1).all()
