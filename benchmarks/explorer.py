"""The live explorer in headless Chromium on this machine: the time until an edit is shown, and until a page is ready.

An edit is another token at some position: the forward passes, all panels, style and layout. Left out are the pieces
that follow when the page rests (the sentence on what is needed, the shares of patches), and the time of the screen. The
clock is that of the browser, so other work on the machine counts.
"""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import mnemoscope as ms
from timing import Figure

AIMS = {"v3-quick": 16.0, "birth-2-layers-quick": 100.0}
"""Aims in milliseconds."""
READY = 1000.0
"""Milliseconds until the page can be used."""
PROBE = """<script>
addEventListener("load", () => {
  const { timing } = performance;
  const ready = timing.domContentLoadedEventEnd - timing.navigationStart;
  const edits = Array.from({ length: EDITS }, (_, i) => {
    const { run, state } = explorer;
    const tokens = state.tokens.slice();
    const pos = i % tokens.length;
    tokens[pos] = run.alphabet[(run.alphabet.indexOf(tokens[pos]) + 1) % run.alphabet.length];
    const start = performance.now();
    explorer.set({ tokens });
    void document.body.offsetHeight;
    return performance.now() - start;
  });
  document.body.insertAdjacentHTML("beforeend", `<pre id="seen">${JSON.stringify({ ready, edits })}</pre>`);
});
</script>"""


def repaints(quick: bool) -> list[Figure]:
    """An edit, and the start of the page, for a v3 with all checkpoints and a two-layer birth model at 128 tokens."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    figures = []
    for label, aim in AIMS.items():
        page = ms.explore(ms.find_runs(f"zoo:{label}")[0]).html()
        seen = None if chromium is None else _measured(chromium, page, 20 if quick else 100)
        edits = [] if seen is None else seen["edits"][5:]  # the first ones are not compiled yet
        figures += [
            Figure(
                group="explorer",
                name=f"an edit of {label}",
                value=median(edits) if edits else None,
                unit="ms",
                spread=(quantiles(edits)[0], quantiles(edits)[2]) if edits else None,
                aim=aim,
                at_most=True,
                note=f"a page of {len(page) / 1e6:.1f} MB" if seen else "no Chromium on this machine",
            ),
            Figure(
                group="explorer",
                name=f"{label} can be used",
                value=None if seen is None else seen["ready"],
                unit="ms",
                aim=READY,
                at_most=True,
            ),
        ]
    return figures


def _measured(chromium: str, page: str, n_edits: int) -> dict[str, Any]:
    """The results that the probe leaves in the page."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "page.html"
        file.write_text(page.replace("</body>", f"{PROBE.replace('EDITS', str(n_edits))}</body>"), encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory}/profile"]
        command = [chromium, *flags, "--dump-dom", file.as_uri()]
        document = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    found = re.findall(r'<pre id="seen">(.*?)</pre>', document)
    return json.loads(found[-1])
