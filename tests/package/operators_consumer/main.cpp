// A user's program that comes to the package's operators by their names, beside a call of the package's
// function.

#include <cstdio>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/rand.h>

#include <attentive/functional/attention.h>
#include <attentive/operators.h>

int main() {
  attentive::load_operators();
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("attentive::attention", "");
  const auto x = at::rand({1, 4, 64, 32});
  std::vector<c10::IValue> stack{x, x, x};
  for (size_t i = 3; i < op.schema().arguments().size(); ++i)
    stack.push_back(op.schema().arguments()[i].default_value().value());
  op.callBoxed(stack);
  const bool same = stack[0].toTensor().equal(attentive::attention(x, x, x));
  std::printf("the operator and the function %s\n", same ? "agree" : "differ");
  return same ? 0 : 1;
}
