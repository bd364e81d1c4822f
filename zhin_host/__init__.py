"""zhin_host: a durable agent session host on plain files."""

from zhin_host.actions import Retry, current_action
from zhin_host.approval import HttpApprovalWaiter
from zhin_host.audit import audit_directory, audit_session
from zhin_host.engine import TurnHandle, TurnResult
from zhin_host.errors import ActionFailed, AttemptEnded, RequestExpired, ToolDenied, Unauthorized
from zhin_host.host import AgentSessionHost, create_agent_session_host
from zhin_host.ports import Authenticator, Principal
from zhin_host.projector import HttpStepProjector
from zhin_host.storage.files import FileHttpSessionPersistence
from zhin_host.storage.log import SessionEventLog
from zhin_host.store import HttpAgentSessionStore
from zhin_host.sync import SyncTurn
from zhin_host.tools import Tool, tool
from zhin_host.turn import Turn
from zhin_host.turns import HttpTurnRunner

__version__ = "0.1.0"

__all__ = [
    "ActionFailed",
    "AgentSessionHost",
    "AttemptEnded",
    "Authenticator",
    "FileHttpSessionPersistence",
    "HttpAgentSessionStore",
    "HttpApprovalWaiter",
    "HttpStepProjector",
    "HttpTurnRunner",
    "Principal",
    "RequestExpired",
    "Retry",
    "SessionEventLog",
    "SyncTurn",
    "Tool",
    "ToolDenied",
    "Turn",
    "TurnHandle",
    "TurnResult",
    "Unauthorized",
    "audit_directory",
    "audit_session",
    "create_agent_session_host",
    "current_action",
    "tool",
]
