"""Adds up the suites of tests/run.sh: summary.py DIRECTORY.

DIRECTORY holds `cases` (suite, name, outcome; tab-separated) and Bazel's build event files `*.json`, a suite each.
A test target counts by the cases in its test.xml; one that didn't build, or ended without naming a failed case, is
one failed case; one that its suite's time limit cut off is one skipped case. Prints what failed and why cases were skipped, a line a suite, and the total last.
"""

import collections
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

OUTCOMES = ("passed", "failed", "skipped")


def xml_cases(path):
    """Yields (name, outcome, reason) of a JUnit file, GoogleTest's or Bazel's own."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = "{}.{}".format(case.get("classname", ""), case.get("name", "")).strip(".")
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", ""
        elif case.get("status") == "notrun":
            continue  # filtered out, or disabled
        elif skipped is not None or case.get("result") == "skipped":
            reason = "" if skipped is None else (skipped.get("message") or skipped.text or "")
            yield name, "skipped", reason.strip().split("\n")[-1]
        else:
            yield name, "passed", ""


def event_cases(path):
    """Yields (target and case, outcome, reason) of a build event file."""
    attempts = {}  # of a target's shard, the last
    unbuilt = []
    cut_off = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        ident = event["id"]
        if event.get("aborted", {}).get("reason") == "USER_INTERRUPTED":
            for kind in ("testResult", "targetCompleted"):
                if kind in ident:
                    cut_off[ident[kind]["label"]] = True
            if "pattern" in ident:
                cut_off[" ".join(ident["pattern"]["pattern"])] = True
        elif "testResult" in ident:
            key = ident["testResult"]
            attempts[key["label"], key.get("shard", 1), key.get("run", 1)] = event.get("testResult")
        elif "targetCompleted" in ident and not event.get("completed", {}).get("success"):
            unbuilt.append(ident["targetCompleted"]["label"])
        elif "pattern" in ident and "aborted" in event:
            unbuilt.append(" ".join(ident["pattern"]["pattern"]))
    for label in unbuilt:
        yield label, "failed", "didn't build"
    for label in cut_off:
        yield label, "skipped", "out of time"
    for (label, _, _), result in attempts.items():
        if result is None:
            yield label, "failed", "didn't run"
            continue
        cases = []
        for output in result.get("testActionOutput", []):
            if output["name"] == "test.xml":
                try:
                    cases = list(xml_cases(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)))
                except (OSError, ElementTree.ParseError):
                    pass  # cut off by what killed the test; its status says so
        for name, outcome, reason in cases:
            yield label + " " + name, outcome, reason
        status = result["status"]
        if status not in ("PASSED", "FLAKY") and not any(outcome == "failed" for _, outcome, _ in cases):
            yield label, "failed", status


def main():
    directory = pathlib.Path(sys.argv[1])
    suites = collections.defaultdict(list)
    for line in (directory / "cases").read_text().splitlines():
        suite, name, outcome = line.split("\t")
        suites[suite].append((name, outcome, ""))
    for path in sorted(directory.glob("*.json")):
        suites[path.stem].extend(event_cases(path))

    total = collections.Counter()
    for suite, cases in suites.items():
        for name, outcome, reason in cases:
            if outcome != "passed":
                print("{}: {} {}{}".format(outcome, suite, name, ": " + reason if reason else ""))
        counts = collections.Counter(outcome for _, outcome, _ in cases)
        print("{}: {}".format(suite, ", ".join("{} {}".format(counts[o], o) for o in OUTCOMES)))
        total += counts
    for suite in ("tests", "asan"):
        if not suites[suite]:
            print("failed: {}: no test ran".format(suite))
            total["failed"] += 1
    print(", ".join("{} {}".format(total[outcome], outcome) for outcome in OUTCOMES))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
