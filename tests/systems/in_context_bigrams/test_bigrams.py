import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.markov import Bigrams, bigrams, count_bigrams, shakespeare

A, B, C = map(ord, "abc")


def test_bigrams_counted_by_hand():
    counts = count_bigrams("abacab")  # ab ba ac ca ab
    assert counts == ((A, B, 2), (A, C, 1), (B, A, 1), (C, A, 1))
    table = Bigrams(counts)
    assert table.symbols == "abc"
    assert table.matrix.tolist() == [[0, 2, 1], [1, 0, 0], [1, 0, 0]]
    assert table.unigram.tolist() == pytest.approx([2 / 5, 2 / 5, 1 / 5])  # as successors
    torch.testing.assert_close(table.transitions[0], torch.tensor([0, 2 / 3, 1 / 3], dtype=torch.double))
    assert table.encode("cab") == [2, 0, 1]


def test_a_symbol_that_nothing_follows_is_followed_as_the_unigram_says():
    table = Bigrams(count_bigrams("aab"))
    assert table.unigram.tolist() == [0.5, 0.5]
    assert table.transitions.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_tiny_shakespeare():
    table = shakespeare()
    assert bigrams(None) is table
    assert len(table.symbols) == 65
    assert table.matrix.sum() == 1_115_393  # pairs of a text of 1,115,394 characters
    assert table.transitions.sum(1).tolist() == pytest.approx([1] * 65)
    assert "".join(table.symbols[i] for i in table.unigram.argsort(descending=True)[:4].tolist()) == " eto"
    q, u = table.encode("qu")
    assert table.transitions[q].argmax() == u


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (((A, B, 1), (A, B, 2)), "name every pair of symbols once"),
        (((A, B, 0),), "must be 1 or more"),
        (((A, A, 3),), "needs 2 to 1024 symbols; got 1"),
        (tuple((i, i + 1, 1) for i in range(1024)), "needs 2 to 1024 symbols; got 1025"),
    ],
)
def test_a_table_that_is_none_is_refused(counts, message):
    with pytest.raises(InputError, match=message):
        Bigrams(counts)


def test_a_text_without_two_symbols_and_a_symbol_that_is_unknown_are_refused():
    with pytest.raises(InputError, match="needs 2 to 1024 symbols"):
        count_bigrams("a")
    with pytest.raises(InputError, match="no symbol 'z'; it has 'abc'"):
        Bigrams(count_bigrams("abc")).encode("baz")
