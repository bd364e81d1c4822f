"""One file per module, of the same name."""
