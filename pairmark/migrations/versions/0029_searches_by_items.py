"""no calibrations of searches that compare subjects as wholes"""

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    wholes = "FROM gallery_calibrations WHERE aggregation IS NOT NULL"
    op.execute(f"DELETE FROM gallery_probes WHERE calibration_id IN (SELECT id {wholes})")
    op.execute(f"DELETE {wholes}")
    op.drop_column("gallery_calibrations", "aggregation")
