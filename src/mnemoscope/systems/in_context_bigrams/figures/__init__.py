"""Figures of the birth of an induction head, from results over seeds and steps."""

from mnemoscope.systems.in_context_bigrams.figures.curves import losses as losses
from mnemoscope.systems.in_context_bigrams.figures.curves import outputs as outputs
from mnemoscope.systems.in_context_bigrams.figures.curves import schedules as schedules
from mnemoscope.systems.in_context_bigrams.figures.maps import before_and_after as before_and_after
from mnemoscope.systems.in_context_bigrams.figures.maps import marked as marked
from mnemoscope.systems.in_context_bigrams.figures.maps import memory_bars as memory_bars
from mnemoscope.systems.in_context_bigrams.figures.maps import memory_heatmaps as memory_heatmaps
from mnemoscope.systems.in_context_bigrams.figures.maps import settings as settings
