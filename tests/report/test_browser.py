"""The report in headless Chromium: nothing fails, nothing leaves the machine, every head is drawn."""

import json
import re
import shutil
import subprocess

import pytest

from mnemoscope.analyses.stacking import over_seeds
from mnemoscope.report.task_report import find_report, report
from mnemoscope.systems.tiny_recall.report import analyse_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """
<script>
const painted = (canvas) => canvas.width > 0 && canvas.getContext("2d") !== null &&
  new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size > 2;
window.addEventListener("load", () => setTimeout(() => {
  const views = [...document.querySelectorAll('[id^="attention-"]')].map((view) => ({
    heads: [...new Set([...view.innerText.matchAll(/L\\d+H\\d+/g)].map((match) => match[0]))],
    painted: [...view.querySelectorAll("canvas")].filter(painted).length,
  }));
  const marks = (plot) => plot.querySelectorAll(".trace, .hm, .bars").length;
  const plots = [...document.querySelectorAll(".js-plotly-plot")].map(marks);
  const bottom = (part) => part.getBoundingClientRect().bottom;
  const tools = [...document.querySelectorAll(".js-plotly-plot")].map((plot) => ({
    buttons: plot.querySelectorAll(".modebar-btn").length,
    covers: bottom(plot.querySelector(".modebar")) > plot.getBoundingClientRect().top + 4,
  }));
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const seen = JSON.stringify({ views, plots, tools, wide });
  document.body.insertAdjacentHTML("beforeend", `<pre id="probe">${seen}</pre>`);
}, 1500));
</script>
"""


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the report was not opened in a browser")
def test_the_report_in_a_browser(four_values, tmp_path):
    results = over_seeds([four_values], [analyse_run(four_values)])
    html = report([(find_report(four_values.spec.task), {four_values.label: results})])
    page = tmp_path / "report.html"
    page.write_text(html.replace("</body>", f"{PROBE}</body>"))
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=15000")
    command = [CHROMIUM, *flags, "--window-size=1200,2000", f"--user-data-dir={tmp_path / 'profile'}"]
    result = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr  # an error, or a request that the page's policy refused
    seen = json.loads(re.findall(r'<pre id="probe">(.*?)</pre>', result.stdout)[-1])
    assert len(seen["views"]) == 2
    for view in seen["views"]:
        assert view["heads"] == ["L0H0", "L0H1"]
        assert view["painted"] >= 3  # both heads small, one of them in full size
    assert len(seen["plots"]) == 4  # three of them at a glance; no later section repeats them
    assert html.count('<p class="again">') == 3
    assert all(count > 0 for count in seen["plots"])
    assert seen["tools"] == [{"buttons": 4, "covers": False}] * 4  # the toolbar stands over the figure, not in it
    assert not seen["wide"]
