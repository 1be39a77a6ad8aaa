from .edges.graph import model_edges as model_edges
from .patching.measuring import Direction as Direction
from .recordings import Recordings as Recordings
from .run import intervened as intervened
