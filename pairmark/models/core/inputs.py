"""What learners get: what stands for nothing, how labels are spelled, and checks whose errors say what to do."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
from scipy.sparse import issparse

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int32, Int64, Matrix, NDArray

PLACEHOLDERS = frozenset({
    "n/a", "na", "none", "null", "nan", "-", "--", "?", ".", "unknown", "#n/a", "<na>", "(null)", "\\n", "nil", "tbd",
    "xxx", "0000-00-00", "1900-01-01",
})  # fmt: skip
"""Words that people write where there is no value, in any case and with spaces around them."""
OPEN_SET_FROM = 30
"""From so many labels on they are taken for people, with fewer perhaps for classes, whose one may be ``none``."""
_LONGEST = max(map(len, PLACEHOLDERS))
_LEADING_ZEROS, _NO_FRACTION = re.compile(r"(?<![\d.])0+(?=\d)"), re.compile(r"\.0+$")
_SHOWN = 5


def is_absent(value: Any) -> bool:
    """Whether there is no value: None, NaN, what pandas has for it, and text of spaces alone."""
    if isinstance(value, str):
        return not value or value.isspace()
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NaTType", "NAType")


def cells_missing(cells: Any) -> Bool:
    """(n, d) or (n,) which cells of records are missing."""
    none: Any = None
    return np.asarray(np.equal(cells, none), dtype=np.bool_)


def is_placeholder(text: str) -> bool:
    """Whether a text stands for no value, as ``N/A`` does; somebody may be called so."""
    return len(text) <= 2 * _LONGEST and text.strip().casefold() in PLACEHOLDERS


def label_of(text: str) -> str:
    """A label in the one form that it is compared in: Unicode's NFC, without spaces around it."""
    return (text if text.isascii() else normalize("NFC", text)).strip()


def refuse_placeholders(labels: Iterable[Any], counts: Iterable[int], what: str) -> None:
    """Refuse labels that stand for nothing, which would make one of many.

    Parameters
    ----------
    counts : how often each label occurs. what : what they occur in, such as rows.
    """
    n_all, placeholders = 0, {}
    for label, n in zip(labels, counts, strict=True):
        n_all += int(n)
        if isinstance(label, str) and is_placeholder(label):
            placeholders[label] = int(n)
    if placeholders:
        raise ValueError(
            f"{sum(placeholders.values()):,} of {n_all:,} {what} name nobody, but have a word in its place "
            f"({describe_counts(placeholders)}): they would all be one person's. Leave them out, or give each a label "
            "of its own; write the name in full if somebody is called so"
        )


def describe_counts(counts: Mapping[str, int]) -> str:
    """A few words with how often they occur, the most frequent first."""
    by_count = sorted(counts.items(), key=lambda item: -item[1])
    more = len(by_count) - _SHOWN
    text = ", ".join(f"{word[:40]!r} {n:,}" for word, n in by_count[:_SHOWN])
    return text if more <= 0 else f"{text} and {more:,} more"


def like_labels(labels: Iterable[str]) -> str | None:
    """A warning that lists labels which only case, leading zeros, ``.0`` or spaces tell apart, if there are any."""
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        plain = _LEADING_ZEROS.sub("", "".join(label.casefold().split()))
        spellings[_NO_FRACTION.sub("", plain)].append(label)
    alike = [group for group in spellings.values() if len(group) > 1]
    if not alike:
        return None
    text = ", ".join(" and ".join(repr(label[:40]) for label in group[:3]) for group in alike[:_SHOWN])
    more = f" and {len(alike) - _SHOWN:,} more" if len(alike) > _SHOWN else ""
    return (
        f"labels that only case, leading zeros, .0 or spaces tell apart ({len(alike):,}): {text}{more}. They count as "
        "different: spell them alike where they are one"
    )


def merged_labels(names: NDArray[Any], codes: Int64) -> tuple[NDArray[Any], Int64]:
    """Distinct labels in their one form, and each row's code into them; those spelled alike then are one."""
    texts = names.tolist()
    if names.dtype.kind not in "OU" or not all(isinstance(text, str) for text in texts):
        return names, codes
    merged, place = np.unique(
        np.array([label_of(text) for text in texts], dtype=names.dtype), return_inverse=True
    )
    return merged, place[codes]


def row_of_unranked(positions: Float64) -> int | None:
    """The first row that marks absent labels by -1, as other formats do, or None: taken for a position that would be
    the best."""
    is_marked = positions == -1
    if is_marked.any() and (positions[~is_marked] >= 0).any() and not (positions[~is_marked] < 0).any():
        return int(np.flatnonzero(is_marked.any(axis=1))[0])
    return None


Missing = Literal["median", "below"]
"""How missing values are filled: see `fill_values`."""
_FEW = 65_536
"""Numbers up to which an array is looked at here, not by scikit-learn."""


def one_of_equals(rows: Any) -> Any:
    """The first row where all are one row, broadcast: it need not be looked at again and again."""
    return rows[:1] if (isinstance(rows, np.ndarray) and rows.shape[0] > 1 and rows.strides[0] == 0) else rows


def csr_parts(rows: Any) -> tuple[Int64, Int32, Float32]:
    """Starts, columns and values of CSR rows (of CSC columns: their rows), of the types that kernels are compiled
    for."""
    return (
        np.require(rows.indptr, dtype=np.int64, requirements=["C", "W"]),
        np.require(rows.indices, dtype=np.int32, requirements=["C", "W"]),
        np.require(rows.data, dtype=np.float32, requirements=["C", "W"]),
    )


def feature_names_of(estimator: Any, feature_names: Sequence[str] | None = None) -> list[str]:
    """Feature names given, learned with, or ``x0, x1, ...``."""
    names = feature_names if feature_names is not None else getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{i}" for i in range(estimator.n_features_in_)]
    if len(names) != estimator.n_features_in_:
        raise ValueError(f"{len(names)} feature names for {estimator.n_features_in_} features")
    return [str(name) for name in names]


def checked_matrix(
    estimator: Any,
    X: Any,
    name: str,
    *,
    accept_sparse: bool = False,
    reset: bool = False,
    missing: bool = False,
) -> Matrix:
    """A float32 matrix of the estimator's width (which ``reset`` sets), or a `ValueError` that names it.

    ``missing`` : whether NaN is let through, in dense rows; infinities never are. Columns are scaled where the
    estimator does that for itself (`core.scaling`), which ``reset`` ends.
    """
    if reset:
        vars(estimator).pop("scaling_", None)
    scaling = vars(estimator).get("scaling_")
    dtype = np.float32 if scaling is None else np.float64
    few = None if reset else _few_rows(estimator, X, dtype)
    if few is not None:
        return few if scaling is None else scaling.applied(few, name)
    refuse_flat(X, name)
    try:
        # Commands that only count people read this module, and load no learner.
        from sklearn.utils.validation import validate_data

        matrix: Matrix = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=dtype,
            order="C",
            accept_sparse="csr" if accept_sparse else False,
            ensure_all_finite="allow-nan" if missing and not issparse(X) else True,
        )
    except (TypeError, ValueError) as error:
        if "contains NaN" in str(error):
            raise ValueError(f"{name} contains NaN: {_way_out(estimator, reset=reset)}") from error
        # Cells that are no numbers are a TypeError, as scikit-learn has it; sparse rows are data like others.
        kind = TypeError if isinstance(error, TypeError) and not issparse(X) else ValueError
        raise kind(f"{name}: {error}") from error
    return matrix if scaling is None else scaling.applied(matrix, name)


def refuse_flat(X: Any, name: str) -> None:
    """Refuse a single row that is not in a matrix."""
    if isinstance(X, np.ndarray) and X.ndim == 1:
        raise ValueError(
            f"{name} has one dimension; expected rows of features, shape (n, d). Reshape your data: "
            f"{name}[None, :] for one row"
        )


def _few_rows(estimator: Any, X: Any, dtype: type) -> Matrix | None:
    """A small array that nothing is wrong with, as `validate_data` gives it, which takes ten times as long as scoring
    a pair; None where that is to look at it."""
    if not (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.kind == "f"
        and 0 < X.size <= _FEW
        and X.shape[1] == estimator.n_features_in_
        and "feature_names_in_" not in vars(estimator)
    ):
        return None
    matrix: Matrix = np.ascontiguousarray(X, dtype=dtype)
    return matrix if np.isfinite(matrix).all() else None


def _way_out(estimator: Any, *, reset: bool) -> str:
    """What to do about missing values, where they are refused."""
    from pairmark.models.core.spec import PairLearner

    fill = "fill missing values first, as sklearn.impute.SimpleImputer does"
    if reset and isinstance(estimator, PairLearner):
        return f"{fill}, or use SimilarityAuto, SimilarityForest, SimilarityTree, Plda or MetricSimilarity, which do"
    if not estimator.__sklearn_tags__().input_tags.allow_nan:
        return fill
    return f"no training row had a missing value. Train on rows that have some too, or {fill}"


def fill_values(rows: Float32, missing: Missing) -> Float32:
    """(d,) what stands for NaN in rows (n, d): medians, or a number as far below all others as the largest is above.

    Trees cut at that number like at any other, and so send what is missing wherever it belongs. Columns without any
    value are filled with zeros. Rows without any are a `ValueError`: filled, they would all be one point.
    """
    absent = np.isnan(rows)
    n_empty = int(absent.all(axis=1).sum())
    if n_empty:
        raise ValueError(
            f"{n_empty:,} of {len(rows):,} training rows hold nothing but NaN; expected a number in each: leave these "
            "rows out"
        )
    has_values = ~absent.all(axis=0)
    if missing == "median":
        values = np.nanmedian(np.where(has_values, rows, 0.0), axis=0)
    else:
        wide = np.where(has_values, rows, 0.0).astype(np.float64)
        values = 2 * np.nanmin(wide, axis=0) - np.nanmax(wide, axis=0) - 1.0
    bound = np.finfo(np.float32).max / 4
    return np.clip(np.where(has_values, values, 0.0), -bound, bound).astype(np.float32)


def fill_missing(rows: Float32, fill: Float32) -> Float32:
    return np.where(np.isnan(rows), fill, rows)


def row_numbers(numbers: ArrayLike, n_rows: int, name: str) -> Int64:
    """Numbers of rows of X, one a pair, (n_pairs,) int64."""
    array = np.asarray(numbers)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}; expected (n_pairs,) row numbers")
    if array.size and (array.min() < 0 or array.max() >= n_rows):
        raise ValueError(f"{name} names rows {array.min()} to {array.max()}; X has rows 0 to {n_rows - 1}")
    return array.astype(np.int64, copy=False)


def identity_codes(
    y: ArrayLike, n_rows: int, name: str = "y", what: str = "identity"
) -> tuple[NDArray[Any], Int64]:
    """Distinct identities and each row's code into them; a `ValueError` when lengths differ, or a row has none."""
    if y is None:
        raise ValueError(
            "learning requires y to be passed, but the target y is None: give one identity a row"
        )
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"{name} has shape {labels.shape}; expected ({n_rows},), one {what} a row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{name} holds NaN or infinities; expected one {what} a row")
    if labels.dtype == object:
        n_absent = sum(map(is_absent, labels.tolist()))
        if n_absent:
            raise ValueError(f"{name} has no {what} in {n_absent:,} of {n_rows:,} rows: leave these rows out")
        if len({isinstance(label, str) for label in labels.tolist()}) > 1:
            raise ValueError(
                f"{name} holds texts and numbers; expected one of the two: use {name}.astype(str)"
            )
    identities, codes = merged_labels(*np.unique(labels, return_inverse=True))
    return identities, codes.astype(np.int64, copy=False)


def checked_identities(y: ArrayLike, n_rows: int) -> tuple[NDArray[Any], Int64]:
    """As `identity_codes`, to learn from.

    Raises
    ------
    ValueError
        As there, and when no two rows share an identity, or all do: then there is nothing to tell apart. Of as many
        identities as people would be, when a word such as ``unknown`` is one.
    """
    identities, codes = identity_codes(y, n_rows)
    if identities.size < 2:
        raise ValueError(
            "y holds a single identity (1 class); expected at least two, to have pairs that differ"
        )
    if np.bincount(codes).max() < 2:
        raise ValueError(
            "every identity has one row; expected at least one with two, to have pairs that are the same"
        )
    if identities.size >= OPEN_SET_FROM:
        refuse_placeholders(identities, np.bincount(codes), "rows")
    return identities, codes


def codes_by_appearance(values: NDArray[Any]) -> tuple[Int64, Int64]:
    """(n,) the number of each value, in the order in which values first appear, and where each first does."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse.ravel()].astype(np.int64), first[order].astype(np.int64)


def checked_same(same: ArrayLike, n_pairs: int) -> Bool:
    """A boolean (n_pairs,) array from 0/1 or booleans."""
    values = np.asarray(same)
    if values.shape != (n_pairs,):
        raise ValueError(f"same has shape {values.shape}; expected ({n_pairs},), one 0 or 1 a pair")
    if values.dtype != np.bool_ and not np.isin(values, (0, 1)).all():
        raise ValueError("same holds values other than 0 and 1")
    return values.astype(np.bool_, copy=False)


def checked_weight(sample_weight: ArrayLike | None, n: int, unit: Literal["pair", "row"] = "pair") -> Float64:
    """(n,) float64 weights, finite, none negative and some positive; ones where none are given."""
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}; expected ({n},), one number a {unit}")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError("sample_weight: expected finite numbers >= 0, some of them positive")
    return weight


def checked_pairs(n: int, same: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Bool, Float64]:
    """What explicit pairs are, (n,) bool, and their weights: some of either kind weigh something."""
    flags, weight = checked_same(same, n), checked_weight(sample_weight, n)
    for kind, flag in (("same", flags), ("different", ~flags)):
        if not (weight[flag] > 0).any():
            raise ValueError(f"pairs of positive weight hold no {kind} pair: expected some of each")
    return flags, weight


LISTED = 1_000
"""Features listed one by one; the contributions of the rest are added up."""


def by_feature(
    names: Sequence[str], left: NDArray[Any], right: NDArray[Any], parts: Float64
) -> tuple[list[dict[str, Any]], float]:
    """The largest contributions that are not 0, and their sum.

    Returns
    -------
    of each the ``feature``, its ``left`` and ``right`` value, and its ``contribution``
    """
    numbers = [int(i) for i in np.argsort(-np.abs(parts), kind="stable")[:LISTED] if parts[i] != 0]
    columns = {"left": left, "right": right, "contribution": parts}
    return [
        {"feature": names[i], **{name: float(column[i]) for name, column in columns.items()}} for i in numbers
    ], float(parts[numbers].sum()) if numbers else 0.0
