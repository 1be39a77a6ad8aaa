"""Analyses over training steps and runs: when something sets in, how suddenly, and in which order."""

from mnemoscope.analyses.dynamics.change_points import change_point as change_point
from mnemoscope.analyses.dynamics.onsets import order_of_onsets as order_of_onsets
from mnemoscope.analyses.dynamics.onsets import threshold_onset as threshold_onset
from mnemoscope.analyses.dynamics.trajectories import last_roles as last_roles
from mnemoscope.analyses.dynamics.trajectories import over_runs as over_runs
from mnemoscope.analyses.dynamics.trajectories import over_steps as over_steps
