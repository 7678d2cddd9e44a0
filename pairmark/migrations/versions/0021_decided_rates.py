"""a model's policy lists the rates at which keys that may only decide are answered"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    with op.batch_alter_table("models") as batch_op:
        batch_op.add_column(sa.Column("rates", json, nullable=True))
