"""What a worker process does before anything else. No import here takes long: until it is done, a worker is nobody's.

A process that is started while its parent is killed would otherwise import torch and then wait for ever for something to do.
What a user's script imports at its top comes before this, as `multiprocessing` has it; the worker ends right after it then.
"""

import ctypes
import os
import signal
import sys

from aircomp.common.logs import log_as_asked


def begin(parent: int) -> None:
    """Tie this process to its parent, and let it log as that does.

    Args:
        parent: The process that started this one; where that is gone already, this one ends.
    """
    follow_parent()
    if os.getppid() != parent:  # it was killed before this process was tied to it
        os._exit(1)
    log_as_asked()


def follow_parent() -> None:
    """Make this process end when its parent is killed (on Linux), and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
