"""Direct logit attribution and the logit lens."""

from mnemoscope.analyses.attribution.direct import logit_attribution as logit_attribution
from mnemoscope.analyses.attribution.lens import logit_lens as logit_lens
