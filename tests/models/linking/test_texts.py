"""Links of records that are texts."""

import random

import duckdb
import numpy as np
import pytest

from pairmark.models.linking.texts import link_texts, read_texts, texts_or_columns
from pairmark.models.records.compare import LinkField

WORDS = [
    a + b
    for a in ("ka", "lo", "mi", "ru", "te", "vo", "sa", "ni")
    for b in ("lan", "der", "sto", "pik", "mar", "gel")
]


def source(columns):
    connection = duckdb.connect()
    n = len(next(iter(columns.values())))
    cells = {
        f"c{at}": np.array([cell or None for cell in of], dtype=object)
        for at, of in enumerate(columns.values())
    }
    connection.register("given", {"row": np.arange(n, dtype=np.int32), **cells})
    connection.execute("SET pandas_analyze_sample = 0")
    connection.execute("CREATE TABLE source AS SELECT * FROM given")
    connection.execute("CREATE TABLE hashes AS SELECT row FROM given")
    return connection


def offers(n, seed=0):
    """Of n things, two offers each, one after the other: words in another order, some left out, a model number."""
    drawn = random.Random(seed)
    titles = []
    for number in range(n):
        words = drawn.choices(WORDS, k=5)
        code = f"{drawn.choice('xkt')}{drawn.choice('rdl')}-{1000 + 7 * number}"
        titles.append(" ".join([*words, code]))
        drawn.shuffle(words)
        titles.append(" ".join([code.replace("-", ""), *words[:4]]))
    return titles


def test_offers_of_one_thing_are_linked_within_a_table_and_across():
    titles = offers(300)
    within = link_texts(titles, [""] * 600, np.zeros(600, dtype=np.int64), np.array([False]))
    across = link_texts(
        titles[::2] + titles[1::2], [""] * 600, np.repeat([0, 1], 300), np.array([True, True])
    )
    for found, partner in ((within, within.a + 1), (across, across.a + 300)):
        assert found.is_link.sum() == 300
        assert (found.b == partner)[found.is_link].all()
    assert (across.a < 300).all()
    assert (across.b >= 300).all()


@pytest.mark.parametrize("n", [1, 3, 12])
def test_a_few_rows_that_a_long_table_has_are_linked_though_chance_is_asked(n):
    titles = offers(300)
    found = link_texts(
        titles[::2] + titles[1 : 2 * n : 2],
        [""] * (300 + n),
        np.repeat([0, 1], [300, n]),
        np.array([True, True]),
        one_to_one=True,
        beats_chance=True,
    )
    assert (found.b == found.a + 300)[found.is_link].all()
    assert found.is_link.sum() == n


def test_models_of_one_line_that_only_a_number_tells_apart_are_no_links():
    lines = [
        f"acme cordless hammer drill black {pack} dx{1000 + number}"
        for number in range(100)
        for pack in ("single", "boxed")
    ]
    found = link_texts(lines, [""] * 200, np.zeros(200, dtype=np.int64), np.array([False]))
    assert (found.a[found.is_link] // 2 == found.b[found.is_link] // 2).all()
    assert found.is_link.sum() == 100


@pytest.mark.parametrize("mark", ["-", "/", " ", "_"])
def test_codes_are_one_with_and_without_punctuation(mark):
    things, n = ("watch", "kettle", "router", "drill"), 200
    ends = ["10" if at % 2 else "w" for at in range(n)]
    left = [f"acme {things[at % 4]} xk{2000 + 7 * at}{mark}{ends[at]} red" for at in range(n)]
    right = [f"acme xk{2000 + 7 * at}{ends[at]} {things[at % 4]}" for at in range(n)]
    found = link_texts(left + right, [""] * 2 * n, np.repeat([0, 1], n), np.array([True, True]))
    assert (found.b - found.a)[found.is_link].tolist() == [n] * n


@pytest.mark.parametrize("across", [False, True])
def test_a_code_that_begins_with_another_is_no_other_unless_a_number_goes_on(across):
    rest = [f"{word} thing" for word in WORDS]
    texts = ["red kettle xk210", "red kettle xk210b", "red kettle xk2105", *rest]
    tables = np.minimum(np.arange(len(texts)), 1) * across
    found = link_texts(texts, [""] * len(texts), tables, np.full(1 + across, across))
    score = dict(zip(zip(found.a.tolist(), found.b.tolist(), strict=True), found.score, strict=True))
    cosine = 2 * score[0, 2]
    assert score[0, 1] == pytest.approx(cosine + (1 - cosine) / 4 if across else cosine)


def test_prices_that_differ_hide_no_words_that_agree():
    n = 100
    wines = [f"{WORDS[at % 40]} {2000 + at // 40}" for at in range(n)]
    prices = [f"{at + shift}.17" for shift in (200, 500) for at in range(n)]
    found = link_texts(wines * 2, prices, np.repeat([0, 1], n), np.array([True, True]))
    assert (found.b - found.a)[found.is_link].tolist() == [n] * n


def test_several_partners_are_kept_unless_one_to_one_is_asked():
    titles = offers(100)
    words = titles[::2] + titles[1::2] + titles[1::2]
    tables, alone = np.repeat([0, 1], [100, 200]), np.array([True, True])
    assert link_texts(words, [""] * 300, tables, alone).is_link.sum() == 200
    assert link_texts(words, [""] * 300, tables, alone, one_to_one=True).is_link.sum() == 100


@pytest.mark.parametrize(
    "words", [[], ["one"], ["", ""], ["same words here"] * 50, ["x" * 20_000, "y " * 9_000]]
)
def test_unusual_texts_are_answered(words):
    found = link_texts(words, [""] * len(words), np.zeros(len(words), dtype=np.int64), np.array([False]))
    assert np.isfinite(found.score).all()
    assert not found.is_link.any() or len(set(words)) == 1


def test_texts_serve_where_no_two_columns_tell_things_apart():
    n = 200
    shared = {"title": offers(n // 2), "brand": [WORDS[at % 7] for at in range(n)]}
    products = [LinkField("title", "text"), LinkField("brand", "category")]
    assert "'title'" in texts_or_columns(source(shared), products)
    people = {
        **shared,
        "email": [f"{at}@example.org" for at in range(n)],
        "phone": [str(10**6 + at) for at in range(n)],
    }
    fields = [*products, LinkField("email", "email"), LinkField("phone", "phone")]
    assert texts_or_columns(source(people), fields) is None
    names = {"name": [f"{WORDS[at % 40]} {WORDS[at // 5]}" for at in range(n)]}
    assert texts_or_columns(source(names), [LinkField("name", "name")]) is None


def test_numbers_are_words_and_no_codes():
    connection = source({"title": ["Café  Zoë\n12"], "price": ["1.299,50 EUR"], "made": ["3.2.2014"]})
    fields = [LinkField("title", "text"), LinkField("price", "number"), LinkField("made", "date")]
    [words], [numbers] = read_texts(connection, fields)
    assert (words.strip(), numbers.strip()) == ("cafe zoe 12", "1299.5 2014-02-03")
    same = [
        "blue cotton summer dress",
        "blue cotton summer dress",
        "green linen winter coat",
        "red silk autumn scarf",
    ]
    prices = ["12345", "54321", "11111", "22222"]
    assert link_texts(same, prices, np.zeros(4, dtype=np.int64), np.array([False])).score.max() > 0.5
