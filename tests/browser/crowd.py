"""A service with many models and jobs, for measuring and testing its pages."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def crowd(database: Path, *, model: str, n_models: int, n_jobs: int) -> None:
    """Copy a model's rows and its job's under other names: training each would take a second.

    Parameters
    ----------
    database : an embedded SQLite database.
    model : its name; copies are called ``many-000`` and so on.
    """
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.row_factory = sqlite3.Row

        def rows(table: str, where: str, *values: object) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE {where}", values)]

        def insert(table: str, row: dict[str, Any]) -> None:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

        (source,) = rows("models", "name = ?", model)
        versions = rows("model_versions", "model_id = ?", source["id"])
        aliases = rows("aliases", "model_id = ?", source["id"])
        job = rows("jobs", "model = ?", model)[0]
        for at in range(n_models):
            copy = f"{at:032x}"
            insert("models", {**source, "id": copy, "name": f"many-{at:03d}"})
            for row in versions:
                # A job registers one version.
                insert("model_versions", {**row, "model_id": copy, "job_id": None})
            for row in aliases:
                insert("aliases", {**row, "model_id": copy})
        for at in range(n_jobs):
            # A minute apart, the newest a day old.
            moment = job["created_at"] - 86_400 - 60 * at
            insert("jobs", {**job, "id": f"{at + 1:032x}", "created_at": moment, "idempotency_key": None})
