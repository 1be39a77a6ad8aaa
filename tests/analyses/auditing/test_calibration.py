"""False discoveries are at most as many as asked for, over 1,000 sets of prompts; planted effects are found.

`docs/audit.md` shows the numbers.
"""

import numpy as np
import pytest
from scipy.stats import binom

import mnemoscope as ms
from tests.analyses.auditing.planted import by_cell, coin_pairs, null_effects
from tests.support import random_model

pytestmark = [pytest.mark.thorough, pytest.mark.drawn(2, of="rates of audits")]
SETS, RATE = 1000, 0.05
MOST = binom.ppf(0.999, SETS, RATE) / SETS
"""A share of sets that a true rate of .05 passes once in a thousand times."""


def share_with_discoveries(audits):
    return np.mean([bool(audit.found.any()) for audit in audits])


@pytest.mark.parametrize("adjust", ["bh", "by"])
@pytest.mark.parametrize("n", [16, 48])
def test_sets_without_an_effect_have_no_more_discoveries_than_the_rate(n, adjust):
    rng = np.random.default_rng(1)
    audits = (ms.audit(by_cell(null_effects(rng, n=n)), adjust=adjust, n_draws=999, seed=seed) for seed in range(SETS))
    share = share_with_discoveries(audits)
    print(f"no effect, {n} prompts, {adjust}: {share:.3f}")
    assert share <= MOST


def test_clusters_keep_the_rate_that_prompts_alone_would_break():
    rng, cluster = np.random.default_rng(2), np.repeat(np.arange(16), 6)
    sets = [null_effects(rng, n=16)[:, cluster] + 0.3 * null_effects(rng, n=96) for _ in range(SETS)]
    shares = {}
    for name, labels in (("clusters", cluster), ("prompts", np.arange(96))):
        audits = (
            ms.audit(by_cell(each), clusters=labels, n_draws=999, seed=seed)
            for seed, each in enumerate(sets if name == "clusters" else sets[:200])
        )
        shares[name] = share_with_discoveries(audits)
    print(f"96 prompts of 16 templates: {shares}")
    assert shares["clusters"] <= MOST
    assert shares["prompts"] > 5 * RATE


def test_prompts_whose_answers_a_coin_deals_have_no_more_discoveries_than_the_rate():
    """1,000 sets of 32 prompts, end to end: an answer that no part can know, patched head by head."""
    model, n = random_model(n_layers=2, n_heads=4), 32
    values = ms.patch(model, coin_pairs(SETS * n), kind="z", over=("layer", "head"))
    found = (values.isel(prompt=slice(i * n, (i + 1) * n)) for i in range(SETS))
    share = share_with_discoveries(ms.audit(each, n_draws=999, seed=seed) for seed, each in enumerate(found))
    print(f"coin, 16 cells: {share:.3f}")
    assert share <= MOST


def test_discoveries_among_planted_effects_are_rarely_false_and_the_size_left_is_right():
    rng, planted, size = np.random.default_rng(3), np.arange(6), 0.8
    false, confirmed_false, power, confirmed, chosen, left, covered = [], [], [], [], [], [], []
    for seed in range(SETS):
        effects = null_effects(rng, n=64)
        effects[planted] += size
        audit = ms.audit(by_cell(effects), n_draws=999, seed=seed)
        true = np.isin(audit.component, planted)
        found, sure = audit.found.values, audit.confirmed.values
        false.append((found & ~true).sum() / max(found.sum(), 1))
        confirmed_false.append((sure & ~true).sum() / max(sure.sum(), 1))
        power.append(found[true].mean())
        confirmed.append(sure[true].mean())
        hit = found & true
        chosen += audit.effect.values[hit].tolist()
        left += audit.held_out_effect.values[hit].tolist()
        covered += ((audit.held_out_low <= size) & (audit.held_out_high >= size)).values[hit].tolist()
    numbers = {name: round(float(np.mean(each)), 3) for name, each in (
        ("false", false), ("confirmed false", confirmed_false), ("power", power), ("confirmed", confirmed),
        ("size where chosen", chosen), ("size left", left), ("covered", covered),
    )}  # fmt: skip
    print(numbers)
    assert np.mean(false) <= RATE + 3 * np.std(false) / SETS**0.5
    assert np.mean(confirmed_false) <= np.mean(false)
    assert np.mean(power) > 0.6
    assert np.mean(chosen) > size + 0.02
    assert abs(np.mean(left) - size) < 0.02
    assert 0.93 <= np.mean(covered) <= 0.98
