"""reviews draw every decision of a kind with the same chance"""

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.drop_column("reviews", "alike")
