#include "base/temporary_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace lochos {
namespace {

// mkdtemp() asks for so many X at the end of a name and puts random characters there.
constexpr std::size_t kRandomCharacters = 6;

}  // namespace

Result<TemporaryFolder> TemporaryFolder::create(std::string_view prefix) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return fail(system_error(error.value(), "find the folder for temporary files"));
  std::string path =
      fmt::format("{}/{}-{}", parent.string(), prefix, std::string(kRandomCharacters, 'X'));
  if (::mkdtemp(path.data()) == nullptr)
    return fail(system_error(errno, fmt::format("create a folder in {}", parent.string())));
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lochos
