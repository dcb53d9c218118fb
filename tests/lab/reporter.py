# SPDX-License-Identifier: Apache-2.0
"""Reports on port 9100 of servers' hosts how busy they are, by the conventions of ORCA."""

import contextlib
import json
import selectors
import socket
import threading

PORT = 9100


class Reporter(threading.Thread):
    """Answers each request at a host's port with the result of its function: 0 to 1.

    uses: {"s1": function, …}"""

    def __init__(self, lab, uses):
        super().__init__(daemon=True)
        self.chosen, self.ending = selectors.DefaultSelector(), False
        for host, use in uses.items():
            listener = lab[host].ns.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", PORT))
            listener.listen(64)
            self.chosen.register(listener, selectors.EVENT_READ, use)

    def run(self):
        while not self.ending:
            for key, _ in self.chosen.select(0.2):
                with contextlib.suppress(OSError):
                    self.answer(key.fileobj, key.data)

    @staticmethod
    def answer(listener, use):
        one, _ = listener.accept()
        with one:
            one.settimeout(2)
            one.recv(65536)
            body = json.dumps({"cpu_utilization": round(use(), 3)}).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            one.sendall(head.encode() + body)

    def close(self):
        self.ending = True
        self.join()
        for key in list(self.chosen.get_map().values()):
            key.fileobj.close()
