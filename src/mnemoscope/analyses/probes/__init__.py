"""Linear probes: what can be read from an activation, and whether the model reads it there too.

`rows`: the vectors and latents that a probe is fitted to. `linear_probes`: what sites hold, beside controls.
`subspaces`: where in a site it lies. `editing`: that part is erased, steered or swapped in a forward pass; is the skill
lost without it, and does the answer follow another one?
"""

from mnemoscope.analyses.probes.editing import edit as edit
from mnemoscope.analyses.probes.editing import erase as erase
from mnemoscope.analyses.probes.linear_probes import probe as probe
from mnemoscope.analyses.probes.rows import partners as partners
from mnemoscope.analyses.probes.rows import split_sequences as split_sequences
from mnemoscope.analyses.probes.rows import with_latent as with_latent
from mnemoscope.analyses.probes.subspaces import Subspace as Subspace
from mnemoscope.analyses.probes.subspaces import subspace as subspace
