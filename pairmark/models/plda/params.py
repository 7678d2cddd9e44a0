"""Parameters of PLDA: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params, Seed

Marginals = Literal["raw", "normal"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

MOST_COMPONENTS = 1_024


class PldaParams(Params):
    """Parameters of PLDA; ``auto`` is chosen by cross-validation over the training identities."""

    marginals: Literal["auto", "raw", "normal"] = Field(
        "auto",
        description="features as they are (raw), or each mapped to a normal distribution by its quantiles (normal)",
    )
    length_norm: Literal["auto"] | bool = Field(
        "auto", description="whether centred rows are scaled to one length"
    )
    n_components: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_COMPONENTS)] = Field(
        "auto",
        description="principal components that the model is fitted in, where there are more features; auto tries "
        "64, 128 and 256",
    )
    shrink_within: Literal["auto"] | Share = Field(
        "auto", description="how far the covariance within identities is shrunk to a ball: 0 to 1"
    )
    shrink_between: Literal["auto"] | Share = Field(
        "auto", description="how far the covariance between identities is shrunk to a ball: 0 to 1"
    )
    residual_rounds: Literal["auto"] | Annotated[int, Field(ge=0, le=1_000)] = Field(
        0,
        description="boosted trees that correct the log-likelihood ratio by differences of features; auto: none, 25, "
        "50, 100 or 200, whichever validates best",
    )
    scoring: Literal["llr", "cosine"] = Field(
        "llr",
        description="the log-likelihood ratio, or the cosine of latent coordinates (of discriminant analysis)",
    )
    protocol: Literal["auto", "open-set", "closed-set"] = Field(
        "auto",
        description="what cross-validation holds out: identities (open-set), or rows of shared classes (closed-set); "
        "auto: open-set from 15 training identities on",
    )
    target_fpr: Annotated[float, Field(gt=0.0, lt=1.0)] | None = Field(
        None,
        description="false positive rate for which settings are chosen; null: the mean over 0.1, 0.03, 0.01 and 0.003",
    )
    random_state: Seed = Field(0, description="seed of the folds; the same seed gives the same model")
