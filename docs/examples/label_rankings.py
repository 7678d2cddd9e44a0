"""Order labels for each point: learn from rankings, some incomplete, and predict with Kendall tau."""

# [data]
import numpy as np

rng = np.random.default_rng(0)
labels = ["tea", "coffee", "juice", "water"]
X = rng.normal(size=(600, 5))
liking = np.stack([X[:, 0], X[:, 1] - X[:, 2], -X[:, 0] + X[:, 3], np.zeros(600)], axis=1)
liking += rng.normal(scale=0.5, size=liking.shape)
# Positions: 0 is the best label of a row. NaN: the row does not rank that label.
Y = np.argsort(np.argsort(-liking, axis=1), axis=1).astype(float)
Y[rng.random(Y.shape) < 0.1] = np.nan
# [fit]
from pairmark import LabelRankingForest

forest = LabelRankingForest(n_estimators=50, random_state=0).fit(X[:400], Y[:400])
positions = forest.predict(X[400:])
best_first = [labels[at] for at in np.argsort(positions[0])]
print("first held-out row:", " > ".join(best_first))
# [judge]
from pairmark import kendall_tau

constant = np.nanmean(Y[:400], axis=0)
print(f"Kendall tau: forest {np.nanmean(kendall_tau(positions, Y[400:])):.2f}, ", end="")
print(f"one ranking for all {np.nanmean(kendall_tau(np.tile(constant, (200, 1)), Y[400:])):.2f}")
# [file]
with open("drinks.csv", "w", encoding="utf-8") as file:
    file.write("a,b,c,d,e,order\n")
    for x, places in zip(X, Y, strict=True):
        order = [labels[at] for at in np.argsort(places) if not np.isnan(places[at])]
        file.write(",".join(f"{value:.4f}" for value in x) + "," + ">".join(order) + "\n")
