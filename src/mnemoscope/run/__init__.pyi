from .cluster import on_scheduler as on_scheduler
from .executor import analyse_many as analyse_many
from .sweep import SizeSearch as SizeSearch
from .sweep import Sweep as Sweep
from .sweep import final_metrics as final_metrics
from .sweep import over_sweep as over_sweep
from .sweep import search_sweep as search_sweep
from .sweep import train_sweep as train_sweep
