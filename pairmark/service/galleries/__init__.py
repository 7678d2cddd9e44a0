"""Galleries: enrolled vectors, searched exactly with a learned similarity.

1. A write stores rows in the database under the gallery's next sequence numbers, and notes which rows they replace
   (`galleries`, `items/`).
2. Before a search, a process catches up to the gallery's newest number: it masks rows that were replaced or erased, and
   reads what is new into a small tail, or into blocks that all processes of the machine map (`index/live_gallery`,
   `index/blocks`).
3. The search scores the blocks and the tail of that one view, which never changes (`searches`, `index/gallery_view`;
   `index/subject_search` for whole subjects, `index/cluster_search` with `index/worker_blocks` on Dask workers).
4. A calibration keeps its probes with the best score of each and the number of the row that gave it
   (`calibration/kept_probes`); for a newer view, a probe is compared with the rows written since, or searched anew if
   its best row is gone (`calibration/probe_updates`), and the threshold of these scores decides
   (`calibration/thresholds`).
5. An erasure deletes rows, the probes of the subject and every file that holds them, and says in a receipt what other
   processes have still to let go of (`erasure`).
"""

from pairmark.service.galleries.galleries import Galleries

__all__ = ["Galleries"]
