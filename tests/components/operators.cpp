#include <ATen/core/dispatch/Dispatcher.h>

#include <attentive/operators.h>

int main() {
  attentive::load_operators();
  return c10::Dispatcher::singleton().findSchema({"attentive::attention", ""}) ? 0 : 1;
}
