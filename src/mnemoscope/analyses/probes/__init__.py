"""Linear probes: what can be read from an activation, and whether the model reads it there too.

`latents` says what is to be read, `activations` from where, `linear` how one probe is fitted and scored. `reading` asks
what sites hold, beside controls; `subspaces` where in a site it lies. `displacement` changes that part in a forward
pass: `erasing` asks what is lost without it, `editing` whether the answer follows another one.
"""

from mnemoscope.analyses.probes.editing import edit as edit
from mnemoscope.analyses.probes.editing import erase as erase
from mnemoscope.analyses.probes.linear_probes import probe as probe
from mnemoscope.analyses.probes.rows import partners as partners
from mnemoscope.analyses.probes.rows import split_sequences as split_sequences
from mnemoscope.analyses.probes.rows import with_latent as with_latent
from mnemoscope.analyses.probes.subspaces import Subspace as Subspace
from mnemoscope.analyses.probes.subspaces import subspace as subspace
