"""From a request to rows as a version takes them, their scores, decisions and the bytes of the answer."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json
from scipy.sparse import csr_array

from pairmark.models.calibration.inputs import LARGE, RowRanges, describe_move, is_dense
from pairmark.models.calibration.records import (
    are_records,
    blanked_subjects,
    cells_missing,
    lacked_by_subject,
)
from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.scores import SampleSets
from pairmark.models.core.spec import Explainer
from pairmark.models.records.schema import RecordError
from pairmark.schemas.models import DECIDED_RATES
from pairmark.schemas.scoring import Decision
from pairmark.service.datasets.data import name_list
from pairmark.service.errors import Forbidden, InvalidInput, ModelNotCapable, TooLarge
from pairmark.service.keys import Grants
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import Rate, ServedPoint, Thresholds
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import LoadedVersion, check_finite
from pairmark.service.scoring.json import Counts, RecordRows, SideRows, SparseRows
from pairmark.service.scoring.requests import Features, PairRequest
from pairmark.service.store.subjects import SubjectClass
from pairmark.service.tables import DECISIONS, RAW_UNLIKE, DecisionCode

MAX_DENSE_BYTES = 1024 * 1024 * 1024
"""Most memory that sparse vectors may unfold to, for learners that read dense rows only."""
Warnings = tuple[dict[str, str], ...]


class Resolved(NamedTuple):
    """Two sides as a version takes them.

    Attributes
    ----------
    left, right : (n, d) rows; one of a side meets every one of the other.
    counts : of subjects of several samples, how many each of the left and the right side has; rows lie subject after
        subject.
    aggregation : how subjects are compared. warnings : of categories that training did not have.
    """

    version: LoadedVersion
    left: Any
    right: Any
    counts: tuple[Counts, Counts] | None = None
    aggregation: str = "auto"
    warnings: Warnings = ()

    @property
    def n_rows(self) -> int:
        return int(self.left.shape[0] + self.right.shape[0])

    def subjects(self) -> SubjectClass | None:
        """The class of subjects that a decision is about; None for plain rows."""
        if self.counts is None:
            return None
        a, b = np.broadcast_arrays(*self.counts)
        larger, smaller = np.maximum(a, b), np.minimum(a, b)
        differing = np.flatnonzero((larger != larger[0]) | (smaller != smaller[0]))
        if differing.size:
            pair = int(differing[0])
            raise InvalidInput(
                f"pair 0 has {a[0]} and {b[0]} samples, and pair {pair} {a[pair]} and {b[pair]}: a decision is "
                "calibrated for fixed numbers of samples; send pairs with other numbers in a separate request",
                field="left",
                pair=pair,
            )
        return SubjectClass(int(larger[0]), int(smaller[0]), self.aggregation)


def to_rows(version: LoadedVersion, side: SideRows, name: str, *, dense: bool = False) -> Any:
    """Rows of the model's dimension: dense float32, CSR for a learner that reads it unless ``dense`` ones are asked
    for, or cells for one of records; ``name`` is what refusals call them."""
    if version.takes_vectors and isinstance(side, np.ndarray) and side.shape[1] == version.n_features:
        return side
    accepts_sparse = version.accepts_sparse and not dense
    if isinstance(side, RecordRows):
        return _record_rows(version, side, name, dense=not accepts_sparse)
    if not version.takes_vectors:
        names = name_list(version.columns)
        raise InvalidInput(
            f"{name} is a vector; the model takes records with the columns {names}", field=name
        )
    if isinstance(side, SparseRows):
        return _sparse_rows(side, name, version.n_features, accepts_sparse=accepts_sparse)
    raise InvalidInput(
        f"{name} has vectors of {side.shape[1]} numbers; the model expects {version.n_features}",
        field=name,
        expected_dimension=version.n_features,
    )


def _record_rows(version: LoadedVersion, side: RecordRows, name: str, *, dense: bool) -> Any:
    """Cells of records, held against the model's columns; encoded for a learner that takes vectors."""
    schema, encoder = version.schema, version.encoder
    if schema is None:
        raise InvalidInput(
            f"{name} is a record; expected a vector of {version.n_features} numbers", field=name
        )
    try:
        cells = schema.records(side.rows, name)
    except RecordError as error:
        first = error.problems[0]
        member = name if side.single else f"{name}[{first['row'] - 1}]"
        raise InvalidInput(
            f"{member}: column {first['column']!r} {first['detail']}", field=f"{member}.{first['column']}"
        ) from None
    empty = schema.empty_rows(cells)
    if empty.size:
        member = name if side.single else f"{name}[{empty[0]}]"
        raise InvalidInput(f"{member} {schema.no_cell}", field=member)
    if encoder is None:
        return cells
    rows = encoder.transform(cells)
    return rows.toarray() if dense and not isinstance(rows, np.ndarray) else rows


def _sparse_rows(side: SparseRows, name: str, n_features: int, *, accepts_sparse: bool) -> Any:
    if not accepts_sparse and 4 * n_features * len(side) > MAX_DENSE_BYTES:
        raise TooLarge(f"{name} unfolds to more than {MAX_DENSE_BYTES} bytes; send fewer vectors at a time")
    pointers = np.concatenate([[0], np.cumsum(side.counts)]).astype(np.int32)
    columns = np.frombuffer(side.indices, np.int64)
    row_of = np.repeat(np.arange(len(side)), side.counts)
    wrong, problem = (
        np.flatnonzero((columns < 0) | (columns >= n_features)),
        f"is not in 0 to {n_features - 1}",
    )
    if not wrong.size:
        order = np.lexsort((columns, row_of))
        cells = row_of[order] * n_features + columns[order]
        wrong, problem = order[1:][np.diff(cells) == 0], "occurs twice"
    if wrong.size:
        place, row = int(wrong.min()), int(row_of[wrong.min()])
        field = f"{name if side.single else f'{name}[{row}]'}.indices[{place - pointers[row]}]"
        raise InvalidInput(
            f"{field} {problem}; expected distinct columns of the model's {n_features}", field=field
        )
    numbers = np.frombuffer(side.values).astype(np.float32)
    matrix = csr_array((numbers, columns.astype(np.int32), pointers), shape=(len(side), n_features))
    matrix.sort_indices()
    return matrix if accepts_sparse else matrix.toarray()


def resolve(request: PairRequest, version: LoadedVersion, aggregation: str = "auto") -> Resolved:
    """The sides of a request as a version takes them; `InvalidInput` for rows that it does not take."""
    sides = to_rows(version, request.left, "left"), to_rows(version, request.right, "right")
    if request.counts is not None or aggregation != "auto":
        aggregation = version.aggregation(aggregation)
    return Resolved(
        version,
        *sides,
        request.counts,
        aggregation,
        unseen_categories(version, request.left, request.right),
    )


def unseen_categories(version: LoadedVersion, *sides: SideRows) -> Warnings:
    """A warning for each column of records as sent that holds categories which training did not have, of a learner that
    takes them encoded; one that compares texts needs none."""
    if version.encoder is None:
        return ()
    records = [record for side in sides if isinstance(side, RecordRows) for record in side.rows]
    return tuple(
        {
            "code": "unseen-category",
            "detail": f"column {column!r}: training did not have {name_list(values)}; the answer rests on the other "
            "columns",
        }
        for column, values in version.encoder.unseen(records).items()
    )


class Scored(NamedTuple):
    """Scores, and what was scored (None: they were made elsewhere).

    Attributes
    ----------
    scores : (n,) float32. model : the version that made them, in JSON.
    lacked : (n, 2, d) columns without which both sides of records were compared; None where nothing is lacking.
    """

    scores: Float32
    model: bytes
    resolved: Resolved | None = None
    lacked: Bool | None = None


def score(resolved: Resolved) -> Scored:
    """Score pairs of rows, or of subjects of several samples."""
    version, left, right = resolved.version, resolved.left, resolved.right
    lacked = columns_lacked(resolved)
    if resolved.counts is not None:
        a, b = (
            SampleSets.of_rows(rows, counts)
            for rows, counts in zip((left, right), resolved.counts, strict=True)
        )
        scores = version.score_subjects(*blanked_subjects(a, b), resolved.aggregation)
    else:
        if version.accepts_sparse and type(left) is not type(right):
            left, right = csr_array(left), csr_array(right)
        scores = version.score(left, right)
    return Scored(scores, version.json, resolved, lacked)


def columns_lacked(resolved: Resolved) -> Bool | None:
    """(n, 2, d) columns without which pairs of records are compared, of subjects those that any sample of either lacks;
    None where nothing is lacking."""
    left, right, counts = resolved.left, resolved.right, resolved.counts
    if resolved.version.schema is None or not (are_records(left) and are_records(right)):
        return None
    if counts is None:
        left, right = cells_missing(left), cells_missing(right)
    else:
        sides = zip((left, right), counts, strict=True)
        left, right = (lacked_by_subject(SampleSets.of_rows(side, n_samples)) for side, n_samples in sides)
        left = right = left | right
    lacked: Bool | None = None
    if left.any() or right.any():
        lacked = resolved.version.estimator.patterns(left, right)
    return lacked


def score_without(resolved: Resolved, pairs: NDArray[np.intp], lacked: Bool) -> Float32:
    """Scores of some pairs of records or subjects, by their numbers, without the columns (n, 2, d) of either side."""
    if resolved.counts is not None:
        a, b = (
            SampleSets.of_rows(rows, counts).take(pairs if len(counts) > 1 else np.zeros_like(pairs))
            for rows, counts in zip((resolved.left, resolved.right), resolved.counts, strict=True)
        )
        return resolved.version.score_subjects(
            *blanked_subjects(a, b, np.logical_or(*lacked.swapaxes(0, 1))), resolved.aggregation
        )
    sides = []
    for rows, without in zip((resolved.left, resolved.right), lacked.swapaxes(0, 1), strict=True):
        blanked = rows[pairs if len(rows) > 1 else np.zeros_like(pairs)].copy()
        blanked[without] = None
        sides.append(blanked)
    return resolved.version.score(*sides)


def explain(request: PairRequest, version: LoadedVersion, aggregation: str) -> tuple[Scored, dict[str, Any]]:
    """One pair's score, with the learner's explanation."""
    learner = version.estimator
    if not isinstance(learner, Explainer):
        raise ModelNotCapable(f"{version.entry.kind} cannot explain its scores", capability="explain")
    if request.n_pairs != 1:
        raise InvalidInput(f"the request has {request.n_pairs} pairs; expected one to explain", field="left")
    left, right = (
        to_rows(version, side, name, dense=True)
        for side, name in ((request.left, "left"), (request.right, "right"))
    )
    scored = score(resolve(request, version, aggregation))
    if request.counts is None:
        return scored, learner.explain(left, right, feature_names=version.feature_names)
    a, b = (SampleSets.of_rows(side, np.array([len(side)])) for side in (left, right))
    left, right = (subject.rows for subject in blanked_subjects(a, b))
    grid = version.estimator.score_against(left, right)
    # Of all pairs of samples the one whose score is nearest to that of the subjects stands for them.
    i, j = np.unravel_index(int(np.argmin(np.abs(grid - scored.scores[0]))), grid.shape)
    return scored, {
        "aggregation": version.aggregation(aggregation),
        "samples": [len(left), len(right)],
        "sample_scores": grid,
        "explained_samples": [int(i), int(j)],
        "explanation": learner.explain(
            left[i : i + 1], right[j : j + 1], feature_names=version.feature_names
        ),
    }


def embed(version: LoadedVersion, features: Features) -> Float32:
    """A version's own vectors of points, (n, n_components) C-contiguous float32."""
    rows = version.estimator.transform(to_rows(version, features.rows, "features"))
    vectors = np.ascontiguousarray(rows, dtype=np.float32)
    check_finite(vectors, noun="point", what="vector", field="features")
    return vectors


INPUTS_MOVED: Final = "inputs-moved"
UNLIKE: Final = "unlike-calibration"
"""The reason where a row is unlike those of the people who calibrated."""


def shows_scores(
    runtime: Runtime, version: LoadedVersion | None, rate: Rate | Decision | None, grants: Grants
) -> bool:
    """Whether who asks may see scores of a version; a key with `decide` alone gets decisions, at listed rates, only."""
    name = None if version is None else version.entry.name
    if not grants.allows("decide") or grants.allows("score", name):
        return True
    if rate is None:
        # The order of what a search finds says which of two scores is higher.
        raise Forbidden(
            "the key may only decide: give fpr or fpir; no rate takes a key with score", scope="score"
        )
    model = None if name is None else runtime.catalogue.view.models.get(name)
    check_listed(rate, DECIDED_RATES if model is None else model.rates)
    return False


def check_listed(rate: Rate | Decision, listed: Collection[float]) -> None:
    """Refuse (`Forbidden`) what would tell a key that may only decide more than decisions at the listed rates: a
    series of rates, confidences, methods or costs brackets a score as closely as one likes, and so does one threshold
    more of each version."""
    if not isinstance(rate, Rate):
        raise Forbidden(f"the key may only decide; decision={rate} takes a key with score", scope="score")
    for wanted in (rate.fpr, rate.fnr):
        if wanted is not None and not any(math.isclose(wanted, one) for one in listed):
            raise Forbidden(
                f"the key may only decide, at one of the rates {', '.join(f'{one:g}' for one in listed)}; "
                f"{wanted:g} takes a key with score",
                scope="score",
            )
    for name in ("method", "confidence", "simultaneous", "calibration"):
        if getattr(rate, name) != Rate._field_defaults[name]:
            raise Forbidden(f"the key may only decide; {name} takes a key with score", scope="score")


class UnlikeRows:
    """Which pairs of a request hold a row unlike those who calibrated, and which of their rows are.

    Attributes
    ----------
    flags : which rows, the left ones first. codes : (n_pairs,) 0, or the code of a pair in raw answers.
    """

    def __init__(self, flags: Bool, resolved: Resolved) -> None:
        self.flags, n_left = flags, resolved.left.shape[0]
        self._sides = {"left": flags[:n_left], "right": flags[n_left:]}
        self._starts = None
        subjects = list(self._sides.values())
        if resolved.counts is not None:
            self._starts = [np.concatenate([[0], np.cumsum(counts)]) for counts in resolved.counts]
            subjects = [
                np.logical_or.reduceat(side, starts[:-1])
                for side, starts in zip(subjects, self._starts, strict=True)
            ]
        left, right = subjects
        self.codes: NDArray[np.uint8] = np.uint8(RAW_UNLIKE) * (left | right)

    @classmethod
    def find(cls, ranges: RowRanges | None, resolved: Resolved | None) -> Self | None:
        """None where no row is, and where nothing is known of rows."""
        if resolved is None or ranges is None:
            return None
        flags = ranges.unlike(resolved.left, resolved.right)
        return cls(flags, resolved) if flags.size else None

    @property
    def pairs(self) -> list[int]:
        """The numbers of those pairs."""
        numbers: list[int] = np.flatnonzero(self.codes).tolist()
        return numbers

    def names(self, pair: int) -> list[str]:
        """The rows of a pair that are: ``left``, ``right``, of subjects ``left[2]``."""
        names = []
        for number, (side, flags) in enumerate(self._sides.items()):
            if self._starts is None:
                if flags[pair if len(flags) > 1 else 0]:
                    names.append(side)
                continue
            starts = self._starts[number]
            subject = pair if len(starts) > 2 else 0
            samples = np.flatnonzero(flags[starts[subject] : starts[subject + 1]])
            names += [f"{side}[{sample}]" for sample in samples.tolist()]
        return names


class Decided(NamedTuple):
    """Decisions.

    Attributes
    ----------
    shows_scores : whether who asked may see scores, thresholds and which columns were compared.
    codes : (n,) `DecisionCode`. refused : (n,) the code in raw answers of pairs that never match; None: all may.
    unlike : pairs that hold a row unlike those who calibrated. compared : pairs of records that lack columns.
    """

    scored: Scored
    point: ServedPoint
    shows_scores: bool
    codes: NDArray[np.uint8]
    refused: NDArray[np.uint8] | None
    unlike: UnlikeRows | None
    compared: ComparedPairs | None

    @property
    def raw(self) -> NDArray[np.uint8]:
        """(n,) the codes of raw answers."""
        return self.codes if self.refused is None else np.where(self.refused, self.refused, self.codes)

    def matches(self) -> list[dict[str, Any]]:
        """What is said of each pair."""
        codes = self.codes.tolist()
        if self.shows_scores:
            scores = self.scored.scores.tolist()
            matches = [
                {"score": score, "match": code == 1} for score, code in zip(scores, codes, strict=True)
            ]
        else:
            matches = [{"match": code == 1} for code in codes]
        if self.point.lower is not None:
            for match, code in zip(matches, codes, strict=True):
                match["decision"] = DECISIONS[code]
        if self.compared is not None and self.scored.resolved is not None:
            columns = self.scored.resolved.version.columns
            for pair in self.compared.places:
                matches[pair] |= self.compared.facts(pair, columns, shows_scores=self.shows_scores)
        if self.unlike is not None:
            for pair in self.unlike.pairs:
                matches[pair] |= {"reason": UNLIKE, "unlike": self.unlike.names(pair)}
        return matches

    @property
    def warnings(self) -> tuple[dict[str, str], ...]:
        """What limits the answer."""
        warnings, resolved = self.point.warnings, self.scored.resolved
        if resolved is not None:
            warnings += resolved.warnings
            if self.compared is not None:
                warnings += self.compared.warnings(resolved.version.columns)
        return warnings


def decide(
    scored: Scored, point: ServedPoint, *, shows_scores: bool, compared: ComparedPairs | None = None
) -> Decided:
    """Decide each pair at an operating point. A pair that holds a row unlike those who calibrated, or that has too
    little to compare, never matches: saying no can only lower a false positive rate."""
    unlike = UnlikeRows.find(point.inputs, scored.resolved)
    point = _held_against(point, scored.resolved, None if unlike is None else unlike.flags)
    refused = None if unlike is None else unlike.codes
    if compared is not None:
        refused = compared.codes if refused is None else np.where(refused, refused, compared.codes)
    if compared is not None and compared.scores is not None:
        scored = scored._replace(scores=np.where(np.isnan(compared.scores), scored.scores, compared.scores))
    own: Thresholds = (point.threshold, point.lower)
    upper, lower = own if compared is None else compared.thresholds
    codes = (scored.scores > upper).view(np.uint8)
    if point.lower is not None:
        codes[(scored.scores > lower) & (codes == DecisionCode.DIFFERENT)] = DecisionCode.REVIEW
    if refused is not None:
        codes[refused > 0] = DecisionCode.DIFFERENT if point.lower is None else DecisionCode.REVIEW
    return Decided(scored, point, shows_scores, codes, refused, unlike, compared)


def _held_against(point: ServedPoint, resolved: Resolved | None, flags: Bool | None) -> ServedPoint:
    """The point; one that guarantees nothing where a large request by itself is unlike the calibration."""
    if (
        resolved is None
        or resolved.n_rows < LARGE
        or not is_dense(resolved.left)
        or not is_dense(resolved.right)
    ):
        return point
    rows = np.concatenate([resolved.left, resolved.right])
    words = describe_move(point.inputs, rows if flags is None else rows[~flags])
    if words is None or point.warnings:
        return point
    return point.moved(
        {"code": INPUTS_MOVED, "detail": f"the rows of this request are unlike the calibration's: {words}"}
    )


class Answer(NamedTuple):
    """The body of an answer: JSON, or raw numbers that say in ``headers`` what they are."""

    body: bytes
    headers: Mapping[str, str] = {}
    raw: bool = False


def answer_scores(
    scored: Scored, *, raw: bool = False, detail: bool = False, ranges: RowRanges | None = None
) -> Answer:
    """The scores; with ``detail``, which pairs hold rows unlike those who calibrated, whose ranges these are."""
    if raw:
        return Answer(scored.scores.tobytes(), model_header(scored.model), raw=True)
    # Of numbers alone, in half the time of `to_json`.
    body = b'{"model":%b,"scores":%b' % (scored.model, msgspec.json.encode(scored.scores.tolist()))
    resolved = scored.resolved
    if resolved is not None and resolved.counts is not None:
        body += b',"aggregation":"%b"' % resolved.aggregation.encode()
    if detail:
        unlike = UnlikeRows.find(ranges, resolved)
        rows = [{"pair": pair, "rows": unlike.names(pair)} for pair in unlike.pairs] if unlike else []
        body += b',"unlike":%b' % to_json(rows)
    return Answer(body + warnings_member(() if resolved is None else resolved.warnings) + b"}")


def answer_decisions(decided: Decided, *, raw: bool) -> Answer:
    """What was decided of each pair."""
    scored, point = decided.scored, decided.point
    if raw:
        facts = point.public
        names = [
            name for name in ("calibration_id", "guarantee", "method", "fpr_upper_bound") if name in facts
        ]
        headers = {f"x-pairmark-{name.replace('_', '-')}": str(facts[name]) for name in names}
        if decided.shows_scores:
            headers["x-pairmark-threshold"] = repr(float(point.threshold))
        return Answer(decided.raw.tobytes(), headers | model_header(scored.model), raw=True)
    parts = (
        scored.model,
        to_json(decided.matches()),
        point.json if decided.shows_scores else to_json(point.hidden),
        warnings_member(decided.warnings),
    )
    return Answer(b'{"model":%b,"matches":%b,"operating_point":%b%b}' % parts)


def warnings_member(warnings: Sequence[dict[str, str]]) -> bytes:
    """The last member of an answer that something limits; nothing where there is none."""
    return b',"warnings":%b' % to_json(warnings) if warnings else b""


def model_header(model: bytes) -> dict[str, str]:
    """The version that answered, for raw answers. Names are ASCII, so its JSON can stand in a header as it is."""
    return {"x-pairmark-model": model.decode()}
