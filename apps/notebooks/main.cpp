#include <vector>

#include "app.h"

int main(int argc, char** argv) {
  const std::string only = ATTENTIVE_DOCUMENT;  // empty: all
  auto documents = notebooks::documents();
  if (only.empty()) return notebooks::run_app(argc, argv, "attentive-notebooks", documents);
  std::erase_if(documents, [&](const auto& document) { return document.id != only; });
  return notebooks::run_app(argc, argv, "attentive-notebook-" + only, documents);
}
