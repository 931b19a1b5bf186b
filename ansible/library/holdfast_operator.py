#!/usr/bin/python
"""The operator's account, with which plays and root's own commands administer a cluster.

The cluster knows the operator's password, and each host has a file with it. A new password has to reach both, on
clusters that are open, closed, not there yet, or half-way after an interrupted run. No output of a play and no argument
of a process may show a password.

So the module first tries the cluster, with the wanted password and then with the one on the host. It writes the files
only if the cluster knows the new password, or if there is no cluster yet that could know an old one. A cluster that
does not run starts with the operator as its first user (`security.first_user_file`).

The module runs in the release's own Python, with its client.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: holdfast_operator
short_description: Have the operator's account in the cluster, and its files on this host
description:
  - Writes C(operator.toml) (for C(HOLDFAST_CONFIG)) and C(operator.password), which root alone can read, and
    C(first-user.json), with which nodes of a cluster without users begin. Where a node is ready, the account and its
    password are brought into the cluster first.
options:
  name: {description: Of the account., type: str, required: true}
  password: {description: Its password., type: str, required: true}
  server: {description: Where this host's node takes clients now., type: str, required: true}
  ca:
    description: A file on this host, with the authorities that vouch for the node; empty where it has no TLS.
    type: path
    default: ""
  written_server:
    description: What C(operator.toml) says in its place, where another start of the node comes between.
    type: str
  written_ca: {description: The same of C(ca)., type: path}
  ready: {description: Whether that node is ready., type: bool, required: true}
  directory: {description: Where the files are., type: path, default: /etc/holdfast}
  group: {description: Of the node's process., type: str, default: root}
author: Holdfast
"""

EXAMPLES = r"""
- name: Have the operator
  holdfast_operator:
    name: operator
    password: "{{ vault_operator_password }}"
    server: 10.0.0.1:5672
    ready: true
"""

RETURN = r"""
did:
  description: What was changed.
  type: list
  elements: str
  returned: always
"""

SPECIFICATION = {
    "name": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "server": {"type": "str", "required": True},
    "ca": {"type": "path", "default": ""},
    "written_server": {"type": "str"},
    "written_ca": {"type": "path"},
    "ready": {"type": "bool", "required": True},
    "directory": {"type": "path", "default": "/etc/holdfast"},
    "group": {"type": "str", "default": "root"},
}

ADMIN = "admin"
ANSWER_WITHIN_S = 20.0


class OperatorFault(Exception):
    """A failure; the message says what is wrong and what to do."""


def client(server, security):
    from holdfast.client import NetworkOptions
    from holdfast.client.sync import AdminClient

    options = NetworkOptions(security=security, first_contact_s=ANSWER_WITHIN_S)
    return AdminClient(server, timeout_s=ANSWER_WITHIN_S, options=options)


def let_in(server, security):
    """Return the cluster's record of this login; None if it is refused."""
    from holdfast.client import AuthenticationError

    try:
        with client(server, security) as admin:
            return admin.whoami()
    except AuthenticationError:
        return None


class OperatorLogin:
    def __init__(self, wanted, check):
        self._wanted = wanted
        self._check = check
        self._directory = Path(wanted["directory"])
        self._ca = wanted["ca"]
        self.did = []

    def in_the_cluster(self):
        """Bring account and password into the cluster. Raises OperatorFault if no login may do that."""
        from holdfast.client import Security

        name, password, server = (self._wanted[key] for key in ("name", "password", "server"))
        known = let_in(server, Security(ca=self._ca, user=name, password=password))
        if known is not None:
            if ADMIN not in known["roles"]:
                raise OperatorFault(
                    f"holdfast_node_operator: {name} is a user of the cluster, but no administrator; give it the role: "
                    f"`holdfast user roles {name} --role {ADMIN}`"
                )
            return
        before = self._written_login()
        for security in (before, Security(ca=self._ca)):
            known = None if security is None else let_in(server, security)
            if known is not None and (known["open_cluster"] or ADMIN in known["roles"]):
                self._bring(security)
                return
        raise OperatorFault(
            f"holdfast_node_operator: the cluster knows users, but neither {name} with this password nor what this "
            f"host has in {self._directory / 'operator.toml'}; correct the password in the vault, or run, as an "
            f"administrator, `holdfast user add {name} --role {ADMIN}` or `holdfast user password {name}`"
        )

    def _bring(self, security):
        name, password = self._wanted["name"], self._wanted["password"]
        with client(self._wanted["server"], security) as admin:
            there = name in [user["name"] for user in admin.list_users()]
            self.did.append(f"{'another password for' if there else 'user'} {name}")
            if self._check:
                return
            if there:
                admin.set_password(name, password)
                admin.set_roles(name, [ADMIN])
            else:
                admin.add_user(name, password, roles=[ADMIN])

    def _written_login(self):
        from holdfast.client import Security

        try:
            section = tomllib.loads((self._directory / "operator.toml").read_text())["security"]
            password = (self._directory / "operator.password").read_text().splitlines()[0]
        except (FileNotFoundError, IndexError, KeyError, tomllib.TOMLDecodeError):
            return None
        return Security(ca=self._ca, user=section.get("user", ""), password=password)

    def may_be_written(self):
        """Check that the files may change without a node to ask.

        Raises OperatorFault if a cluster may know the old password."""
        before = self._written_login()
        if before is not None and (before.user, before.password) != (self._wanted["name"], self._wanted["password"]):
            raise OperatorFault(
                "holdfast_node_operator: name or password differ from those in "
                f"{self._directory / 'operator.toml'}, and this host's node is not ready to be told; bring it up with "
                "the old ones first (`--check` shows what it lacks), then change them"
            )

    def files(self):
        name = self._wanted["name"]
        directory = self._directory
        server = self._wanted["written_server"] or self._wanted["server"]
        ca = self._ca if self._wanted["written_ca"] is None else self._wanted["written_ca"]
        toml = (
            "# Ansible managed. HOLDFAST_CONFIG names this file.\n"
            f"[client]\nservers = [{json.dumps(server)}]\n\n[security]\n"
            + (f"ca = {json.dumps(ca)}\n" if ca else "")
            + f"user = {json.dumps(name)}\n"
            f"password_file = {json.dumps(str(directory / 'operator.password'))}\n"
        )
        self._write(directory / "operator.password", self._wanted["password"] + "\n")
        self._write(directory / "operator.toml", toml)
        self._first_user(directory / "first-user.json")

    def _first_user(self, path):
        """Write the first user. Keys have a random salt, so they are made again only for another password."""
        from holdfast.client.transport.security.scram import is_password_of, password_keys

        name, password = self._wanted["name"], self._wanted["password"]
        try:
            told = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            told = {}
        if told.get("name") == name and is_password_of(told, password):
            text = path.read_text()
        else:
            text = json.dumps({"name": name, **password_keys(password)}) + "\n"
        self._write(path, text, group=self._wanted["group"])

    def _write(self, path, text, group=None):
        """Write a file atomically, readable by root alone or also by a group."""
        import grp

        mode, gid = (0o600, 0) if group is None else (0o640, grp.getgrnam(group).gr_gid)
        try:
            status = path.stat()
            if (path.read_text(), status.st_mode & 0o7777, status.st_uid, status.st_gid) == (text, mode, 0, gid):
                return
        except FileNotFoundError:
            pass
        self.did.append(str(path))
        if self._check:
            return
        beside = path.with_name(path.name + ".new")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchown(descriptor, 0, gid)
            os.fchmod(descriptor, mode)
            file.write(text)
        os.replace(beside, path)


def main():
    module = AnsibleModule(argument_spec=SPECIFICATION, supports_check_mode=True)
    from holdfast.client import HoldfastError

    operator = OperatorLogin(module.params, module.check_mode)
    try:
        if module.params["ready"]:
            operator.in_the_cluster()
        else:
            operator.may_be_written()
        operator.files()
    except (OperatorFault, HoldfastError, OSError) as fault:
        module.fail_json(msg=str(fault), did=operator.did)
    module.exit_json(changed=bool(operator.did), did=operator.did)


if __name__ == "__main__":
    main()
