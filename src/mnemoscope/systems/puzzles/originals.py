"""The weights that others published: `load_original` of the library."""

from mnemoscope.models import load_original as load_original
