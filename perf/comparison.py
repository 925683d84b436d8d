"""What the comparison scripts share: run programs in turn, take medians, print a table and JSON."""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failed(Exception):
    """A program did not do what it should; the message is for people."""


def find_lochos(build):
    path = os.path.join(build, "lochos")
    if not os.access(path, os.X_OK):
        raise Failed(f"no {path}; build it with tools/dev build, or give --build DIRECTORY")
    return path


def output_of(command, timeout=120):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, check=False)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])}: status {done.returncode}: "
                     f"{done.stderr.strip()}")
    return done.stdout


class Server:
    """A server process for the time of one measurement."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ready(self, pattern):
        """Waits for a line of output; what the pattern's group matched."""
        for line in self.process.stdout:
            match = re.search(pattern, line)
            if match:
                return match.group(1)
        raise Failed(f"{self.process.args[0]} ended before it was ready")


def wait_until_listening(port, timeout=10):
    """Waits until a local TCP port is listened on, without connecting to it."""
    wanted = f":{port:04X}"
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as file:
                for line in file.readlines()[1:]:
                    fields = line.split()
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return
        time.sleep(0.01)
    raise Failed(f"nothing listens on port {port}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def lochos_perf(lochos, test, arguments, host="127.0.0.1"):
    """One row of `lochos perf`, both sides on this machine."""
    with tempfile.TemporaryDirectory() as directory:
        result = os.path.join(directory, "json")
        with Server([lochos, "perf", test, "--port", "0"]) as server:
            port = server.ready(r"^ready .*:(\d+)$")
            output_of([lochos, "perf", test, f"{host}:{port}", "--json", result, *arguments])
        with open(result, encoding="utf-8") as file:
            return json.load(file)[0]


class Comparison:
    """Measurements by name, each repeated in turn with the others."""

    def __init__(self, title, unit):
        self.title = title
        self.unit = unit
        self.samples = {}

    def run(self, measurements, repetitions):
        """`measurements`: {name: function}."""
        for repetition in range(repetitions):
            for name, measure in measurements.items():
                value = measure()
                self.add(name, value)
                print(f"  {self.title} {repetition + 1}/{repetitions} {name}: {value:.2f} "
                      f"{self.unit}", file=sys.stderr)

    def add(self, name, value):
        self.samples.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.samples[name])

    def ratio(self, name, other):
        """The median of the ratios of neighbours in time: what slows both leaves it alone."""
        return statistics.median(a / b for a, b in zip(self.samples[name], self.samples[other]))

    def as_json(self):
        return {"unit": self.unit,
                "medians": {name: self.median(name) for name in self.samples},
                "samples": self.samples}

    def table(self):
        lines = [f"{self.title} [{self.unit}]"]
        for name, values in self.samples.items():
            lines.append(f"  {name:<28} {statistics.median(values):>12.2f}   "
                         f"{min(values):.2f} to {max(values):.2f}")
        return "\n".join(lines)


class Target:
    """A ratio that shall be reached."""

    def __init__(self, comparison, name, other, least=None, most=None):
        self.text = f"{name} / {other}"
        self.value = comparison.ratio(name, other)
        self.limit = least if least is not None else most
        self.word = "at least" if least is not None else "at most"
        self.met = self.value >= least if least is not None else self.value <= most

    def line(self):
        return (f"  {self.text:<44} {self.value:>7.3f}   {self.word} {self.limit}: "
                f"{'met' if self.met else 'MISSED'}")

    def as_json(self):
        return {"ratio": self.text, "value": self.value, "limit": self.limit, "met": self.met}


def report(comparisons, targets, path):
    """Prints everything; writes JSON to `path` if there is one. Whether all targets were met."""
    for comparison in comparisons:
        print(comparison.table())
    print("ratios (medians over repetitions)")
    for target in targets:
        print(target.line())
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"comparisons": {c.title: c.as_json() for c in comparisons},
                       "targets": [t.as_json() for t in targets]}, file, indent=1)
            file.write("\n")
    return all(target.met for target in targets)
