"""Checks the beginning of an upload, so that a wrong name or column is refused before the rest is sent."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from pairmark.service.datasets.columns import Columns
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.datasets.reader import format_of
from pairmark.service.datasets.schemas import DatasetRequest
from pairmark.service.datasets.tabular import check_width
from pairmark.service.datasets.text import first_record_of
from pairmark.service.errors import InvalidInput
from pairmark.service.names import checked_name
from pairmark.service.settings import Settings

MAX_HEAD = 1 << 20
"""Bytes that are looked at, fields and header line together; what begins longer is checked when it is whole."""
_MAX_FIELDS = 100


class Beginning:
    """Reads the fields of a multipart upload and its file's first line; other kinds of body are not looked at."""

    def __init__(self, content_type: bytes, settings: Settings) -> None:
        self._limits = FileLimits.of(settings, 0)
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        self._fields: dict[str, list[str]] = {}
        self._part: dict[bytes, bytes] = {}
        self._header, self._value, self._data = b"", b"", bytearray()
        self._filename: str | None = None
        self._size = 0
        self._parser: MultipartParser | None = None
        if kind == b"multipart/form-data" and boundary:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_part_data": self._on_data,
                    "on_part_end": self._end,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                },
            )

    def take(self, piece: bytes) -> None:
        """The next bytes of the body; `InvalidInput` as soon as it is known that the upload would be refused."""
        if self._parser is None:
            return
        self._size += len(piece)
        try:
            # Of a large piece the first part is enough: what matters comes before the rows.
            self._parser.write(piece[:MAX_HEAD])
        except FormParserError:
            self._parser = None
        if self._size > MAX_HEAD:
            self._parser = None

    def _begin(self) -> None:
        self._part, self._data = {}, bytearray()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._part[self._header.lower()] = self._value
        self._header, self._value = b"", b""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._parser is None:
            return
        self._data += data[start:end]
        _, options = parse_options_header(self._part.get(b"content-disposition", b""))
        if options.get(b"name") == b"file":
            self._filename = options.get(b"filename", b"").decode("utf-8", "replace")
            if b"\n" in data[start:end]:
                self._check(bytes(self._data))
                self._parser = None

    def _end(self) -> None:
        _, options = parse_options_header(self._part.get(b"content-disposition", b""))
        if b"filename" not in options and len(self._fields) < _MAX_FIELDS:
            name = options.get(b"name", b"").decode("utf-8", "replace")
            self._fields.setdefault(name, []).append(self._data.decode("utf-8", "replace"))

    def _check(self, head: bytes) -> None:
        """Name, format, and for plain CSV the columns; whatever is not known yet is left for later."""
        columns = check_beginning(
            {name: values[-1] for name, values in self._fields.items()}, self._filename, head
        )
        check_width(len(columns), self._limits)


def check_beginning(fields: Mapping[str, Any], filename: str | None, head: bytes) -> list[str]:
    """The columns of a plain CSV, once its name, format and roles are found possible; none where they are not known
    yet. Raises `InvalidInput` for what would be refused when the whole file is there.

    Parameters
    ----------
    fields : the upload's form. head : the file's first bytes, its first line among them.
    """
    form = {name: value for name, value in fields.items() if name in DatasetRequest.model_fields}
    if "name" in form:
        checked_name(form["name"], "name")
    try:
        request = DatasetRequest.model_validate({"name": "unnamed", **form})
    except ValidationError:
        return []
    kind = format_of(request.format, filename)
    if kind != "csv" or not request.header or head.startswith(b"\x1f\x8b"):
        return []
    try:
        _, columns = first_record_of(io.StringIO(head.decode("utf-8-sig"), newline=""))
    except (UnicodeDecodeError, InvalidInput):
        return []
    Columns(columns).roles(request)
    return columns
