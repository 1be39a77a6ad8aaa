"""`mnemoscope claims list`."""

from mnemoscope.cli.claims import claims_called
from mnemoscope.cli.options import ClaimsList
from mnemoscope.cli.output import show


def run(options: ClaimsList) -> None:
    """Print every claim on a line, with its rivals."""
    rows = [
        [claim.id, claim.statement, ", ".join(rival.id for rival in claim.rivals), "headline" * claim.headline]
        for claim in claims_called(options.what)
    ]
    show("claims", ("id", "statement", "rivals", ""), rows, n_text=4)
