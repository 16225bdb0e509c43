"""Checks that what a C++ file names of the standard library is there because of an #include, not by luck.

    tools/includes.py [ROOT]

One release of a standard library brings <cstdint> along with <string>, the next one does not: code that relied on it
compiles with the compiler at hand and breaks on somebody else's machine. So the header of each name below must be included
by the file itself or by a header of ours that it includes, at any depth. Prints file:line: message; exit 1 when anything
is missing.
"""

import functools
import pathlib
import re
import sys

ALGORITHMS = (
    "all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if is_sorted lower_bound max max_element min "
    "min_element none_of nth_element partial_sort remove_if replace reverse rotate search shuffle sort stable_sort transform "
    "unique upper_bound"
)
FUNCTIONS = {
    "algorithm": ALGORITHMS,
    "bit": "bit_cast bit_ceil countr_zero popcount",
    "cmath": "abs ceil cos exp exp2 fabs floor frexp isfinite isinf isnan ldexp log log2 lround nearbyint pow round sin sqrt",
    "cstdlib": "abort exit free getenv malloc strtod strtol system",
    "cstring": "memcmp memcpy memmove memset strchr strcmp strerror strlen",
    "iterator": "back_inserter make_move_iterator next prev",
    "numeric": "accumulate iota",
}
TYPES = {
    "array": "array",
    "atomic": "atomic",
    "chrono": "chrono",
    "cstdio": "FILE fflush fopen fprintf fputs fwrite printf snprintf",
    "functional": "function",
    "limits": "numeric_limits",
    "map": "map",
    "memory": "make_unique shared_ptr unique_ptr",
    "mutex": "lock_guard mutex unique_lock",
    "optional": "nullopt optional",
    "set": "set",
    "span": "span",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "system_error": "errc error_code system_error",
    "thread": "this_thread thread",
    "utility": "exchange forward move pair swap",
    "vector": "vector",
}
NEEDS = {header: re.compile(rf"\bstd::({'|'.join(names.split())})\(") for header, names in FUNCTIONS.items()}
NEEDS |= {header: re.compile(rf"\bstd::({'|'.join(names.split())})\b") for header, names in TYPES.items()}
NEEDS["cstdint"] = re.compile(r"\bu?int(8|16|32|64|ptr)_t\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^">]+)>)', re.M)


def code_of(text):
    """The text without comments and string literals, line by line as before."""
    return re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text)


def check_tree(root):
    """Complaints about the tree, and the number of files read."""
    texts = {path: path.read_text(encoding="utf-8") for folder in ("src", "tests") for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cc")}  # fmt: skip

    @functools.cache
    def direct(path):
        ours, theirs = [], set()
        for own, foreign in INCLUDE.findall(texts[path]):
            theirs.add(foreign)
            ours += [p for p in (root / "src" / own, root / "tests" / own, path.parent / own) if own and p in texts][:1]
        return ours, theirs

    def reached(path):
        seen, todo, headers = {path}, [path], set()
        while todo:
            ours, theirs = direct(todo.pop())
            headers |= theirs
            todo += [p for p in ours if p not in seen]
            seen.update(ours)
        return headers

    complaints = []
    for path, text in texts.items():
        headers, code = reached(path), code_of(text)
        for header, names in NEEDS.items():
            found = names.search(code)
            if found and header not in headers:
                line = code.count("\n", 0, found.start()) + 1
                complaints.append(f"{path.relative_to(root).as_posix()}:{line}: {found[0].rstrip('(')} needs #include <{header}>, "
                                  "here or in a header of ours that is included")  # fmt: skip
    return complaints, len(texts)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    complaints, files = check_tree(root)
    for complaint in complaints:
        print(complaint)
    print(f"includes: {files} files, {len(complaints)} complaints")
    return 1 if complaints or not files else 0


if __name__ == "__main__":
    sys.exit(main())
