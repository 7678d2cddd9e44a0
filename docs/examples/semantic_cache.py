"""A semantic cache that promises how often it answers a question that it holds no answer to."""

# [embeddings]
import numpy as np

rng = np.random.default_rng(0)
n_cached, n_held_out, n_new, dimensions = 2_000, 500, 1_000, 64
n_intents = n_cached + n_held_out + n_new
topics = rng.normal(size=(40, dimensions))
intents = topics[rng.integers(40, size=n_intents)] + 0.8 * rng.normal(size=(n_intents, dimensions))


def embed(numbers):
    """Stands for your model: a new wording of each of these intents, as a unit vector."""
    rows = intents[numbers] + 0.6 * rng.normal(size=(len(numbers), dimensions))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


cached, held_out, new = np.split(np.arange(n_intents), [n_cached, n_cached + n_held_out])
cache = embed(cached)
# [calibrate]
from pairmark import operating_point

# A question of a cached intent should hit its own entry; one of any other intent should hit nothing.
own = (embed(cached) * cache).sum(axis=1)
others = (embed(held_out) @ cache.T).max(axis=1)


def guard(others, rate):
    scores = np.concatenate([own, others])
    return operating_point(scores, np.arange(scores.size) < own.size, rate, independent=True)


point = guard(others, rate=0.01)
print(
    f"hit above {point.threshold:.3f}: {100 * point.tpr:.0f} % of questions reach their entry, {point.guarantee}"
)
# [check]
best = (embed(new) @ cache.T).max(axis=1)
false, copied = (100 * (best > threshold).mean() for threshold in (point.threshold, 0.7))
print(f"false hits of {n_new:,} new intents: {false:.1f} %; at a copied 0.7, {copied:.1f} %")
# [refuse]
from pairmark import InsufficientCalibrationData

try:
    guard(others[:200], rate=0.01)
except InsufficientCalibrationData as refusal:
    print("refused:", refusal)
