"""The audit: what a session's files say, checked against everything the contract promises of them.

    for verdict in audit_directory("data/http-agent-sessions"):
        print(verdict.session_id, "whole" if verdict.ok else verdict.faults)

It reads the log in blocks, writes nothing, takes no lock and may run beside the host that owns the directory.
"""

from zhin_host.audit.session import audit_directory, audit_session
from zhin_host.audit.verdict import Fault, Verdict

__all__ = ["Fault", "Verdict", "audit_directory", "audit_session"]
