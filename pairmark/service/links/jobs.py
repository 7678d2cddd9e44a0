"""Link jobs: stored tables in; a folder of links, and a review of them, out."""

import itertools
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from pairmark.models.core.progress import listening
from pairmark.models.linking.evaluation import Identities, measured_recall
from pairmark.models.records.schema import INFERRED, STRINGS, RecordColumn, json_cell
from pairmark.models.records.tables import declaration
from pairmark.schemas.links import LinksRequest
from pairmark.schemas.reviews import Question, ReviewRequest, ReviewSource
from pairmark.service.blobs import Blobs, hold
from pairmark.service.datasets.data import LabelledData, row_name
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput
from pairmark.service.jobs.leases import Claim, Leases, Progress
from pairmark.service.links import duck
from pairmark.service.links.folders import LinkFolders
from pairmark.service.links.judging import Learned, Pair, read_pairs, records_to_judge
from pairmark.service.links.linking import AT_MOST, LinkRun, link_session, summary_of
from pairmark.service.links.outputs import write_folder
from pairmark.service.names import EVERY_NAME
from pairmark.service.reviews.decisions import MAX_SIDES_BYTES, MOST_DRAWN, Decisions, Item, drawn_from
from pairmark.service.reviews.reviews import open_review
from pairmark.service.settings import Settings
from pairmark.service.tables import DecisionCode, LinkRow

_STAGES = {"loading": (0.0, 0.1), "linking": (0.1, 0.9), "storing": (0.9, 1.0)}
_ID = "row id"
_KEPT = "SELECT a, b, score FROM links WHERE kept ORDER BY a, b"
_BELOW = "SELECT a, b, score FROM candidates ANTI JOIN (FROM links WHERE kept) USING (a, b) ORDER BY a, b"
_ASKED: dict[Question, str] = {
    "false-matches": "links",
    "missed-matches": "missed links",
    "label": "pairs to label",
    "recall": "recall of links",
}
_FACTS: dict[Question, str] = {
    "false-matches": "review",
    "missed-matches": "missed_review",
    "recall": "recall_review",
}
"""What a summary calls the review of each question."""


class Linker:
    """Runs one attempt at a link job."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._blobs, self._settings = db, blobs, settings
        self._leases = Leases(db, settings)
        self._datasets = Datasets(db, blobs, settings)
        self._folders = LinkFolders(db, blobs)

    def run(self, claim: Claim) -> str:
        """Link, keep what was found and open its reviews; returns the id of the links."""
        progress = Progress(self._leases, claim, _STAGES)
        progress.stage("loading")
        params = dict(claim.params)
        threshold, further = params.pop("threshold"), params.pop("further", [])
        declared, weighing = params.pop("declared", []), params.pop("weighing", {})
        request = LinksRequest.model_validate(params)
        with ExitStack() as stack:
            work = stack.enter_context(self._blobs.workspace())
            ids = [each for each in (claim.dataset_id, claim.unlabelled_id, *further) if each is not None]
            tables = [self._datasets.load(each) for each in ids]
            shares = {name: self._datasets.load(each) for name, each in weighing.items()}
            names = {
                column.name
                for data in (*tables, *shares.values())
                if data.schema is not None
                for column in data.schema.fields
            }
            # No column of the tables is called so.
            row_id = next(name for n in itertools.count() if (name := _ID + "_" * n) not in names)
            files = [
                _write_texts(data, work / f"table{number}.parquet", row_id)
                for number, data in enumerate(tables)
            ]
            # Each in a folder of its own: a/b and a-b are two datasets.
            frequencies = {
                name: _write_texts(
                    data, work / f"shares{number}" / f"{data.name.replace('/', '-')}.parquet", row_id
                )
                for number, (name, data) in enumerate(shares.items())
            }
            stored = self._db, self._blobs, self._settings
            learned = None if request.model is None else Learned.stored(*stored, request.model, threshold)
            previous = (
                None if request.previous is None else self._folders.stored(request.previous, EVERY_NAME)
            )
            progress.stage("linking")
            scratch = work / "scratch"
            scratch.mkdir()
            types = {name: kind for data in tables for name, kind in _types(data).items()}
            with listening(progress.within):
                run = stack.enter_context(
                    link_session(
                        files,
                        scratch,
                        self._settings,
                        request,
                        id_column=row_id,
                        # What was inferred at upload is inferred from the same cells as the command does it.
                        columns={
                            name: kind
                            for name, kind in types.items()
                            if name in declared or kind not in INFERRED
                        },
                        learned=learned,
                        previous=previous,
                        frequencies=frequencies,
                    )
                )
            progress.stage("storing")
            kinds = {name: types[name] for name in run.names}
            if run.doubts is not None:
                raise self._to_judge(claim, request, run, kinds)
            again, out = previous is not None, work / "out"
            out.mkdir()
            write_folder(run.connection, out, run.linking, run.tables, again=again, link_id=claim.job_id)
            who = None if again else _identities_of(tables)
            connected = None if who is None else measured_recall(run.connection, run.linking.sides, who)
            summary = summary_of(run, request, None if who is None else Identities(who), connected)
            links = _decisions(run, _KEPT)
            populations: dict[Question, list[Decisions]] = {"false-matches": [links]}
            if links.size and request.missed_links is not None:
                populations["missed-matches"] = [links, _decisions(run, _BELOW, DecisionCode.DIFFERENT)]
            if request.recall is not None:
                populations["recall"] = [_records(run)]
            key = self._blobs.put_folder(out)
            with self._db.write() as session:
                hold(session, self._blobs, key)
                facts = summary.model_dump(mode="json") | {
                    _FACTS[question]: self._open_review(session, claim, request, population, kinds, question)
                    for question, population in populations.items()
                }
                if request.fpr is not None:
                    facts["operating_point"] = {"fpr": request.fpr, "threshold": run.linking.cut}
                session.merge(_row(claim, summary=facts, blob=key))
                message = f"{summary.links:,} links, {summary.entities:,} entities"
                self._leases.finish(claim, session, result={"links": claim.job_id}, message=message)
        return claim.job_id

    def _open_review(
        self,
        session: Any,
        claim: Claim,
        request: LinksRequest,
        population: list[Decisions],
        columns: dict[str, str],
        question: Question,
    ) -> str | None:
        """Open a review of a job; None where there is nothing to judge."""
        if not any(decisions.items for decisions in population):
            return None
        at_most = {
            "missed-matches": request.missed_links,
            "recall": None if request.recall is None else round(1 - request.recall, 6),
        }.get(question, request.false_links)
        asking = ReviewRequest(
            name=f"{_ASKED[question]} of {claim.dataset}",
            source=ReviewSource(refs=[]),
            question=question,
            at_most=at_most or AT_MOST,
            confidence=request.confidence,
        )
        source = {"links": claim.job_id, "columns": columns}
        return open_review(
            session, self._db.now(session), asking, population, model=claim.model, source=source
        ).id

    def _to_judge(
        self, claim: Claim, request: LinksRequest, run: LinkRun, kinds: dict[str, str]
    ) -> InvalidInput:
        """What is said where matches cannot be told from strangers: which pairs to judge."""
        doubtful = _decisions(run, "SELECT a, b, score FROM doubtful ORDER BY turn, a, b", None)
        with self._db.write() as session:
            row = session.get(LinkRow, claim.job_id)
            # An attempt that was killed may have opened it.
            review = None if row is None else (row.summary or {}).get("review")
            if review is None:
                review = self._open_review(session, claim, request, [doubtful], kinds, "label")
                session.merge(_row(claim, summary={"review": review}))
        return InvalidInput(
            f"without labels, matches cannot be told from strangers here: {run.doubts}. Judge pairs of review "
            f"{review} (`pairmark review {review}`), make a dataset of them (POST /reviews/{review}/dataset), "
            'train on it, and link with {"model": NAME}'
        )


def _row(claim: Claim, **found: Any) -> LinkRow:
    """What was asked and found: who submits the job keeps it, too, in either order."""
    return LinkRow(
        id=claim.job_id, name=claim.model, request=claim.params, created_at=claim.created_at, **found
    )


def _decisions(run: LinkRun, sql: str, kind: DecisionCode | None = DecisionCode.MATCH) -> Decisions:
    """Pairs to judge, with both records as they stand; without a kind, they are to be labeled in their order."""
    run.connection.execute(
        f"CREATE OR REPLACE TABLE pairs_to_judge AS SELECT row_number() OVER () - 1 AS place, * FROM ({sql})"
    )
    size = run.connection.execute("SELECT count(*) FROM pairs_to_judge").fetchall()[0][0]

    def items(places: list[int]) -> list[Item]:
        chosen = "SELECT place, a, b, score FROM pairs_to_judge WHERE place IN (SELECT unnest(?))"
        by_place = {place: row for place, *row in run.connection.execute(chosen, [places]).fetchall()}
        rows = [by_place[place] for place in places]
        pairs = read_pairs(run.connection, run.names, [(a, b) for a, b, _ in rows])
        scores = (score if math.isfinite(score) else None for _, _, score in rows)
        return [_item(pair, kind) | {"score": score} for pair, score in zip(pairs, scores, strict=True)]

    return drawn_from(kind or DecisionCode.MATCH, size, range(size), items, in_order=kind is None)


def _item(pair: Pair, kind: DecisionCode | None) -> Item:
    sides = {"left": pair.left, "right": pair.right}
    return {"left_ref": pair.ids[0], "right_ref": pair.ids[1], "decision": kind, "sides": sides}


def _records(run: LinkRun) -> Decisions:
    """Records to judge for recall, as many as a review holds whole: the pairs of each, one after another."""
    size, drawn = records_to_judge(run.connection, run.linking)
    items: list[Item] = []
    records, n_bytes = [], 0
    for others in drawn:
        of_record = [
            _item(pair, DecisionCode.MATCH if is_linked else DecisionCode.DIFFERENT)
            for pair, is_linked in others
        ]
        n_bytes += sum(len(to_json(item["sides"])) for item in of_record)
        if items and (n_bytes > MAX_SIDES_BYTES or len(items) + len(of_record) > MOST_DRAWN):
            break
        items += of_record
        records.append("".join(str(int(is_linked)) for _, is_linked in others))
    return Decisions(DecisionCode.MATCH, size, items, records)


def _identities_of(tables: list[LabelledData]) -> NDArray[np.int64] | None:
    """(n,) whom each row is of, by the tables' identities, -1 where nobody knows; None where a table has none."""
    if any(data.y is None for data in tables):
        return None
    names = sorted({name for data in tables for name in data.identities})
    sides = [np.searchsorted(names, data.identities)[np.asarray(data.y)] for data in tables]
    return np.concatenate(sides).astype(np.int64)


def _types(data: LabelledData) -> dict[str, str]:
    """Types of a table's columns as `_write_texts` writes them."""
    assert data.schema is not None
    compared = {column.name for column in data.schema.fields}
    types = {name: kind for name, kind in declaration(data.schema).items() if name in compared}
    return {name: "date:YYYY-MM-DD" if kind.startswith("date") else kind for name, kind in types.items()}


def _write_texts(data: LabelledData, path: Path, row_id: str) -> Path:
    """A stored table as texts in a Parquet file, its compared columns after its rows' ids."""
    assert data.schema is not None
    path.parent.mkdir(exist_ok=True)
    cells = np.asarray(data.X)
    columns: dict[str, list[str | None]] = {row_id: [row_name(data, row) for row in range(len(data))]}
    columns |= {column.name: _texts(column, cells[:, at]) for at, column in enumerate(data.schema.fields)}
    with duck.duckdb_session(threads="1") as connection:
        # Columns of objects are text, whatever their first cells are.
        connection.execute("SET pandas_analyze_sample = 0")
        connection.register("given", {name: np.array(of, dtype=object) for name, of in columns.items()})
        duck.copy_to(connection, "FROM given", path)
    return path


def _texts(column: RecordColumn, cells: NDArray[Any]) -> list[str | None]:
    if column.type in STRINGS:
        return list(cells)
    values = (None if cell is None else json_cell(cell, column) for cell in cells)
    return [
        None if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for value in values
    ]
