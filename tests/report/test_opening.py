"""What a report opens with."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.presets import SYSTEMS
from mnemoscope.report.task_report import Opening, find_report, report
from tests.support import small_spec


def results(preset: str, learned: tuple[bool, bool] = (True, True)) -> dict[str, xr.Dataset]:
    """As one configuration of two seeds has them, each of which has learned the one skill or only guesses."""
    seeds = {"seed": [0, 1]}
    metrics = xr.Dataset({"loss": (("seed", "step"), np.zeros((2, 3)))}, coords=seeds, attrs={"preset": preset})
    levels = {name: (("seed", "skill"), np.array(learned)[:, None]) for name in ("learned", "above_chance")}
    better = {"better": (("seed", "skill", "baseline"), np.array(learned)[:, None, None])}
    coords = {**seeds, "skill": ["copy"], "baseline": ["constant guess"]}
    return {"metrics": metrics, "gate": xr.Dataset({**levels, **better}, coords=coords)}


def opened(opening, results) -> str:
    """The page on configurations of the first system, with nothing but its opening."""
    entry = replace(find_report(small_spec("v3").task), opening=opening, page=lambda page, results: None)
    return report([(entry, results)])


def opening(result: dict[str, xr.Dataset]) -> Opening | None:
    """Nothing of `d4`."""
    preset = result["metrics"].attrs["preset"]
    return None if preset == "d4" else Opening(finding=f"This is {preset}.", figures=[])


@pytest.mark.parametrize(
    ("presets", "first"),
    [(["v1", "v3"], "v3"), (["v1", "d12"], "v1"), (["d4", "v1"], "v1"), (["v3", "v1"], "v3"), (["d4"], None)],
)
def test_it_is_of_the_default_preset_else_of_the_first_that_has_one(presets, first):
    assert SYSTEMS.get("tiny-recall").default == "v3"
    html = opened(opening, {f"{preset}-quick": results(preset) for preset in presets})
    assert [name for name in ("v1", "v3", "d12", "d4") if f"This is {name}." in html] == ([first] if first else [])
    assert ("At a glance" in html) == (first is not None)


def test_models_that_only_guess_have_no_finding():
    def seeds(result):
        return Opening(finding=f"Found in seeds {result['metrics'].seed.values.tolist()}.", figures=[])

    cases = ((True, True), (True, False), (False, False))
    said = {learned: opened(seeds, {"v3-quick": results("v3", learned)}) for learned in cases}
    assert "v3-quick: Found in seeds [0, 1]." in said[True, True]
    assert "the task in 1 of 2 seeds. What follows is about these. Found in seeds [0]." in said[True, False]
    assert "No model beats every baseline of its task (2 seeds; not beaten: constant guess)" in said[False, False]
    assert "Found in seeds" not in said[False, False]


def test_results_of_ones_own_need_no_gate():
    assert "v3-quick: This is v3." in opened(opening, {"v3-quick": {"metrics": results("v3")["metrics"]}})
