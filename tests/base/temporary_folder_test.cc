#include "base/temporary_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lochos {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolder, IsOnesOwnAndGoesWithWhatItHolds) {
  std::string path;
  {
    auto folder = TemporaryFolder::create("lochos-test");
    ASSERT_TRUE(folder) << folder.error().to_string();
    auto other = TemporaryFolder::create("lochos-test");
    ASSERT_TRUE(other) << other.error().to_string();
    EXPECT_NE(folder->path(), other->path());
    path = folder->path();
    EXPECT_TRUE(fs::path(path).filename().string().starts_with("lochos-test-"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directories(path + "/a/b");
    std::ofstream(path + "/a/b/file") << "x";
    const TemporaryFolder moved = std::move(*folder);
    EXPECT_EQ(moved.path(), path);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolder, NowhereToMakeOneIsAnError) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", "/nowhere/at/all", 1);
  EXPECT_FALSE(TemporaryFolder::create("lochos-test"));
  if (before != nullptr) {
    ::setenv("TMPDIR", kept.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
}

}  // namespace
}  // namespace lochos
