"""The benchmark: limits of the machine, then the host against them; `scripts/bench` runs it."""
