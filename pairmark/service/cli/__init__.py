"""The command line: ``pairmark``.

Exit codes: 0 well, 1 failed, 2 not understood, 3 trained what cannot answer the rate asked for. Each command imports
what it needs when it runs, so that ``pairmark --help`` answers at once.
"""

import getpass
import os
import re
import sys
from typing import Annotated

import typer

from pairmark.service.audit import Actor, acting_as
from pairmark.service.cli import linking, matching, models, operating, output, serving
from pairmark.service.cli.options import Commands

_POINT = re.compile(r"-\.?\d[^,\s]*,")
app = Commands(
    name="pairmark",
    help="Learn similarity from your own data, and decide 'same or different' at a false positive rate you choose.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models.datasets, name="datasets")
app.add_typer(models.models, name="models")
app.add_typer(operating.keys, name="keys")
app.add_typer(serving.database, name="db")
for command in (
    serving.serve,
    serving.worker,
    models.train,
    models.evaluate,
    matching.plan,
    matching.learning_curve,
    models.report,
    matching.similarity,
    matching.match,
    linking.link,
    linking.resolve,
    serving.warmup,
    serving.setup,
    operating.audit,
    operating.backup,
    operating.restore,
    operating.doctor,
    matching.review,
):
    app.command()(command)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"pairmark {version('pairmark')}")
        raise typer.Exit


@app.callback()
def root(
    json: output.JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn similarity from your own data, and decide 'same or different' at a false positive rate you choose."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 well, 1 failed, 2 not understood."""
    # What this process starts imports nothing from the current folder, whose files may have names of modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    output.reset()
    try:
        with acting_as(Actor(name=f"command line {_user()}")):
            app(_points_apart(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        output.complain("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (say, head) has seen enough.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        code = _exit_code_of(error)
        if code is None:
            raise
        sys.exit(code)


def _points_apart(words: list[str]) -> list[str]:
    """Points that begin with a minus, such as -0.1,0.7, with a blank before them: they are no options."""
    return [f" {word}" if _POINT.match(word) else word for word in words]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # Containers may run under a number that has no name.
        return str(os.getuid())


def _exit_code_of(error: Exception) -> int | None:
    """Tell an error that a person can act on; None when it is a bug, which deserves its traceback."""
    from pairmark.client import ClientError, Problem
    from pairmark.service.errors import PairmarkError

    if isinstance(error, Problem):
        output.complain(error.detail, problem=error.problem)
    elif isinstance(error, PairmarkError):
        output.complain(
            error.detail, problem={"type": f"/problems/{error.slug}", "detail": error.detail, **error.facts}
        )
    elif isinstance(error, ClientError):
        output.complain(str(error))
    elif isinstance(error, OSError) and error.filename:
        output.complain(f"{error.filename}: {error.strerror}")
    else:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            return None
        for entry in error.errors(include_input=False, include_url=False):
            place = ".".join(str(part) for part in entry["loc"])
            setting = f"PAIRMARK_{place.upper()}" if error.title == "Settings" else place
            output.complain(f"{setting}: {entry['msg']}")
        return 2
    return 1
