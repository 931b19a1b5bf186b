#!/usr/bin/python
"""The users and grants of a cluster, as an inventory lists them.

A cluster does not tell passwords, so this module cannot compare them. It changes a password if its user cannot log in
with it; so a second run changes nothing. Passwords go only to the cluster, never into arguments of a process or into
files. Users and grants that are not listed stay, unless `exclusive` is set.

The module runs in the release's own Python, with its client.
"""

from __future__ import annotations

import tomllib

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: holdfast_users
short_description: Have users and grants in a cluster
options:
  config: {description: The operator's settings file on this host., type: path, required: true}
  server: {description: A node of the cluster., type: str, required: true}
  users:
    description: Who can log in by a password.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: The user's name., type: str, required: true}
      password: {description: The user's password., type: str, required: true}
      roles: {description: These roles and no others., type: list, elements: str, default: []}
  grants:
    description: What is written behind C(holdfast grant add), such as C(ann publish log:orders).
    type: list
    elements: str
    default: []
  exclusive: {description: Remove what is not listed; never the operator., type: bool, default: false}
author: Holdfast
"""

EXAMPLES = r"""
- name: Have users
  holdfast_users:
    config: /etc/holdfast/operator.toml
    server: 10.0.0.1:5672
    users:
      - name: ann
        password: "{{ vault_ann }}"
    grants: ["ann consume log:orders*", "ann consume group:ann*"]
"""

RETURN = r"""
did:
  description: What was changed.
  type: list
  elements: str
  returned: always
"""

SPECIFICATION = {
    "config": {"type": "path", "required": True},
    "server": {"type": "str", "required": True},
    "users": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
            "roles": {"type": "list", "elements": "str", "default": []},
        },
    },
    "grants": {"type": "list", "elements": "str", "default": []},
    "exclusive": {"type": "bool", "default": False},
}

ANSWER_WITHIN_S = 30.0
DENY = "--deny"


def client(server, security):
    from holdfast.client import NetworkOptions
    from holdfast.client.sync import AdminClient

    options = NetworkOptions(security=security, first_contact_s=ANSWER_WITHIN_S)
    return AdminClient(server, timeout_s=ANSWER_WITHIN_S, options=options)


def operator_of(config):
    from holdfast.client import Security

    with open(config, "rb") as file:
        section = tomllib.load(file)["security"]
    return Security(ca=section.get("ca", ""), user=section["user"], password_file=section["password_file"])


def key_of(words):
    """Parse a listed grant into its key: principal, operation, kind, name, prefix, deny."""
    parts = words.split()
    deny = DENY in parts
    principal, operation, resource = (part for part in parts if part != DENY)
    kind, _, name = resource.partition(":")
    return principal, operation, kind, name.removesuffix("*"), name.endswith("*"), deny


def key_told(one):
    """Return the key of a grant of the cluster."""
    return (
        one["principal"],
        one["operation"],
        one["resource"],
        one["resource_name"] or "",
        bool(one["prefix"]),
        one["effect"] == "deny",
    )


def shown(key):
    principal, operation, kind, name, prefix, deny = key
    resource = f"{kind}:{name}{'*' if prefix else ''}" if name or prefix else kind
    return " ".join([principal, operation, resource, *([DENY] if deny else [])])


class UserChanges:
    def __init__(self, admin, server, ca, check):
        self._admin = admin
        self._server = server
        self._ca = ca
        self._check = check
        self.did = []

    def _do(self, what, call):
        self.did.append(what)
        if not self._check:
            call()

    def have_users(self, users):
        there = {one["name"]: one["roles"] for one in self._admin.list_users()}
        for user in users:
            name, password, roles = user["name"], user["password"], sorted(set(user["roles"]))
            if name not in there:
                self._do(f"user {name}", lambda n=name, p=password, r=roles: self._admin.add_user(n, p, roles=r))
                continue
            if not self._lets_in(name, password):
                self._do(f"another password for {name}", lambda n=name, p=password: self._admin.set_password(n, p))
            if sorted(there[name]) != roles:
                self._do(f"roles of {name}", lambda n=name, r=roles: self._admin.set_roles(n, r))

    def _lets_in(self, name, password):
        from holdfast.client import AuthenticationError, Security

        try:
            with client(self._server, Security(ca=self._ca, user=name, password=password)) as admin:
                admin.whoami()
        except AuthenticationError:
            return False
        return True

    def have_grants(self, grants):
        there = {key_told(one) for one in self._admin.list_grants()}
        for key in dict.fromkeys(key_of(words) for words in grants):
            if key not in there:
                self._do(f"grant {shown(key)}", lambda k=key: self._grant(self._admin.add_grant, k))

    @staticmethod
    def _grant(call, key):
        principal, operation, kind, name, prefix, deny = key
        call(principal, operation, kind, name, prefix=prefix, deny=deny)

    def have_no_others(self, users, grants, operator):
        kept = {user["name"] for user in users} | {operator}
        for one in self._admin.list_users():
            if one["name"] not in kept:
                self._do(f"no user {one['name']}", lambda n=one["name"]: self._admin.remove_user(n))
        listed = {key_of(words) for words in grants}
        for key in sorted({key_told(one) for one in self._admin.list_grants()} - listed):
            self._do(f"no grant {shown(key)}", lambda k=key: self._grant(self._admin.remove_grant, k))


def main():
    module = AnsibleModule(argument_spec=SPECIFICATION, supports_check_mode=True)
    from holdfast.client import HoldfastError

    wanted, did = module.params, []
    try:
        operator = operator_of(wanted["config"])
        with client(wanted["server"], operator) as admin:
            access = UserChanges(admin, wanted["server"], operator.ca, module.check_mode)
            did = access.did
            access.have_users(wanted["users"])
            access.have_grants(wanted["grants"])
            if wanted["exclusive"]:
                access.have_no_others(wanted["users"], wanted["grants"], operator.user)
    except (HoldfastError, OSError) as fault:
        module.fail_json(msg=f"{fault} {getattr(fault, 'advice', '') or ''}".strip(), did=did)
    module.exit_json(changed=bool(did), did=did)


if __name__ == "__main__":
    main()
