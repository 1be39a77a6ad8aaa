"""`mnemoscope claims diff`."""

from mnemoscope.cli.claims import read_verdicts
from mnemoscope.cli.options import ClaimsDiff
from mnemoscope.cli.output import console, show
from mnemoscope.viz.rulings import DIFF_HEADER, diff_rows


def run(options: ClaimsDiff) -> None:
    """Print what differs."""
    rows = diff_rows(read_verdicts(options.old), read_verdicts(options.new))
    if rows:
        show(f"{options.old} → {options.new}", DIFF_HEADER, rows, n_text=5)
    else:
        console.print("the two agree in every verdict, share and effect", highlight=False)
