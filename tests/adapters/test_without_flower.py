"""Without Flower: the core does not miss it, and what needs it says so."""

import subprocess
import sys

import pytest

SENTENCE = "this needs the extra 'flower', which is not installed: pip install 'aircomp[flower]'"
CODE = """
import sys
sys.modules["flwr"] = None  # what an import of a missing package comes to
import aircomp.adapters
from aircomp import *  # every public name, which are imported when first used
try:
    import aircomp.adapters.flower
except ImportError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.process
def test_the_core_needs_no_flower_and_the_adapter_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.strip() == f"MissingExtra: {SENTENCE}", done.stderr
    assert done.returncode == 0
