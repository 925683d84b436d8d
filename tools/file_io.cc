#include "tools/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lochos {
namespace {

constexpr std::size_t kBlockBytes = 4 * 1024 * 1024;  // of one read or write; progress in between

// A file being written next to `path`: unnamed if the file system can, else under a hidden name.
class HiddenFile {
 public:
  static Result<HiddenFile> create(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    HiddenFile file;
    file.folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    file.fd_ = UniqueFd(::open(file.folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    if (file.fd_) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)
      return fail(system_error(errno, fmt::format("cannot create {}", path)));
    const bool created = file.take_name([&](const char* name) {
      file.fd_ = UniqueFd(::open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
      return static_cast<bool>(file.fd_);
    });
    if (!created) return fail(system_error(errno, fmt::format("cannot create {}", path)));
    return file;
  }
  HiddenFile(HiddenFile&&) = default;
  HiddenFile& operator=(HiddenFile&&) = delete;
  ~HiddenFile() {
    if (fd_ && !name_.empty()) ::unlink(name_.c_str());
  }

  int fd() const { return fd_.get(); }

  // Takes the place of `path`.
  Status rename_to(const std::string& path) {
    // link() cannot replace a file, rename() needs a name: so a hidden one comes first.
    const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
    const bool named = !name_.empty() || take_name([&](const char* name) {
      return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    });
    if (!named) return fail(system_error(errno, fmt::format("cannot name a file in {}", folder_)));
    if (::rename(name_.c_str(), path.c_str()) != 0)
      return fail(system_error(errno, fmt::format("cannot name {}", path)));
    name_.clear();
    return {};
  }

 private:
  HiddenFile() = default;

  // Offers hidden names of this process to `make` until it makes a file there. False: it failed,
  // and not because the name was taken; errno says why.
  template <class Make>
  bool take_name(Make make) {
    for (unsigned attempt = 0; attempt < 1000; ++attempt) {
      std::string name = fmt::format("{}/.lochos-{}-{}", folder_, ::getpid(), attempt);
      if (make(name.c_str())) {
        name_ = std::move(name);
        return true;
      }
      if (errno != EEXIST) break;
    }
    return false;
  }

  std::string folder_;
  std::string name_;
  UniqueFd fd_;
};

// Through symbolic links: the file they lead to is replaced, not the link.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? real.get() : path;
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  const bool standard = path == "-";
  InputFile file(UniqueFd(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                   : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
                 standard ? "standard input" : path);
  if (!file.fd_) return fail(system_error(errno, fmt::format("cannot open {}", file.name_)));
  struct stat status {};
  if (::fstat(file.fd_.get(), &status) != 0)
    return fail(system_error(errno, fmt::format("cannot examine {}", file.name_)));
  if (S_ISDIR(status.st_mode))
    return fail(Errc::kInvalidArgument, fmt::format("{} is a directory", file.name_));
  // A regular file that says 0 bytes may be one of /proc: reading tells.
  if (S_ISREG(status.st_mode) && status.st_size > 0) {
    const off_t here = std::max<off_t>(0, ::lseek(file.fd_.get(), 0, SEEK_CUR));
    file.size_ = static_cast<std::uint64_t>(std::max<off_t>(0, status.st_size - here));
  }
  return file;
}

Result<std::size_t> InputFile::read(std::span<std::byte> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = ::read(fd_.get(), buffer.data() + done, buffer.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(system_error(errno, fmt::format("cannot read {}", name_)));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<std::vector<std::byte>> InputFile::read_all(
    const std::function<void(std::uint64_t)>& progress) {
  std::vector<std::byte> bytes;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kBlockBytes);
    auto got = read(std::span(bytes).subspan(before));
    if (!got) return fail(got.error());
    bytes.resize(before + *got);
    progress(bytes.size());
    if (*got < kBlockBytes) return bytes;
  }
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name,
                 const std::function<void(std::uint64_t)>& progress) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put =
        ::write(fd, bytes.data() + done, std::min(kBlockBytes, bytes.size() - done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return fail(system_error(errno, fmt::format("cannot write to {}", name))
                      .with_bytes(done, bytes.size()));
    }
    done += static_cast<std::size_t>(put);
    progress(done);
  }
  return {};
}

Status write_file(const std::string& path, std::span<const std::byte> bytes,
                  const std::function<void(std::uint64_t)>& progress) {
  if (path == "-") return write_all(STDOUT_FILENO, bytes, "standard output", progress);
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    return fail(Errc::kInvalidArgument, fmt::format("{} is a directory", path));
  if (exists && !S_ISREG(status.st_mode)) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) return fail(system_error(errno, fmt::format("cannot open {}", path)));
    return write_all(fd.get(), bytes, path, progress);
  }
  const std::string target = exists ? resolved(path) : path;
  auto file = HiddenFile::create(target);
  if (!file) return fail(file.error());
  if (exists && ::fchmod(file->fd(), status.st_mode & 07777) != 0)
    return fail(system_error(errno, fmt::format("cannot set the mode of {}", path)));
  if (auto written = write_all(file->fd(), bytes, path, progress); !written) return written;
  return file->rename_to(target);
}

}  // namespace lochos
