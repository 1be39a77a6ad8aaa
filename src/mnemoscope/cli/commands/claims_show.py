"""`mnemoscope claims show`."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional

import mnemoscope as ms
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import Options


@dataclass(frozen=True, kw_only=True)
class ClaimsShow(Options):
    """All that is fixed about claims before they are tried: criteria, gate, models, controls, rivals, factors."""

    what: Positional[tuple[str, ...]]
    """Claims, such as T14, or systems."""


def run(options: ClaimsShow) -> None:
    """Print a table a claim."""
    from mnemoscope.cli.claims import claims_called
    from mnemoscope.cli.output import show

    for claim in claims_called(options.what):
        show(f"{claim.id}: {claim.statement}", ("what", "fixed beforehand"), _rows(claim), n_text=2)


def _rows(claim: ms.Claim) -> list[list[str]]:
    from mnemoscope.sweeps.measuring import name_of

    rows = [["source", claim.source], ["models", "; ".join(f"{n}: {_unit(u)}" for n, u in claim.units.items())]]
    rows.append(["replicates", f"{claim.n_replicates} {claim.replicate}s or more" + ", a headline" * claim.headline])
    if claim.gate is not None:
        rows.append(["gate", claim.gate.statement])
    joined = f" ({claim.joined} of the parts)" if claim.parts else ""
    rows += [
        [f"criterion{joined}", f"{part.name}: {part.quantifier}, {part.wording} {part.unit}"] for part in claim.criteria
    ]
    rows += [[f"{control.kind} control", control.name] for control in claim.controls]
    rows += [["rival", f"{rival.id}: {rival.statement}"] for rival in claim.rivals]
    rows += [["varied", f"{name}: {', '.join(map(str, values))}"] for name, values in claim.factors.items()]
    if claim.measure is not None:
        rows.append(["measure", name_of(claim.measure)])
    return rows


def _unit(unit: ms.Configuration) -> str:
    changes = "".join(f", {name}={value}" for name, value in unit.changes)
    return f"{unit.preset}, {unit.recipe} recipe{changes}"


COMMANDS.add("claims show", Command(options=ClaimsShow, run=run, section="put claims on trial"))
