"""``python -m pairmark.service.healthcheck [URL]``: exits 0 when ready; for container health checks."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def main() -> int:
    """Ask ``/readyz``; 0 when ready, else 1."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=4) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
