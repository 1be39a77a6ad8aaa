from .configurations import Largest as Largest
from .configurations import Sweep as Sweep
from .configurations import over_sweep as over_sweep
from .configurations import search_sweep as search_sweep
from .configurations import swept as swept
from .configurations import train_sweep as train_sweep
from .dask_cluster import on_scheduler as on_scheduler
from .local import analyse_many as analyse_many
