#!/usr/bin/env python3
"""`lochos perf bw|lat` as a user runs it: exit statuses, JSON, and what happens when a side dies."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

LOCHOS = sys.argv.pop(1)
BW_KEYS = ["size", "iterations", "bw_peak_MBps", "bw_average_MBps", "bw_min_MBps", "msg_rate_Mpps"]
LAT_KEYS = ["size", "iterations", "t_min_us", "t_median_us", "t_avg_us", "t_stdev_us", "t_99_us",
            "t_999_us", "t_max_us"]
PATIENCE = 30  # of the test itself; the promises are shorter
FOREVER = "50000000"


class PerfCommand(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def start(self, *arguments):
        process = subprocess.Popen([LOCHOS, "perf", *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def server(self, test, *arguments):
        """A server that is ready, and the port it printed."""
        process = self.start(test, "--port", "0", "--transport", "tcp", *arguments)
        ready = process.stdout.readline()
        match = re.fullmatch(r"ready perf=\S*:(\d+)\n", ready)
        self.assertTrue(match, ready)
        return process, match.group(1)

    def client(self, test, port, *arguments):
        return self.start(test, f"127.0.0.1:{port}", "--transport", "tcp", *arguments)

    def running(self, process):
        """Returns when the process has begun to measure: it has printed the columns."""
        for line in process.stdout:
            if "#bytes" in line:
                return
        self.fail("no table: " + process.stderr.read())

    def rows(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def test_bandwidth(self):
        server, port = self.server("bw", "--json", self.path("server"))
        client = self.client("bw", port, "--size", "4K", "--iterations", "500", "--events",
                             "--json", self.path("client"))
        out, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 0, err)
        self.assertIn("4096", out)
        self.assertEqual(server.wait(PATIENCE), 0)
        rows = self.rows("client")
        self.assertEqual([list(row) for row in rows], [BW_KEYS])
        self.assertEqual(rows[0]["size"], 4096)
        self.assertEqual(rows[0]["iterations"], 500)
        self.assertLessEqual(rows[0]["bw_min_MBps"], rows[0]["bw_average_MBps"])
        self.assertLessEqual(rows[0]["bw_average_MBps"], rows[0]["bw_peak_MBps"])
        self.assertEqual(self.rows("server"), rows)

    def test_latency_of_all_sizes(self):
        server, port = self.server("lat")
        client = self.client("lat", port, "--all", "--iterations", "5", "--events", "--json",
                             self.path("client"))
        _, err = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(server.wait(PATIENCE), 0)
        rows = self.rows("client")
        self.assertEqual([row["size"] for row in rows], [2 ** i for i in range(1, 24)])
        for row in rows:
            self.assertEqual(list(row), LAT_KEYS)
            times = [row[key] for key in ("t_min_us", "t_median_us", "t_99_us", "t_999_us",
                                          "t_max_us")]
            self.assertEqual(times, sorted(times))

    def test_json_on_standard_output(self):
        _, port = self.server("bw")
        client = self.client("bw", port, "--iterations", "10", "--events", "--json", "-")
        out, _ = client.communicate(timeout=PATIENCE)
        self.assertEqual(len(json.loads(out.splitlines()[-1])), 1)

    def dies_in_mid_test(self, test, survivor_is_client):
        server, port = self.server(test, "--json", self.path("server"))
        client = self.client(test, port, "--size", "64", "--iterations", FOREVER, "--events",
                             "--json", self.path("client"))
        self.running(client)
        self.running(server)
        victim, survivor = (server, client) if survivor_is_client else (client, server)
        victim.send_signal(signal.SIGKILL)
        began = time.monotonic()
        _, err = survivor.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(survivor.returncode, 1)
        self.assertRegex(err, "^lochos: .+")
        self.assertEqual(self.rows("client"), [])
        self.assertEqual(self.rows("server"), [])

    def test_server_dies_in_mid_bandwidth(self):
        self.dies_in_mid_test("bw", survivor_is_client=True)

    def test_server_dies_in_mid_latency(self):
        self.dies_in_mid_test("lat", survivor_is_client=True)

    def test_client_dies_in_mid_bandwidth(self):
        self.dies_in_mid_test("bw", survivor_is_client=False)

    def test_a_stopped_server_is_noticed(self):
        server, port = self.server("lat")
        client = self.client("lat", port, "--iterations", FOREVER, "--events", "--json",
                             self.path("client"))
        self.running(client)
        server.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        client.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(client.returncode, 1)
        self.assertEqual(self.rows("client"), [])

    def test_client_alone(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            began = time.monotonic()
            client = self.client("bw", port, "--json", self.path("client"))
            _, err = client.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(client.returncode, 1)
        self.assertIn(str(port), err)
        self.assertEqual(self.rows("client"), [])

    def test_options_that_differ(self):
        server, port = self.server("bw", "--size", "64", "--json", self.path("server"))
        client = self.client("bw", port, "--size", "128", "--json", self.path("client"))
        for process, name in ((client, "client"), (server, "server")):
            _, err = process.communicate(timeout=10)
            self.assertEqual(process.returncode, 1)
            self.assertIn("--size 64 B on the server, 128 B on the client", err)
            self.assertEqual(self.rows(name), [])

    def test_another_test_on_the_other_side(self):
        server, port = self.server("bw")
        client = self.client("lat", port)
        for process in (client, server):
            _, err = process.communicate(timeout=10)
            self.assertEqual(process.returncode, 1)
            self.assertIn("bw on the server, lat on the client", err)

    def test_port_in_use(self):
        _, port = self.server("bw")
        second = self.start("bw", "--port", port, "--json", self.path("second"))
        _, err = second.communicate(timeout=10)
        self.assertEqual(second.returncode, 1)
        self.assertIn(port, err)
        self.assertEqual(self.rows("second"), [])

    def test_a_signal_ends_an_idle_server(self):
        server, _ = self.server("bw", "--json", self.path("server"))
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=10)
        self.assertEqual(server.returncode, 0, err)
        self.assertEqual(self.rows("server"), [])

    def test_a_signal_ends_a_running_client_and_its_server(self):
        server, port = self.server("bw")
        client = self.client("bw", port, "--iterations", FOREVER, "--json", self.path("client"))
        self.running(client)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=10)
        self.assertEqual(client.returncode, 1)
        self.assertEqual(self.rows("client"), [])
        server.communicate(timeout=10)
        self.assertEqual(server.returncode, 1)

    def test_wrong_usage(self):
        for arguments in (["bw", "--size", "banana"], ["bw", "--op", "teleport"], ["bw", "--all",
                          "--size", "1"], ["lat", "--bidirectional"], ["bw", "--size", "0"], []):
            process = self.start(*arguments)
            process.communicate(timeout=10)
            self.assertEqual(process.returncode, 2, arguments)

    def test_a_file_that_cannot_be_written(self):
        process = self.start("bw", "--json", "/no/such/directory/file")
        process.communicate(timeout=10)
        self.assertEqual(process.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
