# SPDX-License-Identifier: Apache-2.0
"""`steelyard health` as the track script of a real keepalived."""

import signal

from tests.lab import wait_until
from tests.lab.steelyard import STEELYARD
from tests.wire.stage import Stage

ADDRESS = "10.0.0.250"
CONFIG = """
global_defs {{
    vrrp_version 3
    script_user root
    enable_script_security
    vrrp_garp_master_repeat 1
}}
vrrp_script steelyard {{
    script "{binary} health --socket {socket}"
    interval 1
    timeout 10
    fall 1
    rise 1
}}
vrrp_instance lb {{
    interface front
    virtual_router_id 51
    priority 100
    advert_int 0.1
    virtual_ipaddress {{ {address}/32 dev front }}
    track_script {{ steelyard }}
}}
"""


def test_keepalived_follows_health():
    with Stage(workers=1, arms=1) as stage:
        steelyard = stage.steelyard
        steelyard.wait_all_up()
        file = stage.lab.dir / "keepalived.conf"
        file.write_text(
            CONFIG.format(binary=STEELYARD, socket=steelyard.agent_socket, address=ADDRESS)
        )
        pids = ["-p", stage.lab.dir / "keepalived.pid", "-r", stage.lab.dir / "vrrp.pid"]
        stage.lab.start(
            "forwarder", "keepalived", ["keepalived", "-n", "-l", "-P", "-f", file, *pids]
        )

        def is_master():
            shown = stage.lab["forwarder"].ns.run(["ip", "-4", "address", "show", "dev", "front"])
            return ADDRESS in shown

        wait_until(is_master, "keepalived is the master of a healthy node")
        steelyard.forwarder.send(signal.SIGSTOP)  # connected, and without an answer
        wait_until(lambda: not is_master(), "a node whose forwarder hangs is no master")
        steelyard.forwarder.send(signal.SIGCONT)
        wait_until(is_master, "it is the master again")
        steelyard.kill_forwarder()
        wait_until(lambda: not is_master(), "a node without a forwarder is no master")
        steelyard.start_forwarder()
        wait_until(is_master, "it is the master again")
