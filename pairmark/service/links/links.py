"""Links of stored tables: submitted as jobs, listed, read, explained, changed by hand, erased and deleted."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import delete
from sqlalchemy.orm import Session

from pairmark.models.records.schema import COMPARED, STRINGS, key_of
from pairmark.models.registry import spec_of
from pairmark.schemas.base import Answer, Page
from pairmark.schemas.jobs import JobOut
from pairmark.schemas.links import (
    EntitiesEdit,
    EntityChange,
    EntityOut,
    LinkEvaluation,
    LinkExplained,
    LinkOut,
    LinksErased,
    LinksOut,
    LinksRequest,
    LinksResolved,
    ResolveRequest,
)
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.ingest import dataset_of
from pairmark.service.db import Database, name_filter, page_of, read_page, start_of
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput, ModelNotCapable
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.links.folders import REVIEWS, WITH_STATE, LinkFolders
from pairmark.service.links.judging import Learned
from pairmark.service.links.linking import check_columns
from pairmark.service.links.resolving import Resolver
from pairmark.service.links.results import Results
from pairmark.service.names import VisibleNames, parse_ref, tenant_of
from pairmark.service.reviews import repository as reviews
from pairmark.service.reviews.decisions import sizes_of
from pairmark.service.runtime.operating_points import OperatingPoints, PointRequest
from pairmark.service.settings import Settings
from pairmark.service.store.versions import VersionStore
from pairmark.service.tables import DatasetRow, JobRow, LinkRow, ModelVersion, ReviewRow

_LEARNER = "fellegi-sunter"
_ATTEMPTS = 20
"""Looks at links that others put records into."""
_OPEN = 8
"""Folders that a process keeps open for records that are resolved."""
_LISTS: dict[type[Page[Any]], tuple[type[Answer], str]] = {
    Page[EntityOut]: (
        EntityOut,
        "SELECT entity AS id, list(record ORDER BY side, place) AS records, list(side + 1 ORDER BY side, place) AS "
        "tables FROM entities GROUP BY entity ORDER BY min(place)",
    ),
    Page[EntityChange]: (
        EntityChange,
        "SELECT entity, change, list_transform(records, lambda r: r.record) AS records, entities FROM changes "
        "ORDER BY place",
    ),
}

P = TypeVar("P", bound=Page[Any])


class Links:
    """All blocking: they read the database, and files of links."""

    def __init__(
        self, db: Database, blobs: Blobs, queue: JobQueue, settings: Settings, points: OperatingPoints
    ) -> None:
        self._db, self._blobs, self._queue, self._settings = db, blobs, queue, settings
        self._points = points
        self._versions = VersionStore(db, blobs, settings)
        self._folders, self._resolvers = LinkFolders(db, blobs), BoundedCache[str, Resolver](_OPEN)

    def submit(self, request: LinksRequest, names: VisibleNames) -> JobOut:
        """Queue a link job; an error that says what to do where tables, rules, model or previous links do not fit."""
        params: dict[str, Any] = request.model_dump(mode="json") | {"threshold": None}
        if request.previous is not None:
            self._folders.stored(request.previous, names)

        def prepare(session: Session) -> JobRow:
            places = (
                ("left", "right") if request.tables is None else map("tables[{}]".format, itertools.count())
            )
            rows = [_table(session, *each) for each in zip(request.datasets, places, strict=False)]
            names_of = [f"{row.name}:{row.version}" for row in rows]
            if request.tables is not None and len({*names_of}) < len(rows):
                raise InvalidInput(
                    f"tables: {max(names_of, key=names_of.count)} is there twice; expected each dataset once",
                    field="tables",
                )
            version_of = dict(zip(request.datasets, names_of, strict=True))
            weighing = {
                column: _table(session, ref, f"frequencies.{column}")
                for column, ref in (request.frequencies or {}).items()
            }
            params.update(
                left=None,
                right=None,
                tables=names_of,
                unique=request.unique and [version_of[each] for each in request.unique],
                further=[row.id for row in rows[2:]],
                frequencies={column: f"{row.name}:{row.version}" for column, row in weighing.items()} or None,
                weighing={column: row.id for column, row in weighing.items()},
                declared=sorted({name for row in rows for name in row.summary["spec"].get("columns") or ()}),
            )
            check_columns(request, list(_columns(rows[0])))
            learner = _LEARNER
            if request.model is not None:
                model, version = self._versions.resolved(session, parse_ref(request.model))
                learner, params["model"] = version.kind, f"{model.name}:{version.version}"
                _check_model(version, params["model"], rows)
                if request.fpr is not None:
                    params["threshold"] = self._threshold(version, request)
            if request.previous is not None:
                _check_previous(self._folders.find(session, request.previous, names)[0], params)
            return JobRow(
                task="link",
                learner=learner,
                dataset_id=rows[0].id,
                dataset=names_of[0],
                unlabelled_id=rows[1].id if len(rows) > 1 else None,
                unlabelled=names_of[1] if len(rows) > 1 else None,
                model=rows[0].name,
                params=params,
                evaluation={},
            )

        job = self._queue.enqueue(prepare)
        with self._db.write() as session:
            # Its worker may have done so already.
            session.merge(
                LinkRow(id=job.id, name=job.model, request=job.params, created_at=self._db.now(session))
            )
        return job

    def _threshold(self, version: ModelVersion, request: LinksRequest) -> float:
        """The model's threshold at a rate."""
        assert request.fpr is not None
        if version.calibration_id is None:
            raise InvalidInput(
                f"{request.model} is not calibrated, so fpr has no threshold; calibrate it (POST "
                "/models/NAME/versions/VERSION/calibrations), or leave fpr out",
                field="fpr",
            )
        point = PointRequest(version.calibration_id, request.fpr, request.confidence, "auto")
        return float(self._points.compute(point).threshold)

    def get(self, link_id: str, names: VisibleNames) -> LinksOut:
        """A link job, or `UnknownLinks`."""
        with self._db.read() as session:
            return _out(session, *self._folders.find(session, link_id, names))

    def evaluation(self, link_id: str, names: VisibleNames) -> LinkEvaluation:
        """Links as a job found them against the tables' identities; `Conflict` where they have none."""
        with self._db.read() as session:
            figures = (self._folders.find(session, link_id, names)[0].summary or {}).get("evaluation")
        if figures is None:
            raise Conflict(
                "there is no evaluation of these links: a job that found some, without `previous`, makes one where its "
                "datasets have a column of identities (`identity` at their upload)"
            )
        return LinkEvaluation.model_validate(figures)

    def page(self, limit: int, cursor: str | None, names: VisibleNames) -> Page[LinksOut]:
        """Link jobs, newest first."""
        query, order = WITH_STATE.where(name_filter(names, LinkRow.name)), (LinkRow.created_at, LinkRow.id)
        with self._db.read() as session:
            return read_page(
                session,
                Page[LinksOut],
                lambda found: _out(session, *found),
                query,
                order,
                limit,
                cursor,
                newest_first=True,
            )

    def listed(self, kind: type[P], link_id: str, limit: int, cursor: str | None, names: VisibleNames) -> P:
        """A page of changes in their order, or of entities in that of their first records."""
        item, sql = _LISTS[kind]
        start = start_of(limit, cursor, int) or 0
        rows = self._folders.read(
            link_id, names, lambda results: results.rows(f"{sql} LIMIT ? OFFSET ?", limit + 1, start)
        )
        return page_of(
            kind,
            rows,
            limit,
            lambda _: (start + limit,),
            lambda row: item(**dict(zip(item.model_fields, row, strict=True))),
        )

    def list_links(
        self,
        link_id: str,
        names: VisibleNames,
        *,
        limit: int,
        cursor: str | None,
        sort: str,
        search: str | None,
        cells: bool,
    ) -> Page[LinkOut]:
        """A page of links in the order of the tables, or the most doubtful first."""
        start = start_of(limit, cursor, int) or 0

        def look(results: Results) -> list[LinkOut]:
            rows = results.links(search, sort == "doubt", limit + 1, start)
            keys = [key for row in rows for key in ((row[5], row[0]), (row[6], row[1]))] if cells else []
            texts = results.texts_of(keys)
            return [
                LinkOut(
                    **dict(zip(LinkOut.model_fields, row[:5], strict=False)),
                    left_table=row[5] + 1 if results.n_tables > 2 else None,
                    right_table=row[6] + 1 if results.n_tables > 2 else None,
                    cells=(texts[2 * place], texts[2 * place + 1]) if cells else None,
                )
                for place, row in enumerate(rows)
            ]

        shown = self._folders.read(link_id, names, look)
        return page_of(Page[LinkOut], shown, limit, lambda _: (start + limit,), lambda link: link)

    def explain(self, link_id: str, left: str, right: str, names: VisibleNames) -> LinkExplained:
        """Why two records are linked or not, field by field; `UnknownLinks` where one is not there."""

        def look(results: Results) -> tuple[Any, ...]:
            keys = results.pair(left, right)
            cells = results.texts_of(keys)
            return keys, cells, results.explain(*cells), results.link(*keys) or (None, "different", None)

        keys, cells, fields, (score, decision, entity) = self._folders.read(link_id, names, look)
        with self._db.read() as session:
            model = self._folders.find(session, link_id, names)[0].request["model"]
        if model is not None:
            weights = Learned.stored(self._db, self._blobs, self._settings, model).explained(*cells)
            fields = [field | {"weight": weights.get(field["field"], 0.0)} for field in fields]
        return LinkExplained(
            left=keys[0][1], right=keys[1][1], score=score, decision=decision, entity=entity, fields=fields
        )

    def edit(self, link_id: str, edit: EntitiesEdit, names: VisibleNames) -> LinksOut:
        """Merge entities or split one, for good: jobs that go on from this one keep it."""
        self._folders.edit(link_id, names, edit)
        return self.get(link_id, names)

    def resolve(self, link_id: str, request: ResolveRequest, names: VisibleNames) -> LinksResolved:
        """Which entities a record may belong to; kept in the surest one where that is asked for."""
        for _ in range(_ATTEMPTS):
            with self._db.read() as session:
                blob = self._folders.blob(session, link_id, names)
            try:
                resolver = self._resolver(link_id, blob)
            except (OSError, CorruptArtefact):
                # Somebody put another folder in its place meanwhile.
                continue
            with resolver.lock:
                with self._db.read() as session:
                    for each in self._folders.additions(session, link_id, len(resolver.added)):
                        resolver.take(each)
                if not request.add:
                    return LinksResolved(entities=resolver.resolve(request.record))
                entities, name, added = resolver.put_in(request.record, request.id)
                n = len(resolver.added)
                if added is None or self._folders.add(link_id, names, blob, n, added, "links.add", {}):
                    return LinksResolved(entities=entities, added=name)
        raise Conflict("others put records into these links at the same time; try again")

    def _resolver(self, link_id: str, blob: str) -> Resolver:
        folder, resolver = self._blobs.folder(blob), self._resolvers.get(link_id)
        if resolver is None or resolver.folder != folder:
            resolver = Resolver(folder)
            self._resolvers.put(link_id, resolver)
        return resolver

    def erase(self, link_id: str, name: str, names: VisibleNames) -> LinksErased:
        """Erase a record from links, entities, changes and the review."""
        n_links, n_items = self._folders.rewrite(link_id, names, name)
        self._resolvers.drop([link_id])
        self._db.truncate_log()
        with self._db.read() as session:
            request = self._folders.find(session, link_id, names)[0].request
        return LinksErased(
            record=name,
            links=n_links,
            review_items=n_items,
            pending=[
                f"{' and '.join(request['tables'])} and other links of it hold the record: delete them, or erase it "
                "there too",
                "PostgreSQL and backups keep what was deleted until vacuum and expiry",
            ],
        )

    def write_list(self, link_id: str, names: VisibleNames, name: str, out: Path) -> None:
        """Write all ``links`` or ``entities``, as CSV or Parquet by the name of ``out``; `Conflict` until there are
        any."""
        self._folders.read(link_id, names, lambda results: results.write_list(name, out))

    def delete(self, link_id: str, names: VisibleNames) -> None:
        """Delete links with their review; `Conflict` while their job waits or runs."""
        with self._db.write() as session:
            row, state = self._folders.find(session, link_id, names)
            if state in ("queued", "running"):
                raise Conflict(f"the link job is {state}: cancel it first (POST /jobs/{link_id}/cancel)")
            record(
                session, self._db.now(session), "links.delete", f"links:{row.id}", tenant=tenant_of(row.name)
            )
            for review in filter(None, (_review_of(session, row, which) for which in REVIEWS)):
                reviews.delete_review(session, review.id)
            blobs = [] if row.blob is None else [row.blob]
            session.execute(delete(LinkRow).where(LinkRow.id == link_id))
            self._resolvers.drop([link_id])
        delete_unused(self._db, self._blobs, blobs)


def _table(session: Session, ref: str, field: str) -> DatasetRow:
    """A dataset of records; ``field``: what names it in a request."""
    row = dataset_of(session, ref, lock="shared")
    if row.summary.get("columns") is None:
        raise InvalidInput(
            f"dataset {row.name!r} holds vectors; expected a table of records: upload it with columns or with text",
            field=field,
        )
    return row


def _columns(row: DatasetRow) -> dict[str, str]:
    """Types of the columns of a table that are compared."""
    return {each["name"]: each["type"] for each in row.summary["columns"] if each["type"] in COMPARED}


def _check_model(version: ModelVersion, ref: str, tables: Sequence[DatasetRow]) -> None:
    """Refuse a model that does not compare records of these columns."""
    expected: dict[str, str] | None = version.facts.get("columns")
    if expected is None or not spec_of(version.kind).takes_records:
        raise ModelNotCapable(
            f"{ref} ({version.kind}) compares vectors; expected a model of records: train one of kind record-trees or "
            "fellegi-sunter",
            field="model",
        )
    for side, row in enumerate(tables):
        there = {key_of(name) if side else name: kind for name, kind in _columns(row).items()}
        for name, kind in expected.items():
            base = kind.partition(":")[0]
            own_kind = there.get(key_of(name) if side else name)
            # A model reads texts by kinds of its own.
            if base in COMPARED and own_kind != base and not {own_kind, base} <= STRINGS:
                raise InvalidInput(
                    f"{ref} compares column {name!r} of type {base}, and {row.name}:{row.version} has "
                    f"{'none of that name' if own_kind is None else f'it of type {own_kind}'}: upload the table with "
                    "these columns and types (`columns`), or link without a model",
                    field="model",
                )


def _check_previous(row: LinkRow, params: dict[str, Any]) -> None:
    """Refuse to go on from links of other tables, or by another model."""
    before = row.request
    tables = [[each.rpartition(":")[0] for each in of["tables"]] for of in (before, params)]
    if tables[0] != tables[1]:
        raise InvalidInput(
            f"previous links {' and '.join(tables[0])}; expected the same datasets, of any version",
            field="previous",
        )
    if before["model"] != params["model"]:
        raise InvalidInput(
            f"previous was scored by {before['model'] or 'a model fitted on the tables'}; expected "
            + (f'"model": "{before["model"]}"' if before["model"] else "no model"),
            field="previous",
        )


def _review_of(session: Session, row: LinkRow, which: str) -> ReviewRow | None:
    """One of `folders.REVIEWS` of a job's links, while there is one."""
    review = (row.summary or {}).get(which)
    return None if review is None else session.get(ReviewRow, review)


def _out(session: Session, row: LinkRow, state: str) -> LinksOut:
    params, summary, tables = row.request, dict(row.summary or {}), row.request["tables"]
    review, missed, recall = (_review_of(session, row, which) for which in REVIEWS)
    if review is not None and summary.get("false_links") is not None:
        summary["false_links"] = summary["false_links"] | _judged_share(review, summary)
    if missed is not None:
        summary["missed_links"] = {
            "judged": missed.progress["judged"],
            "enough": missed.progress["enough"],
            "bound": missed.progress["bound"] if missed.progress["judged"] else None,
            "review": missed.id,
        }
    if recall is not None:
        summary["recall"] = recall.progress["recall"] | {"confidence": recall.confidence, "review": recall.id}
    return LinksOut.model_validate(
        {name: params.get(name) for name in ("model", "one_to_one", "previous")}
        | {
            "id": row.id,
            "state": state,
            "created_at": row.created_at,
            "tables": tables,
            "left": tables[0],
            "right": tables[1] if len(tables) > 1 else None,
            "unique": params["unique"] or [],
            "request": {
                name: params[name]
                for name in LinksRequest.model_fields
                if params.get(name) not in (None, [], False)
            },
        }
        | summary
        | {"review": None if review is None else review.id}
    )


def _judged_share(review: ReviewRow, summary: dict[str, Any]) -> dict[str, Any]:
    """What judgements say of the share of false links; those that were made by hand since count as false."""
    progress, size, by_hand = review.progress, sum(sizes_of(review)), summary.get("by_hand", 0)
    facts = {"judged": progress["judged"], "bound": None, "bound_of": size, "by_hand": by_hand}
    if not progress["judged"]:
        return facts | {name: progress[name] for name in ("enough", "expected_more")}
    bound = min(1.0, (round(progress["bound"] * size) + by_hand) / max(summary["links"], 1))
    is_enough = bound <= review.at_most
    # After changes by hand it may lack what the review has.
    expected_more = progress["expected_more"] if is_enough else progress["expected_more"] or None
    nothing_else = dict.fromkeys(("estimate", "check", "unknown", "judge"))
    return facts | nothing_else | {"bound": bound, "enough": is_enough, "expected_more": expected_more}
