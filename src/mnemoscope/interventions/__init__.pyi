from .graph import model_edges as model_edges
from .measurement import Direction as Direction
from .recordings import Recordings as Recordings
from .run import intervene as intervene
from .run import run_at as run_at
