"""``python -m tests.openid_provider``: an OpenID provider that insists on PKCE and lies on demand; it prints its port.

`oidc-provider-mock` does the protocol. ``POST /lie?how=`` makes the next ID tokens wrong in one way.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import flask
import oidc_provider_mock._app as provider
from werkzeug.serving import make_server

USERS = (
    provider.User(sub="ada", claims={"name": "Ada Lovelace", "groups": ["research", "staff"]}),
    provider.User(sub="bob", claims={"name": "Bob", "groups": ["gardeners"]}),
    provider.User(sub="eve", claims={"name": "<script>alert(1)</script>\u202e", "groups": "operations"}),
)
_state: dict[str, Any] = {"how": "", "challenges": set(), "tokens": 0}


def application() -> flask.Flask:
    """The provider with PKCE required and lies on demand."""
    app = provider.app(user_claims=USERS)

    @app.before_request
    def insist_on_pkce() -> Any:
        request = flask.request
        if request.path == "/oauth2/authorize":
            if request.args.get("code_challenge_method") != "S256":
                return "expected S256", 400
            _state["challenges"].add(request.args["code_challenge"])
        if request.path == "/oauth2/token":
            _state["tokens"] += 1
            digest = hashlib.sha256(request.form.get("code_verifier", "").encode()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() not in _state["challenges"]:
                return {"error": "invalid_grant"}, 400
        return None

    @app.post("/lie")
    def lie() -> Any:
        _state["how"] = flask.request.args["how"]
        return {}

    @app.get("/tokens")
    def tokens() -> Any:
        return {"asked": _state["tokens"]}

    @app.after_request
    def tamper(answer: flask.Response) -> flask.Response:
        if flask.request.path != "/oauth2/token" or answer.status_code != 200 or not _state["how"]:
            return answer
        from joserfc import jwt
        from joserfc.jwk import RSAKey

        body = answer.get_json()
        key = RSAKey.import_key(provider.storage.jwk.as_dict(is_private=True))
        token = jwt.decode(body["id_token"], key)
        claims, header = dict(token.claims), {"alg": "RS256", "kid": token.header.get("kid")}
        how = _state["how"]
        changes: dict[str, dict[str, Any]] = {
            "nonce": {"nonce": "another"},
            "issuer": {"iss": "http://127.0.0.1:1"},
            "audience": {"aud": ["another"], "azp": "pairmark"},
            "expired": {"exp": 1_000_000_000, "iat": 999_999_000},
        }
        claims |= changes.get(how, {})
        if how == "signature":
            key = RSAKey.generate_key(2048, {"kid": header["kid"]})
        if how == "none":
            body.pop("id_token")
        else:
            body["id_token"] = jwt.encode({k: v for k, v in header.items() if v}, claims, key)
        answer.set_data(flask.json.dumps(body))
        return answer

    return app


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, application(), threaded=True)
    print(server.port, flush=True)
    server.serve_forever()
