"""What a report opens with."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.presets import SYSTEMS
from mnemoscope.viz import reporting
from mnemoscope.viz.page import Page
from mnemoscope.viz.task_report import Opening
from tests.support import small_spec


def results(preset: str) -> dict[str, xr.Dataset]:
    """As one configuration of two seeds has them."""
    metrics = xr.Dataset({"loss": (("seed", "step"), np.zeros((2, 3)))}, attrs={"preset": preset})
    return {"metrics": metrics}


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
    entry = reporting.replace(reporting.report_of(small_spec("v3").task), opening=opening)
    page = Page("A report")
    reporting._open(page, entry, {f"{preset}-quick": results(preset) for preset in presets})
    html = page.html()
    assert [name for name in ("v1", "v3", "d12", "d4") if f"This is {name}." in html] == ([first] if first else [])
    assert ("At a glance" in html) == (first is not None)
