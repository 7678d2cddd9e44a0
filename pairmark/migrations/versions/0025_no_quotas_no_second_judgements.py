"""no quotas of tenants; reviews without second judgements and queues of uncertain pairs"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
SIZED = ("model_versions", "calibrations")


def upgrade() -> None:
    uncertain = "(SELECT id FROM reviews WHERE question = 'uncertain')"
    for table in ("review_judgements", "review_items"):
        op.execute(f"DELETE FROM {table} WHERE review_id IN {uncertain}")
    op.execute("DELETE FROM reviews WHERE question = 'uncertain'")
    models = sa.table("models", sa.column("id"), sa.column("reviews", JSON))
    connection = op.get_bind()
    for model_id, policy in connection.execute(sa.select(models.c.id, models.c.reviews)).all():
        if policy and "fall_back" in policy:
            kept = {name: value for name, value in policy.items() if name != "fall_back"}
            connection.execute(sa.update(models).where(models.c.id == model_id).values(reviews=kept))
    for table in ("reviews", "review_items"):
        op.drop_column(table, "twice")
    for table in SIZED:
        op.drop_column(table, "size_bytes")
    op.drop_table("tenants")
