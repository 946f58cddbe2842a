"""Renders files of Docker Compose, without an engine.

podman-compose does it, which is installed into the user's cache: `docker compose config` would do as well, but not every machine has
Docker. Podman itself is not needed either; podman-compose only asks for its version, so a wrapper reports one.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

VERSION = "1.6.0"


def renderer():
    """Returns the folder of the programs of podman-compose."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    folder = cache / "llmgw-checks" / f"podman-compose-{VERSION}"
    if not (folder / "bin/podman-compose").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"podman-compose=={VERSION}"], check=True)
    return folder / "bin"


def services(file, shell):
    """Returns the services of the file, with these variables set in the shell and those of the file `.env` beside it."""
    tools = renderer()
    with tempfile.TemporaryDirectory() as folder:
        podman = pathlib.Path(folder, "podman")
        podman.write_text("#!/bin/sh\necho podman version 5.0.0\n")
        podman.chmod(0o755)
        environment = {**shell, "PATH": f"{folder}:{tools}:{os.environ['PATH']}", "HOME": folder}
        done = subprocess.run([tools / "podman-compose", "-f", file, "config"], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{file} cannot be rendered: {done.stderr}")
    load = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
    parsed = subprocess.run([tools / "python", "-c", load], input=done.stdout, capture_output=True, text=True, check=True)
    return json.loads(parsed.stdout)["services"]
