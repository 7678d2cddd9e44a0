"""Which kind of column cells are, by what the column is called and by the cells themselves, in any language."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from pairmark.models.records.compare.normal import (
    LEGAL_FORMS,
    NICKNAMES,
    STREET_ENDS,
    STREET_WORDS,
    fold_cell,
    iso_date,
    split_cell,
    spreadsheet_date,
    words_of,
)
from pairmark.models.records.schema import AFTER, BEFORE, DECIMAL_COMMA, TURN

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
_WEB_WRITING = re.compile(r"www\.|://")
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
_SHORT_CODE = re.compile("[a-z0-9][a-z0-9 .-]{1,11}")
_SIZE_WORD = re.compile(f"x|{AFTER}")
_LETTERED = re.compile(r".*[^\W\d_]{2}.*")
_DAY_MONTH = re.compile(r"\D{0,3}(\d{1,2})\D{1,3}(\d{1,2})\D{1,3}\d{2}")
_TITLE_WORDS = frozenset(("the", "of", "with", "for", "from", "your", "fur", "mit", "pour", "avec", "dans"))
"""Words that titles of songs and books have, and names of people hardly."""
_GIVEN_NAMES = frozenset(NICKNAMES) | frozenset(NICKNAMES.values())
_OF_STREETS = frozenset(STREET_WORDS) | frozenset(STREET_WORDS.values())


def header_kind(name: str) -> str | None:
    """What a column's name says that it holds; None where it says nothing."""
    plain = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).casefold()
    words = " ".join(re.findall(r"[a-z]+|\d+", "".join(c for c in plain if not unicodedata.combining(c))))
    return next((kind for kind, pattern in _HEADER.items() if pattern.fullmatch(words)), None)


def _texts_of(cells: Iterable[str]) -> list[str]:
    """What some distinct cells say."""
    return [text for cell in islice(cells, _LOOKED_AT) if (text := fold_cell(cell)) is not None]


def _share(texts: Sequence[str], test: Callable[[str], Any]) -> float:
    """Which share of some texts passes a test."""
    return sum(map(bool, map(test, texts))) / max(len(texts), 1)


def recognize_kind(name: str, cells: Iterable[str], n: int) -> tuple[str, str] | None:
    """The kind of a column of special writing and what speaks for it; None of any other.

    Parameters
    ----------
    cells : distinct ones. n : how many cells there are, with those that repeat.
    """
    texts, named = _texts_of(cells), header_kind(name)
    if not texts:
        return None
    parts = [part for values in map(split_cell, texts) if len(values) > 1 for part in values]
    contacts = _texts_of(parts if len(parts) >= 2 * _SOME * len(texts) else ())
    with_number = _share(texts, _STREET.fullmatch)
    rules = (
        ("list", "several e-mail addresses or phone numbers in a cell",
         max(_share(contacts, _EMAIL.fullmatch), _share(contacts, _PHONE.fullmatch)) >= _MOSTLY),
        ("email", "e-mail addresses", _share(texts, _EMAIL.fullmatch) >= _MOSTLY),
        ("web", "addresses of web sites", _share(texts, _WEB.fullmatch) >= _MOSTLY
         and (named == "web" or _share(texts, _WEB_WRITING.search) >= _SOME)),
        ("phone", "phone numbers", named in (None, "phone") and _share(texts, _PHONE.fullmatch) >= _MOSTLY
         and (named or (_share(texts, _PHONE_WRITING.search) >= 0.6 and not are_dates(texts)))),
        ("postcode", "its name, and short codes",
         named == "postcode" and _share(texts, _SHORT_CODE.fullmatch) >= _MOSTLY),
        ("postcode", "codes as of post offices",
         named is None and _share(texts, _LETTERED_POSTCODE.fullmatch) >= _MOSTLY),
        ("company", "its name", named == "company" and _share(texts, _LETTERED.fullmatch) >= _MOSTLY),
        ("company", "legal forms of companies",
         named in (None, "name") and _share(texts, _FIRM.fullmatch) >= _OFTEN),
        ("street", "numbers and names of streets",
         named == "street" and max(with_number, _share(texts, _has_abbreviation)) >= _SOME),
        ("street", "numbers and names of streets",
         named is None and with_number >= _MOSTLY and _share(texts, _is_street) >= _SOME),
    )  # fmt: skip
    return next(((kind, reason) for kind, reason, is_fit in rules if is_fit), None)


def are_dates(cells: Iterable[str]) -> bool:
    """Whether nearly all distinct cells are dates, in any usual writing, and not numbers."""
    return _share(_texts_of(cells), _is_date) >= _MOSTLY


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


def _are_postcodes(texts: Sequence[str], n: int) -> bool:
    """Whether all of ``n`` cells are numbers of four or five digits, of one length and of which several rows have the
    same."""
    digits = [text for text in texts if text.isdigit()]
    lengths = [*map(len, digits)]
    return (
        len(digits) >= _MOSTLY * len(texts)
        and 1.2 * len(texts) <= n
        and len(texts) >= 20
        and max(lengths.count(4), lengths.count(5)) >= 0.95 * len(digits)
        and sum(1850 <= int(text) <= 2100 for text in digits) <= 0.5 * len(digits)
    )


def _has_abbreviation(text: str) -> bool:
    """Whether there is a word that stands for another in addresses: ``Main Street``, but not ``Hauptstrasse``."""
    return not STREET_WORDS.keys().isdisjoint(words_of(text))


def _is_street(text: str) -> bool:
    """Whether there is a word of streets: ``Main Street``, ``Hauptstrasse``."""
    words = (word for word in words_of(text) if len(word) > 1)
    return any(word in _OF_STREETS or word.endswith(STREET_ENDS) for word in words)


def link_kind(name: str, type: str, cells: Sequence[str], n: int) -> str:
    """The kind by which links compare a column of a type: of names which ones, of texts whether they are codes.

    Parameters
    ----------
    cells : distinct ones. n : how many cells there are, with those that repeat.
    """
    if type not in ("name", "category", "text", "number"):
        return type
    named, texts = header_kind(name), _texts_of(cells)
    if named == "degrees":
        if type != "name" and _share(texts, _DEGREES.fullmatch) >= _MOSTLY:
            return named
        named = None
    if type != "name" and named is None and _are_postcodes(texts, n):
        return "postcode"
    if type == "number":
        return named if named in ("street", "postcode", "id") else "number"
    if named in ("given", "surname", "city", "id", "street", "postcode", "company", "phone"):
        return named
    are_several = _share(texts, lambda text: len(words_of(text)) > 1) >= 0.5
    if type == "text":
        n_digits, n_words = (
            {sum(map(str.isdigit, text)) for text in texts},
            sum(len(t.split()) for t in texts),
        )
        if _share(texts, _AMOUNT.fullmatch) >= _MOSTLY and (
            len(n_digits) > 2 or any("," in t for t in texts)
        ):
            return "number"
        is_name = named == "name" and are_several and n_words <= 3 * len(texts)
        return "id" if _share(texts, _is_code) >= _MOSTLY else "name" if is_name else "text"
    is_given = _share(texts, _GIVEN_NAMES.__contains__) >= 0.2
    if type == "category":
        return "name" if named == "name" else "given" if is_given and len(texts) > 10 else "category"
    if named == "text" or _share(texts, lambda text: not _TITLE_WORDS.isdisjoint(words_of(text))) >= _SOME:
        return "text"
    return "name" if are_several else "given" if is_given else "name" if named == "name" else "surname"


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
        return "date" if _share(others, spreadsheet_date) > _MOSTLY else None
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
