"""The six puzzles: their data, exact answers, latents and minimal pairs."""
