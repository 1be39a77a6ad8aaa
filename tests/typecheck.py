"""The run-time type checker of the tests: beartype, with PEP 484's rule that an int will do for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
