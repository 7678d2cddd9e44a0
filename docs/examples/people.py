"""Writes people.csv: made-up measurements of 2,400 people, three rows each, to try Pairmark with."""

import numpy as np

rng = np.random.default_rng(0)
n_people, rows_each, n_features = 2400, 3, 4
people = np.repeat(rng.normal(size=(n_people, n_features)), rows_each, axis=0)
rows = people + 0.15 * rng.normal(size=people.shape)
with open("people.csv", "w", encoding="utf-8") as file:
    file.write("person,a,b,c,d\n")
    for number, row in enumerate(rows):
        file.write(f"p{number // rows_each:04d}," + ",".join(f"{value:.4f}" for value in row) + "\n")
print(f"wrote people.csv: {n_people} people, {rows_each} rows each")
