"""What all plotly figures have in common: colours and layout."""

COLOURS = {"elimination": "#1f5fbf", "recall": "#c8501e", "train": "#5b6577", "test": "#1f5fbf", "bayes": "#b8bfca"}
LAYOUT = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
    "legend": {"orientation": "h", "y": -0.22},
}
