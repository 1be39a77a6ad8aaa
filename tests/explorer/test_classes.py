"""A page of a model whose outputs are classes, that attends in both directions and masks its padding."""

import pytest

import mnemoscope as ms
from mnemoscope.explorer.page import explore
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_page import seen
from tests.toys import PAD, Brackets, bracket_spec, registered

SCRIPT = """
document.querySelectorAll("details").forEach((one) => (one.open = true));
await new Promise((done) => setTimeout(done, 1500));
return document.body.innerText;
"""


@pytest.fixture(scope="module")
def bracket_run(trained_once):
    with registered(Brackets):
        yield trained_once("brackets/seed-0", bracket_spec(0))


@pytest.mark.full
def test_the_record_names_classes_and_lengths(bracket_run):
    html = explore(bracket_run).html()
    assert '"outputs": ["unbalanced", "balanced"]' in html or '"outputs":["unbalanced","balanced"]' in html
    batch = bracket_run.spec.task.sample(6, split="test", generator=ms.generator(0, "page"))
    page = explore(bracket_run.hooked(), batch).html()
    assert f'"lengths":{str(batch.lengths.tolist()).replace(" ", "")}' in page.replace('": ', '":').replace(", ", ",")


@needs_chromium
def test_the_page_says_the_class(bracket_run, tmp_path):
    tokens = f"0.1.2.3.{PAD}.{PAD}.{PAD}.{PAD}"
    text, complaints = seen(explore(bracket_run).html(), tmp_path, SCRIPT, fragment=f"tokens={tokens}")
    assert not complaints
    assert "the model says balanced" in text
    assert "as the exact predictor, exact, does" in text
    assert "unbalanced" in text
