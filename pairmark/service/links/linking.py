"""From files to links: reads tables, links them, and writes the links."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.linking.engine import Linking, NeedsJudgements
from pairmark.models.linking.evaluation import UNKNOWN, Identities, ListedPairs, evaluate_links
from pairmark.schemas.links import (
    LinkBlocking,
    LinkColumn,
    LinkCut,
    LinkEvaluation,
    LinksRequest,
    LinkSummary,
)
from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput
from pairmark.service.links import duck, judging
from pairmark.service.links.judging import Asking, Learned, Say
from pairmark.service.links.outputs import (
    Outputs,
    load_previous,
    name_entities,
    write_folder,
    write_outputs,
)
from pairmark.service.links.results import Stored, ids_of, pick_pair
from pairmark.service.links.tables import LinkTables, read_tables
from pairmark.service.settings import Settings

AT_MOST = 0.02
"""The share of false links that judgements are to exclude where none was asked for."""
_MOST_SHARES = 1.01
"""What shares may sum to, rounded as they are."""
_CUTS = [0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999]
COLUMNS = ("left", "right", "score", "decision", "entity")


@dataclass(frozen=True, kw_only=True)
class LinkRun:
    """Tables that were linked: ``record_links`` and ``entity_members`` of `pairmark.service.links.results` are there.

    Attributes
    ----------
    doubts : why matches cannot be told from strangers without labels: then nothing is linked, and the table
        ``doubtful(a, b, score, turn)`` has pairs to judge, by whose turn it is. Else None.
    """

    connection: Any
    tables: LinkTables
    linking: Linking
    doubts: str | None = None

    @property
    def names(self) -> list[str]:
        """Of the columns of its table ``source``."""
        return [field.name for field in self.tables.fields]


@contextmanager
def link_session(
    files: Sequence[Path],
    scratch: Path,
    settings: Settings,
    request: LinksRequest,
    *,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
    learned: Learned | None = None,
    previous: Stored | None = None,
    frequencies: Mapping[str, Path] | None = None,
    explain: Sequence[str] = (),
    whole: bool = False,
) -> Iterator[LinkRun]:
    """Link one table, or several.

    Parameters
    ----------
    request : says what makes candidates and links; its datasets are the files, whatever it calls them. previous : what
        an earlier job left. frequencies : by column, the file of a dataset that ``request`` names. explain :
        ids of two records, or none, which are checked before anything is linked. whole : see `read_tables`.

    Raises
    ------
    InvalidInput
        On tables that cannot be read or linked; what can be done is said.
    """
    limits = FileLimits.of(settings, sum(path.stat().st_size for path in files))
    bounds = duck.bounds(settings, scratch, settings.job_threads)
    with duck.duckdb_session(**bounds) as connection:
        tables = read_tables(
            connection, files, scratch, limits, id_column=id_column, columns=columns, whole=whole
        )
        check_columns(request, [field.name for field in tables.fields])
        if request.unique and len(tables.sizes) < 2:
            raise InvalidInput(
                "both tables are the same: with unique, there is nothing to link", field="unique"
            )
        before = load_previous(connection, previous, tables)
        if before is not None and before[1] is None and learned is None and request.rules:
            raise InvalidInput(
                "previous compared records as texts, by their words; expected no rules, which take columns: leave them "
                "out, or link without previous",
                field="rules",
            )
        if explain:
            there = connection.execute(
                "SELECT side, id FROM sides WHERE id IN (SELECT unnest(?))", [ids_of(*explain)]
            ).fetchall()
            pick_pair(there, len(tables.sizes), *explain)
        cut, scorer = request.cut, None
        if learned is not None:
            cut, scorer = learned.cut if cut is None else cut, learned.scorer(connection, tables)
            tables.notes += learned.notes
        linking = Linking(
            connection,
            tables.fields,
            tables.sizes,
            within=range(len(files)) if len(files) > 2 else None,
            unique={request.datasets.index(each) for each in request.unique or ()},
            rules=request.rules,
            one_to_one=request.one_to_one,
            must=request.must or (),
            never=request.never or (),
            budget=request.candidates_per_record,
            expected=request.expected_false_links,
            frequencies=_read_frequencies(connection, frequencies or {}, scratch, limits, id_column, tables),
            previous=before,
            cut=cut,
            scorer=scorer,
            spread=None
            if settings.dask_scheduler is None
            else partial(duck.spread_over_cluster, connection, settings),
        )
        doubts = None
        try:
            linking.run(request.false_links, request.fpr)
        except NeedsJudgements as error:
            doubts = str(error)
        else:
            name_entities(connection, tables, again=previous is not None)
        yield LinkRun(connection=connection, tables=tables, linking=linking, doubts=doubts)


def _read_frequencies(
    connection: Any,
    files: Mapping[str, Path],
    scratch: Path,
    limits: FileLimits,
    id_column: str | None,
    tables: LinkTables,
) -> dict[str, str]:
    """By column, the table ``(value, share)`` of a file of two columns, values and shares or counts; an ``id_column``
    before them is left out. The notes of ``tables`` say which part of a column's values it has."""
    shares = {}
    for number, (column, path) in enumerate(files.items()):
        file = TableFile(
            path, scratch / f"shares{number}", format_of(None, path.name), limits, connection=connection
        )
        cells = [
            cell
            for name, cell in zip(file.names, file.cells, strict=True)
            if len(file.names) == 2 or name != id_column
        ]
        if len(cells) != 2:
            raise _no_frequencies(path, f"has {len(file.names)} columns; expected two, value and frequency")
        place, field = next(each for each in enumerate(tables.fields) if each[1].name == column)
        file.query(
            f"CREATE OR REPLACE TEMP TABLE weighed AS SELECT row_number() OVER () AS row, CAST({cells[0]} AS VARCHAR) "
            f"AS value, CAST({cells[1]} AS VARCHAR) AS cell, TRY_CAST({cells[1]} AS DOUBLE) AS share FROM {file.source}"
        )
        [(n, total, are_counts, unfit, cell)] = connection.execute(
            "SELECT count(*), sum(share), bool_and(share = round(share)), min(row) FILTER (NOT fits), arg_min(cell, "
            "row) FILTER (NOT fits) FROM (SELECT *, value IS NOT NULL AND coalesce(share BETWEEN 0 AND 1e15, false) "
            "AS fits FROM weighed)"
        ).fetchall()
        wrong = (
            f"has {str(cell)[:60]!r} in row {unfit}; expected a value, and its share or count"
            if unfit is not None
            else "has no frequency; expected rows of a value and its share or count"
            if not n or not total
            else f"has shares that sum to {total:.4g}; expected 1 at most, or whole numbers, which are counts"
            if not are_counts and total > _MOST_SHARES
            else None
        )
        if wrong is not None:
            raise _no_frequencies(path, wrong)
        shares[column] = f"shares{number}"
        connection.execute(
            f"CREATE TABLE {shares[column]} AS SELECT {field.definition.normal('value')} AS value, "
            "sum(share) / ? AS share FROM weighed GROUP BY ALL",
            [total if are_counts else 1],
        )
        [(n_known, every)] = connection.execute(
            f"SELECT count(*) FILTER (cell IN (SELECT value FROM {shares[column]})), count(*) FROM (SELECT DISTINCT "
            f"{field.definition.normal(f'c{place}')} AS cell FROM source) WHERE cell IS NOT NULL"
        ).fetchall()
        tables.notes.append(
            f"frequencies of {column!r}: {path.name} has {n_known:,} of {every:,} values"
            + ("" if are_counts or total > 2 - _MOST_SHARES else f", and its shares sum to {total:.4g}")
            + ("" if n_known == every else "; the others are as frequent as in the tables")
        )
    return shares


def _no_frequencies(path: Path, what: str) -> InvalidInput:
    return InvalidInput(f"frequencies: {path.name} {what}", field="frequencies")


def check_columns(request: LinksRequest, columns: Sequence[str]) -> None:
    """Refuse rules of columns that are not compared."""
    uses = [
        (f"{what}[{number}]", name)
        for what in ("rules", "must", "never", "frequencies")
        for number, rule in enumerate(getattr(request, what) or ())
        for name in ([rule] if isinstance(rule, str) else rule)
        if name not in columns
    ]
    if uses:
        place, name = uses[0]
        raise InvalidInput(
            f"{place}: column {name[:100]!r} is not compared; expected some of {', '.join(columns)}. A column of "
            "ids is compared where it is declared a category",
            field=place,
        )


def summary_of(
    run: LinkRun,
    request: LinksRequest,
    truth: Identities | ListedPairs | None = None,
    connectable: tuple[int, int] | None = None,
) -> LinkSummary:
    """What was linked; ``truth``: what is known; ``connectable``: how many entities candidates connect, and of how
    many, where labels say it."""
    linking, tables = run.linking, run.tables
    recall, interval = linking.recall, None
    if connectable is not None and connectable[1]:
        from pairmark.models.calibration.finite_sample import order_upper

        (k, n), one_sided = connectable, (1 + request.confidence) / 2
        recall, interval = k / n, (1 - order_upper(n - k, n, one_sided), order_upper(k, n, one_sided))
    compared = {field.name for field in linking.fields}
    left_out = [rule for rule in linking.left_out if not compared.isdisjoint(rule)]
    candidate_rules = [{*rule} for rule in (*linking.rules, *left_out)]
    silent = [" and ".join(rule) for rule in request.rules or () if {*rule} & compared not in candidate_rules]
    share = linking.share
    cuts = run.connection.execute(
        "SELECT cut, count(*), avg(1 - score) FROM links JOIN (SELECT unnest(?) AS cut) ON score > cut WHERE kept "
        "GROUP BY cut ORDER BY cut",
        [
            [linking.cut, *(cut for cut in _CUTS if cut > linking.cut)]
            if share and share.estimate is not None
            else []
        ],
    ).fetchall()
    return LinkSummary(
        records=tables.n_rows,
        candidates=linking.n_candidates,
        links=linking.n_links,
        conflicts=linking.n_cut,
        entities=linking.n_entities,
        empty=linking.n_empty,
        blocking=LinkBlocking(
            rules=[list(rule) for rule in linking.rules],
            left_out=[list(rule) for rule in left_out],
            at_most=request.candidates_per_record,
            candidates_per_record=round(linking.n_candidates / tables.n_rows, 2),
            recall=None if recall is None else round(recall, 4),
            recall_interval=interval,
            recall_from=None if recall is None else "overlap" if interval is None else "labels",
        ),
        false_links=None
        if share is None
        else share.model_copy(
            update={
                "estimate": share.estimate and round(share.estimate, 6),
                "confidence": request.confidence,
                "expected": request.expected_false_links,
            }
        ),
        columns=[
            LinkColumn(name=name, kind=kind, weight=round(weight, 4), note=note)
            for name, kind, weight, note in linking.columns
        ],
        ids=tables.ids,
        evaluation=_evaluate(run.connection, truth, request.confidence),
        cuts=[LinkCut(cut=cut, links=n, estimate=round(estimate, 6)) for cut, n, estimate in cuts],
        notes=[
            *tables.notes,
            *linking.notes,
            *(
                f"frequencies of {name!r} play no part: its values are not compared"
                for name in request.frequencies or ()
                if linking.model is None or name not in compared
            ),
            *(f"rule {rule}: no two records have that in common, or more than 100 do" for rule in silent),
        ],
    )


def link_files(
    files: Sequence[Path],
    scratch: Path,
    settings: Settings,
    request: LinksRequest,
    *,
    outputs: Outputs,
    folder: Path | None = None,
    resolves: bool = True,
    asking: Asking | None = None,
    say: Say = print,
    truth: str | None = None,
    **options: Any,
) -> LinkSummary:
    """Write the links of tables to files; ``options`` and errors as `link_session`.

    Parameters
    ----------
    folder, resolves : an empty folder for `write_folder`: what later runs and explanations take.
    asking : asks a person about pairs: for labels where they are needed, about links drawn at random, and with
        ``request.recall`` about records drawn at random.
    truth : a column that says which records are the same, which is not compared then; or a file of pairs.
    """
    in_column = truth is not None and not is_file(truth)
    if in_column:
        options["columns"] = {**(options.get("columns") or {}), truth: "ignore"}
    options["whole"] = outputs.whole or in_column
    with link_session(files, scratch, settings, request, **options) as run:
        if run.doubts is None:
            if folder is not None:
                is_later = options.get("previous") is not None
                write_folder(
                    run.connection, folder, run.linking, run.tables, again=is_later, resolves=resolves
                )
            known = None if truth is None else _truth_of(run.connection, truth, run.tables.whole)
            summary = summary_of(run, request, known)
            write_outputs(run.connection, outputs, run.tables.whole, run.tables.ids)
            return summary if asking is None else _judge(run, request, summary, asking, say)
        if asking is None:
            raise InvalidInput(
                f"without labels, matches cannot be told from strangers here: {run.doubts}. Add --judge, which asks "
                "about pairs and learns from the answers; or give a trained model (--model)"
            )
        say(f"labels are needed: {run.doubts}. Say of pairs whether they are the same")
        pairs = judging.pairs_to_label(run.connection, run.names)
        learned = judging.learn(asking(pairs), judging.kinds_of(run.connection, run.tables), say)
    again = scratch / "again"
    again.mkdir()
    options |= {"learned": learned, "resolves": resolves, "asking": asking, "say": say, "truth": truth}
    return link_files(files, again, settings, request, outputs=outputs, folder=folder, **options)


def _judge(
    run: LinkRun, request: LinksRequest, summary: LinkSummary, asking: Asking, say: Say
) -> LinkSummary:
    """What a person's judgements show of the links."""
    shown: dict[str, Any] = {}
    if summary.links and summary.false_links is not None:
        at_most = request.false_links or AT_MOST
        share = judging.bound(run.connection, run.names, asking, at_most, request.confidence, say)
        shown["false_links"] = summary.false_links.model_copy(update=share)
    if request.recall is not None:
        size, records = judging.records_to_judge(run.connection, run.linking)
        if any(records):
            shown["recall"] = judging.recall(size, records, asking, request.recall, request.confidence, say)
    return summary.model_copy(update=shown)


def _evaluate(
    connection: Any, truth: Identities | ListedPairs | None, confidence: float
) -> LinkEvaluation | None:
    """Links of a connection that has the tables ``links``, ``members`` and ``sides``; None: nothing is known."""
    if truth is None:
        return None
    links, members, sides = (
        connection.execute(sql).fetchnumpy()
        for sql in (
            "SELECT a, b, score, kept FROM links",
            "SELECT row, first FROM members",
            "SELECT side FROM sides ORDER BY row",
        )
    )
    tables = np.asarray(sides["side"], dtype=np.int64)
    return evaluate_links(
        links, members, truth, tables, within=len(np.unique(tables)) != 2, confidence=confidence
    )


def is_file(truth: str) -> bool:
    """Whether what is known is in a file of pairs; else in a column."""
    return Path(truth).suffix in (".csv", ".parquet")


def _truth_of(connection: Any, truth: str, names: Sequence[str]) -> Identities | ListedPairs:
    """What a column of the table ``whole`` says, by the names of its columns; or a file of pairs: ids of a left and a
    right record and, perhaps, whether they are the same."""
    if not is_file(truth):
        cell = f"c{names.index(truth)}"
        codes = connection.execute(
            f"SELECT dense_rank() OVER (ORDER BY {cell}) AS code, {cell} IS NULL AS unknown FROM whole ORDER BY row"
        ).fetchnumpy()
        return Identities(np.where(codes["unknown"], UNKNOWN, codes["code"]).astype(np.int64))
    rows_by_id = connection.execute("SELECT id, row FROM sides ORDER BY side").fetchall()
    # An id that several tables have is of the first one on the left, and of the last one on the right.
    row_of = [dict(reversed(rows_by_id)), dict(rows_by_id)]
    rows = []
    for number, (left, right, *same) in enumerate(duck.read_table(Path(truth))[1], 1):
        if left not in row_of[0] or right not in row_of[1]:
            raise InvalidInput(
                f"{truth}, row {number}: there are no records {left!r} and {right!r}", field="truth"
            )
        is_same = str(same[0] if same else 1).strip().lower() in ("1", "1.0", "true", "yes", "same")
        rows.append([*sorted((row_of[0][left], row_of[1][right])), is_same])
    a, b, agreed = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return ListedPairs(a, b, agreed.astype(np.bool_))
