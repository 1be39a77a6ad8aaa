"""Figures of the birth of an induction head, from results over seeds and steps."""

from mnemoscope.systems.in_context_bigrams.figures.circuit import memory_bars as memory_bars
from mnemoscope.systems.in_context_bigrams.figures.circuit import memory_heatmaps as memory_heatmaps
from mnemoscope.systems.in_context_bigrams.figures.data import losses as losses
from mnemoscope.systems.in_context_bigrams.figures.data import outputs as outputs
from mnemoscope.systems.in_context_bigrams.figures.patterns import before_and_after as before_and_after
from mnemoscope.systems.in_context_bigrams.figures.patterns import marked as marked
from mnemoscope.systems.in_context_bigrams.figures.schedules import schedules as schedules
from mnemoscope.systems.in_context_bigrams.figures.settings import settings as settings
