"""A host that is stopped, killed or robbed of its disk anywhere, played against by clients that remember."""
