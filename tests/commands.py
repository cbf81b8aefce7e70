"""Commands as a user runs them, and what they leave."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments, status=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stderr[-3000:]
    return done


def result(done):
    return json.loads(done.stdout.splitlines()[-1])


def losses(workdir):
    """Logged objects without the speed, which differs from run to run."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [
        {key: v for key, v in json.loads(line).items() if key != "images_per_second"}
        for line in lines
    ]
