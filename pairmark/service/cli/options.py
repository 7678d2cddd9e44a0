"""What commands take: options made of what `pairmark.wire` declares of requests, a client, and ``--json``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from pairmark.service.cli.connect import Connects, LazyClient, UrlOption, connected
from pairmark.service.cli.output import JsonOption
from pairmark.service.cli.rates import rate
from pairmark.wire.base import Limits, Parameters, Text


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

    The command gets an object with the options that were given; its other attributes are the request's defaults.
    """
    signature = inspect.signature(command, eval_str=True)
    connection: tuple[str, Connects] | None = None
    groups: dict[str, tuple[type[Parameters], list[str]]] = {}
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
            hints = get_type_hints(request, include_extras=True)
            arguments += [
                _option(request, name, hints[name], members.optional) for name in members.names.split()
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
            turned_off = {name: False for name in values_given if getattr(request, name, None) is True}
            values[argument] = request(**(values_given | turned_off))
        with ExitStack() as stack:
            if connection is not None:
                name, connects = connection
                service = connected(values.pop("url"), creates=connects.creates)
                values[name] = LazyClient(lambda: stack.enter_context(service))
            command(**values)

    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    run.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return run


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _argument(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _option(request: type[Parameters], name: str, hint: Any, is_optional: bool) -> inspect.Parameter:
    """The option of one member: its type, limits, text and default are the request's."""
    kind, *notes = _parts(hint)
    text = next(note for note in notes if isinstance(note, Text))
    limits = next((note for note in notes if isinstance(note, Limits)), Limits())
    flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
    default = getattr(request, name, None if is_optional else inspect.Parameter.empty)
    options: dict[str, Any] = {"help": text.help}
    if kind is bool:
        flag = flag.replace("--", "--no-") if default else flag
        return _argument(name, Annotated[bool, typer.Option(flag, **options)], False)
    if limits.above == 0 and (limits.below or 2) <= 1:
        options |= {"parser": rate, "metavar": "RATE"}
    elif limits.minimum is not None:
        options |= {"min": limits.minimum, "max": limits.maximum}
    optional = kind if default is inspect.Parameter.empty else kind | None
    default = None if isinstance(default, list) else default
    return _argument(name, Annotated[optional, typer.Option(flag, **options)], default)


def _parts(hint: Any) -> Iterator[Any]:
    """The type of an option's values, and all that is noted about it."""
    notes: list[Any] = []
    while get_origin(hint) in (Annotated, Union, UnionType):
        if get_origin(hint) is Annotated:
            hint, *more_notes = get_args(hint)
            notes += more_notes
        else:
            hint = next(part for part in get_args(hint) if part is not NoneType)
    yield str if get_origin(hint) is Literal else hint
    yield from notes
