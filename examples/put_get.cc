// A cluster in one process: a directory and two nodes. Puts an object on one node, gets it on the
// other. With real hosts each would run `lochos node`, and a program would only need
// `Store::connect("/run/user/1000/lochos-1000.sock")`.
//
//   c++ -std=c++20 put_get.cc $(pkg-config --cflags --libs lochos) && ./a.out
#include <cstdio>
#include <thread>

#include "directory/server.h"
#include "node/node.h"

namespace {

int complain(const lochos::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return 1;
}

lochos::NodeOptions options(const std::string& directory, const std::string& name) {
  lochos::NodeOptions options;
  options.directory = directory;
  options.name = name;
  options.pool_bytes = 64 << 20;
  options.transport = lochos::TransportPolicy::kTcp;
  options.interface = "lo";
  options.listen = "127.0.0.1:0";
  return options;
}

int put_and_get(const std::string& directory) {
  auto first = lochos::Node::start(options(directory, "first"));
  if (!first) return complain(first.error());
  auto second = lochos::Node::start(options(directory, "second"));
  if (!second) return complain(second.error());

  // Allocate in the pool, fill in place, seal: no copy. publish() lets others read on the way.
  auto writer = (*first)->store().create("greeting", 1 << 20);
  if (!writer) return complain(writer.error());
  for (std::byte& byte : writer->bytes())
    byte = std::byte{42};
  if (auto sealed = writer->seal(); !sealed) return complain(sealed.error());

  // A pinned view of the other node's pool; the pin goes with the view.
  auto view = (*second)->store().get("greeting");
  if (!view) return complain(view.error());
  std::printf("got %zu bytes, the last is %d\n", view->bytes().size(),
              static_cast<int>(view->bytes().back()));
  return 0;
}

}  // namespace

int main() {
  lochos::DirectoryOptions listen;
  listen.listen = lochos::SocketAddress::parse("127.0.0.1:0").value();
  auto directory = lochos::DirectoryServer::open(listen);
  if (!directory) return complain(directory.error());
  std::thread serving([&] {
    if (auto served = (*directory)->run(); !served) complain(served.error());
  });
  const int status = put_and_get((*directory)->address().to_string());
  (*directory)->stop();
  serving.join();
  return status;
}
