"""The page's JavaScript: ES modules of one idea each, put one after the other into one script.

A browser that opens a page from disk loads no other file, so there is nothing to import from. The modules are still
written as ES modules, with `export` and `import`, and tools read them as such. In the page each comes once, after those
that it imports, without the two words. Names at the top of a module are therefore names of the whole script; two that
are equal are an error in every browser.
"""

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |function\*? |class )", re.MULTILINE)


def script(*names: str) -> str:
    """The source of modules of `explorer/js` (without the ending) and of all that they import, as one script."""
    sources: dict[str, str] = {}
    for name in names:
        _add(name, sources)
    return "\n".join(sources.values())


def _add(name: str, sources: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    if name in sources:
        return
    source = (files("mnemoscope.explorer") / "js" / f"{name}.js").read_text()
    for imported in _IMPORT.findall(source):
        _add(imported, sources)
    sources[name] = _EXPORT.sub("", _IMPORT.sub("", source))
