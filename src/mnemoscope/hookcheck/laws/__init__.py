"""The laws, one module a family."""

from collections.abc import Mapping

from mnemoscope.hookcheck.law import Law
from mnemoscope.hookcheck.laws import batches, causality, files, gradients, identity, reach, scope, sums

FAMILIES = (
    identity.FAMILY,
    sums.FAMILY,
    reach.FAMILY,
    causality.FAMILY,
    batches.FAMILY,
    gradients.FAMILY,
    scope.FAMILY,
    files.FAMILY,
)
LAWS: Mapping[str, Law] = {name: law for family in FAMILIES for name, law in family.laws.items()}
"""Every law by name, in the order of families."""
