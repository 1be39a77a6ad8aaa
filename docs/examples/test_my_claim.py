"""Claims about my copying model, as unit tests."""

import copy_task  # registers the task
import pytest

from mnemoscope.claims.testing import assert_necessary, assert_pattern, head
from mnemoscope.core.patterns import previous

LENGTH = copy_task.Copy().length


@pytest.mark.claim(gate="copying", at_least=0.99, expect="SUPPORTED")
def test_one_head_copies_by_looking_back():
    """The head attends to the right letter, and copying needs it."""
    assert_pattern(head("the head"), previous(LENGTH), at_least=0.5)
    assert_necessary(head("the head"), for_="copying", at_least=0.25)
