"""Types of columns: inferred, overridden, and held against every cell. What does not fit is named, never coerced."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.records.inference import infer, other_readings
from pairmark.models.records.schema import RecordColumn, RecordError, Schema
from pairmark.models.records.tables import declaration, declare_schema
from tests.models.records.people import people


def types(table: dict[str, list[Any]], **overrides: str) -> dict[str, str]:
    return {column.name: column.type for column in infer(table, overrides).schema.columns}


def warnings(table: dict[str, list[Any]], **overrides: str) -> str:
    return " / ".join(line for notes in infer(table, overrides).notes for line in notes.warnings)


class TestInference:
    def test_each_column_gets_the_type_of_what_it_holds(self) -> None:
        table, who = people(60)
        table |= {"rec_id": [f"r{i}" for i in range(len(who))], "entity": [str(w) for w in who]}
        got = types(table)
        assert {got.pop("given"), got.pop("surname")} <= {"name", "category"}
        assert got == {
            "address": "street", "born": "date", "code": "text", "member": "boolean", "weight": "number",
            "home": "place", "rec_id": "id", "entity": "identity",
        }  # fmt: skip
        notes = {each.column.name: each for each in infer(table).notes}
        assert "leading zeros" in infer({"code": ["0832", "2119"]}).notes[0].reason
        assert notes["weight"].examples

    def test_a_column_that_numbers_the_rows_is_their_id(self) -> None:
        rows = list(range(7, 47))
        assert types({"n": [str(row) for row in rows], "age": ["30", "41"] * 20}) == {
            "n": "id",
            "age": "number",
        }
        assert types({"n": ["1", "2", "3"], "age": ["3", "9", "4"]})["n"] == "number"
        rows[8] = rows[7]
        assert types({"n": [str(row) for row in rows]})["n"] == "number"

    def test_leading_zeros_are_kept(self) -> None:
        schema = infer({"postcode": ["0832", "2119", "4011"]}).schema
        assert schema.read({"postcode": ["0832"]})[0, 0] == "0832"

    def test_a_column_that_changes_type_midway_is_text_and_the_row_is_named(self) -> None:
        table = {"price": [str(i) for i in range(1, 40)] + ["call us"]}
        assert types(table) == {"price": "text"}
        assert "row 40: 'call us'" in warnings(table)
        with pytest.raises(RecordError, match="row 40, column 'price': is 'call us'; expected a number"):
            infer(table, {"price": "number"}).schema.read(table)

    def test_mixed_dates_name_the_row_and_are_never_guessed(self) -> None:
        table = {
            "born": ["1990-01-31"] * 9
            + ["1991-02-03", "1992-05-06", "1993-01-01", "1994-01-01", "31/01/1990"]
        }
        assert types(table)["born"] != "date"
        assert "row 14: '31/01/1990'" in warnings(table)
        # Declared, each is read in its own writing by a file's reader, and by no other.
        found = infer(table, {"born": "date"}).schema
        with pytest.raises(RecordError, match="row 14"):
            found.read(table)
        read = found.read(table, other_readings(table, found, ["born"]))
        assert read[13, 0] == read[0, 0]

    def test_cells_that_are_not_of_a_declared_kind_are_missing_and_told_up_to_half(self) -> None:
        table = {
            "born": ["1990-01-31", "31.02.1990", "soon", "1991-01-31", "1992-01-31"],
            "b": ["yes"] * 4 + ["?!"],
        }
        kinds = {"born": "date", "b": "boolean"}
        assert "2 of 5 cells are not dates, and taken as missing: row 2: '31.02.1990', row 3" in warnings(
            table, **kinds
        )
        found = infer(table, kinds)
        assert [each.missing for each in found.notes] == [2, 1]
        read = found.schema.read(table, other_readings(table, found.schema, kinds))
        assert [cell is None for cell in read[:, 0]] == [False, True, True, False, False]
        assert [*read[:, 1]] == [1.0] * 4 + [None]
        table["born"][3:] = ["never", "ever"]
        with pytest.raises(
            RecordError, match=r"row 2, column 'born': is '31.02.1990'; expected dates.*4 of 5 cells"
        ):
            infer(table, kinds)

    def test_dates_that_read_both_ways_say_so(self) -> None:
        table = {"born": ["01/02/1990", "03/04/1991"]}
        assert infer(table).schema.columns[0].format == "DD/MM/YYYY"
        assert "MM/DD/YYYY" in warnings(table)
        assert warnings(table, born="date:MM/DD/YYYY") == ""
        assert infer({"born": ["01/31/1990", "03/04/1991"]}).schema.columns[0].format == "MM/DD/YYYY"

    def test_decimal_commas_are_neither_places_nor_numbers(self) -> None:
        table = {"price": ["12,50", "3,99", "1.204,00", "7"]}
        assert types(table) == {"price": "text"}
        assert "row 1: '12,50'" in warnings(table)
        assert types({"home": ["12.5,50.25", "3.1,9.9"]}) == {"home": "place"}

    def test_wrong_encodings_and_empty_columns_are_named(self) -> None:
        table = {
            "name": ["JosÃ©", "b c", "c d"],
            "empty": ["", "NA", " "],
            "same": ["x", "x", "x"],
        }
        said = warnings(table)
        assert "row 1" in said
        assert "wrong encoding" in said
        assert "every cell is missing" in said
        assert "every cell is 'x'" in said
        assert types(table)["empty"] == types(table)["same"] == "ignore"

    @pytest.mark.parametrize("name", ["samples", "indices", "values"])
    def test_reserved_names_are_refused(self, name: str) -> None:
        with pytest.raises(RecordError, match=f"column '{name}'.*reserved"):
            infer({name: ["a", "b"], "other": ["c", "d"]})
        with pytest.raises(ValueError, match="reserved"):
            RecordColumn(name=name, type="text")

    def test_overrides_are_held_against_the_table(self) -> None:
        table = {"a": ["1", "2"], "b": ["x y", "z"]}
        assert types(table, a="category", b="ignore") == {"a": "category", "b": "ignore"}
        for wrong, said in (({"c": "text"}, "'c'.*not in the table"), ({"a": "float"}, "'float'.*expected one of"),
                            ({"a": "number:stone"}, "'number:stone'.*expected one of"),
                            ({"a": "date:D.M"}, "date format"), ({"a": "ignore", "b": "id"}, "no column")):  # fmt: skip
            with pytest.raises(RecordError, match=said):
                infer(table, wrong)

    def test_words_for_no_value_are_missing_and_counted(self) -> None:
        table = {
            "phone": [*(f"{at} 5{at}" for at in range(40)), "-", "N/A", "n/a ", "unknown"],
            "age": [*(str(20 + at % 3) for at in range(43)), "?"],
            "born": [*(f"1990-01-{1 + at % 28:02d}" for at in range(42)), "0000-00-00", "1900-01-01"],
        }
        found = infer(table)
        assert {each.column.name: (each.column.type, each.missing) for each in found.notes} == {
            "phone": ("text", 4), "age": ("number", 1), "born": ("date", 2),
        }  # fmt: skip
        assert found.notes[0].placeholders == {"-": 1, "N/A": 1, "n/a ": 1, "unknown": 1}
        assert "taken as missing" in found.notes[0].warnings[0]
        assert "--column phone:text" in found.notes[0].warnings[0]
        assert found.schema.read(table)[40:, 0].tolist() == [None] * 4
        assert found.schema.records([{"phone": "NULL", "born": "1900-01-01"}]).tolist() == [[None] * 3]

    def test_people_called_null_are_kept_where_said_or_where_the_word_is_rare(self) -> None:
        surnames = ["ada", "bea", "cid", "dee", "eva", "fay", "gus", "hal", "ida", "jon", "kim", "leo"] * 3
        rare = infer({"surname": [*surnames, "Null", "Na"]})
        assert rare.schema.columns[0].verbatim
        assert "'Null' 1, 'Na' 1: cells that often stand for no value are kept" in rare.notes[0].warnings[0]
        common = {"surname": [*surnames, *["Null"] * 4]}
        assert infer(common).notes[0].missing == 4
        for request in ("name", "name:verbatim"):
            schema = infer(common, {"surname": request}).schema
            assert schema.read(common)[-1, 0] == "Null"
            assert schema.records([{"surname": "Null"}])[0, 0] == "Null"
        # A type that takes no such word still reads it as missing.
        assert infer({"age": ["30", "41", "-"]}, {"age": "number"}).schema.read({"age": ["-"]})[0, 0] is None

    def test_typed_columns_keep_their_types(self) -> None:
        table = {
            "n": [1, 2, None], "f": [1.5, float("nan"), 2.5], "b": [True, False, None],
            "d": [datetime.date(1990, 1, 31), None, datetime.date(1991, 1, 1)],
        }  # fmt: skip
        schema = infer(table).schema
        assert [column.type for column in schema.columns] == ["number", "number", "boolean", "date"]
        cells = schema.read(table)
        assert cells[1].tolist() == [2.0, None, 0.0, None]
        assert next(iter(schema.values(cells))) == {"n": 1.0, "f": 1.5, "b": True, "d": "1990-01-31"}


class TestRecords:
    schema = Schema(
        columns=(
            RecordColumn(name="name", type="text"),
            RecordColumn(name="age", type="number"),
            RecordColumn(name="ok", type="boolean"),
            RecordColumn(name="born", type="date", format="DD/MM/YYYY"),
            RecordColumn(name="at", type="place"),
            RecordColumn(name="id", type="id"),
        )
    )  # fmt: skip

    def test_a_missing_column_is_a_missing_cell(self) -> None:
        assert self.schema.records([{"name": "ana"}, {}]).tolist() == [["ana", *[None] * 4], [None] * 5]

    @pytest.mark.parametrize(
        ("record", "said"),
        [
            ({"nome": "ana"}, "column 'nome': is none of the model's columns: name, age"),
            ({"name": 5}, "column 'name': is 5; expected text"),
            ({"age": "12 years"}, "column 'age': is '12 years'; expected a number"),
            ({"age": True}, "column 'age'"),
            ({"age": 10**400}, "column 'age'"),
            ({"ok": "yes"}, "column 'ok': is 'yes'; expected true or false"),
            ({"born": "31.01.1990"}, "column 'born'.*DD/MM/YYYY"),
            ({"born": "31/02/1990"}, "column 'born'"),
            ({"at": [95, 0]}, "column 'at'.*latitude"),
            ({"at": "52, 4"}, "column 'at'"),
            ({"name": ["a"]}, "column 'name'"),
            ({"name": "x" * 40_000}, "40000 characters"),
            ({"name": "a\x00b"}, "column 'name': holds the character NUL"),
            ({"id": "a\x00b"}, "column 'id': holds the character NUL"),
            (["ana"], "expected an object"),
        ],
    )
    def test_what_does_not_fit_is_named(self, record: Any, said: str) -> None:
        with pytest.raises(RecordError, match=said):
            self.schema.records([{}, record])

    def test_of_many_wrong_cells_no_more_are_looked_for_than_are_told(self) -> None:
        with pytest.raises(RecordError, match="and further cells") as refused:
            self.schema.records([{"age": "12 years"}] * 10_000)
        assert len(refused.value.problems) < 200

    def test_ids_may_come_along_and_iso_dates_are_always_read(self) -> None:
        cells = self.schema.records([{"id": 7, "born": "1990-01-31"}, {"born": "31/01/1990"}])
        assert cells[0, 3] == cells[1, 3] == 7335

    def test_numbers_in_quotes_are_read_as_those_of_a_file(self) -> None:
        texts = ["1998", " 12.5 ", "1e3", "", "n/a"]
        of_request = self.schema.records([{"name": "ana", "age": text} for text in texts])
        of_file = self.schema.read(
            {name: texts if name == "age" else [None] * 5 for name in ("name", "age", "ok", "born", "at")}
        )
        assert of_request[:, 1].tolist() == of_file[:, 1].tolist() == [1998.0, 12.5, 1000.0, None, None]

    def test_equal_values_of_different_types_are_told_apart(self) -> None:
        schema = Schema(columns=(RecordColumn(name="n", type="number"),))
        with pytest.raises(RecordError, match="row 2, column 'n': is True"):
            schema.read({"n": [1, True]})

    @given(
        st.fixed_dictionaries(
            {},
            optional={
                # No cell of one word, which may say that there is none.
                "name": st.text().filter(lambda text: "\x00" not in text).map("x {}".format),
                "age": st.floats(allow_nan=False, allow_infinity=False),
                "ok": st.booleans(),
                "born": st.dates(datetime.date(1901, 1, 2), datetime.date(2100, 1, 1)),
                "at": st.tuples(st.floats(-90, 90), st.floats(-180, 180)).map(list),
            },
        )
    )
    def test_records_come_back_as_they_went_in(self, record: dict[str, Any]) -> None:
        asked = {
            name: value.isoformat() if isinstance(value, datetime.date) else value
            for name, value in record.items()
        }
        cells = self.schema.records([asked])
        (back,) = self.schema.values(cells)
        assert self.schema.records([back]).tolist() == cells.tolist()
        assert back.keys() == asked.keys()

    def test_a_schema_is_the_same_after_json(self) -> None:
        assert Schema.model_validate_json(self.schema.model_dump_json()) == self.schema


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["8.10 %", "5%", "12"], [8.1, 5.0, 12.0]),
        (["$ 1.29", "$0.99", "$1,204.50"], [1.29, 0.99, 1204.5]),
        (["5 kg", "7.5 KG", "1,000 kg"], [5.0, 7.5, 1000.0]),
        (["1,000", "250", "12,345,678"], [1000.0, 250.0, 12345678.0]),
        (["6:30", "0:45", "1:06:30"], [390.0, 45.0, 3990.0]),
    ],
)
def test_numbers_of_one_unit_are_numbers_and_the_row_is_named(cells: list[str], numbers: list[float]) -> None:
    found = infer({"value": cells})
    assert found.schema.columns[0].type == "number"
    assert f"row 1: {cells[0]!r}" in found.notes[0].warnings[0]
    assert found.schema.read({"value": cells})[:, 0].tolist() == numbers
    # Requests are read as files are.
    assert found.schema.records([{"value": cell} for cell in cells])[:, 0].tolist() == numbers
    assert declare_schema(declaration(found.schema)) == found.schema
    with pytest.raises(RecordError, match="expected a number"):
        found.schema.records([{"value": "5 miles"}])


def test_numbers_of_two_units_stay_text() -> None:
    assert types({"weight": ["5 kg", "500 g", "2 kg"]}) == {"weight": "text"}
    assert types({"model": ["x100", "x200", "d3400"]}) == {"model": "text"}


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["18-May-15", "01-jan-70", "31-Dec-68"], ["2015-05-18", "1970-01-01", "2068-12-31"]),
        (["18-May-2015", "1-Jan-1970"], ["2015-05-18", "1970-01-01"]),
        (["31/01/99", "02/03/04"], ["1999-01-31", "2004-03-02"]),
    ],
)
def test_months_by_name_and_two_digit_years_are_dates(cells: list[str], days: list[str]) -> None:
    found = infer({"day": cells})
    assert [record["day"] for record in found.schema.values(found.schema.read({"day": cells}))] == days
    assert ("two digits" in " ".join(found.notes[0].warnings)) == (len(cells[0]) < 11)
