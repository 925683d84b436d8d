// A folder for one test's files; it goes with the object. One thread.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace lochos {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    // mkdtemp() puts what makes the name unique in the place of the last six characters.
    std::string name = (std::filesystem::temp_directory_path() / "lochos-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lochos
