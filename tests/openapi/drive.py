"""Starts the gateway, validates the OpenAPI document that it serves, and manages objects of every kind by the admin API: each
request and each answer must be as the document says."""

import argparse
import gzip
import http.server
import itertools
import json
import pathlib
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sdk"))
sys.path.insert(0, str(HERE))

from checks import Checks, eventually  # noqa: E402
from document import Document, filled  # noqa: E402
from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: E402
from process import ended_well, start_gateway  # noqa: E402

KEY = "administrator-key-of-the-openapi-suite"
CONFIG = """
providers:
  parrot: {type: echo, models: [m]}
endpoints:
  line:
    failover:
      - {provider: parrot, model: m}
claude_code: {sign_in: true}
"""
SETTINGS = {"LLMGW_LOG_REQUEST_BODIES": "true"}
# Operations that need a vendor's authorization server or several nodes, which this suite does not have.
LEFT_OUT = {"post_providers_id_oauth_start", "delete_providers_id_oauth", "get_nodes_id", "post_nodes_id_forget"}


DELTA = {"role": "assistant", "content": "a"}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "endless", "created": 1, "choices": [{"index": 0, "delta": DELTA}]}


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts the events of webhooks, and is an upstream whose answers do not end."""

    def do_GET(self):
        self.answer(200, "application/json", b'{"object": "list", "data": [{"id": "endless", "object": "model"}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/hook":
            self.answer(204, "text/plain", b"")
            return
        self.answer(200, "text/event-stream", f"data: {json.dumps(CHUNK)}\n\n".encode())
        # Returns when the gateway closes the connection.
        self.rfile.read(1)

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    def json(self):
        return json.loads(self.body)


def send(origin, method, path, body=None, headers=None):
    data = json.dumps(body).encode() if body is not None else None
    headers = {"x-api-key": KEY} | ({"content-type": "application/json"} if body is not None else {}) | (headers or {})
    headers = {name: value for name, value in headers.items() if value is not None}
    request = urllib.request.Request(origin + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


class Api:
    """Sends requests of operations, and judges each request and answer by the document."""

    def __init__(self, origin, document, checks):
        self.origin, self.document, self.checks = origin, document, checks
        self.done = set()
        self.numbers = itertools.count()

    def call(self, method, path, *arguments, body=None, query=None, status=None, headers=None):
        """Sends one request. Its status must be `status`, or one of success."""
        operation = self.document.operation(method, path)
        query = query or {}
        what = f"{method} {filled(path, arguments)} {query or ''}"
        faults = self.document.faults_of_query(operation, query)
        if status != 400:
            faults += self.document.faults_of_body(operation, body)
        text = urllib.parse.urlencode({name: json.dumps(value) if isinstance(value, bool) else value for name, value in query.items()})
        target = f"/admin/api{filled(path, arguments)}" + (f"?{text}" if text else "")
        answer = send(self.origin, method, target, body, headers)
        faults += self.document.faults_of_answer(operation, answer)
        self.checks.check(f"{what}: {faults}", not faults)
        good = answer.status == status if status else answer.status < 300
        self.checks.check(f"{what}: {answer.status} {answer.body[:300]}", good)
        if good and answer.status < 300:
            self.done.add(operation["operationId"])
        return answer

    def get(self, path, *arguments, **others):
        answer = self.call("GET", path, *arguments, **others)
        operation = self.document.operation("GET", path)
        documented = "ETag" in operation["responses"]["200"].get("headers", {})
        self.checks.check(f"GET {path}: an ETag is {'' if documented else 'not '}documented", ("etag" in answer.headers) == documented)
        return answer.json()

    def write(self, method, path, *arguments, body=None, **others):
        """Sends a write as documented: with the version of another object, as a dry run, and, if that is possible, twice."""
        operation = self.document.operation(method, path)
        read = self.document.parameters(operation, "header")
        versioned = "If-Match" in read
        if versioned:
            self.call(method, path, *arguments, body=body, status=412, headers={"if-match": '"999999"'})
        else:
            self.call(method, path, *arguments, body=body, status=400, headers={"if-match": '"1"'})
        if "dry_run" in self.document.parameters(operation, "query"):
            self.call(method, path, *arguments, body=body, query={"dry_run": True}, status=200)
        headers = {}
        repeatable = "Idempotency-Key" in read
        if method == "POST":
            headers["idempotency-key"] = f"key-{next(self.numbers)}"
        answer = self.call(method, path, *arguments, body=body, headers=headers, **others)
        if repeatable and answer.status < 300:
            again = self.call(method, path, *arguments, body=body, headers=headers)
            self.checks.check(f"{method} {path}: the answer is repeated", again.headers.get("idempotency-replayed") == "true")
        return answer.json() if answer.body else None

    def create(self, path, body):
        return self.write("POST", path, body=body, status=201)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", required=True)
    options = parser.parse_args()
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{receiver.server_address[1]}"
    checks = Checks()
    with tempfile.TemporaryDirectory() as directory:
        gateway, origin = start_gateway(options.gateway, CONFIG, KEY, directory, SETTINGS)
        try:
            api = Api(origin, Document(served(origin, checks)), checks)
            manage(api, upstream)
            expect_all_done(api)
        finally:
            well = ended_well(gateway, checks.failed)
    print(f"openapi: {checks.passed} passed, {checks.failed} failed")
    return 0 if well and checks.failed == 0 and checks.passed > 0 else 1


def served(origin, checks):
    """Returns the document, which only administrators may read, after a validation."""
    path = "/admin/api/openapi.json"
    answer = send(origin, "GET", path)
    packed = send(origin, "GET", path, headers={"accept-encoding": "gzip"})
    checks.check("the compressed document is the same", gzip.decompress(packed.body) == answer.body)
    checks.check("without a key: 401", send(origin, "GET", path, headers={"x-api-key": None}).status == 401)
    document = answer.json()
    faults = [f"{error.json_path}: {error.message[:300]}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
    checks.check(f"the document is valid: {faults}", not faults)
    return document


def manage(api, upstream):
    people(api)
    connections(api, upstream)
    requests(api)
    reports(api)
    limits_and_alerts(api, f"{upstream}/hook")
    operation(api)
    failures(api)


def people(api):
    session = api.call("POST", "/session", body={"key": KEY}, headers={"x-api-key": None})
    cookie = {"cookie": session.headers["set-cookie"].split(";")[0], "x-api-key": None}
    api.call("GET", "/session", headers=cookie)
    api.call("GET", "/session", headers={"x-api-key": None})
    api.call("DELETE", "/session", headers=cookie | {"x-csrf-token": session.json()["csrf_token"]})
    human = api.create("/principals", {"name": "Ada", "email": "ada@example.com"})
    other = api.create("/principals", {"name": "Eve"})
    api.get("/principals", query={"q": "ad", "limit": 1})
    api.get("/principals/{id}", human["id"])
    api.write("PATCH", "/principals/{id}", human["id"], body={"name": "Ada L."})
    project = api.create("/projects", {"name": "blue", "models": ["parrot/*"]})
    empty = api.create("/projects", {"name": "empty"})
    api.get("/projects")
    api.get("/projects/{id}", project["id"])
    api.write("PATCH", "/projects/{id}", project["id"], body={"models": None})
    api.write("DELETE", "/projects/{id}", empty["id"])
    for member, role in [(human, "owner"), (other, "viewer")]:
        api.write("PUT", "/projects/{id}/members/{human}", project["id"], member["id"], body={"role": role})
    api.get("/projects/{id}/members", project["id"])
    api.write("DELETE", "/projects/{id}/members/{human}", project["id"], other["id"])
    api.write("DELETE", "/principals/{id}", other["id"])
    new = {"name": "k", "project": project["id"], "acts_as": human["id"], "expires_at": 4_000_000_000_000}
    key = api.create("/keys", new | {"limits": [{"metric": "requests", "window": "day", "limit": 9000}]})
    old = api.create("/keys", {"name": "old", "project": project["id"], "tags": {"team": "x"}})
    api.get("/keys", query={"state": "active", "project": project["id"]})
    api.get("/keys/{id}", key["id"])
    api.write("PATCH", "/keys/{id}", key["id"], body={"name": "k1", "tags": {"team": "search"}})
    api.write("POST", "/keys/{id}/reveal", key["id"], body={})
    api.write("POST", "/keys/{id}/rotate", old["id"], body={"overlap_seconds": 60})
    api.write("PATCH", "/keys/{id}", old["id"], body={"state": "revoked"})
    api.write("DELETE", "/keys/{id}", old["id"])
    api.project, api.human, api.key = project, human, key
    for way, body in [("approve", {"project": project["id"]}), ("deny", {})]:
        begun = send(api.origin, "POST", "/oauth/device_authorization", headers={"x-api-key": None}).json()
        api.get("/device-sign-ins/{id}", begun["user_code"])
        api.write("POST", f"/device-sign-ins/{{id}}/{way}", begun["user_code"], body=body)


def connections(api, upstream):
    api.get("/registry")
    api.get("/anonymous-providers")
    api.get("/providers/detect")
    api.get("/adaptations", query={"client": "chat"})
    owned = {"id": "owned", "type": "compatible", "base_url": "http://127.0.0.1:9", "api_key": "sk-of-the-owner", "models": ["x"]}
    api.create("/providers", owned | {"owner": api.human["id"]})
    spare = {"id": "spare", "type": "echo", "models": ["m", "n"]}
    api.create("/providers", spare)
    api.create("/providers", {"id": "endless", "type": "compatible", "base_url": f"{upstream}/v1", "api_key": "sk-of-the-upstream"})
    several = {"id": "several", "type": "compatible", "base_url": "http://127.0.0.1:9", "api_keys": ["sk-one-of-the-several", {"key": "sk-two"}]}
    api.create("/providers", several)
    api.write("PATCH", "/providers/{id}", "several", body={"api_keys": [{"id": "c2"}, {"id": "c1"}, {"key": "sk-three"}]})
    api.get("/providers/{id}", "several")
    api.get("/providers", query={"source": "api"})
    api.get("/providers")
    api.get("/providers/{id}", "owned")
    api.write("PATCH", "/providers/{id}", "spare", body={"models": ["m"]})
    api.write("PUT", "/providers/{id}/bindings/{project}", "owned", api.project["id"])
    api.write("DELETE", "/providers/{id}/bindings/{project}", "owned", api.project["id"])
    api.write("POST", "/providers/{id}/sync", "endless", body={})
    api.write("POST", "/providers/{id}/test", "spare", body={"model": "m"})
    targets = [{"provider": "spare", "model": "m"}, {"provider": "parrot", "model": "m"}]
    api.create("/endpoints", {"name": "pair", "failover": targets})
    api.get("/endpoints", query={"provider": "spare"})
    api.get("/endpoints/{name}", "pair")
    api.write("PUT", "/endpoints/{name}", "pair", body={"failover": targets[:1]})
    api.write("POST", "/endpoints/{name}/test", "pair", body={"prompt": "Hi."})
    api.get("/catalog", query={"capability": "vision,tools", "priced": False})
    api.get("/catalog")
    api.write("POST", "/catalog/sync", body={})
    override = api.create("/catalog/overrides", {"provider": "spare", "model": "m", "facts": {"vision": True}})
    api.get("/catalog/overrides")
    api.get("/catalog/overrides/{id}", override["id"])
    api.write("DELETE", "/catalog/overrides/{id}", override["id"])
    secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u"
    api.create("/extensions", {"name": "lab", "url": "http://127.0.0.1:9", "secret": secret, "enabled": False})
    api.get("/extensions")
    api.get("/extensions/{id}", "lab")
    api.write("PATCH", "/extensions/{id}", "lab", body={"url": "http://127.0.0.1:10"})
    api.write("POST", "/extensions/{id}/probe", "lab", body={})
    api.write("DELETE", "/extensions/{id}", "lab")
    api.get("/keys/{id}/access", api.key["id"], query={"kind": "model"})
    api.get("/projects/{id}/access", api.project["id"])
    api.get("/principals/{id}/access", api.human["id"])
    api.get("/access/effective", query={"key": api.key["id"], "allowed": True})
    chat = {"model": "line", "messages": [{"role": "user", "content": "Hi."}]}
    api.write("POST", "/explain", body={"key_id": api.key["id"], "path": "/v1/chat/completions", "body": chat})


def requests(api):
    chat = {"model": "line", "messages": [{"role": "user", "content": "Hi."}]}
    for headers in [{"x-llmgw-tag-team": "search"}, {"x-llmgw-session-id": "s-1"}]:
        answer = send(api.origin, "POST", "/v1/chat/completions", chat, {"x-api-key": api.key["key"]} | headers)
        api.checks.check(f"a request: {answer.status} {answer.body[:200]}", answer.status == 200)
    refused = send(api.origin, "POST", "/v1/chat/completions", chat | {"model": "none"}, {"x-api-key": api.key["key"]})
    api.checks.check("a request without a model", refused.status == 404)
    run = api.call("POST", "/run/{path}", "v1/chat/completions", body=chat, headers={"x-llmgw-run-as": api.key["id"]})
    api.get("/run/{request_id}", run.headers["x-request-id"])
    data = eventually("the records", lambda: (lambda d: len(d) > 3 and d)(api.get("/requests")["data"]), 30)
    api.get("/requests", query={"tag.team": "search", "failed": False, "status": 200, "from": 0, "to": "2030-01-01T00:00:00Z"})
    for record in data:
        api.get("/requests/{id}", record["request_id"])
    captured = answer.headers["x-request-id"]
    eventually("the captured exchange", lambda: send(api.origin, "GET", f"/admin/api/requests/{captured}/exchange").status == 200, 30)
    api.get("/requests/{id}/exchange", captured)
    cancel_one(api, chat)
    api.get("/running")


def cancel_one(api, chat):
    """Cancels a request whose answer does not end."""
    body = json.dumps(chat | {"model": "endless/endless", "stream": True}).encode()
    headers = {"x-api-key": api.key["key"], "content-type": "application/json"}
    request = urllib.request.Request(f"{api.origin}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as stream:
        stream.read(1)
        running = api.get("/running")["data"]
        api.checks.check(f"a request is running: {running}", running)
        api.write("POST", "/requests/{id}/cancel", stream.headers["x-request-id"], body={}, status=202)


def reports(api):
    api.get("/usage", query={"group_by": "model,key,tag:team", "bucket": "day", "tz": "Europe/Berlin", "sort": "requests", "order": "asc"})
    api.get("/usage", query={"from": "2026-01-31", "markup_percent": "5", "currency": "EUR", "rate": "0.9"})
    for path in ["/usage/export", "/audit/export"]:
        for form in ["csv", "jsonl"]:
            api.call("GET", path, query={"format": form})
    api.get("/series", query={"step": "60", "group_by": "model"})
    api.get("/series", query={"step": "all"})
    api.get("/telemetry", query={"bucket": "60"})
    file = "date,model,cost\n2026-01-31,m,1.5\n"
    mapping = {"day": "date", "model": "model", "cost": "cost"}
    api.write("POST", "/usage/reconcile", body={"format": "csv", "file": file, "mapping": mapping})
    api.write("POST", "/usage/reprice", body={"from": 0, "to": 4_000_000_000_000})
    api.get("/search", query={"q": "ada"})
    api.get("/suggest", query={"field": "model"})


def limits_and_alerts(api, hook):
    subject = {"kind": "project", "id": api.project["id"]}
    quota = api.create("/quotas", {"subject": subject, "metric": "requests", "window": "day", "limit": 3})
    api.get("/quotas", query={"project": api.project["id"]})
    api.get("/quotas")
    api.get("/quotas/{id}", quota["id"])
    rule = api.create("/alert-rules", {"name": "soon", "kind": "quota_warning", "threshold": 50, "hold_seconds": 0})
    api.get("/alert-rules")
    api.get("/alert-rules/{id}", rule["id"])
    api.write("PATCH", "/alert-rules/{id}", rule["id"], body={"severity": "bad"})
    kept = api.create("/webhooks", {"name": "ops", "url": hook})
    webhook = api.create("/webhooks", {"name": "chat", "url": hook, "format": "slack", "kinds": ["disk_low"]})
    api.get("/webhooks")
    api.get("/webhooks/{id}", webhook["id"])
    api.write("PATCH", "/webhooks/{id}", webhook["id"], body={"in_order": True})
    api.write("POST", "/webhooks/{id}/rotate", webhook["id"], body={"overlap_seconds": 60})
    api.write("POST", "/webhooks/{id}/test", webhook["id"], body={})
    api.write("DELETE", "/webhooks/{id}", webhook["id"])
    api.write("POST", "/alert-rules/{id}/test", rule["id"], body={})
    api.write("POST", "/alert-rules/{id}/test", "rule_disk_low", body={})
    eventually("deliveries", lambda: api.get("/outbox")["data"], 30)
    api.get("/outbox", query={"state": "pending"})
    work_off(api)
    alerts = eventually("an alert", lambda: api.get("/alerts")["data"], 90)
    api.get("/alerts/{id}", alerts[0]["id"])
    api.write("POST", "/alerts/{id}/ack", alerts[0]["id"], body={})
    api.write("DELETE", "/alert-rules/{id}", rule["id"])
    api.write("PATCH", "/quotas/{id}", quota["id"], body={"limit": 9})
    waits = {"subject": subject, "metric": "concurrent_requests", "limit": 3, "wait_ms": 1000}
    api.write("DELETE", "/quotas/{id}", api.create("/quotas", waits)["id"])
    api.write("DELETE", "/quotas/{id}", quota["id"])
    api.write("DELETE", "/webhooks/{id}", kept["id"])


def work_off(api):
    """Leases the events of workers, and ends the leases both ways."""
    claim = api.write("POST", "/outbox/claim", body={"worker": "w", "limit": 2, "lease_seconds": 60})
    api.checks.check(f"events are claimed: {claim}", len(claim["data"]) == 2)
    for delivery, end, body in zip(claim["data"], ["delivered", "failed"], [{}, {"error": "no", "retry_after_seconds": 1}]):
        api.write("POST", f"/outbox/{{id}}/{end}", delivery["id"], body={"lease": claim["lease"]} | body)
    api.write("POST", "/outbox/{id}/retry", claim["data"][1]["id"], body={})


def operation(api):
    for path in ["/config", "/health/providers", "/nodes", "/setup", "/state"]:
        api.get(path)
    api.call("GET", "/openapi.json")
    api.get("/audit", query={"action": "key.create", "outcome": "done"})
    api.get("/audit")
    record = api.get("/audit", query={"limit": 1})["data"][0]
    api.get("/audit/{id}", record["id"])
    api.get("/audit/verify")
    api.write("POST", "/audit/verify", body={})
    api.write("POST", "/backups", body={}, status=202)
    archive = eventually("a backup", lambda: api.get("/backups")["data"], 60)[0]["name"]
    api.write("POST", "/backups/{name}/verify", archive, body={})
    api.call("GET", "/backups/{name}", archive)
    api.write("DELETE", "/backups/{name}", archive)
    api.write("DELETE", "/endpoints/{name}", "pair")
    api.write("DELETE", "/providers/{id}", "spare")
    live(api)


def live(api):
    """Compares the events of the live stream with their shapes."""
    operation = api.document.operation("GET", "/live")
    media = operation["responses"]["200"]["content"]["text/event-stream"]
    shapes = api.document.resolved(media["x-llmgw-events"])["properties"]
    request = urllib.request.Request(f"{api.origin}/admin/api/live", headers={"x-api-key": KEY})
    seen = set()
    with urllib.request.urlopen(request, timeout=30) as stream:
        name = None
        while not {"hello", "figures", "providers"} <= seen:
            field, _, value = stream.readline().decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                seen.add(name)
                faults = api.document.faults(api.document.closed, shapes[name], json.loads(value))
                api.checks.check(f"the event {name}: {faults}", not faults)
    api.done.add(operation["operationId"])


def failures(api):
    """Errors are as documented, and a project key is none of an administrator."""
    api.call("GET", "/keys/{id}", "key_none", status=404)
    api.call("POST", "/keys", body={"no_such_field": 1}, status=400)
    api.call("POST", "/projects", body={"name": "blue"}, status=409)
    api.call("GET", "/state", status=401, headers={"x-api-key": "wrong"})
    for path in ["/openapi.json", "/state"]:
        api.call("GET", path, status=403, headers={"x-api-key": api.key["key"]})
    answer = send(api.origin, "POST", "/admin/api/projects", headers={"content-type": "text/plain", "content-length": "0"})
    api.checks.check(f"an empty body: {answer.status}", answer.status == 400)


def expect_all_done(api):
    missing = {operation["operationId"] for _, _, operation in api.document.operations()} - api.done - LEFT_OUT
    api.checks.check(f"each operation has succeeded once: {sorted(missing)}", not missing)


if __name__ == "__main__":
    sys.exit(main())
