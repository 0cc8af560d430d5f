"""What processes use: the CPU time of a process and all its threads to the nanosecond, and the memory it holds."""
import os, pathlib, time

PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu(pids):
    """Seconds of CPU, user's and system's, of these processes so far; threads that have ended count. This is the sum that
    /proc/PID/stat shows in hundredths of a second."""
    # The kernel's name for the CPU clock of another process: its id, inverted, and 2 for the scheduler's count.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def settled(pids):
    """The CPU time once nothing more is done: what a proxy does after its answer is its work, too."""
    # The gateway puts some of its work off for half a second.
    last = cpu(pids)
    while True:
        time.sleep(0.7)
        now = cpu(pids)
        if now - last < 0.001:
            return now
        last = now


def memory(pid):
    """Resident bytes."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def family(pid):
    """A process and its children."""
    return [pid, *map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
