"""Commands, and the recipes that they run: `python -m experiments.train --exp=NAME`."""

import time

PROCESS_START = time.monotonic()  # before the imports that take seconds
