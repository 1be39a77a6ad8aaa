import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.markov import count_bigrams
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall
from tests.support import seeded

SMALL = count_bigrams("abacabadbcaacdbbadcbaddacbdcab")
MICRO = NoisyRecall(counts=SMALL, n_triggers=2, length=40)
A, B, C, D, NOISE = range(5)
FROZEN = [
    [[17, 30, 33, 15, 20, 47, 45, 56], [58, 1, 65, 41, 58, 1, 65, 53]],
    [[61, 47, 65, 1, 0, 0, 0, 35], [1, 9, 1, 65, 1, 9, 1, 65]],
    [[2, 20, 10, 11, 19, 4, 14, 11], [6, 11, 5, 17, 12, 18, 15, 8]],
]


def written_out(inputs: str, target: str, triggers: str, outputs: str, task: NoisyRecall = MICRO):
    """One sequence as letters, z for noise: its inputs, the last target, triggers and outputs."""
    tokens, *known = (torch.tensor([["abcdz".index(s) for s in text]]) for text in (inputs + target, triggers, outputs))
    return task.batch(tokens, *known)


def letters(batch) -> str:
    return "".join("abcdz"[token] for token in torch.cat((batch.inputs[0], batch.targets[0, -1:])).tolist())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": 2}, "task.length must be at least 3; got 2"),
        ({"n_triggers": 65}, "task.n_triggers must be from 1 to 64; got 65"),
        ({"first_rank": 61}, "task.first_rank must be from 0 to 60; got 61"),
        ({"noise": 1.1}, "task.noise must be from 0 to 1; got 1.1"),
        ({"noise": math.nan}, "task.noise must be from 0 to 1; got nan"),
        ({"n_tokens": 1}, "task.n_tokens must be from 2 to 1024; got 1"),
        ({"n_tokens": 8, "n_triggers": 8}, "task.n_triggers must be from 1 to 7; got 8"),
        ({"n_tokens": 8, "counts": SMALL}, "leave task.n_tokens out, or task.counts"),
    ],
)
def test_a_task_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        NoisyRecall(**fields)


def test_the_noise_token_is_the_last_one():
    assert (NoisyRecall().noise_token, NoisyRecall().d_vocab, NoisyRecall().symbols[-1]) == (65, 66, "¤")
    uniform = NoisyRecall(n_tokens=12)
    assert (uniform.noise_token, uniform.d_vocab, uniform.symbols) == (12, 13, (*map(str, range(12)), "¤"))
    assert uniform.fixed_triggers == (0, 1, 2, 3, 4)
    assert replace(uniform, first_rank=4).fixed_triggers == (4, 5, 6, 7, 8)
    assert uniform.for_seed(3) == uniform


# ---- sequences


def test_the_stream_of_sequences_is_frozen():
    given = [
        replace(task, length=8).sample(2, split="train", generator=seeded(5)).inputs.tolist()
        for task in (NoisyRecall(), NoisyRecall(triggers="random", loops=False), NoisyRecall(n_tokens=20, noise=0.3))
    ]
    assert given == FROZEN


@pytest.mark.parametrize("fields", [{}, {"triggers": "random", "noise": 0.2}, {"loops": False, "noise": 1.0}])
def test_what_follows_a_trigger_is_its_output_or_noise(fields):
    task = replace(MICRO, **fields)
    batch = task.sample(1000, split="train", generator=seeded())
    found = batch.latents
    stands = found["occurrence"] > 0
    output = found["outputs"].gather(1, found["trigger"].clamp(min=0))
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert ((batch.targets == output) | found["is_noise"])[stands].all()
    assert torch.equal(found["is_noise"], stands & (batch.targets == NOISE))
    assert (batch.targets[~stands] != NOISE).all()
    assert (found["outputs"] != NOISE).all()
    n, share = int(stands.sum()), task.noise
    assert abs(found["is_noise"].sum().item() - n * share) <= 4 * (n * share * (1 - share)) ** 0.5
    if not task.loops:
        assert (found["outputs"] != found["triggers"]).all()


@pytest.mark.parametrize("task", [MICRO, NoisyRecall(n_tokens=6, n_triggers=2, length=40)])
def test_other_tokens_are_followed_as_the_chain_says_and_noise_by_the_unigram(task):
    batch = task.sample(1000, split="train", generator=seeded())
    free = batch.latents["occurrence"] == 0
    rows = [*task.chain[:-1, :-1], task.unigram]
    pvalues = []
    for token, share in enumerate(rows):
        counts = torch.bincount(batch.targets[free & (batch.inputs == token)], minlength=task.d_vocab)[:-1]
        assert counts[share == 0].sum() == 0
        if counts.sum():
            pvalues.append(chisquare(counts[share > 0], share[share > 0] * counts.sum()).pvalue)
    assert len(pvalues) == len(rows) - len(task.fixed_triggers)
    assert min(pvalues) > 1e-3 / len(pvalues)


def plain_sequences(task: NoisyRecall, n: int, rng: np.random.Generator) -> list[list[int]]:
    """One token after another with a choice each, as the task is described."""
    unigram, transitions = task.unigram.numpy(), task.chain[:-1, :-1].numpy()
    n_symbols, rows = len(unigram), []
    for _ in range(n):
        triggers = rng.choice(n_symbols, task.n_triggers, replace=False, p=unigram)
        output = {int(trigger): int(rng.integers(n_symbols)) for trigger in triggers}
        tokens = [int(rng.choice(n_symbols, p=unigram))]
        while len(tokens) <= task.length:
            last = tokens[-1]
            if last in output:
                tokens.append(task.noise_token if rng.random() < task.noise else output[last])
            else:
                tokens.append(int(rng.choice(n_symbols, p=unigram if last == task.noise_token else transitions[last])))
        rows.append(tokens)
    return rows


def test_sequences_are_those_of_a_plain_loop():
    task, n = replace(MICRO, length=12, triggers="random"), 800
    batch = task.sample(n, split="train", generator=seeded())
    ours = torch.cat((batch.inputs, batch.targets[:, -1:]), 1).tolist()
    theirs = plain_sequences(task, n, np.random.default_rng(0))
    for places in ((0, 1), (5, 6), (0, 12), (10, 12)):
        counts = [Counter(tuple(row[place] for place in places) for row in rows) for rows in (ours, theirs)]
        table = [[count[key] for key in set(counts[0] | counts[1])] for count in counts]
        assert chi2_contingency(table).pvalue > 1e-3


def test_sequences_cannot_be_enumerated():
    with pytest.raises(InputError, match="cannot be enumerated; draw samples"):
        MICRO.enumerate(split="train")


# ---- latents, skills


def test_latents_of_a_sequence_written_out():
    batch = written_out("dazabcabca", "z", triggers="ac", outputs="ba")
    found = {name: values[0].tolist() for name, values in batch.latents.items()}
    assert found["trigger"] == [-1, 0, -1, 0, -1, 1, 0, -1, 1, 0]
    assert found["occurrence"] == [0, 1, 0, 2, 0, 1, 3, 0, 2, 4]
    assert found["attended"] == [-1, -1, -1, 2, -1, -1, 4, -1, 6, 7]
    assert found["is_noise"] == [False, True, *[False] * 7, True]
    assert found["shown"] == [0, 0, 0, 0, 0, 0, 1, 0, 1, 2]
    skills = {name: mask[0].nonzero()[:, 0].tolist() for name, mask in MICRO.skills(batch).items()}
    assert skills == {"in_context": [6, 8], "noise": [1, 9], "global": [0, 2, 4, 7]}
    assert batch.scored.all()


# ---- exact predictors


def test_references_of_a_sequence_written_out():
    assert MICRO.fixed_triggers == (A, B)
    batch = written_out("dazacacb", "d", triggers="ab", outputs="cd")
    ideal, table = MICRO.reference(batch, "in_context")[0], MICRO.chain[:-1, :-1]
    for place, expected in {
        0: [*table[D].tolist(), 0],
        1: [0.125] * 4 + [0.5],
        2: [*MICRO.unigram.tolist(), 0],
        3: [0.125] * 4 + [0.5],  # noise followed, the output is still unknown
        5: [0, 0, 0.5, 0, 0.5],
        7: [0.125] * 4 + [0.5],
    }.items():
        assert ideal[place].tolist() == pytest.approx(expected), place
    average = MICRO.reference(batch, "global_bigram")[0]
    assert average[5].tolist() == average[1].tolist() == pytest.approx([0.125] * 4 + [0.5])
    assert average[0].tolist() == pytest.approx([*table[D].tolist(), 0])
    often = MICRO.reference(batch, "unigram")[0]
    assert (often == often[0]).all()
    triggers = often[0, A] + often[0, B]
    assert often[0, NOISE].item() == pytest.approx(triggers.item() / 2)  # half of all triggers are followed by noise


def test_the_long_run_unigram_is_that_of_samples():
    task = NoisyRecall(n_tokens=30, n_triggers=3, length=300, noise=0.5)
    batch = task.sample(300, split="train", generator=seeded())
    shares = torch.bincount(batch.targets.flatten(), minlength=31) / batch.targets.numel()
    expected = task.reference(batch.select(slice(0, 1)), "unigram")[0, 0]
    assert shares[30].item() == pytest.approx(expected[30].item(), rel=0.1)


def test_hidden_triggers_give_themselves_away_by_noise():
    task = replace(MICRO, triggers="random")
    ideal = task.reference(written_out("azacabdab", "c", triggers="ad", outputs="cb", task=task), "in_context")[0]
    assert ideal[2].tolist() == pytest.approx([0.125] * 4 + [0.5])
    broken = task.reference(written_out("azbzczab", "c", triggers="ad", outputs="cb", task=task), "in_context")[0]
    assert broken[:, 0].isnan().tolist() == [False] * 5 + [True] * 3  # there are two triggers, not three


# ---- text


def test_a_text_is_read_with_its_noise():
    batch = MICRO.parse("a¤acb")
    assert batch.inputs.tolist() == [[A, NOISE, A, C, B]]
    assert batch.targets.tolist() == [[NOISE, A, C, B, 0]]
    assert batch.scored.tolist() == [[True] * 4 + [False]]
    assert batch.latents["outputs"].tolist() == [[C, -1]]
    assert batch.latents["is_noise"].tolist() == [[True, False, False, False, False]]
    numbers = NoisyRecall(n_tokens=12)
    assert numbers.parse("0 11 ¤ 3").inputs.tolist() == [[0, 11, 12, 3]]
    newline = NoisyRecall().parse("to⏎¤").inputs[0].tolist()
    assert [NoisyRecall().symbols[token] for token in newline] == ["t", "o", "\n", "¤"]
    hidden = replace(MICRO, triggers="random").parse("abab")
    assert (hidden.latents["trigger"] == -1).all()
    assert (hidden.latents["shown"] == 0).all()


@pytest.mark.parametrize(
    ("text", "message"), [("", "must be from 1 to 40; got 0"), ("a" * 41, "got 41"), ("abe", "no symbol 'e'; it has")]
)
def test_a_text_that_cannot_be_read_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        MICRO.parse(text)


# ---- counterfactuals


def test_an_exchanged_output_leaves_the_noise_where_it_is():
    clean = written_out("dazabzabca", "b", triggers="ac", outputs="ba")
    changed = MICRO.corrupt(clean, kind="exchange_output", generator=seeded())
    assert changed.latents["outputs"].tolist() == [[D, A]]
    assert letters(changed) == "dazadzadcad"
    assert MICRO.pair_report(clean, changed) == {"answer_changed": 1, "impossible": 1, "tokens_changed": 3 / 11}  # dz


@pytest.mark.parametrize("fields", [{}, {"triggers": "random"}])
def test_exchanged_outputs_change_the_answer_and_keep_the_process(fields):
    task = NoisyRecall(length=100, **fields)
    clean = task.sample(60, split="test", generator=seeded())
    clean = clean.select(task.exchangeable(clean))
    assert len(clean) > 50
    changed = task.corrupt(clean, kind="exchange_output", generator=seeded(1))
    report = task.pair_report(clean, changed)
    assert report["answer_changed"] == 1
    assert report["impossible"] < 0.1
    assert torch.equal(clean.targets == 65, changed.targets == 65)
    found = changed.latents
    stands = found["occurrence"] > 0
    output = found["outputs"].gather(1, found["trigger"].clamp(min=0))
    assert ((changed.targets == output) | found["is_noise"])[stands].all()
    none = written_out("azabd", "c", triggers="ac", outputs="ba")  # the output is shown once and not asked for again
    assert MICRO.exchangeable(none).tolist() == [False]
    with pytest.raises(InputError, match="is shown and asked for again; 1 of 1 are not"):
        MICRO.corrupt(none, kind="exchange_output", generator=seeded())
