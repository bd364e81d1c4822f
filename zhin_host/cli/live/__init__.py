"""What speaks to a running host. Imported only when a command needs it: the rest works without httpx."""
