"""Runs the harnesses directly and through the gateway, and compares scores, outputs, token counts and records."""

import argparse
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))

from process import Process, ended_well, free_port, start_gateway, wait_until_answers  # noqa: E402

MODEL = "smollm2-135m"
CONFIG = """\
providers:
  sums:
    type: compatible
    base_url: {sums}/v1
    api_key: sk-scripted-sums
    models: [{{id: m, prices: {{input: 1, output: 5}}}}]
  limited:
    type: compatible
    base_url: {limited}/v1
    api_key: sk-scripted-limited
    models: [m]
  real:
    type: local_server
    base_url: {real}/v1
    timeout: 300                    # a machine busy with other things is slow, not broken
    models: [{model}]
"""

LM_EVAL_TASK = """\
task: sums
dataset_path: json
dataset_kwargs:
  data_files: {{test: {questions}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 8, temperature: 0}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""


class Checks:
    passed = failed = 0

    def check(self, name, is_so, detail=""):
        self.passed, self.failed = self.passed + bool(is_so), self.failed + (not is_so)
        print(f"{'ok    ' if is_so else 'FAILED'}  {name}{'' if is_so else f': {detail}'}", flush=True)


class Admin:
    def __init__(self, origin, key):
        self.origin, self.key = origin, key
        self.project = self.call("POST", "projects", {"name": "runs"})["id"]

    def call(self, method, path, body=None):
        headers = {"x-api-key": self.key, "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.origin}/admin/api/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def key_of(self, run):
        """Mints a key whose requests have the tag of this run."""
        return self.call("POST", "keys", {"name": run, "project": self.project, "tags": {"run": run}})["key"]

    def run(self, run):
        """Returns the figures of a run."""
        groups = self.call("GET", f"series?group_by=tag:run&step=all&tag.run={run}")["groups"]
        return {name: values[0] for name, values in groups[0]["points"].items()}


class Harness:
    """Runs the two harnesses in a directory."""

    def __init__(self, directory, questions):
        self.directory = pathlib.Path(directory)
        self.bin = pathlib.Path(sys.executable).parent
        self.questions = self.directory / "questions.jsonl"
        rows = [{"question": f"What is {n} plus {n + 1}?", "answer": str(2 * n + 1)} for n in range(questions)]
        self.questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
        shutil.copy(HERE / "sums.py", self.directory)
        (self.directory / "sums.yaml").write_text(LM_EVAL_TASK.format(questions=self.questions))

    def execute(self, name, command, environment):
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "INSPECT_DISPLAY": "plain"}
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=self.directory, env=os.environ | offline | environment, capture_output=True, text=True, timeout=900
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return time.monotonic() - started

    def lm_eval(self, run, origin, key, model, at_once, limit=None, retries=3):
        """Returns the score, the outputs by question and the seconds."""
        output = self.directory / f"lm-{run}"
        arguments = f"model={model},base_url={origin}/v1/chat/completions,num_concurrent={at_once},max_retries={retries}"
        command = [str(self.bin / "lm_eval"), "--model", "local-chat-completions", "--model_args", arguments, "--tasks", "sums"]
        command += ["--include_path", str(self.directory), "--apply_chat_template", "--log_samples", "--output_path", str(output)]
        command += ["--limit", str(limit)] if limit else []
        seconds = self.execute(f"lm-eval ({run})", command, {"OPENAI_API_KEY": key})
        score = json.loads(next(output.rglob("results_*.json")).read_text())["results"]["sums"]["exact_match,none"]
        samples = [json.loads(line) for line in next(output.rglob("samples_*.jsonl")).read_text().splitlines()]
        return score, {sample["doc_id"]: sample["resps"] for sample in samples}, seconds

    def inspect(self, run, origin, key, model, at_once, limit=None):
        """Returns the score, the outputs by question and the seconds."""
        logs = self.directory / f"inspect-{run}"
        command = [str(self.bin / "inspect"), "eval", "sums.py", "--model", f"openai-api/gw/{model}"]
        command += ["--max-connections", str(at_once), "--max-samples", str(at_once), "--temperature", "0", "--max-tokens", "8"]
        command += ["--log-dir", str(logs), "--log-format", "json", "--no-fail-on-error"]
        command += ["--limit", str(limit)] if limit else []
        environment = {"GW_API_KEY": key, "GW_BASE_URL": f"{origin}/v1", "HARNESS_QUESTIONS": str(self.questions)}
        seconds = self.execute(f"inspect ({run})", command, environment)
        log = json.loads(next(logs.glob("*.json")).read_text())
        score = log["results"]["scores"][0]["metrics"]["mean"]["value"]
        outputs = {sample["id"]: sample["output"]["completion"] for sample in log["samples"]}
        return score, outputs, seconds


def compare(checks, name, direct, through, questions):
    checks.check(f"{name}: the score is the same ({through[0]})", direct[0] == through[0], f"{direct[0]} and {through[0]}")
    differing = [key for key in direct[1] if direct[1][key] != through[1].get(key)]
    is_whole = len(direct[1]) == len(through[1]) == questions
    checks.check(f"{name}: {questions} outputs are identical", is_whole and not differing, f"{len(through[1])}, differing {differing[:5]}")
    print(f"figure  {name}: {direct[2]:.1f} s direct, {through[2]:.1f} s through the gateway", flush=True)


def scripted(checks, harness, admin, upstream, origin):
    """Both harnesses at an upstream without limits."""
    for kind, harness_run, count in [("lm-eval", harness.lm_eval, 400), ("inspect", harness.inspect, 100)]:
        direct = harness_run(f"{kind}-direct", upstream, "sk-direct", "m", 64, count)
        through = harness_run(kind, origin, admin.key_of(kind), "sums/m", 64, count)
        compare(checks, kind, direct, through, count)
        figures = admin.run(kind)
        want = {"requests": count, "completed": count, "input": 4 * count, "output": count, "cost_micro_usd": 9 * count}
        found = {name: figures[name] for name in want}
        checks.check(f"{kind}: requests, tokens and cost of the run are exact", found == want, f"{found} and not {want}")
    client = admin.call("GET", "requests?limit=1&tag.run=inspect")["data"][0]["client"]
    checks.check("inspect is recorded as the client", client == "inspect-ai", client)


def rate_limited(checks, harness, admin, upstream, origin):
    """256 requests at once at an upstream that answers 64 at once: no answer but those of the upstream."""
    count = 600
    direct = harness.lm_eval("limited-direct", upstream, "sk-direct", "m", 256, count, retries=60)
    through = harness.lm_eval("limited", origin, admin.key_of("limited"), "limited/m", 256, count, retries=60)
    compare(checks, "rate-limited lm-eval", direct, through, count)
    print(f"figure  rate-limited lm-eval: {through[2] / direct[2]:.2f} of the direct time", flush=True)
    inspect = harness.inspect("limited", origin, admin.key_of("limited-inspect"), "limited/m", 200, 300)
    checks.check("rate-limited inspect: every sample is right", inspect[0] == 1.0 and len(inspect[1]) == 300, inspect[0])
    foreign = [row for run in ("limited", "limited-inspect") for row in foreign_answers(admin, run)]
    checks.check("no answer that the upstream did not give", not foreign, f"{len(foreign)}, such as {foreign[:2]}")


def foreign_answers(admin, run):
    """Returns the failures of a run that are not the upstream's own 429."""
    rows, cursor = [], ""
    while True:
        page = admin.call("GET", f"requests?limit=500&tag.run={run}&failed=true{cursor}")
        rows += page["data"]
        if not page["next_cursor"]:
            is_own = [row["status"] == 429 and "status" in row["results"] for row in rows]
            return [(row["status"], row["error"], row["results"]) for row, own in zip(rows, is_own) if not own]
        cursor = f"&cursor={page['next_cursor']}"


def real(checks, harness, admin, upstream, origin):
    """Both harnesses at a real model, one request after the other."""
    for kind, harness_run in [("lm-eval", harness.lm_eval), ("inspect", harness.inspect)]:
        direct = harness_run(f"{kind}-real-direct", upstream, "sk-direct", MODEL, 1, 4)
        through = harness_run(f"{kind}-real", origin, admin.key_of(f"{kind}-real"), f"real/{MODEL}", 1, 4)
        compare(checks, f"{kind} at a real model", direct, through, 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--model-python", required=True)
    arguments = parser.parse_args()
    checks, upstreams = Checks(), []

    def scripted_upstream(*options):
        upstreams.append(Process("a scripted upstream", [sys.executable, "-u", str(HERE / "upstream.py"), *options]))
        return upstreams[-1].wait_for(r"listening on (http://\S+)", 30)

    with tempfile.TemporaryDirectory() as directory:
        sums, limited = scripted_upstream("100000"), scripted_upstream("64", "0.2")
        port = free_port()
        server = str(HERE.parent / "real_model" / "chat_server.py")
        model = Process("the model server", [arguments.model_python, "-u", server, str(port)])
        upstreams.append(model)
        address = f"http://127.0.0.1:{port}"
        wait_until_answers(f"{address}/health", model, 60)
        key = secrets.token_urlsafe(32)
        config = CONFIG.format(sums=sums, limited=limited, real=address, model=MODEL)
        gateway, origin = start_gateway(arguments.gateway, config, key, directory)
        harness, admin = Harness(directory, 600), Admin(origin, key)
        for part, upstream in [(scripted, sums), (rate_limited, limited), (real, address)]:
            try:
                part(checks, harness, admin, upstream, origin)
            except RuntimeError as error:
                checks.check(part.__name__, False, error)
        checks.check("the gateway ends with 0", ended_well(gateway, checks.failed))
        for upstream in upstreams:
            upstream.stop()
    print(f"harnesses: {checks.passed} passed, {checks.failed} failed")
    sys.exit(checks.failed != 0)


main()
