"""A directory and nodes on this machine, for the time of a measurement."""

import os
import tempfile

from comparison import Failed, Server


class Cluster:
    def __init__(self, lochos, nodes, pool):
        self.lochos, self.count, self.pool = lochos, nodes, pool
        self.directory, self.nodes = None, []
        self.scratch = tempfile.TemporaryDirectory()
        self.sockets = [os.path.join(self.scratch.name, f"{i}.sock") for i in range(nodes)]

    def __enter__(self):
        try:
            self.directory = Server([self.lochos, "directory", "--listen", "127.0.0.1:0"])
            address = self.directory.ready(r"^ready directory=(\S+)")
            for i, socket in enumerate(self.sockets):
                node = Server([self.lochos, "node", "--directory", address, "--name", f"n{i}",
                               "--socket", socket, "--pool", self.pool, "--transport", "tcp",
                               "--interface", "lo"])
                self.nodes.append(node)
                node.ready(r"^ready (.*)")
        except Failed:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in [*self.nodes, self.directory]:
            server.process.terminate()
            server.__exit__()
        self.scratch.cleanup()
