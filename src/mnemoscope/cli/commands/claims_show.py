"""`mnemoscope claims show`."""

from mnemoscope.cli.claims import claims_called
from mnemoscope.cli.options import ClaimsShow
from mnemoscope.cli.output import show
from mnemoscope.core.presets import Configuration
from mnemoscope.judging.claim import Claim
from mnemoscope.sweeps.measuring import name_of


def run(options: ClaimsShow) -> None:
    """Print a table a claim."""
    for claim in claims_called(options.what):
        show(f"{claim.id}: {claim.statement}", ("what", "fixed beforehand"), _rows(claim), n_text=2)


def _rows(claim: Claim) -> list[list[str]]:
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


def _unit(unit: Configuration) -> str:
    changes = "".join(f", {name}={value}" for name, value in unit.changes)
    return f"{unit.preset}, {unit.recipe} recipe{changes}"
