"""Lists the skipped tests by name and refuses every reason but a missing GPU or instruction set.

A test that cannot run here says so by a reason that starts with one of REASONS; anything else is a test that was
switched off. Reads the JUnit reports of ctest and pytest. Exit 1 on a reason that is not allowed or a missing report.
"""

import sys
import xml.etree.ElementTree as ElementTree

REASONS = ("no GPU", "no instruction set")


def skip_reason(case):
    """The reason given by a skipped test case, or None when it ran."""
    skipped = case.find("skipped")
    if skipped is None:
        return None
    message = skipped.get("message") or ""
    if "SKIP_REGULAR_EXPRESSION" not in message:  # pytest: the reason itself
        return message
    # ctest knows only that the output matched; GoogleTest printed "file:line: Skipped" and the reason below it.
    lines = (case.findtext("system-out") or "").splitlines()
    for i, line in enumerate(lines):
        if line.rstrip().endswith(": Skipped") and i + 1 < len(lines):
            return lines[i + 1].strip()
    return "(no reason given)"


def check(paths):
    """Returns the skipped tests as (name, reason) and the complaints."""
    skipped, complaints = [], []
    for path in paths:
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            complaints.append(f"{path}: no report of the test run: {error}")
            continue
        for case in cases:
            reason = skip_reason(case)
            if reason is None:
                continue
            name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
            skipped.append((name, reason))
            if not reason.startswith(REASONS):
                allowed = " or ".join(repr(text) for text in REASONS)
                complaints.append(f"{name}: skipped with {reason!r}; a reason must start with {allowed}")
    return skipped, complaints


def main():
    skipped, complaints = check(sys.argv[1:])
    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    for complaint in complaints:
        print(f"check_skips: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
