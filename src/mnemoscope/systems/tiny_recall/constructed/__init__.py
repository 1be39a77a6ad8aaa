"""Transformers with weights set by hand that solve permutation lookup, or a part of it, by a known circuit."""

from mnemoscope.systems.tiny_recall.constructed.dissociated import dissociated as dissociated
from mnemoscope.systems.tiny_recall.constructed.dissociated import dissociated_circuit as dissociated_circuit
from mnemoscope.systems.tiny_recall.constructed.elimination import elimination_only as elimination_only
from mnemoscope.systems.tiny_recall.constructed.elimination import elimination_only_circuit as elimination_only_circuit
from mnemoscope.systems.tiny_recall.constructed.local_binding import local_binding as local_binding
from mnemoscope.systems.tiny_recall.constructed.local_binding import local_binding_circuit as local_binding_circuit
from mnemoscope.systems.tiny_recall.constructed.partial_recall import partial_recall as partial_recall
from mnemoscope.systems.tiny_recall.constructed.shared_store import shared_store as shared_store
from mnemoscope.systems.tiny_recall.constructed.shared_store import shared_store_circuit as shared_store_circuit
from mnemoscope.systems.tiny_recall.constructed.store_and_match import store_and_match as store_and_match
from mnemoscope.systems.tiny_recall.constructed.store_and_match import (
    store_and_match_circuit as store_and_match_circuit,
)
from mnemoscope.systems.tiny_recall.constructed.twin_elimination import twin_elimination as twin_elimination
from mnemoscope.systems.tiny_recall.constructed.twin_elimination import (
    twin_elimination_circuit as twin_elimination_circuit,
)
from mnemoscope.systems.tiny_recall.constructed.two_layer_recall import two_layer_recall as two_layer_recall
from mnemoscope.systems.tiny_recall.constructed.two_layer_recall import (
    two_layer_recall_circuit as two_layer_recall_circuit,
)
