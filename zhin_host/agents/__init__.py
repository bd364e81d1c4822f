"""Agents that come with the host; each imports only what everybody's agent may."""
