"""The picture that the page saves: well-formed, on its own, and with what is seen."""

import re
from xml.etree import ElementTree

import pytest

import mnemoscope as ms
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_given import TOKENS
from tests.explorer.test_page import seen
from tests.support import random_model

SAVED = """
const files = [];
URL.createObjectURL = (blob) => { files.push({ type: blob.type, size: blob.size }); return "about:blank"; };
HTMLAnchorElement.prototype.click = function () { files.at(-1).name = this.download; };
const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
document.querySelector('.stream li:nth-child(3) .switch').click();
[...document.querySelectorAll("button")].find((one) => one.textContent.startsWith("save a picture")).click();
const text = explorer.picture();
const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
return {
  files, text, bytes: new Blob([text]).size, error: parsed.querySelector("parsererror")?.textContent ?? null,
  parts: texts(".stream .part").slice(0, -1), shares: texts(".stream .share b"),
  said: [...document.querySelectorAll("table.says tr")].slice(1).map((row) => row.cells[1].textContent),
};
"""


def texts(root):
    return [str(element.text) for element in root.iter("{http://www.w3.org/2000/svg}text")]


@needs_chromium
@pytest.mark.thorough
def test_the_picture_is_well_formed_and_holds_what_is_seen(tiny, tmp_path):
    found, complaints = seen(ms.explore(tiny).html(), tmp_path, SAVED)
    assert not complaints
    assert found["error"] is None
    name = f"{tiny.label}-seed-{tiny.spec.seed}.svg".replace("+", "-")
    assert found["files"] == [{"type": "image/svg+xml", "size": found["bytes"], "name": name}]
    root = ElementTree.fromstring(found["text"])
    words = texts(root)
    assert {*found["parts"], *found["shares"], *found["said"]} <= set(words)
    assert any(word.startswith("changes: ") for word in words)
    assert {"model", "with changes", "other sequence", "bayes"} <= set(words)
    assert not re.search(r"var\(|class=|style=|href|<script|undefined|NaN", found["text"])
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, w, h = (float(box.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height


@needs_chromium
@pytest.mark.thorough
def test_symbols_of_markup_stay_text_in_the_picture(tmp_path):
    page = ms.explore(random_model(), TOKENS, symbols=["<", ">", "&", '"', "'", "]]>"]).html()
    found, complaints = seen(page, tmp_path, "return explorer.picture();")
    assert not complaints
    assert "sequence: > ' & \" ]]>" in texts(ElementTree.fromstring(str(found)))
