"""What earlier versions wrote is read, and answers to the bit as it did then (`write.py` says what is kept)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, select

import pairmark
from pairmark import migrations
from pairmark.models.core.artefact import ArtefactError
from pairmark.service.db import Database
from tests.golden.write import answers
from tests.serving import RunningServer, serving

KEPT = sorted(Path(__file__).parent.glob("*.zip"))
RETIRED = ("cohort",)
"""Learners that later versions no longer have."""
KINDS = ("sqlite", "postgresql")
OF_A_POINT = (
    "fpr",
    "threshold",
    "confidence",
    "method",
    "n_units",
    "n_negative_pairs",
    "protocol",
)


@pytest.fixture(scope="module", params=KEPT, ids=lambda path: path.stem)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, unpacked."""
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(request.param) as bundle:
        bundle.extractall(folder)
    return folder


def test_learners_answer_as_when_they_were_saved(kept: Path) -> None:
    with np.load(kept / "artefacts" / "rows.npz") as stored:
        X = stored["X"]
    folders = [place for place in sorted((kept / "artefacts").iterdir()) if place.is_dir()]
    assert len(folders) > 12
    for place in folders:
        if place.name in RETIRED:
            with pytest.raises(
                ArtefactError, match=f"unknown learner '{place.name}'; known: similarity-auto, "
            ):
                pairmark.load(place)
            continue
        found = answers(pairmark.load(place), X)
        with np.load(place.with_name(f"{place.name}.answers.npz")) as expected:
            assert expected.files, place.name
            for name in expected.files:
                assert found[name].dtype == expected[name].dtype, (place.name, name)
                # To the bit where they were written; another processor's linear algebra may round otherwise.
                np.testing.assert_allclose(
                    found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=place.name
                )
                if name == "pair_score" and place.name.startswith("similarity-tree"):
                    assert found[name].tobytes() == expected[name].tobytes()


@pytest.fixture(scope="module")
def server(kept: Path) -> Iterator[RunningServer]:
    with serving(kept / "home", f"sqlite:///{kept / 'home' / 'pairmark.db'}", process=True) as running:
        yield running


def test_an_older_home_is_served_and_answers_as_it_did(kept: Path, server: RunningServer) -> None:
    for asked in json.loads((kept / "answers.json").read_text()):
        answer = server.http.request(asked["method"], asked["path"], json=asked["body"])
        assert answer.status_code == asked["status"], (asked["path"], answer.text)
        found, expected = answer.json(), asked["answer"]
        path = asked["path"].partition("?")[0]
        if asked["status"] != 200:
            assert found["type"] == expected["type"]
        elif path == "/similarity":
            assert found == expected
        elif path == "/match":
            assert found["matches"] == expected["matches"]
            mine, theirs = found["operating_point"], expected["operating_point"]
            assert part(mine) == part(theirs)
            assert theirs["fpr_upper_bound"] <= mine["fpr_upper_bound"] <= mine["fpr"]
        elif path.endswith("/search"):
            for mine, theirs in zip(found["results"], expected["results"], strict=True):
                assert [(one["id"], one["subject"], one["score"]) for one in mine] == [
                    (one["id"], one["subject"], one["score"]) for one in theirs
                ]
        elif path.endswith("/items"):
            assert [one["id"] for one in found["items"]] == [one["id"] for one in expected["items"]]
        else:
            same = {"kind", "params", "sha256", "rows", "features", "label_counts", "version", "name"}
            assert {key: found[key] for key in same & set(expected)} == {
                key: expected[key] for key in same & set(expected)
            }


def part(point: dict[str, Any]) -> dict[str, Any]:
    return {name: point[name] for name in OF_A_POINT}


def test_an_older_export_is_imported_and_scores_alike(kept: Path, server: RunningServer) -> None:
    done = server.cli("models", "import", str(kept / "export.zip"), "--name", "again")
    assert done.returncode == 0, done.stderr
    asked = next(
        one for one in json.loads((kept / "answers.json").read_text()) if one["path"] == "/similarity"
    )
    again = server.http.post("/similarity", json={**asked["body"], "model": "again:1"})
    assert again.status_code == 200, again.text
    assert again.json()["scores"] == asked["answer"]["scores"]


@contextmanager
def migrating(database: Database) -> Iterator[Config]:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with database.schema_change() as connection:
        config.attributes["connection"] = connection
        yield config


def contents(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, in an order of its own."""
    tables = MetaData()
    with database.engine.connect() as connection:
        tables.reflect(connection)
        return {
            table.name: sorted((dict(row._mapping) for row in connection.execute(select(table))), key=repr)
            for table in tables.sorted_tables
            if table.name != "alembic_version"
        }


def filled(kept: Path, url: str, revision: str) -> Database:
    """A database at the archive's revision with its rows; on PostgreSQL they are copied over."""
    database = Database(url)
    with migrating(database) as config:
        command.upgrade(config, revision)
    source = Database(f"sqlite:///{kept / 'home' / 'pairmark.db'}")
    tables = MetaData()
    tables.reflect(database.engine)
    rows = contents(source)
    with database.engine.execution_options(pairmark_write=True).begin() as connection:
        for table in tables.sorted_tables:
            if rows.get(table.name):
                connection.execute(table.delete())
                connection.execute(table.insert(), rows[table.name])
    source.dispose()
    return database


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.stem)
def test_migrations_with_data_lead_up_and_back(
    archive: Path, kind: str, new_database: Any, tmp_path: Path
) -> None:
    with zipfile.ZipFile(archive) as bundle:
        bundle.extract("home/pairmark.db", tmp_path)
    older = Database(f"sqlite:///{tmp_path / 'home' / 'pairmark.db'}")
    revision = older.revision()
    older.dispose()
    assert revision is not None
    database = filled(tmp_path, new_database(kind, migrated=False), revision)
    before = contents(database)
    assert before["gallery_items"]
    assert before["model_versions"]
    for _ in range(2):
        database.upgrade()
        after = contents(database)
        for name, rows in before.items():
            # A newer table may have more columns; what was there is there.
            columns = set(rows[0]) & set(after.get(name, [{}])[0]) if rows else set()
            assert [{c: row[c] for c in sorted(columns)} for row in rows] == sorted(
                ({c: row[c] for c in sorted(columns)} for row in after[name]),
                key=lambda row: [repr({c: one[c] for c in sorted(columns)}) for one in rows].index(repr(row)),
            ), name
        with migrating(database) as config:
            command.downgrade(config, revision)
        assert contents(database) == before
    database.dispose()
