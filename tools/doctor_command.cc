#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tools/doctor_checks.h"
#include "tools/info_command.h"
#include "tools/json.h"
#include "tools/options.h"

namespace lochos {
namespace {

constexpr const char* kFooter =
    "Looks at what stops people: locked memory, RDMA devices, ports and GIDs, provider libraries,\n"
    "host name, ports, memory, huge pages, and whether the daemons answer. Each line is ok, warn "
    "or\n"
    "fail, with the exact fix. Exit status 1 if anything fails. What is checked depends on the\n"
    "options: with --transport verbs a missing RDMA device is a failure, else a warning.\n\n"
    "  lochos doctor --transport verbs --pool 16G";

void print_findings(const std::vector<Finding>& findings) {
  const bool colour = ::isatty(STDOUT_FILENO) == 1;
  const auto mark = [colour](Verdict verdict) {
    const std::string_view word = to_string(verdict);
    if (!colour) return fmt::format("{:<4}", word);
    const int number = verdict == Verdict::kOk ? 32 : verdict == Verdict::kWarning ? 33 : 31;
    return fmt::format("\033[{}m{:<4}\033[0m", number, word);
  };
  for (const Finding& finding : findings) {
    fmt::print("{}  {:<16}  {}\n", mark(finding.verdict), finding.check, finding.text);
    if (!finding.fix.empty()) fmt::print("      {:<16}  fix: {}\n", "", finding.fix);
  }
}

Result<int> run_doctor(const Context& context, bool as_json) {
  auto facts = gather_host_facts(context.config, context.environment_names);
  if (!facts) return fail(facts.error());
  const std::vector<Finding> findings = examine(*facts);
  const auto count = [&findings](Verdict verdict) {
    return std::count_if(findings.begin(), findings.end(),
                         [verdict](const Finding& f) { return f.verdict == verdict; });
  };
  const auto failures = count(Verdict::kFailure);
  if (as_json) {
    JsonWriter json;
    json.begin_object().field("ok", failures == 0).key("checks").begin_array();
    for (const Finding& finding : findings) {
      json.begin_object()
          .field("check", finding.check)
          .field("verdict", to_string(finding.verdict))
          .field("text", finding.text)
          .field("fix", finding.fix)
          .end_object();
    }
    fmt::print("{}", json.end_array().end_object().text());
  } else {
    print_findings(findings);
    fmt::print("\n{} ok, {} to look at, {} failed\n", count(Verdict::kOk), count(Verdict::kWarning),
               failures);
  }
  return failures == 0 ? kExitDone : kExitFailed;
}

}  // namespace

void add_doctor_command(CLI::App& app, Context& context) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& command =
      add_command(app, "doctor", "Find what stops transfers here, and the fix", kFooter);
  add_switch(command, "--json", *as_json, "Print {\"ok\": …, \"checks\": […]}");
  for (const char* key : {"node.transport", "node.pool", "node.provider", "node.directory",
                          "node.huge_pages", "directory.listen", "socket"})
    add_config_option(command, context, key);
  set_run(command, context, [&context, as_json] { return run_doctor(context, *as_json); });
}

}  // namespace lochos
