import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mnemoscope.claims.claim import Gate
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.pooling import pool, pool_by_scatter
from mnemoscope.claims.ruling import Ruling, SensitivityCell, ruling_record
from mnemoscope.core.errors import InputError
from tests.claims.trials import make_claim, make_evidence


def test_systems_of_equal_errors_are_averaged_as_numbers():
    """With equal weights Hartung and Knapp's error is that of a mean, and between² + error² the variance of effects."""
    effects, error = np.array([0.1, 0.4, 0.3, 0.8, 0.5]), 0.05
    pooled = pool(effects, [error] * 5)
    assert pooled.mean == pytest.approx(0.42)
    student = stats.t.interval(0.95, 4, 0.42, stats.sem(effects))
    assert (pooled.interval.low, pooled.interval.high) == pytest.approx(student, rel=1e-4)
    assert pooled.between**2 + error**2 == pytest.approx(effects.var(ddof=1), rel=1e-3)
    reach = stats.t.isf(0.025, 3) * (pooled.between**2 + stats.sem(effects) ** 2) ** 0.5
    assert pooled.prediction.high - pooled.mean == pytest.approx(reach, rel=1e-3)


def test_systems_that_do_not_differ_have_nothing_between_them():
    pooled = pool([0.3, 0.301, 0.299, 0.3], [0.1, 0.2, 0.1, 0.3])
    assert pooled.between == 0
    assert pooled.mean == pytest.approx(0.3, abs=0.001)


def test_another_system_lies_in_its_interval_as_often_as_it_says():
    rng, n, inside = np.random.default_rng(0), 400, 0
    for _ in range(n):
        errors = rng.uniform(0.1, 0.5, 6)
        true = rng.normal(0, 1, 7)
        prediction = pool(true[:6] + errors * rng.normal(size=6), errors.tolist()).prediction
        inside += prediction.low <= true[6] <= prediction.high
    assert 0.91 <= inside / n <= 0.985


def test_two_systems_and_unknown_errors_are_refused():
    with pytest.raises(InputError, match="must be of 3 systems or more"):
        pool([0.1, 0.2], [0.1, 0.1])
    with pytest.raises(InputError, match=r"errors must be positive numbers; got 0\.1, 0, 0\.1"):
        pool([0.1, 0.2, 0.3], [0.1, 0.0, 0.1])


def test_a_ruling_pools_the_configurations_that_it_was_asked_of():
    """Its own and two recipes; a cell that changes the measure, and one without models, are no configurations."""
    rng, claim = np.random.default_rng(0), make_claim()
    verdicts = [judge(claim, make_evidence(rng.normal(mean, 0.1, 16))) for mean in (0.5, 0.8, 1.1, 9.0)]
    own, quick, long, zero = verdicts
    few = judge(claim, make_evidence(np.ones(3)))
    cells = [
        SensitivityCell(factor=factor, value=value, verdict=verdict, before=own.outcome)
        for factor, value, verdict in (
            ("recipe", "quick", quick), ("recipe.n_steps", "9", long), ("kind", "zero", zero), ("recipe", "none", few),
        )
    ]  # fmt: skip
    ruling = Ruling(claim=claim, evidence=make_evidence(np.ones(16)), verdict=own, rivals={}, sensitivity=tuple(cells))
    assert ruling.pooled is not None
    assert ruling.pooled.n == 3
    assert ruling.pooled.mean == pytest.approx(np.mean([own.effect, quick.effect, long.effect]), abs=0.02)
    assert ruling.pooled.prediction.high > 1.5
    assert ruling_record(ruling)["pooled"]["n"] == 3
    assert "for another one" in str(ruling.pooled)
    assert Ruling(claim=claim, evidence=ruling.evidence, verdict=own, rivals={}).pooled is None


def test_another_model_lies_in_its_interval_on_the_same_questions_whatever_these_have_in_common():
    """Of eight models, and a question effect that moves all of them: the errors of questions would say too little."""
    rng, n, inside = np.random.default_rng(0), 1000, 0
    for _ in range(n):
        effects = 0.3 * rng.normal(size=9) + (rng.normal(size=20) + 0.5 * rng.normal(size=(9, 20))).mean(1)
        prediction = pool_by_scatter(effects[:8].tolist()).prediction
        inside += prediction.low <= effects[8] <= prediction.high
    assert 0.935 <= inside / n <= 0.965


def test_scatter_by_hand_and_what_it_refuses():
    pooled = pool_by_scatter([1.0, 2.0, 3.0])
    assert (pooled.n, pooled.mean, pooled.between) == (3, 2.0, 1.0)
    t = stats.t.isf(0.025, 2)
    assert pooled.interval.high == pytest.approx(2 + t / 3**0.5)
    assert pooled.prediction.low == pytest.approx(2 - t * (4 / 3) ** 0.5)
    for effects in ([1.0, 2.0], [1.0, 2.0, math.nan]):
        with pytest.raises(InputError, match="must be finite numbers, of 3 systems or more"):
            pool_by_scatter(effects)


def test_a_ruling_on_several_language_models_pools_those_that_pass_the_gate():
    effects, gate = [1.0, 2.0, 3.0, 9.0, math.nan], [1.0, 1.0, 1.0, 0.0, math.nan]
    models = {"model": list("abcde")}
    claim = replace(make_claim(), replicate="model", gate=Gate(statement="passes", at_least=0.5))
    evidence = Evidence(
        effects=xr.DataArray(effects, dims="model", coords=models),
        gate=xr.DataArray(gate, dims="model", coords=models),
        replicate="model",
    )
    ruling = Ruling(claim=claim, evidence=evidence, verdict=judge(claim, evidence), rivals={})
    assert ruling.verdict.outcome == "NOT_APPLICABLE"  # 16 models are needed, and three say how far another one may lie
    assert ruling.pooled == pool_by_scatter([1.0, 2.0, 3.0])
    assert ruling_record(ruling)["pooled"]["prediction"] == {
        "low": ruling.pooled.prediction.low,
        "high": ruling.pooled.prediction.high,
    }
    none = replace(evidence, gate=evidence.gate * 0)
    assert Ruling(claim=claim, evidence=none, verdict=judge(claim, none), rivals={}).pooled is None
