"""Evidence of a trial as labelled arrays that explain themselves, for xarray and ArviZ, without this library."""

import xarray as xr

from mnemoscope.claims.evidence import as_dataset
from mnemoscope.claims.explanation import Quantity
from mnemoscope.claims.ruling import Ruling

GATE = "gate"


def evidence_arrays(ruling: Ruling) -> xr.Dataset:
    """The effects of all replicates with what the claim demands of them.

    Returns:
        Every effect, along the replicates and along `prompt` where prompts were kept, and `gate` along the replicates
        where the claim has one. The dataset has the attributes `claim`, `version`, `statement`, `source`, `system`,
        `replicate`, `joined` and `outcome`. An effect has `unit`, and where it decides `margin`, `direction` and
        `quantifier`; `gate` has `at_least` and `at_most`. `long_name` is its description.
    """
    claim, evidence = ruling.claim, ruling.evidence
    found = as_dataset(evidence.effects).copy()
    if evidence.gate is not None and GATE not in found:
        found[GATE] = evidence.gate
    explained = {} if claim.explanation is None else claim.explanation.quantities
    alone = len(found.data_vars.keys() - {GATE}) == 1
    for part in claim.criteria:
        name = next((str(each) for each in found if each != GATE), part.name) if alone else part.name
        unit = found[name].attrs.get("unit") or part.unit
        demanded = {"unit": unit, "margin": part.margin, "direction": part.direction, "quantifier": part.quantifier}
        found[name].attrs.update(demanded)
    if claim.gate is not None and GATE in found:
        found[GATE].attrs.update(at_least=float(claim.gate.at_least), at_most=float(claim.gate.at_most))
    for name, effect in found.data_vars.items():
        if words := _words(explained.get(str(name))):
            effect.attrs["long_name"] = words
    found.attrs.update(
        claim=claim.id,
        version=claim.version,
        statement=claim.statement,
        source=claim.source,
        system=claim.system,
        replicate=evidence.replicate,
        joined=claim.joined,
        outcome=ruling.verdict.outcome,
    )
    return found


def _words(quantity: Quantity | None) -> str:
    return "" if quantity is None else ": ".join(text for text in (quantity.words, quantity.formula) if text)
