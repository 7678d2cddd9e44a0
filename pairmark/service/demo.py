"""``make demo``: are these two images the same digit?

Real handwritten digits (they come with scikit-learn) take the ordinary way: upload, job, worker, calibration,
promotion. Classes are the same in training and in use, so the protocol is closed-set, and the answers say so.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairmark.client import Client, ClientError, InsufficientCalibration
from pairmark.service.cli.output import progress_bar
from pairmark.service.settings import Settings

NAME = "digits"
ASKED = 0.001
RATES = (ASKED, 0.01, 0.02, 0.05, 0.1, 0.2)


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
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            print(
                f"error: port {port} is taken: stop what listens there, or make demo DEMO_ARGS='--port {port + 1}'",
                file=sys.stderr,
            )
            sys.exit(1)
    home = Settings().home
    home.mkdir(parents=True, exist_ok=True)
    log = home / "demo.log"
    print(f"Pairmark demo: data in {home}/, log in {log}", flush=True)
    command = [
        sys.executable,
        "-P",
        "-m",
        "pairmark.service.cli",
        "serve",
        "--port",
        str(port),
        "--with-worker",
        "--json",
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            # Ctrl-C reaches the demo, which then stops the service in order.
            start_new_session=True,
        )
        try:
            said = process.stdout.readline() if process.stdout else b""
            if not said.strip():
                code = process.wait(30)
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                print(f"error: the service did not start (exit code {code}):\n{tail}", file=sys.stderr)
                sys.exit(1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y


def _pairs() -> tuple[list[int], list[list[int]]]:
    """An image, another of the same digit, and one of a different digit."""
    X, y = _digits()
    first = int((y == 3).argmax())
    same, other = int((y == 3).nonzero()[0][1]), int((y == 0).argmax())
    rows = X[[first, same, other]].astype(int).tolist()
    return rows[0], rows[1:]


def _train(client: Client) -> None:
    if any(dataset["name"] == NAME for dataset in client.datasets()):
        print(f"dataset {NAME}: exists already")
    else:
        X, y = _digits()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "digits.csv"
            with file.open("w", encoding="utf-8") as stream:
                stream.write(",".join([*(f"pixel{at}" for at in range(X.shape[1])), "digit"]) + "\n")
                for row, digit in zip(X.astype(int).tolist(), y.tolist(), strict=True):
                    stream.write(",".join(map(str, [*row, digit])) + "\n")
            added = client.add_dataset(NAME, file, classes="digit")
        print(f"dataset {NAME}: {added['rows']} images, {added['features']} pixels each, uploaded as CSV")
    known = {model["name"]: model for model in client.models()}
    if NAME in known and any(alias["alias"] == "production" for alias in known[NAME]["aliases"]):
        print(f"model {NAME}: exists already")
        return
    with progress_bar(f"training {NAME}") as progress:
        begun = next((job for job in client.jobs(limit=50) if _goes_on(job.json)), None)
        if begun is not None:
            # An earlier run was interrupted: its job waits, or its worker takes it up again.
            job = client.wait(begun["id"], progress=progress)
            print(f"model {NAME}: version {job['version']} trained, calibrated, in production")
            return
        # A quarter, the default, just misses what a rate of 0.1 % takes.
        evaluation = {"calibration_fraction": 0.3}
        # Not similarity-auto: on digits it keeps trees over class posteriors. These separate the digits so well that
        # the bootstrap on 540 calibration images supports no FPR below 0.9 %, and the demo shows 0.1 %.
        job = client.train(
            "similarity-forest",
            NAME,
            NAME,
            params={"random_state": 0},
            evaluation=evaluation,
            progress=progress,
        )
    print(f"model {NAME}: version {job['version']} trained, calibrated, in production")


def _goes_on(job: dict[str, Any]) -> bool:
    return job["task"] == "training" and job["model"] == NAME and job["state"] in ("queued", "running")


def _show(client: Client, url: str, left: list[int], rights: list[list[int]], *, once: bool) -> None:
    strict, refusal = _supported_rate(client, left, rights)
    client.set_policy(NAME, allow_asymptotic=True)
    body = Settings().home / "pair.json"
    body.write_text(json.dumps({"model": NAME, "left": left, "right": rights}))
    post = f"-H 'content-type: application/json' -d {shlex.quote(f'@{body}')}"
    lines = [
        f"curl -s {url}/similarity {post}",
        f"curl -s '{url}/match?fpr={ASKED:g}' {post}",
        f"curl -s {url}/models/{NAME}",
    ]
    print(f"\nAsk it. {body} holds an image of a 3, and another 3 and a 0 to compare it with:\n")
    print("\n".join(lines))
    print(
        f"\nWhat the answers mean:\n- fpr={strict:g} has a finite-sample guarantee: with 95% confidence, at most "
        f"{strict:.0%} of pairs of different digits match, whatever the distribution of scores."
    )
    if refusal is None:
        print(f"- fpr={ASKED:g} has the same guarantee.")
    else:
        print(
            f"- fpr={ASKED:g} is answered approximately (guarantee: asymptotic), because this demo sets a policy that "
            f"allows it. Without the policy the answer is a refusal:\n  {refusal}"
        )
    if once:
        scores = client.similarity(left, rights, model=NAME)
        print(f"\nsimilarity: {scores[0]:.6g} for 3 and 3, {scores[1]:.6g} for 3 and 0")
        for fpr in (strict, ASKED):
            answer = client.match(left, rights, fpr=fpr, model=NAME)
            for name, match in zip(("3 and 3", "3 and 0"), answer.matches.tolist(), strict=True):
                print(f"match at fpr={fpr:g}: {name} are {'the same' if match else 'different'}")
            point = answer.operating_point.json
            print(
                f"  a match is a score above {point['threshold']:.3g}: {point['tpr']:.1%} of pairs of the same digit "
                f"match (guarantee: {point['guarantee']}, confidence {point['confidence']:.0%}, {point['protocol']}, "
                f"{point['n_units']} samples)"
            )
            print("operating point: " + json.dumps(point))
    print(f"\nConsole: {url}/   Endpoints: {url}/docs")
    print(
        f"Next: move the slider at {url}/console/models/{NAME}, or train on your own data as README.md shows.",
        flush=True,
    )


def _supported_rate(client: Client, left: list[int], rights: list[list[int]]) -> tuple[float, str | None]:
    """The smallest of a few rates that the calibration supports whatever the distribution of scores, and why `ASKED`,
    the first of them, is refused without the policy; None where it is not."""
    refusal = None
    for rate in RATES:
        try:
            client.match(left, rights, fpr=rate, method="finite-sample", model=NAME)
        except InsufficientCalibration as error:
            refusal = refusal or error.detail
            continue
        return rate, refusal
    raise ClientError(f"no rate up to {RATES[-1]:g} is supported")


if __name__ == "__main__":
    sys.exit(main())
