"""Attention of any model in one call: what the page holds is what the heads do, and long sequences stay small."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import mnemoscope as ms
from mnemoscope.report.attention_page import SCALE, _pack_weights
from tests.explorer.chromium import needs_chromium, opened, text_of
from tests.support import random_model

CALL = re.compile(r'<script>showAttention\("view-(\d+)", (\{.*?\}), "([\w+/=]*)", (\d+), (true|false), 1000\)</script>')
LIBRARY = 1_400_000
"""Bytes that CircuitsVis and the style of the page take, at most."""


def views(page: ms.report.Page) -> list[tuple[dict, np.ndarray]]:
    """The properties and the weights (head, packed) of each view."""
    found = []
    for _, properties, packed, n_heads, _ in CALL.findall(page.html()):
        weights = np.frombuffer(gzip.decompress(base64.b64decode(packed)), "<u2").astype(float) / SCALE
        found.append((json.loads(properties), weights.reshape(int(n_heads), -1)))
    return found


def own_model(n_ctx: int = 12) -> HookedTransformer:
    config = HookedTransformerConfig(
        n_layers=2, d_model=16, n_ctx=n_ctx, d_head=8, n_heads=2, d_vocab=5, act_fn="relu", seed=0
    )
    return HookedTransformer(config)


def test_a_model_of_ones_own_is_shown_as_it_attends(tmp_path):
    model, tokens = own_model(), torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    page = ms.attention(model, tokens, symbols=list("abcd<"), names={"L1H0": "my head"}, path=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html()
    assert page.html().count("CircuitsVis.render(") == 1
    _, cache = model.run_with_cache(tokens)
    for row, (properties, weights) in enumerate(views(page)):
        assert properties["attentionHeadNames"] == ["L0H0", "L0H1", "my head (L1H0)", "L1H1"]
        patterns = torch.cat([cache[f"blocks.{layer}.attn.hook_pattern"][row] for layer in range(2)]).numpy()
        lower = patterns[:, *np.tril_indices(4)]
        np.testing.assert_allclose(weights, lower, atol=0.5 / SCALE + 1e-7)
    assert [properties["tokens"] for properties, _ in views(page)] == [list("abcd"), ["&lt;", "d", "c", "b"]]
    assert "<iframe srcdoc=" in page._repr_html_()


def test_layers_select_heads():
    [(properties, weights)] = views(ms.attention(own_model(), torch.tensor([0, 1, 2]), layers=[1]))
    assert properties["attentionHeadNames"] == ["L1H0", "L1H1"]
    assert weights.shape == (2, 6)


def test_heads_of_a_run_are_called_by_their_roles():
    run = ms.open_run("zoo:v3-quick/seed-16")
    [(properties, _), (other, _)] = views(ms.attention(run, ["3 3 4 5 2 1 1 4 3", "1 3 4 1 3 4 2 5 1 3"]))
    assert properties["attentionHeadNames"] == ["elimination head (L0H0)", "other head (L0H1)"]
    assert properties["tokens"][:2] == ["x1=3", "y1=3"]
    assert other["tokens"] != properties["tokens"]
    [(unseen, _)] = views(ms.attention(run))
    assert unseen["attentionHeadNames"] == properties["attentionHeadNames"]


def test_a_subject_is_shown_on_its_task():
    run = ms.open_run("zoo:d4-quick/seed-16")
    [(properties, _)] = views(ms.attention(ms.Subject(model=run.model(), task=run.spec.task, seed=16)))
    assert properties["tokens"][0].startswith("x1=")


@pytest.mark.full
def test_five_hundred_tokens_are_small():
    """Spread-out attention is the worst case; as JSON its eight heads would take 12 MB."""
    tokens = torch.randint(5, (1, 512), generator=torch.Generator().manual_seed(0))
    page = ms.attention(own_model(n_ctx=512), tokens)
    assert len(page.html()) < LIBRARY + 4 * 100_000


def test_weights_after_the_query_are_kept_where_there_are_some():
    patterns = np.full((1, 2, 2), 0.5)
    packed, causal = _pack_weights(patterns)
    assert not causal
    assert len(gzip.decompress(base64.b64decode(packed))) == 8


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ms.attention(own_model()), r"needs sequences: ms\.attention\(model, sequences\); got none"),
        (lambda: ms.attention(own_model(), "a text"), "has no tokenizer for texts; give tokens"),
        (lambda: ms.attention(own_model(), torch.tensor([0]), layers=[2]), "layers must be one of: 0, 1; got 2"),
        (
            lambda: ms.attention(own_model(), torch.tensor([0]), names={"head": "x"}),
            "a key of names must be one of: L0H0",
        ),
        (lambda: ms.attention(own_model(), torch.tensor([0]), step=3), "step is for runs; got step=3"),
        (
            lambda: ms.attention(ms.open_run("zoo:d4-quick/seed-16"), symbols=["a"]),
            "symbols are for a model without a task",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, says):
    with pytest.raises(ms.InputError, match=says):
        call()


def test_a_page_that_would_be_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("mnemoscope.report.attention_page.MAX_WEIGHTS", 7)
    with pytest.raises(ms.InputError, match="would hold 8 weights of attention, and 7 are allowed"):
        ms.attention(random_model(), torch.tensor([[0, 1]]), layers=[0])


@pytest.mark.thorough
@needs_chromium
def test_a_long_sequence_is_drawn_at_once_and_read_by_pointing(tmp_path):
    """CircuitsVis took minutes for 512 tokens."""
    model, tokens = own_model(n_ctx=512), torch.randint(5, (1, 512), generator=torch.Generator().manual_seed(0))
    page = ms.attention(model, tokens, symbols=list("abcd<"))
    probe = """<script>addEventListener("load", () => setTimeout(() => {
      const [large] = document.getElementsByClassName("large");
      const heads = [...document.querySelectorAll(".heads button")];
      heads[3].click();
      const box = large.getBoundingClientRect();
      const at = (pos) => ((pos + 0.5) * box.width) / 512;
      large.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + at(7), clientY: box.top + at(300) }));
      const { data } = large.getContext("2d").getImageData(0, 0, 512, 512);
      const pixel = (x, y) => [...data.slice(4 * (512 * y + x), 4 * (512 * y + x + 1))];
      const found = { names: heads.map((head) => head.textContent), read: large.nextElementSibling.textContent,
        pressed: heads.map((head) => head.getAttribute("aria-pressed")), title: large.previousSibling.textContent,
        first: pixel(0, 0), ahead: pixel(9, 2), wide: document.documentElement.scrollWidth };
      document.body.insertAdjacentHTML("beforeend", `<pre id="found"></pre>`);
      document.getElementById("found").textContent = JSON.stringify(found);
    }, 1000));</script></body>"""
    document, complaints = opened(page.html().replace("</body>", probe), tmp_path, width=500)
    assert not complaints
    found = json.loads(text_of(document, "found"))
    assert found["names"] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert found["pressed"] == ["false", "false", "false", "true"]
    assert found["title"] == "L1H1"
    assert found["first"] == [0, 0, 255, 255], "the first token attends to itself"
    assert found["ahead"] == [200, 200, 200, 255], "no query sees a later key"
    _, cache = model.run_with_cache(tokens)
    read = re.fullmatch(r"from (.) \((\d+)\) to (.) \((\d+)\): (\d\.\d{3})", found["read"])
    assert read is not None
    query, key = int(read[2]), int(read[4])
    assert (query, key) == (pytest.approx(300, abs=2), pytest.approx(7, abs=2)), "a cell has less than a pixel"
    assert [read[1], read[3]] == ["abcd<"[int(tokens[0, pos])] for pos in (query, key)]
    weight = float(cache["blocks.1.attn.hook_pattern"][0, 1, query, key])
    assert float(read[5]) == pytest.approx(weight, abs=1 / SCALE)
    assert found["wide"] <= 500
