"""Starts an upstream, the gateway and Prometheus, sends requests of many kinds, and checks what Prometheus has of them."""

import argparse
import concurrent.futures
import http.client
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs" / "monitoring"
sys.path[:0] = [str(HERE), str(HERE.parent / "sdk")]

import upstream  # noqa: E402
from checks import Checks  # noqa: E402
from process import Process, ended_well, start_gateway, wait_until_answers  # noqa: E402

KEY = "administrator-key-of-the-prometheus-suite"
PRICES = "{input: 3, cached_input: 0.3, output: 15}"
CONFIG = """
providers:
  main: {{type: compatible, base_url: "{url}", api_key: k, models: [{{id: m, prices: {prices}}}, cut, endless]}}
  failing: {{type: compatible, base_url: "{url}", api_key: k, models: [broken]}}
endpoints:
  line: {{failover: [{{provider: failing, model: broken}}, {{provider: main, model: m}}]}}
policies:
  defaults: {{retry_max_attempts: 1, circuit_failure_threshold: 3, circuit_cooldown_seconds: 600}}
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: llmgw
    authorization: {{credentials: "{key}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""
DURATION = "gen_ai_server_request_duration_seconds"
# In a query: texts, durations, then names.
TOKEN = re.compile(r'"[^"]*"|\[[^\]]*\]|[A-Za-z_:][\w:]*')
WORDS = {"by", "sum", "rate", "increase", "histogram_quantile", "or", "and", "without", "max"}


class Server:
    """The running Prometheus."""

    def __init__(self, origin):
        self.origin = origin

    def get(self, path, **parameters):
        url = f"{self.origin}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, text):
        """Returns the values of a query as (labels, value)."""
        return [(row["metric"], float(row["value"][1])) for row in self.get("query", query=text)["result"]]

    def value(self, text):
        rows = self.query(text)
        return rows[0][1] if rows else math.nan

    def wait_for(self, what, text, good):
        deadline = time.monotonic() + 40
        while not good(self.value(text)):
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: {text} is {self.value(text)}")
            time.sleep(0.1)


def send(origin, path, body):
    """Sends a request; returns its status after the whole answer, 0 if it broke off."""
    headers = {"x-api-key": KEY, "content-type": "application/json"}
    request = urllib.request.Request(origin + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        error.read()
        return error.code
    except (OSError, http.client.HTTPException):
        return 0


def chat(model, stream=False):
    body = {"model": model, "messages": [{"role": "user", "content": "Hi."}], "stream": stream}
    return "/v1/chat/completions", body


# Each round sends these.
MIX = [
    chat("main/m"),
    *[chat("main/m", stream=True)] * 4,
    chat("line"),
    chat("line", stream=True),
    chat("main/cut", stream=True),
    chat("stranger"),
    ("/v1/embeddings", {"model": "main/m", "input": "text"}),
]


def round_of_requests(origin):
    with concurrent.futures.ThreadPoolExecutor(len(MIX)) as pool:
        return list(pool.map(lambda request: send(origin, *request), MIX))


def names(expression):
    """Returns the metrics of a query, each with the labels that the query names. `job` and `instance` are Prometheus's own."""
    metrics, labels, depth = [], set(), None
    tokens = list(TOKEN.finditer(expression))
    in_braces = [expression[: token.start()].count("{") > expression[: token.start()].count("}") for token in tokens]
    for token, inside in zip(tokens, in_braces):
        text, after = token.group(), expression[token.end() :].lstrip()
        before = expression[: token.start()]
        grouped = re.search(r"\b(?:by|without) \([^)]*$", before)
        if text[0] in '"[' or text in WORDS:
            continue
        if inside or grouped:
            labels.add(text)
        else:
            metrics.append(text)
    return metrics, labels - {"job", "instance", "le"}


def series_of(page):
    """Returns the labels of each line of the page of metrics, by name."""
    found = {}
    for line in page.splitlines():
        if match := re.match(r"([a-z_]+)(?:\{(.*)\})? ", line):
            labels = re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', match.group(2) or "")
            found.setdefault(match.group(1), set()).update(labels)
    return found


def dashboard_queries():
    """Returns the queries of the dashboard as (panel, query), as Grafana sends them with everything selected."""
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "30s").replace("$provider", ".*").replace("$model", ".*")
            yield panel["title"], query
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"]).group(1)
            yield variable["label"], query.replace("$provider", ".*")


def check_page(checks, tools, origin):
    """Returns the page of metrics."""
    request = urllib.request.Request(f"{origin}/metrics", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        page = answer.read().decode()
    command = [tools / "promtool", "check", "metrics"]
    lint = subprocess.run(command, input=page, capture_output=True, text=True, timeout=30)
    checks.check(f"promtool check metrics: {lint.stdout}{lint.stderr}", lint.returncode == 0)
    return page


def check_names(checks, what, query, series):
    """Checks that the page has each metric and label that a query names."""
    metrics, labels = names(query)
    metrics = set(metrics) - {"up"}
    checks.check(f"{what}: {query}: metrics {metrics - series.keys()}", metrics <= series.keys())
    known = set().union(*(series.get(metric, set()) for metric in metrics))
    checks.check(f"{what}: {query}: labels {labels - known}", labels <= known)


def check_rules(checks, tools, server, series):
    command = [tools / "promtool", "check", "rules", DOCS / "rules.yaml"]
    lint = subprocess.run(command, capture_output=True, text=True, timeout=30)
    checks.check(f"promtool check rules: {lint.stdout}{lint.stderr}", lint.returncode == 0)
    rules = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        checks.check(f"rule {rule['name']}: {rule.get('lastError')}", rule["health"] == "ok")
        check_names(checks, rule["name"], rule["query"], series)
    server.wait_for("the alert of the open circuit", 'count(ALERTS{alertname="LlmgwCircuitOpen"})', lambda count: count == 1)
    raised = {labels["alertname"] for labels, _ in server.query("ALERTS")}
    checks.check(f"the gateway is up and stores usage: {raised}", not raised & {"LlmgwDown", "LlmgwUsageNotStored"})


def check_dashboard(checks, server, series):
    for title, query in dashboard_queries():
        check_names(checks, title, query, series)
        rows = server.query(query)
        wanted = "> 0" in query or any(not math.isnan(value) for _, value in rows)
        checks.check(f"{title}: {query}: {rows}", wanted)


def check_figures(checks, server, rounds):
    """Compares what Prometheus has with what was sent."""
    requests = rounds * len(MIX)
    of_main = 'gen_ai_provider_name="main",gen_ai_request_model="m",gen_ai_operation_name="chat"'
    quantile = "histogram_quantile({}, sum by (le) ({}_bucket{{" + of_main + "}}))"
    first = server.value(quantile.format(0.5, "gen_ai_server_time_to_first_token_seconds"))
    gap = server.value(quantile.format(0.5, "gen_ai_client_operation_time_per_output_chunk_seconds"))
    own = server.value(quantile.format(0.5, "llmgw_gateway_duration_seconds"))
    answered = rounds * 7
    cost = (10 * 3 + 30 * 0.3 + 20 * 15) / 1e6
    for what, found, low, high in [
        ("requests", server.value(f"sum({DURATION}_count)"), requests, requests),
        ("streams", server.value(f"sum(gen_ai_server_time_to_first_token_seconds_count{{{of_main}}})"), rounds * 5, rounds * 5),
        # The bucket that contains 60 ms begins at 40 ms; a busy machine may take longer.
        ("seconds to the first content", first, 0.04, 10),
        ("seconds between pieces", gap, 0.01, 10),
        ("seconds of the gateway", own, 0.00001, 1),
        ("failovers", server.value("sum(llmgw_failovers_total)"), rounds * 2, rounds * 2),
        ("cost", server.value(f"sum(llmgw_attempt_cost_usd_sum{{{of_main}}})"), answered * cost * 0.999, answered * cost * 1.001),
        ("cached tokens", server.value('sum(llmgw_tokens_total{class="cache_read"})'), answered * 30, answered * 30),
        ("broken streams", server.value(f'sum({DURATION}_count{{error_type="upstream_cut"}})'), rounds, rounds),
        ("unknown models", server.value(f'sum({DURATION}_count{{error_type="model_not_found"}})'), rounds, rounds),
        ("running requests", server.value("llmgw_running_requests"), 1, 1),
        ("open circuits", server.value('llmgw_open_circuits{provider="failing"}'), 1, 2),
        ("complete pages", server.value("min_over_time(llmgw_metrics_complete[1h])"), 1, 1),
    ]:
        print(f"figure prometheus: {what}: {found:g}")
        checks.check(f"{what}: {found} is not within {low} and {high}", low <= found <= high)


def start_prometheus(tools, directory, origin):
    config = pathlib.Path(directory, "prometheus.yaml")
    target = origin.removeprefix("http://")
    config.write_text(PROMETHEUS.format(rules=DOCS / "rules.yaml", key=KEY, target=target))
    data = pathlib.Path(directory, "data")
    command = [tools / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"]
    process = Process("prometheus", [*command, "--web.listen-address=127.0.0.1:0", "--log.level=info"])
    try:
        port = process.wait_for(r"Listening on.* address=127\.0\.0\.1:(\d+)", 30)
        wait_until_answers(f"http://127.0.0.1:{port}/-/ready", process, 30)
    except BaseException:
        process.stop()
        raise
    return process, Server(f"http://127.0.0.1:{port}")


def observe(checks, options, directory, origin):
    """Runs Prometheus while requests are sent, and checks what it has."""
    prometheus, server = start_prometheus(options.tools, directory, origin)
    try:
        endless = concurrent.futures.ThreadPoolExecutor(1).submit(send, origin, *chat("main/endless", stream=True))
        server.wait_for("the endless stream", "llmgw_running_requests", lambda value: value == 1)
        # A rate needs a counter before and after: the first round makes the counters.
        for rounds in [1, 2]:
            statuses = round_of_requests(origin)
            checks.check(f"the statuses of round {rounds}: {statuses}", statuses.count(404) == 1 and statuses.count(200) >= 8)
            want = rounds * len(MIX)
            server.wait_for(f"round {rounds}", f"sum({DURATION}_count)", lambda value: value == want)
        targets = server.get("targets")["activeTargets"]
        checks.check(f"the target is up: {targets}", [target["health"] for target in targets] == ["up"])
        series = series_of(check_page(checks, options.tools, origin))
        check_rules(checks, options.tools, server, series)
        check_dashboard(checks, server, series)
        check_figures(checks, server, 2)
        upstream.Upstream.released.set()
        checks.check("the endless stream ends well", endless.result(timeout=30) == 200)
    finally:
        upstream.Upstream.released.set()
        prometheus.stop()


def drive(checks, options, directory):
    """Returns true if the gateway ended well."""
    config = CONFIG.format(url=upstream.start(), prices=PRICES)
    gateway, origin = start_gateway(options.gateway, config, KEY, directory)
    try:
        observe(checks, options, directory, origin)
    except BaseException:
        gateway.stop()
        raise
    return ended_well(gateway, checks.failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--tools", required=True, type=pathlib.Path)
    options = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory() as directory:
        well = drive(checks, options, directory)
    print(f"prometheus: {checks.passed} passed, {checks.failed} failed")
    return 0 if well and checks.failed == 0 and checks.passed > 0 else 1


sys.exit(main())
