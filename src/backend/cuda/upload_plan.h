// Cuts late uploads into readings: what lies together in a file is read at once, and no reading is
// larger than a buffer.
#pragma once

#include "backend/cuda/driver.h"
#include "backend/upload.h"

#include <cstddef>
#include <span>
#include <vector>

namespace spk::cuda {

// Rows of bytes; pitches are from row to row.
struct CopyShape {
  size_t width = 0;
  size_t height = 1;
  size_t to_pitch = 0;
  size_t from_pitch = 0;
};

// A tensor's bytes and their place on the device: dense rows there every `pitch` bytes.
struct LateUpload {
  StoredBytes part;
  DevicePointer to = 0;
  size_t width = 0;  // of a stored row
  size_t pitch = 0;  // of a row on the device
};

// One stretch of one upload, whole rows where the pitch asks for them.
struct Slice {
  size_t upload = 0;
  size_t offset = 0;  // in the upload's bytes
  size_t bytes = 0;
};
struct Reading {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::vector<Slice> slices;  // by address
};

// Where a slice goes.
DevicePointer target_of(const LateUpload& upload, const Slice& slice);
CopyShape shape_of(const LateUpload& upload, const Slice& slice);

// In the order of the files. Nothing of `most` bytes or less is cut; rows that the device pads must
// fit into `most`.
std::vector<Reading> plan_readings(std::span<const LateUpload> uploads, const UploadSource& source,
                                   size_t most);

}  // namespace spk::cuda
