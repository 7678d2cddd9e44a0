"""Settings as administrators see them: everything that is in force, and nothing secret."""

from __future__ import annotations

from pathlib import Path

import httpx

from pairmark.service.app import create_app
from pairmark.service.db import Database
from pairmark.service.inprocess import InProcessTransport
from pairmark.service.settings import Settings


def test_settings_show_what_is_in_force_and_no_secret(tmp_path: Path, database: Database) -> None:
    settings = Settings.model_validate(
        {
            "home": tmp_path,
            "database_url": database.url.render_as_string(hide_password=False),
            "api_key": "pm_secret",
            "dask_scheduler": "tcp://bob:s3cret@scheduler:8786?sslpassword=s3cret",
            "max_batch_pairs": 10,
        }
    )
    transport = InProcessTransport(create_app(settings, warm=False))
    with httpx.Client(transport=transport, base_url="http://127.0.0.1") as client:
        items = {one["name"]: one for one in client.get("/settings").json()["items"]}
    assert set(items) == {f"PAIRMARK_{name.upper()}" for name in Settings.model_fields}
    assert items["PAIRMARK_DASK_SCHEDULER"]["value"] == "tcp://bob:***@scheduler:8786?***"
    assert items["PAIRMARK_API_KEY"]["value"] == "***"
    batch = items["PAIRMARK_MAX_BATCH_PAIRS"]
    assert (batch["value"], batch["default"], batch["changed"]) == (10, 1_000_000, True)
    assert not items["PAIRMARK_LOG_LEVEL"]["changed"]
    assert "cret" not in " ".join(str(one["value"]) for one in items.values())
    assert all(one["description"] for one in items.values())
