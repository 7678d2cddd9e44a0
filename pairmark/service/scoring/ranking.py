"""Points in, rankings of labels out: by position or by name, checked against the model's features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import to_json

from pairmark.models.core.arrays import Float32
from pairmark.models.label_ranking.base import rank_checked
from pairmark.schemas.base import FLOAT32_MAX
from pairmark.schemas.scoring import RankFields
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.versions import LoadedVersion, check_finite
from pairmark.service.scoring.json import RecordRows, SparseRows, raise_beyond, read_rows
from pairmark.service.scoring.requests import Features, split_vectors
from pairmark.service.scoring.score import to_rows, unseen_categories, warnings_member

NAMES_TOLD = 50
_EXPECTED = 'a list of numbers, a list of such lists, or features by name such as {"A1": 5.1, "A2": 3.5}'


@dataclass(frozen=True, slots=True)
class Points(Features):
    """Points as they were sent, and what is asked of them.

    Attributes
    ----------
    as_text : values by name are texts of a query still.
    """

    top: int | None = None
    as_text: bool = False


def parse_points(body: bytes) -> Points:
    request, texts = split_vectors(RankFields, body, {"features": _EXPECTED})
    rows = read_rows(texts["features"], "features")
    if isinstance(rows, SparseRows):
        raise InvalidInput(f"features are sparse vectors; expected {_EXPECTED}", field="features")
    return Points(rows, request.model, request.top)


def _check_named(row: Mapping[str, Any], member: str) -> None:
    for name, number in row.items():
        field = f"{member}.{name[:100]}"
        if type(number) not in (int, float):
            raise InvalidInput(f"{field} is not a number; expected a finite number", field=field)
        if not -FLOAT32_MAX <= number <= FLOAT32_MAX:
            raise_beyond(field)


def point_of_query(
    model: str | None, features: str | None, by_name: Mapping[str, str], top: int | None
) -> Points:
    """One point as a query gives it.

    Parameters
    ----------
    features : ``5.1,3.5``, numbers in the model's order.
    by_name : the value of each feature, or of each column of records, by its name.
    """
    if features is not None and by_name:
        raise InvalidInput(
            "features are given both by position (features=) and by name (x.NAME=); expected one of the two",
            field="features",
        )
    if features is None and not by_name:
        raise InvalidInput(
            "features is missing; expected features=5.1,3.5,... in the model's order, or x.NAME=5.1 for each feature",
            field="features",
        )
    if features is None:
        # Which of them are numbers, the model says.
        return Points(RecordRows([by_name], single=True), model, top, as_text=True)
    numbers = [_number(part, f"features[{at}]") for at, part in enumerate(features.split(","))]
    return Points(np.array([numbers], dtype=np.float32), model, top)


def _number(text: str, field: str) -> float:
    try:
        # float() also reads 1_000, which no other part of the service takes for a number.
        number = float(text) if "_" not in text else float("nan")
    except ValueError:
        number = float("nan")
    if not -FLOAT32_MAX <= number <= FLOAT32_MAX:
        raise InvalidInput(f"{field} is {text[:50]!r}; expected a finite number", field=field)
    return number


def features_of(rows: Float32 | RecordRows, names: Sequence[str] | None, n_features: int) -> Float32:
    """Rows of the model's features, (n, n_features). ``names``: None for ``x0``, ``x1``, ..."""
    feature_names = names if names is not None else [f"x{column}" for column in range(n_features)]
    if isinstance(rows, np.ndarray):
        if rows.shape[1] != n_features:
            raise InvalidInput(
                f"features has {rows.shape[1]} numbers per point; the model expects {n_features}: "
                f"{_name_list(feature_names)}",
                field="features",
                expected_dimension=n_features,
                expected_features=list(feature_names),
            )
        return rows
    columns = {name: column for column, name in enumerate(feature_names)}
    matrix = np.empty((len(rows), n_features), dtype=np.float32)
    for number, row in enumerate(rows.rows):
        member = "features" if rows.single else f"features[{number}]"
        _check_named(row, member)
        unknown = [name for name in row if name not in columns]
        missing = [name for name in feature_names if name not in row]
        if unknown or missing:
            problems = [f"has no feature {unknown[0][:100]!r}"] if unknown else []
            problems += [f"needs {_name_list(missing)}"] if missing else []
            raise InvalidInput(
                f"{member}: the model {' and '.join(problems)}; it expects {_name_list(feature_names)}",
                field=f"{member}.{(unknown or missing)[0][:100]}",
                unknown=[name[:100] for name in unknown[:NAMES_TOLD]] or None,
                missing=missing[:1000] or None,
                expected_features=list(feature_names),
            )
        matrix[number] = [row[name] for name in feature_names]
    return matrix


def _name_list(names: Sequence[str]) -> str:
    text = ", ".join(names[:NAMES_TOLD])
    return text if len(names) <= NAMES_TOLD else f"{text} and {len(names) - NAMES_TOLD} more"


def rank(version: LoadedVersion, label_names: Sequence[str], points: Points) -> bytes:
    """The answer to a request, as JSON."""
    rows: Any = points.rows
    if points.as_text:
        fields = () if version.schema is None else version.schema.fields
        texts = {field.name for field in fields if field.type != "number"}
        row = {
            name: text if name in texts else _number(text, f"x.{name[:100]}")
            for name, text in rows.rows[0].items()
        }
        rows = RecordRows([row], single=True)
    if version.columns:
        X = to_rows(version, rows, "features")
    else:
        X = features_of(rows, version.feature_names, version.n_features)
    warnings = unseen_categories(version, rows)
    k = len(label_names)
    n_labels = k if points.top is None else min(points.top, k)
    # Points were checked as they were parsed, so the estimator's own checks are not paid again.
    positions, scores = rank_checked(version.estimator, X)
    check_finite(scores, noun="point", what="ranking", field="features")
    rankings = [
        _in_order(label_names, *row, n_labels)
        for row in zip(positions.tolist(), scores.tolist(), strict=True)
    ]
    return b'{"model":%b,"rankings":%b%b}' % (version.json, to_json(rankings), warnings_member(warnings))


def _in_order(
    label_names: Sequence[str], positions: list[float], scores: list[float], n_labels: int
) -> dict[str, Any]:
    """One ranking: of so few numbers, arrays would cost more than the ranking."""
    order = sorted(range(len(positions)), key=positions.__getitem__)[:n_labels]
    names = [label_names[label] for label in order]
    return {
        "labels": names,
        "positions": dict(zip(names, range(n_labels), strict=True)),
        "scores": {name: scores[label] for name, label in zip(names, order, strict=True)},
    }


MAX_PROBABILITIES = 2_000_000
"""Most probabilities in one answer."""


def classes_json(version: LoadedVersion, features: Features) -> bytes:
    """The JSON answer: model, the most probable label of each point, and each point's probabilities by label."""
    names = version.class_names
    assert names is not None
    k = len(names)
    if len(features) * k > MAX_PROBABILITIES:
        raise TooLarge(
            f"{len(features)} points and {k} labels make {len(features) * k} probabilities; at most "
            f"{MAX_PROBABILITIES} are given at a time: send fewer points",
            limit=MAX_PROBABILITIES // k,
        )
    probabilities = np.asarray(version.estimator.predict_proba(to_rows(version, features.rows, "features")))
    check_finite(probabilities, noun="point", what="distribution", field="features")
    labels = [names[best] for best in probabilities.argmax(axis=1).tolist()]
    rows = [dict(zip(names, row, strict=True)) for row in probabilities.astype(np.float32).tolist()]
    return to_json({"model": version.public, "labels": labels, "probabilities": rows})
