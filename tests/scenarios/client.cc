// A program that uses the public API as told on standard input, one word and its arguments a line,
// and answers each line with one line: "ok …" or "error CODE text". The scenarios stop and kill it
// at moments that no command of `lochos` can be made to wait at.
//
//   create NAME SIZE         reserve; one writer at a time
//   publish FILE COUNT       copy the bytes of FILE up to COUNT into the writer, and publish them
//   seal | abandon
//   get NAME SECONDS         hold a view; "ok SIZE SHA256"
//   start NAME SECONDS       begin a get; take (its answer is that of get)
//   hash                     "ok SHA256" of the held view
//   release
//   put NAME FILE            in one call
//   erase NAME
//   wait NAME SECONDS
//   many COUNT SIZE          put, get and erase COUNT objects; "ok" when all were right
//   stats                    "ok KEY=VALUE …"
//   stat NAME                "ok NODE/STATE/PARENT …", one a holder
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "node/store.h"

namespace lochos {
namespace {

std::string sha256(std::span<const std::byte> bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

Status read_at(const std::string& path, std::uint64_t offset, std::span<std::byte> into) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail(system_error(errno, path));
  while (!into.empty()) {
    const ssize_t got = ::pread(fd.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got <= 0) return fail(Errc::kInvalidArgument, path + " is too short");
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

class Client {
 public:
  explicit Client(Store store) : store_(std::move(store)) {}

  Result<std::string> run(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "create") return create(words);
    if (word == "publish") return publish(words);
    if (word == "seal") return seal();
    if (word == "abandon") return abandon();
    if (word == "get") return get(words);
    if (word == "start") return start(words);
    if (word == "take") return take();
    if (word == "hash") return sha256(view_.bytes());
    if (word == "release") return release();
    if (word == "put") return put(words);
    if (word == "erase") return erase(words);
    if (word == "wait") return wait(words);
    if (word == "many") return many(words);
    if (word == "stats") return stats();
    if (word == "stat") return stat(words);
    return fail(Errc::kInvalidArgument, "unknown word: " + word);
  }

 private:
  static Result<std::string> answer(const Status& status) {
    if (!status) return fail(status.error());
    return std::string();
  }

  Result<std::string> create(std::istream& words) {
    std::string name;
    std::uint64_t size = 0;
    words >> name >> size;
    auto writer = store_.create(name, size);
    if (!writer) return fail(writer.error());
    writer_.emplace(std::move(*writer));
    published_ = 0;
    return std::string();
  }

  Result<std::string> publish(std::istream& words) {
    std::string path;
    std::uint64_t count = 0;
    words >> path >> count;
    auto room = writer_->bytes().subspan(published_, count - published_);
    if (auto read = read_at(path, published_, room); !read) return fail(read.error());
    published_ = count;
    writer_->publish(count);
    return std::string();
  }

  Result<std::string> seal() {
    const Status sealed = writer_->seal();
    writer_.reset();
    return answer(sealed);
  }

  Result<std::string> abandon() {
    writer_.reset();
    return std::string();
  }

  Result<std::string> hold(Result<ObjectView> view) {
    if (!view) return fail(view.error());
    view_ = std::move(*view);
    return std::to_string(view_.size()) + " " + sha256(view_.bytes());
  }

  Result<std::string> get(std::istream& words) {
    std::string name;
    double seconds = 0;
    words >> name >> seconds;
    return hold(store_.get(name, duration(seconds)));
  }

  Result<std::string> start(std::istream& words) {
    std::string name;
    double seconds = 0;
    words >> name >> seconds;
    pending_.emplace(store_.get_async(name, duration(seconds)));
    return std::string();
  }

  Result<std::string> take() {
    auto view = pending_->take();
    pending_.reset();
    return hold(std::move(view));
  }

  Result<std::string> release() {
    view_ = ObjectView();
    return std::string();
  }

  Result<std::string> put(std::istream& words) {
    std::string name;
    std::string path;
    words >> name >> path;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::vector<std::byte> bytes(static_cast<std::size_t>(file.tellg()));
    if (auto read = read_at(path, 0, bytes); !read) return fail(read.error());
    return answer(store_.put(name, bytes));
  }

  Result<std::string> erase(std::istream& words) {
    std::string name;
    words >> name;
    return answer(store_.erase(name));
  }

  Result<std::string> wait(std::istream& words) {
    std::string name;
    double seconds = 0;
    words >> name >> seconds;
    const Store::Key key(name);
    auto ready = store_.wait({&key, 1}, 1, duration(seconds));
    if (!ready) return fail(ready.error());
    return std::string();
  }

  Result<std::string> many(std::istream& words) {
    std::size_t count = 0;
    std::size_t size = 0;
    words >> count >> size;
    std::vector<std::byte> bytes(size);
    const auto fill = [&bytes](std::size_t i) {
      if (bytes.size() >= sizeof i) std::memcpy(bytes.data(), &i, sizeof i);
    };
    const auto name = [](std::size_t i) { return "many-" + std::to_string(i); };
    for (std::size_t i = 0; i < count; ++i) {
      fill(i);
      if (auto put = store_.put(name(i), bytes); !put) return fail(put.error());
    }
    for (std::size_t i = 0; i < count; ++i) {
      fill(i);
      auto view = store_.get(name(i));
      if (!view) return fail(view.error());
      if (!std::ranges::equal(view->bytes(), bytes)) return fail(Errc::kSystem, "wrong bytes");
    }
    auto full = stats();
    for (std::size_t i = 0; i < count; ++i) {
      if (auto erased = store_.erase(name(i)); !erased) return fail(erased.error());
    }
    return full;
  }

  Result<std::string> stats() {
    auto stats = store_.stats();
    if (!stats) return fail(stats.error());
    std::ostringstream text;
    text << "used=" << stats->pool_used_bytes << " objects=" << stats->objects
         << " pinned=" << stats->pinned << " received=" << stats->bytes_received
         << " sent=" << stats->bytes_sent << " edges=" << stats->edges_started
         << " evictions=" << stats->evictions << " node=" << stats->node.incarnation;
    return text.str();
  }

  Result<std::string> stat(std::istream& words) {
    std::string name;
    words >> name;
    auto stat = store_.stat(name);
    if (!stat) return fail(stat.error());
    const auto name_of = [&stat](NodeId node) -> std::string {
      for (const auto& holder : stat->holders) {
        if (holder.node == node) return holder.node_name;
      }
      return "-";
    };
    std::string text;
    for (const auto& holder : stat->holders) {
      text += holder.node_name + (holder.complete ? "/complete/" : "/partial/") +
              name_of(holder.parent) + " ";
    }
    return text;
  }

  static Duration duration(double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

  Store store_;
  std::optional<ObjectWriter> writer_;
  std::uint64_t published_ = 0;
  std::optional<Pending<ObjectView>> pending_;
  ObjectView view_;
};

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: scenario_client SOCKET\n";
    return 2;
  }
  auto store = lochos::Store::connect(argv[1]);
  if (!store) {
    std::cerr << store.error().to_string() << '\n';
    return 1;
  }
  lochos::Client client(std::move(*store));
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = client.run(line);
    if (answer) {
      std::cout << "ok " << *answer << std::endl;
    } else {
      std::cout << "error " << to_string(answer.error().code()) << ": "
                << answer.error().to_string() << std::endl;
    }
  }
  return 0;
}
