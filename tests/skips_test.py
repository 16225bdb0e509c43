"""tools/check_skips.py lets through a missing GPU or instruction set and nothing else."""

import pytest

import check_skips

CTEST = """<testsuite><testcase name="Cpu.Amx" classname="Cpu.Amx" status="notrun">
<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] Cpu.Amx
tests/cpu_test.cc:12: Skipped
{reason}

[  SKIPPED ] Cpu.Amx (0 ms)
</system-out></testcase><testcase name="Cpu.Avx2" status="run"/></testsuite>"""
PYTEST = """<testsuites><testsuite><testcase classname="tests.a_test" name="test_a">
<skipped type="pytest.skip" message="{reason}">tests/a_test.py:3</skipped></testcase></testsuite></testsuites>"""


@pytest.mark.parametrize("report", [CTEST, PYTEST])
@pytest.mark.parametrize("reason, complaints", [
    ("no GPU here", 0), ("no instruction set amx on this machine", 0), ("not today", 1), ("", 1), ("has no GPU", 1),
])
def test_reasons(tmp_path, report, reason, complaints):
    path = tmp_path / "report.xml"
    path.write_text(report.format(reason=reason), encoding="utf-8")
    skipped, found = check_skips.check([path])
    assert [text for _, text in skipped] == [reason]
    assert len(found) == complaints


def test_a_missing_report_is_a_complaint(tmp_path):
    assert len(check_skips.check([tmp_path / "none.xml"])[1]) == 1
