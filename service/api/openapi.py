"""The OpenAPI document: the scoring routes, which the framework does not see, and what holds for every route."""

from __future__ import annotations

import inspect
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from pairmark.service.api import access
from pairmark.service.api.classify import ClassesOut, ClassifyRoute
from pairmark.service.api.embed import EmbedRoute, VectorsOut
from pairmark.service.api.hot import ScoringRoutes
from pairmark.service.api.problems import Problem, responses
from pairmark.service.api.rank import RankingsOut, RankRoute
from pairmark.service.api.search import SEARCH, VERIFY, SearchRoutes
from pairmark.service.galleries.schemas import SearchBody, SearchOut, VerifyBody, VerifyOut
from pairmark.service.runtime.ranking import RankBody
from pairmark.service.runtime.vectors import FeaturesBody, PairsBody, ScoresBody

DESCRIPTION = """\
Pairmark learns similarity from your own labelled vectors and answers "same" or "different" at the false positive
rate you ask for, with a stated guarantee, or refuses when the data cannot support it.

A model is named `name` (its production version), `name@alias` or `name:version`. Errors are
`application/problem+json`; their `type` is a page of this service that says how to mend them.
"""


class ModelUsed(BaseModel):
    """The version that scored."""

    name: str
    version: int
    kind: str


class ScoresOut(BaseModel):
    """Similarities, one a pair, in order. Higher is more similar; swapping the sides changes no bit."""

    model: ModelUsed
    scores: list[float] = Field(description="float32 values")


class MatchOut(BaseModel):
    """A decision about one pair."""

    score: float
    match: bool = Field(description="score > threshold, strictly, compared in float32")
    log10_fpr: float | None = Field(
        None,
        description="with `detail`: at most 10 to this power of different pairs score so high, with the confidence "
        "asked for and for all scores at once; comes in steps, and stops where the data stop",
    )


class OperatingPointOut(BaseModel):
    """The threshold, and what is promised about it."""

    fpr: float = Field(description="the rate asked for")
    threshold: float = Field(description="a float32 value")
    fpr_upper_bound: float = Field(description="with the stated confidence the true rate is at most this")
    confidence: float
    method: str = Field(description="finite-sample, or bootstrap (asymptotic)")
    tpr: float | None = Field(description="share of same pairs that match at this threshold")
    tpr_interval: list[float] | None
    n_units: int = Field(description="independent people (open-set) or samples (closed-set) behind it")
    n_negative_pairs: int
    observed_fpr: float = Field(description="the rate at the threshold on the calibration pairs")
    n_independent: int = Field(description="independent blocks that finite-sample counts")
    guarantee: str = Field(
        description="finite-sample, or asymptotic: the confidence is approached as units grow"
    )
    protocol: str
    calibration_id: str


class MatchesOut(BaseModel):
    """Decisions, one a pair, in order."""

    model: ModelUsed | None = Field(description="null for scores made elsewhere")
    matches: list[MatchOut]
    operating_point: OperatingPointOut


class ExplanationOut(BaseModel):
    """Why a pair has its score."""

    model: ModelUsed
    score: float
    explanation: dict[str, Any] = Field(
        description="for trees the path; for weighted metrics the contributions"
    )


_BINARY = {"type": "string", "format": "binary"}
_SHOWN = (
    ScoresOut,
    MatchesOut,
    ExplanationOut,
    RankingsOut,
    PairsBody,
    ScoresBody,
    RankBody,
    VectorsOut,
    ClassesOut,
    FeaturesBody,
    SearchBody,
    SearchOut,
    VerifyBody,
    VerifyOut,
    Problem,
)
_BINARY_TEXT = (
    "\n\nBulk bodies: `application/octet-stream` is little-endian float32, row-major, all left rows and then all right "
    "rows (`dim`, default the model's; `n_left`, default half); `application/x-npz` holds arrays `left` and `right`. "
    "With `Accept: application/octet-stream` the answer is raw too"
)
_EXAMPLE = {"left": [0.12, -0.4, 1.7], "right": [0.1, -0.38, 1.66]}
_MODEL_HEADER = {
    "X-Pairmark-Model": {"description": "JSON of the version that scored", "schema": {"type": "string"}}
}


def document(app: FastAPI) -> dict[str, Any]:
    """Build the document once; afterwards the same one is given."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
        schemas: dict[str, Any] = schema.setdefault("components", {}).setdefault("schemas", {})
        for model in _SHOWN:
            shown = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(shown.pop("$defs", {}))
            schemas[model.__name__] = shown
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schema["paths"] = {
            **_scoring_paths(),
            **_point_paths(),
            **_ranking_paths(),
            **schema["paths"],
        }
        schema["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(path, method.upper(), operation)
        app.openapi_schema = schema
    return app.openapi_schema


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add what the edge can answer to every request."""
    statuses = [422, 500, 503]
    needed = access.need(method, re.sub(r"\{[^}]*\}", "x", path))
    if needed != "open":
        statuses += [401, 403]
        operation["security"] = [{"bearer": []}, {"key": []}]
        operation["x-required-scope"] = "any" if needed == "metrics" else needed
    if "requestBody" in operation:
        statuses += [408, 413]
    declared: dict[str, Any] = operation.setdefault("responses", {})
    for status, described in responses(*statuses).items():
        if str(status) == "422" or str(status) not in declared:
            declared[str(status)] = described
    for status, described in list(declared.items()):
        if status.startswith("2"):
            headers = described.setdefault("headers", {})
            headers.setdefault("X-Request-ID", {"schema": {"type": "string"}})
    operation["responses"] = dict(sorted(declared.items()))


def _scoring_paths() -> dict[str, Any]:
    match_headers = {
        **_MODEL_HEADER,
        **{
            f"X-Pairmark-{name}": {"schema": {"type": "string"}}
            for name in ("Threshold", "Calibration-Id", "Method", "Fpr-Upper-Bound")
        },
    }
    match_parameters = [
        _parameter(
            "fpr",
            "the false positive rate you allow",
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            required=True,
            example=0.01,
        ),
        _parameter(
            "confidence",
            "how sure the bound shall be",
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.95},
        ),
        _parameter(
            "method",
            "finite-sample holds for any sample size, bootstrap is asymptotic; auto chooses by sizes alone",
            {"type": "string", "enum": ["auto", "finite-sample", "bootstrap"], "default": "auto"},
        ),
        _parameter("calibration", "id of a calibration; default the version's own", {"type": "string"}),
        _parameter(
            "detail",
            "1: with each score how rare it is among different pairs (`log10_fpr`), comparable across models",
            {"type": "integer", "enum": [0, 1], "default": 0},
        ),
    ]
    return {
        "/similarity": {
            "post": _operation(
                ScoringRoutes.similarity,
                "similarity",
                "Score pairs",
                "How similar are these pairs?" + _BINARY_TEXT + ": float32 scores.",
                parameters=_binary_parameters(),
                body={"$ref": "#/components/schemas/PairsBody"},
                answer=ScoresOut,
                raw_headers=_MODEL_HEADER,
                statuses=(404, 406, 415, 429),
            )
        },
        "/match": {
            "post": _operation(
                ScoringRoutes.match,
                "match",
                "Decide pairs at a false positive rate",
                "Same or different, at the false positive rate you allow? When the calibration data cannot support "
                "the rate: 422 `insufficient-calibration-data` with `smallest_fpr` and `required_units` per method; "
                "nothing is extrapolated. Scores made elsewhere are decided with `calibration=`."
                + _BINARY_TEXT
                + ": one uint8 a pair (1 = match), the threshold and calibration in headers.",
                parameters=[*match_parameters, *_binary_parameters()],
                body={
                    "anyOf": [
                        {"$ref": "#/components/schemas/PairsBody"},
                        {"$ref": "#/components/schemas/ScoresBody"},
                    ]
                },
                answer=MatchesOut,
                raw_headers=match_headers,
                statuses=(404, 406, 415, 429),
            )
        },
        "/explain": {
            "post": _operation(
                ScoringRoutes.explain,
                "explain",
                "Explain one pair's score",
                "Why this score? Takes exactly one pair.",
                parameters=_binary_parameters(),
                body={"$ref": "#/components/schemas/PairsBody"},
                answer=ExplanationOut,
                raw_headers=None,
                statuses=(404, 406, 415, 429),
            )
        },
    }


def _point_paths() -> dict[str, Any]:
    bulk = (
        " Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` holds one "
        "array `features`. With `Accept: application/octet-stream` the answer is raw float32 too, its width in "
        "`X-Pairmark-Dimension`"
    )
    width = {"X-Pairmark-Dimension": {"schema": {"type": "integer"}}}
    labels = {
        "X-Pairmark-Labels": {
            "description": "JSON list of the labels, in the order of the columns",
            "schema": {"type": "string"},
        }
    }
    return {
        "/embed": _points_path(
            EmbedRoute.embed,
            "embed",
            "Embed points",
            f"A model's own vectors of these points: what it compares.{bulk}.",
            VectorsOut,
            width,
        ),
        "/classify": _points_path(
            ClassifyRoute.classify,
            "classify",
            "Classify points",
            "The most probable label of each point, named as the training dataset names it, and the probabilities of "
            f"all labels.{bulk}, one column a label, their names in `X-Pairmark-Labels` (406 when they do not fit).",
            ClassesOut,
            {**width, **labels},
        ),
    }


def _points_path(
    endpoint: Any, name: str, summary: str, said: str, answer: type[BaseModel], headers: dict[str, Any]
) -> dict[str, Any]:
    operation = _operation(
        endpoint,
        name,
        summary,
        said,
        parameters=[one for one in _binary_parameters() if one["name"] != "n_left"],
        body={"$ref": "#/components/schemas/FeaturesBody"},
        answer=answer,
        raw_headers={**_MODEL_HEADER, **headers},
        statuses=(404, 406, 415, 429),
    )
    content = operation["requestBody"]["content"]
    content["application/json"]["examples"] = {"one point": {"value": {"features": [0.12, -0.4, 1.7]}}}
    return {"post": operation}


def _ranking_paths() -> dict[str, Any]:
    assert inspect.iscoroutinefunction(RankRoute.rank)
    whole = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    said = (
        "Which labels come first for this point? Labels are listed best first; `positions` are 0-based and scores are "
        "higher for better. With `detail`, how sure the ranking and each pair of labels is (calibrated). With "
        "`abstain`, only the order that is at least so sure: labels that are not told apart share a place. Unknown or "
        "missing features: 422 with `expected_features`."
    )
    common: dict[str, Any] = {"tags": ["ranking"], "summary": "Rank labels", "description": said}

    def answers(*statuses: int) -> dict[str, Any]:
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/RankingsOut"}}}
        ok = {"200": {"description": "Successful Response", "content": content}}
        return {**ok, **{str(status): given for status, given in responses(*statuses).items()}}

    return {
        "/rank-labels": {
            "get": {
                **common,
                "operationId": "rank_labels_of_one_point",
                "description": said
                + " Instead of `features`, each feature can be given by its name: `?x.NAME=5.1`.",
                "parameters": [
                    _parameter(
                        "features",
                        "numbers in the model's order, with commas; or x.NAME=number for each feature",
                        {"type": "string"},
                        example="5.1,3.5,1.4,0.2",
                    ),
                    _parameter(
                        "model", "the model; may be left out if only one ranks labels", {"type": "string"}
                    ),
                    _parameter("top", "only the first so many labels", whole),
                    _parameter(
                        "detail",
                        "1: how sure the ranking and its pairs are",
                        {"type": "integer", "enum": [0, 1]},
                    ),
                    _parameter(
                        "abstain",
                        "keep only order that is at least this sure",
                        {"type": "number", "minimum": 0.5, "maximum": 1},
                    ),
                ],
                "responses": answers(404, 406, 415),
            },
            "post": {
                **common,
                "operationId": "rank_labels",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/RankBody"},
                            "examples": {"one point": {"value": {"features": [[5.1, 3.5, 1.4, 0.2]]}}},
                        }
                    },
                },
                "responses": answers(404, 406, 415, 429),
            },
        }
    }


def _gallery_paths() -> dict[str, Any]:
    gallery = {**_parameter("gallery", "the gallery's name", {"type": "string"}, required=True), "in": "path"}
    subject = {
        **_parameter("subject", "the subject; it may hold slashes", {"type": "string"}, required=True),
        "in": "path",
    }
    search = _operation(
        SearchRoutes.search,
        "search_gallery",
        "Search a gallery",
        "The most similar items of each query, exactly: scores are those of `/similarity`, best first, ties by id. "
        "With `fpir` (a rate of the whole search, from the gallery's calibration) or `fpr` (of each comparison; on a "
        "large gallery many strangers match, and the answer warns of it) only matches are returned, and an empty list "
        'is the answer "unknown". An acknowledged write or deletion is seen by every search after it.',
        parameters=[gallery],
        body={"$ref": "#/components/schemas/SearchBody"},
        answer=SearchOut,
        raw_headers=None,
        statuses=(404, 406, 409, 415, 429),
    )
    verify = _operation(
        SearchRoutes.verify,
        "verify_subject",
        "Verify one subject",
        "Is this vector of that subject? It is compared with all of the subject's items and the best one decides.",
        parameters=[
            gallery,
            subject,
            *(
                one
                for one in _scoring_paths()["/match"]["post"]["parameters"]
                if one["name"] in ("fpr", "confidence", "method", "calibration")
            ),
        ],
        body={"$ref": "#/components/schemas/VerifyBody"},
        answer=VerifyOut,
        raw_headers=None,
        statuses=(404, 406, 415, 429),
    )
    for operation, example in (
        (search, {"queries": [0.12, -0.4, 1.7], "k": 5}),
        (verify, {"probe": [0.12, -0.4, 1.7]}),
    ):
        operation["tags"] = ["galleries"]
        content = operation["requestBody"]["content"]
        for kind in ("application/octet-stream", "application/x-npz"):
            del content[kind]
        content["application/json"]["examples"] = {"one vector": {"value": example}}
    return {SEARCH: {"post": search}, VERIFY: {"post": verify}}


def _operation(
    endpoint: Any,
    name: str,
    summary: str,
    description: str,
    *,
    parameters: list[dict[str, Any]],
    body: dict[str, Any],
    answer: type[BaseModel],
    raw_headers: dict[str, Any] | None,
    statuses: tuple[int, ...],
) -> dict[str, Any]:
    assert inspect.iscoroutinefunction(endpoint)
    content: dict[str, Any] = {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}
    }
    ok: dict[str, Any] = {"description": "Successful Response", "content": content}
    if raw_headers is not None:
        content["application/octet-stream"] = {"schema": _BINARY}
        ok["headers"] = raw_headers
    return {
        "tags": ["scoring"],
        "summary": summary,
        "description": description,
        "operationId": name,
        "parameters": parameters,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": body, "examples": {"one pair": {"value": _EXAMPLE}}},
                "application/octet-stream": {"schema": _BINARY},
                "application/x-npz": {"schema": _BINARY},
            },
        },
        "responses": {"200": ok, **{str(status): given for status, given in responses(*statuses).items()}},
    }


def _binary_parameters() -> list[dict[str, Any]]:
    whole = {"type": "integer", "minimum": 1}
    return [
        _parameter("model", "the model; a JSON body may name it instead", {"type": "string"}),
        _parameter(
            "dim", "octet-stream: numbers in a vector; default the model's", {**whole, "maximum": 2**20}
        ),
        _parameter("n_left", "octet-stream: left rows; default half", {**whole, "maximum": 2**31 - 1}),
    ]


def _parameter(
    name: str, description: str, schema: dict[str, Any], *, required: bool = False, example: Any = None
) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema,
    }
    if example is not None:
        parameter["example"] = example
    return parameter
