"""Keys, tenants and sign-on: the mutants."""

from __future__ import annotations

from tests.mutants.catalogue.places import POWER
from tests.mutants.mutant import mutant

ACCESS = "tests/service/api/test_access.py"
ROUTES = "tests/service/api/test_routes.py"
KEYS = "tests/service/test_keys.py"

ACCESS_AND_LEAKAGE = (
    mutant(
        "exports-for-any-key",
        "exporting a model takes more than reading",
        "pairmark/service/api/routes.py",
        'models.export_version, access="train"',
        'models.export_version, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "versions-deleted-by-train",
        "deleting a version takes admin",
        "pairmark/service/api/routes.py",
        'models.delete_version, access="admin"',
        'models.delete_version, access="train"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "galleries-written-by-any-key",
        "galleries take the scope gallery",
        "pairmark/service/api/routes.py",
        'galleries.upsert_items, access="gallery"',
        'galleries.upsert_items, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "scoring-for-any-key",
        "scores take the scope score",
        "pairmark/service/api/routes.py",
        'scoring.similarity, access="score"',
        'scoring.similarity, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "uploads-for-everybody",
        "uploading takes the scope train",
        "pairmark/service/api/routes.py",
        'datasets.add_dataset, access="train"',
        'datasets.add_dataset, access="open"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "pages-of-other-sites",
        "without a key, pages of other sites are refused",
        "pairmark/service/api/access.py",
        'if origin is not None and origin.decode("latin-1").partition("://")[2] != host:',
        "if False:",
        "tests/e2e/test_edge.py::test_without_a_key_only_this_machine_is_served_and_no_foreign_page",
    ),
    mutant(
        "other-hosts-names",
        "without a key, only requests to this machine's own names are served",
        "pairmark/service/api/admission.py",
        "if not is_loopback(host):",
        "if False:",
        "tests/e2e/test_edge.py::test_without_a_key_only_this_machine_is_served_and_no_foreign_page",
    ),
    mutant(
        "expired-keys-are-remembered",
        "an expired key is refused at once",
        "pairmark/service/api/admission.py",
        "if key is None or key.expired:",
        "if key is None:",
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "revoked-keys-are-remembered",
        "a revoked key is refused, and a key's scopes are those it has now",
        "pairmark/service/api/admission.py",
        "            self._keys_by_headers.clear()\n",
        "            pass\n",
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "one-header-for-another",
        "a key counts only in the header that showed it",
        "pairmark/service/api/admission.py",
        '            plain,\n            None if plain is not None else headers.get(b"authorization"),\n',
        '            plain or headers.get(b"authorization"),\n',
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "cookies-may-write",
        "changes in the console's session need its token",
        "pairmark/service/api/access.py",
        "if from_elsewhere(headers) or not hmac.compare_digest(token.encode(), session.csrf.encode()):",
        "if from_elsewhere(headers):",
        f"{ACCESS}::test_changes_in_a_session_need_its_token",
    ),
    mutant(
        "scopes-not-asked",
        "a key does only what its scopes say",
        "pairmark/service/keys/grants.py",
        "if self.admin or scope in self._everything:",
        "if True:",
        KEYS,
    ),
    mutant(
        "revoked-keys-work",
        "a revoked key is useless at once",
        "pairmark/service/keys/repository.py",
        "select(*columns).where(ApiKey.revoked_at.is_(None)).order_by(ApiKey.created_at)",
        "select(*columns).order_by(ApiKey.created_at)",
        f"{KEYS}::test_a_key_works_until_it_is_revoked",
    ),
    mutant(
        "revoking-the-last-key-opens",
        "once a key exists every request needs one",
        "pairmark/service/keys/repository.py",
        "exists().select_from(ApiKey)",
        "exists().select_from(ApiKey).where(ApiKey.revoked_at.is_(None))",
        f"{KEYS}::test_a_revoked_last_key_does_not_open_the_service",
    ),
    mutant(
        "keys-stored",
        "only hashes of keys are stored",
        "pairmark/service/keys/keys.py",
        "            name=name,\n            sha256=_sha256(key),",
        "            name=key,\n            sha256=_sha256(key),",
        f"{KEYS}::test_the_key_itself_is_nowhere_in_the_database",
    ),
    mutant(
        "wrong-secrets-work",
        "any change to a key is refused",
        "pairmark/service/keys/keys.py",
        "if hmac.compare_digest(presented, candidate.sha256 if candidate else _NOBODY) and candidate is not None:",
        "if candidate is not None:",
        f"{KEYS}::test_any_change_to_a_key_is_refused",
    ),
    mutant(
        "deleted-rows-left",
        "deleted cells are overwritten in SQLite's file",
        "pairmark/service/db.py",
        "secure_delete=ON",
        "secure_delete=OFF",
        "tests/service/test_db.py::test_deleted_rows_are_overwritten",
    ),
    mutant(
        "blocks-keep-the-erased",
        "an erasure removes index blocks that hold the person",
        "pairmark/service/galleries/index/blocks.py",
        "            if holds_one:\n                remove(path)",
        "            if False:\n                remove(path)",
        f"{POWER}::test_an_erased_person_is_in_no_block_after_a_power_cut",
    ),
)

SSO = "tests/e2e/test_single_sign_on.py"
OPENID = "pairmark/service/keys/openid.py"
NOT_OURS = f"{SSO}::test_an_id_token_that_is_not_ours_is_refused"
CALLED_BACK = f"{SSO}::test_a_way_back_that_this_browser_did_not_begin_is_refused"

SIGN_ON = (
    mutant(
        "sign-on-without-pkce",
        "the code flow goes with PKCE",
        OPENID,
        '                "code_challenge_method": "S256",\n',
        "",
        f"{SSO}::test_a_person_is_let_in_with_the_scopes_of_their_groups",
    ),
    mutant(
        "tokens-for-others-are-taken",
        "an ID token for another service is refused",
        OPENID,
        '            "aud": {"essential": True, "values": [self._settings.oidc_client_id]},\n',
        "",
        NOT_OURS,
    ),
    mutant(
        "no-id-token-is-needed",
        "an answer without an ID token signs nobody in",
        OPENID,
        '        if not claims or not isinstance(claims.get("sub"), str):\n',
        '        claims = claims or {"sub": "x", "groups": ["research"]}\n        if False:\n',
        NOT_OURS,
    ),
    mutant(
        "another-provider-answers",
        "an answer that names another issuer is refused",
        OPENID,
        "        if issuer is not None and issuer != self.issuer:\n",
        "        if False:\n",
        CALLED_BACK,
    ),
    mutant(
        "no-group-is-needed",
        "who is in no group of the settings is refused",
        OPENID,
        "        if not scopes:\n",
        "        scopes = scopes or ('score',)\n        if False:\n",
        f"{SSO}::test_who_has_no_group_is_refused",
    ),
    mutant(
        "sign-on-leads-anywhere",
        "a sign-in leads to pages of this service only",
        "pairmark/service/console/session.py",
        'return path if path and re.fullmatch(r"/(?![/\\\\])[\\x21-\\x7e]*", path) else "/"',
        'return path or "/"',
        f"{SSO}::test_it_leads_to_pages_of_this_service_only",
    ),
    mutant(
        "the-sign-on-lasts",
        "a session of single sign-on ends when the settings say",
        "pairmark/service/keys/keys.py",
        "scopes, expires_in_s=seconds).id",
        "scopes).id",
        f"{SSO}::test_a_person_is_let_in_with_the_scopes_of_their_groups",
    ),
    mutant(
        "the-host-header-is-believed",
        "the provider sends people back to the address of the settings",
        OPENID,
        "self._client.authorize_redirect(request, self.public_url + OIDC_CALLBACK)",
        "self._client.authorize_redirect(request, str(request.base_url).rstrip('/') + OIDC_CALLBACK)",
        f"{SSO}::test_no_host_that_a_caller_names_is_asked_or_sent_to",
    ),
    mutant(
        "a-provider-without-tls",
        "providers and this service are named by https",
        OPENID,
        '(parts.scheme == "http" and is_loopback(parts.hostname or ""))',
        'parts.scheme == "http"',
        f"{SSO}::test_settings_that_cannot_work_are_refused_at_the_start",
    ),
)

TENANTS_TESTS = "tests/service/test_tenants.py"
SHARES = "tests/service/test_shares.py"

TENANTS = (
    mutant(
        "a-prefix-without-its-slash",
        "a key of the tenant acme sees nothing of acme2",
        "pairmark/service/keys/grants.py",
        """prefix="" if tenant is None else f"{tenant}/")""",
        """prefix="" if tenant is None else tenant)""",
        f"{TENANTS_TESTS}::test_a_key_sees_below_its_tenant_and_nothing_beside_it",
    ),
    mutant(
        "paths-name-any-tenant",
        "what a key may not see is 404",
        "pairmark/service/api/access.py",
        "        if part in path:\n",
        "        if False:\n",
        f"{TENANTS_TESTS}::test_no_route_shows_a_tenant_anothers_names",
    ),
    mutant(
        "calibrations-by-id-are-everybodys",
        "a calibration is seen by who may see its model",
        "pairmark/service/runtime/runtime.py",
        "        if calibration is None or names.everything:\n",
        "        if True:\n",
        f"{TENANTS_TESTS}::test_no_body_reaches_anothers_names",
    ),
    mutant(
        "idempotency-keys-are-shared",
        "an Idempotency-Key belongs to keys that see the same names",
        "pairmark/service/training/submission.py",
        "    if names.everything:\n",
        "    if True:\n",
        f"{TENANTS_TESTS}::test_the_same_idempotency_key_of_two_tenants_is_two",
    ),
    mutant(
        "quotas-are-only-noted",
        "what is beyond a quota is refused",
        "pairmark/service/keys/tenants.py",
        "        over = amount > remaining\n",
        "        over = False\n",
        f"{TENANTS_TESTS}::test_quotas_refuse_what_is_beyond_and_say_so",
    ),
    mutant(
        "the-page-of-keys-hides-tenants",
        "an operator sees in the console whose tenant a key is",
        "pairmark/service/console/records.py",
        '    tenants = any(key.get("tenant") for key in keys)\n',
        "    tenants = False\n",
        f"{TENANTS_TESTS}::test_an_operator_sees_tenants_through_the_client_and_in_the_console",
    ),
    mutant(
        "the-audit-log-is-everybodys",
        "a tenant sees its part of the audit log",
        "pairmark/service/audit/repository.py",
        "    if tenant is not None:\n",
        "    if False:\n",
        f"{TENANTS_TESTS}::test_lists_hold_the_tenants_own_names",
    ),
    mutant(
        "jobs-first-come-first-served",
        "owners of jobs take turns",
        "pairmark/service/jobs/repository.py",
        ".order_by(under_way, turn, inner.created_at, inner.id)",
        ".order_by(inner.created_at, inner.id)",
        f"{TENANTS_TESTS}::test_owners_of_jobs_take_turns",
    ),
    mutant(
        "a-full-house-stays-full",
        "a newcomer gets a place of whoever has the most",
        "pairmark/service/shares.py",
        "            if seat.evict():\n",
        "            if False:\n",
        f"{SHARES}::test_one_owner_gets_every_seat_and_a_newcomer_one_of_them",
    ),
    mutant(
        "turns-that-waited-are-kept",
        "every turn is given back when its work ends",
        "pairmark/service/shares.py",
        "            if turn.granted:\n                self._under_way[turn.owner] -= 1",
        "            if turn.at_once:\n                self._under_way[turn.owner] -= 1",
        f"{SHARES}::test_every_turn_is_given_back_however_short_its_work",
    ),
    mutant(
        "nobody-beyond-the-threads",
        "an owner with nothing under way does not wait for another's long work",
        "pairmark/service/shares.py",
        "(not self._under_way[owner] and total < self._limit)",
        "False",
        f"{SHARES}::test_places_let_another_owner_in_while_one_fills_them",
    ),
    mutant(
        "one-queue-for-all-owners",
        "pieces of large bodies and requests of several owners are taken one of each in turn",
        "pairmark/service/shares.py",
        "self._waiting.setdefault(owner, deque()).append(mine)",
        """self._waiting.setdefault("", deque()).append(mine)""",
        f"{SHARES}::test_requests_of_several_owners_start_one_each_a_turn",
    ),
    mutant(
        "reports-all-at-once",
        "an owner's reports are worked out one at a time, so that scores do not wait for many threads",
        "pairmark/service/api/services.py",
        "Turns(1, 2)",
        "Turns(8, 8)",
        f"{TENANTS_TESTS}::test_reports_are_worked_out_one_at_a_time",
    ),
    mutant(
        "rows-are-read-in-silence",
        "exports and reads of dataset rows are in the audit log",
        "pairmark/service/api/datasets.py",
        """    services.audit.note("dataset.read", f"dataset:{rows.dataset}", facts)\n""",
        "",
        f"{TENANTS_TESTS}::test_exports_reads_of_rows_and_refused_logins_are_in_the_audit_log",
    ),
)


MUTANTS = (*ACCESS_AND_LEAKAGE, *TENANTS, *SIGN_ON)
