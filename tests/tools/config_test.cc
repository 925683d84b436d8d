#include "tools/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace lochos {
namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    sources_.environment = [this](std::string_view name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    };
    sources_.computed_defaults["socket"] = "/run/test.sock";
  }
  ~ConfigTest() override { std::remove(path_.c_str()); }

  void write(const std::string& text) {
    std::ofstream(path_) << text;
    sources_.config_file = path_;
  }
  std::string load_error() {
    auto config = Config::load(sources_);
    return config ? "" : config.error().to_string();
  }

  const std::string path_ = testing::TempDir() + "lochos_config_test.toml";
  std::map<std::string, std::string, std::less<>> environment_;
  ConfigSources sources_;
};

TEST_F(ConfigTest, defaults_are_valid_and_say_so) {
  auto config = Config::load(sources_);
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->size("node.pool"), 4ULL << 30);
  EXPECT_EQ(config->duration("timeout"), std::chrono::seconds(30));
  EXPECT_EQ(config->text("socket"), "/run/test.sock");
  EXPECT_EQ(config->value("node.pool").where, "default");
  EXPECT_TRUE(config->boolean("node.huge_pages"));
  EXPECT_EQ(config->integer("node.gid_index"), -1);
  EXPECT_EQ(config->transport("node.transport"), TransportPolicy::kAuto);
  EXPECT_EQ(config->file(), "");
}

TEST_F(ConfigTest, every_default_passes_its_own_check) {
  for (const OptionSpec& option : option_catalogue())
    EXPECT_TRUE(check_option_value(option, option.default_value).has_value()) << option.key;
}

TEST_F(ConfigTest, file_is_read_with_its_lines) {
  write("socket = \"/tmp/s\"\n\n[node]\npool = \"2G\"\ngid_index = 3\nhuge_pages = false\n");
  auto config = Config::load(sources_);
  ASSERT_TRUE(config.has_value()) << config.error().to_string();
  EXPECT_EQ(config->text("socket"), "/tmp/s");
  EXPECT_EQ(config->value("socket").where, path_ + ":1");
  EXPECT_EQ(config->size("node.pool"), 2ULL << 30);
  EXPECT_EQ(config->value("node.pool").where, path_ + ":4");
  EXPECT_EQ(config->integer("node.gid_index"), 3);
  EXPECT_FALSE(config->boolean("node.huge_pages"));
  EXPECT_EQ(config->file(), path_);
}

TEST_F(ConfigTest, environment_beats_file_and_flag_beats_environment) {
  write("timeout = \"1s\"\n[node]\npool = \"1G\"\ntransport = \"tcp\"\n");
  environment_ = {{"LOCHOS_TIMEOUT", "2s"}, {"LOCHOS_POOL", "2G"}};
  sources_.flags = {{"timeout", "3s"}};
  auto config = Config::load(sources_);
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->duration("timeout"), std::chrono::seconds(3));
  EXPECT_EQ(config->value("timeout").where, "--timeout");
  EXPECT_EQ(config->size("node.pool"), 2ULL << 30);
  EXPECT_EQ(config->value("node.pool").where, "LOCHOS_POOL");
  EXPECT_EQ(config->transport("node.transport"), TransportPolicy::kTcp);
  EXPECT_EQ(config->value("node.transport").origin, Config::Origin::kFile);
}

TEST_F(ConfigTest, an_empty_variable_is_not_set) {
  environment_ = {{"LOCHOS_POOL", ""}};
  auto config = Config::load(sources_);
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->value("node.pool").origin, Config::Origin::kDefault);
}

TEST_F(ConfigTest, unknown_key_names_its_line_and_the_nearest) {
  write("[node]\npool = \"1G\"\ntransprot = \"tcp\"\n");
  const std::string error = load_error();
  EXPECT_NE(error.find(path_ + ":3"), std::string::npos) << error;
  EXPECT_NE(error.find("'node.transprot'"), std::string::npos) << error;
  EXPECT_NE(error.find("did you mean 'node.transport'"), std::string::npos) << error;
}

TEST_F(ConfigTest, a_key_like_no_other_gets_no_guess) {
  write("wxyz_unrelated = 1\n");
  const std::string error = load_error();
  EXPECT_EQ(error.find("did you mean"), std::string::npos) << error;
  EXPECT_NE(error.find("lochos info --config"), std::string::npos) << error;
}

TEST_F(ConfigTest, bad_values_name_where_they_stand) {
  write("timeout = \"soon\"\n");
  EXPECT_NE(load_error().find(path_ + ":1: 'soon' is not a duration"), std::string::npos);
  sources_.config_file.clear();
  environment_ = {{"LOCHOS_TRANSPORT", "carrier-pigeon"}};
  EXPECT_NE(load_error().find("environment variable LOCHOS_TRANSPORT"), std::string::npos);
  environment_.clear();
  sources_.flags = {{"node.pool", "-1"}};
  EXPECT_NE(load_error().find("--pool: '-1' is not a size"), std::string::npos);
}

TEST_F(ConfigTest, text_that_is_no_toml_names_the_line) {
  write("socket = \"a\"\nnonsense\n");
  EXPECT_NE(load_error().find(path_ + ":2"), std::string::npos) << load_error();
  write("socket = [1, 2]\n");
  EXPECT_NE(load_error().find("must be text, a number or true/false"), std::string::npos);
}

TEST_F(ConfigTest, a_named_file_must_exist_a_default_one_need_not) {
  sources_.default_files = {"/nonexistent/lochos.toml"};
  EXPECT_EQ(load_error(), "");
  environment_ = {{"LOCHOS_CONFIG", "/nonexistent/named.toml"}};
  EXPECT_NE(load_error().find("/nonexistent/named.toml"), std::string::npos);
}

TEST_F(ConfigTest, the_first_default_file_that_exists_is_read) {
  std::ofstream(path_) << "timeout = 7\n";
  sources_.default_files = {"/nonexistent/lochos.toml", path_};
  auto config = Config::load(sources_);
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->duration("timeout"), std::chrono::seconds(7));
}

TEST(NearestWord, finds_slips_only) {
  const std::vector<std::string_view> words = {"--pool", "--timeout", "--transport"};
  EXPECT_EQ(nearest_word("--tiemout", words), "--timeout");
  EXPECT_EQ(nearest_word("--pol", words), "--pool");
  EXPECT_EQ(nearest_word("--xyzzy-quux", words), "");
}

TEST(OptionCatalogue, keys_and_variables_are_unique) {
  std::map<std::string_view, int> keys, variables;
  for (const OptionSpec& option : option_catalogue()) {
    EXPECT_EQ(++keys[option.key], 1) << option.key;
    EXPECT_EQ(++variables[option.environment], 1) << option.environment;
    EXPECT_TRUE(option.environment.starts_with("LOCHOS_"));
    EXPECT_EQ(find_option(option.key), &option);
  }
}

}  // namespace
}  // namespace lochos
