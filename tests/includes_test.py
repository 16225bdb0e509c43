"""tools/includes.py: the tree names what it includes, and what another standard library would miss is found."""

import pytest

from conftest import ROOT, run_tool, write_source as write


def run(root):
    return run_tool("includes.py", root)


def test_the_tree_includes_what_it_names():
    status, output = run(ROOT)
    assert status == 0, output


def test_a_header_of_ours_may_bring_it(tmp_path):
    write(tmp_path, "src/a/deep.h", "#include <cstdint>\n")
    write(tmp_path, "src/a/near.h", '#include "a/deep.h"\n#include <string>\n')
    write(tmp_path, "src/a/a.cc", '#include "a/near.h"\nuint64_t hash(const std::string&);\n// std::vector\nchar c[] = "std::move";\n')
    status, output = run(tmp_path)
    assert status == 0, output


@pytest.mark.parametrize("code, header", [
    ("uint64_t a();", "cstdint"), ("int b = std::max(1, 2);", "algorithm"), ("auto c = std::move(d);", "utility"),
    ("std::vector<int> e;", "vector"), ("std::errc f;", "system_error"), ("float g = std::sqrt(2.f);", "cmath"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["src/a/a.cc", "src/a/a.h", "tests/a_test.cc"])
def test_what_is_missing_is_named(tmp_path, name, code, header):
    """The first line was the fault on Ubuntu 24.04, whose <string> brings no <cstdint>."""
    write(tmp_path, name, f"#include <string>\n\n{code}\n")
    status, output = run(tmp_path)
    assert status == 1 and f"{name}:3: " in output and f"#include <{header}>" in output


def test_an_empty_tree_is_an_error(tmp_path):
    assert run(tmp_path)[0] == 1
