"""The HTTP edge: who may call, what they sent, one call of the store, what they get (contract section 2)."""

from zhin_host.http.app import create_app
from zhin_host.http.auth import AllowAll, BearerTokens, CallerOf, OuterLogin, login_of
from zhin_host.http.door import Dialect

__all__ = ["AllowAll", "BearerTokens", "CallerOf", "Dialect", "OuterLogin", "create_app", "login_of"]
