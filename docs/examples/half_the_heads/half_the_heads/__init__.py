"""The claim half-the-heads, with the seeds that it is judged on."""
