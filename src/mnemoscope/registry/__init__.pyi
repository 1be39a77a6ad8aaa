from .export import export_entry as export_entry
from .reading import Entry as Entry
from .reading import read_registry as read_registry
