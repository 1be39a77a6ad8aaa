"""A page in headless Chromium, and what a script of ours leaves in it."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from mnemoscope.explorer.page import module_source

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: no page was opened")


def opened(html: str, directory: Path, *, fragment: str = "", width: int = 1400) -> tuple[str, str]:
    """The document after its scripts have run, and what the browser complained of.

    Args:
        html: The page.
        directory: For the page and the browser's profile.
        fragment: After the # of the address.
        width: Of the window.
    """
    page = directory / "page.html"
    page.write_text(html)
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=15000")
    command = [CHROMIUM, *flags, f"--window-size={width},2000", f"--user-data-dir={directory / 'profile'}"]
    address = page.as_uri() + (f"#{fragment}" if fragment else "")
    result = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=300)
    complaints = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return result.stdout, "\n".join(complaints)


def text_of(document: str, name: str) -> str:
    """What stands in the `<pre>` of that id."""
    found = re.findall(rf'<pre id="{name}">(.*?)</pre>', document, re.DOTALL)
    assert found, document[-2000:]
    return unescape(found[-1])


def computed(modules: tuple[str, ...], body: str, content: Any, directory: Path) -> Any:
    """What JavaScript makes of some content with the page's modules, and without a complaint of the browser.

    Args:
        modules: Of `explorer/js`, without the ending.
        body: Of a function of `content`; what it returns is returned.
        content: What JSON can hold.
        directory: For the page and the browser's profile.
    """
    program = f"""
    const made = ((content) => {{ {body} }})(JSON.parse(document.getElementById("content").textContent));
    const out = document.createElement("pre");
    out.id = "made";
    out.textContent = JSON.stringify(made);
    document.body.append(out);
    """
    html = (
        f'<meta charset="utf-8"><script type="application/json" id="content">{json.dumps(content)}</script>'
        f'<body><script type="module">{module_source(*modules)}{program}</script>'
    )
    document, complaints = opened(html, directory)
    assert not complaints
    return json.loads(text_of(document, "made"))
