#include "train/sha256.h"

#include <catch2/catch_test_macros.hpp>

using attentive::sha256;

TEST_CASE("sha256 gives the digests of FIPS 180-4 and of every padding length", "[sha256]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // One digest over the digests of 0 to 130 letters x, computed with Python's hashlib.
  std::string all;
  for (size_t n = 0; n <= 130; ++n) all += sha256(std::string(n, 'x'));
  CHECK(sha256(all) == "87aca1c44bc7ba8897768170211f0a02063de70801131ff86c7edb9ce32c6a50");
}

TEST_CASE("Sha256 of parts is that of the whole", "[sha256]") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * i);
  for (const size_t part : {1U, 3U, 55U, 63U, 64U, 65U, 128U, 200U}) {
    attentive::Sha256 sum;
    for (size_t offset = 0; offset < text.size(); offset += part) {
      CHECK(sum.digest() == sha256(text.substr(0, offset)));
      sum.add(std::string_view(text).substr(offset, part));
      sum.add({});
    }
    CHECK(sum.digest() == sha256(text));
  }
}
