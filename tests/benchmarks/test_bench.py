"""The benchmarks run to their end and print what they measure; how large the figures are is no matter here."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"
GROUPS = (
    "training step",
    "sampling",
    "sequences",
    "vectors",
    "facts",
    "puzzles",
    "clamps",
    "markov",
    "same logits",
    "16 seeds",
    "cluster",
    "memory",
    "one program",
    "same parameters",
    "patching",
    "language",
    "plain",
    "attribution",
    "edges",
    "paths",
    "features",
    "capacity",
    "explorer",
)


@pytest.mark.slow
def test_every_section_prints_its_rows(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "--quick", "--json", str(file)]
    result = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0
    figures = json.loads(file.read_text())["figures"]
    assert tuple(dict.fromkeys(figure["group"] for figure in figures)) == GROUPS
    missing = [figure["name"] for figure in figures if figure["value"] is None]
    browser = any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    assert len(missing) == (0 if torch.cuda.is_available() else 2) + (0 if browser else 4)  # the two on a GPU
    cells = [[cell.strip() for cell in line.split("│")[1:4]] for line in result.stdout.splitlines() if "│" in line]
    assert [row[0] for row in cells if row[0]] == list(GROUPS)
    assert sum(bool(median) for _, _, median in cells) == len(figures)
