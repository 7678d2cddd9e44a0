"""What commands take: options made of the members of `pairmark.schemas`, a client, and ``--json``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pairmark.service.cli.connect import Connects, LazyClient, UrlOption, connected
from pairmark.service.cli.output import JsonOption
from pairmark.service.cli.points import rate


@dataclass(frozen=True)
class Members:
    """Which members of a request a command takes as options, in the order of its help; ``optional``: those too that
    the request must have."""

    names: str
    optional: bool = False


class Commands(typer.Typer):
    """A group of commands, each `with_options`."""

    def command(self, *words: Any, **settings: Any) -> Callable[..., Any]:
        """As Typer's."""
        register = super().command(*words, **settings)
        return lambda command: register(with_options(command))


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Each argument ``Annotated[SomeParameters, Members("..")]`` of a command as one option for each member, a client
    (`Connection`) as ``--url``, and ``--json`` beside them.

    The command gets the request with the options that were given and its defaults; `given` tells them apart.
    """
    signature = inspect.signature(command, eval_str=True)
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
            values_given = {name: value for name, value in options.items() if _is_given(context, name)}
            # What holds by default has an option that turns it off.
            fields = request.model_fields
            turned_off = {name: False for name in values_given if fields[name].default is True}
            values[argument] = request.model_construct(**(values_given | turned_off))
        with ExitStack() as stack:
            if connection is not None:
                name, connects = connection
                service = connected(values.pop("url"), creates=connects.creates)
                values[name] = LazyClient(lambda: stack.enter_context(service))
            command(**values)

    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    run.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return run


def given(request: BaseModel) -> dict[str, Any]:
    """The options of a request that were given."""
    return {name: getattr(request, name) for name in request.model_fields_set}


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


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
    if limits.get("gt") == 0 and limits.get("lt", 2) <= 1:
        options |= {"parser": rate, "metavar": "RATE"}
    elif "ge" in limits:
        options |= {"min": limits["ge"], "max": limits.get("le")}
    is_required = field.is_required() and not is_optional
    default = inspect.Parameter.empty if is_required else field.get_default() or None
    return _argument(
        name, Annotated[kind if is_required else kind | None, typer.Option(flag, **options)], default
    )
