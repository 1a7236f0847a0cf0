#pragma once

#include <functional>
#include <string>

namespace notebooks {

class Walkthrough;

/// Where a document comes from, and what it is about. Terminals do not show it, pages do.
struct Origin {
  std::string title = {};         ///< as its author gave it
  std::string place = {};         ///< where it stands: "notebook X of Y"
  std::string author = {};        ///< empty: not named
  std::string introduction = {};  ///< a few sentences of our own
};

/// What an app can walk through.
struct Document {
  std::string id;  ///< such as "001"
  std::string title;
  std::function<void(Walkthrough&)> cells;  ///< calls Walkthrough::cell() for each row, in order
  const char* source;                       ///< the C++ text of `cells`
  Origin origin = {};
};

}  // namespace notebooks
