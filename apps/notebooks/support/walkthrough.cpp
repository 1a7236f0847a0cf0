#include "support/walkthrough.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

namespace notebooks {
namespace {

std::string_view behind_dash(std::string_view id) {
  id.remove_prefix(std::min(id.find('-') + 1, id.size()));
  while (id.size() > 1 && id.front() == '0') id.remove_prefix(1);
  return id;
}

// "4c" belongs to row "4", "41" does not.
bool is_row(std::string_view id, std::string_view wanted) {
  if (id.substr(0, wanted.size()) != wanted) return false;
  const auto rest = id.substr(wanted.size());
  return rest.empty() || (rest.size() == 1 && rest[0] >= 'a' && rest[0] <= 'e');
}

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const auto flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace

bool Walkthrough::wanted(std::string_view id) const {
  const auto& only = view_.only;
  if (only.empty()) return true;
  if (only.find('-') != std::string::npos) return is_row(id, only);
  return is_row(behind_dash(id), behind_dash(only));
}

Tally Walkthrough::walk(const Document& document) {
  document_ = &document;
  begun_ = false;
  tally_ = {};
  tally_.document = document.id;
  document.cells(*this);
  earlier_.clear();  // no shown row needs them
  if (begun_) tell([&](Report& report) { report.end_document(tally_); });
  return tally_;
}

void Walkthrough::summarise(const std::vector<Tally>& tallies) {
  tell([&](Report& report) { report.summary(tallies); });
}

void Walkthrough::tell(const std::function<void(Report&)>& event) {
  for (const auto& report : reports_) event(*report);
}

void Walkthrough::cell(const std::string& id, const std::string& title, std::function<void()> code) {
  if (!tally_.error.empty()) return;
  const Cell cell{id, title, std::move(code)};
  if (!wanted(id)) {
    earlier_.push_back(cell);
    return;
  }
  begin_document();
  if (view_.list) {
    list(cell);
    return;
  }
  for (const auto& earlier : std::exchange(earlier_, {})) {
    run(earlier, /*showing=*/false);
    if (!tally_.error.empty()) return;
  }
  run(cell, /*showing=*/true);
}

void Walkthrough::begin_document() {
  if (std::exchange(begun_, true)) return;
  tell([&](Report& report) { report.begin_document(*document_); });
}

void Walkthrough::begin_cell(const Cell& cell) {
  const auto* entry = expected_.find(cell.id);
  const CellHeading heading{cell.id, cell.title, entry ? entry->note : "", document_->source};
  tell([&](Report& report) { report.begin_cell(heading); });
}

void Walkthrough::list(const Cell& cell) {
  begin_cell(cell);
  shown_.insert(cell.id);
}

const Entry& Walkthrough::entry() const {
  if (entry_) return *entry_;
  throw std::runtime_error(
      fmt::format("the expected numbers have no entry {}; show() prints a value without one", id_));
}

// Checks that every expected value was computed.
void Walkthrough::check_complete() const {
  if (!entry_) return;
  for (const auto& check : entry_->checks) {
    if (!made_.contains(check.name)) {
      throw std::runtime_error(fmt::format("\"{}\" was not computed", check.name));
    }
  }
}

void Walkthrough::run(const Cell& cell, bool showing) {
  id_ = cell.id;
  entry_ = expected_.find(cell.id);
  showing_ = showing;
  made_.clear();
  explained_dropout_ = false;
  try {
    if (showing_) begin_cell(cell);
    cell.code();
    if (showing_) finish(cell);
  } catch (const c10::Error& error) {
    tally_.error = fmt::format("stopped at {}: {}", id_, error.what_without_backtrace());
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) throw;  // the output cannot be read any more
    tally_.error = fmt::format("stopped at {}: {}", id_, error.what());
  }
  if (showing_) tell([&](Report& report) { report.end_cell(/*stopped=*/!tally_.error.empty()); });
}

void Walkthrough::finish(const Cell& cell) {
  check_complete();
  ++tally_.cells;
  if (!entry_) tally_.without_expected.push_back(cell.id);
  shown_.insert(cell.id);
}

void Walkthrough::check(std::string_view name, double got) {
  check(name, at::scalar_tensor(got, at::kDouble));
}

void Walkthrough::check_shape(std::string_view name, at::IntArrayRef got) {
  check(name, at::tensor(got, at::kLong));
}

void Walkthrough::compare(std::string_view name, const at::Tensor& got, bool random) {
  if (!showing_) return;
  const Check& check = entry().check(name);
  made_.insert(check.name);

  TORCH_CHECK_VALUE(got.sizes() == at::IntArrayRef(check.shape), name, ": expected shape ",
                    at::IntArrayRef(check.shape), ", got ", got.sizes());
  const auto numbers = numbers_of(got);
  Comparison comparison = compare_numbers(check, numbers);
  if (!check.compare) comparison.verdict = Verdict::OnlyShown;
  if (random && !device_.is_cpu()) comparison.verdict = Verdict::OtherGenerator;
  count(comparison, name);
  tell([&](Report& report) { report.check(check, numbers, comparison); });
  if (check.other_stream && device_.is_cpu()) {
    const bool explain = !std::exchange(explained_dropout_, true);
    tell([&](Report& report) { report.other_stream(check, explain); });
  }
}

void Walkthrough::show(std::string_view name, const at::Tensor& value) {
  if (!showing_) return;
  TORCH_CHECK_VALUE(value.defined(), name, ": expected a tensor, got an undefined one");
  TORCH_CHECK_TYPE(!value.is_complex(), name, ": expected real numbers, got ", value.scalar_type());
  const auto numbers = numbers_of(value);
  tell([&](Report& report) { report.value(std::string(name), value.sizes().vec(), numbers); });
  ++tally_.only_shown;
}

void Walkthrough::show(std::string_view name, double value) {
  show(name, at::scalar_tensor(value, at::kDouble));
}

void Walkthrough::remark(const std::string& text) {
  tell([&](Report& report) { report.remark(text); });
}

void Walkthrough::picture(std::string_view name, const at::Tensor& values, PictureOptions options) {
  if (!showing_) return;
  const Picture drawn{std::string(name), values, std::move(options)};
  tell([&](Report& report) {
    if (report.draws()) report.picture(drawn);
  });
}

void Walkthrough::count(const Comparison& comparison, std::string_view name) {
  if (!comparison.compared()) {
    ++tally_.only_shown;
    return;
  }
  ++tally_.compared;
  if (comparison.verdict == Verdict::Different) ++tally_.differing;
  if (comparison.allowed > 0 && comparison.difference / comparison.allowed >= tally_.closest) {
    tally_.closest = comparison.difference / comparison.allowed;
    tally_.closest_at = fmt::format("{} {}", entry_->id, name);
  }
}

}  // namespace notebooks
