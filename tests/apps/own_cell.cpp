// A document with cells of one's own, as apps/notebooks/README.md says how to write them.

#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "app.h"

namespace notebooks {

extern const char* const kOwnCell;  // generated from this file

namespace {

void mine(Walkthrough& nb) {
  at::Tensor inputs;

  nb.cell("001-02", "Six tokens of three features", [&] {
    inputs = six_tokens();
    nb.check("inputs", inputs);
    nb.show("their sum", inputs.sum());
  });

  // A cell of one's own. It may use what the cells before it left,
  // and its comment belongs to it.
  nb.cell("001-43", "Scratch", [&] {
    nb.say("A brace in a text, {}, or a comment counts for nothing: {}", "{{{", '{');  // {{
    if (inputs.defined()) {
      nb.show("scores", inputs.matmul(inputs.t()));
    }
    nb.show("a number", 2.5);
    nb.show("a mask", at::ones({2, 2}, at::kBool).tril());
  });

  nb.cell("001-44", "Sizes of every kind, under a title that is too long for one line", [&] {
    nb.show("nothing", at::empty({3, 0}));
    nb.show("no row", at::empty({0}));
    nb.show("small", at::tensor({1.25e-7, 0.0}));
    nb.show("large", at::full({1}, 1e30));
    nb.show("infinite", at::full({1}, -std::numeric_limits<double>::infinity()));
    nb.show("long", at::arange(1000));
    nb.show("tall", at::arange(40).view({20, 2}));
    nb.show("in half precision, of four axes", at::ones({1, 1, 1, 1}, at::kHalf));
  });

  nb.cell("001-45", "Words {and} \"quotes\"", [&] { nb.say("Nothing but words."); });
}

void check(Walkthrough& nb) {
  nb.cell("wrong-1", "A check", [&] { nb.check("inputs", six_tokens()); });
  nb.cell("wrong-1a", "Behind it", [&] { nb.say("The document has ended before."); });
}

void undefined(Walkthrough& nb) {
  nb.cell("wrong-2", "Undefined", [&] { nb.show("undefined", at::Tensor()); });
}

void complex_numbers(Walkthrough& nb) {
  nb.cell("wrong-3", "Complex numbers", [&] { nb.show("complex", at::ones({1}, at::kComplexFloat)); });
}

}  // namespace
}  // namespace notebooks

int main(int argc, char** argv) {
  using namespace notebooks;
  return run_app(argc, argv, "own_cell",
                 {{"mine", "One's own", mine, kOwnCell},
                  {"check", "Stops", check, kOwnCell},
                  {"undefined", "Stops", undefined, kOwnCell},
                  {"complex", "Stops", complex_numbers, kOwnCell}});
}
