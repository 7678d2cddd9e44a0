"""``make demo``: are these two images the same digit?

Real handwritten digits (they come with scikit-learn) take the ordinary way: upload as classes, a job for the default
learner, worker, calibration, promotion, and a decision at a rate that the finite-sample guarantee supports.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from pairmark.client import Client, ClientError, InsufficientCalibration
from pairmark.service.api.docs import GUIDE
from pairmark.service.cli.output import progress_bar
from pairmark.service.settings import Settings

NAME = "digits"
FPR = 0.01
TOO_SMALL = 0.0001
BUDGET_S = 4.0


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make demo DEMO_ARGS=...", description=__doc__)
    parser.add_argument("--once", action="store_true", help="call the endpoints, print the answers, stop")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1 (default 8000)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with _service(options.port) as url, Client(url) as client:
            left, rights = _pairs()
            _train(client)
            _show(client, url, left, rights, once=options.once)
            if not options.once:
                print("\nStop with Ctrl-C.", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print("\nstopped")
    except ClientError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _service(port: int) -> Iterator[str]:
    """The service with one training worker on the embedded database; both end with this block."""
    home = Settings().home
    home.mkdir(parents=True, exist_ok=True)
    log = home / "demo.log"
    print(
        f"Pairmark demo: data in {home}/, log in {log}\n"
        "starting the service; the first start on a machine compiles for up to a minute",
        flush=True,
    )
    command = [sys.executable, "-P", "-m", "pairmark.service.cli", "serve", "--port", str(port)]
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            [*command, "--with-worker", "--json", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            # Ctrl-C reaches the demo, which then stops the service in order.
            start_new_session=True,
        ) as process,
    ):
        try:
            if not (process.stdout.readline() if process.stdout else b"").strip():
                code = process.wait(30)
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                sys.exit(
                    f"error: the service did not start (exit code {code}):\n{tail}\n"
                    "For another port: make demo DEMO_ARGS='--port 8001'"
                )
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            # Not left to the block, which waits a quarter of a second after Ctrl-C, and else for ever.
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _pairs() -> tuple[list[int], list[list[int]]]:
    """An image, another of the same digit, and one of a different digit."""
    X, y = load_digits(return_X_y=True)
    first = int((y == 3).argmax())
    same, different = int((y == 3).nonzero()[0][1]), int((y == 0).argmax())
    rows = X[[first, same, different]].astype(int).tolist()
    return rows[0], rows[1:]


def _train(client: Client) -> None:
    if any(dataset["name"] == NAME for dataset in client.datasets()):
        print(f"dataset {NAME}: exists already")
    else:
        X, y = load_digits(return_X_y=True)
        names = [*(f"pixel{at}" for at in range(X.shape[1])), "digit"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "digits.csv"
            np.savetxt(
                file, np.column_stack([X, y]), "%d", delimiter=",", header=",".join(names), comments=""
            )
            dataset_info = client.add_dataset(NAME, file, classes="digit")
        print(
            f"dataset {NAME}: {dataset_info['rows']} images, {dataset_info['features']} pixels each, uploaded as CSV"
        )
    models = {model["name"]: model for model in client.models()}
    if NAME in models and any(alias["alias"] == "production" for alias in models[NAME]["aliases"]):
        print(f"model {NAME}: exists already")
        return
    with progress_bar(f"training {NAME}") as progress:
        job = client.train(
            dataset=NAME,
            model=NAME,
            evaluation={"target_fpr": FPR},
            budget_seconds=BUDGET_S,
            progress=progress,
        )
    kind = client.version(NAME, job["version"]).kind
    print(f"model {NAME}: version {job['version']} ({kind}) trained, calibrated, in production")


def _show(client: Client, url: str, left: list[int], rights: list[list[int]], *, once: bool) -> None:
    body = Settings().home / "pair.json"
    body.write_text(json.dumps({"model": NAME, "left": left, "right": rights}))
    post = f"-H 'content-type: application/json' -d {shlex.quote(f'@{body}')}"
    lines = [
        f"curl -s {url}/similarity {post}",
        f"curl -s '{url}/match?fpr={FPR:g}' {post}",
        f"curl -s {url}/models/{NAME}",
    ]
    print(f"\nAsk it. {body} holds an image of a 3, and another 3 and a 0 to compare it with:\n")
    print("\n".join(lines))
    try:
        client.match(left, rights, fpr=TOO_SMALL, model=NAME)
    except InsufficientCalibration as error:
        refusal = error.detail
    else:
        refusal = "supported too"
    print(
        f"\nfpr={FPR:g} has a finite-sample guarantee: with 95 % confidence at most {100 * FPR:.0f} % of pairs of "
        f"different digits match, whatever the distribution of scores.\nThe digits were uploaded as `classes`: these "
        f"ten and no others (closed-set). Where new people or things will join, it is `identity` (open-set).\n"
        f"fpr={TOO_SMALL:g} is refused: {refusal}"
    )
    if once:
        scores = client.similarity(left, rights, model=NAME)
        print(f"\nsimilarity: {scores[0]:.6g} for 3 and 3, {scores[1]:.6g} for 3 and 0")
        answer = client.match(left, rights, fpr=FPR, model=NAME)
        for name, match in zip(("3 and 3", "3 and 0"), answer.matches.tolist(), strict=True):
            print(f"match at fpr={FPR:g}: {name} are {'the same' if match else 'different'}")
        point = answer.operating_point.json
        print(
            f"  a match is a score above {point['threshold']:.3g}: {100 * point['tpr']:.1f} % of pairs of the same "
            f"digit match (guarantee: {point['guarantee']}, confidence {100 * point['confidence']:.0f} %, "
            f"{point['protocol']}, {point['n_units']} samples)"
        )
        print("operating point: " + json.dumps(point))
    guide = f"   Guide: {url}/guide/" if GUIDE.is_dir() else ""
    print(f"\nConsole: {url}/   Endpoints: {url}/docs{guide}")
    print(
        f"Next: move the slider at {url}/console/models/{NAME}, or train on your own data as README.md shows.",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
