"""What a run costs, beside what starting a process costs, in one run on one machine: `python -m benchmarks`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if importlib.util.find_spec("sandboxactor_native") is None:  # a checkout that is not installed
    sys.path.append(str(ROOT / "backends"))
