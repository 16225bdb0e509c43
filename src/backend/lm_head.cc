#include "backend/lm_head.h"

#include "backend/backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/types.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace spk {
namespace {

constexpr std::string_view kNames[] = {"stored", "fp32", "bf16", "fp8", "mxfp4"};
constexpr Format kFormatOf[] = {Format::kF32, Format::kF32, Format::kBf16, Format::kFp8Row,
                                Format::kMxfp4};
constexpr ScaleType kScaleOf[] = {ScaleType::kNone, ScaleType::kNone, ScaleType::kNone,
                                  ScaleType::kF32, ScaleType::kE8m0};

template <typename T>
T* at(std::vector<std::byte>& bytes, int64_t index) {
  return reinterpret_cast<T*>(bytes.data()) + index;
}

}  // namespace

HeadFormat parse_head_format(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<HeadFormat>(i);
  fail_usage("--lm-head: expected stored, fp32, bf16, fp8 or mxfp4, found ", name);
}

std::string_view head_format_name(HeadFormat format) { return kNames[static_cast<size_t>(format)]; }

LmHead::LmHead(Backend& backend, const HostTensor& stored, HeadFormat format,
               std::span<const int32_t> rows, int threads)
    : ids_(rows.begin(), rows.end()) {
  for (int32_t id : ids_)
    if (id < 0 || id >= stored.rows)
      fail_input("draft head: expected token ids from 0 to ", stored.rows - 1, ", found ", id);
  if (format == HeadFormat::kStored && ids_.empty()) {
    weight_ = backend.upload(stored);
    return;
  }
  // Only part of the rows is wanted: keep them as the nearest format that needs no rounding.
  if (format == HeadFormat::kStored)
    format = stored.format == Format::kBf16 ? HeadFormat::kBf16 : HeadFormat::kFp32;
  HostTensor made = stored;
  made.format = kFormatOf[static_cast<int>(format)];
  made.scale_type = kScaleOf[static_cast<int>(format)];
  if (!ids_.empty()) made.rows = static_cast<int64_t>(ids_.size());
  if (made.format == Format::kMxfp4 && made.cols % kGroup != 0)
    fail_input("--lm-head mxfp4: expected a hidden size that is a multiple of ", kGroup, ", found ",
               made.cols);
  const auto codes = static_cast<size_t>(code_bytes(made.format, made.rows, made.cols));
  codes_.reserve(codes);  // not touched yet
  prefer_large_pages(codes_.data(), codes);
  codes_.resize(codes);
  scales_.resize(static_cast<size_t>(scale_count(made.format, made.rows, made.cols) *
                                     scale_bytes(made.scale_type)));
  const auto convert = [&](int64_t first, int64_t last) {
    std::vector<float> row(static_cast<size_t>(made.cols));
    for (int64_t r = first; r < last; ++r) {
      dequantise_row(stored, ids_.empty() ? r : ids_[r], row.data());
      switch (made.format) {
        case Format::kF32:
          std::copy(row.begin(), row.end(), at<float>(codes_, r * made.cols));
          break;
        case Format::kBf16:
          std::transform(row.begin(), row.end(), at<uint16_t>(codes_, r * made.cols),
                         float_to_bf16);
          break;
        case Format::kFp8Row:
          quantise_fp8_row(row.data(), made.cols, at<uint8_t>(codes_, r * made.cols),
                           *at<float>(scales_, r));
          break;
        default:
          quantise_mxfp4(row.data(), 1, made.cols, at<uint8_t>(codes_, r * made.cols / 2),
                         at<uint8_t>(scales_, r * made.cols / kGroup));
      }
    }
  };
  std::vector<std::thread> team;
  const int64_t workers = std::clamp<int64_t>(threads, 1, made.rows);
  for (int64_t t = 0; t < workers; ++t)
    team.emplace_back(convert, made.rows * t / workers, made.rows * (t + 1) / workers);
  for (std::thread& t : team) t.join();
  made.data = codes_.data();
  made.scales = scales_.data();
  // What is drafted is judged afterwards, so a head of some rows may take int8 activations, as
  // experts do.
  weight_ = ids_.empty() ? backend.upload(made) : backend.upload_expert(made);
  if (weight_.packed && !backend.uploads_late()) {  // copied
    codes_ = {};
    scales_ = {};
  }
}

LmHead Backend::head_of(const Weight& weight) {
  LmHead head;
  head.weight_ = weight;
  return head;
}

}  // namespace spk
