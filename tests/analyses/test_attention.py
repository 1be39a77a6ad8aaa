import numpy as np
import pytest
import torch

from mnemoscope.analyses.attention import patterns
from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.analyses.attention import TARGETS, attention_shares
from tests.support import foreign_model, random_model, seeded, small_spec

TASK = small_spec("v3").task


def prompts(n: int = 20):
    return TASK.monitor(n, split="test", generator=seeded())


def uniform_model(**fields):
    model = random_model(**fields)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
    return model


def test_patterns_are_distributions_over_the_past():
    pattern = patterns(random_model(n_layers=2), prompts())
    assert pattern.shape == (40, 2, 2, 9, 9)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(40, 2, 2, 9))
    assert not pattern.triu(1).any()


@pytest.mark.parametrize("slot", [1, 2, 3, 4, 5])
def test_uniform_attention_gives_fractions(slot):
    share = attention_shares(uniform_model(), TASK, prompts()).share.sel(slot=slot)
    earlier = slot - 1
    from_x = {"self": 1, "previous_y": 1, "earlier_y": earlier, "earlier_x": earlier}  # of 2k - 1 keys
    from_y = {**from_x, "own_x": 1}  # of 2k keys
    for query, keys, counts in (("x", 2 * slot - 1, from_x), ("y", 2 * slot, from_y)):
        for target in ("self", "previous_y", "earlier_y", "earlier_x", "own_x"):
            given = share.sel(query=query, target=target)
            absent = (
                (slot == 1 and target not in ("self", "own_x")) or target not in counts or (query, slot) == ("y", 5)
            )
            np.testing.assert_allclose(given, np.nan if absent else counts[target] / keys, rtol=1e-5)


def test_uniform_attention_to_the_repeated_pair():
    share = attention_shares(uniform_model(), TASK, prompts()).share.sel(target=["same_x", "after_same_x"])
    last = share.sel(query="x", slot=5)
    np.testing.assert_allclose(last.sel(subgroup="repeat"), 1 / 9, rtol=1e-5)
    assert last.sel(subgroup="fresh").isnull().all()
    assert share.sel(query="y").isnull().all()
    assert share.sel(slot=[1, 2, 3, 4]).isnull().all()


def test_uniform_attention_on_each_y():
    to_y = attention_shares(uniform_model(), TASK, prompts()).to_y
    for slot in range(1, 6):
        for query, keys in (("x", 2 * slot - 1), ("y", 2 * slot)):
            seen = np.array([1 / keys if s < slot or (s == slot and query == "y") else 0 for s in range(1, 5)])
            expected = seen if (query, slot) != ("y", 5) else np.full(4, np.nan)
            given = to_y.sel(query=query, slot=slot)
            np.testing.assert_allclose(given, np.broadcast_to(expected, given.shape), rtol=1e-5)


@pytest.mark.parametrize("make", [random_model, lambda: random_model(n_layers=2, n_heads=1), foreign_model])
def test_shares_of_the_parts_add_to_one(make):
    share = attention_shares(make(), TASK, prompts()).share
    parts = share.sel(target=["self", "own_x", "earlier_x", "earlier_y"])
    total = parts.sum("target").where(parts.notnull().any("target"))
    np.testing.assert_allclose(total.sel(query="x"), 1, rtol=1e-5)
    np.testing.assert_allclose(total.sel(query="y", slot=[1, 2, 3, 4]), 1, rtol=1e-5)
    assert total.sel(query="y", slot=5).isnull().all()


def by_hand(pattern, xs, target: str, query: str, slot: int) -> float | None:
    """The share of one sequence and head in plain Python; slots from 0; None where there is no such key."""
    row = pattern[2 * slot + (query == "y")]
    earlier = range(slot)
    source = xs.index(xs[-1]) if query == "x" and slot == 4 and xs[-1] in xs[:-1] else None
    keys = {
        "self": [2 * slot + (query == "y")],
        "previous_y": [2 * slot - 1] if slot else [],
        "earlier_y": [2 * s + 1 for s in earlier],
        "earlier_x": [2 * s for s in earlier],
        "own_x": [2 * slot] if query == "y" else [],
        "same_x": [] if source is None else [2 * source],
        "after_same_x": [] if source is None else [2 * source + 1],
    }[target]
    return sum(row[key] for key in keys) if keys else None


def test_shares_equal_plain_python():
    model, batch = random_model(n_layers=2), prompts(6)
    shares = attention_shares(model, TASK, batch)
    pattern = patterns(model, batch).tolist()
    groups = {"fresh": range(6), "repeat": range(6, 12)}
    for subgroup, rows in groups.items():
        for layer, head, query, slot, target in np.ndindex(2, 2, 2, 5, len(TARGETS)):
            name = {"subgroup": subgroup, "query": "xy"[query], "target": TARGETS[target], "slot": slot + 1}
            given = float(shares.share.sel(layer=layer, head=head, **name))
            if (query, slot) == (1, 4):
                assert np.isnan(given)
                continue
            values = [
                by_hand(pattern[r][layer][head], batch.latents["x"][r].tolist(), TARGETS[target], "xy"[query], slot)
                for r in rows
            ]
            expected = np.nan if None in values else sum(values) / len(values)
            assert given == pytest.approx(expected, nan_ok=True), name


def test_the_hand_set_elimination_head_looks_at_earlier_y_only(planted):
    share = attention_shares(planted, TASK, prompts()).share.sel(query="x", slot=[2, 3, 4, 5])
    np.testing.assert_allclose(share.sel(head=0, target="earlier_y"), 1, atol=1e-6)
    np.testing.assert_allclose(
        share.sel(head=0, target="previous_y").mean(("subgroup", "layer")), [1, 1 / 2, 1 / 3, 1 / 4]
    )
    assert (share.sel(head=1, target="earlier_y") < 0.5).all()


def test_a_model_that_is_too_small_is_refused():
    with pytest.raises(InputError, match="the model reads 7 tokens and the batch has 9"):
        attention_shares(random_model(n_ctx=7), TASK, prompts(2))
