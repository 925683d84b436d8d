// What the command prints: JSON, progress, text of strangers; and files that appear whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/file_io.h"
#include "tools/json.h"
#include "tools/progress.h"

namespace lochos {
namespace {

TEST(JsonWriter, nests_and_separates) {
  JsonWriter json;
  json.begin_object().field("a", 1).key("b").begin_array().value(true).null().value("x");
  json.end_array().field("c", 0.5).end_object();
  EXPECT_EQ(json.text(), "{\"a\":1,\"b\":[true,null,\"x\"],\"c\":0.5}\n");
}

TEST(JsonWriter, empty_containers) {
  JsonWriter json;
  json.begin_array().begin_object().end_object().begin_array().end_array().end_array();
  EXPECT_EQ(json.text(), "[{},[]]\n");
}

TEST(JsonWriter, has_no_infinity) {
  JsonWriter json;
  json.begin_array().value(INFINITY).value(std::nan("")).end_array();
  EXPECT_EQ(json.text(), "[null,null]\n");
}

TEST(JsonWriter, whole_numbers_are_exact) {
  JsonWriter json;
  json.begin_array().value(UINT64_MAX).value(INT64_MIN).end_array();
  EXPECT_EQ(json.text(), "[18446744073709551615,-9223372036854775808]\n");
}

TEST(JsonEscape, keeps_utf8_and_escapes_the_rest) {
  EXPECT_EQ(json_escape("a\"b\\c\n\x01"), "a\\\"b\\\\c\\n\\u0001");
  EXPECT_EQ(json_escape("λόχος 𝄞"), "λόχος 𝄞");
  EXPECT_EQ(json_escape("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(json_escape("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");    // overlong
  EXPECT_EQ(json_escape("a\xE2\x82"), "a\xEF\xBF\xBD\xEF\xBF\xBD");  // cut off
}

TEST(ProgressLine, shows_share_rate_and_time_left) {
  const std::string line =
      progress_line("put x", 64 << 20, 256 << 20, std::chrono::seconds(2), 120);
  EXPECT_NE(line.find("25 %"), std::string::npos) << line;
  EXPECT_NE(line.find("64 MiB of 256 MiB"), std::string::npos) << line;
  EXPECT_NE(line.find("0:00:06 left"), std::string::npos) << line;
}

TEST(ProgressLine, fits_the_terminal) {
  EXPECT_LT(progress_line("put x", 1, 2, std::chrono::seconds(2), 20).size(), 20U);
  EXPECT_EQ(progress_line("put x", 1, 2, std::chrono::seconds(2), 0), "");
}

class FileTest : public testing::Test {
 protected:
  FileTest() { folder_ = testing::TempDir() + "lochos_file_test_" + std::to_string(::getpid()); }
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
  const std::function<void(std::uint64_t)> ignore_ = [](std::uint64_t) {};
};

TEST_F(FileTest, writes_and_leaves_nothing_else) {
  const std::string path = folder_ + "/out";
  ASSERT_TRUE(write_file(path, bytes("hello"), ignore_).has_value());
  EXPECT_EQ(content(path), "hello");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, a_reader_of_the_old_file_keeps_it_and_the_mode_stays) {
  const std::string path = folder_ + "/out";
  std::ofstream(path) << "old";
  ::chmod(path.c_str(), 0640);
  std::ifstream reader(path);
  ASSERT_TRUE(write_file(path, bytes("new text"), ignore_).has_value());
  std::string old;
  std::getline(reader, old);
  EXPECT_EQ(old, "old");
  EXPECT_EQ(content(path), "new text");
  struct stat status {};
  ::stat(path.c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST_F(FileTest, the_name_never_shows_a_part) {
  const std::string path = folder_ + "/out";
  const std::string text(10 << 20, 'x');
  bool seen = false;
  ASSERT_TRUE(write_file(path, bytes(text), [&](std::uint64_t) {
                seen = seen || std::filesystem::exists(path);
              }).has_value());
  EXPECT_FALSE(seen);
  EXPECT_EQ(std::filesystem::file_size(path), text.size());
}

TEST_F(FileTest, a_link_is_followed_not_replaced) {
  std::ofstream(folder_ + "/real") << "old";
  std::filesystem::create_symlink("real", folder_ + "/link");
  ASSERT_TRUE(write_file(folder_ + "/link", bytes("new"), ignore_).has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ + "/link"));
  EXPECT_EQ(content(folder_ + "/real"), "new");
}

TEST_F(FileTest, what_cannot_be_written_says_why) {
  EXPECT_EQ(write_file(folder_, bytes("x"), ignore_).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(write_file(folder_ + "/no/such", bytes("x"), ignore_).error().code(), Errc::kNotFound);
  EXPECT_TRUE(write_file("/dev/null", bytes("x"), ignore_).has_value());
  EXPECT_EQ(write_file("/dev/full", bytes("x"), ignore_).error().code(), Errc::kNoSpace);
}

TEST_F(FileTest, input_knows_its_size_only_if_it_is_a_file) {
  std::ofstream(folder_ + "/in") << "12345";
  auto file = InputFile::open(folder_ + "/in");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->size(), 5U);
  EXPECT_EQ(file->read_all(ignore_)->size(), 5U);
  auto proc = InputFile::open("/proc/self/status");
  ASSERT_TRUE(proc.has_value());
  EXPECT_FALSE(proc->size().has_value());
  EXPECT_GT(proc->read_all(ignore_)->size(), 100U);
  EXPECT_EQ(InputFile::open(folder_).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(InputFile::open(folder_ + "/none").error().code(), Errc::kNotFound);
}

}  // namespace
}  // namespace lochos
