"""Runs migrations on the connection that `Database.upgrade` hands over, or on the settings' database."""

from alembic import context

from pairmark.service.db import open_database
from pairmark.service.settings import Settings
from pairmark.service.tables import Base

given = context.config.attributes.get("connection")
if given is not None:
    context.configure(connection=given, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    with open_database(Settings()).schema_change() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
        context.run_migrations()
