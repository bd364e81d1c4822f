"""Agents to read, run and change; each README block that shows one is checked against it."""
