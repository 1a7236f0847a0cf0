#include <attentive/modules/module.h>
#include <attentive/parity/case_attention.h>

#include "parity/case_arguments.h"
#include "parity/case_compute.h"

namespace attentive {

std::vector<RecordedAttention> case_attention(const Case& test_case, const AttentionRecorderOptions& options,
                                              const CaseSettings& settings) {
  const RandomStateGuard guard;
  try {
    const CasePlan plan(test_case);
    return clean_calls(plan, {dtype_of(test_case), test_case.autocast, settings.backend, settings.device},
                       options);
  } catch (const CaseError&) {
    throw;
  } catch (const c10::Error& error) {
    fail_case(test_case.name, error.what_without_backtrace());
  }
}

}  // namespace attentive
