"""`mnemoscope atlas`: a static site of a registry of claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from mnemoscope.cli.command import COMMANDS, SECTIONS, Command
from mnemoscope.cli.options import CommandOptions
from mnemoscope.cli.refusals import check_out


@dataclass(frozen=True, kw_only=True)
class Atlas(CommandOptions):
    """A site of all claims and what became of them, to open from disk or to publish: filters, papers, citations.

    It needs neither a server nor the network. A page a claim, a page a paper, the rates of outcomes by kind, system and
    paper, and BibTeX for every verdict.
    """

    registries: Positional[tuple[Path, ...]] = ()
    """Directories with entries, one <id of the claim>.json each, or such files; none: those of installed packages."""
    out: Path = Path("atlas")
    """Directory of the site. An earlier site there is replaced whole; a directory with other files is refused."""


def run(options: Atlas) -> None:
    """Read the entries and write the site."""
    import mnemoscope as ms
    from mnemoscope.cli.output import console
    from mnemoscope.core.errors import pluralise
    from mnemoscope.registry.atlas.site import listed_files, write_atlas

    check_out(options.out, is_file=False)
    listed_files(options.out)
    entries = [*ms.registry.read_registry(options.registries or None).values()]
    written = write_atlas(entries, options.out, ms.__version__)
    n_papers = sum(name.startswith("papers/") for name in written)
    console.print(
        f"{pluralise(len(entries), 'claim')} of {pluralise(n_papers, 'paper')}: open {options.out / 'index.html'}",
        highlight=False,
        soft_wrap=True,
    )


COMMANDS.add("atlas", Command(options=Atlas, run=run, section=SECTIONS[3]))
