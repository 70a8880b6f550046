#!/usr/bin/env python3
"""Checks the Kubernetes manifests against a schema of the parts that they use, what their parts say of each other, the
configuration that they hold, and that alerts and dashboard ask for metrics that there are.

    check_manifests.py MANIFESTS DASHBOARD ALERTS METRICS_README BEAMD
"""

import json
import re
import subprocess
import sys
import tempfile

import jsonschema
import yaml

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
PORT = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, NAME]}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(m|Ki|Mi|Gi|Ti)?$"}


def closed(properties, required=()):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def array(items):
    return {"type": "array", "items": items, "minItems": 1}


METADATA = closed({"name": NAME, "namespace": NAME, "labels": LABELS, "annotations": LABELS})
SELECTOR = closed({"matchLabels": LABELS}, ["matchLabels"])
PROBE = closed(
    {
        "httpGet": closed({"path": {"type": "string", "pattern": "^/"}, "port": PORT}, ["path", "port"]),
        "periodSeconds": {"type": "integer", "minimum": 1},
        "failureThreshold": {"type": "integer", "minimum": 1},
    },
    ["httpGet"],
)
# kubernetes.io/docs/reference/generated/kubernetes-api/v1.26: Container, Volume, PodSpec.
CONTAINER = closed(
    {
        "name": NAME,
        "image": {"type": "string", "minLength": 1},
        "args": array({"type": "string"}),
        "ports": array(closed({"name": NAME, "containerPort": PORT}, ["containerPort"])),
        "resources": closed(
            {k: {"type": "object", "additionalProperties": QUANTITY} for k in ("requests", "limits")},
            ["requests", "limits"],
        ),
        "securityContext": closed(
            {
                "allowPrivilegeEscalation": {"const": False},
                "readOnlyRootFilesystem": {"const": True},
                "capabilities": {"const": {"drop": ["ALL"]}},
            },
            ["allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"],
        ),
        "startupProbe": PROBE,
        "readinessProbe": PROBE,
        "livenessProbe": PROBE,
        "volumeMounts": array(
            closed(
                {
                    "name": NAME,
                    "mountPath": {"type": "string", "pattern": "^/"},
                    "subPath": {"type": "string"},
                    "readOnly": {"type": "boolean"},
                },
                ["name", "mountPath"],
            )
        ),
    },
    ["name", "image", "resources", "securityContext", "startupProbe", "readinessProbe", "livenessProbe"],
)
VOLUME = closed(
    {
        "name": NAME,
        "configMap": closed({"name": NAME}, ["name"]),
        "secret": closed({"secretName": NAME, "defaultMode": {"type": "integer"}}, ["secretName"]),
        "emptyDir": {"type": "object"},
    },
    ["name"],
)
POD = closed(
    {
        "automountServiceAccountToken": {"const": False},
        "enableServiceLinks": {"type": "boolean"},
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 1},
        "nodeSelector": LABELS,
        "affinity": {"type": "object"},
        "securityContext": closed(
            {
                "runAsNonRoot": {"const": True},
                "runAsUser": {"type": "integer", "minimum": 1},
                "runAsGroup": {"type": "integer", "minimum": 1},
                "fsGroup": {"type": "integer", "minimum": 1},
                "seccompProfile": {"const": {"type": "RuntimeDefault"}},
            },
            ["runAsNonRoot", "seccompProfile"],
        ),
        "containers": array(CONTAINER),
        "volumes": array(VOLUME),
    },
    ["containers", "securityContext", "automountServiceAccountToken"],
)
CLAIM = closed(
    {
        "metadata": METADATA,
        "spec": closed(
            {
                "accessModes": array({"enum": ["ReadWriteOnce", "ReadWriteOncePod"]}),
                "resources": closed({"requests": closed({"storage": QUANTITY}, ["storage"])}, ["requests"]),
            },
            ["accessModes", "resources"],
        ),
    },
    ["metadata", "spec"],
)
POLICY_PORTS = array(closed({"port": PORT, "protocol": {"enum": ["TCP"]}}, ["port"]))
SPECS = {
    ("v1", "Service"): closed(
        {
            "clusterIP": {"type": "string"},
            "selector": LABELS,
            "ports": array(closed({"name": NAME, "port": PORT, "targetPort": PORT}, ["port"])),
        },
        ["selector", "ports"],
    ),
    ("apps/v1", "StatefulSet"): closed(
        {
            "serviceName": NAME,
            "replicas": {"type": "integer", "minimum": 0},
            "podManagementPolicy": {"enum": ["OrderedReady", "Parallel"]},
            "selector": SELECTOR,
            "template": closed({"metadata": METADATA, "spec": POD}, ["metadata", "spec"]),
            "volumeClaimTemplates": array(CLAIM),
        },
        ["serviceName", "selector", "template"],
    ),
    ("policy/v1", "PodDisruptionBudget"): closed(
        {"maxUnavailable": {"type": "integer", "minimum": 0}, "selector": SELECTOR}, ["selector"]
    ),
    ("networking.k8s.io/v1", "NetworkPolicy"): closed(
        {
            "podSelector": SELECTOR,
            "policyTypes": array({"enum": ["Ingress", "Egress"]}),
            "ingress": array(
                closed({"from": array(closed({"namespaceSelector": SELECTOR})), "ports": POLICY_PORTS})
            ),
            "egress": {"type": "array"},
        },
        ["podSelector", "policyTypes"],
    ),
}

faults = []


def expect(so, what):
    if not so:
        faults.append(what)


def check_manifests(path, beamd):
    documents = {}
    with open(path) as file:
        for document in yaml.safe_load_all(file):
            where = "{}/{}".format(document["kind"], document["metadata"]["name"])
            documents[document["kind"]] = document
            schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": METADATA}
            if document["kind"] == "ConfigMap":
                schema["data"] = LABELS
            else:
                key = (document["apiVersion"], document["kind"])
                if key not in SPECS:
                    faults.append("{}: no schema for {}".format(where, key))
                    continue
                schema["spec"] = SPECS[key]
            for error in jsonschema.Draft7Validator(closed(schema, schema)).iter_errors(document):
                faults.append("{}: {}: {}".format(where, "/".join(map(str, error.path)), error.message))
    if faults:
        return
    pods = documents["StatefulSet"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    expect(pods["selector"]["matchLabels"].items() <= labels.items(), "the set doesn't select its pods")
    expect(documents["Service"]["spec"]["selector"].items() <= labels.items(), "the service selects no pod")
    expect(pods["serviceName"] == documents["Service"]["metadata"]["name"], "the set names another service")
    container = pods["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in documents["Service"]["spec"]["ports"]:
        expect(port["targetPort"] in ports, "the service's port {} is no container's".format(port["name"]))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        expect(container[probe]["httpGet"]["port"] in ports, probe + " asks a port that isn't there")
    volumes = {v["name"] for v in pods["template"]["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in pods["volumeClaimTemplates"]}
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    expect(mounts == volumes, "volumes and mounts differ: {}".format(mounts ^ volumes))
    for kind in ("requests", "limits"):
        expect(any("gpu" in name for name in container["resources"][kind]), "no GPU among " + kind)
    config = documents["ConfigMap"]["data"]["beamd.textproto"]
    for line in config.splitlines():
        paths = re.findall(r'"(/[^"]*)"', line)
        for path in paths:
            expect(any(path.startswith(m["mountPath"].rsplit("/", 0)[0]) for m in container["volumeMounts"]),
                   path + " is in no mount")
    # The secrets are a cluster's own, its folders and devices a node's; what is left must be a configuration.
    without = re.sub(r'(?m)^(tls_\w+|access_file|devices): .*$', "", config) + "insecure: true\n"
    without = without.replace('"/var/lib/beamd/', '"' + tempfile.gettempdir() + "/")
    with tempfile.NamedTemporaryFile("w", suffix=".textproto") as file:
        file.write(without)
        file.flush()
        ran = subprocess.run([beamd, "serve", "--config", file.name, "--check_config"], capture_output=True, text=True)
        expect(ran.returncode == 0, "the configuration: " + ran.stderr)


def check_metrics(dashboard, alerts, readme):
    with open(readme) as file:
        known = set(re.findall(r"`(beamd_[a-z_]+)`", file.read()))
    with open(dashboard) as file:
        board = json.load(file)
    asked = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    expect(len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), "two panels have one id")
    with open(alerts) as file:
        asked += [rule["expr"] for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
    for expression in asked:
        for name in re.findall(r"beamd_[a-z_]+", expression):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            expect(name in known or base in known, "{} isn't in {}".format(name, readme))


def main():
    manifests, dashboard, alerts, readme, beamd = sys.argv[1:]
    check_manifests(manifests, beamd)
    check_metrics(dashboard, alerts, readme)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
