"""API keys and the console's sessions. Only their hashes are stored."""

from pairmark.schemas.admin import KeyOut, NewKey, Scope
from pairmark.service.keys.keys import SCOPES, ActiveKey, Grants, Keys, active_keys, match_key

__all__ = [
    "SCOPES",
    "ActiveKey",
    "Grants",
    "KeyOut",
    "Keys",
    "NewKey",
    "Scope",
    "active_keys",
    "match_key",
]
