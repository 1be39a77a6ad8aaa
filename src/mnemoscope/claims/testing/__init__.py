"""Claims as unit tests: assertions about parts of a model that read like the claim.

In a test marked with `pytest.mark.claim` they are about the model on trial, and what they measure counts as the effect
of its seed. Elsewhere they take a `Subject` and raise AssertionError, like any assertion.
"""

from mnemoscope.claims.testing.assertions import (
    Component,
    assert_dissociated,
    assert_necessary,
    assert_not_necessary,
    assert_pattern,
    assert_sufficient,
    head,
    mlp,
)
from mnemoscope.claims.testing.cases import claim_effect
from mnemoscope.models.subjects import Subject

__all__ = [
    "Component",
    "Subject",
    "assert_dissociated",
    "assert_necessary",
    "assert_not_necessary",
    "assert_pattern",
    "assert_sufficient",
    "claim_effect",
    "head",
    "mlp",
]
