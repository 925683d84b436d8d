// The arguments of Store::reduce and its answer: checked, and in the words of the local protocol.
// Thread-safe functions of their arguments.
#pragma once

#include <cstddef>
#include <span>

#include "base/error.h"
#include "node/local_messages.h"
#include "node/store.h"

namespace lochos {

// Number and timeout are the caller's to set. Names so long that the whole would not fit into a
// frame are cut: they are for people. Errors: kInvalidArgument, as Store::reduce says.
Result<LocalReduce> make_reduce(const Store::Key& target, std::span<const Store::Key> sources,
                                const ReduceOptions& options);

// The answer to a reduce of `sources` sources. Errors: kProtocol for positions that it cannot have.
Result<ReduceResult> reduce_result(const LocalReduced& reduced, std::size_t sources);

}  // namespace lochos
