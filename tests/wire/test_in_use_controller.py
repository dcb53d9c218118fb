# SPDX-License-Identifier: Apache-2.0
"""`apply --force` through a controller claims VIPs that another host uses: those of its file, not
other projects'."""

import pytest

from tests.lab import Lab, Server, Service, wait_until
from tests.lab.config import yaml_lines
from tests.lab.controllers import Controllers, Member
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB, WEB
from tests.lab.topology import BACK, v6
from tests.wire.test_in_use import IN_USE, VIP, give


class Rig:
    """Each project has a VIP, of one family, that `router` has too."""

    projects = {"shop": 4, "bank": 6}

    def __init__(self, lab):
        self.lab = lab
        start_nginx(lab, "s1")
        self.controllers = Controllers(lab)
        self.member = Member(lab, self.controllers, 1, probe=True)
        self.member.locals.append(v6(BACK, 213))
        self.controllers.start()
        self.member.join()
        for family in self.projects.values():
            give(lab["router"].ns, family)

    def apply(self, project, *words):
        family = self.projects[project]
        server = Server(self.lab["s1"].address(family), SERVER_WEB)
        service = Service("web", VIP[family], WEB, health={"type": "none"}, servers=[server])
        file = self.lab.dir / f"{project}.yaml"
        value = {"version": 1, "services": [service.value()]}
        file.write_text("\n".join(yaml_lines(value)) + "\n")
        words = ["apply", file, "--forwarder", "f1", "--project", project, *words]
        return self.controllers.cli(*words, check=False)

    def is_claimed(self, family):
        ns = self.lab["f1"].ns
        shown = ns.ip("route show table local proto 201") + ns.ip("-6 address show dev front")
        return VIP[family] in shown

    def contested(self):
        status = self.member.api.call("GetStatus").forwarder.status
        return {f for f in (4, 6) if any(f"{VIP[f]} {IN_USE}" in t for t in status.contested)}


@pytest.fixture
def rig():
    with Lab() as lab:
        yield Rig(lab)


def test_force_claims_the_files_addresses_alone(rig):
    for project in rig.projects:
        rig.controllers.cli("project", "set", project)
        done = rig.apply(project)
        assert done.returncode == 0, done.stderr
    wait_until(lambda: rig.contested() == {4, 6}, "both are contested")
    done = rig.apply("shop", "--force")
    assert done.returncode == 0, done.stderr
    assert rig.is_claimed(4) and not rig.is_claimed(6)
    wait_until(lambda: rig.contested() == {6}, "the other one is left")
    assert "claim" in rig.controllers.cli("get", "audit")
    done = rig.apply("bank", "--force")
    assert done.returncode == 0, done.stderr
    assert rig.is_claimed(6)
    wait_until(lambda: not rig.contested(), "none is left")
