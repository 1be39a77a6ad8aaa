"""Published claims, one or one tight family a file; each registers itself."""
