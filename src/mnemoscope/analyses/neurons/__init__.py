"""The MLP as key/value memory: what its neurons read and write, whom they serve, and how few are needed."""
