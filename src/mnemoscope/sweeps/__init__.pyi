from .configurations import Largest as Largest
from .configurations import Sweep as Sweep
from .configurations import over_sweep as over_sweep
from .configurations import search_sweep as search_sweep
from .configurations import swept as swept
from .configurations import train_sweep as train_sweep
from .recorded import RecordedVerdict as RecordedVerdict
from .recorded import recorded_verdicts as recorded_verdicts
