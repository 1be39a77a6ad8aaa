"""Figures of the birth of an induction head, from results over seeds and steps."""

from mnemoscope.viz.birth.circuit import memory_bars as memory_bars
from mnemoscope.viz.birth.circuit import memory_heatmaps as memory_heatmaps
from mnemoscope.viz.birth.data import losses as losses
from mnemoscope.viz.birth.data import outputs as outputs
from mnemoscope.viz.birth.patterns import before_and_after as before_and_after
from mnemoscope.viz.birth.patterns import marked as marked
from mnemoscope.viz.birth.schedules import schedules as schedules
from mnemoscope.viz.birth.settings import settings as settings
