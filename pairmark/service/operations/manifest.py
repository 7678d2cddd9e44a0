"""The manifest of a backup: what the file holds, checked before anything of it is used."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from pairmark import migrations
from pairmark.service.errors import InvalidInput

MANIFEST = "pairmark-backup.json"
SIGNATURE = "pairmark-backup.sig"
FORMAT = "pairmark-backup"
FORMAT_VERSION = 1
_PROBE = re.compile(r"[^:@/\s]{1,200}:[0-9]{1,9}")


def _inside(path: str) -> str:
    parts = path.split("/")
    if "\0" in path or "\\" in path or {"", ".", ".."} & {*parts} or PurePosixPath(path).is_absolute():
        raise ValueError("expected a path inside its folder")
    return path


def _probe_name(ref: str) -> str:
    if _PROBE.fullmatch(ref) is None:
        raise ValueError("expected MODEL:VERSION")
    return ref


InsidePath = Annotated[str, AfterValidator(_inside)]


class DumpedTable(BaseModel):
    """A table's rows in the backup."""

    rows: int = Field(ge=0)
    columns: list[str]
    sha256: str


class ScoreProbe(BaseModel):
    """What a version answered for fixed points: the hash of the answer's bytes, and its first number."""

    sha256: str
    first: float


class BackupManifest(BaseModel):
    """What a backup holds. Blobs are named by their hash, and list the files of each."""

    format: str
    format_version: int = Field(ge=1)
    code_version: str
    revision: str
    made_at: float = Field(allow_inf_nan=False)
    database: str
    tables: dict[InsidePath, DumpedTable]
    sequences: dict[str, Annotated[int, Field(ge=0, lt=2**62)]]
    blobs: dict[InsidePath, list[InsidePath]]
    probes: dict[Annotated[str, AfterValidator(_probe_name)], ScoreProbe]
    damaged: dict[str, str]


def parsed_manifest(body: bytes, source: str) -> BackupManifest:
    """The manifest of the backup ``source``, or `InvalidInput` with the first member that is wrong."""
    try:
        manifest = BackupManifest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInput(
            f"{source} is not a whole backup: its {MANIFEST} is damaged: {_first(error)}"
        ) from error
    if manifest.format != FORMAT:
        raise InvalidInput(
            f"{source} is not a backup: its {MANIFEST} is of format {manifest.format[:40]!r}, expected {FORMAT!r}"
        )
    if manifest.format_version > FORMAT_VERSION or manifest.revision not in migrations.revisions():
        raise InvalidInput(
            f"{source} was written by Pairmark {manifest.code_version[:40]}, which is newer than this one: restore "
            "it with that version"
        )
    return manifest


def _first(error: ValidationError) -> str:
    entry = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part)[:60] for part in entry["loc"])
    return f"{place or 'the file'}: {entry['msg']}"
