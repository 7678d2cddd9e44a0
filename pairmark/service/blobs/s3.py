"""Blobs in an S3 bucket, read through a folder of this machine. Needs the extra ``pairmark[s3]``."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairmark.service.blobs import Blobs, checked_key, listing, listing_key
from pairmark.service.errors import CorruptArtefact, InvalidInput, StorageFailed, storage_errors

CACHE_BYTES = 20 * 1024**3
"""Copies not used for ten minutes go, oldest first, when they take more than this."""
_IN_USE_S = 600.0
_MISSING = {"404", "NoSuchKey", "NotFound"}


class S3Blobs(Blobs):
    """Blobs at ``s3://bucket/prefix/abcd.../file``; ``abcd....json`` lists the files and is written last.

    Credentials, region and endpoint come from where boto3 finds them (``AWS_*`` variables, profiles, roles).

    Parameters
    ----------
    address : ``s3://bucket/prefix``.
    cache : folder for local copies, which are checked like local blobs.
    """

    def __init__(self, address: str, cache: Path) -> None:
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        if not bucket:
            raise InvalidInput(
                f"PAIRMARK_ARTEFACTS is {address!r}; expected s3://bucket or s3://bucket/prefix"
            )
        super().__init__(cache)
        self._client: Any = _client()
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._fetching = threading.Lock()

    def put_folder(self, folder: Path) -> str:
        key = super().put_folder(folder)
        folder = super().folder(key)
        files = listing(folder)
        with _s3_errors("storing a blob"):
            if self._manifest(key) is None:
                for name in files:
                    self._client.upload_file(str(folder / name), self._bucket, self._object(key, name))
            # Written again for a known blob too: that starts its age anew.
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._object(key),
                Body=json.dumps(files, sort_keys=True).encode(),
                ContentType="application/json",
            )
        self._shrink_cache()
        return key

    def folder(self, key: str) -> Path:
        checked_key(key)
        if not self._is_whole(key):
            with self._fetching:
                if not self._is_whole(key):
                    self._fetch(key)
                    self._shrink_cache()
        return super().folder(key)

    def exists(self, key: str) -> bool:
        with _s3_errors("looking for a blob"):
            return self._manifest(checked_key(key)) is not None

    def delete(self, key: str) -> None:
        checked_key(key)
        with _s3_errors("deleting a blob"):
            # The manifest goes first, so that a blob is never seen half-deleted.
            self._client.delete_object(Bucket=self._bucket, Key=self._object(key))
            for page in self._pages(f"{self._prefix}{key}/"):
                for entry in page.get("Contents", []):
                    self._client.delete_object(Bucket=self._bucket, Key=entry["Key"])
        super().delete(key)

    def ages(self) -> Iterator[tuple[str, float]]:
        """See `Blobs.ages`. Blobs whose upload or deletion was cut short are among them."""
        ages: dict[str, float] = {}
        with _s3_errors("listing blobs"):
            for page in self._pages(self._prefix):
                for entry in page.get("Contents", []):
                    name = entry["Key"].removeprefix(self._prefix).partition("/")[0].removesuffix(".json")
                    if len(name) == 64:
                        age = time.time() - entry["LastModified"].timestamp()
                        ages[name] = min(age, ages.get(name, age))
        yield from sorted(ages.items())

    def _object(self, key: str, name: str | None = None) -> str:
        return f"{self._prefix}{key}.json" if name is None else f"{self._prefix}{key}/{name}"

    def _pages(self, prefix: str) -> Any:
        return self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)

    def _manifest(self, key: str) -> dict[str, str] | None:
        from botocore.exceptions import ClientError

        try:
            body = self._client.get_object(Bucket=self._bucket, Key=self._object(key))["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                return None
            raise
        try:
            files = json.loads(body)
            whole = isinstance(files, dict) and listing_key(files) == key
        except ValueError:
            whole = False
        return files if whole else None

    def _fetch(self, key: str) -> None:
        with _s3_errors("reading a blob"):
            files = self._manifest(key)
            if files is None:
                raise CorruptArtefact(
                    f"blob {key[:12]} is missing from S3: restore it from a backup", blob=key
                )
            with self.workspace() as folder:
                for name in files:
                    target = folder / name
                    if not target.resolve().is_relative_to(folder.resolve()):
                        raise CorruptArtefact(f"blob {key[:12]} names a file outside its folder", blob=key)
                    with storage_errors("copying a blob from S3"):
                        target.parent.mkdir(parents=True, exist_ok=True)
                        self._client.download_file(self._bucket, self._object(key, name), str(target))
                if listing(folder) != files:
                    raise CorruptArtefact(
                        f"blob {key[:12]} was changed on S3 (sha256 differs): restore it from a backup",
                        blob=key,
                    )
                super().put_folder(folder)

    def _shrink_cache(self) -> None:
        sizes = {
            (age, key): sum(path.stat().st_size for path in self._path(key).rglob("*") if path.is_file())
            for key, age in super().ages()
        }
        excess = sum(sizes.values()) - CACHE_BYTES
        for age, key in sorted(sizes, reverse=True):
            if excess <= 0 or age < _IN_USE_S:
                return
            super().delete(key)
            excess -= sizes[age, key]


def _client() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise InvalidInput("S3 needs boto3: pip install 'pairmark[s3]'") from error
    return boto3.client("s3")


def download(address: str, path: Path) -> None:
    """Copy an object, ``s3://bucket/key``, to a file."""
    client, place = _client(), _place(address)
    with _s3_errors(f"reading {address}"):
        client.download_file(*place, str(path))


def upload(path: Path, address: str) -> None:
    """Copy a file to an object, ``s3://bucket/key``."""
    client, place = _client(), _place(address)
    with _s3_errors(f"writing {address}"):
        client.upload_file(str(path), *place)


def _place(address: str) -> tuple[str, str]:
    bucket, _, key = address.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InvalidInput(f"{address} names no object; expected s3://bucket/key")
    return bucket, key


@contextmanager
def _s3_errors(doing: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, Boto3Error, ClientError) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise StorageFailed(
            f"S3 failed while {doing} ({reason}); check the bucket, its region, your rights and the network"
        ) from error
