"""Outcomes of requirements as JUnit XML, which CI services show as tests.

A requirement is a test case, the model that it is about its class. One that failed has a
<failure>, one that is undecided an <error>: it must not look as if it had passed.
"""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from zscope.report.requirements import Requirements

__all__ = ["junit"]

NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold, whatever their escape."""


def junit(requirements: Mapping[str, Requirements]) -> bytes:
    """The file, from the requirements of each model by its name."""
    whole = ElementTree.Element("testsuites", _counts("zscope", *requirements.values()))
    for target, each in requirements.items():
        name = _plain(target)
        suite = ElementTree.SubElement(whole, "testsuite", _counts(name, each))
        for outcome in each.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", classname=name, name=outcome.requirement.text, time="0"
            )
            message = _plain(f"{outcome.requirement.text}: {outcome.measured}")
            message += f"; {_plain(outcome.reason)}" if outcome.reason else ""
            if outcome.verdict == "passed":
                ElementTree.SubElement(case, "system-out").text = message
                continue
            kind = "failure" if outcome.verdict == "failed" else "error"
            ElementTree.SubElement(case, kind, type=outcome.verdict, message=message).text = message
    ElementTree.indent(whole)
    content: bytes = ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _counts(name: str, *suites: Requirements) -> dict[str, str]:
    """The attributes that say how many cases there are of each kind."""
    return {
        "name": name,
        "tests": str(sum(len(each) for each in suites)),
        "failures": str(sum(len(each.failed) for each in suites)),
        "errors": str(sum(len(each.undecided) for each in suites)),
        "skipped": "0",
        "time": "0",
    }


def _plain(text: str) -> str:
    return NOT_XML.sub("?", text)
