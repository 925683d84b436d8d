#!/usr/bin/env python3
"""`lochos perf bcast|reduce|allreduce|…` as a user runs it: ranks on loopback, every byte checked."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

LOCHOS = sys.argv.pop(1)
RANKS = 3
PATIENCE = 60
KEYS = {"op", "ranks", "size", "iterations", "median_s", "min_s", "max_s", "median_own_s", "bound_s",
        "share", "algbw_MBps", "busbw_MBps", "wrong", "bytes_sent_max", "bytes_sent_first",
        "bytes_sent_total", "bytes_received_total", "cpu_s", "each"}
ELEMENT_KEYS = {"count", "dtype", "reduce_op"}
# Bus bandwidth over algorithm bandwidth of three ranks, and bytes moved over the size.
GROUP = {"allreduce": (4 / 3, 4), "reduce_scatter": (2 / 3, 2), "allgather": (2 / 3, 2),
         "gather": (2, 2), "scatter": (2, 2), "alltoall": (2 / 3, 2)}
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("LOCHOS_")}
ENVIRONMENT["LOCHOS_CONFIG"] = "/dev/null"


class PerfCollective(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = subprocess.Popen([LOCHOS, "directory", "--listen", "127.0.0.1:0"],
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                         text=True, env=ENVIRONMENT)
        cls.address = re.search(r"directory=(\S+)", cls.directory.stdout.readline()).group(1)

    @classmethod
    def tearDownClass(cls):
        cls.directory.kill()
        cls.directory.communicate()

    def run_ranks(self, op, *arguments, ranks=RANKS, per_rank=lambda rank: ()):
        """Status, output and errors of each rank, and rank 0's JSON."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "json")
            processes = [subprocess.Popen(
                [LOCHOS, "perf", op, "--directory", self.address, "--ranks", str(ranks), "--rank",
                 str(rank), "--transport", "tcp", "--interface", "lo", "--iterations", "2",
                 "--json", file, *arguments, *per_rank(rank)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
                for rank in range(ranks)]
            ends = []
            for process in processes:
                self.addCleanup(process.kill)
            for process in processes:
                out, err = process.communicate(timeout=PATIENCE)
                ends.append((process.returncode, out, err))
            if not os.path.exists(file):
                return ends, None
            with open(file, encoding="utf-8") as result:
                return ends, json.load(result)

    def figures(self, op, *arguments, ranks=RANKS):
        ends, figures = self.run_ranks(op, *arguments, ranks=ranks)
        for status, _, err in ends:
            self.assertEqual(status, 0, err)
        self.assertEqual(figures["wrong"], 0)
        self.assertEqual(len(figures["each"]), 2)
        self.assertGreater(figures["median_s"], 0)
        return figures, ends[0][1]

    def test_every_operation_moves_what_it_should(self):
        for op, (bus, moved) in GROUP.items():
            with self.subTest(op):
                figures, table = self.figures(op, "--size", "120000", "--verify")
                self.assertEqual(set(figures), KEYS | ELEMENT_KEYS)
                self.assertEqual(figures["size"], 120000)
                self.assertEqual(figures["count"], 30000)
                self.assertEqual(figures["bytes_received_total"], moved * 120000)
                self.assertEqual(figures["bytes_sent_total"], moved * 120000)
                self.assertAlmostEqual(figures["busbw_MBps"] / figures["algbw_MBps"], bus, places=6)
                self.assertGreater(figures["bound_s"], 0)
                self.assertIn("#wrong", table)

    def test_broadcast_and_reduce(self):
        for op in ("bcast", "reduce"):
            with self.subTest(op):
                figures, _ = self.figures(op, "--size", "120000", "--verify")
                self.assertGreaterEqual(set(figures), KEYS)

    def test_types_and_operations(self):
        for operation, dtype, op in (("allreduce", "bf16", "avg"), ("reduce_scatter", "f16", "prod"),
                                     ("allreduce", "u64", "bxor")):
            with self.subTest(dtype):
                figures, _ = self.figures(operation, "--size", "48000", "--verify", "--dtype", dtype,
                                          "--op", op)
                self.assertEqual((figures["dtype"], figures["reduce_op"]), (dtype, op))

    def test_sizes_are_rounded_down_to_what_the_ranks_can_share(self):
        figures, _ = self.figures("alltoall", "--size", "100000", "--verify", "--dtype", "f64")
        self.assertEqual(figures["size"], 99984)
        figures, _ = self.figures("allreduce", "--size", "100000", "--verify")
        self.assertEqual(figures["size"], 100000)

    def test_ranks_that_come_one_after_the_other(self):
        figures, _ = self.figures("allgather", "--size", "48000", "--verify", "--arrive", "30")
        self.assertGreater(figures["median_s"], 0.06)

    def test_one_rank_alone(self):
        for op in (*GROUP, "barrier"):
            with self.subTest(op):
                figures, _ = self.figures(op, "--size", "4000", "--verify", ranks=1)
                self.assertEqual(figures["bytes_sent_total"], 0)

    def test_barrier(self):
        figures, _ = self.figures("barrier")
        self.assertEqual((figures["size"], figures["bytes_sent_total"]), (0, 0))

    def test_ranks_that_disagree_hear_of_each_other(self):
        ends, figures = self.run_ranks(
            "allreduce", "--size", "48000", per_rank=lambda rank: ("--op", "max") * (rank == 2))
        self.assertIsNone(figures["median_s"])
        for status, _, err in ends:
            self.assertEqual(status, 2, err)
            self.assertIn("rank 2", err)

    def test_wrong_usage(self):
        for arguments in (["--op", "plus"], ["--dtype", "f8"], ["--op", "bxor"], ["--size", "7"],
                          ["--count", "2"]):
            with self.subTest(arguments):
                ends, _ = self.run_ranks("allreduce", *arguments, ranks=1)
                self.assertEqual(ends[0][0], 2, ends[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
