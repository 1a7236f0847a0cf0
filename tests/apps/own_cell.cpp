// A document with cells of one's own, as apps/notebooks/README.md says how to write them.

#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "app.h"
#include "support/six_tokens.h"

namespace notebooks {

extern const char* const kOwnCell;  // generated from this file

namespace {

class Mine {
 public:
  explicit Mine(Walkthrough& walkthrough) : nb(walkthrough) {}

  void six_inputs() {
    inputs = six_tokens();
    nb.check("inputs", inputs);
    nb.show("their sum", inputs.sum());
  }

  // A cell of one's own. It may use what the cells before it left,
  // and its comment belongs to it.
  void scratch() {
    nb.say("A brace in a text, {}, or a comment counts for nothing: {}", "{{{", '{');  // {{
    if (inputs.defined()) {
      nb.show("scores", inputs.matmul(inputs.t()));
    }
    nb.show("a number", 2.5);
    nb.show("a mask", at::ones({2, 2}, at::kBool).tril());
  }

  void sizes() {
    nb.show("nothing", at::empty({3, 0}));
    nb.show("no row", at::empty({0}));
    nb.show("small", at::tensor({1.25e-7, 0.0}));
    nb.show("large", at::full({1}, 1e30));
    nb.show("infinite", at::full({1}, -std::numeric_limits<double>::infinity()));
    nb.show("long", at::arange(1000));
    nb.show("tall", at::arange(40).view({20, 2}));
    nb.show("in half precision, of four axes", at::ones({1, 1, 1, 1}, at::kHalf));
  }

  void a_check() { nb.check("inputs", six_tokens()); }

  void undefined() { nb.show("undefined", at::Tensor()); }

  void complex_numbers() { nb.show("complex", at::ones({1}, at::kComplexFloat)); }

 private:
  Walkthrough& nb;
  at::Tensor inputs;
};

Tally mine(Walkthrough& walkthrough) {
  Mine cells(walkthrough);
  return walkthrough.walk(
      cells, "mine", "One's own",
      {{"001-02", &Mine::six_inputs}, {"001-43", &Mine::scratch}, {"001-44", &Mine::sizes}});
}

Tally check(Walkthrough& walkthrough) {
  Mine cells(walkthrough);
  return walkthrough.walk(cells, "check", "Stops", {{"wrong-1", &Mine::a_check}});
}

Tally undefined(Walkthrough& walkthrough) {
  Mine cells(walkthrough);
  return walkthrough.walk(cells, "undefined", "Stops", {{"wrong-2", &Mine::undefined}});
}

Tally complex_numbers(Walkthrough& walkthrough) {
  Mine cells(walkthrough);
  return walkthrough.walk(cells, "complex", "Stops", {{"wrong-3", &Mine::complex_numbers}});
}

}  // namespace
}  // namespace notebooks

int main(int argc, char** argv) {
  using namespace notebooks;
  return run_app(argc, argv, "own_cell",
                 {{"mine", mine, kOwnCell},
                  {"check", check, kOwnCell},
                  {"undefined", undefined, kOwnCell},
                  {"complex", complex_numbers, kOwnCell}});
}
