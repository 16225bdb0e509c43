#include "backend/cuda/upload_plan.h"

#include "base/error.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace spk::cuda {
namespace {

// Reading a gap of this size along costs less than another request does.
constexpr size_t kGap = size_t{64} << 10;

bool belongs(const Reading& reading, const std::byte* data, size_t bytes,
             std::span<const std::byte> file, size_t most) {
  if (file.empty() || reading.slices.empty()) return false;
  const std::byte* end = reading.data + reading.bytes;
  const std::less<> before;
  if (before(reading.data, file.data()) || before(data, end)) return false;
  return static_cast<size_t>(data - end) <= kGap &&
         static_cast<size_t>(data + bytes - reading.data) <= most;
}

}  // namespace

DevicePointer target_of(const LateUpload& upload, const Slice& slice) {
  return upload.to + slice.offset / upload.width * upload.pitch + slice.offset % upload.width;
}
CopyShape shape_of(const LateUpload& upload, const Slice& slice) {
  if (upload.width == upload.pitch) return {slice.bytes, 1, slice.bytes, slice.bytes};
  return {upload.width, slice.bytes / upload.width, upload.pitch, upload.width};
}

std::vector<Reading> plan_readings(std::span<const LateUpload> uploads, const UploadSource& source,
                                   size_t most) {
  std::vector<size_t> order(uploads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::less<>()(uploads[a].part.data, uploads[b].part.data);
  });
  std::vector<Reading> readings;
  for (const size_t i : order) {
    const LateUpload& u = uploads[i];
    if (u.part.bytes == 0) continue;
    const std::span<const std::byte> file = source.file_of(u.part.data);
    // Padded rows travel whole; dense ones may be cut anywhere on the grid of the longest element.
    const bool dense = u.width == u.pitch;
    SPK_CHECK(dense || (u.width <= most && u.part.bytes % u.width == 0));
    const size_t unit = dense ? 64 : u.width;
    const size_t piece = most / unit * unit;
    for (size_t at = 0; at < u.part.bytes; at += piece) {
      const size_t bytes = std::min(piece, u.part.bytes - at);
      const std::byte* data = u.part.data + at;
      if (readings.empty() || !belongs(readings.back(), data, bytes, file, most))
        readings.push_back({data, 0, {}});
      Reading& reading = readings.back();
      reading.bytes = static_cast<size_t>(data + bytes - reading.data);
      reading.slices.push_back({i, at, bytes});
    }
  }
  return readings;
}

}  // namespace spk::cuda
