import ast
import html
import json
import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import xarray as xr
from plotly.offline import get_plotlyjs

import mnemoscope as ms
from mnemoscope import Batch
from mnemoscope.analyses import named_patterns, with_roles
from mnemoscope.report.page import Page, attention_view
from tests.support import random_model


def test_text_is_escaped_and_libraries_come_only_if_used():
    page = Page("a < b", "lead & more")
    page.section("One <thing>")
    page.text("x < y")
    page.table(("a", "b"), [["<i>", "1"]], "caption")
    text = page.html()
    assert "<i>" not in text
    assert "x &lt; y" in text
    assert "<title>a &lt; b</title>" in text
    assert "CircuitsVis" not in text
    assert "Plotly" not in text


def test_what_stands_between_backticks_is_code():
    page = Page("x")
    page.text("Run `list <b>` first; a ` alone is none.")
    assert "<p>Run <code>list &lt;b&gt;</code> first; a ` alone is none.</p>" in page.html()


def test_every_library_stands_there_once():
    page = Page("views")
    for _ in range(3):
        page.figure(go.Figure(go.Scatter(y=[1, 2])))
        page.attention(["</script>"], np.ones((1, 1, 1)), ["L0H0"])
    text = page.html()
    assert text.count("plotly.js v") == 1
    assert text.count("CircuitsVis.render(") == 3
    assert "default-src 'none'" in text


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
    text = page.html()
    assert '<p>before</p><ul class="claim"><li>a &lt; b</li></ul><p>after</p>' in text
    assert ".claim { color: red }</style>" in text


def test_a_figure_is_downloaded_under_the_words_around_it():
    page = Page("views")
    page.section("T14: one head")
    page.heading("Seed by seed")
    page.figure(go.Figure(go.Scatter(y=[1])), "Accuracy <lost>; dots are seeds.")
    page.figure(go.Figure(go.Scatter(y=[1])).update_layout(title_text="the <b>title</b>"), "A caption.")
    page.section("A name with so many words that no file should have a name of such a length")
    page.figure(go.Figure(go.Scatter(y=[1])))
    words = [drawn.words for drawn in page.figures]
    assert words[0] == "t14-one-head-seed-by-seed-accuracy"
    assert words[1] == "t14-one-head-seed-by-seed-the-title"
    assert words[2] == "a-name-with-so-many-words-that-no-file-should-have-a-name-of"
    configs = re.findall(r'"toImageButtonOptions": (\{[^}]*\})', page.html())
    assert [json.loads(each) for each in configs] == [{"format": "svg", "filename": name} for name in words]
    assert page.html().count('"displaylogo": false') == page.html().count('"modeBarButtons": [["toImage"]') == 3


def test_a_figure_that_stands_on_the_page_is_linked():
    """A report repeated the pictures that it opened with."""
    page, curve = Page("x", once=True), go.Figure(go.Scatter(y=[1, 2]))
    page.figure(go.Figure(), "Nothing.")
    page.figure(curve, "One & two.")
    page.section("Further down")
    page.figure(go.Figure(curve), "The same.")
    page.figure(go.Figure(go.Scatter(y=[2, 1])), "Another.")
    html = page.html()
    assert [figure.words for figure in page.figures] == ["nothing", "one-two", "further-down-another"]
    assert html.count("Plotly.newPlot(") == 3 + get_plotlyjs().count("Plotly.newPlot(")
    assert 'id="figure-2"' in html.split("Further down</h2>")[0]
    assert '<a href="#figure-2">One &amp; two.</a>' in html.split("Further down</h2>")[1]
    assert "The same." not in html
    twice = Page("x")
    twice.figure(curve)
    twice.figure(curve)
    assert len(twice.figures) == 2


def test_a_notebook_shows_the_page_in_a_frame():
    page = Page('quotes " in it')
    page.attention(["a"], np.ones((1, 1, 1)), ["L0H0"])
    shown = page._repr_html_()
    (inside,) = re.findall(r'^<iframe srcdoc="([^"]*)"', shown)
    assert html.unescape(inside) == page.html()


def test_folded_tables_have_a_summary_and_open_on_paper():
    page = Page("x", fold=True)
    page.table(["a", "b"], [["1", "2"]], "Two & one")
    page.table(["a", "", "b"], [["1", "", "2"]])
    html = page.html()
    assert re.findall("<summary>(.*?)</summary>", html) == ["Two &amp; one", "Table: a, b"]
    assert html.count("<table>") == 2
    assert "<caption>" not in html
    assert "beforeprint" in html
    assert "<details>" not in Page("x").html()


def test_heads_of_a_view_are_called_as_the_example_says():
    example = xr.Dataset(
        {"pattern": (("layer", "head", "query", "key"), np.ones((1, 2, 2, 2))), "token": ("key", ["a", "b"])}
    )
    numbered, called = Page("x"), Page("x")
    attention_view(numbered, example, "caption")
    attention_view(called, example.assign(called=(("layer", "head"), [["copy head (L0H0)", "L0H1"]])), "caption")
    assert '"attentionHeadNames": ["L0H0", "L0H1"]' in numbered.html()
    assert '"attentionHeadNames": ["copy head (L0H0)", "L0H1"]' in called.html()


@pytest.mark.parametrize(
    ("layer", "head", "names"),
    [
        ([2], [0, 1], ["L2H0", "copy (L2H1)"]),
        (2, slice(None), ["L2H0", "copy (L2H1)"]),
        ([2, 0], 1, ["copy (L2H1)", "L0H1"]),
        (1, 1, ["L1H1"]),
        (slice(1, None), [1, 0], ["L1H1", "L1H0", "copy (L2H1)", "L2H0"]),
    ],
)
def test_heads_of_a_view_keep_their_numbers_where_some_are_selected(layer, head, names):
    tokens = torch.arange(6)[None]
    batch = Batch(inputs=tokens, targets=tokens, scored=torch.ones(1, 6, dtype=torch.bool))
    found = with_roles(named_patterns(random_model(n_layers=3), batch), {"L2H1": "copy"})
    page = Page("x")
    attention_view(page, found.isel(example=0, layer=layer, head=head), "caption")
    assert f'"attentionHeadNames": {json.dumps(names)}' in page.html()


def test_html_stands_in_templates_not_in_python():
    """Plotly's own marks in texts of figures aside, and the ends of elements that are looked for or escaped."""
    package, found = Path(ms.__file__).parent, []
    tag = re.compile(r"</(?!extra|b>|span|title|script)\w")
    for room in ("claims", "cli", "core", "explorer", "records", "report", "run"):
        for file in (package / room).rglob("*.py"):
            texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
            found += [(file.name, text) for text in texts if isinstance(text, str) and tag.search(text)]
    assert found == []
