"""The HTTP edge: who may call, what they sent, one call of the store, what they get (contract section 2)."""

from zhin_host.http.app import create_app
from zhin_host.http.auth import AllowAll, BearerTokens, check_authenticator
from zhin_host.http.door import Dialect

__all__ = ["AllowAll", "BearerTokens", "Dialect", "check_authenticator", "create_app"]
