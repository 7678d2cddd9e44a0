"""API keys: made, listed, revoked and checked. Only their hashes are stored."""

from pairmark.service.keys.keys import SCOPES, ActiveKey, Keys, active_keys, match_key
from pairmark.service.keys.schemas import KeyOut, NewKey, Scope

__all__ = ["SCOPES", "ActiveKey", "KeyOut", "Keys", "NewKey", "Scope", "active_keys", "match_key"]
