import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from mnemoscope.viz.page import Page


def test_text_is_escaped_and_libraries_come_only_if_used():
    page = Page("a < b", "lead & more")
    page.section("One <thing>")
    page.text("x < y")
    page.table(("a", "b"), [["<i>", "1"]], "caption")
    html = page.html()
    assert "<i>" not in html
    assert "x &lt; y" in html
    assert "<title>a &lt; b</title>" in html
    assert "CircuitsVis" not in html
    assert "Plotly" not in html


def test_every_library_stands_there_once():
    page = Page("views")
    for _ in range(3):
        page.figure(go.Figure(go.Scatter(y=[1, 2])))
        page.attention(["</script>"], np.ones((1, 1, 1)), ["L0H0"])
    html = page.html()
    assert html.count("plotly.js v") == 1
    assert html.count("CircuitsVis.render(") == 3
    assert "default-src 'none'" in html


def test_tokens_cannot_end_the_script():
    page = Page("views")
    page.attention(["</script><b>"], np.ones((1, 1, 1)), ["L0H0"])
    data = re.search(r"CircuitsVis\.AttentionHeads, (.*)\);</script>", page.html().splitlines()[-1])
    assert data is not None
    assert "</script" not in data[1]
    assert json.loads(data[1].replace("<\\/", "</"))["attention"] == [[[1.0]]]


@pytest.mark.parametrize(("ahead", "greyed"), [(0.0, True), (0.5, False)])
def test_what_lies_ahead_is_greyed_out_where_nobody_attends_there(ahead, greyed):
    page = Page("views")
    page.attention(["a", "b"], np.array([[[1 - ahead, ahead], [0.5, 0.5]]]), ["L0H0"])
    data = re.search(r"CircuitsVis\.AttentionHeads, (.*)\);</script>", page.html().splitlines()[-1])
    assert data is not None
    assert json.loads(data[1])["maskUpperTri"] is greyed


def test_blocks_and_styles_stand_there_as_they_are():
    page = Page("title", style=".claim { color: red }")
    page.text("before")
    page.block('<ul class="claim"><li>a &lt; b</li></ul>')
    page.text("after")
    html = page.html()
    assert '<p>before</p><ul class="claim"><li>a &lt; b</li></ul><p>after</p>' in html
    assert ".claim { color: red }</style>" in html
