"""Settings that have to be made before torch is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two pytest workers on two cores: more threads only wait for each other
