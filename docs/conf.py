"""Sphinx configuration: pages in MyST, tutorials executed at every build, nothing fetched from the network."""

import dataclasses
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docstring_parser import parse_from_object
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

import mnemoscope
from mnemoscope.core.renamed import OLD_NAMES, short_name
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.registry.atlas.site import write_atlas

sys.path.insert(0, str(Path(__file__).parent))
import notebooks
import reference

project = "mnemoscope"
author = "the mnemoscope developers"
copyright = author
version = release = mnemoscope.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "jupyter_execute", "examples", "notebooks"]
html_theme = "furo"
html_title = "mnemoscope"
html_static_path = ["_static"]
html_extra_path = ["../src/mnemoscope/registry/published"]  # the schema of entries, at its address
html_css_files = ["pages.css"]
html_copy_source = False
html_show_copyright = False

# Docstrings: single backticks are code, sections in Google style, shapes stay in the signatures.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has them
autodoc_default_options = {"members": True, "member-order": "bysource"}
maximum_signature_line_length = 88

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

# Tutorials run whenever the pages are built, so that they cannot fall behind the program; an error ends the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread, as `mnemoscope train`
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # no widgets in a page
os.environ.setdefault("PLOTLY_RENDERER", "notebook")  # the script goes into the page

TUTORIALS = ["getting_started", "take_apart"]
SEARCHED = ("ablat", "patch", "circuit", "seed", "verdict")
"""Stems that the search of the pages has to find."""
API = Path(__file__).parent / "api"
NO_PAGES = ("cli", "commands", "zoo", "data")


class Modules(SphinxDirective):
    """`.. modules:: package`: a section with the documentation of every module of a package; folders have own pages.

    Links lead to the pages of public names, so nothing here is in the index.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = importlib.import_module(self.arguments[0])
        lines = [f".. automodule:: {package.__name__}", "   :no-members:", ""]
        for folder in package.__path__:
            self.env.note_dependency(folder)
            for name in sorted(module.name for module in pkgutil.iter_modules([folder]) if not module.ispkg):
                lines += [name, "-" * len(name), "", f".. automodule:: {package.__name__}.{name}", "   :no-index:", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Records(SphinxDirective):
    """`.. records::`: a section for every analysis, from its record."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for name, record in mnemoscope.records.records().items():
            lines += [name, "-" * len(name), "", *self._paragraph(record.options.__doc__), *_options(record)]
            lines += [line for sentences in record.limits for line in self._paragraph(sentences)]
            lines += self._paragraph(f"Source: {record.source}.") if record.source else []
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def _paragraph(self, text: str | None) -> list[str]:
        return [" ".join((text or "").split()).replace("|", r"\|").replace("*", r"\*"), ""]


def _options(record: mnemoscope.records.Record) -> Iterator[str]:
    """The options of an analysis as a list, with the docstrings of their fields."""
    told = {param.arg_name: param.description for param in parse_from_object(record.options).params}
    for field in dataclasses.fields(record.options):
        if told.get(field.name):
            text = " ".join(str(told[field.name]).split())
            yield f"- ``{field.name}`` ({field.default!r}): {text}"
    yield ""


class OldNames(SphinxDirective):
    """`.. old-names::`: a table of the public names that were renamed."""

    def run(self) -> list[nodes.Node]:
        rows = [f"   * - ``{short_name(old)}``\n     - ``{short_name(new)}``" for old, new in sorted(OLD_NAMES.items())]
        return self.parse_text_to_nodes(
            "\n".join([".. list-table::", "   :header-rows: 1", "", "   * - old", "     - new", *rows])
        )


class Laws(SphinxDirective):
    """`.. laws::`: a section for every family of laws of hooked models, with a row for each law."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for family in dict.fromkeys(law.family for law in LAWS.values()):
            lines += [family, "-" * len(family), "", ".. list-table::", "   :header-rows: 1", ""]
            rows = [("law", "it holds that", "otherwise", "reports")]
            rows += [
                (f"``{law.name}``", law.sentence, law.reason, "; ".join(law.threads))
                for law in LAWS.values()
                if law.family == family
            ]
            lines += [f"   {'*' if not i else ' '} - {cell}" for row in rows for i, cell in enumerate(row)]
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _write_api_pages() -> None:
    """A page for every room with its public names, and one for every package that holds modules, in docs/api."""
    API.mkdir(exist_ok=True)
    for old in API.glob("*.rst"):
        old.unlink()
    for name, inner in _packages("mnemoscope"):
        title = name.removeprefix("mnemoscope.")
        pages = "".join(f"   {page.removeprefix('mnemoscope.')}\n" for page in inner)
        toctree = f".. toctree::\n   :caption: Folders\n   :maxdepth: 1\n\n{pages}" if pages else ""
        text = f"{title}\n{'=' * len(title)}\n\n.. modules:: {name}\n\n{toctree}"
        (API / f"{title}.rst").write_text(text, encoding="utf-8")
    for room in reference.ROOMS:
        (API / f"{room}.rst").write_text(reference.page(room), encoding="utf-8")


def _packages(parent: str) -> Iterator[tuple[str, list[str]]]:
    """Every package below `parent`, with those directly in it; commands are documented by their help texts."""
    folder = importlib.import_module(parent).__path__
    inner = sorted(f"{parent}.{m.name}" for m in pkgutil.iter_modules(folder) if m.ispkg and m.name not in NO_PAGES)
    if parent != "mnemoscope":
        yield parent, inner
    for package in inner:
        yield from _packages(package)


# Napoleon reads `2V - 1: all tokens but the last` in the docstring of an attribute as "type: description", and the
# first line of what a function returns likewise. The colons are hidden from it there.
_VALUES = ("attribute", "data", "property")
_RESULTS = ("Returns:", "Yields:")


def _hide_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    for i, line in enumerate(lines):
        if what in _VALUES or (i and lines[i - 1].strip() in _RESULTS):
            lines[i] = line.replace(":", "\0")


def _show_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = [line.replace("\0", ":") for line in lines]


def _keep_bars(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Bars around a formula are a norm, and no substitution; code is left alone."""
    for i, line in enumerate(lines):
        parts = line.split("`")
        lines[i] = "`".join(part if inside % 2 else part.replace("|", r"\|") for inside, part in enumerate(parts))


def _signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """No arguments for a protocol, and `...` for a default that is no Python expression."""
    if getattr(obj, "_is_protocol", False):
        return "", returns
    return signature and signature.replace("<factory>", "..."), returns


def _mathml(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("formula: %s", error, location=node)
        return ""


def _inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _block_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f"<div>{_mathml(node, as_block=True)}</div>\n")
    raise nodes.SkipNode


html_math_renderer = "mathml"  # plain MathML: a page needs no script for it


_REMOTE_SCRIPT = re.compile(r'<script[^>]* src="https?://[^"]*"[^>]*></script>')


def _drop_remote_scripts(app: Sphinx, doctree: nodes.document) -> None:
    """Plotly asks for MathJax beside every figure; no figure here has a formula."""
    for node in doctree.findall(nodes.raw):
        if "https://" in node.astext():
            text = _REMOTE_SCRIPT.sub("", node.astext())
            node.replace_self(nodes.raw(node.rawsource, text, **node.attributes))


def _link_to_colab(app: Sphinx, page: str, source: list[str]) -> None:
    """A link at the end of every page that is a notebook too, if the repository has a public address."""
    address = notebooks.repository()
    if address and page in notebooks.PAGES:
        source[0] += f"\n\n[Open this page in Colab]({notebooks.in_colab(page, address)})\n"


def _check_search(app: Sphinx, error: Exception | None) -> None:
    """End the build if the search of its pages would find nothing."""
    index = Path(app.outdir) / "searchindex.js"
    if error is None and app.builder.name == "html":
        text = index.read_text(encoding="utf-8") if index.exists() else ""
        if missing := [stem for stem in SEARCHED if f'"{stem}":' not in text and f"{stem}:" not in text]:
            raise ExtensionError(f"the search index lacks {', '.join(missing)}: {index}")


def _write_atlas(app: Sphinx, error: Exception | None) -> None:
    """The atlas of the claims of this package, which the pages link to, in `atlas` beside them."""
    if error is None and app.builder.name == "html":
        write_atlas([*mnemoscope.registry.read_registry().values()], Path(app.outdir) / "atlas", release)


def setup(app: Sphinx) -> None:
    _write_api_pages()
    app.add_directive("modules", Modules)
    app.add_directive("records", Records)
    app.add_directive("old-names", OldNames)
    app.add_directive("laws", Laws)
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("env-get-outdated", lambda *_: TUTORIALS)
    app.connect("autodoc-process-docstring", _keep_bars)
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)  # napoleon runs at 500
    app.connect("autodoc-process-docstring", _show_colons, priority=600)
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-read", _drop_remote_scripts)
    app.connect("source-read", _link_to_colab)
    app.connect("build-finished", _check_search)
    app.connect("build-finished", _write_atlas)
