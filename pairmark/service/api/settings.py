"""The settings in force, without secrets, for administrators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter
from pydantic import BaseModel, Field, SecretStr

from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices
from pairmark.service.settings import Settings

router = APIRouter(tags=["status"], route_class=GuardedRoute)


HIDDEN = "***"


class SettingOut(BaseModel):
    """One setting."""

    name: str = Field(description="the environment variable that sets it")
    value: str | int | float | bool | None = Field(
        description="the current value; passwords are replaced by `***`"
    )
    default: str | int | float | bool | None = Field(description="the value without the environment variable")
    changed: bool = Field(description="whether it differs from the default")
    description: str = Field(description="what it sets")


class SettingsOut(BaseModel):
    """Every setting, in the order of the documentation."""

    items: list[SettingOut] = Field(description="the entries of this page")


@router.get("/settings")
@needs("operator")
def get_settings(services: InServices) -> SettingsOut:
    """The settings of this process. Environment variables set them; they are read at the start."""
    return SettingsOut(items=public_settings(services.settings))


def public_settings(settings: Settings) -> list[SettingOut]:
    """Settings as they may be shown: no password, no key."""
    items = []
    for name, field in type(settings).model_fields.items():
        value, default = getattr(settings, name), field.get_default()
        described = (field.description or name.replace("_", " ")).strip()
        items.append(
            SettingOut(
                name=f"PAIRMARK_{name.upper()}",
                value=_plain(value),
                default=_plain(default),
                changed=value != default,
                description=described[:1].upper() + described[1:],
            )
        )
    return items


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return _without_password(value)
    return json.dumps(value, default=str)


def _without_password(address: str) -> str:
    """An address without its password, and without what its query holds: drivers take passwords there too."""
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
        user, at, place = parts.netloc.rpartition("@")
    except ValueError:
        return HIDDEN
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon}{HIDDEN if colon else ''}{at}{place}"
    return urlunsplit((parts.scheme, netloc, parts.path, HIDDEN if parts.query else "", ""))
