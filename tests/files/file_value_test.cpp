#include <type_traits>

#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/files/file_value.h>

using namespace attentive;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Dict = FileValue::Dict;
using List = FileValue::List;

TEST_CASE("a value says what it is", "[torch_value][errors]") {
  const FileValue value = Dict{{{"a", 1}}, true};
  CHECK(value.find("b") == nullptr);
  CHECK_THROWS_MATCHES(value.at("b"), c10::ValueError,
                       MessageMatches(ContainsSubstring("FileValue: no key \"b\" in the OrderedDict of 1")));
  CHECK_THROWS_MATCHES(value.at("a").as<std::string>(), c10::ValueError,
                       MessageMatches(ContainsSubstring("FileValue: expected str, got int")));
  CHECK_THROWS_MATCHES(value.at("a").find("b"), c10::ValueError,
                       MessageMatches(ContainsSubstring("expected dict, got int")));
  CHECK_THROWS_AS(FileValue(List{}).as<Dict>(), c10::ValueError);
  CHECK(FileValue(List{{1, 2}}).as<List>().items.size() == 2);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<const int64_t*, FileValue>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<FileValue, size_t>);
}

TEST_CASE("a value has the kind of what it was made from", "[torch_value]") {
  const std::vector<std::pair<FileValue, std::string_view>> kinds = {
      {FileValue(), "None"},
      {true, "bool"},
      {7, "int"},
      {7.0f, "float"},
      {std::complex<double>(0, 1), "complex"},
      {"text", "str"},
      {at::ones({2}), "tensor"},
      {FileValue::Parameter{at::ones({2})}, "Parameter"},
      {at::kHalf, "dtype"},
      {c10::Device(at::kCPU), "device"},
      {at::kStrided, "layout"},
      {FileValue::Bytes{"b"}, "bytes"},
      {FileValue::Integer{"18446744073709551616"}, "int beyond 64 bits"},
      {List{}, "list"},
      {FileValue::Tuple{}, "tuple"},
      {FileValue::Set{}, "set"},
      {Dict{}, "dict"},
      {Dict{.items = {}, .ordered = true}, "OrderedDict"}};
  for (const auto& [value, kind] : kinds) CHECK(value.kind() == kind);
}

TEST_CASE("copies of a value share tensors and nothing else", "[torch_value]") {
  const FileValue value = Dict{{{"weight", at::ones({2})}, {"steps", List{{1, 2}}}}};
  FileValue copy = value;
  CHECK(copy.at("weight").as<at::Tensor>().is_same(value.at("weight").as<at::Tensor>()));
  auto taken = std::move(copy).as<Dict>();
  taken.items.clear();
  CHECK(value.as<Dict>().items.size() == 2);
  CHECK(value.at("steps").as<List>().items[1].as<int64_t>() == 2);
}
