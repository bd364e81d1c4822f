"""Storage: implements the persistence ports on plain files and in memory; knows nothing of the runtime."""
