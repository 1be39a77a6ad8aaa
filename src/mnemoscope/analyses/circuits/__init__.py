"""OV and QK circuits and composition, read from the weights, and how well the reads predict what happens."""

from mnemoscope.analyses.circuits.composition import composed_circuit as composed_circuit
from mnemoscope.analyses.circuits.composition import composition as composition
from mnemoscope.analyses.circuits.full import ov_circuits as ov_circuits
from mnemoscope.analyses.circuits.full import qk_circuits as qk_circuits
from mnemoscope.analyses.circuits.pattern_prediction import predict_patterns as predict_patterns
from mnemoscope.analyses.circuits.removal_prediction import predict_removal as predict_removal
from mnemoscope.analyses.circuits.spectra import singular_tokens as singular_tokens
from mnemoscope.analyses.circuits.spectra import spectra as spectra
from mnemoscope.analyses.circuits.summaries import copying as copying
from mnemoscope.analyses.circuits.summaries import offset_affinity as offset_affinity
from mnemoscope.analyses.circuits.summaries import read_circuits as read_circuits
from mnemoscope.analyses.circuits.summaries import same_token_affinity as same_token_affinity
