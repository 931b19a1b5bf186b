#!/usr/bin/python
"""Directories, files and links of a service, all in one call.

Ansible's own modules need a call (a login, a start of Python, imports from a zip) for each directory and two to four
for each file. A role that writes ten of them spends its time on that in every run, even if nothing changes. In check
mode this module reports and does exactly the same as the modules that it replaces.
"""

from __future__ import annotations

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: holdfast_files
short_description: Have directories, files and links, all in one call
description:
  - What C(ansible.builtin.file) and C(ansible.builtin.copy) do, for many paths at once. Check mode and diffs work.
options:
  directories:
    description: Directories, with their parents.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where., type: path, required: true}
      owner: {description: Its user., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      mode: {description: Its mode., type: str, default: "0755"}
  files:
    description: Files, whole.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Where; its directory must be there., type: path, required: true}
      content: {description: All of it., type: str, required: true}
      owner: {description: Its user., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      mode: {description: Its mode., type: str, default: "0644"}
  links:
    description: Symbolic links.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The link., type: path, required: true}
      target: {description: Where it points to., type: path, required: true}
author: Holdfast
"""

EXAMPLES = r"""
- name: Have a configuration
  holdfast_files:
    directories:
      - path: /etc/example
    files:
      - path: /etc/example/example.conf
        content: "{{ lookup('ansible.builtin.template', 'example.conf.j2') }}"
        mode: "0640"
"""

RETURN = r"""
written:
  description: The paths that were changed.
  type: list
  elements: str
  returned: always
"""


def attributes(mode):
    return {
        "path": {"type": "path", "required": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
        "mode": {"type": "str", "default": mode},
    }


SPECIFICATION = {
    "directories": {"type": "list", "elements": "dict", "default": [], "options": attributes("0755")},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {**attributes("0644"), "content": {"type": "str", "required": True}},
    },
    "links": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"type": "path", "required": True}, "target": {"type": "path", "required": True}},
    },
}


class Files:
    def __init__(self, module):
        self._module = module
        self.written = []
        self.diffs = []

    def directory(self, wanted):
        path = wanted["path"]
        if os.path.isdir(path):
            self._attributes(wanted)
            return
        missing = []
        while not os.path.isdir(path):
            if os.path.lexists(path):
                self._module.fail_json(msg=f"{path} is no directory; move it away, or choose another path")
            missing.append(path)
            path = os.path.dirname(path)
        self._note(wanted["path"], "", "a directory\n")
        if not self._module.check_mode:
            for path in reversed(missing):
                os.mkdir(path)
                self._set({**wanted, "path": path})

    def file(self, wanted):
        path, content = wanted["path"], wanted["content"]
        if os.path.isdir(path):
            self._module.fail_json(msg=f"{path} is a directory; move it away, or choose another path")
        present = os.path.exists(path)
        before = self._read(path) if present else ""
        if present and before == content:
            self._attributes(wanted)
            return
        self._note(path, before, content)
        if not self._module.check_mode:
            handle, temporary = tempfile.mkstemp(dir=self._module.tmpdir)
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(content)
            self._module.atomic_move(temporary, path)
            self._set(wanted)

    def link(self, wanted):
        path, target = wanted["path"], wanted["target"]
        present = os.path.lexists(path)
        if present and not os.path.islink(path):
            self._module.fail_json(msg=f"{path} is no link; move it away, or choose another path")
        before = os.readlink(path) if present else ""
        if before == target:
            return
        self._note(path, before and f"{before}\n", f"{target}\n")
        if not self._module.check_mode:
            temporary = f"{path}.new"
            if os.path.lexists(temporary):  # left by an interrupted run
                os.unlink(temporary)
            os.symlink(target, temporary)
            os.replace(temporary, path)

    @staticmethod
    def _read(path):
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()

    def _note(self, path, before, after):
        self.written.append(path)
        self.diffs.append({"before_header": path, "after_header": path, "before": before, "after": after})

    def _attributes(self, wanted):
        """Set owner, group and mode of an existing path, and note changes."""
        diff = {}
        if self._set(wanted, diff):
            self.written.append(wanted["path"])
            self.diffs.append(diff)

    def _set(self, wanted, diff=None):
        arguments = {key: wanted[key] for key in ("path", "owner", "group", "mode")}
        common = {"secontext": [None, None, None], "attributes": None}
        return self._module.set_fs_attributes_if_different({**arguments, **common}, False, diff)


def main():
    module = AnsibleModule(argument_spec=SPECIFICATION, supports_check_mode=True)
    files = Files(module)
    for wanted in module.params["directories"]:
        files.directory(wanted)
    for wanted in module.params["files"]:
        files.file(wanted)
    for wanted in module.params["links"]:
        files.link(wanted)
    module.exit_json(changed=bool(files.written), written=files.written, diff=files.diffs)


if __name__ == "__main__":
    main()
