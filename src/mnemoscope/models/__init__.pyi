from . import constructed as constructed
from .building import build as build
from .run import by_label as by_label
from .subjects import Plant as Plant
from .subjects import planted as planted
from .subjects import subject as subject
from .subjects import untrained as untrained
