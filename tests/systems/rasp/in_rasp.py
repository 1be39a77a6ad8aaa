"""The programs of mnemoscope.systems.rasp in RASP, by name; the text of each is shipped with its weights."""

from tracr.compiler import lib
from tracr.rasp.rasp import Aggregate, Comparison, Map, Select, SelectorWidth, SequenceMap, indices, tokens


def length():
    return SelectorWidth(Select(tokens, tokens, lambda k, q: k != "_")).named("length")


def count():
    return lib.make_count(tokens, "a")


def parity():
    return Map(lambda n: n % 2 == 1, lib.make_count(tokens, "a")).named("parity")


def majority():
    return SequenceMap(lambda a, b: a > b, lib.make_count(tokens, "a"), lib.make_count(tokens, "b")).named("majority")


def hist():
    return lib.make_hist()


def double_hist():
    same = lib.make_hist()
    return SelectorWidth(Select(same, same, Comparison.EQ)).named("double_hist")


def is_unique():
    return Map(lambda n: n == 1, lib.make_hist()).named("is_unique")


def count_less_freq():
    return lib.make_count_less_freq(2)


def occurrence():
    return lib.make_hist()


def rank():
    return SelectorWidth(Select(tokens, tokens, Comparison.LT)).named("rank")


def frac_prevs():
    share = lib.make_frac_prevs(tokens == "x")
    return Map(lambda x: "none" if x == 0 else "some" if x < 0.5 else "half", share).named("frac_prevs_words")


def pair_balance():
    balance = lib.make_pair_balance(tokens, "(", ")")
    return Map(lambda x: "-" if x < 0 else "+" if x > 0 else "0", balance).named("sign")


def shuffle_dyck():
    return lib.make_shuffle_dyck(["()"])


def shuffle_dyck2():
    return lib.make_shuffle_dyck2()


def reverse():
    return lib.make_reverse(tokens)


def mirror():
    return SequenceMap(lambda a, b: a == b, tokens, lib.make_reverse(tokens)).named("mirror")


def palindrome():
    same = SequenceMap(lambda a, b: a == b, tokens, lib.make_reverse(tokens)).named("mirror")
    others = SelectorWidth(Select(same, same, lambda k, q: not k)).named("others")
    return Map(lambda n: n == 0, others).named("palindrome")


def sort_unique():
    return lib.make_sort_unique(tokens, tokens)


def sort():
    return lib.make_sort(tokens, tokens, max_seq_len=5, min_key=1)


def median():
    ordered = lib.make_sort(tokens, tokens, max_seq_len=5, min_key=1)
    return Aggregate(Select(indices, indices, lambda k, q: k == 2), ordered).named("median")


def sort_freq():
    return lib.make_sort_freq(5)


def most_freq():
    return Aggregate(Select(indices, indices, lambda k, q: k == 0), lib.make_sort_freq(5)).named("most_freq")


def dedup():
    both = SequenceMap(lambda token, i: (token, i), tokens, indices).named("token_and_place")
    before = SelectorWidth(Select(both, both, lambda k, q: k[0] == q[0] and k[1] < q[1])).named("before")
    return SequenceMap(lambda token, n: "-" if n else token, tokens, before).named("dedup")


def detect_pattern():
    return lib.detect_pattern(tokens, "aba")


def induction():
    return Aggregate(Select(lib.shift_by(1, tokens), tokens, lambda k, q: k == q), tokens).named("induction")


def shift():
    return lib.shift_by(1, tokens)


def next_token():
    return lib.shift_by(-1, tokens)


def first():
    return Aggregate(Select(indices, indices, lambda k, q: k == 0), tokens).named("first")


def last():
    return Aggregate(Select(indices, indices, lambda k, q: k == 4), tokens).named("last")


def pointer():
    return Aggregate(Select(indices, tokens, Comparison.EQ), tokens).named("pointer")


def pointer_twice():
    once = Aggregate(Select(indices, tokens, Comparison.EQ), tokens).named("once")
    return Aggregate(Select(indices, once, Comparison.EQ), tokens).named("twice")


def sum_with_previous():
    return SequenceMap(lambda a, b: (a + b) % 3, tokens, lib.shift_by(1, tokens)).named("sum_with_previous")
