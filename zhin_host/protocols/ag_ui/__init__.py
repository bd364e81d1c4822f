"""AG-UI 1.0: front ends of the Agent User Interaction protocol speak to the sessions of a host (docs/ag-ui.md)."""

from zhin_host.protocols.ag_ui.routes import AgUi

__all__ = ["AgUi"]
