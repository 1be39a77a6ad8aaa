"""Draw the pictures of the gallery from its own lines: `python docs/gallery.py`, all of them or some by name.

Needs kaleido and a Chrome or Chromium. `images/gallery/made.json` keeps the digest of the lines behind each picture, so
that a test can tell a picture whose lines have changed.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "gallery.md"
PLACE = HERE / "images" / "gallery"
MADE = PLACE / "made.json"
WIDTH = 960
"""Pixels of a figure."""
SCREENS = {"view.png": (760, 1000, ""), "explorer.png": (1000, 850, ""), "verdicts.png": (1000, 630, "Seed by seed")}
"""Width and height of a picture of a page, and the heading at its top; none: the top of the page."""
_BLOCK = re.compile(r"^!\[[^\n]+\]\(images/gallery/([\w.]+)\)\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_STYLE = re.compile(r'style="([^"]+)"')


def blocks() -> dict[str, str]:
    """The lines behind each picture, by its file."""
    return dict(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))


def digest(code: str) -> str:
    """Sixteen hexadecimal digits for some lines."""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def draw(file: str, code: str) -> None:
    """Run the lines behind a picture and write it."""
    names: dict[str, Any] = {}
    exec(code, names)
    found, path = names["figure"], PLACE / file
    if file in SCREENS:
        _photograph(found if isinstance(found, str) else found.html(), path)
    else:
        drawn = found.update_layout(paper_bgcolor="white").to_image("svg", width=WIDTH).decode()
        path.write_text(_shorten(_DECIMALS.sub(r"\1", drawn)), encoding="utf-8")


def _shorten(svg: str) -> str:
    """The same drawing with every style written once: a third of the size."""
    numbers: dict[str, int] = {}
    drawing = _STYLE.sub(lambda found: f's="{numbers.setdefault(found[1], len(numbers))}"', svg)
    rules = "".join(f'[s="{number}"]{{{style}}}' for style, number in numbers.items())
    return drawing.replace(">", f"><style>{rules}</style>", 1)


def _photograph(html: str, path: Path) -> None:
    """Write a picture of a part of a page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit(f"{path.name} is a picture of a page and needs a Chrome or Chromium on the path")
    width, height, heading = SCREENS[path.name]
    first = f"[...document.querySelectorAll('h3')].find((one) => one.textContent === '{heading}')"
    move = f"document.body.style.marginTop = `${{24 - {first}.getBoundingClientRect().top}}px`" if heading else ""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f"{html}<script>addEventListener('load', () => {{ {move} }})</script>", encoding="utf-8")
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000")
        here = (f"--window-size={width},{height}", f"--user-data-dir={folder}/profile", f"--screenshot={path}")
        subprocess.run([browser, *flags, *here, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    PLACE.mkdir(parents=True, exist_ok=True)
    _made = json.loads(MADE.read_text(encoding="utf-8")) if MADE.exists() else {}
    for _file, _code in blocks().items():
        if not sys.argv[1:] or Path(_file).stem in sys.argv[1:]:
            draw(_file, _code)
            _made[_file] = digest(_code)
            MADE.write_text(json.dumps(_made, indent=1) + "\n", encoding="utf-8")
            print(PLACE / _file)
