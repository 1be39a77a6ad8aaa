"""The notebooks of the tutorials are those of the pages, and were run."""

import importlib.util
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def _script():
    spec = importlib.util.spec_from_file_location("docs_notebooks", DOCS / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOTEBOOKS = _script()


@pytest.mark.every_case
@pytest.mark.parametrize("page", NOTEBOOKS.PAGES)
def test_a_notebook_is_that_of_its_page_and_was_run(page):
    """After a change of a page: `make notebooks`."""
    content = json.loads((DOCS / "notebooks" / f"{page}.ipynb").read_text())
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]]
    opening = NOTEBOOKS.opening(page, NOTEBOOKS.repository())
    assert sources == opening + NOTEBOOKS.cells((DOCS / f"{page}.md").read_text())
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_the_parts_of_a_page():
    page = (
        "---\nfile_format: mystnb\n---\n# Title\nSee [tasks](task.md) and [code](https://x.org).\n\n"
        "```{code-cell} ipython3\n:tags: [hide-input]\n1 + 1\n```\n"
        "```{code-cell} ipython3\n:tags: [remove-cell]\nassert True\n```\n"
        "```bash\nls\n```\n```python\nprint(2)\n```\n\n```text\n2\n```\nEnd.\n"
    )
    assert NOTEBOOKS.cells(page) == [
        ("markdown", "# Title\nSee [tasks](../task.md) and [code](https://x.org)."),
        ("code", "1 + 1"),
        ("markdown", "```bash\nls\n```"),
        ("code", "print(2)"),
        ("markdown", "End."),
    ]
    defined = NOTEBOOKS.cells("`a`, [b](c.md)\n: The text\n  goes on: so.\n\nOther\n: Text.\n")
    assert defined == [("markdown", "- **`a`, [b](../c.md)**: The text\n  goes on: so.\n\n- **Other**: Text.")]
    including = NOTEBOOKS.cells("```{literalinclude} examples/even_attention.py\n:language: python\n```\n")
    assert including[0][1].startswith("%%writefile even_attention.py\n")
    tested = NOTEBOOKS.cells("```{literalinclude} examples/test_even_attention.py\n:language: python\n```\n")
    assert tested[0][0] == "markdown"


def test_a_public_repository_gives_a_badge_and_an_installation_that_leaves_torch_alone():
    address = "https://github.com/somebody/mnemoscope"
    (_, badge), (kind, install) = NOTEBOOKS.opening("verdicts", address)
    opened = "https://colab.research.google.com/github/somebody/mnemoscope/blob/main/docs/notebooks/verdicts.ipynb"
    assert badge.endswith(f"({opened})")
    assert NOTEBOOKS.in_colab("verdicts", f"{address}.git") == opened
    assert kind == "code"
    assert "google.colab" in install.splitlines()[2]
    assert f"mnemoscope @ git+{address}" in install
    assert "torch" not in install
    assert NOTEBOOKS.opening("verdicts", None) == []
