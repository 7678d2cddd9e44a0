"""Every setting, from ``PAIRMARK_*`` in the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024


class Settings(BaseSettings):
    """Where things are kept, and the bounds on everything a client can send or start."""

    model_config = SettingsConfigDict(env_prefix="PAIRMARK_", extra="ignore")

    home: Path = Field(Path("var"), description="folder of the embedded database and artefacts")
    database_url: str | None = Field(None, description="default: SQLite under PAIRMARK_HOME")
    database_timeout_s: float = Field(
        30.0,
        ge=0.1,
        description="longest that one statement may take on PostgreSQL, or wait for the lock on SQLite; requests that "
        "need the database are then refused with 503. Migrations and backups may take longer",
    )
    artefacts: str | None = Field(
        None, description="folder or s3://bucket/prefix; default: PAIRMARK_HOME/artefacts"
    )
    dask_scheduler: str | None = Field(
        None,
        description="a Dask scheduler on whose workers forests grow and large galleries are searched, e.g. "
        "tcp://scheduler:8786; default: here",
    )
    url: str | None = Field(None, description="a running service for the command line to talk to")
    api_key: SecretStr | None = Field(None, description="key of the client and the command line")

    metrics_public: bool = Field(False, description="serve /metrics without a key")
    log_level: str = "INFO"
    live_probes: bool = Field(
        True,
        description="keep one vector of each /match request in memory, at most 64 a version, to watch the false "
        "positive rate in use; false: keep none",
    )
    audit_retention_days: float | None = Field(
        None, gt=0, description="after how many days workers remove audit entries; default: never"
    )
    log_decisions: bool = Field(
        False,
        description="write each decision of /match, verify and search into the audit log; a request can ask for its "
        "own with the header `Pairmark-Log-Decision: true`",
    )

    max_body_bytes: int = Field(64 * MIB, description="largest body of a scoring or control request")
    max_upload_bytes: int = Field(4096 * MIB, description="largest dataset upload")
    max_dataset_rows: int = Field(50_000_000, description="most rows of a dataset")
    max_dataset_bytes: int = Field(
        16_384 * MIB, description="most bytes of numbers that a dataset may unpack to"
    )
    max_concurrent_uploads: int = Field(4, description="uploads read at a time by one process")
    max_batch_pairs: int = Field(1_000_000, description="most pairs in one request")
    max_dimension: int = Field(
        2**20, description="most features of a vector or dataset; what hashing texts gives by default"
    )
    max_dense_bytes: int = Field(
        8192 * MIB, description="most memory for sparse data made dense, for a learner that takes no other"
    )
    max_subject_samples: int = Field(
        100, ge=1, description="most samples of one subject in a scoring request"
    )
    max_subject_classes: int = Field(
        64,
        ge=0,
        description="numbers of samples (and aggregations) that one calibration is made for on demand; "
        "0: none, subjects are then scored but not decided",
    )
    max_queued_jobs: int = Field(1_000, description="jobs waiting before new ones are refused")
    max_concurrent_batches: int = Field(
        8, description="long scoring batches under way or waiting in one process"
    )
    request_timeout_s: float = Field(60.0, description="longest a scoring request may take")
    drain_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="how long a service that was told to stop goes on answering while /readyz says 503, so that a "
        "proxy sends new requests to another replica; a second signal ends it at once",
    )
    header_timeout_s: float = Field(
        15.0, gt=0, description="longest the head of a request may take to arrive"
    )
    min_upload_bytes_per_s: float = Field(
        65_536.0,
        gt=0,
        description="a body may take request_timeout_s, and as much longer as what has arrived takes at this rate",
    )
    max_connections_per_client: int = Field(
        256,
        ge=0,
        description="connections of one address open at once in one process; 0: any number (say, behind a proxy)",
    )
    rate_limit: float = Field(
        0.0,
        ge=0,
        description="requests a second that one key may send to this machine, ten seconds' worth of them at once; "
        "0: any number. A key can have a limit of its own",
    )
    verify_limit: float = Field(
        60.0,
        ge=0,
        description="verifications a minute of one subject by one key: many tries defeat any rate; 0: any number",
    )
    search_limit: float = Field(
        0.0, ge=0, description="searches a minute of one gallery by one key; 0: any number"
    )
    max_waiting_searches: int = Field(
        256, description="gallery searches and imports under way or waiting in one process"
    )
    max_search_queries: int = Field(1_000, description="most queries of one gallery search")
    max_search_results: int = Field(100_000, description="most items that one gallery search returns")
    max_gallery_items: int = Field(50_000_000, description="most items of a gallery, and of one bulk import")
    max_calibration_pairs: int = Field(5_000_000, description="most scores in one calibration")
    allow_asymptotic: bool = Field(
        False,
        description="whether method=auto may answer by bootstrap, an asymptotic promise, where the finite-sample "
        "method refuses; a model's policy overrides it",
    )
    max_loaded_models: int = Field(32, description="versions kept in memory by one process")

    catalogue_ttl_s: float = Field(0.2, description="how old a worker's view of aliases and keys may be")
    lease_s: float = Field(10.0, description="after how long without a heartbeat a job is taken over")
    poll_s: float = Field(0.5, description="how often an idle worker looks for a job")
    max_attempts: int = Field(3, description="attempts at a job before it fails")
    import_key_file: Path | None = Field(
        None,
        description="file of a secret key, 16 bytes or more: exports are signed with it, and signatures of imports "
        "are checked",
    )
    require_signed_imports: bool = Field(
        False, description="import only versions whose signature holds under import_key_file"
    )
    job_memory_bytes: int | None = Field(
        None,
        ge=64 * MIB,
        description="most memory that one job may take; default: nine tenths of what the machine or container has",
    )
    job_threads: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="most threads of one job, those of BLAS and of parallel fits alike; default: one for each core "
        "that the process may use",
    )
    job_timeout_s: float | None = Field(
        None, gt=0, description="longest one attempt at a job may run; default: no limit"
    )

    @property
    def resolved_database_url(self) -> str:
        """The SQLAlchemy URL in use."""
        return self.database_url or f"sqlite:///{(self.home / 'pairmark.db').absolute()}"

    @property
    def resolved_artefacts(self) -> str:
        """Folder or ``s3://`` address of blobs."""
        return self.artefacts or str((self.home / "artefacts").absolute())
