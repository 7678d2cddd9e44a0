"""Galleries: enrolled vectors, searched exactly with a learned similarity.

1. Write path: rows are stored in the database under the gallery's next sequence numbers, with a note of the rows that
   they replace (`galleries`, `rows`, `imports`; SQL is in `repository`).
2. Read path: before a search, a process brings its view up to the gallery's newest number. It masks rows that were
   replaced or erased, and reads newer ones into a memtable, or into segments that all processes of the machine map
   (`live_gallery`). Recovery is the same, without a view to start from.
3. The search scores the segments and the memtable of that one view, which never changes (`searches`, `segments`;
   `cluster` on Dask workers).
4. A calibration keeps its probes with the best score of each and the number of the row that gave it; for a newer view,
   a probe is compared with the rows written since, or searched anew if its best row is gone, and the threshold of
   these scores decides (`calibration`).
5. An erasure deletes rows, the probes of the subject and every file that holds them, and says in a receipt what other
   processes have still to let go of (`galleries`).
"""
