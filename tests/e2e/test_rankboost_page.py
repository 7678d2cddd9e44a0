"""The page on kernels for texts does what it says: its Python, as written, against a deployment of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving import Serve

PAGE = Path(__file__).parents[2] / "docs" / "rankboost.md"
ADDRESS = "http://127.0.0.1:8000"
WORDS = (
    [
        "free",
        "entry",
        "WIN",
        "won",
        "prize",
        "claim",
        "now",
        "cash",
        "urgent",
        "call",
        "mobile",
        "reply",
        "text",
    ],
    [
        "home",
        "later",
        "dinner",
        "sorry",
        "love",
        "tomorrow",
        "bus",
        "meet",
        "class",
        "mum",
        "sleep",
        "work",
        "ok",
    ],
)
COMMON = ["i", "you", "the", "a", "to", "have", "is", "it", "we", "and", "at", "for", "me", "my"]


def messages(n: int, seed: int) -> tuple[list[str], list[int]]:
    """Short messages of two kinds that share most of their words."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, n)
    made = []
    for kind in kinds:
        own = rng.choice(WORDS[kind], rng.integers(2, 6))
        made.append(" ".join(rng.permutation([*own, *rng.choice(COMMON, 5), f"w{rng.integers(500)}"])))
    return made, kinds.tolist()


@pytest.mark.nightly
def test_the_page_leads_from_raw_texts_to_a_served_similarity(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = serve(job_thread=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 4
    texts, topics = messages(1_000, 0)
    # What a reader has before the page begins.
    names: dict[str, Any] = {"texts": texts, "topics": topics, "more_texts": messages(400, 1)[0]}
    for block in blocks:
        exec(compile(block.replace(ADDRESS, deployment.url), str(PAGE), "exec"), names)
    decided = names["decision"]
    assert isinstance(decided["matches"][0]["match"], bool), decided
    assert decided["operating_point"]["fpr"] == 0.05
    sparse = names["sparse"]
    alike = {
        "left": sparse("you have won a cash prize claim now"),
        "right": sparse("WIN free entry text now"),
    }
    unlike = {**alike, "right": sparse("sorry mum home later for dinner")}
    scores = [deployment.http.post("/similarity", json=pair).json()["scores"][0] for pair in (alike, unlike)]
    assert scores[0] > scores[1]
    # Alignment with the perfect kernel, which is 1 for rows of one topic and -1 for others.
    kernel, perfect = names["K"], np.where(names["y"][:, None] == names["y"], 1.0, -1.0)
    assert 0.1 < (kernel * perfect).sum() / (np.linalg.norm(kernel) * np.linalg.norm(perfect)) <= 1.0
