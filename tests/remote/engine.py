"""A remote execution service and an HTTP cache on loopback, as child processes that end with this one.

    bazel ──▶ nginx ──▶ bgd (BuildGrid: execution, scheduler) ──▶ postgres
                │           │               ▲
                ▼           ▼               │
           buildbox-casd (cache) ◀── buildbox-worker ×2, which run each action in bubblewrap

nginx gives the services one address. It is also the HTTP cache.

An action sees its declared inputs and, of the machine, only the folders in `_HOST`: the C++ compiler, and system libraries.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tools.bazelw import prefix

from .install import Installed

# The folders of the machine that actions see, read-only.
_HOST = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0

_SERVER = """\
server:
  - !channel
    address: "127.0.0.1:{port}"
    insecure-mode: true

authorization:
  method: none

monitoring:
  enabled: false

connections:
  - !sql-connection &sql
    # Without the driver's name, SQLAlchemy takes another driver, and the scheduler starves silently.
    connection-string: "{database}"

storages:
  - !remote-storage &storage
    url: "{cache}"

caches:
  - !remote-action-cache &actions
    url: "{cache}"

schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    storage: *storage
    action-cache: *actions
    bot-session-keepalive-timeout: 20
    property-set:
      !dynamic-property-set
      match-property-keys: [OSFamily]
    assigners:
      - !priority-age-assigner
        count: 2
        interval: 0.2
        priority-assignment-percentage: 95

instances:
  - name: ''
    services:
      - !action-cache
        cache: *actions
      - !execution
        scheduler: *scheduler
      - !cas
        storage: *storage
      - !bytestream
        storage: *storage
      - !bots
        scheduler: *scheduler

thread-pool-size: 60
"""

# Time limits are long, because a call can last as long as an action.
_NGINX = """\
daemon off;
master_process off;
pid {home}/nginx.pid;
worker_rlimit_nofile 16384;
events {{ worker_connections 16384; }}
http {{
  log_format bytes '$uri $request_length $bytes_sent';
  access_log {home}/requests.log bytes;
  client_body_temp_path {home}/nginx.body;
  proxy_temp_path {home}/nginx.proxy;
  fastcgi_temp_path {home}/nginx.fastcgi;
  uwsgi_temp_path {home}/nginx.uwsgi;
  scgi_temp_path {home}/nginx.scgi;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  keepalive_time 24h;
  keepalive_timeout 24h;
  client_body_timeout 24h;
  grpc_read_timeout 24h;
  grpc_send_timeout 24h;
  upstream casd {{ server 127.0.0.1:{cache}; keepalive 16; }}
  upstream bgd {{ server 127.0.0.1:{server}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    http2 on;
    http2_max_concurrent_streams 1000;
    location / {{ grpc_pass grpc://bgd; }}
    location /google.bytestream.ByteStream/ {{ grpc_pass grpc://casd; }}
    location /build.bazel.remote.execution.v2.ActionCache/ {{ grpc_pass grpc://casd; }}
    location /build.bazel.remote.execution.v2.ContentAddressableStorage/ {{ grpc_pass grpc://casd; }}
  }}
  server {{
    listen 127.0.0.1:{http};
    root {home}/http;
    location / {{
      dav_methods PUT;
      create_full_put_path on;
    }}
  }}
}}
"""


class EngineError(Exception):
    """A server doesn't do what it should. The message names its log."""


class Process:
    """A server that runs until `stop`, `kill`, or the end of this process."""

    def __init__(self, name: str, home: Path, environ: dict[str, str]) -> None:
        self.name = name
        self.log = home / f"{name}.log"
        self._environ = environ
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], ready: Callable[[], bool]) -> None:
        """Starts the server, and waits until it is ready. Raises EngineError if it isn't within a minute."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                # Linux kills the server if this process dies.
                ["setpriv", "--pdeathsig", "KILL", *command],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + _START_TIMEOUT
        while not ready():
            if self._child.poll() is not None or time.monotonic() > end:
                self.kill()
                words = prefix.last_words(self.log.read_text(encoding="utf-8", errors="replace"))
                raise EngineError(f"{self.name} doesn't start: {words} (all of it: {self.log})")
            time.sleep(0.1)

    def stop(self) -> None:
        """Asks the server to end, and kills what is left of it."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_STOP_TIMEOUT)
        self.kill()

    def busy(self) -> bool:
        """Returns whether the server has child processes."""
        if self._child is None:
            return False
        pid = self._child.pid
        try:
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            return any((thread / "children").read_text(encoding="utf-8").strip() for thread in threads)
        except OSError:
            return False

    def kill(self) -> None:
        """Kills the server and its children at once, as a crash would."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
            self._child = None


class Engine:
    """The servers, with all their state in the folder `home`. A context manager; leaving it ends them.

    Args:
      installed: The programs.
      home: A folder for state and logs. The caller removes it.
      port: Port of the executor on loopback; 0 means any.
      workers: How many workers to start. Each runs one action at a time.
    """

    def __init__(self, installed: Installed, home: Path, port: int = 0, workers: int = 2) -> None:
        self._programs = installed
        self.home = home
        self._port = port or _free_port()
        self._http_port = _free_port()
        self._server_port = _free_port()
        self._casd_port = _free_port()
        self._postgres_port = _free_port()
        self._password = secrets.token_hex(16)
        path = f"{installed.prefix}/usr/bin:{os.environ['PATH']}"
        environ = {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC", "TMPDIR": str(home)}
        self._environ = environ
        self.postgres = Process("postgres", home, environ)
        self.server = Process("server", home, environ)
        self.casd = Process("casd", home, environ)
        self.workers = [Process(f"worker{number}", home, environ) for number in range(1, workers + 1)]
        self.nginx = Process("nginx", home, environ)

    @property
    def executor(self) -> str:
        """The address for Bazel's --remote_executor, which has a cache too."""
        return f"grpc://127.0.0.1:{self._port}"

    @property
    def http_cache(self) -> str:
        """The address of the HTTP cache, for Bazel's --remote_cache."""
        return f"http://127.0.0.1:{self._http_port}"

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes that clients have sent to the servers, and received from them, headers included."""
        sent = received = 0
        for line in (self.home / "requests.log").read_text(encoding="utf-8").splitlines():
            _, request, answer = line.rsplit(" ", 2)
            sent += int(request)
            received += int(answer)
        return sent, received

    def __enter__(self) -> Engine:
        """Starts all servers."""
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            self.start_postgres()
            self.start_casd()
            self.start_server()
            for number in range(len(self.workers)):
                self.start_worker(number)
            self.start_nginx()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends all servers."""
        self.stop()

    def stop(self) -> None:
        """Ends all servers."""
        for process in (*self.workers, self.casd, self.server, self.postgres, self.nginx):
            process.stop()

    def start_postgres(self) -> None:
        """Starts the database in a new cluster."""
        data = self.home / "postgres"
        # PostgreSQL refuses to run as root. In a user namespace of its own, root has another number but the same files.
        user = ["unshare", "--user", "--map-user=1000"] if os.getuid() == 0 else []
        password = self.home / "password"
        password.write_text(self._password, encoding="utf-8")
        initdb = [str(self._programs.postgres / "initdb"), "-D", str(data), "-U", "bgd", f"--pwfile={password}"]
        prefix.run([*user, *initdb, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"], self._environ)
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self._postgres_port}",
            "unix_socket_directories=",
            "fsync=off",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        command = [*user, str(self._programs.postgres / "postgres"), "-D", str(data), *options]
        self.postgres.start(command, lambda: _listens(self._postgres_port))

    def start_server(self) -> None:
        """Starts BuildGrid. What an earlier one stored is in the cache and in the database."""
        database = f"postgresql+psycopg2://bgd:{self._password}@127.0.0.1:{self._postgres_port}/postgres"
        config = self.home / "server.yml"
        config.write_text(
            _SERVER.format(port=self._server_port, database=database, cache=_local(self._casd_port)), encoding="utf-8"
        )
        bgd = str(self._programs.venv / "bgd")
        prefix.run([bgd, "migrate", "apply", database], self._environ)
        self.server.start([bgd, "server", "start", str(config)], lambda: _listens(self._server_port))

    def start_casd(self) -> None:
        """Starts the cache. Workers link files from its folder, so TensorFlow is there once."""
        command = [str(self._programs.prefix / "usr/bin/buildbox-casd"), f"--bind=127.0.0.1:{self._casd_port}"]
        self.casd.start([*command, str(self.home / "casd")], lambda: _listens(self._casd_port))

    def start_worker(self, number: int) -> None:
        """Starts a worker. The server knows about it a moment later."""
        programs = self._programs.prefix / "usr/bin"
        command = [str(programs / "buildbox-worker"), f"--bots-remote={_local(self._server_port)}"]
        command += [f"--cas-remote={_local(self._casd_port)}", "--bots-retry-limit=1000"]
        command += [f"--buildbox-run={programs / 'buildbox-run-bubblewrap'}"]
        command += [
            f"--runner-arg=--ro-bind-mount={os.path.realpath(path)}:{path}" for path in _HOST if os.path.exists(path)
        ]
        command += ["--concurrent-jobs=1", "--platform", "OSFamily=linux", f"worker{number + 1}"]
        self.workers[number].start(command, lambda: True)

    def start_nginx(self) -> None:
        """Starts the server that clients talk to."""
        (self.home / "http").mkdir(exist_ok=True)
        config = self.home / "nginx.conf"
        ports = {"port": self._port, "http": self._http_port, "cache": self._casd_port, "server": self._server_port}
        config.write_text(_NGINX.format(home=self.home, **ports), encoding="utf-8")
        program = str(self._programs.prefix / "usr/sbin/nginx")
        command = [program, "-p", str(self.home), "-c", str(config), "-e", "stderr"]
        self.nginx.start(command, lambda: _listens(self._port))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True
    except OSError:
        return False


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"
