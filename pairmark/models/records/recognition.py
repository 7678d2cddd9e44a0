"""Which kind of column cells are, by what the column is called and by the cells themselves, in any language."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pairmark.models.records.cells import AFTER, BEFORE, DECIMAL_COMMA
from pairmark.models.records.compare.normal import (
    TURN,
    fold_cell,
    iso_date,
    split_cell,
    spreadsheet_date,
    words_of,
)
from pairmark.models.records.compare.words import LEGAL_FORMS, NICKNAMES, STREET_ENDS, STREET_WORDS

_LOOKED_AT = 2_000
"""Distinct cells that say what a column holds."""
_MOSTLY, _OFTEN, _SOME = 0.8, 0.25, 0.1
_PLAIN = frozenset({"text", "category", "name", "given", "surname", "number", "city", "id"})
"""Kinds that a column may be taken for where its other table shows that it is of another."""
_HEADERS = {
    "email": "e ?mail(?: ?address| adresse| ?addr)?|mail|courriel|correo(?: electronico)?",
    "phone": "(?:.* )?(?:phone|telephone|tel|telefon|telefono|mobile|mobil|handy|fax|cell|rufnummer|telefonnummer)"
    "(?: ?(?:number|no|nr|num|nummer|[0-9]))?",
    "web": "(?:.* )?(?:web|website|url|homepage|domain|site|www|internet|webseite)",
    "postcode": "(?:.* )?(?:zip|zip ?code|post ?code|postal ?code|plz|postleitzahl|cp|cap|codigo postal|code postal|"
    "postnr|postnummer|kod pocztowy|pincode)",
    "street": "(?:.* )?(?:street|address|addr|addres|strasse|str|adresse|rue|calle|via|indirizzo|direccion|ulica|"
    "straat|adres|anschrift|street (?:no|num|number|nr)|house ?(?:no|num|number|nr)|hausnummer|hausnr)"
    "(?: ?[0-9]| line [0-9])?",
    "city": "(?:.* )?(?:city|town|suburb|ort|stadt|wohnort|ville|ciudad|citta|comune|locality|municipality|county|"
    "state|province|region|bundesland|canton|kanton|district|plaats|miasto|village)",
    "company": "(?:.* )?(?:company|firm|firma|organi[sz]ation|employer|business|vendor|supplier|manufacturer|"
    "societe|entreprise|empresa|azienda|bedrijf|unternehmen)(?: ?name)?",
    "given": "(?:.* )?(?:first|given|fore|vorname|prenom|nombre|nome|imie|voornaam|firstname|forename|givenname|fname)"
    "(?: ?names?)?|first|fname",
    "surname": "(?:.* )?(?:last|sur|family|nachname|familienname|apellidos?|cognome|nom|nom de famille|nazwisko|"
    "achternaam|lastname|surname|lname|maiden)(?: ?names?)?",
    "text": "(?:.* )?(?:track|song|film|movie|album|book|product|produkt|produit)(?: ?(?:name|title|titel|titre))?",
    "name": "(?:.* )?(?:name|full ?name|person|customer|kunde|client|contact|author|nom complet)",
    "date": "(?:.* )?(?:dob|date|birth|birthday|born|geboren|geburtsdatum|datum|fecha|data|naissance)(?: .*)?",
    "degrees": "(?:.* )?(?:lat|lon|lng|long|latitude?|longitude?|latitud|longitud|breitengrad|langengrad|breite|lange)",
    "id": "(?:.* )?(?:ssn|soc sec id|social security.*|tax.*|vat.*|ust.*|steuer.*|passport.*|licen[sc]e.*|npi|iban|ean|"
    "isbn|gtin|upc|sku|id|nif|dni|nino|cpf|cnpj|siret|siren|pesel|mrn|vin|fin|imei|doi|orcid|insurance number|"
    "versicherungsnummer|account(?! (?:holder|name|owner)).*|"
    "konto(?!inhaber).*|kennzeichen|.*plate|registration(?: ?(?:no|number))?|matricula|"
    "immatriculation|serial.*|seriennummer)",
}  # fmt: skip
_HEADER = {kind: re.compile(pattern) for kind, pattern in _HEADERS.items()}
_YEAR = re.compile("(?:18|19|20)[0-9]{2}")
_EMAIL = re.compile(r"(?:mailto:)?<?[^@\s,;]+@[^@\s,;]+\.[A-Za-z]{2,}>?")
_WEB = re.compile(r"(?:https?://)?(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?(?:[/?#]\S*)?")
_PHONE = re.compile(
    r"[+(]?[\d\s()./\-\u2010-\u2013+]{6,24}\d(?:\.0)?(?:\s*(?:ext\.?|x)\s*\d{1,5})?", re.IGNORECASE
)
_PHONE_WRITING = re.compile(
    r"\+\d|\(\d{2,5}\)|0\d{8,13}$|0\d{1,4}[ /-]\d{3}|\d{3}[-. ]\d{3}[-. ]\d{4}|00\d{8}"
)
_STREET = re.compile(r"\d+\s?[a-z]?(?:[-/]\d+)?[\s,]+[^\W\d].*|[^\W\d][^@]*\s\d+\s?[a-z]?(?:[-/]\d+)?")
_LETTERED_POSTCODE = re.compile(
    r"[a-z]{1,2}\d[a-z\d]? ?\d[a-z]{2}|[a-z]\d[a-z] ?\d[a-z]\d|\d{4} ?[a-z]{2}|[a-z]{1,2}-\d{4,5}"
)
_FIRM = re.compile(rf"[^\W\d]{{2,}}\b.*\W(?:{'|'.join(sorted(LEGAL_FORMS))})\b.{{0,12}}")
_AMOUNT = re.compile(
    rf"(?:(?:{BEFORE}) ?)?(?:{DECIMAL_COMMA.pattern}|[1-9]\d{{0,2}}(?: \d{{3}})+|\d+(?:\.\d+)?)(?: ?(?:{AFTER}))?"
)
_DEGREES = re.compile(r"[-+]?\d{1,3}[.,]\d{3,}")
"""Of a place; a breadth or a length in other units is hardly so exact."""
_LETTERS = re.compile(r"[^\W\d_]+")
_SIZE_WORD = re.compile(f"x|{AFTER}")
_LETTERED = re.compile(r".*[^\W\d_]{2}.*")
_DAY_MONTH = re.compile(r"\D{0,3}(\d{1,2})\D{1,3}(\d{1,2})\D{1,3}\d{2}")
_TITLE_WORDS = frozenset(("the", "of", "with", "for", "from", "your", "fur", "mit", "pour", "avec", "dans"))
"""Words that titles of songs and books have, and names of people hardly."""
_GIVEN_NAMES = frozenset(NICKNAMES) | frozenset(NICKNAMES.values())


def header_kind(name: str) -> str | None:
    """What a column's name says that it holds; None where it says nothing."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    plain = unicodedata.normalize("NFKD", spaced).casefold()
    words = " ".join(re.findall(r"[a-z]+|\d+", "".join(c for c in plain if not unicodedata.combining(c))))
    return next((kind for kind, pattern in _HEADER.items() if pattern.fullmatch(words)), None)


class _Cells:
    """Distinct cells of a column, and which share of them passes a test."""

    def __init__(self, cells: Iterable[str], n: int) -> None:
        self.texts = [text for cell in islice(cells, _LOOKED_AT) if (text := fold_cell(cell)) is not None]
        self.n = n

    def share(self, pattern: re.Pattern[str]) -> float:
        return sum(pattern.fullmatch(text) is not None for text in self.texts) / max(len(self.texts), 1)

    def share_with(self, words: frozenset[str] | Mapping[str, str]) -> float:
        found = sum(any(word in words for word in words_of(text)) for text in self.texts)
        return found / max(len(self.texts), 1)


def recognize_kind(name: str, cells: Iterable[str], n: int) -> tuple[str, str] | None:
    """The kind of a column of special writing and what speaks for it; None of any other.

    Parameters
    ----------
    cells : distinct ones. n : how many cells there are, with those that repeat.
    """
    column, named = _Cells(cells, n), header_kind(name)
    if not column.texts:
        return None
    several = [split_cell(text) for text in column.texts]
    parts = [part for values in several if len(values) > 1 for part in values]
    if len(parts) >= 2 * _SOME * len(column.texts):
        contacts = _Cells(parts, n)
        if max(contacts.share(_EMAIL), contacts.share(_PHONE)) >= _MOSTLY:
            return "list", "several e-mail addresses or phone numbers in a cell"
    if column.share(_EMAIL) >= _MOSTLY:
        return "email", "e-mail addresses"
    if column.share(_WEB) >= _MOSTLY and (
        named == "web" or sum("www." in t or "://" in t for t in column.texts) >= _SOME * len(column.texts)
    ):
        return "web", "addresses of web sites"
    written = sum(_PHONE_WRITING.search(text) is not None for text in column.texts) / len(column.texts)
    if column.share(_PHONE) >= _MOSTLY and (
        named == "phone" or (named is None and written >= 0.6 and not are_dates(column.texts))
    ):
        return "phone", "phone numbers"
    if named == "postcode" and column.share(re.compile("[a-z0-9][a-z0-9 .-]{1,11}")) >= _MOSTLY:
        return "postcode", "its name, and short codes"
    if named is None and column.share(_LETTERED_POSTCODE) >= _MOSTLY:
        return "postcode", "codes as of post offices"
    if (named == "company" and column.share(_LETTERED) >= _MOSTLY) or (
        named in (None, "name") and column.share(_FIRM) >= _OFTEN
    ):
        return "company", "its name" if named == "company" else "legal forms of companies"
    with_number = column.share(_STREET)
    if (named == "street" and (with_number >= _SOME or column.share_with(STREET_WORDS) >= _SOME)) or (
        named is None and with_number >= _MOSTLY and _streets(column.texts) >= _SOME
    ):
        return "street", "numbers and names of streets"
    return None


def are_dates(cells: Iterable[str]) -> bool:
    """Whether nearly all distinct cells are dates, in any usual writing, and not numbers."""
    texts = [text for cell in islice(cells, _LOOKED_AT) if (text := fold_cell(cell)) is not None]
    return bool(texts) and sum(map(_is_date, texts)) >= _MOSTLY * len(texts)


def _is_date(text: str) -> bool:
    day = iso_date(text)
    # Eight digits are a date only if they are one of these centuries.
    return day is not None and (not text.isdigit() or "1750" < day < "2107")


def month_first(cells: Iterable[str | None]) -> bool:
    """Whether dates are written with the month before the day."""
    found = [match for cell in islice(cells, _LOOKED_AT) if cell and (match := _DAY_MONTH.match(cell))]
    return sum(int(match[2]) > 12 for match in found) > sum(int(match[1]) > 12 for match in found)


def century_turn(cells: Iterable[str | None]) -> int:
    """From which year on two digits are of the 1900s: none is later than the latest that is written in full."""
    latest = max((int(found[0]) for cell in cells if cell and (found := _YEAR.search(cell))), default=0)
    return latest % 100 + 1 if latest >= 2000 else TURN


def _are_postcodes(column: _Cells) -> bool:
    """Whether all are numbers of four or five digits, of one length and of which several rows have the same."""
    digits = [text for text in column.texts if text.isdigit()]
    if (
        len(digits) < _MOSTLY * len(column.texts)
        or 1.2 * len(column.texts) > column.n
        or len(column.texts) < 20
    ):
        return False
    lengths = [len(text) for text in digits]
    years = sum(1850 <= int(text) <= 2100 for text in digits) > 0.5 * len(digits)
    return max(lengths.count(4), lengths.count(5)) >= 0.95 * len(digits) and not years


def _streets(texts: Sequence[str]) -> float:
    """The share of cells with a word of streets: ``Main Street``, ``Hauptstrasse``."""
    known = frozenset(STREET_WORDS) | frozenset(STREET_WORDS.values())
    found = sum(
        any(word in known or word.endswith(STREET_ENDS) for word in words_of(text) if len(word) > 1)
        for text in texts
    )
    return found / max(len(texts), 1)


def link_kind(name: str, type: str, cells: Sequence[str], n: int) -> str:
    """The kind by which links compare a column of a type: of names which ones, of texts whether they are codes.

    Parameters
    ----------
    cells : distinct ones. n : how many cells there are, with those that repeat.
    """
    if type not in ("name", "category", "text", "number"):
        return type
    named, column = header_kind(name), _Cells(cells, n)
    if named == "degrees":
        if type != "name" and column.share(_DEGREES) >= _MOSTLY:
            return named
        named = None
    if type != "name" and named is None and _are_postcodes(column):
        return "postcode"
    if type == "number":
        return named if named in ("street", "postcode", "id") else "number"
    several = sum(len(words_of(text)) > 1 for text in column.texts) / max(len(column.texts), 1)
    if named in ("given", "surname", "city", "id", "street", "postcode", "company", "phone"):
        return named
    if type == "text":
        n_digits = {sum(map(str.isdigit, text)) for text in column.texts}
        if column.share(_AMOUNT) >= _MOSTLY and (
            len(n_digits) > 2 or any("," in text for text in column.texts)
        ):
            return "number"
        short = sum(map(_is_code, column.texts))
        return (
            "id"
            if short >= _MOSTLY * max(len(column.texts), 1)
            else "name"
            if named == "name" and several >= 0.5 and _words(column) <= 3
            else "text"
        )
    is_given = sum(text in _GIVEN_NAMES for text in column.texts) >= 0.2 * max(len(column.texts), 1)
    if type == "category":
        return "name" if named == "name" else "given" if is_given and len(column.texts) > 10 else "category"
    if named == "text" or column.share_with(_TITLE_WORDS) >= _SOME:
        return "text"
    if several >= 0.5:
        return "name"
    return "given" if is_given else "name" if named == "name" else "surname"


def common_kind(kinds: Sequence[str], cells: Sequence[Sequence[str | None]]) -> str | None:
    """The kind of a column of several tables, by those that each of them has; None where they do not agree."""
    if len(set(kinds)) == 1:
        return kinds[0]
    if "date" in kinds:
        others = [
            cell
            for kind, column in zip(kinds, cells, strict=True)
            if kind != "date"
            for cell in column
            if cell
        ]
        days = sum(spreadsheet_date(cell) is not None for cell in others)
        return "date" if days > _MOSTLY * len(others) else None
    if {*kinds} == {"id", "number"}:
        return "id"
    if {"list"} < set(kinds):
        return "list"
    special = [kind for kind in kinds if kind not in _PLAIN]
    if len(special) == 1 and special[0] not in ("boolean", "place"):
        return special[0]
    names = [kind for kind in kinds if kind in ("name", "given", "surname")]
    if names and not any(
        kind == "text" and _are_numbered(column) for kind, column in zip(kinds, cells, strict=True)
    ):
        return names[0]
    return "text" if "number" not in kinds and not special else None


def _are_numbered(cells: Sequence[str | None]) -> bool:
    """Whether texts have digits too often to be names of people: ``Main Above (Remastered 2011)``."""
    filled = list(filter(None, cells))
    return sum(any(map(str.isdigit, cell)) for cell in filled) > _SOME * len(filled)


def _is_code(text: str) -> bool:
    """Whether a text is such as ``x100b`` or ``M-BZ 5783``: short, with a digit, and of several words as many digits
    as letters, which are in short runs. ``80 x 40 cm`` is none."""
    n_digits, letters = sum(map(str.isdigit, text)), _LETTERS.findall(text)
    if " " not in text:
        return n_digits > 0 and len(text) <= 24
    if letters and all(map(_SIZE_WORD.fullmatch, letters)):
        return False
    lengths = [*map(len, letters)]
    return n_digits >= max(sum(lengths), 2) and max(lengths, default=0) <= 4 and len(text) <= 42


def _words(column: _Cells) -> float:
    return sum(len(text.split()) for text in column.texts) / max(len(column.texts), 1)
