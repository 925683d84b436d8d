// Files for put and get: input of known or unknown length, and output that appears whole or not at
// all. One thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace lochos {

// A regular file, or standard input for "-", or anything else that can be read.
class InputFile {
 public:
  // Errors: kNotFound, kPermission, kSystem; kInvalidArgument for a directory.
  static Result<InputFile> open(const std::string& path);

  // Bytes from here to the end; nothing if only reading will tell (pipes, devices, /proc).
  std::optional<std::uint64_t> size() const { return size_; }
  // Reads up to `buffer.size()` bytes; fewer only at the end. Errors: kSystem.
  Result<std::size_t> read(std::span<std::byte> buffer);
  // All that is left. Errors: kSystem.
  Result<std::vector<std::byte>> read_all(const std::function<void(std::uint64_t)>& progress);
  const std::string& name() const { return name_; }

 private:
  InputFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::string name_;
  std::optional<std::uint64_t> size_;
};

// Writes `bytes` to `path` so that the name never shows a part of them: into an unnamed file on the
// same file system (nothing is left behind even by kill -9), which then takes the name. An existing
// file keeps its mode. "-" is standard output; what is no regular file (a pipe, /dev/null) is
// written directly. `progress` hears of bytes written. Errors: kPermission, kNoSpace, kSystem.
Status write_file(const std::string& path, std::span<const std::byte> bytes,
                  const std::function<void(std::uint64_t)>& progress);

// Writes all of `bytes` to a descriptor. Errors: as write().
Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name,
                 const std::function<void(std::uint64_t)>& progress);

}  // namespace lochos
