"""What commands take: options made of the members of `pairmark.schemas`, a client, points, and ``--json``."""

from __future__ import annotations

import builtins
import csv
import functools
import inspect
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info
from typer.models import CommandInfo

from pairmark.service.cli import output
from pairmark.service.cli.output import JsonOption

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from pairmark.client import Client
    from pairmark.service.db import Database
    from pairmark.service.settings import Settings

RequiredModel = Annotated[str, typer.Option(help="NAME, NAME@ALIAS or NAME:VERSION.")]


def read_records(argument: str) -> list[dict[str, Any]]:
    """Records of a JSON file, or of JSON itself: an object, or a list of objects; else `typer.BadParameter`."""
    try:
        text = (
            argument if argument.lstrip().startswith("{") else Path(argument).read_text(encoding="utf-8-sig")
        )
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{argument[:100]}: {error}") from error
    records = value if isinstance(value, list) else [value]
    if not records or not all(isinstance(record, dict) for record in records):
        raise typer.BadParameter(
            f'{argument[:100]}: expected a record {{"column": value, ..}} or a list of records'
        )
    return records


def read_table(argument: str) -> tuple[list[str], dict[int, list[str]]]:
    """The names in the first line of a CSV file or (``-``) of standard input, all different, and the fields of the
    other lines, as many, by the number of the line, from 1; else `typer.BadParameter`."""
    try:
        text = sys.stdin.read() if argument == "-" else Path(argument).read_text(encoding="utf-8-sig")
    except OSError as error:
        excerpt = argument if len(argument) <= 60 else f"{argument[:60]}..."
        raise typer.BadParameter(f"{excerpt!r} is neither a file nor a point such as 5.1,3.5,1.4") from error
    reader = csv.reader(text.splitlines())
    first, *lines = [(reader.line_num, line) for line in reader if line] or [(0, [])]
    if not lines:
        raise typer.BadParameter(f"{argument}: expected a line of names and a line for each point")
    names = first[1]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise typer.BadParameter(
            f"{argument}: the first line has {', '.join(map(repr, twice[:5]))} more than once"
        )
    for number, line in lines:
        if len(line) != len(names):
            raise typer.BadParameter(
                f"{argument}: line {number} has {len(line)} fields; expected {len(names)}, as in the first line"
            )
    return names, dict(lines)


def point_of(names: list[str], line: list[str], where: str) -> list[float]:
    """The numbers of a line; `typer.BadParameter` names the column of what is none."""
    numbers = []
    for name, cell in zip(names, line, strict=True):
        try:
            numbers.append(float(cell))
        except ValueError:
            raise typer.BadParameter(
                f"{where}, column {name!r}: {cell!r} is not a number; leave out columns that are no features of the "
                "model"
            ) from None
    return numbers


def read_spec(path: Path) -> dict[str, Any]:
    """A job of a .json or .toml file."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        job = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    if not isinstance(job, dict):
        raise typer.BadParameter(f"{path}: expected an object with learner, dataset and model")
    return job


def param_of(entry: str) -> tuple[str, Any]:
    """Name and value of a learner's parameter."""
    name, equals, text = entry.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--param {entry!r}: expected NAME=VALUE")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, {"True": True, "False": False, "None": None}.get(text, text)


TableFile = Annotated[
    Path, typer.Argument(help="CSV, Parquet, npz or svmlight file.", exists=True, dir_okay=False)
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Type of a table's column, NAME:TYPE, such as street:text or born:date (repeatable); dates take a format.",
    ),
]
PairsFile = Annotated[
    Path | None,
    typer.Option(
        help="File of explicit pairs: columns left, right, same and optionally weight, left_unit, right_unit, "
        "drawn_from.",
        exists=True,
    ),
]
RightFile = Annotated[
    Path | None,
    typer.Option(help="A second table of records: the pairs' right side names its ids.", exists=True),
]


_COLUMN_TYPE = re.compile(r"(.+?):(date:[^:]*|[^:]+)")
"""A name may hold colons; a date's format holds none."""


def column_types(columns: list[str] | None) -> dict[str, str] | None:
    """Types by column; None where none is named."""
    types = {option: _COLUMN_TYPE.fullmatch(option) for option in columns or ()}
    wrong = [option for option, match in types.items() if match is None]
    if wrong:
        raise typer.BadParameter(f"--column {wrong[0]!r}: expected NAME:TYPE, such as street:text")
    return {match[1]: match[2] for match in types.values() if match} or None


def rate(text: str) -> float:
    """A number between 0 and 1, also in percent; `typer.BadParameter` for anything else."""
    digits = str(text).strip()
    number, divisor = (digits[:-1], 100) if digits.endswith("%") else (digits, 1)
    try:
        value = round(float(number) / divisor, 15)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise typer.BadParameter(
            f"{digits!r} is no rate; expected a number between 0 and 1, such as 0.01 or 1%"
        )
    return value


Confidence = Annotated[float, typer.Option(parser=rate, metavar="RATE", help="Confidence of the guarantee.")]


@contextmanager
def thread_beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Work in a thread that is told to stop when the block ends, and waited for."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


A_DAY_S = 86_400.0
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="PAIRMARK_URL",
        help="A running service (its key in PAIRMARK_API_KEY). Without it, the database of the settings is used.",
    ),
]


def settings() -> Settings:
    """The settings of this process."""
    from pairmark.service.settings import Settings

    return Settings()


@dataclass(frozen=True)
class Connects:
    """Of a command's argument: a client of the service at ``--url``, or else of one inside this process, on a database
    that is there or that the command ``creates``."""

    creates: bool = False


Connection = Annotated["Client", Connects()]
NewConnection = Annotated["Client", Connects(creates=True)]


@contextmanager
def client_for(url: str | None, *, creates: bool = False) -> Iterator[Client]:
    """See `Connects`."""
    from pairmark.client import Client

    if url:
        try:
            client = Client(url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error
        with client:
            yield client
        return
    config = settings()
    if not creates:
        require_database(config)
    from pairmark.service.app import create_app, embedded_transport

    prepare_database(config)
    with (
        embedded_transport(create_app(config, warm=False)) as transport,
        Client("http://pairmark.embedded", api_key="", timeout=A_DAY_S, transport=transport) as client,
    ):
        yield client


def require_database(config: Settings) -> None:
    """Say how to get a database where there is none, and exit."""
    if not config.database_url and not (config.home / "pairmark.db").exists():
        output.complain(
            f"there is no service to ask and no database in {config.home}/: start one with `pairmark serve`, then "
            "`export PAIRMARK_URL=http://127.0.0.1:8000`, or name one with --url"
        )
        raise typer.Exit(1)


def prepare_database(config: Settings, wait: float = 0.0) -> None:
    """Migrate the embedded database; a PostgreSQL one is only checked, since others may be using it.

    An embedded database that is older is copied first, and both are said on stderr.

    Parameters
    ----------
    wait : seconds to wait for PostgreSQL to answer and to have its tables.

    Raises
    ------
    SchemaMismatch
        When PostgreSQL's tables are older or missing, or the database is newer than this version.
    """
    from pairmark.service.db import open_database

    with open_database(config) as database:
        if database.is_sqlite:
            migrate_embedded(database)
        else:
            database.wait(wait, for_tables=True)


def migrate_embedded(database: Database) -> None:
    """Bring an embedded database to the newest revision, after copying one that holds data."""
    from pairmark import migrations

    before = database.revision()
    if before in (None, migrations.HEAD):
        database.upgrade()
        return
    if before not in migrations.revisions():
        database.check_schema()
    file = Path(database.url.database or "")
    copy = file.with_name(f"{file.name}.revision-{before}")
    if not copy.exists():
        database.copy_to(copy)
    database.upgrade()
    typer.echo(
        f"the database was migrated from revision {before} to {migrations.HEAD}; a copy from before is in {copy}",
        err=True,
    )


@dataclass(frozen=True)
class Members:
    """Which members of a request a command takes as options, in the order of its help; ``optional``: those too that
    the request must have."""

    names: str
    optional: bool = False


class LateCommand(TyperCommand):
    """A command that makes its options when they are asked for: their requests take longer to import than a list of
    commands to print."""

    @functools.cached_property
    def _made(self) -> Any:
        # Typer found no options of what was registered, which only names the function.
        info = CommandInfo(callback=with_options(vars(self)["callback"].function))
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")

    def __getattribute__(self, name: str) -> Any:
        late = name in ("params", "callback")
        return getattr(self._made, name) if late else super().__getattribute__(name)


class Commands(typer.Typer):
    """A group of commands, each `with_options`."""

    def command(self, *words: Any, **settings: Any) -> Callable[..., Any]:
        """As Typer's."""
        register = super().command(*words, cls=LateCommand, **settings)

        def add(function: Callable[..., None]) -> Callable[..., None]:
            def named() -> None: ...

            named.__name__, named.__doc__ = function.__name__, function.__doc__
            vars(named)["function"] = function
            register(named)
            return function

        return add


class _Names(dict[str, Any]):
    """The names of a command's module, and of requests, which modules import for type checkers only."""

    def __missing__(self, name: str) -> Any:
        for module in () if hasattr(builtins, name) else _REQUESTS:
            requests = import_module(f"pairmark.schemas.{module}")
            if hasattr(requests, name):
                return getattr(requests, name)
        raise KeyError(name)


_REQUESTS = ("scoring", "datasets", "jobs", "models", "links")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Each argument ``Annotated[SomeParameters, Members("..")]`` of a command as one option for each member, a client
    (`Connection`) as ``--url``, and ``--json`` beside them.

    The command gets the request with the options that were given and its defaults; `given_members` tells them apart.
    """
    signature = inspect.signature(command, eval_str=True, locals=_Names(command.__globals__))
    connection: tuple[str, Connects] | None = None
    groups: dict[str, tuple[type[BaseModel], list[str]]] = {}
    arguments = [_argument("context", typer.Context)]
    for argument in signature.parameters.values():
        request, *notes = get_args(argument.annotation) or (argument.annotation,)
        members = next((note for note in notes if isinstance(note, Members)), None)
        connects = next((note for note in notes if isinstance(note, Connects)), None)
        if connects is not None:
            connection = argument.name, connects
        elif members is None:
            arguments.append(argument.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            groups[argument.name] = request, members.names.split()
            arguments += [
                _option(name, request.model_fields[name], members.optional) for name in members.names.split()
            ]
    if connection is not None:
        arguments.append(_argument("url", UrlOption, None))
    arguments.append(_argument("json", JsonOption, False))

    @functools.wraps(command)
    def run(context: typer.Context, json: bool, **values: Any) -> None:
        for argument, (request, names) in groups.items():
            options = {name: values.pop(name) for name in names}
            chosen: dict[str, Any] = {
                # What holds by default has an option that turns it off.
                name: False if request.model_fields[name].default is True else value
                for name, value in options.items()
                if getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"
            }
            values[argument] = request.model_construct(**chosen)
        if connection is None:
            command(**values)
            return
        name, connects = connection
        with client_for(values.pop("url"), creates=connects.creates) as client:
            command(**values, **{name: client})

    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    run.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return run


def given_members(request: BaseModel) -> dict[str, Any]:
    """The options of a request that were given."""
    return {name: getattr(request, name) for name in request.model_fields_set}


def _argument(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _option(name: str, field: FieldInfo, is_optional: bool) -> inspect.Parameter:
    """The option of one member: its type, limits, text and default are the request's."""
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType]
    kind, *notes = get_args(kinds[0]) if get_origin(kinds[0]) is Annotated else kinds[:1]
    if get_origin(field.annotation) is list:
        kind = field.annotation
    elif get_origin(field.annotation) is Literal or get_origin(kind) is Literal:
        kind = str
    flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
    options: dict[str, Any] = {"help": field.description}
    if kind is bool:
        flag = flag.replace("--", "--no-") if field.default else flag
        return _argument(name, Annotated[bool, typer.Option(flag, **options)], False)
    limits = {
        limit: value
        for note in (*field.metadata, *(part for note in notes for part in getattr(note, "metadata", ())))
        for limit in ("ge", "gt", "le", "lt")
        if (value := getattr(note, limit, None)) is not None
    }
    is_above_0 = limits.get("gt") == 0 or limits.get("ge", 0) > 0
    if is_above_0 and limits.get("lt", limits.get("le", 2)) <= 1:
        options |= {"parser": rate, "metavar": "RATE"}
    elif "ge" in limits:
        options |= {"min": limits["ge"], "max": limits.get("le")}
    is_required = field.is_required() and not is_optional
    otherwise = None if field.is_required() else field.get_default() or None
    default = inspect.Parameter.empty if is_required else otherwise
    return _argument(
        name, Annotated[kind if is_required else kind | None, typer.Option(flag, **options)], default
    )
