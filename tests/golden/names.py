"""The public names: those that the stubs of the package and of its rooms list, and old ones that redirect to them."""

import ast
from pathlib import Path

import mnemoscope as ms
from mnemoscope.core.renamed import OLD_NAMES

PACKAGE = Path(ms.__file__).parent


def public_names() -> dict[str, list[str]]:
    """By module the names of its stub, in alphabetical order."""
    found = {}
    for stub in sorted(PACKAGE.rglob("*.pyi")):
        module = ".".join(["mnemoscope", *stub.parent.relative_to(PACKAGE).parts])
        imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        old = [name for room, _, name in (each.rpartition(".") for each in OLD_NAMES) if room == module]
        found[module] = sorted([*old, *(alias.asname or alias.name for node in imports for alias in node.names)])
    return found
