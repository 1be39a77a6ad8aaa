"""The public names: what the stubs promise is there, light to import, and all that guests, pages and examples use."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mnemoscope"
ROOMS = (
    "analyses",
    "claims",
    "core",
    "interventions",
    "methods",
    "models",
    "models.constructed",
    "records",
    "registry",
    "report",
    "run",
    "testing",
)
FACES = ("mnemoscope", *(f"mnemoscope.{room}" for room in ROOMS))
PUBLIC_MODULES = (
    "mnemoscope.core.metrics",
    "mnemoscope.core.patterns",
    "mnemoscope.report.plain_report",
    "mnemoscope.claims.testing",
    "mnemoscope.cli",  # what a command of a guest is made of
)
MOST_NAMES = 84

TO_CONVERT: set[str] = set()
"""Pages and examples that still import from inner modules; the set may only shrink."""

HEAVY = "heavy = {'torch', 'transformer_lens'} & set(sys.modules); assert not heavy, heavy"
FENCE = re.compile(r"^```(?:python|\{code-cell\}[^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""A Python block of a page."""


def stub(face: str) -> dict[str, tuple[str, str]]:
    """Each name on a face, with the module and the name there that the stub imports it from."""
    file = PACKAGE.joinpath(*face.split(".")[1:]) / "__init__.pyi"
    found = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            module = ".".join(filter(None, [face, node.module]))
            found |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize(
    "statement",
    ["import mnemoscope", "from mnemoscope.cli import main; main(['--help'])"],
    ids=["the front door", "help of the command line"],
)
def test_nothing_heavy_is_imported(statement):
    code = f"import sys; {statement}; {HEAVY}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("face", FACES)
def test_every_name_is_what_the_stub_says(face):
    module, names = importlib.import_module(face), stub(face)
    assert set(module.__all__) == set(names)
    for name, (source, there) in names.items():
        if source == face:
            assert getattr(module, name) is importlib.import_module(f"{face}.{there}")
        else:
            assert getattr(module, name) is getattr(importlib.import_module(source), there), name


@pytest.mark.parametrize("face", FACES)
def test_no_name_is_that_of_a_module_of_the_room(face):
    """Importing such a module would put it in the place of the name."""
    modules = {module.name for module in pkgutil.iter_modules(importlib.import_module(face).__path__)}
    assert modules & {name for name, (source, _) in stub(face).items() if source != face} == set()


def test_the_front_door_stays_small():
    assert len(stub("mnemoscope")) <= MOST_NAMES


def imported(code: str) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each import from the package, that of the name where it is a module too."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("mnemoscope."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mnemoscope":
            yield from ((node.lineno, public_or_module(node.module, alias.name)) for alias in node.names)


def public_or_module(module: str, name: str) -> str:
    return f"{module}.{name}" if f"{module}.{name}" in (*FACES, *PUBLIC_MODULES) else module


def allowed(name: str, system: str | None) -> bool:
    """Whether a name may be imported: public names everywhere, and of systems all by pages, its own by a system."""
    guest = name.startswith("mnemoscope.systems.")
    own = guest and (system is None or f"{name}.".startswith(f"mnemoscope.systems.{system}."))
    return own or name in FACES or name in PUBLIC_MODULES


def inner(code: str, system: str | None = None, first_line: int = 1) -> list[int]:
    """The lines that import what is not public."""
    return [first_line + line - 1 for line, name in imported(code) if not allowed(name, system)]


def test_systems_use_public_names():
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((PACKAGE / "systems").rglob("*.py"))
        for line in inner(file.read_text(), file.relative_to(PACKAGE / "systems").parts[0])
    ]
    assert found == []


def plain(code: str) -> str:
    """A block of a page without the magics and the options of a notebook."""
    lines = code.splitlines()
    if lines and lines[0] == "---":
        lines[: lines.index("---", 1) + 1] = [""] * (lines.index("---", 1) + 1)
    return "\n".join("" if line.startswith(("%", "!", ":")) else line for line in lines)


def inner_lines(file: Path) -> list[str]:
    """Where a page or an example imports what is not public."""
    text = file.read_text(encoding="utf-8")
    blocks = [(text, 1)]
    if file.suffix == ".md":
        found = [match for match in FENCE.finditer(text) if ">>>" not in match[1]]
        blocks = [(plain(match[1]), text.count("\n", 0, match.start(1)) + 1) for match in found]
    return [f"{file.relative_to(ROOT)}:{line}" for code, first in blocks for line in inner(code, first_line=first)]


def test_pages_and_examples_use_public_names():
    docs = ROOT / "docs"
    pages = [file for file in docs.rglob("*.md") if not file.is_relative_to(docs / "_build")]
    files = [ROOT / "README.md", *sorted(pages), *sorted((docs / "examples").glob("*.py"))]
    assert len(files) > 20
    checked = [file for file in files if str(file.relative_to(ROOT)) not in TO_CONVERT]
    assert [line for file in checked for line in inner_lines(file)] == []


WORD = re.compile(r"`(?:ms|mnemoscope)\.([a-zA-Z_][\w.]*\w)[^`\n]*`")
"""A public name in the text of a page."""
LINKED = re.compile(r"\[((?:`\w+`(?:, )?)+)\]\(analyses/[^)]*\) \|")
"""The names of a row in the table of questions."""


def test_the_names_in_the_text_of_pages_exist():
    absent = []
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(docs.rglob("*.md"))]
    pages = [page for page in pages if "_build" not in page.parts]
    words = [(page, word) for page in pages for word in WORD.findall(page.read_text())]
    assert len(words) > 100
    for page, word in words:
        try:
            pkgutil.resolve_name(f"mnemoscope.{word}")
        except (AttributeError, ImportError):
            absent.append(f"{page.relative_to(ROOT)}: {word}")
    assert absent == []


def test_the_table_of_questions_names_functions_that_exist():
    """Those of systems are looked for among the functions of their own analyses."""
    import mnemoscope as ms

    own = {
        node.name
        for file in (PACKAGE / "systems").glob("*/analyses/**/*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    named = LINKED.findall((ROOT / "docs" / "analyses.md").read_text())
    names = [name.strip("` ") for cell in named for name in cell.split(",")]
    assert len(names) > 40
    assert [name for name in names if not (hasattr(ms, name) or hasattr(ms.analyses, name) or name in own)] == []


def words_of_tasks() -> set[str]:
    """Names that guests register: tasks, presets, systems, claims, kinds of pairs; those that are no plain English, and
    not the names of layers (L1) and heads."""
    import mnemoscope as ms

    tasks = [ms.TASKS.get(name) for name in ms.TASKS.names()]
    registered = {name for registry in (ms.TASKS, ms.PRESETS, ms.SYSTEMS, ms.CLAIMS) for name in registry.names()}
    names = registered | {task.__name__ for task in tasks} | {kind for t in tasks for kind in t.corruptions}
    plain = {name for name in names if (name.isalpha() and name.islower()) or re.fullmatch(r"L\d+", name)}
    return (names - plain) | OF_TASKS


OF_TASKS = {"elimination", "birth", "permutation lookup", "lookup task", "is_repeat", "repeat_ratio", "earlier_x"}


def example_lines(file: Path) -> set[int]:
    """The lines of a file that belong to examples in docstrings, which may speak of a shipped task."""
    if file.suffix != ".py":
        return set()
    nodes = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    found = set()
    for node in nodes:
        text = ast.get_docstring(node, clean=False)
        for example in doctest.DocTestParser().get_examples(text or ""):
            first = node.body[0].lineno + example.lineno
            found |= set(range(first, first + f"{example.source}{example.want}".count("\n")))
    return found


def test_the_library_has_no_word_of_a_task():
    """Examples in docstrings have some: a run of a shipped task is what they are tried on."""
    words = words_of_tasks()
    assert len(words) > 80
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})(?![\w-])")
    found = [
        f"{file.relative_to(PACKAGE)}:{number} {line.strip()}"
        for file in sorted(PACKAGE.rglob("*.py*"))
        if file.suffix in (".py", ".pyi") and file.relative_to(PACKAGE).parts[0] != "systems"
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if pattern.search(line) and number not in example_lines(file)
    ]
    assert found == []


PATH = re.compile(r"`((?:src|tests|docs|experiments)/[\w/.-]+[\w/])`")


def test_the_paths_in_the_text_of_pages_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paths = [
        (page.name, path) for page in pages if "_build" not in page.parts for path in PATH.findall(page.read_text())
    ]
    assert len(paths) > 5
    assert [(page, path) for page, path in paths if not (ROOT / path).exists()] == []
