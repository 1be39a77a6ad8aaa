"""The README, then the page of commands, in their own order, as an installed package runs them: no line may fail."""

import re
import shlex

import pytest

from tests.installed.conftest import ROOT

pytestmark = pytest.mark.installed

PAGES = [(ROOT / name).read_text() for name in ("README.md", "docs/command_line.md")]
EXAMPLE, SNIPPET = [re.findall(r"```python\n(.*?)```", page, re.S)[0] for page in PAGES]
BLOCKS = [block for page in PAGES for block in re.findall(r"```console\n(.*?)```", page, re.S)]
LINES = [
    line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.startswith("mnemoscope ")
]
SHORTER = {
    "train": "--seeds 0-1",
    "ablate": "--n 64",
    "patch": "--n 64",
    "edges": "--n 64",
    "discover": "--n 64 --n-random 20",
    "shapley": "--n 64",
    "probe": "--n 64",
    "interchange": "--n 64 --n-pairs 64 --n-random 2",
    "circuits": "--n 64",
    "neurons": "--n 64",
    "heads": "--n 64",
    "truncate": "--n 64",
    "compare": "--n 64",
    "claims run": "--no-sensitivity --no-emergence",
}
"""Options behind the lines of a command: less of the same. Models are trained to their end, or they know too little."""
FEWER = {"tiny-recall": "T14"}
"""One claim in place of the system's."""
BROWSER = """
import sys
from pathlib import Path
from urllib.request import urlopen
Path("shown.html").write_bytes(urlopen(sys.argv[1]).read())
"""
"""What a browser does with the page that it is asked to show."""


def shortened(line: str) -> list[str]:
    words = [FEWER.get(word, word) for word in shlex.split(line)]
    options = [option for command, option in SHORTER.items() if words[1:][: len(command.split())] == command.split()]
    return [*words, *shlex.split(" ".join(options))]


def test_the_readme_in_its_own_order_in_an_empty_directory(installation, tmp_path):
    scripts, place = tmp_path / "scripts", tmp_path / "empty"
    scripts.mkdir()
    place.mkdir()
    (scripts / "snippet.py").write_text(SNIPPET)
    (scripts / "browser.py").write_text(BROWSER)
    browser = shlex.join([str(installation.path / "bin" / "python"), str(scripts / "browser.py"), "%s"])
    result = installation.run(["python", str(scripts / "snippet.py")], place, {"BROWSER": f"{browser} &"})
    assert result.returncode == 0, result.stdout
    result = installation.run(["python", "-c", EXAMPLE], place)
    assert "L0H1" in result.stdout, result.stdout
    state = place / "runs" / "v3-quick" / "seed-00" / "last.safetensors"
    trained = state.stat().st_mtime_ns
    assert "Plotly.newPlot" in (place / "shown.html").read_text()

    assert len(LINES) >= 20
    for line in LINES:
        result = installation.run(shortened(line), place)
        assert result.returncode == 0, f"{line}\n{result.stdout}"
    assert state.stat().st_mtime_ns == trained, "the run of the snippet was trained again"
    assert len(list(place.glob("runs/*/*/done"))) == 2
