#include "backend/cuda/driver_upload.h"

#include "base/direct_file.h"
#include "base/threads.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace spk::cuda {
namespace {

// Large enough that a request's own cost is lost in it, small enough that the buffers of all
// readers are no burden: 16 readers x 2 x 4 MiB.
constexpr size_t kMost = size_t{4} << 20;
constexpr int kReaders = 16;  // what a fast drive wants in flight

// One reader's means; made and given back by its own thread.
class Reader {
 public:
  Reader(const Driver& driver, CuContext context) : d_(driver) {
    check(d_.context_set(context), "cuCtxSetCurrent");
    constexpr unsigned kNonBlocking = 1;
    constexpr unsigned kNoTiming = 2;
    check(d_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
    for (Buffer& b : buffers_) {
      check(d_.host_alloc(&b.memory, DirectFile::room(kMost) + DirectFile::kAlign),
            "cuMemAllocHost");
      check(d_.event_create(&b.done, kNoTiming), "cuEventCreate");
    }
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  // Results are not looked at: after a device error every call fails.
  ~Reader() {
    if (stream_) d_.stream_synchronize(stream_);
    for (Buffer& b : buffers_) {
      if (b.done) d_.event_destroy(b.done);
      if (b.memory) d_.host_free(b.memory);
    }
    if (stream_) d_.stream_destroy(stream_);
  }

  void move(const Reading& reading, std::span<const LateUpload> uploads, UploadSource& source) {
    Buffer& b = buffers_[which_ ^= 1];
    if (b.busy) check(d_.event_synchronize(b.done), "cuEventSynchronize");
    b.busy = false;
    std::byte* memory = aligned(b);
    const std::byte* found = source.read(reading.data, reading.bytes, memory);
    // What lies in memory goes through the buffer too: copies from pageable memory wait for each
    // other.
    if (found < memory || found >= memory + DirectFile::room(kMost)) {
      std::copy_n(found, reading.bytes, memory);
      found = memory;
    }
    for (const Slice& slice : reading.slices) {
      const LateUpload& u = uploads[slice.upload];
      StoredBytes part = u.part;
      part.data += slice.offset;
      part.bytes = slice.bytes;
      const std::byte* from = found + (part.data - reading.data);
      source.arrived(part, from);
      const CopyShape shape = shape_of(u, slice);
      if (shape.height == 1) {
        check(d_.copy_to_device(target_of(u, slice), from, shape.width, stream_),
              "cuMemcpyHtoDAsync");
        continue;
      }
      CuCopy2D c;
      c.source_kind = 1;
      c.source_host = from;
      c.source_pitch = shape.from_pitch;
      c.target_kind = 2;
      c.target_device = target_of(u, slice);
      c.target_pitch = shape.to_pitch;
      c.width = shape.width;
      c.height = shape.height;
      check(d_.copy_2d(&c, stream_), "cuMemcpy2DAsync");
    }
    check(d_.event_record(b.done, stream_), "cuEventRecord");
    b.busy = true;
  }
  void finish() { check(d_.stream_synchronize(stream_), "cuStreamSynchronize"); }

 private:
  struct Buffer {
    void* memory = nullptr;
    CuEvent done = nullptr;
    bool busy = false;
  };
  static std::byte* aligned(const Buffer& b) {
    auto* memory = static_cast<std::byte*>(b.memory);
    const size_t past = reinterpret_cast<uintptr_t>(memory) % DirectFile::kAlign;
    return past == 0 ? memory : memory + (DirectFile::kAlign - past);
  }

  const Driver& d_;
  CuStream stream_ = nullptr;
  std::array<Buffer, 2> buffers_;
  size_t which_ = 0;
};

}  // namespace

void upload_late(const Driver& driver, CuContext context, std::span<const LateUpload> uploads,
                 UploadSource& source) {
  const std::vector<Reading> readings = plan_readings(uploads, source, kMost);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&] {
    try {
      Reader reader(driver, context);
      for (size_t i = next++; i < readings.size(); i = next++)
        reader.move(readings[i], uploads, source);
      reader.finish();
    } catch (...) {
      next = readings.size();  // the others stop after what they have in hand
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };
  // Waiting for a drive takes no processor, so there are more readers than cores; bytes that are
  // made or checked on the way do.
  const auto readers = static_cast<size_t>(std::min(kReaders, std::max(4, physical_cores())));
  std::vector<std::thread> team;
  for (size_t i = 0; i < std::min(readers, readings.size()); ++i) team.emplace_back(work);
  for (std::thread& t : team) t.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace spk::cuda
