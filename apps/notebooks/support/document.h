#pragma once

#include <functional>
#include <string>

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

}  // namespace notebooks
