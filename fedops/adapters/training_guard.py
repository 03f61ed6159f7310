"""Stands between fedops and a site's training code, so that no training outlives the fedops that asked for it.

    python training_guard.py FD PROGRAM ARGUMENT…

FD is the reading end of a pipe whose other end fedops alone holds open. When that end is gone, so is fedops: killed, or
out of memory. The guard then kills its process group, which is the program and all that it started; a second training
would otherwise have to share memory and graphics card with the first. Only for POSIX; stdlib alone, to start fast.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress


def main(life: int, command: list[str]) -> int:
    """Run the program to its end; returns its exit code, negative if a signal ended it."""
    process = subprocess.Popen(command)
    # fedops ends the whole group politely first; the program may need its time for that, and we wait for it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    return process.wait()


def _end_with(life: int) -> None:
    """Wait until the other end of the pipe is closed."""
    while os.read(life, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    if code < 0:  # end as the program did, so that fedops can say how
        with suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)  # noqa: TID251 a program of its own
