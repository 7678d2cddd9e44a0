"""Normal forms of cells, what is compared in the place of what somebody wrote, None where nothing is; and the words
that stand for others: nicknames, titles, legal forms of companies, and what streets are called.
"""

import datetime
import html
import re
import unicodedata
from collections.abc import Callable
from functools import wraps
from itertools import pairwise

from pairmark.models.core.inputs import is_placeholder
from pairmark.models.records.schema import DECIMAL_COMMA, FALSE, TRUE, TURN, measured_of

_NICKNAMES = """
abigail abby gail; abraham abe; agnes aggie; albert bert al; alexander alex alec sasha sascha xander sandy;
alexandra sandra alexa; alfred alf alfie; alice allie; amanda mandy; andrea andi; andrew andy drew; angela angie;
anna annie ania anja anni; anthony tony; antonia toni; antonio tonio tonino; arthur art artie; barbara barb barbie
babs; bartholomew bart; beatrice bea trixie; benjamin ben benny benji; bernard bernie; bernhard bernd; bradley brad;
brigitte gitte gitta; caroline carrie caro; carolyn lyn; catherine cathy cate; charles charlie chuck chas; charlotte
lotte lottie; christian chrissi; christina christa tina; christine chrissie; christopher chris kit topher; clarence
clancy; clifford cliff; cornelia conny; cornelius neil; curtis curt; cynthia cindy; daniel dan danny; david dave
davey; deborah deb debbie debra; dennis denny; dolores lola; donald don donny; dorothea dorle; dorothy dot dottie
dolly; douglas doug; edmund ned; edward ed eddie ted teddy; eleanor ellie nell nora; elizabeth liz lizzie beth betty
eliza libby elsie bess; elisabeth lisbeth liesl elli sissi; emily emmy; eugene gene; eva evi; evelyn evie; ferdinand
ferdi; florence flo; frances fran fanny; francesco franco; francis frank frankie; franziska franzi; frederick fred
freddy; friedrich fritz friedel; gabriel gabe; gabriele gabi gaby; george georgie; georg schorsch; gerald gerry;
gerhard gerd; geoffrey geoff; gertrude trudy gerti; gilbert gil; gregory greg; guillermo memo; gwendolyn gwen; hans
hansi; harold hal harry; heinrich heinz heiner; helen nellie; henrietta etta; henry hank; herbert herb; hildegard
hilde; howard howie; hubert hubie; ignacio nacho; isaac ike; isabella bella izzy; isidore izzie; jacob jake;
jacqueline jackie; james jim jimmy jamie jem; jane janie; janet jan; jasmine jas; jeffrey jeff; jennifer jen jenny;
jeremy jerry jem; jessica jess jessie; joan joanie; joanna jo; johann hannes; john jack johnny jock; jonathan jon
jonny nathan; jose pepe; joseph joe joey; josef sepp beppo; josephine josie; joshua josh; juan juanito; judith judy;
julia jule; juliana julie; katharina kathi katja katrin; katherine kate katie kathy kay kitty kat; kathleen kathie;
kenneth ken kenny; kimberly kim; klaus claus; konrad conny; kristina kristi; lawrence larry laurie; laura lori;
leonard leo len lenny; leonardo nardo; leopold poldi; lewis lew; lillian lil lily; louis lou louie; louise lulu;
ludwig lutz; lucille lucy; luis lucho; madeline maddie; magdalena lena magda; manuel manu manolo; manfred manni;
marcus marc; margaret maggie meg peggy marge margie madge daisy greta; margarete grete gretel; maria mia mitzi;
marjorie margery; martha marty; martin marti; mary molly polly; matthew matt; matthias matze hias; matilda tilly;
maximilian max maxi; melanie mel; melissa lissa missy; michael mike mick mickey mikey; michel michi; mildred millie;
mohammed mohamed muhammad mohammad muhamed; nancy nan; natalie nat; natalia natasha; nathaniel nate; nicholas nick
nicky; nikolaus klas niko; norbert nobbi; norman norm; olivia liv livvy; oliver ollie; oscar ossie; pamela pam;
patricia pat patty tricia trish; patrick paddy; paul pauli; penelope penny; peter pete; petra peti; philip phil;
phyllis phyl; priscilla cilla; rachel rae; ralph ralphie; raymond ray; rebecca becky becca; reginald reg reggie;
regina gina; renate nate; ricardo rico; richard rick ricky dick rich richie; robert bob bobby rob robbie bert;
rodney rod; roland rolli; ronald ron ronnie; rosemary rosie; roberto beto; rudolf rudi; rupert rupie; russell russ;
ruth ruthie; salvatore toto; samantha sammy; samuel sam; sarah sadie sally; sebastian seb basti bastian; sibylle
bille; sigmund sigi; sophia sophie sofie; stanley stan; stefan steffen; stephanie steph steffi; stephen stevie;
steven steve; stuart stu; susan sue susie suzie; susanne susi sanne; sylvester sly; teresa tess; theodore theo;
theresa terry tessa resi; therese tracy; thomas tom tommy; timothy tim timmy; tobias tobi; ulrich uli; ulrike rike;
ursula uschi ulla; valerie val; veronica ronnie; veronika vroni; victor vic; victoria vicky tori; vincent vince
vinny; virginia ginny; vladimir vova volodya; walter wally walt; wilhelm willi; wilhelmina mina minnie; william will
bill billy willie liam; wolfgang wolf wolfi; yvonne evi; zachary zach zack
"""
NICKNAMES: dict[str, str] = {}
"""From what people are called to the name in full; of two names the first counts."""
for _names in _NICKNAMES.split(";"):
    _name, *_short = _names.split()
    for _nickname in _short:
        NICKNAMES.setdefault(_nickname, _name)
for _name in {names.split()[0] for names in _NICKNAMES.split(";")}:
    NICKNAMES.pop(_name, None)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _abbreviations(text: str) -> dict[str, str]:
    """From each abbreviation to the word before the colon."""
    groups = (group.split(":") for group in text.split(";"))
    return {short: long.strip() for long, shorts in groups for short in shorts.split()}


TITLES = _words("""
mr mrs ms miss mister dr prof professor sir madam dame lord lady rev reverend herr herrn frau dipl ing phd md mba msc
bsc esq jr jun junior sr sen senior ii iii iv mag med jur rer nat hc sra srta don dona mme mlle monsieur madame dra
""")
PARTICLES = _words("""
mc mac o d de del della dela di da das do dos du der den des van von vom zu zur zum ter ten la le las los el st san
santa fitz
""")
LEGAL_FORMS = _words("""
inc incorporated corp corporation co company companies cos llc llp lp ltd limited plc pllc pc gmbh mbh ggmbh ag kg
kgaa ohg ug se gbr ek ev eg sa sas sarl sasu eurl snc spa srl sl slu sau sca scs nv bv vof cv oy oyj ab as asa aps kk
yk pty pte pvt private pt tbk doo dd zrt kft rt nyrt sp zoo sro spol ltda eireli cia ooo oao zao pao ao lda bhd sdn
gesellschaft aktiengesellschaft societe anonyme rl
""")
FORM_NAMES = _abbreviations("""
ltd: limited; inc: incorporated; corp: corporation; gmbh: mbh; ag: aktiengesellschaft; sa: anonyme; pvt: private;
: co company companies cos gesellschaft societe
""")
"""What legal forms are written as; of some words nothing is left."""
FILLERS = _words("and und et y e the der die das la le les el los of for fur pour de")
COMPANY_WORDS = _abbreviations("""
international: intl int; group: grp gruppe groupe; holding: hldg holdings; brothers: bros gebr gebruder;
manufacturing: mfg; technology: tech technologies;
service: svc svcs services serv; system: systems sys; association: assn assoc; department: dept; university: univ;
national: natl; management: mgmt mgt; engineering: eng engg; industry: industries ind; solution: solutions;
product: products prod; laboratory: lab labs laboratories; center: centre ctr zentrum; enterprise: enterprises ent;
partner: partners; consulting: consultants; saint: st sankt; communication: communications comm; american: amer;
distribution: distributors dist; software: sw; insurance: ins
""")
STREET_WORDS = _abbreviations("""
st: street str strasse strase straat strada; rd: road; av: avenue ave aven avenida avda; bd: boulevard blvd boul;
ln: lane; dr: drive drv; ct: court crt; pl: place platz plaza plz pza piazza; sq: square; hwy: highway; pkwy: parkway;
ter: terrace terr tce; cir: circle circ; cl: close; cres: crescent cr; gdns: gardens gdn; gr: grove gro; pde: parade;
trl: trail; way: wy; weg: wg; allee: al; ufer: uf; via: v; rue: r; calle: c; apt: apartment appt unit flat suite ste;
n: north nord; s: south sud; e: east ost; w: west; mt: mount; bldg: building; fl: floor; po: postfach; hs: haus house
""")
STREET_ENDS = ("strasse", "straat", "gasse", "platz", "allee", "weg", "str")
"""What German and Dutch write in one word with the name."""
CO_DOMAINS = "ac|co|com|edu|gov|ne|net|or|org"


LONGEST = 512
"""Characters of a cell that are compared: what costs the square of its length stays small."""
PART = "|"
"""Between a street's number and its name, and the stem of a host and what follows."""
VALUE = "\x1f"
"""Between several values of a cell."""
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufe0f"
    # Pictures are seen, and say nothing.
    "\u2600-\u27bf\U0001f000-\U0001faff]"
)
# An address between the same brackets is none: <anna@example.com>, <https://example.com>.
_MARKUP = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:[:-][a-zA-Z][a-zA-Z0-9]*)*(?:\s[^<>]{0,200})?/?>")
_ENTITY = re.compile(r"&#?\w{1,8};")
_QUOTE = re.compile("^['\u2018\u2019`@#]+(?=\\S)")
_ACCENTED = re.compile("[a-z\u0370-\u03ff]")
_LETTERS = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i"})
_WORD, _APOSTROPHE = re.compile(r"[^\W_]+"), re.compile("(?<=\\w)['\u2018\u2019`\u00b4](?=\\w)")
_DIPHTHONG = re.compile("(?<=[aou])e(?![aeiou])")
_WHOLE, _SCIENTIFIC = re.compile(r"(?<=\d)\.0+$"), re.compile(r"\d(?:[.,]\d+)?e\+\d{1,2}")
_BLANKS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
_EXTENSION = re.compile(r"\s*(?:ext\.?|extension|durchwahl|x)\s*\d{1,5}$")
_TAG, _SCHEME, _AFTER_HOST = re.compile(r"\+[^@]*(?=@)"), re.compile(r"^\w+:(?://)?"), re.compile(r"[/?#:].*")
_INITIALS = re.compile(r"\b(\w)\.(?=\w\b)|(?<=\b\w)\.")
_HOUSE = re.compile(r"\b(\d+)(?:\s?([a-z])\b)?")
_COUNTRY = re.compile(r"^[a-z]{1,3}[- ]?(?=\d{4,6}$)")
_DOMAIN = re.compile(rf"(\.(?:{CO_DOMAINS}))?\.[^.]+$")
_SEPARATOR = re.compile(r"\s*[;|\n]\s*|\s*,\s+|\s+/\s+|\s*/\s*(?=[\w.+-]+@)")


def clean_cell(cell: str) -> str:
    """A cell without tags of HTML, marks that say nothing, spaces around it, or what stands before it:
    the apostrophe of a spreadsheet, the sign of a handle."""
    text = _MARKUP.sub(" ", cell) if "<" in cell else cell
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if not text.isascii() or not text.isprintable():
        text = _INVISIBLE.sub("", text)
        text = unicodedata.normalize("NFKC", text)
    return _QUOTE.sub("", " ".join(text.split()))


def text(cell: str) -> str | None:
    """In lower case and without accents; None for what stands for no value."""
    text = clean_cell(cell).casefold()
    if not text or is_placeholder(text):
        return None
    return text if text.isascii() else _plain(text)


def _plain(text: str) -> str:
    letters: list[str] = []
    for char in unicodedata.normalize("NFKD", text.translate(_LETTERS)):
        # In other scripts marks make letters of their own.
        if not unicodedata.combining(char) or not letters or _ACCENTED.match(letters[-1]) is None:
            letters.append(char)
    return unicodedata.normalize("NFC", "".join(letters)).strip()


def words_of(text: str) -> list[str]:
    """Words without apostrophes in them, umlauts as one letter however they are written."""
    return _WORD.findall(_DIPHTHONG.sub("", _APOSTROPHE.sub("", text)))


def fold_cell(cell: str) -> str | None:
    """The same of a cell that is no text, which is short."""
    return text(cell[:LONGEST])


def _of_plain(form: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The form of a cell, from that of its plain text; None where it has none."""

    @wraps(form)
    def of(cell: str) -> str | None:
        plain = fold_cell(cell)
        return None if plain is None else form(plain)

    return of


@_of_plain
def person(plain: str) -> str | None:
    """The words of a name in one order: titles left out, nicknames in full, particles joined to what follows."""
    words, before = [], ""
    for word in words_of(plain):
        if word in PARTICLES:
            before += word
        elif word not in TITLES:
            words.append(before + NICKNAMES.get(word, word))
            before = ""
    if before:
        words.append(before)
    return " ".join(sorted(words)) or plain


@_of_plain
def company(plain: str) -> str | None:
    """Words in their order, without legal forms; customary abbreviations in full."""
    every = words_of(_INITIALS.sub(r"\1", plain))
    kept = [word for word in every if word not in LEGAL_FORMS and word not in FILLERS]
    return " ".join(COMPANY_WORDS.get(word, word) for word in kept or every) or plain


def legal_form(cell: str) -> str | None:
    """That of a company in one writing, such as ``gmbh``; None where its name has none."""
    words = words_of(_INITIALS.sub(r"\1", fold_cell(cell) or ""))
    return "".join(FORM_NAMES.get(word, word) for word in words if word in LEGAL_FORMS) or None


@_of_plain
def phone(plain: str) -> str | None:
    """The last nine digits, without zeros before them."""
    # Most are digits already.
    digits = plain if plain.isdecimal() else re.sub(r"\D", "", _EXTENSION.sub("", _WHOLE.sub("", plain)))
    return digits.lstrip("0")[-9:] or plain


@_of_plain
def email(plain: str) -> str | None:
    return _TAG.sub("", plain.removeprefix("mailto:").strip("<> ").replace(" ", ""))


@_of_plain
def web(plain: str) -> str | None:
    """The host, its stem apart from what follows: ``acme|.co.uk``."""
    host = _AFTER_HOST.sub("", _SCHEME.sub("", plain, count=1)).split("@")[-1]
    host = host.removeprefix("www.").strip(". ") or plain
    return _DOMAIN.sub(rf"{PART}\g<0>", host)


@_of_plain
def street(plain: str) -> str | None:
    """Number and name, each in one writing: ``12a|main st``."""
    house = _HOUSE.search(plain)
    number = ""
    if house:
        number, plain = (
            (house[1].lstrip("0") or "0") + (house[2] or ""),
            f"{plain[: house.start()]} {plain[house.end() :]}",
        )
    words = []
    for word in words_of(plain):
        end = word.endswith(STREET_ENDS) and next(end for end in STREET_ENDS if word.endswith(end))
        words += [word.removesuffix(end), end] if end and len(word) > len(end) + 1 else [word]
    return number + PART + " ".join(STREET_WORDS.get(word, word) for word in words)


@_of_plain
def postcode(plain: str) -> str | None:
    """Letters and digits, without a country before or zeros that spreadsheets lose."""
    code = _COUNTRY.sub("", _WHOLE.sub("", plain))
    if re.fullmatch(r"\d{5}-\d{4}", code):
        code = code[:5]
    return "".join(_WORD.findall(code)).lstrip("0") or plain


@_of_plain
def identifier(plain: str) -> str | None:
    """Letters and digits, without zeros before them that spreadsheets lose; None for ``4.00639E+12``, which was one."""
    if _SCIENTIFIC.fullmatch(plain):
        return None
    return "".join(_WORD.findall(_WHOLE.sub("", plain))).lstrip("0") or plain


@_of_plain
def number(plain: str) -> str | None:
    """A number without its unit, with a decimal point; a time that passes in seconds."""
    point = DECIMAL_COMMA.sub(lambda found: re.sub("[. ]", "", found[0]).replace(",", "."), plain)
    point = _BLANKS.sub("", point)
    measured = measured_of(point)
    try:
        value = measured[0] if measured else float(point)
    except ValueError:
        return plain
    return (
        plain if value != value or abs(value) > 1e300 else repr(int(value) if value == int(value) else value)
    )


def degrees(cell: str) -> str | None:
    """A latitude or a longitude to 110 m or less."""
    plain = number(cell.replace(",", "."))
    try:
        return plain and f"{float(plain):.3f}"
    except ValueError:
        return plain


@_of_plain
def boolean(plain: str) -> str | None:
    return "1" if plain in TRUE else "0" if plain in FALSE else plain


@_of_plain
def date(plain: str) -> str | None:
    """``1974-07-24`` for a day however it is written, with the day before the month where both may be."""
    return iso_date(plain) or plain


_MONTHS = {
    name: number
    for number, names in enumerate(
        """
        jan january januar janvier enero gennaio jaenner janner januari ene gen janv
        feb february februar fevrier febrero febbraio februari fev fevr
        mar march marz maerz mars marzo maart mrz mrt
        apr april avril abril aprile abr avr
        may mai mayo maggio mei mag
        jun june juni juin junio giugno giu
        jul july juli juillet julio luglio lug juil
        aug august aout agosto augustus ago
        sep sept september septembre septiembre settembre set
        oct october oktober octobre octubre ottobre okt ott
        nov november novembre noviembre
        dec december dezember decembre diciembre dicembre dez dic
        """.strip().splitlines(),
        start=1,
    )
    for name in names.split()
}
_TIME = re.compile(
    r"[t ]\s*\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:[ap]\.?m\.?)?\s*(?:z|utc|gmt|[+-]\d{2}:?\d{2})?$"
)
_DAY_PARTS = re.compile(r"\d+|[^\W\d_]+")
_UNITS, _CENTURIES = frozenset("年月日г"), frozenset(("18", "19", "20"))
"""What stands after parts of a day in some languages."""
_SPREADSHEET = datetime.date(1899, 12, 30).toordinal()


def iso_date(plain: str, month_first: bool = False, turn: int = TURN) -> str | None:
    """A day as ``YYYY-MM-DD``; None for what is none."""
    parts = [part for part in _DAY_PARTS.findall(_TIME.sub("", plain)) if part not in _UNITS]
    if len(parts) == 1 and len(parts[0]) == 8 and parts[0].isascii() and parts[0].isdigit():
        # Offices write the day first, without points.
        cuts = (4, 6) if parts[0][:2] in _CENTURIES and parts[0][4:6] <= "12" else (2, 4)
        parts = [parts[0][start:end] for start, end in pairwise((0, *cuts, 8))]
    months = [_MONTHS[part] for part in parts if part in _MONTHS]
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) <= 4]
    if months:
        if len(months) != 1 or len(numbers) != 2:
            return None
        first = numbers[0] > 31 or len(next(part for part in parts if part.isdigit())) == 4
        day, year = reversed(numbers) if first else numbers
        return _day(year, months[0], day, turn)
    if len(parts) != 3 or len(numbers) != 3:
        return None
    if len(parts[0]) == 4:
        return _day(numbers[0], numbers[1], numbers[2], turn) or _day(
            numbers[0], numbers[2], numbers[1], turn
        )
    day, month, year = (numbers[1], numbers[0], numbers[2]) if month_first else numbers
    return _day(year, month, day, turn) or _day(year, day, month, turn)


def _day(year: int, month: int, day: int, turn: int) -> str | None:
    if year < 100:
        year += 1900 if year >= turn else 2000
    try:
        return datetime.date(year, month, day).isoformat()
    except ValueError:
        return None


def spreadsheet_date(plain: str) -> str | None:
    """The day of a spreadsheet's number, such as 27234; None for what is none of the years 1900 to 2100."""
    digits = _WHOLE.sub("", plain)
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits[:7]) <= 73_415:
        return None
    return datetime.date.fromordinal(_SPREADSHEET + int(digits)).isoformat()


def split_cell(cell: str) -> list[str]:
    """Several values of a cell."""
    return [part for part in _SEPARATOR.split(cell) if part.strip()]
