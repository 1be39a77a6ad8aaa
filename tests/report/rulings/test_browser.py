"""The page in headless Chromium: nothing fails, everything is drawn, nothing is wider than the window."""

import json
import re
import shutil
import subprocess

import pytest

from mnemoscope.report.rulings import rulings_page
from tests.report.rulings.made_up import example, nobody_passes, two_heads

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """
<script>
const seen = () => ({
  plots: [...document.querySelectorAll(".plotly-graph-div")].map((plot) => plot.querySelectorAll(".trace").length),
  views: [...document.querySelectorAll('[id^="attention-"]')].map((view) => view.querySelectorAll("canvas").length),
  shown: document.documentElement.clientWidth,
  needed: document.documentElement.scrollWidth,
  cut: [...document.querySelectorAll("td, th, figcaption, p, li, .plotly-graph-div")]
    .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.textContent.slice(0, 80)),
});
const drawn = () => document.querySelectorAll("details .trace, details canvas").length;
window.addEventListener("load", () => setTimeout(() => {
  const drawnFolded = drawn();
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  setTimeout(() => document.body.insertAdjacentHTML("beforeend",
    `<pre id="probe">${JSON.stringify({ ...seen(), drawnFolded })}</pre>`), 3000);
}, 2000));
</script>
"""


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page was not opened in a browser")
@pytest.mark.parametrize("width", [500, 1200])
def test_the_page_in_a_browser(tmp_path, width):
    rulings, name = [two_heads(), nobody_passes()], ".".join(["a_module_of_a_system"] * 6)
    sources = {rulings[0].claim.id: [f"The measure, <code>{name}</code>: {name}, line 1"]}
    examples = {"T14": [example(), example()]}
    html = rulings_page(rulings, title="Claims", examples=examples, sources=sources)
    page = tmp_path / "claims.html"
    page.write_text(html.replace("</body>", f"{PROBE}</body>"))
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=8000")
    command = [CHROMIUM, *flags, f"--window-size={width},2000", f"--user-data-dir={tmp_path / 'profile'}"]
    result = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr  # an error, or a request that the page's policy refused
    seen = json.loads(re.findall(r'<pre id="probe">(.*?)</pre>', result.stdout)[-1])
    assert seen["drawnFolded"] == 0, "what is folded has no width yet"
    assert len(seen["plots"]) == 6
    assert all(count > 0 for count in seen["plots"])
    assert len(seen["views"]) == 2
    assert all(count >= 3 for count in seen["views"])  # both heads small, one of them in full size
    assert seen["needed"] == seen["shown"] <= width
    assert seen["cut"] == []
