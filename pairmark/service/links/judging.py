"""Models of records that score the candidates of a job, and judgements in a terminal: labels where links need them, and
links and records drawn at random, which bound how many are false or missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.linking.candidates import give
from pairmark.models.linking.evaluation import draw_records, recall_so_far
from pairmark.models.records.estimator import RecordScorer
from pairmark.models.records.schema import RecordError, Records, Schema
from pairmark.models.reviews.evidence import Judgements, expected_judgements, share_bound
from pairmark.schemas.link_shares import LinkRecall
from pairmark.service.blobs import Blobs
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, refusals
from pairmark.service.links.tables import LinkTables
from pairmark.service.names import parse_ref
from pairmark.service.settings import Settings
from pairmark.service.store.versions import VersionStore

if TYPE_CHECKING:
    from pairmark.models.linking.engine import Linking
    from pairmark.models.records.estimator import RecordSimilarity


_CUT_OF_PRIOR = (
    "the cut of {} comes from the share of matches among its training records, which seldom fits other tables: labels "
    "are needed for a cut to rely on. Calibrate the model on labeled pairs and give fpr, or judge links (false_links)"
)


class Learned:
    """A version of a model of records.

    Attributes
    ----------
    ref : `name:version`, or what else it is called.
    cut : links score above it; where none is given, above it a pair is likelier a match than not.
    notes : what to know of the cut.
    """

    def __init__(self, ref: str, estimator: RecordScorer, cut: float | None = None) -> None:
        self.ref, self._estimator = ref, estimator
        prior = estimator.prior
        self.cut = cut if cut is not None else 0.5 if prior is None else float(np.log((1 - prior) / prior))
        self.notes = [] if prior is None or cut is not None else [_CUT_OF_PRIOR.format(ref)]
        # Tables write dates in one form, whatever the model was trained on.
        columns = tuple(
            column.model_copy(update={"format": "YYYY-MM-DD"}) if column.type == "date" else column
            for column in estimator.schema_.columns
        )
        self._schema: Schema = estimator.schema_.model_copy(update={"columns": columns})

    @classmethod
    def stored(
        cls, db: Database, blobs: Blobs, settings: Settings, ref: str, cut: float | None = None
    ) -> Learned:
        """Of the store, by ``NAME``, ``NAME@ALIAS`` or ``NAME:VERSION``."""
        store = VersionStore(db, blobs, settings)
        with db.read() as session:
            model, row = store.resolved(session, parse_ref(ref))
            name, version = model.name, row.version
        return cls(f"{name}:{version}", store.load(name, version), cut)

    @property
    def columns(self) -> dict[str, str]:
        """Types of its columns."""
        return {column.name: column.type for column in self._estimator.schema_.fields}

    def scorer(self, connection: Any, tables: LinkTables) -> Callable[[Int64, Int64], Float64]:
        """Scores pairs of rows of the table ``source``; among their candidate sets where the model was trained so."""
        listed = ", ".join(f"c{at}" for at in range(len(tables.fields)))
        columns = connection.execute(f"SELECT {listed} FROM source ORDER BY row").fetchnumpy().values()
        names = (field.name for field in tables.fields)
        cells = self._cells(
            {name: np.ma.filled(texts, None).tolist() for name, texts in zip(names, columns, strict=True)}
        )
        empty = self._estimator.schema_.empty_rows(cells)
        if empty.size == len(cells):
            raise InvalidInput(f"no record has a cell in the columns of model {self.ref}", field="model")
        # Rows without a cell are compared with nothing: any other stands in their place.
        cells[empty] = cells[np.setdiff1d(np.arange(len(cells)), empty)[:1]]

        def score(a: Int64, b: Int64) -> Float64:
            n_left = tables.sizes[0] if len(tables.sizes) == 2 else None
            scores = self._estimator.score_candidates(cells, a, b, n_left).astype(np.float64)
            scores[np.isin(a, empty) | np.isin(b, empty)] = -np.inf
            return np.asarray(scores)

        return score

    def explained(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, float]:
        """What each column adds to the score of a pair."""
        a, b = (self._cells({name: [text] for name, text in side.items()}) for side in (left, right))
        fields = self._estimator.explain(a, b)["fields"]
        return {field["field"]: float(field["contribution"]) for field in fields}

    def _cells(self, table: Mapping[str, Sequence[Any]]) -> Records:
        try:
            return self._schema.read(table)
        except RecordError as error:
            raise InvalidInput(
                f"the tables do not fit model {self.ref}: {error}; it compares "
                f"{', '.join(f'{name} ({kind})' for name, kind in self.columns.items())}",
                field="model",
            ) from error


_REPORTED_AT = (20, 50, 100)
"""Answers after which it is said what is known."""
_MOST_ASKED, _MOST_RECORDS = 2_000, 1_000


class Pair(NamedTuple):
    """Two records, by their ids and cells."""

    ids: tuple[str, str]
    left: Mapping[str, Any]
    right: Mapping[str, Any]


Answers = Iterator[tuple[Pair, bool | None]]
"""What a person says of pairs (None: cannot tell), until there are no more or the person stops."""
RecordPairs = list[tuple[Pair, bool]]
"""A record with each that it is held against, and whether they are linked."""
Asking = Callable[[Iterable[Pair]], Answers]
Say = Callable[[str], None]


def pairs_to_label(connection: Any, names: Sequence[str]) -> list[Pair]:
    """Pairs that a model learns from, in the order to ask about them."""
    chosen = connection.execute(f"SELECT a, b FROM doubtful ORDER BY turn, a, b LIMIT {_MOST_ASKED}")
    return read_pairs(connection, names, chosen.fetchall())


def records_to_judge(connection: Any, linking: Linking) -> tuple[int, list[RecordPairs]]:
    """Records drawn at random from tables that were linked, to be judged for recall, and how many there are."""
    fields, random = linking.cells.source_fields, np.random.default_rng()
    size, drawn = draw_records(connection, fields, linking.sides, _MOST_RECORDS, random)
    rows = [(record.row, other) for record in drawn for other, _ in record.others]
    pairs = iter(read_pairs(connection, [field.name for field in fields], rows))
    return size, [[(next(pairs), is_linked) for _, is_linked in record.others] for record in drawn]


def recall(
    size: int, records: Sequence[RecordPairs], asking: Asking, at_least: float, confidence: float, say: Say
) -> LinkRecall:
    """Ask about drawn records until the share of the true links that is found is ``at_least``, or the person stops."""
    say("records are drawn at random: say of each whether those nearest to it are the same")
    answers_of_pairs = asking(pair for others in records for pair, _ in others)
    answers: list[list[tuple[bool, bool | None]]] = []
    bound_so_far = recall_so_far(size, answers, at_least, confidence)
    for others in records:
        of_record = [
            (is_linked, same) for (_, is_linked), (_, same) in zip(others, answers_of_pairs, strict=False)
        ]
        if bound_so_far.enough or len(of_record) < len(others):
            break
        answers.append(of_record)
        bound_so_far = recall_so_far(size, answers, at_least, confidence)
        if len(answers) in _REPORTED_AT or bound_so_far.enough:
            say(
                f"after {len(answers)} records: at least {100 * bound_so_far.bound:.3g} % of the true links are found, "
                f"{100 * confidence:g} % confidence"
            )
    return bound_so_far


def kinds_of(connection: Any, tables: LinkTables) -> dict[str, str]:
    """Kinds of columns as a model reads them; a column with a mistyped date is one of texts."""
    plain = {"date": "text", "given": "name", "surname": "name", "city": "category", "id": "category"}
    kinds = {field.name: plain.get(field.kind, field.kind) for field in tables.fields}
    for at, field in enumerate(tables.fields):
        odd = f"SELECT count(*) FROM source WHERE TRY_CAST(c{at} AS DATE) IS NULL AND c{at} IS NOT NULL"
        if field.kind == "date" and not connection.execute(odd).fetchone()[0]:
            kinds[field.name] = "date:YYYY-MM-DD"
    return kinds


def learn(answers: Answers, columns: dict[str, str], say: Say) -> Learned:
    """A model of what a person judged of pairs; `InvalidInput` where that is of one kind only."""
    judged: list[tuple[Pair, bool]] = []
    n_used, model = 0, None
    for pair, same in answers:
        judged += [] if same is None else [(pair, same)]
        if (
            len(judged) in _REPORTED_AT
            and len(judged) > n_used
            and len({is_same for _, is_same in judged}) == 2
        ):
            checked = "" if model is None else _check(model, judged[n_used:])
            model, n_used = _fit_model(judged, columns), len(judged)
            n_same = sum(is_same for _, is_same in judged)
            say(f"after {n_used} answers, {n_same} of them the same: a model is trained{checked}")
    if len({is_same for _, is_same in judged}) < 2:
        raise InvalidInput(
            "a model takes pairs of both kinds: judge some that are the same, and some that are not"
        )
    return Learned("the model of your answers", _fit_model(judged, columns))


def bound(
    connection: Any, names: Sequence[str], asking: Asking, at_most: float, confidence: float, say: Say
) -> dict[str, Any]:
    """Ask about links drawn at random, until the share of false ones is at most ``at_most`` or the person stops;
    members of `FalseLinks`."""
    links = connection.execute("SELECT a, b FROM links WHERE kept ORDER BY a, b").fetchall()
    drawn = SystemRandom().sample(links, min(len(links), _MOST_ASKED))
    wrong, facts = list[bool](), dict[str, Any]()
    for _, same in asking(read_pairs(connection, names, drawn)):
        # What nobody can tell is wrong.
        wrong.append(same is not True)
        judgements = Judgements(len(links), wrong)
        share = share_bound(judgements, at_most, confidence)
        is_enough = share <= at_most
        facts = dict.fromkeys(("estimate", "check", "unknown", "judge")) | {
            "bound": share,
            "judged": len(wrong),
            "enough": is_enough,
            "confidence": confidence,
            "expected_more": 0 if is_enough else expected_judgements(judgements, at_most, confidence),
        }
        if len(wrong) in _REPORTED_AT or is_enough:
            say(
                f"after {len(wrong)} answers, {sum(wrong)} of them wrong: at most {100 * share:.3g} % of "
                f"{len(links):,} links are false, {100 * confidence:g} % confidence"
            )
        if is_enough:
            break
    return facts


def read_pairs(connection: Any, names: Sequence[str], rows: Sequence[tuple[int, int]]) -> list[Pair]:
    """Pairs of rows of the table ``source``, whose columns are called so, in their order."""
    a, b = np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy()
    give(connection, "pairs_to_read", place=np.arange(len(rows)), a=a, b=b)
    cells = ", ".join(f"{side}.c{at}" for side in "xy" for at in range(len(names)))
    pairs = connection.execute(
        f"SELECT i.ref, j.ref, {cells} FROM pairs_to_read JOIN refs i ON i.row = a JOIN refs j ON j.row = b "
        "JOIN source x ON x.row = a JOIN source y ON y.row = b ORDER BY place"
    ).fetchall()
    half = 2 + len(names)
    return [
        Pair(
            (pair[0], pair[1]), *(dict(zip(names, side, strict=True)) for side in (pair[2:half], pair[half:]))
        )
        for pair in pairs
    ]


def _fit_model(judged: Sequence[tuple[Pair, bool]], columns: dict[str, str]) -> RecordSimilarity:
    from pairmark.models.records.estimator import RecordSimilarity

    left: Any = [dict(pair.left) for pair, _ in judged]
    right: Any = [dict(pair.right) for pair, _ in judged]
    with refusals("the answers make no model"):
        return RecordSimilarity(columns=columns).fit_pairs(left, right, [same for _, same in judged])


def _check(model: RecordSimilarity, judged: Sequence[tuple[Pair, bool]]) -> str:
    """How often the model of before was right about the answers since."""
    rows = [dict(side) for pair, _ in judged for side in (pair.left, pair.right)]
    scores = model.score_pairs(rows, np.arange(0, len(rows), 2), np.arange(1, len(rows), 2))
    n_right = sum((score > 0.5) == same for score, (_, same) in zip(scores.tolist(), judged, strict=True))
    return f"; that of before was right about {n_right} of the {len(judged)} answers since"
