"""usage: drive.py PATH-OF-LLMGW HELM...

Renders the chart with each of these binaries of Helm and checks the manifests; the first one renders the pod that pod.py runs.
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
        check_relations(helms[0], sets["everything"])
        pod.run(checks, binary, sets["pod"], lambda *more: render(helms[0], HERE / "values/pod.yaml", *more).stdout)
    print(f"helm: {checks.passed} passed, {checks.failed} failed", flush=True)
    sys.exit(1 if checks.failed else 0)


main()
