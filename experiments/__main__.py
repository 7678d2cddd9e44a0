"""``make experiments``: repeat published experiments, and print their tables beside what was published."""

import sys

from benchmarks.__main__ import main

if __name__ == "__main__":
    sys.exit(main("experiments"))
