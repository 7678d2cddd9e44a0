"""From files to links: reads tables, links them, and writes the links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pairmark.models.records.linking.engine import Linking
from pairmark.models.records.linking.mixture import NeedsJudgements
from pairmark.schemas.links import FalseLinks, LinkBlocking, LinkSummary
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.errors import InvalidInput
from pairmark.service.links.tables import read_tables
from pairmark.service.settings import Settings

COLUMNS = ("left", "right", "score", "decision", "entity")


@contextmanager
def _connected(database: str = ":memory:", **config: Any) -> Iterator[Any]:
    """DuckDB without its own progress bar, which would go to standard output, where answers go."""
    import duckdb

    with closing(duckdb.connect(database, config=config)) as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection


def link_files(
    files: Sequence[Path],
    scratch: Path,
    settings: Settings,
    *,
    out: Path,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
    false_links: float | None = None,
) -> LinkSummary:
    """Write the links of one table, or between two, to a CSV or Parquet file.

    Raises
    ------
    InvalidInput
        On tables that cannot be read or linked; what can be done is said.
    """
    limits = FileLimits.of(settings, sum(path.stat().st_size for path in files))
    config = {
        "memory_limit": f"{settings.link_memory_bytes}B",
        "temp_directory": str(scratch / "spill"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    if settings.job_threads is not None:
        config["threads"] = str(settings.job_threads)
    with _connected(str(scratch / "links.duckdb"), **config) as connection:
        tables = read_tables(connection, files, scratch, limits, id_column=id_column, columns=columns)
        linking = Linking(connection, tables.fields, tables.n_rows, tables.n_left)
        try:
            linking.run(false_links)
        except NeedsJudgements as error:
            raise InvalidInput(
                f"without labels, matches cannot be told from strangers here: {error}. Train a "
                "model on pairs that people judged (`pairmark datasets add --pairs`): it decides which are the same"
            ) from error
        form = "PARQUET" if out.suffix == ".parquet" else "CSV"
        connection.execute(
            "COPY (SELECT x.id AS left, y.id AS right, score, decision, z.id AS entity FROM links "
            "JOIN ids x ON x.row = a JOIN ids y ON y.row = b LEFT JOIN ids z ON z.row = entity ORDER BY a, b) "
            f"TO '{str(out).replace(chr(39), 2 * chr(39))}' (FORMAT {form})"
        )
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
                candidates_per_record=round(linking.n_candidates / tables.n_rows, 2),
            ),
            false_links=FalseLinks(estimate=round(linking.false_links, 6)),
            ids=tables.ids,
            notes=tables.notes,
        )


def read_links(path: Path, sql: str = "SELECT * FROM links", *params: Any) -> list[tuple[Any, ...]]:
    """Rows of ``links``, which is what `link_files` wrote, with the ids as text."""
    source = "read_parquet(?)" if path.suffix == ".parquet" else "read_csv(?, all_varchar=true)"
    with _connected(threads="1") as connection:
        rows: list[tuple[Any, ...]] = connection.execute(
            f"WITH links AS (FROM {source}) {sql}", [str(path), *params]
        ).fetchall()
        return rows


def write_csv(path: Path, out: Path) -> Path:
    """A Parquet file of links as CSV."""
    with _connected(threads="1") as connection:
        target = str(out).replace("'", "''")
        connection.execute(f"COPY (FROM read_parquet(?)) TO '{target}' (FORMAT CSV)", [str(path)])
    return out
