"""Who somebody is, by an OpenID provider: the authorization code flow with PKCE, state and nonce, by Authlib."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING or find_spec("httpx2") is None:
    import httpx
else:
    # Authlib takes it where it is installed.
    import httpx2 as httpx
from starlette.requests import Request

from pairmark.service.errors import Forbidden, InvalidInput, NotReady, RateLimited
from pairmark.service.keys import parse_grant
from pairmark.service.names import is_loopback
from pairmark.service.settings import OIDC_CALLBACK, Settings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are checked with a public key; others would be as good as none."""
ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
"""What the provider's description names that people or this service are sent to."""
TIMEOUT_S = 10.0
MOST_AT_ONCE = 8
"""Sign-ins of one process that wait for the provider."""
MOST_GROUPS = 1_000
_NAME = "provider"


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who signed in, and the scopes of their groups."""

    name: str
    scopes: tuple[str, ...]


class Provider:
    """The provider that the settings name; `InvalidInput` for settings that cannot work."""

    def __init__(self, settings: Settings) -> None:
        issuer, public = settings.oidc_issuer or "", settings.oidc_public_url or ""
        for name, address in (("OIDC_ISSUER", issuer), ("OIDC_PUBLIC_URL", public)):
            if not _is_safe(address):
                raise InvalidInput(
                    f"PAIRMARK_{name} is {address!r}; expected an https:// address (http:// on this machine only)"
                )
        if not settings.oidc_client_id or not settings.oidc_groups:
            raise InvalidInput(
                "PAIRMARK_OIDC_ISSUER needs PAIRMARK_OIDC_CLIENT_ID and PAIRMARK_OIDC_GROUPS too"
            )
        for scopes in settings.oidc_groups.values():
            for scope in scopes:
                parse_grant(scope)
        try:
            # It says that it will want another HTTP client one day.
            with warnings.catch_warnings(record=True):
                from authlib.integrations.starlette_client import OAuth
        except ImportError as error:
            raise InvalidInput("single sign-on needs an extra: pip install 'pairmark[oidc]'") from error
        self._settings = settings
        self.issuer = issuer
        self.public_url = public.rstrip("/")
        self.is_secure = public.startswith("https:")
        self._busy = asyncio.Semaphore(MOST_AT_ONCE)
        secret = settings.oidc_client_secret
        self._client: Any = OAuth().register(
            _NAME,
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": settings.oidc_scopes,
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": "none" if secret is None else "client_secret_basic",
                "timeout": TIMEOUT_S,
                "trust_env": False,
                # Made once: reading the certificates takes tens of milliseconds.
                "verify": httpx.create_ssl_context(trust_env=False),
            },
        )

    async def begin(self, request: Request) -> tuple[str, dict[str, Any]]:
        """The provider's address for this sign-in, and what its end needs to know."""
        await self._load()
        request.scope["session"] = {}
        answer = await self._ask(self._client.authorize_redirect(request, self.public_url + OIDC_CALLBACK))
        return str(answer.headers["location"]), request.scope["session"]

    async def end(self, request: Request, progress: Mapping[str, Any], issuer: str | None) -> Person:
        """Who came back from the provider; `Forbidden` when the answer does not belong to ``progress``, which `begin`
        returned, or the person has no group that may do anything."""
        if issuer is not None and issuer != self.issuer:
            raise Forbidden("the answer is from another provider")
        await self._load()
        request.scope["session"] = dict(progress)
        claims_options = {
            "iss": {"essential": True, "values": [self.issuer]},
            "aud": {"essential": True, "values": [self._settings.oidc_client_id]},
        }
        token = await self._ask(
            self._client.authorize_access_token(request, claims_options=claims_options, leeway=60)
        )
        claims: Mapping[str, Any] | None = token.get("userinfo")
        if not claims or not isinstance(claims.get("sub"), str):
            raise Forbidden("the provider did not say who you are: its answer holds no ID token")
        return self._person(claims)

    async def _load(self) -> None:
        """Read the provider's description, once."""
        facts = await self._ask(self._client.load_server_metadata())
        if facts.get("issuer") != self.issuer:
            self._client.server_metadata.clear()
            raise NotReady(
                f"the provider calls itself {str(facts.get('issuer'))[:200]!r}, and PAIRMARK_OIDC_ISSUER is "
                f"{self.issuer!r}"
            )
        if not all(_is_safe(str(facts.get(name))) for name in ADDRESSES):
            self._client.server_metadata.clear()
            raise NotReady(f"the provider's {', '.join(ADDRESSES)} are not all https:// addresses")
        algorithms = facts.get("id_token_signing_alg_values_supported") or ["RS256"]
        facts["id_token_signing_alg_values_supported"] = [
            algorithm for algorithm in algorithms if algorithm in ALGORITHMS
        ] or ["RS256"]

    async def _ask(self, work: Any) -> Any:
        """The outcome of a step, or its failure in our words."""
        from authlib.integrations.base_client import OAuthError
        from joserfc.errors import JoseError

        if self._busy.locked():
            work.close()
            raise RateLimited("many people sign in just now: try again in a moment")
        try:
            async with self._busy, asyncio.timeout(TIMEOUT_S):
                return await work
        except (OAuthError, JoseError) as error:
            raise Forbidden(
                f"the sign-in was not accepted ({str(error.error)[:100]}): begin again"
            ) from error
        except (httpx.HTTPError, TimeoutError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise NotReady(f"the provider does not answer as it should: {type(error).__name__}") from error

    def _person(self, claims: Mapping[str, Any]) -> Person:
        claim = claims.get(self._settings.oidc_groups_claim)
        groups: Iterable[Any] = (
            [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        )
        scopes_of = self._settings.oidc_groups
        mine = [name for name in list(groups)[:MOST_GROUPS] if isinstance(name, str) and name in scopes_of]
        scopes = tuple(dict.fromkeys(scope for group in mine for scope in scopes_of[group]))
        if not scopes:
            raise Forbidden("none of your groups may use this service; ask its administrator")
        display_name = next(
            (claims[name] for name in ("name", "email", "sub") if isinstance(claims.get(name), str)), ""
        )
        return Person(name=f"{_printable(display_name, 80)} ({_printable(claims['sub'], 60)})", scopes=scopes)


def _is_safe(address: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _printable(text: str, limit: int) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:limit]
