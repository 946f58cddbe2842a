"""A PostgreSQL of a test run: a server with its own data, on one address, that ends with the run.

Its programs are those of the machine, or Debian's packages, which tests/postgres/install unpacks below the target directory once.
Started as a program, this file prints the URL of a server, which ends with the standard input.
"""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile

from checks import eventually
from process import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ("initdb", "postgres", "psql")


def programs():
    """Returns the folder of the programs, and the variables that they need."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    # The server's account must reach them.
    reached = os.geteuid() or all(folder.stat().st_mode & 1 for folder in [target, *target.parents] if folder.exists())
    unpacked = target / "postgres/root" if reached else pathlib.Path(f"/var/tmp/llmgw-postgres-{os.geteuid()}/root")
    for attempt in range(2):
        for root, libraries in ((pathlib.Path("/"), {}), (unpacked, {"LD_LIBRARY_PATH": f"{unpacked}/usr/lib/{os.uname().machine}-linux-gnu"})):
            for folder in sorted(root.glob("usr/lib/postgresql/*/bin"), reverse=True):
                if all((folder / program).exists() for program in PROGRAMS):
                    return folder, libraries
        if attempt == 0:
            subprocess.run([ROOT / "tests/postgres/install", unpacked], check=True)
    raise SystemExit("postgres: no programs after their installation")


def account():
    """Returns the options of a process of the server: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise SystemExit("postgres: needed: a user `postgres` or `nobody`")


class Postgres:
    """A server with one database, of the name of its user."""

    def __init__(self, host="127.0.0.1", port=None, user="llmgw", password="llmgw", **settings):
        self.folder, self.account = pathlib.Path(tempfile.mkdtemp(prefix="llmgw-postgres-")), account()
        self.bin, libraries = programs()
        self.environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C", **libraries}
        port = port or free_port()
        self.url = f"postgres://{user}:{password}@{host}:{port}/{user}"
        secret, data = self.folder / "password", self.folder / "data"
        secret.write_text(password)
        if self.account:
            for path in (self.folder, secret):
                os.chown(path, self.account["user"], self.account["group"])
        self._run(
            "initdb", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256",
            f"--username={user}", f"--pwfile={secret}", f"--pgdata={data}",
        )  # fmt: skip
        self._run("postgres", "--single", "-F", "-D", data, "postgres", input=f'CREATE DATABASE "{user}"\n'.encode())
        self.settings = {"listen_addresses": host, "port": port, "unix_socket_directories": self.folder, "fsync": "off"} | settings
        self.log = self.folder / "log"
        self.start()

    def start(self):
        """Starts the server, also again after `end`."""
        data = self.folder / "data"
        with self.log.open("ab") as log:
            options = [f"--{name}={value}" for name, value in self.settings.items()]
            command = [self.bin / "postgres", "-D", data, *options]
            self.child = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=log, stderr=log, **self.account)
        status = data / "postmaster.pid"
        eventually(f"PostgreSQL is ready: {self.url}", lambda: status.exists() and status.read_text().rstrip().endswith("\nready"), 30)

    def end(self, how=signal.SIGINT):
        """Ends the server and keeps its data. With SIGQUIT it ends at once, and recovers at its next start."""
        self.child.send_signal(how)
        self.child.wait(30)

    def _run(self, program, *arguments, **options):
        command = [self.bin / program, *arguments]
        done = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, check=False, **options, **self.account)
        if done.returncode or b"ERROR" in done.stderr:
            raise SystemExit(f"postgres: {program}: {done.stdout.decode()}{done.stderr.decode()}")

    def stop(self):
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    # A run that takes too long is ended with its children: the folder is removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Postgres()
    try:
        print(server.url, flush=True)
        sys.stdin.read()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
