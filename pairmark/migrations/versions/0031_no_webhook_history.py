"""webhook messages go once they are delivered or given up"""

from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.execute("DELETE FROM webhook_deliveries WHERE next_at IS NULL")
    for column in ("delivered", "answer"):
        op.drop_column("webhook_deliveries", column)
