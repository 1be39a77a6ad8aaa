"""Scores against whole forward passes, batches against single questions, sampling against probabilities."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.systems.retrieval_prompts import reading
from mnemoscope.systems.retrieval_prompts.questions import questions
from mnemoscope.systems.retrieval_prompts.reading import ask
from mnemoscope.systems.retrieval_prompts.scoring import Sampling, accepted, answers, could_become
from tests.support import global_generators_untouched

MIXED = [
    *questions("equations", 3, difficulty=1),
    *questions("lives-with", 3, difficulty=3),
    *questions("kingdoms", 2),
    *questions("functions", 2),
    *questions("relatives", 1),
]
EASY = questions("equations", 12, difficulty=2)


@pytest.fixture
def talkative(model):
    """The model with digits and ends far more probable than they are."""
    likely = model.tokenizer.convert_tokens_to_ids([*"0123", "<end>", "\n"])
    before = model.unembed.b_U.data.clone()
    model.unembed.b_U.data[likely] += 15
    yield model
    model.unembed.b_U.data.copy_(before)


def scores(found):
    """By question."""
    return {each.question: each.log_probs for batch in found for each in batch}


@torch.no_grad()
def whole(model, asked) -> list[float]:
    """One pass over question and answer each."""
    sums = []
    for answer in asked.answers:
        tokens = torch.tensor([[*asked.prompt, *answer]])
        log_probs = model(tokens)[0].log_softmax(-1)
        at = range(len(asked.prompt) - 1, tokens.shape[1] - 1)
        sums.append(sum(float(log_probs[i, token]) for i, token in zip(at, answer, strict=True)))
    return sums


def test_scores_are_those_of_whole_forward_passes(model):
    asked = ask(model.tokenizer, MIXED)
    assert max(each.longest for each in asked) >= 3
    found = scores(answers(model, asked))
    assert len(found) == len(MIXED)
    for each in asked:
        assert np.allclose(found[each.question], whole(model, each), atol=1e-4)


def test_batches_give_what_single_questions_give(model):
    asked = ask(model.tokenizer, MIXED)
    together = scores(answers(model, asked))
    for budget in (1, 2**20):
        apart = list(answers(model, asked, max_bytes=budget))
        assert len(apart) == len(MIXED) or budget > 1
        for question, values in scores(apart).items():
            assert np.allclose(values, together[question], atol=1e-4)


def test_a_model_without_a_template_is_scored_too(base):
    asked = ask(base.tokenizer, MIXED[:6])
    found = scores(answers(base, asked))
    for each in asked:
        assert np.allclose(found[each.question], whole(base, each), atol=1e-4)


def test_the_chosen_answer_has_the_largest_log_probability(llama):
    for batch in answers(llama, ask(llama.tokenizer, EASY)):
        for each in batch:
            assert each.chosen == each.question.acceptable[int(np.argmax(each.log_probs))]


def test_nothing_is_left_behind(llama):
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    with global_generators_untouched():
        list(answers(llama, ask(llama.tokenizer, EASY)))
        list(answers(llama, ask(llama.tokenizer, EASY), sampling=Sampling(tries=2)))
    assert all(torch.equal(value, before[name]) for name, value in llama.state_dict().items())


def test_samples_do_not_depend_on_the_batch_and_follow_their_seed(talkative):
    asked = ask(talkative.tokenizer, EASY)

    def drawn(seed: int = 0, **options):
        batches = answers(talkative, asked, sampling=Sampling(tries=5, temperature=4.0, seed=seed), **options)
        return {each.question.number: (each.sampled, each.tries) for batch in batches for each in batch}

    assert drawn() == drawn(max_bytes=1)
    assert drawn() != drawn(seed=1)
    assert len({chosen for chosen, _ in drawn().values()}) > 2


@pytest.mark.full
@torch.no_grad()
def test_answers_come_as_often_as_their_probability_says(talkative):
    """A digit, then an end or a line break; or a line break first, which is left out of the count."""
    tokenizer, temperature = talkative.tokenizer, 2.0
    (question,) = questions("equations", 1, difficulty=1)
    (asked,) = ask(tokenizer, [question])
    many = ask(tokenizer, [replace(question, number=number) for number in range(1000)])
    sampling = Sampling(tries=1, temperature=temperature)
    found = [each for batch in answers(talkative, many, sampling=sampling) for each in batch]
    counts = Counter(each.sampled for each in found)
    stops = sorted({*tokenizer.all_special_ids, tokenizer.get_vocab()["\n"]})
    expected = []
    for answer in asked.answers:
        logits = talkative(torch.tensor([[*asked.prompt, *answer]]))[0, -2:]
        shares = (logits.double() / temperature).softmax(-1)
        expected.append(float(shares[0, answer[0]] * shares[1, stops].sum()))
    assert sum(counts[answer] for answer in question.acceptable) > 100
    for answer, share in zip(question.acceptable, expected, strict=True):
        assert counts[answer] / 1000 == pytest.approx(share, abs=0.06), answer


def says(model, monkeypatch, text: str):
    """Has every next token drawn be that of a text, then the end."""
    tokens = [*model.tokenizer(text, add_special_tokens=False)["input_ids"], model.tokenizer.eos_token_id]

    def logits(n_said: int) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor(tokens[min(n_said, len(tokens) - 1)]), model.cfg.d_vocab) * 99.0

    n_prompts = [0]

    def fake_read(model, prompts):
        n_prompts[0] = 0
        found = reading.read(model, prompts)
        return reading.Read(logits=logits(0).expand(len(prompts), -1), cache=found.cache)

    def fake_go_on(model, cache, continuations):
        if cache.frozen:  # an acceptable answer is scored
            return reading.go_on(model, cache, continuations)
        n_prompts[0] += 1
        return logits(n_prompts[0]).expand(len(continuations), 1, -1)

    module = "mnemoscope.systems.retrieval_prompts.scoring"
    monkeypatch.setattr(f"{module}.read", fake_read)
    monkeypatch.setattr(f"{module}.go_on", fake_go_on)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Berlin", "Berlin"), ("\nBerlin.", "Berlin"), ("Berlin\nis", "Berlin"), ("Berlin is", None), ("I", None)],
)
def test_what_a_model_says_is_read_as_an_answer_or_not(llama, monkeypatch, text, expected):
    asked = ask(llama.tokenizer, questions("lives-with", 3, difficulty=2))
    says(llama, monkeypatch, text)
    found = [each for batch in answers(llama, asked, sampling=Sampling(tries=2)) for each in batch]
    assert [each.sampled for each in found] == [expected] * 3
    assert [each.tries for each in found] == [2 if expected is None else 1] * 3


def test_how_answers_are_read():
    cities = ("Amsterdam", "Berlin")
    assert accepted(" berlin. ", cities) == "Berlin"
    assert accepted("Berlin\nbecause", cities) == "Berlin"
    assert accepted("Berliner", cities) is None
    assert accepted("", cities) is None
    assert could_become("", cities)
    assert could_become("\n Ber", cities)
    assert could_become("Berlin.", cities)
    assert not could_become("Berlin, ", cities)
    assert not could_become("Ber\n", cities)


def test_greedy_answers_are_those_of_the_most_probable_tokens(talkative):
    asked = ask(talkative.tokenizer, EASY)
    prompts = {each.question: each.prompt for each in asked}
    for batch in answers(talkative, asked, sampling=Sampling(temperature=0, tries=1, seed=9)):
        for each in batch:
            said: list[int] = []
            while len(said) < 6 and (not said or said[-1] not in talkative.tokenizer.all_special_ids):
                said.append(int(talkative(torch.tensor([[*prompts[each.question], *said]]))[0, -1].argmax()))
            text = talkative.tokenizer.decode(said, skip_special_tokens=True)
            assert each.sampled == accepted(text, each.question.acceptable)


def test_groups_keep_to_their_budget():
    sizes = [1, 1, 2, 3, 3, 9]
    groups = list(reading.batches("abcdef", sizes, 6))
    assert ["".join(group) for group in groups] == ["abc", "de", "f"]


class Other:
    cfg, tokenizer = None, None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"positional_embedding_type": "alibi"}, "positions of kind standard or rotary"),
        ({"attention_dir": "bidirectional"}, "got bidirectional attention"),
        ({"n_ctx": 40}, "load it with n_ctx="),
    ],
)
def test_models_that_do_not_do_are_refused(llama, monkeypatch, changes, named):
    asked = ask(llama.tokenizer, EASY)
    for name, value in changes.items():
        monkeypatch.setattr(llama.cfg, name, value)
    with pytest.raises(ms.InputError, match=named):
        list(answers(llama, asked))


def test_no_hooked_transformer_and_wrong_numbers_are_refused(llama):
    asked = ask(llama.tokenizer, EASY)
    with pytest.raises(ms.InputError, match="must be a HookedTransformer"):
        list(answers(Other(), asked))
    with pytest.raises(ms.InputError, match="tries must be at least 1"):
        Sampling(tries=0)
    with pytest.raises(ms.InputError, match="temperature must be at least 0"):
        Sampling(temperature=-1.0)
