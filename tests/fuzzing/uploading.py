"""Sends crafted uploads, and watches what they cost the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from pairmark.service.settings import Settings
from tests.fuzzing.crafted import Crafted

_MEDIA = {".parquet": "application/vnd.apache.parquet", ".npz": "application/x-npz"}


def send(http: httpx.Client, upload: Crafted, gallery: str, path: str = "/datasets") -> httpx.Response:
    """Send it where it belongs; ``path`` is for what is not for the gallery. What is stored is removed again."""
    if upload.gallery:
        media = _MEDIA[Path(upload.filename).suffix]
        return http.put(
            f"/galleries/{gallery}/items",
            content=upload.body,
            params=upload.roles,
            headers={"content-type": media},
        )
    files: dict[str, Any] = {"file": (upload.filename, upload.body)}
    if upload.pairs is not None:
        files["pairs"] = ("pairs.parquet", upload.pairs)
    named = {"name": "crafted"} if path == "/datasets" else {}
    answer = http.post(path, data={**named, **upload.roles}, files=files)
    if answer.status_code == 201:
        http.delete(f"/datasets/crafted:{answer.json()['version']}")
    return answer


def setting_of(answer: httpx.Response) -> str | None:
    """The setting that a refusal names, if there is one of that name."""
    reported = answer.json()
    setting = reported.get("setting")
    if setting is None or setting not in reported["detail"]:
        return None
    return setting if setting.removeprefix("PAIRMARK_").lower() in Settings.model_fields else None


@contextmanager
def memory_peak(process: int) -> Iterator[Callable[[], int]]:
    """``peak()``: bytes by which the process' memory has grown at most since the block began; needs Linux."""

    def of(name: str) -> int:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
        raise ValueError(name)

    before = of("VmRSS")
    # 5: the highest mark starts anew.
    Path(f"/proc/{process}/clear_refs").write_text("5")
    yield lambda: of("VmHWM") - before
