"""Runs rendered pods as a kubelet and a container runtime would, as far as that goes without them.

The root file system is that of the image (scripts/image), mounted read-only, with the volumes of the pod: the claim as fsGroup leaves
it, the ConfigMap as links that are swapped, /tmp. The process gets exactly the variables of the manifest, its user, group and
fsGroup, no capability and no new privilege. Not applied: the seccomp profile, limits of resources, network policies, preStop.
"""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/sdk")]

from checks import eventually  # noqa: E402
from postgres import Postgres  # noqa: E402

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, CAPABILITIES = 24, 38, 64
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, flags):
    if libc.mount(str(source).encode(), str(target).encode(), None, flags, None):
        raise OSError(ctypes.get_errno(), f"mount {source} at {target}")


def root_of_image(binary, folder):
    """Builds the image and returns a copy of its root file system."""
    buildah = f"buildah --storage-driver vfs --root {folder}/store --runroot {folder}/run"
    environment = os.environ | {"BUILDAH": buildah}
    subprocess.run([ROOT / "scripts/image", binary, "llmgw:test"], env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [*buildah.split(), "from", "--pull-never", "llmgw:test"]
    container = subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
    command = [*buildah.split(), "mount", container]
    shutil.copytree(subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip(), folder / "root", symlinks=True)
    return folder / "root"


def write_config_map(folder, data):
    """As the kubelet does: a new folder, and a link to it that is swapped."""
    version = pathlib.Path(tempfile.mkdtemp(prefix="..", dir=folder))
    version.chmod(0o755)
    for name, text in data.items():
        (version / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(version.name)
    os.replace(folder / "..data_tmp", folder / "..data")


def variables(container, secrets, pod):
    """The environment of the container, as the kubelet resolves it; `env` takes precedence over `envFrom`."""
    found = {}
    for source in container["envFrom"]:
        found |= secrets[source["secretRef"]["name"]]
    for entry in container["env"]:
        match entry.get("valueFrom", {}):
            case {"secretKeyRef": reference}:
                value = secrets[reference["name"]][reference["key"]]
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                value = pod
            case _:
                value = entry["value"]
        found[entry["name"]] = value
    return found


class Pod:
    """The one container of the first rendered pod."""

    def __init__(self, rendered, root, folder):
        manifests = {manifest["kind"]: manifest for manifest in rendered}
        secrets = {manifest["metadata"]["name"]: manifest["stringData"] for manifest in rendered if manifest["kind"] == "Secret"}
        self.name = manifests["StatefulSet"]["metadata"]["name"] + "-0"
        template = manifests["StatefulSet"]["spec"]["template"]["spec"]
        self.container, self.security = template["containers"][0], template["securityContext"]
        self.grace = template["terminationGracePeriodSeconds"]
        self.environment = variables(self.container, secrets, self.name)
        self.root, self.folder = root, folder
        self.mounts = {entry["name"]: entry["mountPath"] for entry in self.container["volumeMounts"]}
        sources = {entry["name"]: entry for entry in template["volumes"]}
        sources |= {entry["metadata"]["name"]: entry for entry in manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]}
        for name, path in self.mounts.items():
            volume = folder / "volumes" / name
            volume.mkdir(parents=True)
            if name == "state":
                (volume / "lost+found").mkdir(mode=0o700)
            if "configMap" in sources[name]:
                write_config_map(volume, manifests["ConfigMap"]["data"])
            else:
                # What fsGroup makes of a new volume.
                os.chown(volume, 0, self.security["fsGroup"])
                volume.chmod(0o2775)
            (root / path.lstrip("/")).mkdir(exist_ok=True)
        self.config = folder / "volumes/config"
        self.port = self.container["ports"][0]["containerPort"]

    def enter(self):
        """Runs in the child, before the command."""
        libc.unshare(CLONE_NEWNS)
        mount("none", "/", MS_REC | MS_PRIVATE)
        mount(self.root, self.root, MS_BIND)
        for name, path in self.mounts.items():
            target = self.root / path.lstrip("/")
            mount(self.folder / "volumes" / name, target, MS_BIND)
            if name == "config":
                mount("none", target, MS_REMOUNT | MS_BIND | MS_RDONLY)
        if self.container["securityContext"]["readOnlyRootFilesystem"]:
            mount("none", self.root, MS_REMOUNT | MS_BIND | MS_RDONLY)
        os.chroot(self.root)
        os.chdir("/")
        if "ALL" in self.container["securityContext"]["capabilities"]["drop"]:
            for capability in range(CAPABILITIES):
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups([self.security["fsGroup"]])
        os.setgid(self.security["runAsGroup"])
        os.setuid(self.security["runAsUser"])
        if not self.container["securityContext"]["allowPrivilegeEscalation"]:
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    def start(self, *arguments, **options):
        return subprocess.Popen(["/llmgw", *arguments], env=self.environment, preexec_fn=self.enter, **options)

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers |= {"x-api-key": self.environment["LLMGW_API_KEY"], "Content-Type": "application/json"}
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def probe(self, name):
        try:
            return self.ask("GET", self.container[name]["httpGet"]["path"])[0]
        except OSError:
            return 0


def check_start(checks, pod, process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines())
    checks.check("it runs as user 65532", facts["Uid"].split()[0] == "65532" and facts["Gid"].split()[0] == "65532")
    checks.check("it has no capability", int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0)
    checks.check("it can get no privilege", facts["NoNewPrivs"].strip() == "1")
    options = pathlib.Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()
    root = [line.split()[5] for line in options if line.split()[4] == "/"]
    checks.check(f"its root is read-only: {root}", root and all("ro" in flags.split(",") for flags in root))
    state = pod.folder / "volumes/state/llmgw"
    checks.check("the state is its own, and closed to others", (state.stat().st_uid, state.stat().st_mode & 0o777) == (65532, 0o700))
    doctor = pod.start("doctor", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = doctor.communicate()[0]
    checks.check(f"the doctor finds no fault: {found}", doctor.returncode == 0)
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        checks.check(f"the {name} succeeds", pod.probe(name) == 200)


def check_reload(checks, pod, rendered):
    maps = [manifest for manifest in yaml.safe_load_all(rendered) if manifest and manifest["kind"] == "ConfigMap"]
    question = {"model": "slow/second", "messages": [{"role": "user", "content": "Hello"}]}
    before = pod.ask("GET", "/v1/models")[1]
    write_config_map(pod.config, maps[0]["data"])
    reloaded = lambda: "slow/second" in pod.ask("GET", "/v1/models")[1]
    try:
        eventually("the changed ConfigMap reloads", reloaded, 10)
        checks.check("a changed ConfigMap reloads", "slow/second" not in before)
    except AssertionError as error:
        checks.check(f"{error}; {before}", False)
    return question


def check_stop(checks, pod, process, question):
    """A stream that ends within the drain is whole; the process ends in order, within the grace period."""
    answer = []
    stream = threading.Thread(target=lambda: answer.append(pod.ask("POST", "/v1/chat/completions", question | {"stream": True})))
    stream.start()
    eventually("the stream has begun", lambda: '"stage"' in pod.ask("GET", "/admin/api/running")[1], 10)
    stopped = time.monotonic()
    process.send_signal(signal.SIGTERM)
    eventually("/ready is 503", lambda: pod.probe("readinessProbe") == 503, 1)
    checks.check("it lives while it drains", pod.probe("livenessProbe") == 200)
    code = process.wait(pod.grace)
    stream.join(5)
    took = time.monotonic() - stopped
    checks.check(f"a stream of 5 s is not cut by a stop: {answer}", answer and answer[0][0] == 200 and "[DONE]" in answer[0][1])
    checks.check(f"it ends in order after {took:.1f} s of {pod.grace}", code == 0 and 2 < took < pod.grace)


def check_node(checks, pod):
    """A node keeps its state in PostgreSQL, and is the same node when it starts again on its volume."""
    postgres = Postgres(port=5432)
    try:
        for turn in ("first", "second"):
            with running(checks, pod) as process:
                listed = json.loads(pod.ask("GET", "/admin/api/nodes")[1])["data"]
                names = [(node["name"], node["standing"]) for node in listed]
                checks.check(f"the {turn} start is the node of the pod's name: {names}", names == [(pod.name, "live")])
                process.send_signal(signal.SIGTERM)
                code = process.wait(pod.grace)
                checks.check(f"the node ends in order: {code}", code == 0)
        kept = {path.name for path in (pod.folder / "volumes/state/llmgw").iterdir()}
        checks.check(f"the volume has the node and no state: {kept}", "node.json" in kept and "gateway.db" not in kept)
    finally:
        postgres.stop()


@contextlib.contextmanager
def running(checks, pod):
    """Runs the pod until the end of the block. Prints its log if a check fails."""
    failed, log = checks.failed, pod.folder / "log"
    with log.open("w") as out:
        process = pod.start("serve", stdout=out, stderr=subprocess.STDOUT)
        try:
            eventually("the pod is ready", lambda: pod.probe("readinessProbe") == 200 or process.poll() is not None, 60)
            yield process
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            checks.check(f"{type(error).__name__}: {error}", False)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if checks.failed > failed:
        print(log.read_text()[-3000:], flush=True)


def run(checks, binary, sets, render):
    """Runs the pods of values/pod.yaml and values/node.yaml."""
    # A network of its own, so that the ports are free.
    if libc.unshare(CLONE_NEWNET):
        raise SystemExit("helm: the pod needs root, for its namespaces and its user")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        folder.chmod(0o755)
        root = root_of_image(binary, folder)
        pod = Pod(sets["pod"], root, folder / "one")
        with running(checks, pod) as process:
            check_start(checks, pod, process)
            models = '[{"id":"first"},{"id":"second"}]'
            question = check_reload(checks, pod, render("--set-json", f"config.providers.slow.models={models}"))
            check_stop(checks, pod, process, question)
        check_node(checks, Pod(sets["node"], root, folder / "node"))
