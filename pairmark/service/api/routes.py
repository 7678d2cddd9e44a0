"""The routes of the API, in one table: address, access, limits and handler of each.

Dispatch, access control, limits, metrics and the OpenAPI document are read from it; an endpoint is a row here and a
handler, whose signature names the models of query, body and answer. The console adds rows of its own.
"""

from __future__ import annotations

from typing import Any, Final

from pairmark.service.api import (
    audit,
    calibrations,
    candidates,
    datasets,
    docs,
    galleries,
    guide,
    jobs,
    keys,
    labelling,
    learners,
    models,
    operating,
    points,
    problems,
    reviews,
    scoring,
    search,
    settings,
    status,
    webhooks,
)
from pairmark.service.api.answers import (
    ClassesOut,
    ExplanationOut,
    MatchesOut,
    OperatingPointOut,
    ScoresOut,
    VectorsOut,
)
from pairmark.service.api.evidence import BayesOut
from pairmark.service.api.routing import Binary, BodyLimits, Route
from pairmark.service.galleries.items.imports import KINDS
from pairmark.service.galleries.schemas import (
    GalleryCalibrationRequest,
    GalleryEvaluationRequest,
    GalleryOut,
    ItemsBody,
    SearchBody,
    SearchOut,
    VerifyBody,
    VerifyOut,
)
from pairmark.service.jobs.schemas import JobOut
from pairmark.service.runtime.json_forms import FeaturesBody, PairsBody, ScoresBody
from pairmark.service.runtime.ranking import RankBody
from pairmark.service.store.schemas import ReportOut

UPLOAD: Final = BodyLimits(upload=True, timed=False)
BULK: Final = BodyLimits(bulk=True)
LISTS: Final = BodyLimits(bulk=True, decoded=True)
LONG_LISTS: Final = BodyLimits(timed=False, bulk=True, decoded=True)
VECTORS: Final = BodyLimits(
    instead="send application/octet-stream or application/x-npz, or batches of records"
)
ITEMS: Final = BodyLimits(upload=True, timed=False, bulk=True, instead="send items as CSV, Parquet or npz")
LONG: Final = BodyLimits(timed=False)
"""Thousands of searches, or an answer that ends when something else does."""

_OCTETS, _NPZ = "application/octet-stream", "application/x-npz"
_SVG, _PNG, _HTML = "image/svg+xml", "image/png", "text/html"
_MODEL: Final = {"X-Pairmark-Model": "JSON of the version that answered"}
_PAIRS_TEXT: Final = (
    "Bulk bodies: `application/octet-stream` is little-endian float32, row-major: all left rows, then all right rows "
    "(`dim` defaults to the model's, `n_left` to half of the rows). `application/x-npz` contains the arrays `left` and "
    "`right`. For subjects of several samples, send the rows subject by subject. `left_samples` and `right_samples` "
    "give the number of rows per subject; in npz, the arrays `left_counts` and `right_counts` do. "
)
_SAME_BODIES_TEXT: Final = "Bulk bodies: as for `POST /similarity`. "
_POINTS_TEXT: Final = (
    "Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` contains one "
    "array `features`. With `Accept: application/octet-stream` the answer is raw float32 too, its width in "
    "`X-Pairmark-Dimension`"
)
_RAW_TEXT: Final = "With `Accept: application/octet-stream` the answer is raw too: "
_POINT: Final = {
    f"X-Pairmark-{name}": "as in the operating point"
    for name in ("Threshold", "Calibration-Id", "Method", "Fpr-Upper-Bound")
}
_VERSION = "/models/{name}/versions/{version}"
_GALLERY = "/galleries/{gallery}"
_OF_VERSION: Final = {
    "get_version": {"name": "$response.body#/model", "version": "$response.body#/version"},
    "get_roc": {"name": "$response.body#/model", "version": "$response.body#/version"},
}
_OF_JOB: Final = {name: {"job_id": "$response.body#/id"} for name in ("get_job", "cancel_job")}
_OF_GALLERY: Final = {
    name: {"gallery": "$response.body#/name"} for name in ("get_gallery", "upsert_items", "search_gallery")
}
_AS_A_JOB: Final[dict[int, tuple[Any, str]]] = {
    202: (JobOut, "queued, with `background`: a job whose `result` names what it made")
}

SCORING: Final = (
    Route("POST", "/similarity", scoring.similarity, access="score", tag="scoring", summary="Score pairs",
          query=scoring.SimilarityQuery, body=PairsBody, answer=ScoresOut, direct=True, limits=VECTORS,
          binary=Binary(bodies=(_OCTETS, _NPZ), answer_headers=_MODEL,
                        text=_PAIRS_TEXT + _RAW_TEXT + "float32 scores.")),
    Route("POST", "/match", scoring.match, access="decide", tag="scoring",
          summary="Decide pairs at a false positive rate, or by costs",
          query=scoring.MatchQuery, body=PairsBody | ScoresBody, answer=MatchesOut | BayesOut, direct=True,
          limits=VECTORS, decides=True,
          binary=Binary(bodies=(_OCTETS, _NPZ), answer_headers={**_MODEL, **_POINT},
                        text=_SAME_BODIES_TEXT + _RAW_TEXT + "one uint8 per pair (1 = match, with `fnr` 2 = review), "
                        "and the threshold and calibration in headers.")),
    Route("POST", "/explain", scoring.explain, access="score", tag="scoring", summary="Explain one pair's score",
          query=scoring.PairsQuery, body=PairsBody, answer=ExplanationOut, direct=True, limits=VECTORS,
          binary=Binary(bodies=(_OCTETS, _NPZ), text=_SAME_BODIES_TEXT)),
    Route("POST", "/embed", points.embed, access="score", tag="scoring", summary="Embed points",
          query=points.PointsQuery, body=FeaturesBody, answer=VectorsOut, direct=True, limits=VECTORS,
          binary=Binary(bodies=(_OCTETS, _NPZ), text=_POINTS_TEXT + ".",
                        answer_headers={**_MODEL, "X-Pairmark-Dimension": "numbers in a vector"})),
    Route("POST", "/classify", points.classify, access="score", tag="scoring", summary="Classify points",
          query=points.PointsQuery, body=FeaturesBody, answer=ClassesOut, direct=True, limits=VECTORS,
          binary=Binary(bodies=(_OCTETS, _NPZ),
                        text=_POINTS_TEXT + ", one column per label, their names in `X-Pairmark-Labels` (406 when they "
                        "do not fit).",
                        answer_headers={**_MODEL, "X-Pairmark-Dimension": "number of labels",
                                        "X-Pairmark-Labels": "JSON list of the labels, in the order of the columns"})),
    Route("GET", "/rank-labels", points.rank_point, access="score", tag="ranking", summary="Rank labels of one point",
          query=points.RankQuery, answer=points.RankingsOut, direct=True),
    Route("POST", "/rank-labels", points.rank_points, access="score", tag="ranking", summary="Rank labels",
          body=RankBody, answer=points.RankingsOut, direct=True),
)  # fmt: skip

DATASETS: Final = (
    Route("POST", "/datasets", datasets.add_dataset, access="train", tag="datasets", status=201, limits=UPLOAD,
          errors=(409, 429, 507),
          links={name: {"ref": "$response.body#/name"} for name in ("get_dataset", "delete_dataset")}),
    Route("POST", "/datasets/inspect", datasets.inspect_dataset, access="train", tag="datasets", limits=UPLOAD,
          errors=(429, 507)),
    Route("GET", "/datasets", datasets.list_datasets, access="any", tag="datasets"),
    Route("GET", "/datasets/{ref}", datasets.get_dataset, access="dataset", tag="datasets"),
    # What people uploaded, not only facts about it: not for every key.
    Route("GET", "/datasets/{ref}/rows", datasets.list_rows, access="train", tag="datasets"),
    Route("POST", "/datasets/{ref}/proposals", labelling.propose_pairs, access="train", tag="datasets",
          body=labelling.ProposalRequest, limits=LONG_LISTS, errors=(429,)),
    Route("POST", "/datasets/{ref}/pairs", labelling.add_labelled_pairs, access="train", tag="datasets", status=201,
          body=labelling.LabelledTableRequest, limits=LONG_LISTS, errors=(409, 429, 507)),
    Route("GET", "/datasets/{ref}/ledger", datasets.get_ledger, access="dataset", tag="datasets"),
    Route("DELETE", "/datasets/{ref}", datasets.delete_dataset, access="train", tag="datasets", status=204,
          errors=(409,)),
)  # fmt: skip

JOBS: Final = (
    Route("POST", "/jobs", jobs.submit_job, access="train", tag="jobs", status=202, errors=(404, 409, 429),
          links=_OF_JOB),
    Route("GET", "/jobs", jobs.list_jobs, access="any", tag="jobs"),
    Route("GET", "/jobs/{job_id}", jobs.get_job, access="any", tag="jobs"),
    # The handler asks for what submitting the job took: `train`, or `gallery`.
    Route("POST", "/jobs/{job_id}/cancel", jobs.cancel_job, access="any", tag="jobs", status=202),
    Route("GET", "/jobs/{job_id}/events", jobs.job_events,
          summary="Follow job events", access="any", tag="jobs", gives="text/event-stream",
          limits=LONG, errors=(429,)),
)  # fmt: skip

MODELS: Final = (
    Route("GET", "/models", models.list_models, access="any", tag="models"),
    Route("POST", "/models", models.import_model, access="import", tag="models", status=201, limits=UPLOAD,
          errors=(409, 507), links=_OF_VERSION),
    Route("GET", "/models/{name}", models.get_model, access="model", tag="models"),
    Route("PUT", "/models/{name}/policy", models.set_policy, access="train", tag="models"),
    Route("GET", "/models/{name}/versions", models.list_versions, access="model", tag="models"),
    Route("GET", _VERSION, models.get_version, access="model", tag="models"),
    Route("DELETE", _VERSION, models.delete_version, access="admin", tag="models", status=204, errors=(409,)),
    Route("GET", f"{_VERSION}/roc", models.get_roc, summary="Get ROC curve", access="scores", tag="models"),
    Route("GET", f"{_VERSION}/operating-point", operating.get_operating_point, access="scores", tag="models",
          answer=OperatingPointOut),
    Route("GET", f"{_VERSION}/live", operating.get_live, summary="Get live check", access="scores", tag="models",
          answer=operating.LiveOut | None),
    Route("GET", f"{_VERSION}/leaderboard", models.get_leaderboard, access="model", tag="models"),
    # Rows of what people uploaded.
    Route("GET", f"{_VERSION}/errors", models.get_errors, summary="List hardest pairs", access="train", tag="models"),
    Route("GET", f"{_VERSION}/report", models.get_report, access="scores", tag="models", answer=ReportOut,
          or_gives=_HTML),
    Route("GET", f"{_VERSION}/tree", models.get_tree, access="scores", tag="models", answer=dict[str, Any]),
    Route("GET", f"{_VERSION}/roc.svg", models.get_roc_svg, summary="Draw ROC curve as SVG", access="scores",
          tag="models", gives=_SVG),
    Route("GET", f"{_VERSION}/roc.png", models.get_roc_png, summary="Draw ROC curve as PNG", access="scores",
          tag="models", gives=_PNG),
    Route("GET", f"{_VERSION}/export", models.export_version, access="train", tag="models", gives="application/zip",
          limits=LONG, errors=(507,)),
    Route("POST", f"{_VERSION}/calibrations", models.calibrate, summary="Calibrate version", access="train",
          tag="models", status=201, errors=(409, 429, 507),
          links={"get_calibration": {"calibration_id": "$response.body#/id"}}),
    Route("POST", f"{_VERSION}/candidates", candidates.score_candidates, summary="Score candidate pairs",
          body=candidates.CandidatesRequest, access="train", tag="models", limits=LONG_LISTS, errors=(409, 429)),
    Route("POST", f"{_VERSION}/evaluations", models.evaluate, summary="Evaluate version", access="train", tag="models",
          errors=(409, 429)),
    Route("GET", "/models/{name}/aliases/{alias}", models.get_alias, access="model", tag="models"),
    Route("PUT", "/models/{name}/aliases/{alias}", models.move_alias, access="train", tag="models", errors=(409, 412)),
    Route("GET", "/models/{name}/aliases/{alias}/history", models.alias_history, summary="List alias history",
          access="model", tag="models"),
    Route("POST", "/calibrations", calibrations.add_calibration, access="train", tag="calibrations", status=201,
          body=calibrations.ScoresRequest, limits=LISTS,
          errors=(409, 429, 507), links={"get_calibration": {"calibration_id": "$response.body#/id"}}),
    Route("GET", "/calibrations", calibrations.list_calibrations, access="train", tag="calibrations"),
    Route("GET", "/calibrations/{calibration_id}", calibrations.get_calibration, access="any", tag="calibrations"),
    Route("GET", "/learners", learners.list_learners, access="any", tag="learners"),
    Route("GET", "/learners/{kind}", learners.get_learner, access="any", tag="learners"),
)  # fmt: skip

GALLERIES: Final = (
    Route("GET", "/galleries", galleries.list_galleries, access="gallery", tag="galleries"),
    Route("PUT", _GALLERY, galleries.put_gallery, summary="Create or move gallery", access="gallery", tag="galleries",
          also={201: (GalleryOut, "made")}, errors=(409,), links=_OF_GALLERY),
    Route("GET", _GALLERY, galleries.get_gallery, access="gallery", tag="galleries"),
    Route("DELETE", _GALLERY, galleries.delete_gallery, access="gallery", tag="galleries", status=204),
    Route("POST", f"{_GALLERY}/search", search.search, access="gallery", reading=True, tag="galleries",
          name="search_gallery",
          summary="Search a gallery", body=SearchBody, answer=SearchOut, direct=True, decides=True, errors=(409,)),
    Route("PUT", f"{_GALLERY}/items", galleries.upsert_items, access="gallery", tag="galleries", body=ItemsBody,
          of_items=True, limits=ITEMS, errors=(409, 415, 429, 507),
          binary=Binary(bodies=tuple(kind for kind in KINDS if "json" not in kind))),
    Route("GET", f"{_GALLERY}/items", galleries.list_items, access="gallery", tag="galleries"),
    Route("GET", f"{_GALLERY}/items/{{id:path}}", galleries.get_item, access="gallery", tag="galleries"),
    Route("DELETE", f"{_GALLERY}/items/{{id:path}}", galleries.delete_item, access="gallery", tag="galleries",
          of_items=True),
    Route("POST", f"{_GALLERY}/erase", galleries.erase, access="gallery", tag="galleries", name="erase_from_gallery",
          of_items=True, summary="Erase an item or a subject"),
    Route("POST", f"{_GALLERY}/subjects/{{subject:path}}/verify", search.verify, access="gallery", reading=True,
          tag="galleries", name="verify_subject", summary="Verify one subject", query=search.VerifyQuery,
          body=VerifyBody, answer=VerifyOut, direct=True, decides=True),
    Route("DELETE", f"{_GALLERY}/subjects/{{subject:path}}", galleries.delete_subject, access="gallery", of_items=True,
          tag="galleries"),
    Route("POST", f"{_GALLERY}/calibrations", galleries.calibrate_gallery, access="gallery", tag="galleries",
          body=GalleryCalibrationRequest, status=201, also=_AS_A_JOB, limits=LONG_LISTS, errors=(409, 429),
          links={"get_gallery_calibration": {"gallery": "$request.path.gallery", "calibration": "$response.body#/id"}}),
    Route("GET", f"{_GALLERY}/calibrations/{{calibration}}", galleries.get_gallery_calibration, access="gallery",
          tag="galleries"),
    Route("POST", f"{_GALLERY}/evaluations", galleries.evaluate_gallery, access="gallery", tag="galleries", status=201,
          body=GalleryEvaluationRequest, also=_AS_A_JOB, limits=LONG_LISTS, errors=(409, 429),
          links={"get_evaluation": {"gallery": "$request.path.gallery", "evaluation": "$response.body#/id"}}),
    Route("GET", f"{_GALLERY}/evaluations/{{evaluation}}", galleries.get_evaluation, access="gallery", tag="galleries"),
)  # fmt: skip

_OF_REVIEW: Final = {
    name: {"review_id": "$response.body#/id"} for name in ("get_review", "next_of_review", "judge")
}
REVIEWS: Final = (
    Route("POST", "/reviews", reviews.create_review, access="train", tag="reviews", status=201, errors=(404,),
          links=_OF_REVIEW),
    Route("GET", "/reviews", reviews.list_reviews, access="train", tag="reviews"),
    Route("POST", "/reviews/erase", reviews.erase_refs, access="train", tag="reviews", errors=(404,),
          summary="Erase refs"),
    Route("GET", "/reviews/{review_id}", reviews.get_review, access="train", tag="reviews"),
    Route("GET", "/reviews/{review_id}/next", reviews.next_of_review, access="train", tag="reviews",
          summary="Take pairs to judge"),
    Route("POST", "/reviews/{review_id}/outcomes", reviews.judge, access="train", tag="reviews", name="judge",
          limits=BULK, summary="Judge pairs"),
    Route("DELETE", "/reviews/{review_id}", reviews.delete_review, access="train", tag="reviews", status=204),
    Route("POST", "/reviews/{review_id}/dataset", reviews.dataset_of_review, access="train", tag="reviews", status=201,
          summary="Make a dataset of judged pairs"),
    Route("POST", "/outcomes/dataset", reviews.dataset_of_outcomes, access="train", tag="reviews", status=201,
          limits=BULK, errors=(404,), summary="Make a dataset of outcomes"),
    Route("POST", "/outcomes", reviews.add_outcomes, access="train", tag="reviews", limits=BULK, errors=(404,),
          summary="Add outcomes from elsewhere"),
)  # fmt: skip

KEYS: Final = (
    Route("GET", "/keys", keys.list_keys, access="admin", tag="keys"),
    Route("POST", "/keys", keys.create_key, access="admin", tag="keys", status=201,
          links={name: {"key_id": "$response.body#/id"} for name in ("rotate_key", "revoke_key")}),
    Route("POST", "/keys/{key_id}/rotate", keys.rotate_key, access="admin", tag="keys", status=201, errors=(409,),
          links={"revoke_key": {"key_id": "$response.body#/id"}}),
    Route("DELETE", "/keys/{key_id}", keys.revoke_key, access="admin", tag="keys", status=204),
    Route("GET", "/tenants", keys.list_tenants, access="admin", tag="keys"),
    Route("GET", "/tenants/{tenant}", keys.get_tenant, access="admin", tag="keys"),
    Route("PUT", "/tenants/{tenant}", keys.set_quotas, access="operator", tag="keys", summary="Set a tenant's quotas"),
)  # fmt: skip

WEBHOOKS: Final = (
    Route("POST", "/webhooks", webhooks.create_webhook, access="operator", tag="webhooks", status=201, errors=(409,),
          links={name: {"webhook_id": "$response.body#/id"} for name in ("delete_webhook", "list_deliveries")}),
    Route("GET", "/webhooks", webhooks.list_webhooks, access="operator", tag="webhooks"),
    Route("DELETE", "/webhooks/{webhook_id}", webhooks.delete_webhook, access="operator", tag="webhooks", status=204),
    Route("GET", "/webhooks/{webhook_id}/deliveries", webhooks.list_deliveries, access="operator", tag="webhooks"),
)  # fmt: skip

SERVICE: Final = (
    Route("GET", "/healthz", status.healthz, summary="Check liveness", access="open", tag="status"),
    Route("GET", "/readyz", status.readyz, summary="Check readiness", access="open", tag="status"),
    Route("GET", "/audit", audit.list_audit, access="admin", tag="audit"),
    Route("GET", "/settings", settings.get_settings, access="operator", tag="status"),
    Route("GET", "/metrics", status.scrape, summary="Get metrics", access="metrics", tag="status", gives="text/plain"),
    Route("GET", "/problems", problems.list_problems, access="open", tag="problems", gives=_HTML),
    Route("GET", "/problems/{slug}", problems.show_problem, access="open", tag="problems", gives=_HTML),
    Route("GET", "/guide", guide.guide, access="open", gives=_HTML),
    Route("GET", "/guide/{file:path}", guide.show_guide, access="open", gives=_HTML),
    Route("GET", "/docs", docs.show_docs, access="any", gives=_HTML),
    Route("GET", "/openapi.json", docs.openapi_document, access="any"),
)  # fmt: skip

ROUTES: Final = (*SCORING, *DATASETS, *JOBS, *MODELS, *GALLERIES, *REVIEWS, *KEYS, *WEBHOOKS, *SERVICE)
