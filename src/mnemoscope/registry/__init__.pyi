from .effects import effect_sizes as effect_sizes
from .effects import what_replicates as what_replicates
from .export import export_entry as export_entry
from .importing import with_replication as with_replication
from .importing import with_verdict as with_verdict
from .reading import Entry as Entry
from .reading import read_registry as read_registry
