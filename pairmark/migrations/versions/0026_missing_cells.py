"""what a model decides of records that lack columns"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    column = sa.Column("missing", sa.String(length=20), server_default="assume-random", nullable=False)
    op.add_column("models", column)
