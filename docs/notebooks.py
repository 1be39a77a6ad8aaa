"""Write the tutorials as notebooks with their outputs: `python docs/notebooks.py`, all of them or pages that are named.

A notebook is made of its page: code that is run, and the text between; files that a page includes are written by a
cell. What a page runs unseen, to check itself, is left out. Outputs are those of this run; figures are pictures, so
that they show without a script.

With a `Repository` on GitHub among the URLs of pyproject.toml, pages get a link that opens the notebook in Colab, and
notebooks begin with a badge and a cell that installs mnemoscope there.
"""

import os
import re
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
PLACE = HERE / "notebooks"
PAGES = (
    "getting_started",
    "take_apart",
    "heat_map_to_claim",
    "your_own_model",
    "write_a_task",
    "language_models",
    "write_a_claim",
    "verdicts",
    "published_circuit",
)
_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$\n?", re.DOTALL | re.MULTILINE)
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
COLAB = "https://colab.research.google.com"
_UNSEEN = "remove-cell"
_OPTIONS = re.compile(r"\A(?::\w+:[^\n]*\n)+|\A---\n.*?\n---\n", re.DOTALL)
_DEFINITION = re.compile(r"^(?P<term>\S[^\n]*)\n: +", re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:|#|/)")


def cells(page: str) -> list[tuple[str, str]]:
    """Kind (`code` or `markdown`) and source of every cell of a page.

    Args:
        page: Its text: MyST Markdown. What a page prints below its code (`text`) is left out: the outputs say it.
    """
    text, found, at = _FRONT.sub("", page), [], 0
    prose = ""
    for fence in _FENCE.finditer(text):
        prose += text[at : fence.start()]
        at, kind, body = fence.end(), fence["kind"].strip(), fence["body"]
        code = _code(kind, body)
        if _UNSEEN in body:
            continue
        if code is not None:
            found += [("markdown", prose), ("code", code)]
            prose = ""
        elif kind.startswith("{literalinclude}"):
            prose += f"```python\n{_included(kind)}\n```\n"
        elif kind != "text":
            prose += fence[0]
    found.append(("markdown", prose + text[at:]))
    return [(kind, _for_notebook(kind, source.strip())) for kind, source in found if source.strip()]


def _code(kind: str, body: str) -> str | None:
    """What a cell runs; None where the fence is only shown."""
    if kind.startswith("{code-cell}") or kind == "python":
        return _OPTIONS.sub("", body)
    name = kind.partition(" ")[2]
    shown = not kind.startswith("{literalinclude}") or not name.endswith(".py") or Path(name).name.startswith("test_")
    return None if shown else f"%%writefile {Path(name).name}\n{_included(kind)}"


def _included(kind: str) -> str:
    return (HERE / kind.partition(" ")[2]).read_text(encoding="utf-8").rstrip()


def _for_notebook(kind: str, source: str) -> str:
    """Links of pages from the folder of notebooks, and definitions as items of a list, since notebooks know none."""
    return source if kind == "code" else _DEFINITION.sub(r"- **\g<term>**: ", _LINK.sub("](../", source))


def repository() -> str | None:
    """The address of the repository, if pyproject.toml names one."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def in_colab(page: str, address: str) -> str:
    """The address that opens the notebook of a page in Colab."""
    where = address.removesuffix(".git").replace("https://github.com", f"{COLAB}/github")
    return f"{where}/blob/main/docs/notebooks/{page}.ipynb"


def opening(page: str, address: str | None) -> list[tuple[str, str]]:
    """The first cells of a notebook: the badge, and what installs mnemoscope in Colab beside Colab's own torch."""
    if address is None:
        return []
    badge = f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({in_colab(page, address)})"
    install = f'import sys\n\nif "google.colab" in sys.modules:\n    %pip install -q "mnemoscope @ git+{address}"'
    return [("markdown", badge), ("code", install)]


def notebook(page: str) -> Any:
    """The notebook of a page, not yet run."""
    from nbformat import v4

    parts = opening(page, repository()) + cells((HERE / f"{page}.md").read_text(encoding="utf-8"))
    made = [
        (v4.new_code_cell if kind == "code" else v4.new_markdown_cell)(source, id=f"{page.replace('_', '-')}-{i}")
        for i, (kind, source) in enumerate(parts)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def write(page: str) -> Path:
    """Run the notebook of a page in an empty directory and write it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    made = notebook(page)
    with TemporaryDirectory() as folder:
        client = NotebookClient(made, timeout=1200, resources={"metadata": {"path": folder}}, record_timing=False)
        client.execute(env={**os.environ, "PLOTLY_RENDERER": "png", "PYTHONWARNINGS": "ignore"})
    PLACE.mkdir(exist_ok=True)
    made.metadata["language_info"] = {"name": "python"}
    file = PLACE / f"{page}.ipynb"
    nbformat.write(made, file)
    return file


if __name__ == "__main__":
    for _page in sys.argv[1:] or PAGES:
        print(write(_page))
