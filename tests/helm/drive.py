"""usage: drive.py PATH-OF-LLMGW HELM...

Renders the chart with each of these binaries of Helm and checks the manifests; the first one renders the pods that pod.py runs.
"""

import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

import pod

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHART = ROOT / "packaging/helm/llmgw"
sys.path[:0] = [str(ROOT / "tests/sdk")]

from checks import Checks  # noqa: E402

# The oldest release that the chart accepts, and the newest with schemas.
RELEASES = ("1.30.0", "1.37.0")
# Objects of the Prometheus operator, whose schemas are no part of Kubernetes: the fields that the chart may use.
TEXT, WORDS = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}


def shape(required, **fields):
    return {"type": "object", "additionalProperties": False, "required": required, "properties": fields}


OPERATOR = {
    "ServiceMonitor": shape(
        ["selector", "endpoints"],
        jobLabel=TEXT,
        selector=shape(["matchLabels"], matchLabels=WORDS),
        endpoints={
            "type": "array",
            "minItems": 1,
            "items": shape(
                ["port"],
                port=TEXT, path=TEXT, interval=TEXT, scheme={"enum": ["http", "https"]}, tlsConfig={"type": "object"},
                authorization=shape(["credentials"], credentials=shape(["name", "key"], name=TEXT, key=TEXT)),
            ),
        },
    ),
    "PrometheusRule": shape(
        ["groups"],
        groups={
            "type": "array",
            "minItems": 1,
            "items": shape(
                ["name", "rules"],
                name=TEXT,
                rules={
                    "type": "array",
                    "minItems": 1,
                    "items": shape(["alert", "expr"], alert=TEXT, expr=TEXT, labels=WORDS, annotations=WORDS, **{"for": TEXT}),
                },
            ),
        },
    ),
}  # fmt: skip

checks = Checks()
check = checks.check


def helm(binary, *arguments):
    return subprocess.run([binary, *map(str, arguments)], text=True, capture_output=True, check=False)


def render(binary, values, *arguments):
    return helm(binary, "template", "gw", CHART, "--namespace", "ai", "--values", values, *arguments)


def fault_of(manifest, release):
    """The first reason why this release of Kubernetes rejects the manifest, or None."""
    try:
        if manifest["kind"] in OPERATOR:
            jsonschema.validate(manifest["spec"], OPERATOR[manifest["kind"]])
        else:
            kubernetes_validate.validate(manifest, release, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        return f"{manifest['kind']}: {error.message} at {'.'.join(map(str, error.path))}"
    except kubernetes_validate.utils.SchemaNotFoundError as error:
        return error.message
    return None


def check_manifests(binary, values):
    rendered = render(binary, values)
    what = f"{pathlib.Path(binary).name}: values/{values.name}"
    if rendered.returncode:
        return check(f"{what}: {rendered.stderr}", False)
    linted = helm(binary, "lint", "--strict", CHART, "--values", values)
    check(f"{what}: lint: {linted.stdout}{linted.stderr}", linted.returncode == 0)
    manifests = [manifest for manifest in yaml.safe_load_all(rendered.stdout) if manifest]
    for release in RELEASES:
        faults = [fault for manifest in manifests if (fault := fault_of(manifest, release))]
        check(f"{what}: Kubernetes {release} accepts {len(manifests)} manifests: {faults}", not faults and len(manifests) > 1)
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    check(f"{what}: no two objects have one name: {sorted(names)}", len(names) == len(manifests))
    return manifests


def by_kind(manifests):
    return {manifest["kind"]: manifest for manifest in manifests}


def check_refused(binary, values):
    want = re.match(r"# refused: (.*)\n", values.read_text())[1]
    rendered = render(binary, values)
    what = f"{pathlib.Path(binary).name}: refused/{values.name} for '{want}': {rendered.stderr[-600:]}"
    check(what, rendered.returncode != 0 and want in rendered.stderr)


def check_version():
    version = subprocess.run([ROOT / "scripts/version"], text=True, capture_output=True, check=True).stdout.strip()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    check(f"Chart.yaml has the version {version}: {chart['version']}", chart["version"] == chart["appVersion"] == version)
    check("the chart starts at the oldest release of the checks", f">={RELEASES[0]}-0" == chart["kubeVersion"])


def check_variables():
    known = set(re.findall(r'"(LLMGW_[A-Z0-9_]*)"', (ROOT / "control/src/routing/config/env/table.rs").read_text()))
    for file in filter(pathlib.Path.is_file, CHART.rglob("*")):
        for variable in sorted(set(re.findall(r"LLMGW_[A-Z0-9_]*[A-Z0-9]", file.read_text())) - known):
            check(f"{file.relative_to(ROOT)}: {variable} does not exist", False)


def check_schema():
    """Each default passes the schema, and each value has a row in it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(defaults, schema)
    missing = set(schema["properties"]) - set(defaults) - {"global"}
    check(f"values.yaml has every value of the schema: {missing}", not missing)


def check_relations(binary, everything):
    stateful, text = everything["StatefulSet"], yaml.safe_dump(everything)
    rules = yaml.safe_load((ROOT / "docs/monitoring/rules.yaml").read_text())
    check("the rules are those of docs/monitoring/rules.yaml", everything["PrometheusRule"]["spec"] == rules)
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    for kind, selector in (
        ("Service", everything["Service"]["spec"]["selector"]),
        ("StatefulSet", stateful["spec"]["selector"]["matchLabels"]),
        ("NetworkPolicy", everything["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]),
    ):
        check(f"the {kind} selects the pod", selector.items() <= labels.items())
    monitor = everything["ServiceMonitor"]["spec"]
    service = everything["Service"]["metadata"]["labels"]
    check("the ServiceMonitor selects the Service", monitor["selector"]["matchLabels"].items() <= service.items())
    check("the job of the rules is the label of the Service", service[monitor["jobLabel"]] == "llmgw")
    check("the image is named by its digest", "image: registry.example.com/llmgw@sha256:0123" in text)
    spec = stateful["spec"]["template"]["spec"]
    check("the grace period is 7 + 30 + 15 s", spec["terminationGracePeriodSeconds"] == 52)
    check("TLS changes the probes", spec["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS")

    def annotations(*values):
        rendered = render(binary, HERE / "values/pod.yaml", *values).stdout
        sets = [manifest for manifest in yaml.safe_load_all(rendered) if manifest and manifest["kind"] == "StatefulSet"]
        return sets[0]["spec"]["template"]

    before = annotations()
    check("a change of providers keeps the pod", before == annotations("--set", "config.providers.slow.disabled=true"))
    check("a change of policies replaces it", before != annotations("--set-json", 'config.policies={"defaults":{}}'))
    check("a change of the Secret replaces it", before != annotations("--set", "secret.values.OF_THE_SECRET=b"))


def check_nodes(cluster, autoscaled):
    """What nodes that share a database have, and one gateway has not."""
    for kinds in (cluster, autoscaled):
        template = kinds["StatefulSet"]["spec"]["template"]
        spec, name = template["spec"], kinds["StatefulSet"]["metadata"]["name"]
        budget = kinds["PodDisruptionBudget"]["spec"]
        labels = template["metadata"]["labels"].items()
        check("one node at a time is evicted", budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"].items() <= labels)
        spread = spec["topologySpreadConstraints"]
        check("nodes spread over zones", spread[0]["topologyKey"] == "topology.kubernetes.io/zone")
        check("the spread counts the nodes", all(one["labelSelector"]["matchLabels"].items() <= labels for one in spread))
        check("5 s before the SIGTERM", spec["containers"][0]["lifecycle"]["preStop"] == {"sleep": {"seconds": 5}})
        check("the grace period is 7 + 30 + 20 s", spec["terminationGracePeriodSeconds"] == 57)
    variables = {entry["name"]: entry for entry in cluster["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["env"]}
    url = {"secretKeyRef": {"name": "postgres-app", "key": "uri"}}
    check("the URL is that of the Secret", variables["DATABASE_URL"]["valueFrom"] == url)
    check("its server is verified", variables["LLMGW_DATABASE_URL"]["value"] == "$(DATABASE_URL)?sslrootcert=/database-ca/ca.crt")
    hash_by = "nginx.ingress.kubernetes.io/upstream-hash-by"
    hashed = [kinds["Ingress"]["metadata"]["annotations"][hash_by] for kinds in (cluster, autoscaled)]
    check(f"callers are hashed by their key, or as a value says: {hashed}", hashed == ["$http_authorization$http_x_api_key", "$remote_addr"])
    scaler = autoscaled["HorizontalPodAutoscaler"]["spec"]
    check("the autoscaler scales the nodes", scaler["scaleTargetRef"]["name"] == name and "replicas" not in autoscaled["StatefulSet"]["spec"])
    metric = scaler["metrics"][0]["pods"]["metric"]["name"]
    check(f"the gateway has the metric {metric}", f"`{metric}` | gauge" in (ROOT / "docs/metrics.md").read_text())
    claim = lambda kinds: kinds["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    check("a node's volume is small by default", (claim(cluster), claim(autoscaled)) == ("2Gi", "5Gi"))


def check_page(service):
    """The manifests of docs/kubernetes.md fit the chart."""
    page = (ROOT / "docs/kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml norun\n(.*?)^```$", page, flags=re.M | re.S)
    found = by_kind([one for block in blocks for one in yaml.safe_load_all(block) if "kind" in one])
    check("the page has a route, a policy and a job", set(found) == {"HTTPRoute", "BackendTrafficPolicy", "Job"})
    backend = found["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]
    check("the route leads to the Service", backend == {"name": "llmgw", "port": service["spec"]["ports"][0]["port"]})
    target = found["BackendTrafficPolicy"]["spec"]["targetRefs"][0]
    check("the policy is for the route", (target["kind"], target["name"]) == ("HTTPRoute", found["HTTPRoute"]["metadata"]["name"]))
    for release in RELEASES:
        check(f"Kubernetes {release} accepts the job: {fault_of(found['Job'], release)}", fault_of(found["Job"], release) is None)


def main():
    binary, helms = sys.argv[1], sys.argv[2:]
    check_version()
    check_variables()
    check_schema()
    sets = {}
    for tool in helms:
        for values in sorted((HERE / "values").glob("*.yaml")):
            sets[values.stem] = check_manifests(tool, values)
        for values in sorted((HERE / "refused").glob("*.yaml")):
            check_refused(tool, values)
    if checks.failed == 0:
        check_relations(helms[0], by_kind(sets["everything"]))
        check_page(by_kind(sets["least"])["Service"])
        check_nodes(by_kind(sets["cluster"]), by_kind(sets["autoscaled"]))
        pod.run(checks, binary, sets, lambda *more: render(helms[0], HERE / "values/pod.yaml", *more).stdout)
    print(f"helm: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


main()
