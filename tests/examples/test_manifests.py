"""Example manifests for Kubernetes, Docker and SkyPilot are valid and configure peers as intended.

No package contains JobSet's schema. Its pods are checked against the schema of a Job, and its own
fields against its API reference (https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2).
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rumor.train import PeerConfig, environment

from ..layout import LAYERS
from ..waiting import LIMIT_S, until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="examples are not next to the tests")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def pod_of(name: str) -> dict[str, Any]:
    """Return the pod spec of a manifest."""
    *_, last = documents(f"kubernetes/{name}.yaml")
    if name == "jobset":
        last = last["spec"]["replicatedJobs"][0]["template"]
    spec: dict[str, Any] = last["spec"]["template"]["spec"]
    return spec


def container_of(name: str) -> dict[str, Any]:
    (container,) = pod_of(name)["containers"]
    return dict(container)


def test_the_kubernetes_manifests_are_valid() -> None:
    (job_set,) = documents("kubernetes/jobset.yaml")
    (replicated,) = job_set["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    job["spec"] = replicated["template"]["spec"]
    for document in (*documents("kubernetes/statefulset.yaml"), job):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


# The allowed fields of JobSet's API v1alpha2, and their types.
JOB_SET = {
    "spec": {"network", "successPolicy", "failurePolicy", "replicatedJobs", "suspend"},
    "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
    "successPolicy": {"operator": str, "targetReplicatedJobs": list},
    "failurePolicy": {"maxRestarts": int, "restartStrategy": str, "rules": list},
    "replicatedJobs": {"name": str, "replicas": int, "template": dict, "dependsOn": list},
}


def test_the_job_set_uses_only_fields_of_its_api() -> None:
    (job_set,) = documents("kubernetes/jobset.yaml")
    assert job_set["apiVersion"] == "jobset.x-k8s.io/v1alpha2" and job_set["kind"] == "JobSet"
    spec = job_set["spec"]
    assert {*spec} <= {*JOB_SET["spec"]}
    assert spec["successPolicy"]["operator"] in ("All", "Any")
    parts = [(name, spec[name]) for name in ("network", "successPolicy", "failurePolicy")]
    parts += [("replicatedJobs", each) for each in spec["replicatedJobs"]]
    for name, part in parts:
        known = JOB_SET[name]
        assert isinstance(known, dict)
        for key, value in part.items():
            assert type(value) is known[key], key


def test_peers_are_published_before_they_are_ready() -> None:
    service, stateful_set = documents("kubernetes/statefulset.yaml")
    (job_set,) = documents("kubernetes/jobset.yaml")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert job_set["spec"]["network"]["publishNotReadyAddresses"]
    assert stateful_set["spec"]["serviceName"] == service["metadata"]["name"]
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    for name, host in (
        ("statefulset", service["metadata"]["name"]),
        ("jobset", job_set["spec"]["network"]["subdomain"]),
    ):
        assert variables(name)["RUMOR_JOIN"] == f"dns:{host}:7700"


def variables(name: str) -> dict[str, str]:
    """Return a container's environment variables as Kubernetes sets them."""
    fields = {
        "metadata.name": "swarm-2",
        "status.podIP": "10.1.2.3",
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": "2",
    }
    found: dict[str, str] = {}
    for each in container_of(name)["env"]:
        text = each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], text)
    return found


@pytest.mark.parametrize("name", ["statefulset", "jobset"])
def test_a_peer_reads_its_settings_from_the_manifest(name: str) -> None:
    env = variables(name)
    config = environment(env).fill(PeerConfig())
    id = {"statefulset": "swarm-2", "jobset": "peer-2"}[name]
    assert (config.id, config.join) == (id, ("dns:swarm:7700",))
    assert (config.bind, config.advertise) == ("tcp://0.0.0.0:7700", ("tcp://10.1.2.3:7700",))
    known = {*env} - {"POD_IP", "INDEX"}
    assert all(environment({key: env[key]}) != environment({}) for key in known), known
    grace_s = pod_of(name)["terminationGracePeriodSeconds"]
    assert grace_s >= config.leave_s + 20
    (port,) = container_of(name)["ports"]
    assert port["containerPort"] == 7700


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("name", ["statefulset", "jobset"])
def test_the_readiness_probe_and_the_stop_hook_work(name: str, tmp_path: Path) -> None:
    container = container_of(name)
    probe: list[str] = container["readinessProbe"]["exec"]["command"]
    (*shell, hook) = container["lifecycle"]["preStop"]["exec"]["command"]
    ready = tmp_path / "ready"
    probe = [word.replace(variables(name)["RUMOR_READY"], str(ready)) for word in probe]
    env = {"RUMOR_READY": str(ready), "RUMOR_OUT": str(tmp_path / "state"), "RUMOR_ID": "ada"}
    env |= {"RUMOR_RESUME": "1", "STEPS": "100000000", "RUMOR_DEVICE": "cpu"}
    with open(tmp_path / "log.txt", "w") as log:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "kubernetes/train.py")],
            env=os.environ | env,
            stdout=log,
            stderr=log,
        )
    try:
        assert subprocess.run(probe).returncode != 0
        until(lambda: subprocess.run(probe).returncode == 0, "it is ready")
        # In the container, the peer's parent is the first process, which hands signals on.
        hook = hook.replace("-TERM 1;", f"-TERM {process.pid};")
        words = [*shell, hook.replace("-0 1;", f"-0 {process.pid};")]
        assert words[-1].count(str(process.pid)) == 2, hook
        waiting = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert waiting.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert not ready.exists()
    report = json.loads((tmp_path / "state" / "peer.json").read_text())
    assert report["state"] == "left", (tmp_path / "log.txt").read_text()


def test_the_image_contains_all_needed_sources() -> None:
    text = (EXAMPLES / "docker/Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY")]
    sources = {source for each in copied for source in each}
    assert {*LAYERS, "pyproject.toml"} <= sources
    assert all((ROOT / source).exists() for source in sources)
    assert "STOPSIGNAL SIGTERM" in text and "RUMOR_SIGNALS=1" in text


def test_the_spot_task_starts_a_peer_on_each_node(tmp_path: Path) -> None:
    (task,) = documents("skypilot/swarm.yaml")
    assert {*task} <= {"name", "num_nodes", "resources", "workdir", "setup", "run", "envs"}
    assert task["resources"]["use_spot"] is True and type(task["num_nodes"]) is int
    python = tmp_path / "rumor/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nenv\n")
    python.chmod(0o755)
    env = {
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.11\n10.0.0.3",
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NUM_NODES": "3",
        "SKYPILOT_TASK_ID": "sky-1",
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    words = ["bash", "-euc", task["run"]]
    out = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    found = dict(line.split("=", 1) for line in out.splitlines() if line.startswith("RUMOR_"))
    config = environment(found).fill(PeerConfig())
    assert (config.id, config.advertise) == ("peer-0", ("tcp://10.0.0.1:7700",))
    assert config.join == ("tcp://10.0.0.11:7700", "tcp://10.0.0.3:7700")
    assert (environment(found).resume, config.out) == (True, tmp_path / "state/sky-1")
    subprocess.run(["bash", "-nc", task["setup"]], check=True)
