"""nginx as a plain reverse proxy, to compare with.

As people set it up who care: no access log, connections to the provider kept open, and buffers large enough that no body is
written to a file. Streams are passed on as they come.
"""
import os, pathlib, shutil, socket, subprocess, sys, time

from processes import family

CONFIG = """
daemon off;
worker_processes 2;
worker_rlimit_nofile 16384;
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 0;
    client_body_buffer_size 2m;
    keepalive_requests 1000000;
    upstream provider {{ server {upstream}; keepalive 128; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""


class Nginx:
    """A running nginx before `upstream`."""

    def __init__(self, folder, upstream):
        install()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        user = "user root;" if os.geteuid() == 0 else ""
        text = CONFIG.format(folder=folder, port=port, upstream=upstream.removeprefix("http://"), user=user)
        path = pathlib.Path(folder) / "nginx.conf"
        path.write_text(text)
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([program(), "-c", path, "-e", f"{folder}/nginx.log"], stderr=subprocess.DEVNULL)
        self.wait(port)

    def wait(self, port):
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit("nginx did not start")

    def pids(self):
        return family(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def program():
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def install():
    if not program():
        subprocess.run(["apt-get", "install", "--yes", "nginx"], check=True, stdout=subprocess.DEVNULL)
