"""keys that expire, are rotated and remember their last use; console sessions"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expires_at", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("last_used_at", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("rate", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("replaces", sa.String(length=32), nullable=True))
    op.create_table(
        "sessions",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("csrf", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_sessions_key_id_api_keys"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_key_id"), "sessions", ["key_id"])
