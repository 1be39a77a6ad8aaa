"""Direct logit attribution and the logit lens."""

from mnemoscope.analyses.attribution.direct import attribute as attribute
from mnemoscope.analyses.attribution.lens import logit_lens as logit_lens
