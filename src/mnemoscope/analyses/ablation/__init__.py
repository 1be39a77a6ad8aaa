"""Ablation: what is lost without a part, dissociation tables, and heads named by what they are needed for."""

from mnemoscope.analyses.ablation.dissociation import dissociation as dissociation
from mnemoscope.analyses.ablation.head_roles import ablate_by_role as ablate_by_role
from mnemoscope.analyses.ablation.head_roles import choose_roles as choose_roles
from mnemoscope.analyses.ablation.head_roles import split_halves as split_halves
from mnemoscope.analyses.ablation.removal import ablate as ablate
