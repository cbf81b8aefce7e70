"""What every test runs under."""

import cv2

from facekp_jax import command

OURS = "facekp_jax|data_prep|experiments"


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", f"error:::({OURS})")
    # Compiling is most of the time that the tests take.
    command.use_compilation_cache()
    cv2.setNumThreads(1)
