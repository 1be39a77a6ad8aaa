from .directory import export_run as export_run
from .gpt2 import as_gpt2 as as_gpt2
