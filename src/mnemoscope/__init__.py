"""mnemoscope: see how transformers remember."""
