#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "support/expected.h"

namespace notebooks {

class Walkthrough;

/// The source of a document, and its subject. Pages show it, terminals do not.
struct Origin {
  std::string title = {};         ///< as given by its author
  std::string place = {};         ///< its location: "notebook X of Y"
  std::string author = {};        ///< empty: unknown
  std::string introduction = {};  ///< a few sentences about it
};

/// A document that an app can walk through.
struct Document {
  std::string id;  ///< such as "001"
  std::string title;
  std::function<void(Walkthrough&)> cells;  ///< calls Walkthrough::cell() for each row, in order
  const char* source;                       ///< the C++ text of `cells`
  Origin origin = {};
};

/// Selects what is shown of the documents.
struct View {
  std::string only = {};  ///< the row to show, such as "25", "4c" or "001-25"; empty for all
  bool list = false;      ///< print the rows' titles and run nothing
  bool source = false;    ///< print the C++ code of each row too
  bool full = false;      ///< print every number beside the expected one; otherwise one line per row

  bool tables() const { return full || source || !only.empty(); }
};

/// The labels of a picture, and its mask.
struct PictureOptions {
  std::vector<std::string> queries = {};  ///< names of the rows; empty: positions
  std::vector<std::string> keys = {};     ///< names of the columns
  at::Tensor visible = {};    ///< bool, broadcasts to the numbers; false: hidden. Undefined: all are visible
  std::string each = "head";  ///< what the first of three axes counts
};

/// Numbers drawn as maps in which larger numbers are darker: (S) is one row, (L, S) one map, (H, L, S) one
/// map for each of H. Visible numbers must not be negative.
struct Picture {
  std::string name;
  at::Tensor values;
  PictureOptions options;
};

/// One map of a picture.
struct Drawing {
  std::string svg;
  std::string description;  ///< in words, for readers who cannot see it
};

/// Whether the component attentive::viz is built.
bool pictures_available();
/// Draws all maps; returns nothing if pictures are not available.
std::vector<Drawing> draw(const Picture& picture);

/// The results of walking through one document.
struct Tally {
  std::string document;
  int cells = 0, compared = 0, differing = 0, only_shown = 0;
  /// The comparison that used the largest share of its tolerance.
  double closest = 0;
  std::string closest_at;
  std::vector<std::string> without_expected;  ///< cells without expected numbers
  std::string error;                          ///< why the walk ended early

  bool passed() const { return differing == 0 && error.empty(); }
  bool empty() const { return cells == 0 && error.empty(); }
};

/// The column headings for columns_of().
std::vector<std::string> tally_heads();
/// The document, its numbers of cells, comparisons, differences and shown values, and the comparison that
/// came closest to its tolerance.
std::vector<std::string> columns_of(const Tally& tally);
/// The remarks below a summary: cells without expected numbers, and why the walk ended.
std::vector<std::string> remarks_of(const Tally& tally);

/// A sentence that says whether all numbers agree.
std::string_view conclusion(const std::vector<Tally>& tallies);

/// Summarises a cell in one line: how many of its numbers were compared, the largest difference, and the
/// checks that differ.
struct CellLine {
  struct Differing {
    Check check;
    std::vector<double> got;
    Comparison comparison;
  };

  size_t numbers = 0;  ///< how many numbers were compared
  double largest = 0;  ///< the largest difference
  bool shown = false;  ///< values were shown, not compared
  bool stopped = false;
  std::vector<Differing> differing;

  void add(const Check& check, const std::vector<double>& got, const Comparison& comparison);

  /// The largest difference; empty if nothing was compared.
  std::string difference() const;
  /// Returns "ok", "DIFFERS", "STOPPED", "shown" (values, none compared) or "text".
  std::string_view verdict() const;
};

/// The properties of a cell that are known before it runs.
struct CellHeading {
  std::string id;  ///< such as "001-25"
  std::string title;
  std::string note;      ///< a remark in the data file
  const char* document;  ///< the C++ text of its document, for cell_source()
};

/// An output of a walk-through, such as a terminal or pages. It receives all events in order, and ignores
/// those that it does not show.
class Report {
 public:
  virtual ~Report() = default;

  virtual void begin_document(const Document& /*document*/) {}
  virtual void begin_cell(const CellHeading& /*cell*/) {}
  /// A sentence from the cell.
  virtual void remark(const std::string& /*text*/) {}
  /// C++ numbers, compared with expected ones.
  virtual void check(const Check& /*check*/, const std::vector<double>& /*got*/,
                     const Comparison& /*comparison*/) {}
  /// Called after a check of values that depend on dropout, with the values of other machines. `explain`:
  /// give the reason, too.
  virtual void other_stream(const Check& /*check*/, bool /*explain*/) {}
  /// Numbers without expected ones.
  virtual void value(const std::string& /*name*/, const std::vector<int64_t>& /*shape*/,
                     const std::vector<double>& /*numbers*/) {}
  /// True if this report shows pictures; otherwise none are made.
  virtual bool draws() const { return false; }
  virtual void picture(const Picture& /*picture*/) {}
  /// `stopped`: an error has ended the cell and its document.
  virtual void end_cell(bool /*stopped*/) {}
  /// Ends a document; only called after begin_document().
  virtual void end_document(const Tally& /*tally*/) {}
  virtual void summary(const std::vector<Tally>& /*tallies*/) {}
};

/// Writes to standard output, depending on `view`: one line per cell, every number beside the expected one,
/// or titles only.
std::unique_ptr<Report> terminal_report(const View& view);

/// Writes HTML pages: notebook-001.html and so on, and index.html, which lists the pages of this walk. Each
/// is one file that needs no network and contains code, numbers, pictures and style. Makes `folder` if
/// necessary. `made_with` describes the program on the pages, for instance its version.
///
/// A page is written when its document ends, complete or not at all, and replaces an earlier one. Throws
/// std::system_error if a file cannot be written.
std::unique_ptr<Report> page_report(std::filesystem::path folder, std::string made_with);

}  // namespace notebooks
