#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <fmt/format.h>

#include "support/expected.h"
#include "support/report.h"

namespace notebooks {

/// Walks through the cells of a document and passes each C++ value and the expected one to the reports.
///
/// A cell uses the variables of earlier cells, so showing one cell also runs those before it, silently. A
/// cell that is not in the data file was added by the user: it shows values and compares none.
class Walkthrough {
 public:
  using Reports = std::vector<std::unique_ptr<Report>>;

  Walkthrough(const Expected& expected, c10::Device device, View view, Reports reports)
      : expected_(expected), device_(device), view_(std::move(view)), reports_(std::move(reports)) {}

  c10::Device device() const { return device_; }

  /// Walks through the cells of `document`. An exception in a cell ends the document, not the program.
  Tally walk(const Document& document);
  /// Passes the results of all documents to the reports.
  void summarise(const std::vector<Tally>& tallies);

  /// One row of the current document, such as "001-25". Its code runs at once if the row was requested, and
  /// otherwise when a later one is. Anything that it captures by reference must therefore live as long as the
  /// document's function.
  void cell(const std::string& id, const std::string& title, std::function<void()> code);

  /// Whether the row `id` was requested. Row 4 includes 4a, 4b, …
  bool wanted(std::string_view id) const;
  /// The rows that were shown, in all documents.
  const std::set<std::string>& shown() const { return shown_; }

  // The following functions are for use inside a cell.

  /// Compares a value with the expected one of this name in the current cell.
  void check(std::string_view name, const at::Tensor& got) { compare(name, got, /*random=*/false); }
  void check(std::string_view name, double got);
  void check_shape(std::string_view name, at::IntArrayRef got);
  /// Compares a value that depends on dropout. On a GPU, which draws other numbers, the value is only shown.
  void check_random(std::string_view name, const at::Tensor& got) { compare(name, got, /*random=*/true); }
  /// Shows a value without an expected one.
  void show(std::string_view name, const at::Tensor& value);
  void show(std::string_view name, double value);

  /// Adds a line of explanation.
  template <class... Arguments>
  void say(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (showing_) remark(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  /// Draws numbers of shape (S), (L, S) or (H, L, S), of which no visible one is negative. Does nothing
  /// unless pages are written.
  ///
  ///   nb.picture("weights", weights, {.queries = words, .keys = words, .visible = mask});
  void picture(std::string_view name, const at::Tensor& values, PictureOptions options = {});

  /// False while a cell runs only because a later one was requested.
  bool showing() const { return showing_; }

  /// The names of the rows, and the mask, that the data file gives for this cell.
  const std::vector<std::string>& labels() const { return entry().labels; }
  const std::vector<bool>& mask() const { return entry().mask; }

 private:
  struct Cell {
    std::string id, title;
    std::function<void()> code;
  };

  void tell(const std::function<void(Report&)>& event);
  void remark(const std::string& text);
  void begin_document();
  void begin_cell(const Cell& cell);
  void list(const Cell& cell);
  void run(const Cell& cell, bool showing);
  void finish(const Cell& cell);
  void check_complete() const;
  const Entry& entry() const;
  void compare(std::string_view name, const at::Tensor& got, bool random);
  void count(const Comparison& comparison, std::string_view name);

  const Expected& expected_;
  c10::Device device_;
  View view_;
  Reports reports_;
  std::set<std::string> shown_;

  // State of the current document.
  const Document* document_ = nullptr;
  bool begun_ = false;         ///< whether the reports know of it
  std::vector<Cell> earlier_;  ///< rows that were not requested, to run before one that is
  Tally tally_;

  // State of the current cell.
  std::string id_;
  const Entry* entry_ = nullptr;  ///< its expected values; nullptr for a user's own cell
  bool showing_ = false;
  std::set<std::string, std::less<>> made_;  ///< names of its checks
  bool explained_dropout_ = false;
};

}  // namespace notebooks
