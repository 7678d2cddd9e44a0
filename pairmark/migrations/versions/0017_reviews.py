"""reviews: decisions that are kept, reviews of them, and what reviewers said"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0017"
down_revision = "0016"

BYTE_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reviews", JSON, nullable=True))
    op.create_table(
        "kept_decisions",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("gallery", sa.String(length=200), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("key", sa.Double(), nullable=False),
        sa.Column("decision", sa.Integer(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("left_ref", BYTE_TEXT, nullable=True),
        sa.Column("right_ref", BYTE_TEXT, nullable=True),
        sa.Column("subject", BYTE_TEXT, nullable=True),
        sa.Column("sides", JSON, nullable=True),
        sa.Column("erased", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_kept_decisions_model_id_models"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kept_decisions")),
    )
    op.create_index("ix_kept_decisions_model_hour", "kept_decisions", ["model_id", "hour"])
    op.create_index("ix_kept_decisions_left_ref", "kept_decisions", ["left_ref"])
    op.create_index("ix_kept_decisions_right_ref", "kept_decisions", ["right_ref"])
    op.create_index("ix_kept_decisions_gallery_subject", "kept_decisions", ["gallery", "subject"])
    op.create_table(
        "decision_counts",
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gallery", sa.String(length=200), nullable=False),
        sa.Column("decision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("chance", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_decision_counts_model_id_models"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "model_id", "hour", "version", "gallery", "decision", name=op.f("pk_decision_counts")
        ),
    )
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("model", sa.String(length=100), nullable=True),
        sa.Column("gallery", sa.String(length=200), nullable=True),
        sa.Column("source", JSON, nullable=False),
        sa.Column("question", sa.String(length=32), nullable=False),
        sa.Column("at_most", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("twice", sa.Double(), nullable=False),
        sa.Column("strata", JSON, nullable=False),
        sa.Column("alike", sa.Integer(), nullable=True),
        sa.Column("drawn", sa.Integer(), nullable=False),
        sa.Column("progress", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("enough_at", sa.Double(), nullable=True),
        sa.Column("alarm_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reviews")),
    )
    op.create_index(op.f("ix_reviews_model"), "reviews", ["model"])
    op.create_table(
        "review_items",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("stratum", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("draw", sa.Integer(), nullable=True),
        sa.Column("decision", sa.Integer(), nullable=True),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("gallery", sa.String(length=200), nullable=False),
        sa.Column("left_ref", BYTE_TEXT, nullable=True),
        sa.Column("right_ref", BYTE_TEXT, nullable=True),
        sa.Column("subject", BYTE_TEXT, nullable=True),
        sa.Column("sides", JSON, nullable=True),
        sa.Column("erased", sa.Boolean(), nullable=False),
        sa.Column("twice", sa.Boolean(), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=True),
        sa.Column("held_until", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["review_id"], ["reviews.id"], name=op.f("fk_review_items_review_id_reviews"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_items")),
    )
    op.create_index("ix_review_items_review_draw", "review_items", ["review_id", "draw"])
    op.create_index(op.f("ix_review_items_left_ref"), "review_items", ["left_ref"])
    op.create_index(op.f("ix_review_items_right_ref"), "review_items", ["right_ref"])
    op.create_table(
        "review_judgements",
        sa.Column("item_id", sa.String(length=32), nullable=False),
        sa.Column("reviewer", sa.String(length=200), nullable=False),
        sa.Column("review_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("same", sa.Boolean(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["item_id"],
            ["review_items.id"],
            name=op.f("fk_review_judgements_item_id_review_items"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("item_id", "reviewer", name=op.f("pk_review_judgements")),
    )
    op.create_index(op.f("ix_review_judgements_review_id"), "review_judgements", ["review_id"])
    op.create_table(
        "outcomes",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("model", sa.String(length=100), nullable=False),
        sa.Column("left_ref", BYTE_TEXT, nullable=False),
        sa.Column("right_ref", BYTE_TEXT, nullable=False),
        sa.Column("same", sa.Boolean(), nullable=False),
        sa.Column("reporter", sa.String(length=200), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outcomes")),
    )
    for column in ("model", "left_ref", "right_ref"):
        op.create_index(op.f(f"ix_outcomes_{column}"), "outcomes", [column])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("webhook_id", sa.String(length=32), nullable=False),
        sa.Column("event", sa.String(length=64), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("delivered", sa.Boolean(), nullable=False),
        sa.Column("answer", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    for column in ("webhook_id", "created_at", "next_at"):
        op.create_index(op.f(f"ix_webhook_deliveries_{column}"), "webhook_deliveries", [column])
