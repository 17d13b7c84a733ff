"""A parent that is killed at any moment leaves no process behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from aircomp.engines.worker import begin
from helpers.processes import alive, descendants

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's"),
]

POOL = """
import time
if __name__ == "__main__":
    from aircomp.engines.pool import workers
    with workers(2) as crew:
        futures = [crew.submit(time.sleep, 60) for _ in range(2)]
        print("begun", flush=True)
        while True:
            crew.finished(futures)
"""
PATIENCE = 5.0  # seconds


def wait_until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("moment", [0.0, 0.3, 3.0], ids=["while they start", "while they import", "while they work"])
def test_a_killed_parent_leaves_no_worker(tmp_path, moment):
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"begun\n"
        assert wait_until(lambda: len(descendants(parent.pid)) >= 2, 10)
        time.sleep(moment)
        left = descendants(parent.pid)
        parent.kill()
        parent.wait()
    assert left
    assert wait_until(lambda: not alive(left), PATIENCE), f"{len(alive(left))} of {len(left)} processes are left"


def test_a_worker_whose_parent_is_gone_ends_at_once():
    pid = os.fork()
    if pid == 0:
        begin(parent=1)  # another process than the one that started this one
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_a_worker_is_tied_before_anything_slow_is_imported():
    said = "import sys, aircomp.engines.worker; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", said], text=True).strip() == "[]"


def test_a_tied_worker_gets_the_signal_of_its_parents_death():
    before, (read, write) = signal.getsignal(signal.SIGINT), os.pipe()
    parent = os.fork()
    if parent == 0:
        child = os.fork()
        if child == 0:
            begin(os.getppid())
            os.write(write, str(os.getpid()).encode())
            time.sleep(60)
        time.sleep(60)
    child = int(os.read(read, 20))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert wait_until(lambda: not alive({child}), PATIENCE)
    assert signal.getsignal(signal.SIGINT) == before


SPEAKING = """
import logging
def speak():
    logging.getLogger("aircomp.somewhere").warning("heard")
if __name__ == "__main__":
    from aircomp.engines.pool import workers
    with workers(1) as crew:
        said = crew.submit(speak)
        while not crew.finished([said]):
            pass
"""


def test_log_lines_of_workers_begin_with_their_logger(tmp_path):
    script = tmp_path / "speaking.py"
    script.write_text(SPEAKING)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stderr
    assert said.splitlines() == ["aircomp.somewhere: heard"]
