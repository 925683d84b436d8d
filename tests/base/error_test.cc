#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace lochos {
namespace {

TEST(Error, OneLineNamesEverything) {
  const auto error = Error(Errc::kConnectionLost, "peer reset")
                         .with_operation("get")
                         .with_object("model")
                         .with_peer("n3.1")
                         .with_transport("tcp")
                         .with_nic("eth0")
                         .with_bytes(12, 64)
                         .with_cause("the process died")
                         .with_fix("start it again");
  EXPECT_EQ(error.to_string(),
            "get of 'model': connection lost: peer reset (peer n3.1, transport tcp, NIC eth0, 12 "
            "of 64 bytes "
            "done); likely cause: the process died; to fix: start it again");
}

TEST(Error, InnermostContextWins) {
  const auto error = Error(Errc::kSystem, "x").with_peer("inner").with_peer("outer");
  EXPECT_EQ(error.peer(), "inner");
}

TEST(Error, AssigningBackKeepsEveryField) {
  Error error(Errc::kConnectionLost, "peer reset");
  error = std::move(error).with_operation("get");
  error = std::move(error).with_object("model");
  error = std::move(error).with_peer("n3.1");
  error = std::move(error).with_transport("tcp");
  error = std::move(error).with_nic("eth0");
  error = std::move(error).with_bytes(12, 64);
  error = std::move(error).with_cause("the process died");
  error = std::move(error).with_fix("start it again");
  EXPECT_EQ(error.code(), Errc::kConnectionLost);
  EXPECT_EQ(error.message(), "peer reset");
  EXPECT_EQ(error.operation(), "get");
  EXPECT_EQ(error.object(), "model");
  EXPECT_EQ(error.peer(), "n3.1");
  EXPECT_EQ(error.transport(), "tcp");
  EXPECT_EQ(error.nic(), "eth0");
  EXPECT_EQ(error.cause(), "the process died");
  EXPECT_EQ(error.fix(), "start it again");
  EXPECT_EQ(error.bytes_done(), 12U);
  EXPECT_EQ(error.bytes_total(), 64U);
}

TEST(Error, ErrnoMapsToWhatCallersActOn) {
  EXPECT_EQ(system_error(EADDRINUSE, "bind").code(), Errc::kAddressInUse);
  EXPECT_EQ(system_error(EACCES, "bind").code(), Errc::kPermission);
  EXPECT_EQ(system_error(ECONNREFUSED, "connect").code(), Errc::kUnreachable);
  EXPECT_EQ(system_error(EIO, "read").code(), Errc::kSystem);
}

}  // namespace
}  // namespace lochos
