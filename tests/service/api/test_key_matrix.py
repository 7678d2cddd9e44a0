"""Every route against every scope, on the key's own resource and on another one."""

import re

import pytest

from pairmark.service.api.access import check_csrf, check_key, shown_key, shown_session
from pairmark.service.api.routers import guarded_routes
from pairmark.service.api.routing import GuardedRoute
from pairmark.service.errors import Forbidden
from pairmark.service.keys import ActiveKey, ActiveSession, Grants

ROUTES = guarded_routes()
SCOPES = ("score", "decide", "gallery", "gallery:read", "gallery:items", "train", "import", "admin")
SCORE, DECIDE, GALLERY, READ, ITEMS, TRAIN, IMPORT, ADMIN = SCOPES
ALLOWED: tuple[tuple[set[str], str], ...] = (
    ({SCORE, ADMIN}, "similarity explain embed classify rank_point rank_points"),
    ({SCORE, DECIDE, ADMIN}, "match"),
    (
        {TRAIN, ADMIN},
        "add_dataset inspect_dataset get_dataset list_rows delete_dataset submit_job",
    ),
    ({IMPORT, ADMIN}, "import_model"),
    # Whoever may use a model may see it.
    (
        {SCORE, DECIDE, TRAIN, ADMIN},
        "get_model list_versions get_version get_leaderboard get_alias alias_history",
    ),
    # Thresholds stand there, against which a score can be held.
    (
        {SCORE, TRAIN, ADMIN},
        "get_roc get_pr get_operating_point get_inputs draw get_report get_tree",
    ),
    (
        {TRAIN, ADMIN},
        "create_review list_reviews get_review next_of_review judge erase_refs add_outcomes "
        "delete_review dataset_of_review dataset_of_outcomes "
        "set_policy get_errors export_version calibrate evaluate move_alias add_calibration "
        "list_calibrations submit_links list_links get_links list_links_found list_entities delete_links "
        "explain_link explain_pair edit_entities list_changes erase_record resolve_record evaluate_links compare "
        "draw_evaluation",
    ),
    (
        {ADMIN},
        "delete_version list_keys create_key rotate_key revoke_key list_audit "
        "create_webhook list_webhooks delete_webhook",
    ),
    (
        {GALLERY, READ, ITEMS, ADMIN},
        "list_galleries get_gallery search_gallery list_items get_item verify_subject get_gallery_calibration",
    ),
    (
        {GALLERY, ADMIN},
        "put_gallery delete_gallery calibrate_gallery",
    ),
    ({GALLERY, ITEMS, ADMIN}, "upsert_items delete_item delete_subject erase_from_gallery"),
    # Any key: lists show what the key may see, single jobs and calibrations are checked where they are found.
    (
        set(SCOPES),
        "list_datasets list_jobs get_job cancel_job job_events list_models get_calibration list_learners "
        "scrape openapi_document",
    ),
)
MAY = {operation: scopes for scopes, operations in ALLOWED for operation in operations.split()}
OPEN = {"healthz", "readyz", "list_problems", "show_problem", "guide"}


def grant(scope: str, resource: str | None) -> str:
    name, _, level = scope.partition(":")
    if name == "admin":
        return name
    if resource is None:
        return f"{name}:*:{level}" if level else name
    return f"{name}:{resource}:{level}" if level else f"{name}:{resource}"


def admitted(route: GuardedRoute, scope: str, resource: str | None) -> bool:
    key = ActiveKey(id="k", name="k", sha256="", grants=Grants([grant(scope, resource)]), rate=None)
    named = dict.fromkeys(re.findall(r"{(\w+)(?::\w+)?}", route.path), "1")
    named = {name: "people" if name in ("name", "gallery", "ref") else value for name, value in named.items()}
    try:
        check_key(key, route.needs.access, named, level=route.level)
    except Forbidden:
        return False
    return True


def test_every_route_is_in_the_matrix() -> None:
    assert {route.operation_id for route in ROUTES} == {*MAY, *OPEN}
    assert {route.operation_id for route in ROUTES if route.needs.access == "open"} == OPEN


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_opens_its_routes_and_no_others(scope: str) -> None:
    for route in (one for one in ROUTES if one.needs.access != "open"):
        may = scope in MAY[route.operation_id]
        # Whoever may fill every gallery may see the models that can be named for one.
        may_all = may or (scope == GALLERY and route.needs.access == "model")
        assert admitted(route, scope, None) is may_all, route.operation_id
        assert admitted(route, scope, "people") is may, route.operation_id
        about = re.search(r"{(name|gallery|ref)(:\w+)?}", route.path)
        if (
            about
            and scope != "admin"
            and not (route.path.startswith("/learners") or route.needs.access == "any")
        ):
            opens_another = admitted(route, scope, "cars")
            assert not opens_another, f"{route.operation_id}: a key for one resource opened another"


def test_keys_are_read_from_headers_and_sessions_from_the_cookie() -> None:
    assert shown_key({b"authorization": b"Bearer abc"}) == "abc"
    assert shown_key({b"authorization": b"bearer  abc "}) == "abc"
    assert shown_key({b"authorization": b"Basic abc"}) == ""
    assert shown_key({b"x-api-key": b"abc"}) == "abc"
    cookie = {b"cookie": b"theme=dark; pairmark_session=abc; pairmark_key=pm_old"}
    assert shown_key(cookie) is None
    assert shown_session(cookie) == "abc"
    assert shown_session({b"cookie": b"pairmark_key=pm_old"}) is None
    assert shown_session({}) is None


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, True),
        ({b"x-csrf-token": b"wrong"}, True),
        ({b"x-csrf-token": b"token"}, False),
        ({b"x-csrf-token": b"token", b"origin": b"http://here", b"host": b"here"}, False),
        ({b"x-csrf-token": b"token", b"origin": b"http://evil", b"host": b"here"}, True),
        ({b"x-csrf-token": b"token", b"sec-fetch-site": b"same-site"}, True),
        ({b"x-csrf-token": b"t\xe9"}, True),
    ],
)
def test_changes_in_a_session_need_its_token(headers: dict[bytes, bytes], refused: bool) -> None:
    session = ActiveSession(key_id="k", csrf="token", expires_at=0.0)
    check_csrf(session, headers, "GET")
    if refused:
        with pytest.raises(Forbidden):
            check_csrf(session, headers, "DELETE")
    else:
        check_csrf(session, headers, "DELETE")
