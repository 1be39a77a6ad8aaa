"""One flat training loop, its schedules and its data; training saves checkpoints and never analyses."""
