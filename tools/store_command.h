// The commands that use this host's node: put, get, ls, stat, rm, wait.
#pragma once

#include "node/store.h"
#include "tools/context.h"
#include "tools/deadline.h"
#include "tools/file_io.h"

namespace lochos {

void add_put_command(CLI::App& app, Context& context);
void add_get_command(CLI::App& app, Context& context);
void add_ls_command(CLI::App& app, Context& context);
void add_stat_command(CLI::App& app, Context& context);
void add_rm_command(CLI::App& app, Context& context);
void add_wait_command(CLI::App& app, Context& context);

// --socket and --timeout, which all of them have.
void add_store_options(CLI::App& command, Context& context);
// Connects to the node of `context`. Errors: as Store::connect, saying how to start a node.
Result<Store> open_store(const Context& context, const Deadline& deadline);
// Stores all that `file` has, straight into the pool and published while it is read if its size is
// known. Shows progress. Returns the size. The time that reading takes does not count: a slow pipe
// is no fault of the cluster. Errors: as Store::create and seal, kAborted if the file
// became shorter meanwhile.
Result<std::uint64_t> put_file(Store& store, const std::string& name, InputFile& file,
                               const Deadline& deadline);
// Text of a stranger, safe for a terminal: control characters become \xNN.
std::string printable(std::string_view text);

}  // namespace lochos
