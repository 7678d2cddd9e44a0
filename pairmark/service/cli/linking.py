"""The command that finds a table's duplicates, or links several tables."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.matching import ask_pair
from pairmark.service.cli.operating import open_stores
from pairmark.service.cli.options import (
    ColumnTypes,
    Members,
    column_types,
    given_members,
    prepare_database,
    rate,
    settings,
)
from pairmark.service.errors import PairmarkError

if TYPE_CHECKING:
    from pairmark.schemas.link_shares import FalseLinks
    from pairmark.schemas.links import LinkEvaluation, LinksRequest, LinkSummary
    from pairmark.service.links.judging import Answers, Learned, Pair

_SHOWN = 10
_BAR = 24


def link(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="CSV or Parquet, a file or s3://bucket/key; or duckdb:///file.db#table, postgresql://...#table. "
            "One: its duplicates. Two: links across them. More: links across and within.",
        ),
    ],
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the rows; row: their numbers. Default: what plainly does, or row."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="CSV or Parquet that links are written to, a file or s3://bucket/key; or a table of a database, which "
            "is made, or whose rows are replaced where its columns are these. Beside a file, FILE.pairmark keeps what "
            "--previous takes next time, with the cells that were compared.",
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that candidates have in common, such as phone or last,born (repeatable). Default: "
            "proposed from the data."
        ),
    ] = None,
    same: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Link records that have the same value here, such as npi or vat,country (repeatable).",
        ),
    ] = None,
    *,
    options: Annotated[
        LinksRequest,
        Members("false_links model expected_false_links recall cut never candidates_per_record one_to_one"),
    ],
    column: ColumnTypes = None,
    previous: Annotated[
        Path | None,
        typer.Option(
            help="Links of an earlier run (its -o): what is new is compared, and entities keep their ids."
        ),
    ] = None,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge",
            help="Ask about pairs: for labels where links need them, and about links drawn at random, which bounds the "
            "share that is false.",
        ),
    ] = False,
    entities: Annotated[
        str | None, typer.Option(help="Write the tables' rows here, as -o, each with its entity.")
    ] = None,
    merged: Annotated[
        str | None,
        typer.Option(
            help="Write one row of each entity here, as -o, and beside it (FILE.sources, TABLE_sources) the record of "
            "each cell."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN:RULE",
            help="Which cell merged rows have: longest, newest (of the last row), most-frequent (default) or first "
            "(repeatable).",
        ),
    ] = None,
    cells: Annotated[
        bool, typer.Option("--cells", help="Write links with the cells of both records.")
    ] = False,
    above: Annotated[
        float | None,
        typer.Option(
            parser=rate,
            metavar="SCORE",
            help="Write candidates that score more than this, too, as different.",
        ),
    ] = None,
    unique: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="A table without duplicates: an entity has one of its records at most (repeatable).",
        ),
    ] = None,
    frequencies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN:]FILE",
            help="Two columns, values and their shares or counts, such as last:surnames.csv: how frequent a column's "
            "values are elsewhere, in the place of what the tables say. Default column: the file's first (repeatable).",
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FILE",
            help="Evaluate against a column of identities, which is not compared, or a file of pairs: left, right and, "
            "perhaps, same.",
        ),
    ] = None,
    explain: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="ID ID", help="Show why two records are linked or not, column by column."),
    ] = None,
) -> None:
    """Find the duplicates of a table, or link several tables: no labels, no service.

    Writes left, right, score (the chance of a match), decision and entity: a record's entity is called by the id of its
    first record.
    """
    from pairmark.models.core.progress import listening
    from pairmark.schemas import links as schemas
    from pairmark.service.links import outputs
    from pairmark.service.links.linking import is_file, link_files
    from pairmark.service.links.results import Stored, open_results

    learned = None if options.model is None else _load_learned(options.model)
    # A model's dates are written in the file's own way.
    types = {name: kind for name, kind in learned.columns.items() if kind != "date"} if learned else {}
    types |= column_types(column) or {}
    rules = dict(choice.rsplit(":", 1) for choice in keep or () if ":" in choice)
    if len(rules) < len(keep or ()) or not {*rules.values()} <= {*outputs.RULES}:
        raise typer.BadParameter(
            f"expected COLUMN:RULE, a rule being one of {', '.join(outputs.RULES)}", param_hint="--keep"
        )
    for option, is_given, needed, is_there in (
        ("--keep", keep, "--merged", merged is not None),
        ("--cells", cells, "--output", out is not None),
        ("--above", above is not None, "--output", out is not None),
        ("--recall", options.recall, "--judge", judge),
    ):
        if is_given and not is_there:
            raise typer.BadParameter(f"expected it with {needed}", param_hint=option)
    if strange := {*(unique or ())} - {*tables}:
        raise typer.BadParameter(f"{min(strange)} is none of the tables", param_hint="--unique")
    before = None if previous is None else _state_of(previous, "--previous")
    numbered = [str(at) for at in range(1, len(tables) + 1)]
    with ExitStack() as stack:
        stack.enter_context(_ending_when_told())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pairmark-links-")))
        (folder / "out").mkdir()
        targets = {"output": out, "entities": entities, "merged": merged}
        paths = {
            name: _path_of(target, name, folder / "out")
            for name, target in targets.items()
            if target is not None
        }
        files = [_file(table, folder) for table in tables]
        if truth is not None and is_file(truth):
            truth = str(_file(truth, folder, "--truth"))
        frequency_files = dict(_frequencies_of(frequency, folder) for frequency in frequencies or ())
        known = [Path(truth)] if truth is not None and is_file(truth) else []
        beside = {} if merged is None else {"merged": outputs.sources_path(paths["merged"])}
        taken = {file.resolve() for file in [*files, *frequency_files.values(), *known]}
        _check_written(taken, [*paths.items(), *beside.items()])
        request = schemas.LinksRequest(
            tables=numbered,
            unique=[numbered[tables.index(table)] for table in unique] if unique else None,
            previous=previous and previous.name[:32],
            rules=_columns_of(rule),
            must=_columns_of(same),
            **given_members(options),
            frequencies={name: path.name[:200] for name, path in frequency_files.items()} or None,
        )
        path = paths.get("output", folder / "links.csv")
        is_kept = out is not None and not out.startswith(outputs.ELSEWHERE)
        state = folder / "kept"
        state.mkdir()
        with output.progress_bar("linking") as progress, listening(progress):
            summary = link_files(
                files,
                folder,
                settings(),
                request,
                outputs=outputs.Outputs(
                    links=path,
                    cells=cells,
                    above=above,
                    entities=paths.get("entities"),
                    merged=paths.get("merged"),
                    keep=rules,
                ),
                folder=state,
                resolves=is_kept,
                asking=_answers if judge else None,
                say=output.say,
                truth=truth,
                id_column=id_column,
                columns=types,
                learned=learned,
                previous=before and Stored(before),
                frequencies=frequency_files,
                explain=explain or (),
            )
        facts: dict[str, Any] = {}
        with open_results(Stored(state)) as results:
            first = results.rows(
                'SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (SELECT "left", "right", score, decision, entity FROM links '
                "ORDER BY place LIMIT ?)",
                _SHOWN,
            )
            pair = results.explain(*results.texts_of(results.pair(*explain))) if explain else None
            if before is not None:
                changes = results.rows("SELECT change, count(*) FROM changes GROUP BY change ORDER BY 1")
                facts["changed"] = (
                    ", ".join(f"{n:,} entities {change}" for change, n in changes) or "no entity"
                )
        if is_kept:
            facts["state"] = f"{outputs.keep_state(state, path)}, for --previous {path}"
        written = [(target, paths[name]) for name, target in targets.items() if target is not None]
        if merged is not None:
            written.append((outputs.sources_of(merged), outputs.sources_path(paths["merged"])))
        outputs.deliver([file for file in written if file[0].startswith(outputs.ELSEWHERE)])
    output.show(
        summary.model_dump(mode="json") | ({} if pair is None else {"pair": pair}),
        *_link_parts(summary, first, out, facts),
        *_explanation_parts(pair or [], explain or ()),
    )


def _columns_of(option: list[str] | None) -> list[list[str]] | None:
    return [[name.strip() for name in each.split(",")] for each in option] if option else None


def resolve(
    records: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV or Parquet of new records.", exists=True, dir_okay=False),
    ],
    links: Annotated[Path, typer.Option(help="Links of an earlier run (its -o).")],
    add: Annotated[
        bool,
        typer.Option(
            "--add", help="Keep the records: in the entity that each is in, or alone, for --previous."
        ),
    ] = False,
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="With --add, the column of their ids. Default: they are made."),
    ] = None,
) -> None:
    """Say which entities new records belong to, of tables that were linked.

    Columns that were not linked play no part. With --add, a record whose id and cells are there is not put in again.
    """
    from pairmark.service.links import duck, outputs
    from pairmark.service.links.resolving import Resolver
    from pairmark.service.links.results import Stored, rewrite_results

    folder = _state_of(links, "--links")
    names, rows = duck.read_table(records)
    if id_column is not None and id_column not in names:
        raise typer.BadParameter(f"expected one of {', '.join(names)}", param_hint="--id")
    resolver = Resolver(folder)
    compared = [name for name in names if name in resolver.columns]
    if not compared:
        raise typer.BadParameter(
            f"no column was linked; expected some of {', '.join(resolver.columns)}", param_hint="FILE"
        )
    answers: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        cells = dict(zip(names, row, strict=True))
        record = {name: cells[name] for name in compared}
        try:
            if add:
                entities, name, new = resolver.put_in(record, cells.get(id_column or ""))
            else:
                entities, name, new = resolver.resolve(record), None, None
        except PairmarkError as error:
            raise type(error)(f"{records.name}, row {number}: {error.detail}", **error.facts) from error
        if new is not None:
            resolver.take(new)
        described = [entity.model_dump(mode="json") for entity in entities]
        answers.append({"row": number, "entities": described, **({"added": name} if add else {})})
    if resolver.added:
        with tempfile.TemporaryDirectory(prefix="pairmark-resolve-") as new_state:
            with rewrite_results(Stored(folder, resolver.added), Path(new_state)):
                # With what was added.
                pass
            outputs.keep_state(Path(new_state), links)
    columns = ("row", "entity", "score", "decision", "records")
    shown = [
        {**entity, "row": answer["row"], "records": ", ".join(entity["records"][:_SHOWN])}
        for answer in answers
        for entity in answer["entities"]
    ]
    output.show(answers, output.table(columns, shown, empty="no record is like one of the links"))


def _state_of(links: Path, argument: str) -> Path:
    """What the run left that wrote these links."""
    from pairmark.service.links import outputs

    folder = outputs.state_of(links)
    if folder is None:
        raise typer.BadParameter(
            f"there is no {links}.pairmark: only runs with -o {links} leave one", param_hint=argument
        )
    return folder


def _path_of(target: str, name: str, folder: Path) -> Path:
    """The file that is written for a target: itself, or one in a folder, which is brought there."""
    from pairmark.service.links import outputs
    from pairmark.service.links.linking import COLUMNS

    path = Path(target)
    if target.startswith("s3://"):
        path = folder / f"{name}{path.suffix}"
    elif target.startswith(outputs.ELSEWHERE):
        if not target.partition("#")[2]:
            raise typer.BadParameter(f"{target}: expected #table after it", param_hint=f"--{name}")
        outputs.check_table(target, COLUMNS if name == "output" else ["entity"])
        path = folder / f"{name}.parquet"
    if path.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(
            f"{path}: expected a name that ends in .csv or .parquet", param_hint=f"--{name}"
        )
    if path.is_dir() or not path.absolute().parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "there is no such folder"
        raise typer.BadParameter(f"{path}: {wrong}", param_hint=f"--{name}")
    return path


def _check_written(taken: set[Path], paths: Iterable[tuple[str, Path]]) -> None:
    """Refuse to write over what is read, and two outputs into one file."""
    for name, path in paths:
        if path.resolve() in taken:
            raise typer.BadParameter(
                f"{path}: this command reads or writes it already; expected a file of its own",
                param_hint=f"--{name}",
            )
        taken.add(path.resolve())


def _file(table: str, folder: Path, argument: str = "TABLE") -> Path:
    """A table that an argument names as a file of this machine."""
    path = folder / f"{len(list(folder.iterdir()))}-{Path(table).name}"
    if table.startswith("s3://"):
        from pairmark.service.blobs import download

        download(table, path)
        return path
    if table.startswith(("duckdb://", "postgresql://")):
        from pairmark.service.links.outputs import take_table

        return take_table(table, folder)
    if not Path(table).is_file():
        raise typer.BadParameter(f"there is no file {table!r}", param_hint=argument)
    return Path(table)


def _frequencies_of(option: str, folder: Path) -> tuple[str, Path]:
    """The column that ``[COLUMN:]FILE`` is for, and its file."""
    from pairmark.service.links.duck import read_table

    column, colon, file = option.partition(":")
    if not colon or Path(option).is_file() or file.startswith("//"):
        path = _file(option, folder, "--frequencies")
        return read_table(path)[0][0], path
    return column, _file(file, folder, "--frequencies")


def _load_learned(model: str) -> Learned:
    from pairmark.service.links.judging import Learned

    prepare_database(settings())
    with open_stores() as (config, database, blobs):
        return Learned.stored(database, blobs, config, model)


def _answers(pairs: Iterable[Pair]) -> Answers:
    """What a person says of pairs, until they stop."""
    for pair in pairs:
        key = ask_pair(pair.ids, pair.left, pair.right, "same (s), different (d), cannot tell (?), stop (q)")
        if key == "q":
            return
        yield pair, {"s": True, "d": False}.get(key)


def _link_parts(
    summary: LinkSummary, first: list[tuple[object, ...]], out: str | None, more: dict[str, Any]
) -> list[output.Part]:
    """What people read of links."""
    from pairmark.service.links.linking import COLUMNS

    left_out = "; ".join(" and ".join(rule) for rule in summary.blocking.left_out)
    ids = ", ".join("row numbers" if name is None else name for name in summary.ids)
    recall, n_more = summary.recall, summary.links - len(first)
    return [
        *(f"note: {note}" for note in summary.notes),
        output.facts(
            {
                "records": f"{summary.records:,} (named by {ids})",
                "candidates": f"{summary.candidates:,}, {summary.blocking.candidates_per_record:g} a record",
                "left out": f"rules of too many candidates: {left_out}" if left_out else None,
                "links": f"{summary.links:,}",
                "entities": f"{summary.entities:,} of two records or more",
                "false links": None if summary.false_links is None else _share_of(summary.false_links),
                "recall": f"at least {100 * recall.bound:.3g} %, {100 * recall.confidence:g} % confidence, by "
                f"{recall.judged:,} records"
                if recall is not None
                else None,
                "conflicts": f"{summary.conflicts:,} pairs: another is surer, or they would join records that "
                "contradict each other"
                if summary.conflicts
                else None,
                "empty": f"{summary.empty:,} records have no cell" if summary.empty else None,
                **more,
            }
        ),
        "",
        output.table(COLUMNS, first, empty="no links: no pair is likelier a match than not"),
        f"all {summary.links:,} links {f'in {out}' if out is not None else 'by -o links.csv'}"
        if n_more > 0
        else None,
        *([] if summary.evaluation is None else _evaluation_parts(summary.evaluation)),
    ]


def _share_of(share: FalseLinks) -> str:
    """How many links are false, in words."""
    if share.bound is not None:
        sure = f"{100 * share.confidence:g} % confidence, by {share.judged} judgements"
        return f"at most {100 * share.bound:.3g} %, {sure}"
    if share.estimate is None:
        return f"unknown: judge about {share.judge:,} links (--judge)"
    checked = "held-out columns agree" if share.check == "agrees" else "doubtful: columns do not confirm it"
    return f"{100 * share.estimate:.2g} % as the model has it: an estimate, no bound; {checked}"


def _evaluation_parts(evaluation: LinkEvaluation) -> list[output.Part]:
    """Precision, recall and F1 as decided, and at some cuts."""
    # Of cuts that read alike the lowest.
    cuts = [*{f"{point.cut:.6f}": point for point in reversed(evaluation.by_cut)}.values()][::-1]
    rows = [
        [
            "as decided" if point.cut is None else f"{point.cut:.6f}",
            *(
                "-" if value is None else f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
                for value, low, high in (point.precision, point.recall, point.f1)
            ),
        ]
        for point in (evaluation.decided, *cuts[:: 1 + len(cuts) // _SHOWN])
    ]
    sure = f"{100 * evaluation.confidence:g} % intervals by entity"
    return [
        f"\nagainst {evaluation.basis}, in percent ({sure}):",
        output.table(("cut", "precision", "recall", "F1"), rows),
    ]


def _explanation_parts(pair: list[dict[str, Any]], ids: Sequence[str]) -> list[output.Part]:
    """Column by column, what adds up to the log odds of a pair."""
    fields = sorted(pair, key=lambda field: -abs(field["weight"]))
    most = max([1.0, *(abs(field["weight"]) for field in fields)])
    rows = [
        [
            *(field[name] for name in ("field", "left", "right", "level")),
            f"{field['weight']:+.2f}",
            f"{total:+.2f}",
            "█" * round(_BAR * abs(field["weight"]) / most),
        ]
        for field, total in zip(fields, accumulate(field["weight"] for field in fields), strict=True)
    ]
    return [output.table(["column", *ids, "level", "weight", "sum", ""], rows)] if ids else []


@contextmanager
def _ending_when_told() -> Iterator[None]:
    """End as SIGTERM (143) and Ctrl-C ask, once folders are removed, wherever the program is.

    DuckDB gives up its query at a signal, and raises an error of its own in the place of what a handler raised.
    """
    endings: dict[int, BaseException] = {signal.SIGTERM: SystemExit(143), signal.SIGINT: KeyboardInterrupt()}
    raised: list[BaseException] = []

    def end(number: int, _: object) -> None:
        raised.append(endings[number])
        raise raised[0]

    before = {number: signal.signal(number, end) for number in endings}
    try:
        yield
    except Exception:
        if raised:
            raise raised[0] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
