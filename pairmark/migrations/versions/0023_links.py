"""links of tables"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    op.create_table(
        "links",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("request", json, nullable=False),
        sa.Column("summary", json, nullable=True),
        sa.Column("blob", sa.String(64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_index("ix_links_name", "links", ["name"])
