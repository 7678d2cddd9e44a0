"""Settings as administrators see them: everything that is in force, and nothing secret."""

from __future__ import annotations

from pairmark.service.api.settings import public_settings
from pairmark.service.settings import Settings


def test_settings_show_what_is_in_force_and_no_secret() -> None:
    settings = Settings.model_validate(
        {
            "api_key": "pm_secret",
            "database_url": "postgresql+psycopg://bob:s3cret@db.example/pairmark?sslpassword=s3cret",
            "dask_scheduler": "tcp://scheduler:8786",
            "max_batch_pairs": 10,
        }
    )
    items = {one.name: one for one in public_settings(settings)}
    assert set(items) == {f"PAIRMARK_{name.upper()}" for name in Settings.model_fields}
    assert items["PAIRMARK_DATABASE_URL"].value == "postgresql+psycopg://bob:***@db.example/pairmark?***"
    assert items["PAIRMARK_DASK_SCHEDULER"].value == "tcp://scheduler:8786"
    assert items["PAIRMARK_API_KEY"].value == "***"
    batch = items["PAIRMARK_MAX_BATCH_PAIRS"]
    assert (batch.value, batch.default, batch.changed) == (10, 1_000_000, True)
    assert not items["PAIRMARK_LOG_LEVEL"].changed
    assert "cret" not in " ".join(str(one.value) for one in items.values())
    assert all(one.description for one in items.values())
