"""From files to links: reads tables, links them, and writes the links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.linking.engine import Linking, Spread
from pairmark.models.records.linking.mixture import NeedsJudgements
from pairmark.schemas.links import CANDIDATES_PER_RECORD, FalseLinks, LinkBlocking, LinkSummary
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.errors import InvalidInput
from pairmark.service.links import kept
from pairmark.service.links.tables import LinkTables, read_tables
from pairmark.service.settings import Settings

if TYPE_CHECKING:
    from pairmark.service.links.learned import Learned

COLUMNS = ("left", "right", "score", "decision", "entity")


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """What to link by; see `pairmark.schemas.links.LinksRequest`.

    Attributes
    ----------
    cut : links score above it; None: the model's own. labels : (n,) whom each row is of, -1 where nobody knows.
    previous : the folder of an earlier job.
    """

    false_links: float | None = None
    fpr: float | None = None
    rules: Sequence[Sequence[str]] | None = None
    one_to_one: bool = False
    candidates_per_record: int = CANDIDATES_PER_RECORD
    cut: float | None = None
    confidence: float = 0.95
    labels: NDArray[np.int64] | None = None
    previous: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Linked:
    """Tables that were linked: ``found`` and ``named`` of `pairmark.service.links.kept` are there.

    Attributes
    ----------
    doubts : why matches cannot be told from strangers without labels: then the table ``doubtful(a, b, score)`` has the
        pairs that look most alike, and nothing is linked. Else None.
    """

    connection: Any
    tables: LinkTables
    linking: Linking
    doubts: str | None = None
    recall: tuple[int, int] | None = None


@contextmanager
def linked(
    files: Sequence[Path],
    scratch: Path,
    settings: Settings,
    options: LinkOptions,
    *,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
    learned: Learned | None = None,
) -> Iterator[Linked]:
    """Link one table, or two.

    Raises
    ------
    InvalidInput
        On tables that cannot be read or linked; what can be done is said.
    """
    limits = FileLimits.of(settings, sum(path.stat().st_size for path in files))
    bounds = kept.bounds(settings, scratch, settings.job_threads)
    with kept.connected(**bounds) as connection:
        tables = read_tables(connection, files, scratch, limits, id_column=id_column, columns=columns)
        check_rules(options.rules, [field.name for field in tables.fields])
        previous = None if options.previous is None else kept.bring(connection, options.previous, tables)
        linking = Linking(
            connection,
            tables.fields,
            tables.n_rows,
            tables.n_left,
            rules=options.rules,
            one_to_one=options.one_to_one,
            budget=options.candidates_per_record,
            previous=previous,
            spread=_spread(connection, settings),
            **({} if learned is None else _scoring(learned, connection, tables, options.cut)),
        )
        try:
            linking.run(options.false_links, options.fpr)
        except NeedsJudgements as error:
            yield Linked(connection=connection, tables=tables, linking=linking, doubts=str(error))
            return
        kept.name_entities(connection, tables, again=previous is not None)
        recall = None
        if options.labels is not None and previous is None:
            connection.register("given", {"row": np.arange(options.labels.size), "who": options.labels})
            connection.execute("CREATE TABLE labels AS SELECT * FROM given WHERE who >= 0")
            connection.unregister("given")
            recall = linking.measured_recall()
        yield Linked(connection=connection, tables=tables, linking=linking, recall=recall)


def _spread(connection: Any, settings: Settings) -> Spread | None:
    if settings.dask_scheduler is None:
        return None
    from pairmark.service.links.cluster import OnCluster

    return OnCluster(connection, settings)


def _scoring(learned: Learned, connection: Any, tables: LinkTables, cut: float | None) -> dict[str, Any]:
    scorer: Callable[..., Any] = learned.scorer(connection, tables)
    if cut is None:
        tables.notes += learned.notes
    return {"scorer": scorer, "cut": learned.cut if cut is None else cut}


def check_rules(rules: Sequence[Sequence[str]] | None, columns: Sequence[str]) -> None:
    """Refuse rules of columns that are not compared."""
    for at, rule in enumerate(rules or ()):
        for name in rule:
            if name not in columns:
                raise InvalidInput(
                    f"rules[{at}]: column {name[:100]!r} is not compared; expected some of {', '.join(columns)}",
                    field=f"rules[{at}]",
                )


def summary_of(of: Linked, options: LinkOptions) -> LinkSummary:
    """What was linked."""
    linking, tables = of.linking, of.tables
    estimate = linking.false_links
    recall, interval = linking.recall, None
    if of.recall is not None and of.recall[1]:
        from pairmark.models.calibration.finite_sample import order_upper

        (k, n), one_sided = of.recall, (1 + options.confidence) / 2
        recall, interval = k / n, (1 - order_upper(n - k, n, one_sided), order_upper(k, n, one_sided))
    return LinkSummary(
        records=tables.n_rows,
        candidates=linking.n_candidates,
        links=linking.n_links,
        cut=linking.n_cut,
        entities=linking.n_entities,
        empty=linking.n_empty,
        blocking=LinkBlocking(
            rules=[list(rule) for rule in linking.rules],
            left_out=[list(rule) for rule in linking.left_out],
            at_most=options.candidates_per_record,
            candidates_per_record=round(linking.n_candidates / tables.n_rows, 2),
            recall=None if recall is None else round(recall, 4),
            recall_interval=interval,
            recall_from=None if recall is None else "overlap" if interval is None else "labels",
        ),
        false_links=FalseLinks(
            estimate=None if estimate is None else round(estimate, 6), confidence=options.confidence
        ),
        ids=tables.ids,
        notes=tables.notes,
    )


def link_files(
    files: Sequence[Path],
    scratch: Path,
    settings: Settings,
    options: LinkOptions,
    *,
    out: Path,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
    learned: Learned | None = None,
) -> LinkSummary:
    """Write the links of one table, or between two, to a CSV or Parquet file; `InvalidInput` as `linked`."""
    with linked(
        files, scratch, settings, options, id_column=id_column, columns=columns, learned=learned
    ) as found:
        if found.doubts is not None:
            raise InvalidInput(
                f"without labels, matches cannot be told from strangers here: {found.doubts}. Store the tables "
                "(`pairmark datasets add`) and POST /links: the job opens a review of pairs, and a model trained on "
                "what people judge decides which are the same (`pairmark link --model`)"
            )
        kept.copy_to(found.connection, kept.LINKS_SQL, out)
        return summary_of(found, options)
