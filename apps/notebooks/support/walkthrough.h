#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <fmt/format.h>

#include "support/expected.h"
#include "support/table.h"

namespace notebooks {

/// What came of walking through one document.
struct Tally {
  std::string document;
  int cells = 0, compared = 0, differing = 0, only_shown = 0;
  /// The comparison that used the largest part of what it was allowed.
  double closest = 0;
  std::string closest_at;
  std::vector<std::string> own;  ///< cells without expected numbers
  std::string error;             ///< why the document could not be walked to its end

  bool passed() const { return differing == 0 && error.empty(); }
};

/// What is shown of the documents.
struct View {
  std::string only = {};  ///< the row to show, such as "25", "4c" or "001-25"; empty for all
  bool list = false;      ///< print the rows' titles and run nothing
  bool source = false;    ///< print the C++ code of each row too
};

/// Walks through the cells of a document and shows each C++ value beside the expected one.
///
/// A cell uses what earlier cells left behind, so showing one cell still runs those before it, silently. A
/// cell that the expected numbers lack is somebody's own: it shows values and compares none.
class Walkthrough {
 public:
  /// One row of a document, such as "001-25", and its code.
  using Cell = std::pair<std::string, std::function<void()>>;

  Walkthrough(const Expected& expected, c10::Device device, View view)
      : expected_(expected), device_(device), view_(std::move(view)) {}

  c10::Device device() const { return device_; }

  /// The C++ text of the document that is walked next.
  void read_source(std::string_view text) { text_ = text; }

  /// Runs the member functions of `notebook` in order. An exception ends the document, not the program.
  template <class Notebook>
  Tally walk(Notebook& notebook, const std::string& document, const std::string& title,
             std::initializer_list<std::pair<const char*, void (Notebook::*)()>> functions) {
    std::vector<Cell> cells;
    for (const auto& [id, function] : functions) {
      cells.emplace_back(id, [&notebook, cell = function] { (notebook.*cell)(); });
    }
    return walk_cells(document, title, cells);
  }

  /// True if the row `id` is asked for. Row 4 includes 4a, 4b, …
  bool wanted(std::string_view id) const;
  /// The rows that were shown, in all documents.
  const std::set<std::string>& shown() const { return shown_; }

  // Inside of a cell:

  /// Compares a value with the expected one of that name in this cell.
  void check(std::string_view name, const at::Tensor& got) { compare(name, got, /*random=*/false); }
  void check(std::string_view name, double got);
  void check_shape(std::string_view name, at::IntArrayRef got);
  /// The same for what dropout has touched. A GPU draws other numbers: they are shown there, not compared.
  void check_random(std::string_view name, const at::Tensor& got) { compare(name, got, /*random=*/true); }
  /// Prints a value of which nothing is expected.
  void show(std::string_view name, const at::Tensor& value);
  void show(std::string_view name, double value);

  /// A line of explanation.
  template <class... Arguments>
  void say(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (showing_) print_remark(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  /// False while a cell runs only because a later one is asked for.
  bool showing() const { return showing_; }

  /// Names of the rows and the mask that the data file gives for this cell.
  const std::vector<std::string>& labels() const { return entry().labels; }
  const std::vector<bool>& mask() const { return entry().mask; }

 private:
  Tally walk_cells(const std::string& document, const std::string& title, const std::vector<Cell>& cells);
  void run(const Cell& cell);
  void list(const std::string& id);
  void introduce(const std::string& id);
  void check_complete() const;
  const Entry& entry() const;
  void compare(std::string_view name, const at::Tensor& got, bool random);
  void count(const Comparison& comparison, std::string_view name);

  const Expected& expected_;
  c10::Device device_;
  View view_;
  std::string_view text_;
  std::set<std::string> shown_;
  Tally tally_;
  std::string id_;                ///< of this cell
  const Entry* entry_ = nullptr;  ///< what is expected of it, or nullptr: somebody's own cell
  bool showing_ = false;
  std::set<std::string, std::less<>> made_;  ///< checks of this cell
  bool explained_dropout_ = false;           ///< in this cell
};

}  // namespace notebooks
