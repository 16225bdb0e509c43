// Bench rows as a table of results, and what rows say about each other.
#pragma once

#include "measure/bench_run.h"
#include "measure/table.h"

#include <vector>

namespace spk {

// Columns and cells of `rows`; the frame is the caller's.
void add_rows(ResultTable& table, const std::vector<BenchRow>& rows);

// One roof for all rows, the best that any of them measured; gains over the row before and over the
// first; verify pass over the step of the row before it that did not draft.
void relate_rows(std::vector<BenchRow>& rows);

}  // namespace spk
