"""A network with nothing in it: what clients want from outside is not there."""
import os, subprocess, sys

INSIDE = "EPITOME_GATEWAY_INSIDE"


def leave():
    """Goes on in a namespace that has only loopback: whatever a client wants from the network is not there."""
    if os.environ.get(INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    elif subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.environ[INSIDE] = "1"
        sys.stdout.flush()
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    else:
        print("no network namespace without root: the clients run with the network", file=sys.stderr)
