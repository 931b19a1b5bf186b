"""The core of a cluster's life on hosts of its own, in every run of the tests; `test_life` has the whole of it.

One test, because each part needs what the parts before it made.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.ansible.hosts.network import HostNetwork
from tests.ansible.playbooks import ControlHost
from tests.ansible.steps import (
    a_node_that_is_killed_is_started_again,
    done,
    logs_rotate,
    nothing_was_lost,
    numbers,
    one_after_another,
    running,
    services_run_with_what_they_were_promised,
    supervisord_is_killed_and_started_again,
    teardown_leaves_nothing,
    under_load,
    watched,
)

PER_SECOND = 100


@pytest.mark.early
@pytest.mark.longest
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_short_life_of_a_cluster(
    network: HostNetwork, control: ControlHost, measured: Callable[[str], None]
) -> None:
    bare = [host.written() for host in network.hosts]
    control.groups["toxiproxies"] = []
    login = closed_by_an_operator(control)
    built = done(control.play("site"))
    again = done(control.play("site"))
    assert again.changed == 0, again.text
    services_run_with_what_they_were_promised(control, network.hosts[0])
    changed_s = changed_variables_restart_everything_one_by_one_under_load(control, network, login)
    a_node_that_is_killed_is_started_again(network.hosts[0])
    supervisord_is_killed_and_started_again(network.hosts[1])
    logs_rotate(network.hosts[2])
    done(control.play("verify"))
    teardown_leaves_nothing(control, network, bare)
    measured(f"site on bare hosts {built.took_s:.0f} s, again {again.took_s:.0f} s, with restarts {changed_s:.0f} s")


def closed_by_an_operator(control: ControlHost) -> tuple[str, str]:
    """From its first start on; whoever asks the cluster for something, plays too, has to log in so."""
    password = control.directory / "operator"
    password.write_text("of-the-operator\n")
    control.write_vault(vault_operator="of-the-operator")
    control.variables |= {
        "holdfast_node_operator": "operator",
        "holdfast_node_operator_password": "{{ vault_operator }}",
    }
    return "operator", str(password)


def changed_variables_restart_everything_one_by_one_under_load(
    control: ControlHost, network: HostNetwork, login: tuple[str, str]
) -> float:
    before = [running(host) for host in network.hosts]
    nodes = [f"{host.inside}:5672" for host in network.hosts]
    servers = [f"{host.inside}:2181" for host in network.hosts]
    control.variables |= {"holdfast_node_min_free_mib": 128, "zookeeper_heap_mib": 100}
    with under_load(network, PER_SECOND, *login) as produced, watched(network, nodes + servers) as seen:
        changed = done(control.play("site"))
        away, report = seen(), produced()
    nothing_was_lost(report)
    for kind in (nodes, servers):
        one_after_another(away, kind)
    for host, was in zip(network.hosts, before, strict=True):
        now = running(host)
        assert len(numbers(now)) == 2
        assert not numbers(was) & numbers(now), json.dumps([was, now])
        assert "-Xmx100m" in now
    return changed.took_s
