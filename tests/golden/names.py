"""The public names: those that the stubs of the package and of its rooms list."""

import ast
from pathlib import Path

import mnemoscope as ms

PACKAGE = Path(ms.__file__).parent


def public_names() -> dict[str, list[str]]:
    """By module the names of its stub, in alphabetical order."""
    found = {}
    for stub in sorted(PACKAGE.rglob("*.pyi")):
        module = ".".join(["mnemoscope", *stub.parent.relative_to(PACKAGE).parts])
        imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        found[module] = sorted(alias.asname or alias.name for node in imports for alias in node.names)
    return found
