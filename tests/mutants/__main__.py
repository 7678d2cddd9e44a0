"""``python -m tests.mutants [WORDS ...]``: break a guarantee or a right in a copy of the code; tests have to fail.

A mutant *dies* when its tests fail; one that *survives* shows a guarantee that no test watches. The tests of all chosen
mutants first have to pass on the code as it is. Exits with 1 when a mutant survives, or when its pattern is not found
in exactly one place.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPY = ROOT / "var" / "cache" / "mutants"
FAILED = 1
LIMIT_S = 900


def places(mutant: Mutant, root: Path) -> list[tuple[Path, str]]:
    """Files that hold its pattern, with their text as it would be; a file stands here once for each occurrence."""
    room = root / mutant.room
    found = []
    for file in [room] if room.is_file() else sorted(room.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        broken, n = re.subn(mutant.pattern, mutant.replacement, text, flags=re.MULTILINE)
        found += n * [(file, broken)]
    return found


def dies(mutant: Mutant) -> bool:
    """Break the copy, run the mutant's tests, mend the copy; says whether they failed."""
    ((file, broken),) = places(mutant, COPY)
    text, stat = file.read_text(encoding="utf-8"), file.stat()
    file.write_text(broken, encoding="utf-8")
    try:
        died = run_tests(mutant.tests) == FAILED
    finally:
        file.write_text(text, encoding="utf-8")
        # Numba and Python know a source by its time.
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    print(f"{'died' if died else 'SURVIVED':9} {mutant.guarantee}", flush=True)
    return died


def run_tests(tests: tuple[str, ...]) -> int:
    """pytest's exit status."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not nightly",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(COPY)}
    with (COPY / "pytest.log").open("w") as log:
        done = subprocess.run(
            command, cwd=COPY, env=environment, stdout=log, stderr=log, timeout=LIMIT_S, check=False
        )
    return done.returncode


def main(words: list[str]) -> int:
    """Run the mutants whose guarantee or file holds one of the words; without words, all."""
    chosen = [one for one in MUTANTS if not words or any(word in str(one) for word in words)]
    counts = {one: len(places(one, ROOT)) for one in chosen}
    if stale := [
        f"{one.guarantee}: {n} times {one.pattern!r} in {one.room}" for one, n in counts.items() if n != 1
    ]:
        print("not found in exactly one place:", *stale, sep="\n", file=sys.stderr)
        return 1
    shutil.rmtree(COPY, ignore_errors=True)
    not_code = shutil.ignore_patterns(".git", ".venv*", "var", "_build", ".*_cache")
    # With the times of sources, so that compiled kernels are valid.
    shutil.copytree(ROOT, COPY, symlinks=True, ignore=not_code)
    if run_tests(tuple(sorted({test for one in chosen for test in one.tests}))):
        print((COPY / "pytest.log").read_text()[-4000:], file=sys.stderr)
        print("the tests do not pass on the code as it is", file=sys.stderr)
        return 1
    n_survived = sum(not dies(one) for one in chosen)
    print(f"{len(chosen) - n_survived} of {len(chosen)} mutants died")
    return 1 if n_survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
