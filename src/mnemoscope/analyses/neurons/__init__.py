"""The MLP as key/value memory: what its neurons read and write, whom they serve, and how few are needed."""

from mnemoscope.analyses.neurons.activity import neuron_activity as neuron_activity
from mnemoscope.analyses.neurons.activity import selectivity as selectivity
from mnemoscope.analyses.neurons.activity import top_inputs as top_inputs
from mnemoscope.analyses.neurons.effects import group_effects as group_effects
from mnemoscope.analyses.neurons.effects import neuron_effects as neuron_effects
from mnemoscope.analyses.neurons.key_value_agreement import neuron_agreement as neuron_agreement
from mnemoscope.analyses.neurons.keys_values import neuron_keys as neuron_keys
from mnemoscope.analyses.neurons.keys_values import neuron_values as neuron_values
from mnemoscope.analyses.neurons.roles import neuron_roles as neuron_roles
from mnemoscope.analyses.neurons.roles import read_neurons as read_neurons
from mnemoscope.analyses.neurons.roles import role_groups as role_groups
from mnemoscope.analyses.neurons.shares import neuron_shares as neuron_shares
