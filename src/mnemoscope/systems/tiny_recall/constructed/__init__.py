"""Transformers with weights set by hand that solve permutation lookup, or a part of it, by a known circuit.

`attention_only`: without an MLP. `dissociated`: a head for elimination, a head and the MLP for recall. `stores`: what
stood where serves both skills. `recall_mlp`: the MLP of the last two.
"""

from .attention_only import elimination_only as elimination_only
from .attention_only import elimination_only_circuit as elimination_only_circuit
from .attention_only import local_binding as local_binding
from .attention_only import local_binding_circuit as local_binding_circuit
from .attention_only import twin_elimination as twin_elimination
from .attention_only import twin_elimination_circuit as twin_elimination_circuit
from .attention_only import two_layer_recall as two_layer_recall
from .attention_only import two_layer_recall_circuit as two_layer_recall_circuit
from .dissociated import dissociated as dissociated
from .dissociated import dissociated_circuit as dissociated_circuit
from .dissociated import partial_recall as partial_recall
from .stores import shared_store as shared_store
from .stores import shared_store_circuit as shared_store_circuit
from .stores import store_and_match as store_and_match
from .stores import store_and_match_circuit as store_and_match_circuit
