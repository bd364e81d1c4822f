"""zhin_host: a durable agent session host on plain files."""

__version__ = "0.1.0"
