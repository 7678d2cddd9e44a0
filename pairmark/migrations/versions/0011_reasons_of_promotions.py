"""why an alias was moved, in its history"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    with op.batch_alter_table("alias_changes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reason", sa.String(length=500), nullable=True))
