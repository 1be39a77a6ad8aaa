from .patching.sweep import Direction as Direction
from .recordings import Recordings as Recordings
from .run import intervened as intervened
